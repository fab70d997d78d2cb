//! Published models, found through `RUSHLIGHT_TEST_MODELS`: what the program says of them and with them.

use std::path::Path;

use serde_json::Value;

use crate::program::{published, run, run_with, text};

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";
const MIXED: &str = "Hello world, naïve 東京 🦀  two";

#[test]
fn smollm2_knows_the_capital_of_france() {
    let Some(model) = published(SMOLLM2) else {
        return;
    };
    let arguments = [
        "run",
        "--raw",
        "--temperature",
        "0",
        "--max-tokens",
        "8",
        "--model",
        &model,
        "--prompt",
        "The capital of France is",
    ];
    let run = run(&arguments).good();
    assert!(run.stdout.starts_with(" Paris."), "{run:?}");
}

#[test]
fn smollm2_answers_and_keeps_what_it_read() {
    let Some(model) = published(SMOLLM2) else {
        return;
    };
    let arguments = [
        "chat",
        "--json",
        "--temperature",
        "0",
        "--max-tokens",
        "12",
        "--model",
        &model,
    ];
    let run = run_with(
        &arguments,
        "What is the capital of France, and what is it known for?\nAnd of Italy?\n",
    )
    .good();
    let turns: Vec<Value> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        turns[0]["text"].as_str().unwrap().contains("Paris"),
        "{run:?}"
    );
    let read = &turns[0]["usage"];
    let kept = turns[1]["usage"]["cached_tokens"].as_u64().unwrap();
    assert!(kept >= read["prompt_tokens"].as_u64().unwrap(), "{run:?}");
}

/// Ctrl-C in a conversation.
#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_answer_and_not_the_program() {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use crate::program::command;

    let Some(model) = published(SMOLLM2) else {
        return;
    };
    // An answer that only the context would end, 8,192 tokens on.
    let arguments = [
        "chat",
        "--model",
        &model,
        "--logit-bias",
        "2=-inf",
        "--logit-bias",
        "0=-inf",
    ];
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"Tell me a long story.\n").unwrap();
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    let interrupt = format!("kill -INT {}", child.id());
    assert!(
        Command::new("sh")
            .args(["-c", &interrupt])
            .status()
            .unwrap()
            .success()
    );
    stdin.write_all(b"/usage\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("stopped; this turn is not part of the conversation"),
        "{stderr}"
    );
    assert!(stderr.contains("0 turns"), "{stderr}");
}

/// The ids of llama.cpp.
#[test]
fn ids_of_published_tokenizers() {
    for (model, ids) in [
        (
            SMOLLM2,
            "19556 905 28 15486 46494 17097 247 126 16736 122 15107 116 218 216 827\n",
        ),
        (
            GEMMA3,
            "2 9259 1902 236764 120362 86459 236743 248714 138 13498\n",
        ),
    ] {
        let Some(model) = published(model) else {
            return;
        };
        assert_eq!(
            run(&["tokenize", "--model", &model, MIXED]).good().stdout,
            ids
        );
    }
}

#[test]
fn inspecting_published_models() {
    for (model, architecture, parameters, format) in [
        (SMOLLM2, "llama", 134_515_008_u64, "Q4_1"),
        (GEMMA3, "gemma3", 268_098_176, "Q5_0"),
    ] {
        let Some(model) = published(model) else {
            return;
        };
        let about = run(&["inspect", "--json", &model]).json();
        assert_eq!(about["architecture"], architecture);
        assert_eq!(about["runs"], true, "{about}");
        assert_eq!(about["parameters"], parameters);
        let formats = about["formats"].as_array().unwrap();
        assert!(
            formats.iter().any(|share| share["format"] == format),
            "{about}"
        );
    }
}

/// Within 1.5 % of llama.cpp on the same text.
fn perplexity(model: &str, reference: f64) {
    let Some(model) = published(model) else {
        return;
    };
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../rushlight-testkit/data/perplexity.txt");
    let measured = run(&[
        "perplexity",
        "--json",
        "--model",
        &model,
        "--file",
        &text(&file),
    ])
    .json();
    assert_eq!(measured["context"], 512);
    let found = measured["perplexity"].as_f64().unwrap();
    assert!(
        (found / reference - 1.0).abs() < 0.015,
        "{found} against {reference}: {measured}"
    );
}

#[test]
fn perplexity_of_smollm2() {
    perplexity(SMOLLM2, 18.30);
}

#[test]
fn perplexity_of_gemma3() {
    perplexity(GEMMA3, 15.19);
}
