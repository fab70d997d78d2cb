//! `perplexity` and `bench` on a tiny model.

use rushlight_testkit::goldens;
use serde_json::Value;

use crate::program::{Tiny, run};

/// The reference's logits of golden checkpoints, whose rotary frequencies were held in bf16.
#[test]
fn logits_of_golden_checkpoints() {
    for name in goldens::NAMES {
        let folder = goldens::checkpoint(name);
        for case in goldens::cases(name) {
            let ids: Vec<String> = case.prompt.iter().map(u32::to_string).collect();
            let logits = |rope: &str| -> Vec<f32> {
                let object = run(&[
                    "logits",
                    "--model",
                    folder.to_str().unwrap(),
                    "--kv-dtype",
                    "f32",
                    "--rope-frequencies",
                    rope,
                    "--tokens",
                    &ids.join(","),
                ])
                .json();
                serde_json::from_value(object["logits"][0].clone()).unwrap()
            };
            let difference = |logits: &[f32]| {
                assert_eq!(logits.len(), case.last_logits.len());
                let pairs = logits.iter().zip(&case.last_logits);
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
            };
            let rounded = difference(&logits("bf16"));
            assert!(rounded <= goldens::TOLERANCE, "{name}: {rounded}");
            // The option reaches the model: at position 0 alone no frequency matters.
            if case.prompt.len() > 9 {
                assert!(difference(&logits("f32")) > rounded, "{name}");
            }
        }
    }
}

/// By llama.cpp's protocol, from the rows that `logits --all` gives for each chunk.
#[test]
fn perplexity_follows_the_protocol() {
    let model = rushlight_testkit::gguf::GgufBuilder::tiny_llama()
        .without("tokenizer.ggml.add_bos_token")
        .bool("tokenizer.ggml.add_bos_token", true);
    let tiny = Tiny::of(&model);
    let text = "Mice ran over the barn floor";
    let file = tiny.folder.write("text.txt", text);
    let measured = run(&[
        "perplexity",
        "--json",
        "--model",
        tiny.model(),
        "--file",
        file.to_str().unwrap(),
        "--context",
        "9",
    ])
    .json();
    // BOS and 28 bytes make three chunks of 9; two tokens are left out.
    let tokens: Vec<u32> = [256]
        .into_iter()
        .chain(text.bytes().map(u32::from))
        .collect();
    assert_eq!(measured["tokens"], tokens.len());
    assert_eq!(measured["chunks"], 3);
    // Positions 4 to 7 of each.
    assert_eq!(measured["scored"], 3 * 4);
    let mut nlls = Vec::new();
    for chunk in tokens.chunks_exact(9) {
        let mut chunk = chunk.to_vec();
        chunk[0] = 256;
        let ids: Vec<String> = chunk.iter().map(u32::to_string).collect();
        let arguments = [
            "logits",
            "--all",
            "--model",
            tiny.model(),
            "--tokens",
            &ids.join(","),
        ];
        let rows = run(&arguments).json();
        for at in 4..8 {
            nlls.push(nll(&rows["logits"][at], chunk[at + 1]));
        }
    }
    let count = nlls.len() as f64;
    let mean = nlls.iter().sum::<f64>() / count;
    let perplexity = measured["perplexity"].as_f64().unwrap();
    assert!(
        (perplexity / mean.exp() - 1.0).abs() < 1e-3,
        "{perplexity} {}",
        mean.exp()
    );
    let variance = nlls.iter().map(|nll| nll * nll).sum::<f64>() / count - mean * mean;
    let error = (variance / (count - 1.0)).sqrt() * mean.exp();
    let found = measured["standard_error"].as_f64().unwrap();
    assert!((found / error - 1.0).abs() < 1e-2, "{found} {error}");
    let running = measured["running"].as_array().unwrap();
    assert_eq!(running.last().unwrap(), &measured["perplexity"]);
    let first = (nlls[..4].iter().sum::<f64>() / 4.0).exp();
    assert!((running[0].as_f64().unwrap() / first - 1.0).abs() < 1e-3);
}

fn nll(row: &Value, target: u32) -> f64 {
    let row: Vec<f64> = row
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l.as_f64().unwrap())
        .collect();
    row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[target as usize]
}

#[test]
fn bench_tells_every_trial() {
    let tiny = Tiny::new();
    let arguments = [
        "bench",
        "--json",
        "--model",
        tiny.model(),
        "-p",
        "20",
        "-g",
        "5",
        "-n",
        "2",
    ];
    for lanes in ["1", "3"] {
        let object = run(&[&arguments[..], &["--lanes", lanes, "--threads", "1"]].concat()).json();
        assert_eq!(object["lanes"].to_string(), lanes);
        assert_eq!(object["threads"], 1);
        for (part, tokens) in [("prompt", 20), ("generation", 5)] {
            let part = &object[part];
            assert_eq!(part["tokens"], tokens);
            let trials = part["tokens_per_second"].as_array().unwrap();
            assert_eq!(trials.len(), 2);
            let trials: Vec<f64> = trials.iter().map(|trial| trial.as_f64().unwrap()).collect();
            assert!(
                trials.iter().all(|speed| *speed > 0.0 && speed.is_finite()),
                "{object}"
            );
            let mean = part["mean"].as_f64().unwrap();
            assert!((mean - (trials[0] + trials[1]) / 2.0).abs() < 1e-6 * mean);
        }
        assert!(object["load_seconds"].as_f64().unwrap() > 0.0);
        let weights = object["model_bytes"].as_u64().unwrap();
        if cfg!(target_os = "linux") {
            assert!(object["peak_rss_bytes"].as_u64().unwrap() > weights);
        }
    }
    let alone = run(&[
        "bench",
        "--json",
        "--model",
        tiny.model(),
        "-p",
        "8",
        "-g",
        "0",
        "-n",
        "1",
    ]);
    let alone = alone.json();
    assert!(alone["generation"]["mean"].is_null(), "{alone}");
    let text = run(&[
        "bench",
        "--model",
        tiny.model(),
        "-p",
        "8",
        "-g",
        "2",
        "-n",
        "1",
    ])
    .good();
    assert!(
        text.stdout.contains("tokens/s") && text.stdout.contains("peak memory"),
        "{text:?}"
    );
}
