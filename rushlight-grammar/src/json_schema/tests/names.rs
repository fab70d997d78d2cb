//! Names that schemas have, and the dialects that they are written in.

use super::*;

fn refused(schema: Value, parts: &[&str]) {
    let report = compile_schema(&schema, &SchemaOptions::default()).unwrap_err();
    let text = report.to_string();
    for part in parts {
        assert!(text.contains(part), "{schema}: {text}");
    }
}

#[test]
fn a_member_may_be_called_like_a_keyword() {
    for name in ["default", "enum", "const", "examples"] {
        for group in ["properties", "$defs", "dependentSchemas"] {
            check(
                json!({group: {name: {"$anchor": "x", "type": "null"}}, "allOf": [{"properties": {"b": {"$ref": "#x"}}}]}),
                &[r#"{"b":null}"#],
                &[r#"{"b":1}"#],
            );
        }
        check(
            json!({"properties": {name: {"$id": "http://x/y", "type": "null"}, "b": {"$ref": "http://x/y"}}}),
            &[r#"{"b":null}"#],
            &[r#"{"b":1}"#],
        );
    }
    refused(
        json!({"default": {"$anchor": "x"}, "$ref": "#x"}),
        &["no anchor 'x'"],
    );
}

#[test]
fn a_name_that_two_schemas_have_is_refused() {
    refused(
        json!({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "type": "null"}, "b": {"$anchor": "x"}}}),
        &["keyword '$ref'", "two schemas have the name"],
    );
    refused(
        json!({"$ref": "http://x/y", "$defs": {"a": {"$id": "http://x/y", "type": "null"}, "b": {"$id": "http://x/y"}}}),
        &["keyword '$ref'", "two schemas have the name 'http://x/y'"],
    );
    check(
        json!({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "type": "null"}, "b": {"$id": "y", "$anchor": "x"}}}),
        &["null"],
        &["1"],
    );
    // What an unknown keyword holds is no schema for sure.
    check(
        json!({"$ref": "#x", "x-old": {"$anchor": "x"}, "$defs": {"a": {"$anchor": "x", "type": "null"}}}),
        &["null"],
        &["1"],
    );
}

#[test]
fn dialects_are_known_or_told() {
    refused(
        json!({"$schema": "http://json-schema.org/draft-03/schema#", "divisibleBy": 2}),
        &["keyword '$schema'", "draft-04"],
    );
    refused(
        json!({"$schema": 4}),
        &["keyword '$schema'", "must be a string"],
    );
    let schema = json!({"$schema": "https://example.com/own", "type": "null"});
    let compiled = compile_schema(&schema, &SchemaOptions::default()).unwrap();
    let told = compiled.explained.iter().find(|e| e.keyword == "$schema");
    assert!(told.is_some_and(|e| e.reason.contains("2020-12")));
}

#[test]
fn operands_are_refused_for_what_is_wrong_with_them() {
    refused(
        json!({"type": "string", "nullable": "yes"}),
        &["keyword 'nullable'", "must be a boolean"],
    );
    refused(
        json!({"type": "number", "minimum": "5"}),
        &["keyword 'minimum'", "must be a number, not a string"],
    );
    refused(
        json!({"type": "string", "minLength": 1_000_001}),
        &["keyword 'minLength'", "more than"],
    );
    let longest = json!({"type": "string", "minLength": 1_000_000});
    assert!(compile_schema(&longest, &SchemaOptions::default()).is_ok());
    let schema =
        r#"{"type": "integer", "minimum": 18446744073709551615, "maximum": 18446744073709551616}"#;
    refused(
        serde_json::from_str(schema).unwrap(),
        &["keyword 'minimum'", "at most 19 digits"],
    );
}
