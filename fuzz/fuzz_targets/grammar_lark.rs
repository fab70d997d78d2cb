//! Lark: any text compiles and gives a first mask, or is an error; the engine's own panics are errors too.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::json_schema::SchemaOptions;
use rushlight_grammar::{
    CancelToken, Compiler, GrammarSource, Limits, TokenEntry, TokenTable, Vocabulary,
};

fn vocabulary() -> Arc<Vocabulary> {
    static BYTES: OnceLock<Arc<Vocabulary>> = OnceLock::new();
    BYTES
        .get_or_init(|| {
            Vocabulary::new(TokenTable {
                identity: "bytes".into(),
                tokens: (0..=255u8).map(|b| TokenEntry::Text(vec![b])).collect(),
                stop_ids: vec![255],
                logits: 256,
                encode: None,
            })
            .expect("a table of single bytes is valid")
        })
        .clone()
}

// A panic that the crate turns into an error is none here; libFuzzer's own hook would end the process first.
fn quiet() {
    drop(std::panic::take_hook());
}

fuzz_target!(init: quiet(), |text: &str| {
    let compiler = Compiler::new(vocabulary(), Limits::default(), SchemaOptions::default());
    let source = GrammarSource::Lark(text.to_owned());
    if let Ok(grammar) = compiler.compile(&source, &CancelToken::new()) {
        let mut mask = [0; 8];
        let _ = grammar.matcher().mask(&mut mask);
    }
});
