//! `unevaluatedProperties` and `unevaluatedItems` beside alternatives of which several may hold.

use super::*;

#[test]
fn every_set_of_alternatives_counts() {
    check_unguarded(
        json!({"type": "object", "unevaluatedProperties": false,
            "anyOf": [{"properties": {"a": true}}, {"properties": {"b": true}}]}),
        &["{}", r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":1,"b":null}"#],
        &[r#"{"c":1}"#, r#"{"a":1,"c":1}"#],
    );
    check(
        json!({"type": "object", "unevaluatedProperties": {"type": "integer"}, "anyOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            {"properties": {"c": {"type": "string"}}, "required": ["c"]},
        ]}),
        &[
            r#"{"a":"x"}"#,
            r#"{"a":"x","b":"y","c":"z"}"#,
            r#"{"a":"x","c":"y"}"#,
            r#"{"a":"x","b":1,"d":2}"#,
        ],
        &[
            r#"{"a":"x","b":null}"#,
            r#"{"a":"x","d":"y"}"#,
            r#"{"a":1}"#,
        ],
    );
    check(
        json!({"type": "object", "unevaluatedProperties": false, "allOf": [
            {"anyOf": [{"properties": {"a": true}}, {"properties": {"b": true}}]}
        ]}),
        &[r#"{"a":1,"b":null}"#],
        &[r#"{"a":1,"c":null}"#],
    );
}

#[test]
fn no_case_is_left_out_of_a_proof() {
    check(
        json!({"type": "object", "oneOf": [
            {"unevaluatedProperties": false, "anyOf": [
                {"properties": {"a": {"type": "null"}}, "required": ["a"]},
                {"properties": {"b": true}, "required": ["b"]},
            ]},
            {"required": ["a", "b"]},
        ]}),
        &[r#"{"a":null}"#, r#"{"b":1}"#, r#"{"a":1,"b":1,"c":2}"#],
        &[r#"{"a":null,"b":1}"#, r#"{"a":null,"c":1}"#],
    );
}

#[test]
fn alternatives_that_assert_nothing_evaluate() {
    check(
        json!({"type": "object", "unevaluatedProperties": false, "anyOf": [{"properties": {"a": true}}, true]}),
        &["{}", r#"{"a":1}"#],
        &[r#"{"b":1}"#],
    );
    check(
        json!({"type": "array", "unevaluatedItems": false, "anyOf": [{"prefixItems": [true]}, true]}),
        &["[]", "[1]"],
        &["[1,2]"],
    );
    check(
        json!({"type": "object", "unevaluatedProperties": false,
            "if": {"properties": {"a": {"type": "null"}}, "required": ["a"]}}),
        &["{}", r#"{"a":null}"#],
        &[r#"{"a":1}"#, r#"{"a":null,"b":1}"#],
    );
}

#[test]
fn constants_evaluate_nothing() {
    check(
        json!({"enum": [{"a": 1}, [1], 5], "unevaluatedProperties": false, "unevaluatedItems": false}),
        &["5"],
        &[r#"{"a":1}"#, "[1]"],
    );
}

#[test]
fn more_alternatives_than_are_written_out_are_judged() {
    let one = |name: &str| json!({"properties": {name: {"type": "null"}}, "required": [name]});
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    check(
        json!({"type": "object", "unevaluatedProperties": false, "anyOf": names.map(one)}),
        &[r#"{"a":null}"#, r#"{"a":null,"g":null}"#],
        &[r#"{"a":null,"g":1}"#, r#"{"a":null,"h":null}"#],
    );
}

#[test]
fn what_is_evaluated_under_a_guard_is_judged() {
    check(
        json!({"type": "object", "unevaluatedProperties": false, "patternProperties": {"^(x|y)\\1$": true}}),
        &[r#"{"xx":1}"#],
        &[r#"{"xy":1}"#],
    );
}

#[test]
fn sets_that_multiply_are_left_to_a_guard() {
    let alternatives = |depth: usize, count: usize| {
        (0..depth).fold(
            json!({"properties": {"z": {"type": "integer"}}}),
            |inner, level| {
                let others = (1..count)
                    .map(|i| json!({"properties": {format!("p{level}_{i}"): {"type": "integer"}}}));
                json!({"anyOf": std::iter::once(inner).chain(others).collect::<Vec<_>>()})
            },
        )
    };
    for (depth, count) in [(6, 5), (22, 2)] {
        check(
            json!({"type": "object", "allOf": [alternatives(depth, count)], "unevaluatedProperties": false}),
            &["{}", r#"{"z":1}"#, r#"{"p0_1":1,"p1_1":2}"#],
            &[r#"{"y":1}"#],
        );
    }
    let closed: Vec<Value> = (0..4)
        .map(|i| {
            let each =
                (0..5).map(|j| json!({"properties": {format!("p{i}_{j}"): {"type": "string"}}}));
            json!({"anyOf": each.collect::<Vec<_>>(), "unevaluatedProperties": {"type": "string"}})
        })
        .collect();
    check(
        json!({"type": "object", "allOf": closed}),
        &[r#"{"p0_0":"x","y":"z"}"#],
        &[r#"{"y":1}"#],
    );
}
