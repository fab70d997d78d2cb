//! `run` and `logits` on a tiny model.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rushlight_testkit::gguf::GgufBuilder;
use rushlight_testkit::goldens;
use serde_json::Value;

use crate::program::{Tiny, command, run, run_with};

fn answer(tiny: &Tiny, more: &[&str]) -> Value {
    run(&[&["run", "--json", "--model", tiny.model()], more].concat()).json()
}

/// A greedy answer of 12 tokens, whose model does not end.
const GREEDY: &[&str] = &[
    "--raw",
    "--prompt",
    "Once",
    "--temperature",
    "0",
    "--max-tokens",
    "12",
];

fn greedy(tiny: &Tiny, more: &[&str]) -> Value {
    answer(tiny, &[GREEDY, more].concat())
}

fn ids(value: &Value) -> Vec<u64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap())
        .collect()
}

#[test]
fn the_object_has_everything() {
    let tiny = Tiny::new();
    let object = greedy(&tiny, &["--seed", "7"]);
    assert_eq!(object["tokens"].as_array().unwrap().len(), 12);
    assert!(object["text"].is_string());
    assert_eq!(object["finish_reason"], "max_tokens");
    assert!(object["stop_sequence"].is_null());
    assert_eq!(object["usage"]["prompt_tokens"], 4);
    assert_eq!(object["usage"]["cached_tokens"], 0);
    assert_eq!(object["usage"]["completion_tokens"], 12);
    for part in ["load", "prefill", "decode"] {
        assert!(object["seconds"][part].as_f64().unwrap() > 0.0, "{object}");
    }
    for part in ["prefill", "decode"] {
        assert!(
            object["tokens_per_second"][part].as_f64().unwrap() > 0.0,
            "{object}"
        );
    }
    assert_eq!(object["seed"], 7);
}

#[test]
fn text_streams_to_stdout_and_the_rest_to_stderr() {
    let tiny = Tiny::new();
    let object = greedy(&tiny, &[]);
    let text = run(&[&["run", "--model", tiny.model()], GREEDY].concat()).good();
    assert_eq!(
        text.stdout,
        format!("{}\n", object["text"].as_str().unwrap())
    );
    assert!(text.stderr.contains("prompt 4 tokens"), "{text:?}");
    assert!(text.stderr.contains("/s"), "{text:?}");
    // Neither is a terminal: no colours, no bars.
    assert!(
        !text.stderr.contains('\u{1b}') && !text.stderr.contains('\r'),
        "{text:?}"
    );
}

#[test]
fn the_same_tokens_however_they_are_made() {
    let tiny = Tiny::new();
    let tokens = greedy(&tiny, &[])["tokens"].clone();
    for more in [
        &["--threads", "1"][..],
        &["--threads", "2"],
        &["--chunk-size", "3"],
        &["--chunk-size", "1", "--chunk-threshold", "2"],
        &["--engine", "pipelined"],
        &[
            "--kv-cache-strategy",
            "growing",
            "--kv-cache-initial-capacity",
            "1",
        ],
        &["--kv-cache-strategy", "fixed_size"],
        &[
            "--kv-cache-strategy",
            "chunked",
            "--kv-cache-capacity",
            "64",
            "--kv-cache-sinks",
            "2",
        ],
        &["--context", "64"],
    ] {
        assert_eq!(greedy(&tiny, more)["tokens"], tokens, "{more:?}");
    }
    // The ids of `Once` are its bytes.
    let from_ids = answer(
        &tiny,
        &[
            "--raw-tokens",
            "79,110,99,101",
            "--temperature",
            "0",
            "--max-tokens",
            "12",
        ],
    );
    assert_eq!(from_ids["tokens"], tokens);
    let file = tiny.folder.write("prompt.txt", "Once\n");
    let arguments = [
        "run",
        "--json",
        "--model",
        tiny.model(),
        "--raw",
        "--temperature",
        "0",
    ];
    let from_file = [&arguments[..], &["--max-tokens", "12", "--prompt-file"]].concat();
    let from_file = run(&[&from_file[..], &[file.to_str().unwrap()]].concat()).json();
    assert_eq!(from_file["tokens"], tokens);
    let piped = run_with(
        &[&arguments[..], &["--max-tokens", "12"]].concat(),
        "Once\n",
    )
    .json();
    assert_eq!(piped["tokens"], tokens);
}

/// With a context of a million positions the answer does not end by itself.
#[cfg(unix)]
#[test]
fn an_interrupted_answer_is_told_as_far_as_it_came() {
    let model = GgufBuilder::tiny_llama()
        .without("llama.context_length")
        .u32("llama.context_length", 1 << 20);
    let tiny = Tiny::of(&model);
    let saved = tiny.path("logits.npy");
    let child = command(
        [
            &[
                "run",
                "--json",
                "--model",
                tiny.model(),
                "--save-logits",
                &saved,
            ][..],
            &["--raw", "--prompt", "Once", "--temperature", "0"],
        ]
        .concat(),
    )
    .spawn()
    .unwrap();
    // The unfinished file beside it grows with each token.
    let unfinished = tiny.path(&format!(".logits.npy.{}.part", child.id()));
    while fs::metadata(&unfinished).map_or(0, |file| file.len()) < 3 * 259 * 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["finish_reason"], "cancelled");
    let tokens = object["tokens"].as_array().unwrap().len();
    assert!(tokens >= 2, "{object}");
    assert_eq!(object["usage"]["completion_tokens"], tokens);
    // What was asked for besides is whole.
    assert_eq!(
        fs::metadata(&saved).unwrap().len() as usize,
        128 + tokens * 259 * 4
    );
}

#[test]
fn a_checkpoint_without_a_tokenizer_answers_in_ids() {
    let folder = goldens::checkpoint("llama");
    let case = &goldens::cases("llama")[0];
    let ids: Vec<String> = case.prompt.iter().map(u32::to_string).collect();
    let arguments = [
        "run",
        "--model",
        folder.to_str().unwrap(),
        "--raw-tokens",
        &ids.join(","),
        "--temperature",
        "0",
        "--max-tokens",
        "4",
    ];
    let object = run(&[&arguments[..], &["--json", "--print-logits", "1"]].concat()).json();
    assert_eq!(object["text"], "");
    let tokens: Vec<u32> = serde_json::from_value(object["tokens"].clone()).unwrap();
    assert_eq!(tokens.len(), 4);
    // The first is settled by more than rounding.
    assert_eq!(tokens[0], case.greedy[0]);
    assert!(object["steps"][0]["piece"].is_null());
    let told: Vec<String> = tokens.iter().map(u32::to_string).collect();
    let text = run(&arguments).good().stdout;
    assert_eq!(text, format!("{}\n", told.join(" ")));
    // What needs text says so.
    let arguments = ["run", "--model", folder.to_str().unwrap(), "--prompt", "Hi"];
    run(&arguments).refused(3, &["no tokenizer", "token ids"]);
}

#[test]
fn a_seed_gives_the_same_text_and_a_drawn_one_is_told() {
    let tiny = Tiny::new();
    let draw = |more: &[&str]| {
        let arguments = ["--raw", "--prompt", "Once", "--max-tokens", "16"];
        answer(&tiny, &[&arguments[..], more].concat())
    };
    let first = draw(&["--temperature", "1.5"]);
    let seed = first["seed"].as_u64().unwrap().to_string();
    assert_eq!(
        draw(&["--temperature", "1.5", "--seed", &seed])["tokens"],
        first["tokens"]
    );
    let seeds: Vec<Value> = (1..6)
        .map(|seed| draw(&["--temperature", "1.5", "--seed", &seed.to_string()])["tokens"].clone())
        .collect();
    assert!(seeds.iter().any(|tokens| *tokens != seeds[0]), "{seeds:?}");
}

#[test]
fn bias_and_penalties_change_what_is_chosen() {
    let tiny = Tiny::new();
    let tokens = ids(&greedy(&tiny, &[])["tokens"]);
    let ban = format!("{}=-inf", tokens[0]);
    let banned = ids(&greedy(&tiny, &["--logit-bias", &ban])["tokens"]);
    assert!(!banned.contains(&tokens[0]), "{banned:?}");
    let want = ids(&greedy(&tiny, &["--logit-bias", "65=1000"])["tokens"]);
    assert_eq!(want, vec![65; 12]);
    // Nothing is said twice where saying it once costs everything.
    let penalised = ids(&greedy(&tiny, &["--presence-penalty", "1000"])["tokens"]);
    let distinct: std::collections::HashSet<&u64> = penalised.iter().collect();
    assert_eq!(distinct.len(), penalised.len(), "{penalised:?}");
}

#[test]
fn stop_strings() {
    let tiny = Tiny::new();
    // A model that only says `abc`, over and over, would need other weights; a bias says it here.
    let a = ["--logit-bias", "97=1000"];
    let whole = greedy(&tiny, &a);
    assert_eq!(whole["text"], "aaaaaaaaaaaa");
    let met = greedy(
        &tiny,
        &[&a[..], &["--stop", "nope", "--stop", "aaa"]].concat(),
    );
    assert_eq!(met["finish_reason"], "stop_sequence");
    assert_eq!(met["stop_sequence"], "aaa");
    assert_eq!(met["text"], "");
    assert_eq!(met["usage"]["completion_tokens"], 3);
    // Never met: what was held back for it comes at the end.
    let unmet = greedy(&tiny, &[&a[..], &["--stop", "aaaaaaaaaaaab"]].concat());
    assert_eq!(unmet["finish_reason"], "max_tokens");
    assert_eq!(unmet["text"], whole["text"]);
}

#[test]
fn the_context_ends_an_answer() {
    let tiny = Tiny::new();
    let arguments = [
        "--raw",
        "--prompt",
        "Once",
        "--logit-bias",
        "97=1000",
        "--context",
        "10",
    ];
    let object = answer(&tiny, &arguments);
    assert_eq!(object["finish_reason"], "context");
    let usage = &object["usage"];
    assert_eq!(usage["prompt_tokens"], 4);
    assert!(
        usage["completion_tokens"].as_u64().unwrap() >= 6,
        "{object}"
    );
    let text = run(&[&["run", "--model", tiny.model()], &arguments[..]].concat()).good();
    assert!(text.stderr.contains("the context is full"), "{text:?}");
}

#[test]
fn messages_go_through_the_template() {
    let tiny = Tiny::new();
    let arguments = [
        "--prompt",
        "Hi",
        "--system",
        "Be brief.",
        "--max-tokens",
        "1",
    ];
    let object = answer(&tiny, &arguments);
    let messages = r#"[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]"#;
    let rendered = run_with(&["template", "--json", "--model", tiny.model()], messages).json();
    let expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
                    <|im_start|>assistant\n";
    assert_eq!(rendered["text"], expected);
    let count = rendered["tokens"].as_array().unwrap().len();
    assert_eq!(object["usage"]["prompt_tokens"], count);
}

#[test]
fn a_forced_beginning() {
    let tiny = Tiny::new();
    let object = greedy(&tiny, &["--forced", " upon"]);
    assert!(
        object["text"].as_str().unwrap().starts_with(" upon"),
        "{object}"
    );
    assert_eq!(ids(&object["tokens"])[..5], [32, 117, 112, 111, 110]);
    // What follows is what follows the same text as a prompt.
    let rest = [
        "--raw",
        "--prompt",
        "Once upon",
        "--temperature",
        "0",
        "--max-tokens",
        "7",
    ];
    assert_eq!(
        ids(&object["tokens"])[5..],
        ids(&answer(&tiny, &rest)["tokens"])
    );
}

#[test]
fn logits_are_printed_and_saved() {
    let tiny = Tiny::new();
    let file = tiny.path("logits.npy");
    let object = greedy(&tiny, &["--print-logits", "3", "--save-logits", &file]);
    let steps = object["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 12);
    for (step, id) in steps.iter().zip(ids(&object["tokens"])) {
        // Greedy: the likeliest is the chosen one.
        assert_eq!(step["id"], id);
        assert_eq!(step["top"][0]["id"], id);
        assert_eq!(step["top"].as_array().unwrap().len(), 3);
        assert!(step["logprob"].as_f64().unwrap() < 0.0);
    }
    let bytes = fs::read(&file).unwrap();
    assert!(String::from_utf8_lossy(&bytes[..128]).contains("'shape': (12, 259)"));
    assert_eq!(bytes.len(), 128 + 12 * 259 * 4);
    let row = |step: usize| -> Vec<f32> {
        let start = 128 + step * 259 * 4;
        let row = &bytes[start..start + 259 * 4];
        row.chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    };
    for (step, shown) in steps.iter().enumerate() {
        let id = shown["id"].as_u64().unwrap() as usize;
        assert_eq!(row(step)[id], shown["logit"].as_f64().unwrap() as f32);
        assert!(row(step).iter().all(|logit| *logit <= row(step)[id]));
    }
    // The first row is that of the prompt's last token.
    let direct = run(&[
        "logits",
        "--model",
        tiny.model(),
        "--tokens",
        "79,110,99,101",
    ])
    .json();
    assert_eq!(direct["positions"], serde_json::json!([3]));
    let first: Vec<f64> = row(0).iter().map(|logit| f64::from(*logit)).collect();
    let direct: Vec<f64> = direct["logits"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|logit| f64::from(logit.as_f64().unwrap() as f32))
        .collect();
    assert_eq!(first, direct);
    let text = run(&[
        &["run", "--model", tiny.model()],
        GREEDY,
        &["--print-logits"],
    ]
    .concat());
    let lines = text
        .good()
        .stdout
        .lines()
        .filter(|line| line.contains("  |  "))
        .count();
    assert_eq!(lines, 12);
}

/// Against the rows of `logits --all`, by the definition of log-softmax.
#[test]
fn a_continuation_is_scored() {
    let tiny = Tiny::new();
    let arguments = [
        "run",
        "--json",
        "--model",
        tiny.model(),
        "--raw",
        "--kv-dtype",
        "f32",
    ];
    let given = ["--prompt", "Once", "--continuation", " upon"];
    let scored = run(&[&arguments[..], &given].concat()).json();
    assert_eq!(scored["start"], 4);
    let tail = ids(&scored["tokens"]);
    assert_eq!(tail, [32, 117, 112, 111, 110]);
    let whole = "79,110,99,101,32,117,112,111,110";
    let direct = [
        "logits",
        "--all",
        "--model",
        tiny.model(),
        "--kv-dtype",
        "f32",
        "--tokens",
        whole,
    ];
    let direct = run(&direct).json();
    assert_eq!(direct["logits"].as_array().unwrap().len(), 9);
    let mut sum = 0.0;
    for (i, id) in tail.iter().enumerate() {
        let row: Vec<f64> = direct["logits"][3 + i]
            .as_array()
            .unwrap()
            .iter()
            .map(|logit| logit.as_f64().unwrap())
            .collect();
        let norm = row.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        let logprob = row[*id as usize] - norm;
        let found = scored["steps"][i]["logprob"].as_f64().unwrap();
        assert!((found - logprob).abs() < 1e-4, "{i}: {found} {logprob}");
        sum += logprob;
    }
    assert!((scored["sum"].as_f64().unwrap() - sum).abs() < 1e-3);
    let perplexity = (-sum / 5.0).exp();
    assert!((scored["perplexity"].as_f64().unwrap() / perplexity - 1.0).abs() < 1e-3);
    let text = run(&[&["run", "--raw", "--model", tiny.model()], &given[..]].concat()).good();
    assert!(text.stdout.contains("over 5 tokens after 4"), "{text:?}");
    run(&[
        "run",
        "--raw",
        "--model",
        tiny.model(),
        "--prompt",
        "a",
        "--continuation",
        "",
    ])
    .refused(1, &["the continuation is empty"]);
}
