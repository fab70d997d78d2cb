//! Requests that cannot be met: exit code 1, or 2 where the command line itself is wrong.

use std::process::Stdio;

use serde_json::Value;

use crate::program::{Run, Tiny, command, run, run_with};

fn ask(tiny: &Tiny, more: &[&str]) -> Run {
    let arguments = [&["run", "--model", tiny.model()], more].concat();
    run(&arguments)
}

#[test]
fn command_lines_that_are_none() {
    for (arguments, words) in [
        (&["frobnicate"][..], &["frobnicate"][..]),
        (&["run"], &["--model"]),
        (&["run", "--model", "m", "--frob"], &["--frob"]),
        (
            &["run", "--model", "m", "--prompt", "a", "--prompt-file", "b"],
            &["--prompt-file"],
        ),
        (
            &["run", "--model", "m", "--raw", "--system", "s"],
            &["--system"],
        ),
        (
            &[
                "run",
                "--model",
                "m",
                "--continuation",
                "c",
                "--temperature",
                "0",
            ],
            &["--temperature"],
        ),
        (&["run", "--model", "m", "--temperature", "warm"], &["warm"]),
        (&["run", "--model", "m", "--logit-bias", "5"], &["1234=-5"]),
        (&["run", "--model", "m", "--raw-tokens", "1,x"], &["'x'"]),
        (&["logits", "--model", "m", "--tokens", "-1"], &["-1"]),
        // Names of closed sets, with all that are valid.
        (
            &["run", "--model", "m", "--kv-cache-strategy", "paged"],
            &["paged", "auto, growing, fixed_size, chunked"],
        ),
        (
            &["run", "--model", "m", "--engine", "turbo"],
            &["turbo", "sequential, pipelined, static-shape"],
        ),
        (
            &["run", "--model", "m", "--kv-dtype", "f8"],
            &["f8", "f16, f32"],
        ),
        (&["template", "--model", "m", "--kwarg", "a=b"], &["JSON"]),
    ] {
        run(arguments).refused(2, words);
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let help = run(&["--help"]).good();
    for subcommand in [
        "run",
        "chat",
        "inspect",
        "tokenize",
        "template",
        "logits",
        "perplexity",
        "bench",
        "models",
    ] {
        assert!(
            help.stdout.contains(&format!("  {subcommand} ")),
            "{subcommand}: {help:?}"
        );
        let own = run(&[subcommand, "--help"]).good();
        assert!(own.stdout.contains("--json"), "{subcommand}: {own:?}");
        assert_eq!(own.stderr, "");
    }
    assert!(
        run(&["--version"])
            .good()
            .stdout
            .contains(env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn with_json_errors_are_json_and_stdout_stays_empty() {
    let tiny = Tiny::new();
    for (arguments, code, fault) in [
        (
            &["run", "--json", "--model", tiny.model(), "--prompt", ""][..],
            1,
            "request",
        ),
        (&["run", "--json", "--frob"], 2, "usage"),
        (&["inspect", "--json", "no/such.gguf"], 3, "file"),
    ] {
        let run = run(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{run:?}");
        let error: Value = serde_json::from_str(&run.stderr).unwrap();
        assert_eq!(error["error"]["exit_code"], code);
        assert_eq!(error["error"]["fault"], fault);
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn sampling_options_out_of_range_name_the_field() {
    let tiny = Tiny::new();
    for (option, value, field) in [
        ("--top-p", "0", "top_p is 0"),
        ("--top-p", "1.5", "top_p is 1.5"),
        ("--top-p", "-0.5", "top_p is -0.5"),
        ("--temperature", "-1", "temperature is -1"),
        ("--temperature", "NaN", "temperature is NaN"),
        ("--temperature", "inf", "temperature is inf"),
        ("--top-k", "0", "top_k is 0"),
        ("--min-p", "1.01", "min_p is 1.01"),
        ("--repetition-penalty", "0", "repetition_penalty is 0"),
        ("--presence-penalty", "NaN", "presence_penalty is NaN"),
        ("--frequency-penalty", "-inf", "frequency_penalty is -inf"),
        ("--max-tokens", "0", "max_tokens is 0"),
        ("--logit-bias", "259=1", "259"),
        ("--logit-bias", "5=NaN", "logit_bias"),
        ("--stop", "", "stop is empty"),
        ("--chunk-size", "0", "chunk"),
        ("--threads", "0", "threads is 0"),
        ("--context", "0", "context is 0"),
        ("--context", "257", "context is 257"),
        (
            "--kv-cache-initial-capacity",
            "257",
            "kv_cache_initial_capacity is 257",
        ),
        ("--kv-cache-capacity", "8", "kv_cache_capacity is 8"),
        ("--engine", "static-shape", "static-shape"),
    ] {
        let value = format!("{option}={value}");
        ask(&tiny, &["--prompt", "Hi", &value]).refused(1, &[field]);
        // Greedy sampling does not hide them.
        if option != "--temperature" {
            ask(&tiny, &["--prompt", "Hi", "--temperature=0", &value]).refused(1, &[field]);
        }
    }
}

#[test]
fn options_are_checked_before_the_model_is_opened() {
    for (option, value, words) in [
        ("--top-p", "1.5", "top_p is 1.5"),
        ("--chunk-size", "0", "chunk is 0"),
        ("--threads", "0", "threads is 0"),
        ("--threads", "2000", "threads is 2000"),
        ("--context", "0", "context is 0"),
        (
            "--kv-cache-initial-capacity",
            "0",
            "kv_cache_initial_capacity is 0; it must be at least 1",
        ),
        ("--kv-cache-capacity", "8", "kv_cache_capacity is 8"),
        ("--kv-cache-sinks", "2", "kv_cache_sinks is 2"),
    ] {
        for model in ["no/such.gguf", "nonesuch"] {
            let arguments = ["run", "--model", model, "--prompt", "Hi", option, value];
            run(&arguments).refused(1, &[words]);
        }
    }
}

#[test]
fn prompts_that_are_none() {
    let tiny = Tiny::new();
    ask(&tiny, &["--prompt", ""]).refused(1, &["the prompt is empty"]);
    ask(&tiny, &["--raw", "--prompt", ""]).refused(1, &["the prompt is empty"]);
    // Stdin is empty.
    ask(&tiny, &[]).refused(1, &["the prompt is empty"]);
    run_with(&["run", "--model", tiny.model()], "\n").refused(1, &["the prompt is empty"]);
    let missing = tiny.path("missing.txt");
    ask(&tiny, &["--prompt-file", &missing]).refused(1, &["missing.txt"]);
    run_with(&["run", "--model", tiny.model()], b"caf\xe9!")
        .refused(1, &["stdin: not UTF-8 at byte 3 (0xe9)"]);
    run_with(&["tokenize", "--model", tiny.model()], b"\xff")
        .refused(1, &["stdin: not UTF-8 at byte 0 (0xff)"]);
}

#[test]
fn prompts_longer_than_the_context_tell_both_counts() {
    let tiny = Tiny::new();
    let long = "a".repeat(300);
    ask(&tiny, &["--raw", "--prompt", &long]).refused(1, &["300", "256"]);
    ask(&tiny, &["--raw", "--context", "64", "--prompt", &long]).refused(1, &["300", "64"]);
    let fixed = [
        "--kv-cache-strategy",
        "fixed_size",
        "--kv-cache-initial-capacity",
        "32",
    ];
    let arguments = [&["--raw", "--prompt", &long][..], &fixed].concat();
    ask(&tiny, &arguments).refused(1, &["300", "32"]);
}

#[test]
fn token_ids_out_of_range_are_told_with_their_place() {
    let tiny = Tiny::new();
    ask(&tiny, &["--raw-tokens", "1,259"]).refused(1, &["token 259 at position 1", "259 ids"]);
    run(&[
        "logits",
        "--model",
        tiny.model(),
        "--tokens",
        "1,2,4294967295",
    ])
    .refused(1, &["token 4294967295 at position 2"]);
}

#[test]
fn a_model_without_a_template_says_what_to_do() {
    let base = Tiny::of(
        &rushlight_testkit::gguf::GgufBuilder::tiny_llama().without("tokenizer.chat_template"),
    );
    ask(&base, &["--prompt", "Hi"]).refused(1, &["no chat template", "--raw"]);
    run(&["chat", "--model", base.model()]).refused(1, &["no chat template"]);
    ask(&base, &["--raw", "--prompt", "Hi", "--max-tokens", "1"]).good();
}

#[test]
fn measures_refuse_sizes_that_measure_nothing() {
    let tiny = Tiny::new();
    let empty = tiny.folder.write("empty.txt", "");
    let short = tiny.folder.write("short.txt", "too short");
    let perplexity = |file: &std::path::Path, context: &str| {
        let file = file.to_str().unwrap();
        run(&[
            "perplexity",
            "--model",
            tiny.model(),
            "--file",
            file,
            "--context",
            context,
        ])
    };
    perplexity(&empty, "64").refused(1, &["the file is empty"]);
    perplexity(&short, "64").refused(1, &["9 tokens", "64"]);
    perplexity(&short, "3").refused(1, &["context is 3"]);
    let bench = |more: &[&str]| run(&[&["bench", "--model", tiny.model()], more].concat());
    bench(&["-p", "0"]).refused(1, &["prompt is 0"]);
    bench(&["-n", "0"]).refused(1, &["trials is 0"]);
    bench(&["--lanes", "0"]).refused(1, &["lanes is 0"]);
    bench(&["-p", "200", "-g", "60"]).refused(1, &["261", "256"]);
    run(&["inspect", "--context", "0", tiny.model()]).refused(1, &["context is 0"]);
}

#[test]
fn files_that_cannot_be_written_are_told_before_the_model_runs() {
    let tiny = Tiny::new();
    let nowhere = tiny.path("no/such/folder/logits.npy");
    ask(&tiny, &["--prompt", "Hi", "--save-logits", &nowhere]).refused(1, &["logits.npy"]);
    let other = tiny.path("logits.bin");
    ask(&tiny, &["--prompt", "Hi", "--save-logits", &other]).refused(1, &[".npy"]);
}

/// `rushlight … | head`: a reader that goes away ends the program without a word.
#[test]
fn a_closed_pipe_is_no_error() {
    let tiny = Tiny::new();
    let tokens = vec!["7"; 250].join(",");
    let mut child = command([
        "logits",
        "--all",
        "--model",
        tiny.model(),
        "--tokens",
        &tokens,
    ])
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    // Closed before a byte was read; half a megabyte does not fit the pipe.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
