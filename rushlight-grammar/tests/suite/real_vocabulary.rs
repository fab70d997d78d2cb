//! On the tokenizers of real models: what a mask costs beside the bare engine, and that walks end valid.

use std::time::{Duration, Instant};

use crate::vocab::{Draws, byte_level, compiler, mask_of, set};
use rushlight_engine::constrain::MaskStatus;
use rushlight_grammar::{CancelToken, GrammarSource};
use serde_json::{Value, json};

fn order() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
            "lines": {"type": "array", "minItems": 1, "maxItems": 5, "items": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 40}, "count": {"type": "integer", "minimum": 1, "maximum": 99}},
                "required": ["name", "count"], "additionalProperties": false,
            }},
            "paid": {"type": "boolean"},
        },
        "required": ["id", "lines", "paid"], "additionalProperties": false,
    })
}

#[test]
fn walks_over_a_real_vocabulary_end_valid_within_their_budget() {
    for name in ["qwen3", "llama3_1"] {
        let Some(vocabulary) = byte_level(name) else {
            return;
        };
        let compiler = compiler(vocabulary);
        let grammar = compiler
            .compile(&GrammarSource::JsonSchema(order()), &CancelToken::new())
            .unwrap();
        let mut draws = Draws(3);
        let mut spent = Duration::ZERO;
        let mut masks = 0u32;
        for walk in 0..20 {
            let mut m = grammar.matcher();
            let mut mask = mask_of(&m);
            m.budget(96).unwrap();
            while m.tokens().len() < 96 {
                let begun = Instant::now();
                let status = m.mask(&mut mask).unwrap();
                spent += begun.elapsed();
                masks += 1;
                if status != MaskStatus::Constrained {
                    break;
                }
                // Every other walk takes what is forced in one go.
                if walk % 2 == 0 {
                    let forced = m.forced().unwrap();
                    if !forced.is_empty() {
                        for token in forced {
                            m.accept(token).unwrap();
                        }
                        continue;
                    }
                }
                let legal = set(&mask);
                m.accept(legal[draws.below(legal.len())]).unwrap();
            }
            let value: Value = serde_json::from_slice(m.text())
                .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(m.text())));
            let lines = value["lines"].as_array().unwrap();
            assert!((1..=5).contains(&lines.len()));
            assert!(
                lines
                    .iter()
                    .all(|l| (1..=99).contains(&l["count"].as_i64().unwrap()))
            );
        }
        eprintln!("{name}: {:?} a mask", spent / masks);
    }
}
