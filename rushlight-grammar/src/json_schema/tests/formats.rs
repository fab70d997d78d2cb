//! Formats whose language is written in part only, under complements and in proofs.

use super::*;

#[test]
fn a_complement_holds_no_text_of_the_format() {
    let long = ["a"; 8].map(|a| a.repeat(25)).join(".");
    check_unguarded(
        json!({"type": "string", "not": {"format": "hostname"}}),
        &["\"a b\"", "\"-a\"", "\"\""],
        &["\"a\"", "\"xn--4gbwdl.xn--wgbh1c\"", &format!("\"{long}\"")],
    );
    check_unguarded(
        json!({"type": "string", "not": {"format": "date"}}),
        &["\"2023-02-29\"", "\"x\""],
        &["\"2024-02-29\"", "\"0000-01-01\""],
    );
    check_unguarded(
        json!({"type": "string", "not": {"not": {"format": "email"}}}),
        &["\"a@b.c\""],
        &[r#""\"a b\"@b.c""#, "\"a\""],
    );
    check(
        json!({"type": "string", "if": {"format": "email"}, "then": {"maxLength": 5}}),
        &["\"a@b.c\"", "\"abcdef\""],
        &["\"aa@b.c\"", r#""\"a b\"@b.c""#],
    );
}

#[test]
fn alternatives_are_disjoint_only_if_the_whole_formats_are() {
    check(
        json!({"type": "string", "oneOf": [{"format": "idn-hostname"}, {"maxLength": 3}]}),
        &["\"a b\"", "\"example.de\""],
        &["\"é\"", "\"abc\"", "\"a b c\""],
    );
    check(
        json!({"type": "object", "oneOf": [
            {"propertyNames": {"format": "hostname"}},
            {"required": ["xn--4gbwdl"]},
        ]}),
        &["{}", r#"{"a":1}"#],
        &[r#"{"xn--4gbwdl":1}"#],
    );
}

#[test]
fn where_a_complement_leaves_nothing_its_format_is_named() {
    let schema =
        json!({"type": "string", "not": {"format": "idn-hostname"}, "pattern": "^[一-鿿]{2}$"});
    let report = compile_schema(&schema, &SchemaOptions::default()).unwrap_err();
    assert_eq!(report.first().kind(), GrammarErrorKind::Unsupported);
    assert!(
        report.to_string().contains("'/not', keyword 'format'"),
        "{report}"
    );
}

#[test]
fn a_guard_leaves_out_what_it_cannot_tell() {
    check(
        json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}, "not": {"contains": {"format": "hostname"}}}),
        &["[\"a b\"]"],
        &["[\"a\"]", "[\"a b\",\"xn--4gbwdl\"]", "[\"a b\",\"a b\"]"],
    );
}
