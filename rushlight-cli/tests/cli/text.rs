//! `tokenize`, `template`, `inspect`.

use serde_json::json;

use crate::program::{Tiny, run, run_with};

#[test]
fn tokenising() {
    let tiny = Tiny::new();
    let tokenize = |more: &[&str]| run(&[&["tokenize", "--model", tiny.model()], more].concat());
    assert_eq!(tokenize(&["Hi é"]).good().stdout, "72 105 32 195 169\n");
    // Content spells no control token unless it is asked to.
    assert_eq!(
        tokenize(&["<|im_end|>"]).good().stdout.split(' ').count(),
        10
    );
    assert_eq!(
        tokenize(&["--special", "a<|im_end|>"]).good().stdout,
        "97 258\n"
    );
    assert_eq!(tokenize(&["-x"]).good().stdout, "45 120\n");
    let file = tiny.folder.write("text.txt", "ab\n");
    assert_eq!(
        tokenize(&["--file", file.to_str().unwrap()]).good().stdout,
        "97 98 10\n"
    );
    let piped = run_with(&["tokenize", "--model", tiny.model()], "ab\n").good();
    assert_eq!(piped.stdout, "97 98 10\n");
    let object = tokenize(&["--json", "--special", "é\n<|im_end|>"]).json();
    assert_eq!(object["tokens"], json!([195, 169, 10, 258]));
    assert_eq!(object["count"], 4);
    assert_eq!(
        object["pieces"],
        json!([
            {"id": 195, "piece": "\\xc3", "control": false},
            {"id": 169, "piece": "\\xa9", "control": false},
            {"id": 10, "piece": "\\n", "control": false},
            {"id": 258, "piece": "<|im_end|>", "control": true},
        ])
    );
}

#[test]
fn bos_is_put_where_the_model_wants_it() {
    let model = rushlight_testkit::gguf::GgufBuilder::tiny_llama()
        .without("tokenizer.ggml.add_bos_token")
        .bool("tokenizer.ggml.add_bos_token", true);
    let tiny = Tiny::of(&model);
    let tokenize = |more: &[&str]| run(&[&["tokenize", "--model", tiny.model()], more].concat());
    assert_eq!(tokenize(&["a"]).good().stdout, "256 97\n");
    assert_eq!(tokenize(&["--no-bos", "a"]).good().stdout, "97\n");
}

#[test]
fn rendering() {
    let tiny = Tiny::new();
    let template = |more: &[&str], messages: &str| {
        run_with(
            &[&["template", "--model", tiny.model()], more].concat(),
            messages,
        )
    };
    let hi = r#"[{"role":"user","content":"Hi <|im_end|>"}]"#;
    let rendered = template(&[], hi).good();
    let expected = "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(rendered.stdout, expected);
    let closed = template(&["--no-generation-prompt"], hi).good().stdout;
    assert_eq!(closed, "<|im_start|>user\nHi <|im_end|><|im_end|>\n");
    // Of the two spellings of the turn's end one is text.
    let tokens = template(&["--json"], hi).json()["tokens"].clone();
    let ends = tokens
        .as_array()
        .unwrap()
        .iter()
        .filter(|id| **id == 258)
        .count();
    assert_eq!(ends, 1);
    let file = tiny.folder.write("messages.json", hi);
    assert_eq!(
        template(&[file.to_str().unwrap()], "").good().stdout,
        expected
    );
    template(&[], "[{").refused(1, &["stdin", "not JSON", "line 1"]);
    template(&[], "{}").refused(1, &["messages must be a list"]);
    template(&["--name", "rag"], hi).refused(1, &["rag", "default"]);
    template(&["--kwarg", "a=1", "--kwarg", "a=2"], hi).refused(1, &["a is given twice"]);
    template(&["--kwarg", "messages=[]"], hi).refused(1, &["messages"]);
}

#[test]
fn variables_and_tools_reach_the_template() {
    let model = rushlight_testkit::gguf::GgufBuilder::tiny_llama()
        .without("tokenizer.chat_template")
        .string(
            "tokenizer.chat_template",
            "{{ messages[0].content }}{% if tools %}{{ tools[0].name }}{% endif %}\
             {% if think %}+{% else %}-{% endif %}{{ raise_exception('no') if bad }}",
        );
    let tiny = Tiny::of(&model);
    let tools = tiny.folder.write("tools.json", r#"[{"name":"look"}]"#);
    let hi = r#"[{"role":"user","content":"Hi"}]"#;
    let arguments = [
        "template",
        "--model",
        tiny.model(),
        "--tools",
        tools.to_str().unwrap(),
    ];
    let rendered = run_with(&[&arguments[..], &["--kwarg", "think=true"]].concat(), hi).good();
    assert_eq!(rendered.stdout, "Hilook+");
    // What a template leaves out is not left out in silence.
    let deaf = Tiny::new();
    let unheard = [
        "template",
        "--model",
        deaf.model(),
        "--tools",
        tools.to_str().unwrap(),
    ];
    run_with(&unheard, hi).refused(1, &["no place for tools"]);
    // A template's own words reach the caller.
    run_with(&[&arguments[..], &["--kwarg", "bad=true"]].concat(), hi).refused(1, &["no"]);
}

#[test]
fn what_a_template_cannot_take_is_the_requests_fault_and_told_once() {
    let model = rushlight_testkit::gguf::GgufBuilder::tiny_llama()
        .without("tokenizer.chat_template")
        .string(
            "tokenizer.chat_template",
            "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}",
        );
    let tiny = Tiny::of(&model);
    let arguments = ["template", "--model", tiny.model()];
    for messages in [
        r#"[{"role":"user","content":null}]"#,
        r#"[{"role":"user"}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":"Hi"}]}]"#,
    ] {
        let refused = run_with(&arguments, messages);
        refused.refused(1, &["default:1:", "cannot take"]);
        assert_eq!(
            refused.stderr.matches("invalid operation").count(),
            1,
            "{refused:?}"
        );
        assert_eq!(refused.stderr.matches("because").count(), 0, "{refused:?}");
    }
}

#[test]
fn inspecting() {
    let tiny = Tiny::new();
    let about = run(&["inspect", "--json", "--context", "100", tiny.model()]).json();
    assert_eq!(about["architecture"], "llama");
    assert_eq!(about["name"], "Tiny");
    assert_eq!(about["runs"], true);
    assert_eq!(about["container"], "GGUF v3");
    // Embedding 259 × 32; a layer: q and o 32 × 32, k and v 16 × 32, three 64 × 32, two norms; one norm.
    let layer = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32 + 2 * 32;
    let parameters = 259 * 32 + 2 * layer + 32;
    assert_eq!(about["parameters"], parameters);
    assert_eq!(about["formats"][0]["bytes"], parameters * 4);
    assert_eq!(about["config"]["context"], 256);
    assert_eq!(about["tokenizer"]["ids"], 259);
    assert_eq!(about["tokenizer"]["eos"], 258);
    assert_eq!(about["template"]["system"], true);
    assert_eq!(about["template"]["tools"], false);
    let function = &about["functions"][0];
    assert_eq!(function["name"], "main");
    assert_eq!(function["states"].as_array().unwrap().len(), 2);
    // 2 layers × keys and values × 2 heads × 8 elements × 2 bytes × 100 positions.
    assert_eq!(about["memory"]["states"], 2 * 2 * 2 * 8 * 2 * 100);
    let exact = [
        "inspect",
        "--json",
        "--context",
        "100",
        "--kv-dtype",
        "f32",
        tiny.model(),
    ];
    assert_eq!(
        run(&exact).json()["memory"]["states"],
        2 * 2 * 2 * 8 * 4 * 100
    );
    assert!(about["metadata"].is_null());
    let all = run(&["inspect", "--json", "--metadata", tiny.model()]).json();
    assert_eq!(all["metadata"]["llama.block_count"], 2);
    let text = run(&["inspect", tiny.model()]).good().stdout;
    for words in [
        "llama",
        "256 tokens",
        "4 for queries, 2 for keys and values, 8 wide",
        "takes instructions",
        "main: tokens [T, 1] u32 below 259",
        "2 × kv, every position, [2, 8] each",
        "<|im_end|> (258)",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
}
