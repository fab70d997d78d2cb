//! What a schema is told: its problems, and what of it asserts nothing.

use super::*;

#[test]
fn every_problem_is_in_one_report() {
    let schema = json!({
        "properties": {
            "a": {"type": "flibbertigibbet"},
            "b/c": {"$ref": "#/$defs/none"},
            "d": {"minLength": "3"},
        }
    });
    let report = compile_schema(&schema, &SchemaOptions::default()).unwrap_err();
    let text = report.to_string();
    assert_eq!(report.len(), 3, "{text}");
    for part in [
        "'/properties/a', keyword 'type'",
        "'/properties/b~1c', keyword '$ref'",
        "'/properties/d', keyword 'minLength'",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_pattern_that_nothing_knows_is_refused_at_its_place() {
    let schema = json!({
        "properties": {
            "a": {"pattern": "["},
            "b": {"items": {"pattern": "\\p{Flibbertigibbet}"}, "uniqueItems": true},
            // The validator knows look-behind, so a guard judges it.
            "c": {"pattern": "(?<!q)a"},
        },
        "patternProperties": {"(?<!q)a": {}, "(": {}},
    });
    let report = compile_schema(&schema, &SchemaOptions::default()).unwrap_err();
    let text = report.to_string();
    assert_eq!(report.len(), 3, "{text}");
    for part in [
        "'/properties/a', keyword 'pattern'",
        "'/properties/b/items', keyword 'pattern'",
        "'', keyword 'patternProperties'",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_count_above_every_length_is_no_bound() {
    let huge = |keyword: &str, count: &str| -> serde_json::Value {
        let members = r#""properties": {"a": {}, "b": {}}, "items": {"type": "null"}, "contains": {"type": "null"}"#;
        serde_json::from_str(&format!(r#"{{{members}, "{keyword}": {count}}}"#)).unwrap()
    };
    for count in ["18446744073709551615", "18446744073709551616", "1e30"] {
        for keyword in ["maxItems", "maxContains", "maxProperties"] {
            check(
                huge(keyword, count),
                &["[null]", r#"{"b":1}"#, r#"{"a":1,"b":2,"c":3}"#],
                &["[]"],
            );
        }
        // Nothing is as large as that.
        for keyword in ["minItems", "minContains", "minProperties", "minLength"] {
            let done = compile_schema(&huge(keyword, count), &SchemaOptions::default());
            if let Err(report) = done {
                assert_ne!(
                    report.first().kind(),
                    GrammarErrorKind::Internal,
                    "{report}"
                );
            }
        }
    }
    for count in ["18446744073709551615", "18446744073709551616", "1e30"] {
        let schema = format!(r#"{{"type": "string", "maxLength": {count}}}"#);
        check(
            serde_json::from_str(&schema).unwrap(),
            &[r#""""#, r#""abc""#],
            &["1"],
        );
    }
    for count in ["-1", "-18446744073709551616", "0.5", "\"3\""] {
        let schema = format!(r#"{{"type": "string", "maxLength": {count}}}"#);
        let schema = serde_json::from_str(&schema).unwrap();
        let report = compile_schema(&schema, &SchemaOptions::default()).unwrap_err();
        assert!(report.to_string().contains("at least 0"), "{report}");
    }
}

#[test]
fn a_keyword_asserts_nothing_in_a_dialect_before_it() {
    for (dialect, keywords) in [
        (
            "draft-04",
            json!({"const": 1, "contains": false, "propertyNames": false, "if": true, "then": false}),
        ),
        (
            "draft-06",
            json!({"if": true, "then": false, "dependentRequired": {"a": ["b"]}}),
        ),
        (
            "draft-07",
            json!({"prefixItems": [false], "minItems": 1, "unevaluatedItems": false, "unevaluatedProperties": false,
            "dependentSchemas": {"a": false}}),
        ),
    ] {
        let mut schema = json!({"$schema": format!("http://json-schema.org/{dialect}/schema#")});
        schema
            .as_object_mut()
            .unwrap()
            .extend(keywords.as_object().unwrap().clone());
        check(schema, &["[1]", r#"{"a":1}"#, "2"], &[]);
    }
}

#[test]
fn what_asserts_nothing_is_told() {
    let told = |schema: serde_json::Value| -> Vec<String> {
        let compiled = compile_schema(&schema, &SchemaOptions::default()).unwrap();
        let all = compiled.explained.into_iter();
        all.filter(|part| part.how == How::Annotation)
            .map(|part| format!("{}/{}: {}", part.pointer, part.keyword, part.reason))
            .collect()
    };
    assert_eq!(
        told(json!({
            "title": "a name",
            "properties": {"a": {"maxlength": 3, "maxLength": 4}, "b": {"uniqueItems": false}},
            "then": {"x-note": 1},
        })),
        [
            "/then: it asserts nothing here",
            "/properties/a/maxlength: no keyword of JSON Schema has this name",
            "/properties/b/uniqueItems: it asserts nothing here",
        ]
    );
    assert_eq!(
        told(json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"a": {"$ref": "#/definitions/s", "maxLength": 4, "description": "short"}},
            "definitions": {"s": {"type": "string"}},
        })),
        ["/properties/a/maxLength: up to draft-07, what is beside $ref has no meaning"]
    );
    assert_eq!(
        told(json!({
            "$schema": "http://json-schema.org/draft-06/schema#",
            "if": true, "then": false, "contains": {"const": 1}, "minContains": 2,
        })),
        ["if", "then", "minContains"].map(|k| format!("/{k}: a later draft introduced it"))
    );
    // What is read with another keyword asserts something.
    for schema in [
        json!({"prefixItems": [{"const": 1}], "items": false, "contains": {"const": 1}, "minContains": 1}),
        json!({"properties": {"ship": {"oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}, {"type": "null"},
        ]}}, "required": ["ship"]}),
        json!({"if": {"const": 1}, "then": {"type": "integer"}, "else": {"type": "string"}}),
        json!({"properties": {"a": {}}, "patternProperties": {"(?<!q)a": {}}, "additionalProperties": false}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": 1}], "additionalItems": false}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 1, "exclusiveMinimum": true,
            "maximum": 9, "exclusiveMaximum": true}),
    ] {
        assert_eq!(told(schema), [""; 0]);
    }
}

#[test]
fn a_reference_stands_alone_up_to_draft_07() {
    let schema = |dialect: &str| json!({"$schema": dialect, "$ref": "#/definitions/a", "maximum": 5, "definitions": {"a": {"type": "integer"}}});
    check_unguarded(
        schema("http://json-schema.org/draft-07/schema#"),
        &["3", "9"],
        &["\"x\""],
    );
    check_unguarded(
        schema("https://json-schema.org/draft/2020-12/schema"),
        &["3"],
        &["9", "\"x\""],
    );
}

#[test]
fn steps_that_are_no_steps_are_refused() {
    for step in [json!(0), json!(-2), json!(-0.5), json!("2")] {
        let report =
            compile_schema(&json!({"multipleOf": step}), &SchemaOptions::default()).unwrap_err();
        assert_eq!(report.first().kind(), GrammarErrorKind::Invalid, "{step}");
    }
}

#[test]
fn proofs_that_take_too_much_work_are_a_limit() {
    let iris = |count: usize| {
        let one = |i| json!({"type": "string", "format": "iri", "minLength": i});
        json!({"oneOf": (1..=count).map(one).collect::<Vec<_>>()})
    };
    compile_schema(&iris(6), &SchemaOptions::default()).unwrap();
    let mut options = SchemaOptions::default();
    options.limits.proof_work = 100_000;
    let report = compile_schema(&iris(6), &options).unwrap_err();
    assert_eq!(report.first().kind(), GrammarErrorKind::Limit, "{report}");
}

#[test]
fn what_leaves_no_value_is_told_where_it_stands() {
    for (schema, place) in [
        (
            json!({"type": "object", "required": ["outer"], "properties": {"outer": {
                "type": "object", "required": ["x"],
                "properties": {"x": {"type": "integer", "minimum": 5, "maximum": 3}},
            }}}),
            "at '/properties/outer/properties/x': no value satisfies the schema",
        ),
        (
            json!({"allOf": [{"type": "array", "minItems": 1, "items": {"type": "object",
                "properties": {"a": {}, "b": {}}, "required": ["a", "bb"], "additionalProperties": false}}]}),
            "at '/allOf/0/items', keyword 'required': the member \"bb\" has to be there, and no member of that name may be",
        ),
        (
            json!({"type": "integer", "const": 1e30}),
            "at '', keyword 'const': no value is left to write: numbers have at most 19 digits before the point and 17 after it, beside other keywords",
        ),
        (
            json!({"type": "integer", "minimum": 5, "maximum": 3, "required": ["a"], "additionalProperties": false}),
            "at '': no value satisfies the schema",
        ),
        (
            json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-17}),
            "at '', keyword 'exclusiveMaximum': no value is left to write: numbers have",
        ),
        (
            json!({"type": "object", "required": ["x"], "properties": {
                "id": {"type": "integer", "maximum": 9_999_999_999_999_999_999_u64},
                "x": {"type": "integer", "minimum": 5, "maximum": 3},
            }}),
            "at '': no value is left to write, perhaps on account of '/properties/id', keyword 'maximum': numbers have",
        ),
        (
            json!({"type": "object", "required": ["x"], "properties": {
                "xy": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-17},
                "x": {"type": "boolean", "enum": [1]},
            }}),
            "at '/properties/x': no value satisfies the schema",
        ),
        (
            json!({"type": "string", "const": 1}),
            "at '': no value satisfies the schema",
        ),
    ] {
        let report = compile_schema(&schema, &SchemaOptions::default()).unwrap_err();
        assert!(report.to_string().contains(place), "{schema}: {report}");
    }
}
