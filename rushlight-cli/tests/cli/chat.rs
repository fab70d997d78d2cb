//! `chat`, with its prompts piped.

use std::fs;

use serde_json::Value;

use crate::program::{Run, Tiny, run, run_with};

const GREEDY: &[&str] = &["--temperature", "0", "--max-tokens", "6"];

fn chat(tiny: &Tiny, more: &[&str], input: &str) -> Run {
    let arguments = [&["chat", "--model", tiny.model()], GREEDY, more].concat();
    run_with(&arguments, input)
}

/// The JSON lines of a chat.
fn objects(run: &Run) -> Vec<Value> {
    run.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_turn_reads_only_what_is_new() {
    let tiny = Tiny::new();
    let run = chat(&tiny, &["--json"], "one\n\ntwo\n/usage\n").good();
    let [first, second, usage] = &objects(&run)[..] else {
        panic!("{run:?}");
    };
    assert_eq!(first["usage"]["cached_tokens"], 0);
    let kept = second["usage"]["cached_tokens"].as_u64().unwrap();
    assert!(
        kept > 0 && kept < second["usage"]["prompt_tokens"].as_u64().unwrap(),
        "{run:?}"
    );
    let sum = |field: &str| {
        [first, second]
            .map(|turn| turn["usage"][field].as_u64().unwrap())
            .iter()
            .sum::<u64>()
    };
    assert_eq!(usage["usage"]["turns"], 2);
    assert_eq!(usage["usage"]["prompt_tokens"], sum("prompt_tokens"));
    assert_eq!(usage["usage"]["cached_tokens"], kept);
    assert_eq!(usage["usage"]["completion_tokens"], 12);
    assert_eq!(usage["usage"]["context"], 256);
    // For people: the answers on stdout, and what was kept on stderr.
    let text = chat(&tiny, &[], "one\ntwo\n").good();
    let answers = format!(
        "{}\n{}\n",
        first["text"].as_str().unwrap(),
        second["text"].as_str().unwrap()
    );
    assert_eq!(text.stdout, answers);
    assert!(text.stderr.contains(&format!("{kept} kept")), "{text:?}");
}

#[test]
fn the_first_turn_is_what_run_answers() {
    let tiny = Tiny::new();
    let run = run(&[
        &[
            "run",
            "--json",
            "--model",
            tiny.model(),
            "--prompt",
            "one\ntwo",
            "--system",
            "Be brief.",
        ],
        GREEDY,
    ]
    .concat())
    .json();
    for (arguments, input) in [
        (&["--system", "Be brief."][..], "one\\\ntwo\n"),
        (&[], "/system Be brief.\n\"\"\"\none\ntwo\n\"\"\"\n"),
        (&["--system", "Be long."], "/system  Be brief. \none\\\ntwo"),
    ] {
        let chat = chat(&tiny, &[arguments, &["--json"]].concat(), input).good();
        assert_eq!(objects(&chat)[0]["tokens"], run["tokens"], "{input:?}");
    }
}

#[test]
fn a_reset_forgets_the_turns() {
    let tiny = Tiny::new();
    let run = chat(&tiny, &["--json"], "one\n/reset\none\n").good();
    let turns = objects(&run);
    assert_eq!(turns[0]["tokens"], turns[1]["tokens"]);
    assert_eq!(
        turns[0]["usage"]["prompt_tokens"],
        turns[1]["usage"]["prompt_tokens"]
    );
}

#[test]
fn a_conversation_is_saved_and_goes_on() {
    let tiny = Tiny::new();
    let file = tiny.path("talk.json");
    let whole = chat(&tiny, &["--json"], "one\ntwo\n").good();
    chat(
        &tiny,
        &[],
        &format!("one\n/save {file}\n/quit\nnever read\n"),
    )
    .good();
    let saved: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(saved["entries"].as_array().unwrap().len(), 2);
    let resumed = chat(&tiny, &["--json", "--resume", &file], "two\n").good();
    assert_eq!(objects(&resumed)[0]["tokens"], objects(&whole)[1]["tokens"]);
    let broken = tiny
        .folder
        .write("broken.json", r#"{"version": 9, "entries": []}"#);
    let resumed = chat(&tiny, &["--resume", broken.to_str().unwrap()], "");
    resumed.refused(1, &["broken.json: ", "version 9"]);
}

#[test]
fn what_goes_wrong_in_a_turn_does_not_end_the_conversation() {
    let tiny = Tiny::new();
    let long = "x".repeat(300);
    let run = chat(&tiny, &["--json"], &format!("one\n{long}\n/frob\ntwo\n"));
    // The conversation goes on; the exit code tells that not all of it went well.
    assert_eq!(run.code, 1, "{run:?}");
    let turns = objects(&run);
    assert_eq!(turns.len(), 2);
    // The failed turn left nothing behind.
    let without = chat(&tiny, &["--json"], "one\ntwo\n").good();
    assert_eq!(turns[1]["tokens"], objects(&without)[1]["tokens"]);
    let errors: Vec<Value> = run
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(errors.len(), 2, "{run:?}");
    let message = errors[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("256"), "{message}");
    let message = errors[1]["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("/frob") && message.contains("/reset"),
        "{message}"
    );
}

#[test]
fn a_program_learns_of_an_error_that_came_last() {
    let tiny = Tiny::new();
    let unknown = chat(&tiny, &[], "/frob\n");
    assert_eq!(unknown.code, 1, "{unknown:?}");
    // Told once.
    assert_eq!(unknown.stderr.matches("error: ").count(), 1, "{unknown:?}");
    let nowhere = tiny.path("no/such/folder/talk.json");
    assert_eq!(chat(&tiny, &[], &format!("/save {nowhere}\n")).code, 1);
    assert_eq!(chat(&tiny, &[], "/usage now\n").code, 1);
}

#[test]
fn a_line_that_begins_with_a_space_is_a_prompt() {
    let tiny = Tiny::new();
    let run = chat(&tiny, &["--json"], " /quit\n").good();
    // `/quit` has five tokens, and a turn 17 of its own: two headers and two ends.
    assert_eq!(objects(&run).len(), 1);
}

#[test]
fn a_line_that_is_no_text_is_told_with_its_byte_and_the_talk_goes_on() {
    let tiny = Tiny::new();
    let arguments = [&["chat", "--json", "--model", tiny.model()], GREEDY].concat();
    let run = run_with(&arguments, b"one\ntw\xff\n\"\"\"\nthr\xfe\n\"\"\"\ntwo\n");
    assert_eq!(run.code, 1, "{run:?}");
    let errors: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(errors.len(), 2, "{run:?}");
    assert!(errors[0].contains("byte 6 (0xff)"), "{run:?}");
    assert!(errors[1].contains("byte 15 (0xfe)"), "{run:?}");
    // What was refused left nothing behind, and the fence around it is closed.
    let without = chat(&tiny, &["--json"], "one\ntwo\n").good();
    let [first, second] = &objects(&run)[..] else {
        panic!("{run:?}");
    };
    let expected = objects(&without);
    assert_eq!(first["tokens"], expected[0]["tokens"]);
    assert_eq!(second["tokens"], expected[1]["tokens"]);
    // One that comes last is what a program learns of.
    let last = run_with(&arguments, b"one\ntw\xff\n");
    assert_eq!(last.code, 1, "{last:?}");
}
