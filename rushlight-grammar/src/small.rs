//! Schemas so small that they are compiled on their caller's thread.
//!
//! Handing work to another thread and waiting for it takes about as long as a small schema does. What may run here takes
//! milliseconds and little stack: it has limits of its own, far below those of its compiler, and what passes one is compiled
//! again on a thread that its caller can give up on.

use std::time::Duration;

use serde_json::Value;

use crate::json_schema::SchemaOptions;
use crate::limits::Limits;
use crate::source::GrammarSource;

/// Bytes of the source.
const BYTES: usize = 16 << 10;
/// Bytes of all its patterns: a few can ask for much work.
const PATTERN_BYTES: usize = 1 << 10;
/// Containers inside each other.
const NESTING: usize = 24;
/// Schemas applied to one value inside each other.
const DEPTH: usize = 32;
/// Schemas expanded.
const EXPANSIONS: u64 = 50_000;
/// Work units for proofs.
const PROOF_WORK: u64 = 200_000;
/// Rules, and symbols in them.
const RULES: usize = 5_000;
const SYMBOLS: usize = 50_000;
/// Work units of the lexer.
const LEXER_WORK: u64 = 500_000;
/// A compiler that allows less time than this has it watched.
const TIME: Duration = Duration::from_secs(1);

/// The limits under which `source`, of `bytes` bytes, may be compiled on the caller's thread; `None` where it may not.
pub(crate) fn limits(
    source: &GrammarSource,
    bytes: usize,
    limits: &Limits,
    schema: &SchemaOptions,
) -> Option<(Limits, SchemaOptions)> {
    let GrammarSource::JsonSchema(document) = source else {
        return None;
    };
    if bytes > BYTES || limits.compile_time < TIME || !is_small(document) {
        return None;
    }
    let mut limits = limits.clone();
    limits.symbols = limits.symbols.min(SYMBOLS);
    limits.compile_lexer_work = limits.compile_lexer_work.min(LEXER_WORK);
    let mut schema = *schema;
    schema.limits.expansions = schema.limits.expansions.min(EXPANSIONS);
    schema.limits.depth = schema.limits.depth.min(DEPTH);
    schema.limits.proof_work = schema.limits.proof_work.min(PROOF_WORK);
    schema.limits.rules = schema.limits.rules.min(RULES);
    Some((limits, schema))
}

fn is_small(document: &Value) -> bool {
    let mut patterns = 0;
    let mut open = vec![(document, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > NESTING || patterns > PATTERN_BYTES {
            return false;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => {
                for (key, member) in members {
                    match (key.as_str(), member) {
                        ("pattern", Value::String(pattern)) => patterns += pattern.len(),
                        ("patternProperties", Value::Object(list)) => {
                            patterns += list.keys().map(String::len).sum::<usize>();
                        }
                        _ => {}
                    }
                    open.push((member, depth + 1));
                }
            }
            _ => {}
        }
    }
    patterns <= PATTERN_BYTES
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn small(document: Value) -> bool {
        let source = GrammarSource::JsonSchema(document);
        let bytes = source.cache_key().len();
        limits(
            &source,
            bytes,
            &Limits::default(),
            &SchemaOptions::default(),
        )
        .is_some()
    }

    #[test]
    fn size_nesting_and_patterns_decide() {
        assert!(small(
            json!({"type": "object", "properties": {"a": {"pattern": "^a+$"}}})
        ));
        assert!(!small(json!({"description": "x".repeat(BYTES)})));
        assert!(!small(json!({"pattern": "x".repeat(PATTERN_BYTES + 1)})));
        let name = "y".repeat(PATTERN_BYTES + 1);
        assert!(!small(json!({"patternProperties": {name: true}})));
        let deep = (0..=NESTING).fold(json!(true), |inner, _| json!({"items": inner}));
        assert!(!small(deep));
    }

    #[test]
    fn a_compiler_of_little_time_watches_it() {
        let source = GrammarSource::JsonSchema(json!(true));
        let hurried = Limits {
            compile_time: Duration::from_millis(999),
            ..Limits::default()
        };
        assert_eq!(
            limits(&source, 4, &hurried, &SchemaOptions::default()),
            None
        );
    }
}
