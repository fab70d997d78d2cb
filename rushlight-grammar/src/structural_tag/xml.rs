//! Qwen's spelling of arguments: the members of an object as `<parameter=NAME>VALUE</parameter>`, in the schema's order.
//!
//! A string is written bare, up to the closing tag; other values are JSON. One line feed may stand around values and between
//! parameters. Only declared members are written.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::Builder;
use super::content;
use super::document::At;
use super::shape::{self, Part, Shape};
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
    root: &At,
) -> Result<Part, GrammarReport> {
    let at = root;
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
    let mut parts = vec![line(at)];
    for (name, property) in properties {
        let at = place.under(name);
        if name.is_empty() || name.contains(['>', '<', '\n']) {
            let reason = "this name cannot stand in a tag";
            return Err(at.error(GrammarErrorKind::Unsupported, "", reason).into());
        }
        let begin = shape::text(format!("<parameter={name}>"));
        let value = match strings(property, content::is_draft_4(schema), &at)? {
            Some(strings) => strings,
            None => {
                // In its document, so that a reference means what it does there.
                let path = ["properties", name];
                let (symbol, guards) = builder.embed(schema, &path, root)?;
                if !guards.is_empty() {
                    let reason = "a value that needs a guard cannot be written as a parameter";
                    return Err(at.error(GrammarErrorKind::Unsupported, "", reason).into());
                }
                closed(builder.json(symbol, (property, schema), &at, guards), &at)
            }
        };
        let parameter = shape::seq(vec![begin, value, line(&at)]);
        let is_required = required.iter().any(|r| r == name);
        parts.push(match is_required {
            true => parameter,
            false => shape::optional(parameter),
        });
    }
    Ok(shape::seq(parts))
}

/// A string with its closing tag, where `property` is a schema of strings.
fn strings(property: &Value, is_draft_4: bool, at: &At) -> Result<Option<Part>> {
    if property.get("type").and_then(Value::as_str) != Some("string") {
        return Ok(None);
    }
    let object = at.object(property)?;
    at.only(
        object,
        &[["type", "enum", "const"].as_slice(), NOTES.as_slice()].concat(),
    )?;
    // Draft 4 has no `const`.
    let constant = object.get("const").filter(|_| !is_draft_4);
    Ok(Some(match texts_of(object.get("enum"), constant, at)? {
        Some(texts) => closed(shape::texts(&texts), at),
        None => shape::until(&[END.to_owned()], &[]),
    }))
}

/// The strings that a schema of strings lists; none where it takes every string.
fn texts_of(
    list: Option<&Value>,
    constant: Option<&Value>,
    at: &At,
) -> Result<Option<Vec<String>>> {
    let (values, keyword) = match (list, constant) {
        (None, None) => return Ok(None),
        (None, Some(value)) => (vec![value], "const"),
        (Some(Value::Array(values)), None) => (values.iter().collect(), "enum"),
        (Some(Value::Array(values)), Some(value)) => {
            (values.iter().filter(|v| *v == value).collect(), "const")
        }
        (Some(_), _) => return Err(at.error(GrammarErrorKind::Invalid, "enum", "must be a list")),
    };
    let texts: Vec<String> = values
        .into_iter()
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect();
    if texts.is_empty() {
        let reason = "no string is among the values";
        return Err(at.error(GrammarErrorKind::Unsatisfiable, keyword, reason));
    }
    // A string is written bare: what ends it may not come up before its end.
    let ends_early = |text: &&String| format!("{text}{END}").find(END) != Some(text.len());
    if let Some(text) = texts.iter().find(ends_early) {
        let reason = format!("{text:?} cannot be written: '{END}' would end it early");
        return Err(at.error(GrammarErrorKind::Unsupported, keyword, reason));
    }
    Ok(Some(texts))
}

/// A value between optional line feeds, and its closing tag.
fn closed(value: Part, at: &At) -> Part {
    shape::seq(vec![line(at), value, line(at), shape::text(END)])
}

fn line(at: &At) -> Part {
    Rc::new(Shape::Regex {
        pattern: "\\n?".to_owned(),
        pointer: at.pointer.clone(),
    })
}
