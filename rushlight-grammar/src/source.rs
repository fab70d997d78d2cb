//! What an answer may be given as, and the one way from there to a grammar.

use serde_json::Value;

use crate::choice;
use crate::ebnf;
use crate::error::GrammarReport;
use crate::json_schema::{self, SchemaOptions};
use crate::lark;
use crate::limits::Limits;
use crate::lower::Lowered;
use crate::regex;
use crate::structural_tag;
use crate::vocabulary::Vocabulary;

/// A source of guided generation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GrammarSource {
    /// A JSON Schema, draft-04 to 2020-12: see [`json_schema`](crate::json_schema).
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
    let mut lowered = match source {
        GrammarSource::JsonSchema(value) => json(value, schema),
        GrammarSource::JsonObject => json(&serde_json::json!({"type": "object"}), schema),
        GrammarSource::Ebnf(text) => ebnf::lower(text, vocabulary, limits),
        GrammarSource::Lark(text) => Ok(lark::lower(text, vocabulary, limits)?),
        GrammarSource::Regex(pattern) => Ok(regex::lower(pattern, limits)?),
        GrammarSource::Choice(texts) => Ok(choice::lower(texts, limits)?),
        GrammarSource::StructuralTag(value) => {
            structural_tag::lower(value, vocabulary, limits, schema)
        }
    }?;
    lowered.may_be_endless = matches!(
        source,
        GrammarSource::Lark(_) | GrammarSource::StructuralTag(_)
    );
    Ok(lowered)
}

/// Objects inside each other in an example of a list's item.
const EXAMPLE_DEPTH: usize = 4;
/// Members of one of them.
const EXAMPLE_MEMBERS: usize = 16;

fn json(schema: &Value, options: &SchemaOptions) -> Result<Lowered, GrammarReport> {
    let compiled = json_schema::compile_grammar(schema, options)?;
    Ok(Lowered {
        guards: compiled.guards,
        closers: closers(schema),
        strings: compiled.strings,
        ..Lowered::from(compiled.grammar)
    })
}

/// What ends the loops of a schema's patterns, formats and lists: the texts that they spell out, what stands between the parts
/// of addresses and dates, and items that a list has to hold.
pub(crate) fn closers(schema: &Value) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items.iter().rev()),
            Value::Object(members) => {
                if let Some(Value::String(pattern)) = members.get("pattern") {
                    texts.extend(regex::literals(pattern));
                }
                if let Some(Value::String(_)) = members.get("format") {
                    texts.extend(["@", ":", ".", "-", "/", "T", "Z", "+"].map(str::to_owned));
                }
                if let Some(item) = members.get("contains") {
                    texts.extend(example(item, EXAMPLE_DEPTH));
                }
                open.extend(members.values().rev());
            }
            _ => {}
        }
    }
    texts
}

/// A short value that `schema` may well describe, as JSON; a guess, since references and combinations are not followed.
fn example(schema: &Value, depth: usize) -> Option<String> {
    let deeper = depth.checked_sub(1)?;
    let first = |key| schema.get(key).and_then(Value::as_array)?.first();
    if let Some(value) = schema.get("const").or_else(|| first("enum")) {
        return Some(value.to_string());
    }
    let kind = schema.get("type").and_then(|kind| match kind {
        Value::Array(kinds) => kinds.first().and_then(Value::as_str),
        kind => kind.as_str(),
    });
    let properties = schema.get("properties").and_then(Value::as_object);
    Some(match kind {
        Some("integer" | "number") => schema
            .get("minimum")
            .map_or_else(|| "0".to_owned(), Value::to_string),
        Some("string") => "\"\"".to_owned(),
        Some("array") => "[]".to_owned(),
        Some("boolean") => "true".to_owned(),
        Some("null") => "null".to_owned(),
        _ => {
            let required = schema.get("required").and_then(Value::as_array)?;
            if required.len() > EXAMPLE_MEMBERS {
                return None;
            }
            let members = properties.into_iter().flatten();
            let members = members.filter(|(name, _)| required.iter().any(|r| r == name.as_str()));
            let written: Option<Vec<String>> = members
                .map(|(name, value)| {
                    let name = Value::String(name.clone());
                    Some(format!("{name}:{}", example(value, deeper)?))
                })
                .collect();
            format!("{{{}}}", written?.join(","))
        }
    })
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
}
