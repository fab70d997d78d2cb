//! Schemas with texts that they accept and reject, walked byte by byte through grammar and guard.

mod formats;
mod guards;
mod names;
mod reports;
mod unevaluated;

use std::sync::Arc;

use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, TokEnv};

use super::*;
use crate::lower::GuardStep;

struct Bytes {
    factory: ParserFactory,
}

impl Bytes {
    fn new() -> Self {
        let env: TokEnv = ApproximateTokEnv::single_byte_env();
        let mut factory = ParserFactory::new(&env, Default::default(), &[]).unwrap();
        factory.quiet();
        Self { factory }
    }

    fn accepts(&self, compiled: &CompiledSchema, text: &str) -> bool {
        let parser = self
            .factory
            .create_parser_from_init_default(compiled.grammar.clone());
        let mut matcher = Matcher::new(parser);
        let mut runs: Vec<_> = compiled.guards.iter().map(|g| g.begin()).collect();
        for byte in text.bytes() {
            if matcher.is_stopped() || matcher.try_consume_tokens(&[u32::from(byte)]).unwrap() != 1
            {
                return false;
            }
            if runs
                .iter_mut()
                .any(|run| run.push(byte) != GuardStep::Accept)
            {
                return false;
            }
        }
        (matcher.is_stopped() || matcher.is_accepting().unwrap())
            && runs.iter().all(|run| run.finish() == GuardStep::Accept)
    }
}

#[track_caller]
fn check(schema: Value, yes: &[&str], no: &[&str]) {
    check_with(schema, &SchemaOptions::default(), yes, no);
}

#[track_caller]
fn check_with(schema: Value, options: &SchemaOptions, yes: &[&str], no: &[&str]) {
    let bytes = Bytes::new();
    let compiled = compile_schema(&schema, options).unwrap_or_else(|e| panic!("{schema}: {e}"));
    for text in yes {
        assert!(
            bytes.accepts(&compiled, text),
            "{schema} should accept {text}"
        );
    }
    for text in no {
        assert!(
            !bytes.accepts(&compiled, text),
            "{schema} should reject {text}"
        );
    }
}

/// As [`check`], and no guard may be needed.
#[track_caller]
fn check_unguarded(schema: Value, yes: &[&str], no: &[&str]) {
    let options = SchemaOptions {
        guards: false,
        ..SchemaOptions::default()
    };
    compile_schema(&schema, &options).unwrap_or_else(|e| panic!("{schema}: {e}"));
    check(schema, yes, no);
}

#[test]
fn types_and_constants() {
    check_unguarded(
        json!(true),
        &["1", "null", "[]", r#"{"a":[1,{"b":"c"}]}"#, "-1.5e3"],
        &["", "{", "nul"],
    );
    check_unguarded(
        json!({"type": "integer"}),
        &["0", "-7"],
        &["1.5", "\"1\"", "01"],
    );
    check_unguarded(
        json!({"type": ["string", "null"]}),
        &["\"a\"", "null"],
        &["1"],
    );
    check_unguarded(
        json!({"type": "string", "nullable": true}),
        &["null", "\"x\""],
        &["1"],
    );
    // What lists its values lists `null` too.
    for values in [json!({"enum": ["a"]}), json!({"const": "a"})] {
        let mut schema = json!({"type": "string", "nullable": true});
        schema
            .as_object_mut()
            .unwrap()
            .extend(values.as_object().unwrap().clone());
        check_unguarded(schema.clone(), &["\"a\""], &["null"]);
        schema["not"] = json!({"type": "array", "uniqueItems": true});
        check(schema, &["\"a\""], &["null"]);
    }
    check_unguarded(
        json!({"type": "string", "nullable": true, "enum": ["a", null]}),
        &["null", "\"a\""],
        &["\"b\""],
    );
    check_unguarded(
        json!({"enum": [1, "a", null, {"k": [2]}, 1.5]}),
        &["1", "\"a\"", "null", r#"{"k":[2]}"#, "1.5"],
        &["2", "{}", r#"{"k":[3]}"#],
    );
    check_unguarded(
        json!({"const": {"a": false}}),
        &[r#"{"a":false}"#],
        &[r#"{"a":0}"#, "{}"],
    );
    assert_eq!(
        compile_schema(&json!(false), &SchemaOptions::default())
            .unwrap_err()
            .first()
            .kind(),
        GrammarErrorKind::Unsatisfiable
    );
}

#[test]
fn declared_names_have_one_spelling_and_appear_once() {
    check(
        json!({"properties": {"name": {"type": "integer"}}}),
        &[r#"{"name":1}"#, r#"{"x":"y"}"#, r#"{"name":1,"x":2,"y":3}"#],
        &[
            r#"{"n\u0061me":"x"}"#,
            r#"{"name":"x"}"#,
            r#"{"x":1,"x":2}"#,
            r#"{"name":1,"name":2}"#,
        ],
    );
    check(
        json!({"type": "object", "minProperties": 2}),
        &[r#"{"a":1,"b":2}"#],
        &[r#"{"a":1,"a":2}"#, r#"{"a":1}"#],
    );
}

#[test]
fn numbers_in_ranges() {
    check_unguarded(
        json!({"type": "integer", "minimum": -3, "maximum": 12}),
        &["-3", "0", "12"],
        &["-4", "13", "1.5"],
    );
    check_unguarded(
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}),
        &["0.1", "1.5"],
        &["0", "1.6"],
    );
    check_unguarded(
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 1, "exclusiveMinimum": true}),
        &["2"],
        &["1"],
    );
    check_unguarded(
        json!({"type": "integer", "multipleOf": 5, "not": {"const": 10}}),
        &["5", "15", "-5"],
        &["10", "7"],
    );
    check_unguarded(
        json!({"type": "number", "multipleOf": 0.5}),
        &["1.5", "2"],
        &["1.3"],
    );
}

#[test]
fn what_is_not_written_is_no_proof() {
    for (first, both) in [
        (
            json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-17}),
            ["1e-20", "5e-18"],
        ),
        (
            json!({"type": "integer", "exclusiveMinimum": 9_999_999_999_999_999_999_u64}),
            ["1e25", "10000000000000000000"],
        ),
    ] {
        check(
            json!({"oneOf": [first, {"type": "number"}]}),
            &["1", "-2.5"],
            &both,
        );
        let object = |value: &Value| json!({"type": "object", "required": ["a"], "properties": {"a": value}, "additionalProperties": false});
        let within = both.map(|number| format!("{{\"a\":{number}}}"));
        check(
            json!({"oneOf": [object(&first), object(&json!({"type": "number"}))]}),
            &[r#"{"a":1}"#],
            &within.each_ref().map(String::as_str),
        );
    }
}

#[test]
fn few_digits_prove_nothing_about_multiples_beyond_them() {
    let options = SchemaOptions {
        digits: Digits {
            integer: 5,
            ..Digits::default()
        },
        ..SchemaOptions::default()
    };
    // 105000 is one of the first, and of the second with an exponent.
    let schema = json!({"oneOf": [
        {"type": "integer", "exclusiveMinimum": 98_000, "multipleOf": 7000},
        {"type": "number"},
    ]});
    check_with(schema, &options, &["1.5"], &["105e3"]);
}

#[test]
fn one_of_is_exclusive() {
    // Disjoint through a reference and a discriminator.
    check_unguarded(
        json!({
            "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
            "$defs": {
                "a": {"type": "object", "properties": {"t": {"const": "a"}, "x": {"type": "integer"}}, "required": ["t"], "additionalProperties": false},
                "b": {"type": "object", "properties": {"t": {"const": "b"}, "y": {"type": "string"}}, "required": ["t"], "additionalProperties": false}
            }
        }),
        &[r#"{"t":"a","x":1}"#, r#"{"t":"b","y":""}"#],
        &[r#"{"t":"a","y":""}"#, r#"{"t":"c"}"#],
    );
    // Not disjoint: rewritten.
    check_unguarded(
        json!({"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "additionalProperties": false}),
        &[r#"{"a":1}"#, r#"{"b":1}"#],
        &[r#"{"a":1,"b":2}"#, "{}"],
    );
    check_unguarded(
        json!({"oneOf": [{"type": "integer"}, {"minimum": 2}]}),
        &["1", "2.5", "\"x\""],
        &["3", "1.5"],
    );
    check_unguarded(
        json!({"type": "string", "oneOf": [{"pattern": "a"}, {"maxLength": 2}]}),
        &["\"aaa\"", "\"xy\""],
        &["\"a\"", "\"xyz\""],
    );
}

#[test]
fn negation_and_conditions() {
    check_unguarded(
        json!({"not": {"type": "string"}}),
        &["1", "null", "{}"],
        &["\"a\""],
    );
    check_unguarded(
        json!({"type": "string", "not": {"enum": ["a", "b"]}}),
        &["\"c\"", "\"ab\""],
        &["\"a\""],
    );
    check_unguarded(
        json!({"type": "object", "not": {"required": ["x"]}}),
        &["{}", r#"{"y":1}"#],
        &[r#"{"x":1}"#],
    );
    check_unguarded(
        json!({
            "properties": {"kind": {"enum": ["a", "b"]}, "n": {}},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "a"}}},
            "then": {"required": ["n"]},
            "else": {"properties": {"n": {"type": "null"}}},
            "additionalProperties": false
        }),
        &[
            r#"{"kind":"a","n":1}"#,
            r#"{"kind":"b"}"#,
            r#"{"kind":"b","n":null}"#,
        ],
        &[r#"{"kind":"a"}"#, r#"{"kind":"b","n":1}"#],
    );
    check_unguarded(
        json!({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}, "additionalProperties": false}),
        &["{}", r#"{"b":1}"#, r#"{"a":1,"b":2}"#],
        &[r#"{"a":1}"#],
    );
    check_unguarded(
        json!({"properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"], "b": {"properties": {"b": {"type": "integer"}}}}}),
        &[r#"{"a":1,"b":2}"#, "{}"],
        &[r#"{"a":1}"#, r#"{"b":"x"}"#],
    );
}

#[test]
fn member_counts_patterns_and_names() {
    check_unguarded(
        json!({"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 1, "maxProperties": 2, "additionalProperties": false}),
        &[r#"{"a":1}"#, r#"{"a":1,"c":2}"#],
        &["{}", r#"{"a":1,"b":2,"c":3}"#],
    );
    check(
        json!({"properties": {"a": {}}, "minProperties": 2}),
        &[r#"{"a":1,"b":2}"#, r#"{"x":1,"y":2}"#],
        &[r#"{"a":1}"#, r#"{"x":1}"#],
    );
    check_unguarded(
        json!({"patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}}, "additionalProperties": false}),
        &[r#"{"a":1}"#, r#"{"xb":"s"}"#, r#"{"ab":7}"#],
        &[r#"{"a":"s"}"#, r#"{"ab":3}"#, r#"{"c":1}"#],
    );
    check_unguarded(
        json!({"propertyNames": {"pattern": "^[a-z]+$", "maxLength": 3}}),
        &[r#"{"abc":1}"#, "{}"],
        &[r#"{"abcd":1}"#, r#"{"A":1}"#],
    );
}

#[test]
fn arrays() {
    check_unguarded(
        json!({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false, "minItems": 1}),
        &["[1]", "[1,\"a\"]"],
        &["[]", "[1,\"a\",2]", "[\"a\"]"],
    );
    check_unguarded(
        json!({"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 6}),
        &["[null,null]", "[null,null,null,null,null,null]"],
        &["[null]", "[null,null,null,null,null,null,null]"],
    );
    check_unguarded(
        json!({"type": "array", "contains": {"const": 1}}),
        &["[1]", "[2,1,3]"],
        &["[]", "[2]"],
    );
    check_unguarded(
        json!({"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 3, "items": {"type": "integer"}}),
        &["[1,1]", "[1,2,1,1]"],
        &["[1]", "[1,1,1,1]"],
    );
    check(
        json!({"type": "array", "uniqueItems": true}),
        &["[1,2]", "[]", "[[1],[2]]"],
        &["[1,1]", "[1,1.0]", r#"[{"a":1,"b":2},{"b":2,"a":1}]"#],
    );
    check_unguarded(
        json!({"type": "array", "uniqueItems": false, "maxItems": 1_000_000_000}),
        &["[1,1]"],
        &["[1,]"],
    );
}

#[test]
fn recursion() {
    check_unguarded(
        json!({
            "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node", "required": ["v"]}}}, "additionalProperties": false}}
        }),
        &["{}", r#"{"v":1,"kids":[{"v":2,"kids":[]}]}"#],
        &[r#"{"kids":[{}]}"#],
    );
    let e = compile_schema(&json!({"$ref": "#"}), &SchemaOptions::default()).unwrap_err();
    assert!(e.to_string().contains("reaches itself"), "{e}");
    let e = compile_schema(
        &json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}),
        &SchemaOptions::default(),
    );
    assert!(e.is_err());
    // Every value would be infinite.
    let e = compile_schema(
        &json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        &SchemaOptions::default(),
    );
    assert_eq!(
        e.unwrap_err().first().kind(),
        GrammarErrorKind::Unsatisfiable
    );
}

#[test]
fn unevaluated_members_and_items() {
    check_unguarded(
        json!({"allOf": [{"properties": {"a": {"type": "integer"}}}], "properties": {"b": {}}, "unevaluatedProperties": false}),
        &["{}", r#"{"b":1}"#],
        &[r#"{"c":1}"#, r#"{"a":"x"}"#],
    );
    check_unguarded(
        json!({"prefixItems": [{"type": "integer"}], "unevaluatedItems": {"type": "null"}}),
        &["[1,null]", "[]"],
        &["[1,2]"],
    );
}

#[test]
fn no_more_items_are_distinct_than_there_are_values() {
    let unique = |items: serde_json::Value, min: u64| json!({"type": "array", "items": items, "minItems": min, "uniqueItems": true});
    for (items, values) in [
        (json!({"enum": [1, 2, "a"]}), 3),
        (json!({"type": "boolean"}), 2),
        (json!({"type": "integer", "minimum": -1, "maximum": 3}), 5),
        (
            json!({"anyOf": [{"const": 1}, {"type": "null"}, {"$ref": "#/items/anyOf/0"}]}),
            3,
        ),
        (json!({"allOf": [{"type": "integer"}, {"enum": [7, 8]}]}), 2),
    ] {
        compile_schema(&unique(items.clone(), values), &SchemaOptions::default()).unwrap();
        let report =
            compile_schema(&unique(items, values + 1), &SchemaOptions::default()).unwrap_err();
        assert_eq!(report.first().kind(), GrammarErrorKind::Unsatisfiable);
    }
    check(
        unique(json!({"enum": ["a", "b"]}), 1),
        &[r#"["a"]"#, r#"["b","a"]"#],
        &["[]", r#"["a","a"]"#, r#"["a","b","a"]"#],
    );
    // Positions of their own hold other values.
    check(
        json!({"prefixItems": [{"type": "string"}], "items": {"type": "null"}, "uniqueItems": true, "minItems": 2}),
        &[r#"["a",null]"#],
        &[r#"["a"]"#, r#"["a",null,null]"#],
    );
}

#[test]
fn members_come_in_any_order_where_that_is_asked_for() {
    let options = SchemaOptions {
        member_order: MemberOrder::Any,
        ..SchemaOptions::default()
    };
    let schema = json!({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]});
    check_with(
        schema.clone(),
        &options,
        &[
            r#"{"b":"x","a":1}"#,
            r#"{"z":1,"b":"x"}"#,
            r#"{"a":1,"z":{},"b":"x"}"#,
        ],
        &[
            r#"{"a":1}"#,
            "{}",
            r#"{"b":"x","b":"y"}"#,
            r#"{"b":1}"#,
            r#"{"b":"x","a":"x"}"#,
        ],
    );
    check(
        schema,
        &[r#"{"a":1,"b":"x","z":1}"#],
        &[r#"{"b":"x","a":1}"#, r#"{"z":1,"b":"x"}"#],
    );
    // Which alternative it is does not follow from the names, so a validator judges it.
    check_with(
        json!({"type": "object", "oneOf": [
            {"properties": {"a": {}, "k": {"const": 1}}, "required": ["a", "k"]},
            {"properties": {"b": {}, "k": {"const": 2}}, "required": ["b", "k"]},
        ]}),
        &options,
        &[r#"{"k":1,"a":0}"#, r#"{"b":0,"k":2}"#],
        &[r#"{"k":1,"b":0}"#, r#"{"k":2}"#],
    );
    // Arrays have no members that could be required.
    check_with(
        json!({"properties": {"c": {"required": ["b"]}}}),
        &options,
        &[
            r#"{"d":1,"c":[]}"#,
            r#"{"d":1,"c":{"x":[],"b":1}}"#,
            r#"{"d":1,"c":2}"#,
        ],
        &[r#"{"d":1,"c":{"x":{"b":1}}}"#],
    );
    let report = compile_schema(
        &json!({"properties": {"a": {}, "b": {}}}),
        &SchemaOptions {
            guards: false,
            ..options
        },
    )
    .unwrap_err();
    assert_eq!(report.first().kind(), GrammarErrorKind::Unsupported);
}

#[test]
fn numbers_close() {
    let digits = |n: usize| format!("0.{}1", "0".repeat(n - 1));
    for schema in [
        json!({"type": "number"}),
        json!({"type": "number", "exclusiveMinimum": 0}),
        json!({"maximum": 9.5}),
    ] {
        check_unguarded(schema, &[&digits(17)], &[&digits(18)]);
    }
}

#[test]
fn names_beside_declared_ones_may_be_any_others() {
    check(
        json!({"properties": {"a\"b": {"type": "null"}, "c\n": {"type": "null"}}, "additionalProperties": {"type": "integer"}}),
        &[r#"{"a\"b":null,"c\n":null,"a":1,"c":2,"a\"c":3}"#],
        &[
            r#"{"a\"b":1}"#,
            r#"{"c\n":1}"#,
            r#"{"c\u000a":1}"#,
            r#"{"a\u0022b":1}"#,
        ],
    );
}

#[test]
fn what_stands_under_not_evaluates_nothing() {
    check(
        json!({"not": {"not": {"prefixItems": [true, {"const": "bar"}]}}, "unevaluatedItems": false}),
        &["[]"],
        &["[\"foo\",\"bar\"]", "[1]"],
    );
}

#[test]
fn numbers_are_read_as_their_author_wrote_them() {
    check_unguarded(
        json!({"enum": [2.0, 3, {"a": 0.0}]}),
        &["2.0", "2", "3", r#"{"a":0.0}"#],
        &["2.00", "4"],
    );
    check_unguarded(
        json!({"type": "number", "minimum": 0}),
        &["1e-06", "0", "0e5"],
        &["-1e-06", "-0"],
    );
    check_unguarded(
        json!({"type": "number", "exclusiveMinimum": 0}),
        &["1e-06", "0.01", "20"],
        &["0", "0.0", "0e5", "-1"],
    );
}
