//! What an answer may be given as, and the one way from there to a grammar.

use serde_json::Value;

use crate::choice;
use crate::ebnf;
use crate::error::{GrammarError, GrammarErrorKind, GrammarReport, Place, Result};
use crate::json_schema::{self, SchemaOptions};
use crate::limits::Limits;
use crate::lower::Lowered;
use crate::regex;
use crate::structural_tag;
use crate::vocabulary::Vocabulary;
use llguidance::api::{GrammarInit, TopLevelGrammar};

/// A source of guided generation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GrammarSource {
    /// A JSON Schema, 2020-12 or draft-07: see [`json_schema`](crate::json_schema).
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// A grammar as llama.cpp spells it (GBNF): see [`ebnf`](crate::ebnf).
    Ebnf(String),
    /// A grammar in the mask engine's variant of Lark; it starts at `start`.
    Lark(String),
    /// A pattern that the whole answer matches: see [`regex`](crate::regex).
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A structural tag: see [`structural_tag`](crate::structural_tag).
    StructuralTag(Value),
}

impl GrammarSource {
    /// What the source is called in messages and options.
    pub fn name(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "json-schema",
            Self::JsonObject => "json-object",
            Self::Ebnf(_) => "grammar",
            Self::Lark(_) => "lark",
            Self::Regex(_) => "regex",
            Self::Choice(_) => "choice",
            Self::StructuralTag(_) => "structural-tag",
        }
    }

    /// A text that two sources share only where they are the same.
    pub(crate) fn cache_key(&self) -> String {
        let name = self.name();
        match self {
            Self::JsonSchema(value) | Self::StructuralTag(value) => format!("{name}:{value}"),
            Self::JsonObject => name.to_owned(),
            Self::Ebnf(text) | Self::Lark(text) | Self::Regex(text) => format!("{name}:{text}"),
            Self::Choice(texts) => {
                let mut key = format!("{name}:");
                for text in texts {
                    // A length before each keeps ["a", "b"] from looking like ["ab"].
                    key.push_str(&format!("{}:{text}", text.len()));
                }
                key
            }
        }
    }
}

/// Lowers `source` to a grammar and guards; tokens that it names are those of `vocabulary`.
///
/// # Errors
/// A report of every problem found.
pub fn lower(
    source: &GrammarSource,
    vocabulary: Option<&Vocabulary>,
    limits: &Limits,
    schema: &SchemaOptions,
) -> Result<Lowered, GrammarReport> {
    match source {
        GrammarSource::JsonSchema(value) => json(value, schema),
        GrammarSource::JsonObject => json(&serde_json::json!({"type": "object"}), schema),
        GrammarSource::Ebnf(text) => ebnf::lower(text, vocabulary, limits),
        GrammarSource::Lark(text) => Ok(lark(text, limits)?),
        GrammarSource::Regex(pattern) => Ok(regex::lower(pattern, limits)?),
        GrammarSource::Choice(texts) => Ok(choice::lower(texts, limits)?),
        GrammarSource::StructuralTag(value) => {
            structural_tag::lower(value, vocabulary, limits, schema)
        }
    }
}

fn json(schema: &Value, options: &SchemaOptions) -> Result<Lowered, GrammarReport> {
    let compiled = json_schema::compile_grammar(schema, options)?;
    Ok(Lowered {
        guards: compiled.guards,
        closers: closers(schema),
        strings: compiled.strings,
        ..Lowered::from(compiled.grammar)
    })
}

/// What ends the loops of a schema's patterns and formats: the texts that they spell out, and what stands between the parts of
/// addresses and dates.
fn closers(schema: &Value) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                if let Some(Value::String(pattern)) = members.get("pattern") {
                    texts.extend(regex::literals(pattern));
                }
                if let Some(Value::String(_)) = members.get("format") {
                    texts.extend(["@", ":", ".", "-", "/", "T", "Z", "+"].map(str::to_owned));
                }
                open.extend(members.values());
            }
            _ => {}
        }
    }
    texts
}

/// The engine parses Lark itself; its parser recurses over groups, so their depth is checked first.
fn lark(text: &str, limits: &Limits) -> Result<Lowered> {
    limits.check_bytes(text.len())?;
    let mut depth = 0usize;
    let mut rules = 0usize;
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for (line, content) in (1..).zip(text.lines()) {
        rules += usize::from(content.contains(':'));
        for (column, c) in (1..).zip(content.chars()) {
            if let Some(open) = quote {
                match c {
                    _ if escaped => escaped = false,
                    '\\' => escaped = true,
                    _ if c == open => quote = None,
                    _ => {}
                }
                continue;
            }
            match c {
                '"' | '/' => quote = Some(c),
                '(' | '[' | '{' => {
                    depth += 1;
                    if depth > limits.depth {
                        return Err(GrammarError::new(
                            GrammarErrorKind::Limit,
                            format!("groups are nested more than {} deep", limits.depth),
                        )
                        .with_place(Place::Text {
                            rule: None,
                            line,
                            column,
                        }));
                    }
                }
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        // Neither strings nor patterns go over a line; a comment may hold a lone quote.
        quote = None;
        escaped = false;
    }
    if rules > limits.rules {
        return Err(GrammarError::new(
            GrammarErrorKind::Limit,
            format!("{rules} rules; the limit is {}", limits.rules),
        ));
    }
    let grammar = TopLevelGrammar::from_lark(text.to_owned());
    Ok(Lowered::from(GrammarInit::Serialized(grammar)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_sources_apart() {
        let choice = |texts: &[&str]| {
            GrammarSource::Choice(texts.iter().map(|&t| t.to_owned()).collect()).cache_key()
        };
        assert_ne!(choice(&["a", "b"]), choice(&["ab"]));
        assert_ne!(choice(&["a1:b"]), choice(&["a", "b"]));
        assert_ne!(
            GrammarSource::Regex("a".into()).cache_key(),
            GrammarSource::Lark("a".into()).cache_key()
        );
    }

    #[test]
    fn deep_lark_is_refused_with_line_and_column() {
        let text = format!("start: {}\"a\"{}", "(".repeat(300), ")".repeat(300));
        let e = lark(&text, &Limits::default()).unwrap_err();
        assert_eq!(e.kind(), GrammarErrorKind::Limit);
        assert!(e.to_string().starts_with("1:258: "), "{e}");
        assert!(
            lark(
                "start: \"((((\" // ((\n",
                &Limits {
                    depth: 2,
                    ..Limits::default()
                }
            )
            .is_ok()
        );
    }
}
