//! What was decided: per keyword how it is enforced, and every problem of a schema.

use std::fmt;

use serde_json::{Map, Value};

use super::document::{Dialect, Place};
use super::schema::since;
use crate::{GrammarError, GrammarErrorKind, GrammarReport};

/// How a keyword of a schema is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// It asserts nothing, as the specification says: an unknown `format`, an unknown keyword.
    Annotation,
    /// Every mask enforces it, as it is written.
    Grammar,
    /// Every mask enforces it, after an equivalent rewriting.
    Rewriting,
    /// A guard judges each value as it closes.
    Guard,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => "annotation",
            Self::Grammar => "grammar",
            Self::Rewriting => "rewriting",
            Self::Guard => "guard",
        })
    }
}

/// One keyword and how it is enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The JSON Pointer of the schema that holds the keyword.
    pub pointer: String,
    /// The keyword.
    pub keyword: String,
    /// How it is enforced.
    pub how: How,
    /// Why, where it is not the grammar that enforces it as it is written.
    pub reason: String,
}

/// A problem found while compiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: GrammarErrorKind,
    pub(super) pointer: String,
    pub(super) keyword: &'static str,
    pub(super) reason: String,
}

/// Keywords that assert nothing of their own in any dialect.
const SILENT: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$id",
    "$recursiveAnchor",
    "$schema",
    "$vocabulary",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];
/// Keywords that assert something in one dialect or another.
const ASSERTING: &[&str] = &[
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "enum",
    "else",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "then",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// The members of the schema at `place` that are no annotations, and why each asserts nothing unless it was read as an
/// assertion.
pub(super) fn unasserting<'a>(place: &Place<'a>) -> Vec<(&'a str, &'static str)> {
    let Value::Object(map) = place.value else {
        return Vec::new();
    };
    let alone = refers_alone(place, map);
    let reason = |key: &str| match key {
        key if SILENT.contains(&key) => None,
        key if !ASSERTING.contains(&key) => Some("no keyword of JSON Schema has this name"),
        key if place.dialect < since(key) => Some("a later draft introduced it"),
        _ if alone => Some("up to draft-07, what is beside $ref has no meaning"),
        "then" | "else" if map.contains_key("if") => None,
        "minContains" | "maxContains" if map.contains_key("contains") => None,
        _ => Some("it asserts nothing here"),
    };
    let keys = map.keys().map(String::as_str);
    keys.filter_map(|key| Some((key, reason(key)?))).collect()
}

/// Whether the schema is a reference and nothing else: up to draft-07 one stands alone, as the drafts say that what is beside
/// it has no meaning.
pub(super) fn refers_alone(place: &Place<'_>, map: &Map<String, Value>) -> bool {
    place.dialect <= Dialect::Draft7 && map.get("$ref").is_some_and(Value::is_string)
}

/// All `problems` as one report; `None` where there are none.
pub(super) fn report(problems: &[Problem]) -> Option<GrammarReport> {
    GrammarReport::from_problems(
        problems
            .iter()
            .map(|p| GrammarError::json(p.kind, p.pointer.clone(), p.keyword, p.reason.clone()))
            .collect(),
    )
}
