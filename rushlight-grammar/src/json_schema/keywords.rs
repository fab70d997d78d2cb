//! The keywords by name: which draft has them, and which assert nothing where they stand.

use serde_json::{Map, Value};

use super::document::{Dialect, Place};

/// The first dialect that has `keyword`; before, it is an unknown one, which asserts nothing.
pub(super) fn since(keyword: &str) -> Dialect {
    match keyword {
        "const" | "contains" | "propertyNames" => Dialect::Draft6,
        "if" | "then" | "else" => Dialect::Draft7,
        "maxContains"
        | "minContains"
        | "dependentRequired"
        | "dependentSchemas"
        | "unevaluatedItems"
        | "unevaluatedProperties"
        | "$recursiveRef" => Dialect::Draft2019,
        "prefixItems" | "$dynamicRef" => Dialect::Draft2020,
        _ => Dialect::Draft4,
    }
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

/// Whether `uri` names a draft whose keywords are not read.
pub(super) fn is_ancient(uri: &str) -> bool {
    let old = ["draft-00", "draft-01", "draft-02", "draft-03"];
    old.iter().any(|draft| uri.contains(draft))
}

/// What the value of a schema's member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// A schema, or a list of schemas.
    Schemas,
    /// An object whose members are schemas, whatever their names.
    NamedSchemas,
    /// Instances: an identifier in one of them names nothing.
    Instances,
    /// It is an unknown keyword's, and may be anything.
    Anything,
}

/// What the member `key` of a schema holds.
pub(super) fn holds(key: &str) -> Holds {
    match key {
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
        | "dependencies" => Holds::NamedSchemas,
        "enum" | "const" | "default" | "examples" => Holds::Instances,
        "additionalItems"
        | "additionalProperties"
        | "allOf"
        | "anyOf"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "items"
        | "not"
        | "oneOf"
        | "prefixItems"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => Holds::Schemas,
        _ => Holds::Anything,
    }
}

/// Whether the schema is a reference and nothing else: up to draft-07 one stands alone, as the drafts say that what is beside
/// it has no meaning.
pub(super) fn refers_alone(place: &Place<'_>, map: &Map<String, Value>) -> bool {
    place.dialect <= Dialect::Draft7 && map.get("$ref").is_some_and(Value::is_string)
}
