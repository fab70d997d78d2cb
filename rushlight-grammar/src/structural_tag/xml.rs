//! Qwen's spelling of arguments: the members of an object as `<parameter=NAME>VALUE</parameter>`, in the schema's order.
//!
//! A string is written bare, up to the closing tag; other values are JSON. One line feed may stand around values and between
//! parameters. Only declared members are written.

use llguidance::derivre::RegexAst;
use llguidance::earley::SymIdx;
use serde_json::{Map, Value};

use super::Builder;
use super::document::At;
use crate::error::{GrammarErrorKind, GrammarReport, Result};

const END: &str = "</parameter>";
/// Members of a schema that assert nothing.
const NOTES: [&str; 6] = [
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "deprecated",
];

/// The members of object schema `schema`.
pub(super) fn parameters(
    builder: &mut Builder<'_>,
    schema: &Value,
    at: &At,
) -> Result<SymIdx, GrammarReport> {
    let object = at.object(schema)?;
    let known = [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "$defs",
        "definitions",
        "$schema",
    ];
    at.only(object, &[known.as_slice(), NOTES.as_slice()].concat())?;
    if object.get("type").and_then(Value::as_str) != Some("object") {
        let reason = "must be \"object\" to be written as parameters";
        return Err(at
            .error(GrammarErrorKind::Unsupported, "type", reason)
            .into());
    }
    let required = at.texts_or_none(object, "required")?;
    let empty = Map::new();
    let place = at.under("properties");
    let properties = match object.get("properties") {
        Some(value) => place.object(value)?,
        None => &empty,
    };
    if let Some(name) = required.iter().find(|name| !properties.contains_key(*name)) {
        let reason = format!("'{name}' is not a declared member");
        return Err(at
            .error(GrammarErrorKind::Unsupported, "required", reason)
            .into());
    }
    let mut parts = vec![line(builder)?];
    for (name, property) in properties {
        let at = place.under(name);
        if name.is_empty() || name.contains(['>', '<', '\n']) {
            let reason = "this name cannot stand in a tag";
            return Err(at.error(GrammarErrorKind::Unsupported, "", reason).into());
        }
        let begin = builder.target.text(&format!("<parameter={name}>"))?;
        let value = value(builder, property, object, &at)?;
        let after = line(builder)?;
        let parameter = builder.target.seq(vec![begin, value, after])?;
        let is_required = required.iter().any(|r| r == name);
        parts.push(match is_required {
            true => parameter,
            false => builder.target.repeat(parameter, 0, Some(1))?,
        });
    }
    Ok(builder.target.seq(parts)?)
}

/// A value with its closing tag.
fn value(
    builder: &mut Builder<'_>,
    property: &Value,
    root: &Map<String, Value>,
    at: &At,
) -> Result<SymIdx, GrammarReport> {
    let is_string = property.get("type").and_then(Value::as_str) == Some("string");
    if is_string && let Some(object) = property.as_object() {
        at.only(
            object,
            &[["type", "enum", "const"].as_slice(), NOTES.as_slice()].concat(),
        )?;
        let texts = match (object.get("const"), object.get("enum")) {
            (Some(text), _) => Some(vec![text.clone()]),
            (None, Some(Value::Array(texts))) => Some(texts.clone()),
            (None, _) => None,
        };
        let Some(texts) = texts else {
            return Ok(builder.text_until(&[END.to_owned()], &[])?);
        };
        let mut ways = Vec::with_capacity(texts.len());
        for text in texts.iter().filter_map(Value::as_str) {
            ways.push(builder.target.text(text)?);
        }
        if ways.is_empty() {
            let reason = "no string is among the values";
            return Err(at
                .error(GrammarErrorKind::Unsatisfiable, "enum", reason)
                .into());
        }
        let text = builder.target.alt(&ways)?;
        let (before, after) = (line(builder)?, line(builder)?);
        let end = builder.target.text(END)?;
        return Ok(builder.target.seq(vec![before, text, after, end])?);
    }
    let (value, guards) = builder.embed(&with_definitions(property, root), at)?;
    if !guards.is_empty() {
        let reason = "a value that needs a guard cannot be written as a parameter";
        return Err(at.error(GrammarErrorKind::Unsupported, "", reason).into());
    }
    let (before, after) = (line(builder)?, line(builder)?);
    let end = builder.target.text(END)?;
    Ok(builder.target.seq(vec![before, value, after, end])?)
}

/// The property with the definitions that its references name.
fn with_definitions(property: &Value, root: &Map<String, Value>) -> Value {
    let mut property = property.clone();
    if let Some(object) = property.as_object_mut() {
        for name in ["$defs", "definitions"] {
            if let Some(definitions) = root.get(name) {
                object.entry(name).or_insert_with(|| definitions.clone());
            }
        }
    }
    property
}

fn line(builder: &mut Builder<'_>) -> Result<SymIdx> {
    builder.target.lexeme(RegexAst::Regex("\\n?".to_owned()))
}
