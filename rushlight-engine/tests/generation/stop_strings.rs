//! Texts that end an answer, of which nothing is shown.

use super::*;

/// Gives each token the text of a table, in pieces as a detokeniser would.
struct Pieces(&'static [&'static str]);

impl TokenText for Pieces {
    fn push(&mut self, token: u32) -> String {
        self.0[token as usize].to_owned()
    }

    fn finish(&mut self) -> String {
        String::new()
    }
}

/// A program that answers 0, 1, 2, … whatever the prompt.
fn counting(
    pieces: &'static [&'static str],
    options: GenerateOptions,
) -> (String, Vec<String>, Outcome) {
    let vocab = pieces.len() + 1;
    let prompt = pieces.len() as u32;
    let program = ScriptedProgram::choosing(vocab, 64, move |history| history.len() as u32 - 1);
    let vocab = SampleVocab::new(vocab, vocab, &[]).unwrap();
    let engine = Engine::new(program, vocab, EngineOptions::default()).unwrap();
    let mut sequence = engine.sequence().unwrap();
    let options = GenerateOptions {
        text: Some(Box::new(Pieces(pieces))),
        ..options
    };
    let mut generation = engine.generate(&mut sequence, &[prompt], options).unwrap();
    let texts: Vec<String> = generation.by_ref().map(|step| step.unwrap().text).collect();
    (texts.concat(), texts, generation.outcome())
}

#[test]
fn stp_2_nothing_of_a_stop_string_is_ever_shown() {
    let pieces = &["hel", "lo<", "stop", ">hidden", "tail"];
    let stops = GenerateOptions {
        stop_strings: vec!["<stop>".to_owned()],
        ..greedy(Some(5))
    };
    let (text, texts, outcome) = counting(pieces, stops);
    assert_eq!(text, "hello");
    assert_eq!(texts, ["hel", "lo", "", ""]);
    assert_eq!(outcome.stop, StopReason::StopSequence("<stop>".to_owned()));
    assert_eq!(outcome.usage.completion, 4);
}

#[test]
fn a_stop_string_that_is_never_met_is_given_back_at_the_end() {
    let stops = GenerateOptions {
        stop_strings: vec!["<stop>".to_owned()],
        ..greedy(Some(3))
    };
    let (text, texts, outcome) = counting(&["hel", "lo<", "sto"], stops);
    assert_eq!(text, "hello<sto");
    assert_eq!(texts, ["hel", "lo", "<sto"]);
    assert_eq!(outcome.stop, StopReason::MaxTokens);
    let stops = GenerateOptions {
        stop_strings: vec!["<stop>".to_owned()],
        stop_tokens: vec![2],
        ..greedy(None)
    };
    let (text, _, outcome) = counting(&["hel", "lo<", "never shown"], stops);
    assert_eq!((text.as_str(), outcome.stop), ("hello<", StopReason::Eos));
}

#[test]
fn a_text_that_ends_the_answer_outranks_the_limit() {
    let stops = GenerateOptions {
        stop_strings: vec!["lo".to_owned()],
        ..greedy(Some(2))
    };
    let (text, _, outcome) = counting(&["hel", "lo", "x"], stops);
    assert_eq!(
        (text.as_str(), outcome.stop),
        ("hel", StopReason::StopSequence("lo".to_owned()))
    );
}
