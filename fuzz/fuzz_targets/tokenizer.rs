//! `tokenizer.json`: any text is a tokenizer or an error, and a tokenizer keeps text apart from control tokens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_text::{DetokenizerOptions, Specials, Tokenizer, TokenizerConfig};

fuzz_target!(|json: &str| {
    let Ok(tokenizer) = Tokenizer::from_json(json, &TokenizerConfig::default()) else {
        return;
    };
    let spellings: Vec<&str> = tokenizer.control_spellings().collect();
    let content = format!("Hello, 東京 🦀 {}", spellings.concat());
    if let Ok(ids) = tokenizer.encode(&content, Specials::AsText) {
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
        let mut words = tokenizer.detokenizer(DetokenizerOptions::default());
        let mut text = String::new();
        for &id in &ids {
            text.push_str(&words.push(id).expect("the tokenizer made this id"));
        }
        text.push_str(&words.finish());
    }
    let _ = tokenizer.encode(&content, Specials::Recognised);
});
