//! Files, templates and messages made to break the program.

use rushlight_text::{
    ChatTemplate, GgufVocabulary, RenderRequest, TemplateLimits, TemplateSource, TemplateTokens,
    TextError, TextErrorKind, Tokenizer, TokenizerConfig,
};
use serde_json::{Value, json};

use crate::models;

fn render(source: &str, messages: &Value) -> Result<String, TextError> {
    let source = TemplateSource::One(source.to_owned());
    ChatTemplate::new(&source, TemplateTokens::default())?
        .render(&RenderRequest::new(messages))
        .map(|rendered| rendered.text)
}

#[test]
fn templates_are_bounded_in_time_and_memory() {
    let doubling =
        "{% set x = 'a' * 1000 %}".to_owned() + &"{% set x = x ~ x %}".repeat(60) + "{{ x }}";
    let capturing = "{% set x %}aaaaaaaa{% endset %}".to_owned()
        + &"{% set x %}{{ x }}{{ x }}{% endset %}".repeat(60);
    for source in [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        &doubling,
        &capturing,
        "{{ 'a' * 100000000000 }}",
        "{{ ('a,' * 10000000).split(',') | length }}",
        "{% set ns = namespace(x='aaaa') %}{% for a in range(90) %}{% set ns.x = ns.x.replace('a', 'aa') %}{% endfor %}",
        "{% set ns = namespace(x=['a']) %}{% for a in range(22) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | tojson }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ] {
        println!("{source:.60}");
        let error = render(source, &json!([])).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                TextErrorKind::TemplateLimit | TextErrorKind::TemplateFailed
            ),
            "{source:.80}: {error}"
        );
    }
}

#[test]
fn output_is_bounded() {
    let source = TemplateSource::One("{% for a in range(1000) %}0123456789{% endfor %}".to_owned());
    let template = ChatTemplate::new(&source, TemplateTokens::default())
        .unwrap()
        .with_limits(TemplateLimits {
            output: 9_999,
            ..TemplateLimits::default()
        });
    let messages = json!([]);
    let error = template.render(&RenderRequest::new(&messages)).unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::TemplateLimit);
    let template = template.with_limits(TemplateLimits {
        output: 10_000,
        ..TemplateLimits::default()
    });
    assert_eq!(
        template
            .render(&RenderRequest::new(&messages))
            .unwrap()
            .text
            .len(),
        10_000
    );
}

#[test]
fn long_conversations_are_within_the_limits() {
    let message = json!({"role": "user", "content": "word ".repeat(2_000)});
    let messages = Value::Array(vec![message; 400]);
    let source = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content.strip().split('</think>')[-1] + '\n' }}{% endfor %}";
    let text = render(source, &messages).unwrap();
    assert_eq!(text.len(), 400 * ("<|user|>".len() + 9_999 + 1));
}

/// Recursion in templates and nesting in sources stay within the stack of a spawned thread.
#[test]
fn nothing_overflows_a_small_stack() {
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(|| {
            let deep = |open: &str, close: &str, n: usize| open.repeat(n) + &close.repeat(n);
            for source in [
                "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100000) }}".to_owned(),
                "{% macro m(n) %}{% for a in [1] %}{% if n %}{% call m(n - 1) %}{{ caller() }}{% endcall %}{% endif %}{% endfor %}{% endmacro %}{{ m(100000) }}".to_owned(),
                format!("{{{{ {} }}}}", deep("(", ")", 100_000)),
                format!("{{{{ {} }}}}", deep("[", "]", 100_000)),
                deep("{% if true %}", "{% endif %}", 100_000),
                deep("{% for a in [1] %}", "{% endfor %}", 20_000),
                format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
                format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
                format!("{{{{ 1{} }}}}", " + 1".repeat(100_000)),
                format!("{{{{ x{} }}}}", ".a".repeat(100_000)),
                format!("{{{{ x{} }}}}", "|trim".repeat(100_000)),
                "{% if x %}".to_owned() + &"{% elif x %}".repeat(50_000) + "{% endif %}",
                format!("{{{{ {}1 }}}}", "not ".repeat(950)),
                format!("{{{{ {}1 }}}}", "-".repeat(950)),
                format!("{{{{ 1{} }}}}", " + 1".repeat(450)),
                format!("{{{{ x{} }}}}", ".a".repeat(450)),
                format!("{{{{ x{} }}}}", "|trim".repeat(450)),
                format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(230)),
                "{% if x %}".to_owned() + &"{% elif x %}".repeat(990) + "{% endif %}",
                "{% set ns = namespace(x=[]) %}{% for a in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}".to_owned(),
                "{% set ns = namespace(x=[]) %}{% for a in range(3000) %}{% set ns.x = [ns.x] %}{% endfor %}".to_owned(),
                "{% set ns = namespace(x=[]) %}{% for a in range(9000) %}{% set ns.x = [ns.x] %}{% endfor %}".to_owned(),
                "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}".to_owned(),
                "{% set ns = namespace(x=[]) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}".to_owned(),
            ] {
                // Shown if the stack overflows after all, which ends the process.
                println!("{source:.60}");
                let _ = render(&source, &json!([]));
            }
            let mut deep = json!("x");
            for _ in 0..5_000 {
                deep = Value::Array(vec![deep]);
            }
            let mut messages = json!([{"role": "user", "content": ""}]);
            messages[0]["extra"] = deep;
            let error = render("", &messages).unwrap_err();
            assert_eq!(error.kind(), TextErrorKind::InvalidInput);
            // Dropping so deep a value is `serde_json`'s recursion, which is not what is tested here.
            std::mem::forget(messages);

            let nested = deep_json(100_000);
            assert!(TokenizerConfig::from_json(&nested).is_err());
            assert!(Tokenizer::from_json(&nested, &TokenizerConfig::default()).is_err());
        })
        .unwrap()
        .join()
        .unwrap();
}

fn deep_json(n: usize) -> String {
    format!("{{\"model\": {}{}}}", "[".repeat(n), "]".repeat(n))
}

fn hub_file(change: impl FnOnce(&mut Value)) -> Result<Tokenizer, TextError> {
    let mut file = json!({
        "added_tokens": [{"id": 5, "content": "<x>", "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    });
    change(&mut file);
    Tokenizer::from_json(&file.to_string(), &TokenizerConfig::default())
}

#[test]
fn hostile_tokenizer_files() {
    assert!(hub_file(|_| {}).is_ok());
    let malformed: [(&str, Value); 12] = [
        ("/model/merges", json!(["a c"])),
        ("/model/merges", json!(["ab a"])),
        ("/model/merges", json!(["ab"])),
        ("/model/merges", json!([["a", "b", "c"]])),
        ("/model/merges", json!([["a"]])),
        ("/model/vocab", json!({"a": -1})),
        ("/model/vocab", json!({"a": 4294967295u32})),
        ("/model/vocab", json!([])),
        (
            "/added_tokens",
            json!([{"id": 4294967295u32, "content": "<y>"}]),
        ),
        ("/added_tokens", json!([{"id": 1}])),
        ("/model/unk_token", json!(3)),
        (
            "/pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "(["}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}),
        ),
    ];
    for (pointer, value) in malformed {
        let error = hub_file(|file| {
            if let Some(slot) = file.pointer_mut(pointer) {
                *slot = value.clone();
            } else {
                file["model"]["unk_token"] = value.clone();
            }
        })
        .unwrap_err();
        assert_eq!(
            error.kind(),
            TextErrorKind::Malformed,
            "{pointer} {value}: {error}"
        );
    }
    let unsupported: [(&str, Value); 6] = [
        ("/decoder", json!(null)),
        ("/decoder", json!({"type": "CTC"})),
        ("/model/type", json!("WordPiece")),
        ("/pre_tokenizer", json!({"type": "Nonsense"})),
        ("/normalizer", json!({"type": "Nonsense"})),
        (
            "/decoder",
            json!({"type": "Strip", "content": "x", "start": 1, "stop": 0}),
        ),
    ];
    for (pointer, value) in unsupported {
        let error =
            hub_file(|file| *file.pointer_mut(pointer).unwrap() = value.clone()).unwrap_err();
        assert_eq!(
            error.kind(),
            TextErrorKind::Unsupported,
            "{pointer} {value}: {error}"
        );
    }
    assert!(hub_file(|file| file["model"]["unk_token"] = json!("q")).is_err());
}

#[test]
fn hostile_gguf_vocabularies() {
    let change = |change: &dyn Fn(&mut GgufVocabulary)| {
        let mut vocabulary = models::tiny(&[("<x>", 3)]);
        change(&mut vocabulary);
        Tokenizer::from_gguf(vocabulary)
    };
    assert!(change(&|_| {}).is_ok());
    let malformed: [&dyn Fn(&mut GgufVocabulary); 9] = [
        &|v| v.tokens.clear(),
        &|v| v.scores = None,
        &|v| v.scores = Some(vec![0.0]),
        &|v| v.scores.as_mut().unwrap()[3] = f32::NAN,
        &|v| v.token_types = Some(vec![]),
        &|v| v.eos = Some(1_000_000),
        &|v| v.model = "gpt2".to_owned(),
        &|v| {
            v.model = "gpt2".to_owned();
            v.merges = vec!["a".to_owned()];
        },
        &|v| {
            v.model = "gpt2".to_owned();
            v.merges = vec!["a zz".to_owned()];
        },
    ];
    for (index, hostile) in malformed.into_iter().enumerate() {
        let error = change(hostile).unwrap_err();
        assert_eq!(error.kind(), TextErrorKind::Malformed, "{index}: {error}");
    }
    for (model, pre) in [("t5", None), ("gpt2", Some("nonsense"))] {
        let error = change(&|v| {
            v.model = model.to_owned();
            v.pre = pre.map(str::to_owned);
        })
        .unwrap_err();
        assert_eq!(error.kind(), TextErrorKind::Unsupported, "{error}");
    }
}

proptest::proptest! {
    /// Whatever is done to a template's source, it compiles and renders or it is an error.
    #[test]
    fn mangled_templates(at in 0usize..400, insert in "[{}%#\\-a-z'\"(\\[|. ]{0,6}", cut in 0usize..20) {
        let source = "{%- for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{% generation %}{{ m.content | trim }}{% endgeneration %}{% if loop.last %}{{ m['content'].split('a', 1)[0] | tojson(indent=2) }}{% endif %}{% endfor %}{# c #}{% raw %}x{% endraw %}";
        let at = at.min(source.len());
        let end = (at + cut).min(source.len());
        let mangled = format!("{}{insert}{}", &source[..at], &source[end..]);
        let _ = render(&mangled, &json!([{"role": "user", "content": "a b a"}]));
    }
}
