//! Streaming: the deltas are the whole, wherever the stream is cut.

use proptest::prelude::*;
use rushlight_text::{DetokenizerOptions, Tokenizer};

use crate::models;

fn tokenizer(space_prefix: bool) -> Tokenizer {
    let mut vocabulary = models::tiny(&[
        ("<|end|>", 3),
        ("▁two", 1),
        ("中", 1),
        ("\u{1F980}", 1),
        ("\n\n", 4),
    ]);
    vocabulary.add_space_prefix = Some(space_prefix);
    Tokenizer::from_gguf(vocabulary).unwrap()
}

fn byte(tokenizer: &Tokenizer, byte: u8) -> u32 {
    tokenizer.id_of(&format!("<0x{byte:02X}>")).unwrap()
}

/// DET-1: the two halves of 中 are a vocabulary's tokens.
#[test]
fn a_split_character_is_held_back() {
    let tokenizer = tokenizer(false);
    let mut stream = tokenizer.detokenizer(DetokenizerOptions::default());
    let a = tokenizer.id_of("a").unwrap();
    let b = tokenizer.id_of("b").unwrap();
    assert_eq!(stream.push(a).unwrap(), "a");
    assert_eq!(stream.push(byte(&tokenizer, 0xE4)).unwrap(), "");
    assert!(stream.is_mid_character());
    assert_eq!(stream.push(byte(&tokenizer, 0xB8)).unwrap(), "");
    assert_eq!(stream.push(byte(&tokenizer, 0xAD)).unwrap(), "中");
    assert_eq!(stream.push(b).unwrap(), "b");
    assert_eq!(stream.finish(), "");
}

#[test]
fn what_cannot_become_a_character_is_replaced_once() {
    let tokenizer = tokenizer(false);
    let b = tokenizer.id_of("b").unwrap();
    let mut stream = tokenizer.detokenizer(DetokenizerOptions::default());
    assert_eq!(stream.push(byte(&tokenizer, 0xF0)).unwrap(), "");
    assert_eq!(stream.push(byte(&tokenizer, 0x9F)).unwrap(), "");
    assert_eq!(stream.push(b).unwrap(), "\u{FFFD}b");
    assert_eq!(stream.push(byte(&tokenizer, 0xFF)).unwrap(), "\u{FFFD}");
    assert_eq!(stream.push(byte(&tokenizer, 0xF0)).unwrap(), "");
    assert_eq!(stream.push(byte(&tokenizer, 0x9F)).unwrap(), "");
    assert_eq!(stream.finish(), "\u{FFFD}");
    assert_eq!(stream.finish(), "");
}

#[test]
fn control_tokens_are_skipped_or_shown() {
    let tokenizer = tokenizer(false);
    let end = tokenizer.control_id("<|end|>").unwrap();
    let two = tokenizer.id_of("▁two").unwrap();
    assert_eq!(
        tokenizer.decode(&[two, end, two], true).unwrap(),
        " two two"
    );
    assert_eq!(
        tokenizer.decode(&[two, end, two], false).unwrap(),
        " two<|end|> two"
    );
}

#[test]
fn the_first_space_of_a_text_is_the_vocabularys() {
    let tokenizer = tokenizer(true);
    let two = tokenizer.id_of("▁two").unwrap();
    let end = tokenizer.control_id("<|end|>").unwrap();
    assert_eq!(tokenizer.decode(&[end, two, two], true).unwrap(), "two two");
    let mut stream = tokenizer.detokenizer(DetokenizerOptions {
        continues: true,
        ..DetokenizerOptions::default()
    });
    assert_eq!(stream.push(two).unwrap(), " two");
}

#[test]
fn an_unknown_id_is_an_error_and_changes_nothing() {
    let tokenizer = tokenizer(false);
    let mut stream = tokenizer.detokenizer(DetokenizerOptions::default());
    stream.push(byte(&tokenizer, 0xC3)).unwrap();
    assert!(stream.push(1_000_000).is_err());
    assert_eq!(stream.push(byte(&tokenizer, 0xA9)).unwrap(), "é");
}

proptest! {
    #[test]
    fn deltas_are_the_whole_at_every_cut(
        picks in proptest::collection::vec(0u32..400, 0..60),
        spaced in any::<bool>(),
        skip in any::<bool>(),
    ) {
        let tokenizer = tokenizer(spaced);
        let size = tokenizer.vocab_size() as u32;
        let ids: Vec<u32> = picks.into_iter().map(|pick| pick % size).collect();
        let mut stream = tokenizer.detokenizer(DetokenizerOptions {
            show_control: !skip,
            continues: false,
        });
        let mut text = String::new();
        for (index, id) in ids.iter().enumerate() {
            text.push_str(&stream.push(*id).unwrap());
            let so_far = text.clone() + &stream.clone().finish();
            prop_assert_eq!(so_far, tokenizer.decode(&ids[..=index], skip).unwrap());
        }
        let bytes: Vec<u8> = ids
            .iter()
            .filter(|id| !skip || !tokenizer.is_control(**id))
            .flat_map(|id| tokenizer.token_bytes(*id).unwrap().to_vec())
            .collect();
        let bytes = if spaced { bytes.strip_prefix(b" ").unwrap_or(&bytes) } else { &bytes };
        prop_assert_eq!(text + &stream.finish(), String::from_utf8_lossy(bytes));
    }

    #[test]
    fn text_survives_the_round_trip(text in "\\PC{0,40}", spaced in any::<bool>()) {
        let tokenizer = tokenizer(spaced);
        // The vocabulary reads `▁` as a space; that is SentencePiece's one loss.
        let text = text.replace('▁', "");
        let ids = tokenizer.encode(&text, rushlight_text::Specials::AsText).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
    }
}
