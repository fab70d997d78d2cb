//! Conversations with a real model: what was read stays read, and changes no answer.
//!
//! `RUSHLIGHT_TEST_MODELS` names a folder with `models/SmolLM2-135M-Instruct.Q4_1.gguf`.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rushlight::prelude::*;
use rushlight::{CancelToken, Completion, Entry, Events};

/// The model, loaded once; `None`, told on stderr, where no folder of models is given.
fn smol() -> Option<Arc<LocalModel>> {
    static MODEL: OnceLock<Option<Arc<LocalModel>>> = OnceLock::new();
    let load = || {
        let Some(folder) = std::env::var_os("RUSHLIGHT_TEST_MODELS") else {
            eprintln!("skipped: RUSHLIGHT_TEST_MODELS is not set");
            return None;
        };
        let path = PathBuf::from(folder).join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
        let path = path.to_str().expect("a path in UTF-8");
        Some(rushlight::load(path).expect("the folder of models has SmolLM2"))
    };
    MODEL.get_or_init(load).clone()
}

fn greedy(tokens: usize) -> GenerationOptions {
    GenerationOptions {
        maximum_response_tokens: Some(tokens),
        ..GenerationOptions::greedy()
    }
}

#[test]
fn the_second_turn_reads_only_what_is_new_and_answers_as_a_cold_one() {
    let Some(model) = smol() else { return };
    let mut session = Session::new(model.clone(), Some("You are a helpful assistant.")).unwrap();
    // Long enough for the model to end its turn, so that the next prompt goes on from there.
    let first = session
        .respond_blocking("What is the capital of France?", &greedy(64))
        .unwrap();
    assert!(first.text.contains("Paris"), "{}", first.text);
    assert_eq!(first.stop, StopReason::Eos);
    let past = session.transcript().clone();
    let second = session
        .respond_blocking("And of Italy?", &greedy(24))
        .unwrap();
    let all = first.usage.prompt + first.usage.completion;
    assert!(
        second.usage.cached + 1 >= all,
        "{:?} after {:?}",
        second.usage,
        first.usage
    );

    let mut cold = Session::resume(model, past).unwrap();
    let cold = cold.respond_blocking("And of Italy?", &greedy(24)).unwrap();
    assert_eq!(cold.usage.cached, 0);
    assert_eq!(cold.text, second.text);
    assert_eq!(cold.tokens, second.tokens);
}

#[test]
fn a_cancelled_turn_leaves_no_trace() {
    let Some(model) = smol() else { return };
    let mut session = Session::new(model.clone(), None).unwrap();
    let mut stream = session
        .stream_blocking(
            "Tell me a very long story about a lighthouse.",
            &greedy(400),
        )
        .unwrap();
    let texts = stream
        .by_ref()
        .filter(|event| matches!(event, Ok(Event::Text(_))));
    assert_eq!(texts.take(3).count(), 3);
    drop(stream);
    assert!(session.transcript().is_empty());
    let prompt = "Name a colour.";
    let after = session.respond_blocking(prompt, &greedy(12)).unwrap();
    let mut fresh = Session::new(model, None).unwrap();
    let fresh = fresh.respond_blocking(prompt, &greedy(12)).unwrap();
    assert_eq!(after.text, fresh.text);
    assert!(
        after.usage.cached > 0,
        "the turn's beginning was read before"
    );
    assert_eq!(session.transcript().entries()[0], Entry::prompt(prompt));
}

#[test]
fn the_same_seed_gives_the_same_text_in_any_session() {
    let Some(model) = smol() else { return };
    let options = GenerationOptions {
        sampling: Some(SamplingMode::top_p(0.9)),
        seed: Some(11),
        maximum_response_tokens: Some(16),
        ..GenerationOptions::default()
    };
    let mut session = Session::new(model.clone(), None).unwrap();
    let first = session
        .respond_blocking("Invent a name for a boat.", &options)
        .unwrap();
    assert_eq!(first.seed, Some(11));
    session.reset();
    let warm = session
        .respond_blocking("Invent a name for a boat.", &options)
        .unwrap();
    assert!(warm.usage.cached > 0);
    assert_eq!(warm.tokens, first.tokens);
}

#[test]
fn raw_text_goes_on() {
    let Some(model) = smol() else { return };
    let mut completion = Completion::new(model).unwrap();
    let (events, cancel) = (Events::ignored(), CancelToken::new());
    let response = completion
        .complete("The capital of France is", &greedy(4), &events, &cancel)
        .unwrap();
    assert!(response.text.starts_with(" Paris"), "{}", response.text);
}
