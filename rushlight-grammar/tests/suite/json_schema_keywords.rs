//! The table of keywords in `docs/json-schema.md`: each row is a case that is compiled and walked here.
//!
//! Run with `RUSHLIGHT_WRITE_DOCS=1` to rewrite the file after a change.
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::vocab::toy;
use rushlight_engine::constrain::{Accepted, MaskStatus};
use rushlight_grammar::json_schema::{How, SchemaOptions, compile_schema};
use rushlight_grammar::{CancelToken, Compiler, GrammarSource, Limits, Vocabulary};
use serde_json::Value;

/// A keyword, the keyword under which it is explained (where another reads it), a schema, a text that it accepts and one
/// that it rejects. Without texts the schema is refused; without a rejected text the keyword asserts nothing.
struct Row {
    keyword: &'static str,
    explained: &'static str,
    schema: &'static str,
    yes: &'static str,
    no: &'static str,
}

const fn row(
    keyword: &'static str,
    schema: &'static str,
    yes: &'static str,
    no: &'static str,
) -> Row {
    Row {
        keyword,
        explained: keyword,
        schema,
        yes,
        no,
    }
}

const fn read_by(
    keyword: &'static str,
    explained: &'static str,
    schema: &'static str,
    yes: &'static str,
    no: &'static str,
) -> Row {
    Row {
        keyword,
        explained,
        schema,
        yes,
        no,
    }
}

const DRAFT4: &str = r#"{"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":1,"exclusiveMinimum":true}"#;
const ROWS: &[Row] = &[
    row("type", r#"{"type":["integer","null"]}"#, "7", "7.5"),
    row(
        "enum",
        r#"{"enum":[1,"a",{"k":[null]}]}"#,
        r#"{"k":[null]}"#,
        r#"{"k":[]}"#,
    ),
    row("const", r#"{"const":"a"}"#, r#""a""#, r#""b""#),
    read_by(
        "nullable",
        "type",
        r#"{"type":"string","nullable":true}"#,
        "null",
        "1",
    ),
    row(
        "minimum",
        r#"{"type":"number","minimum":-2.5}"#,
        "-2.5",
        "-2.51",
    ),
    row("maximum", r#"{"type":"integer","maximum":12}"#, "12", "13"),
    row(
        "exclusiveMinimum",
        r#"{"type":"number","exclusiveMinimum":0}"#,
        "0.1",
        "0",
    ),
    read_by("exclusiveMinimum (draft-04)", "minimum", DRAFT4, "2", "1"),
    row(
        "exclusiveMaximum",
        r#"{"type":"integer","exclusiveMaximum":5}"#,
        "4",
        "5",
    ),
    row(
        "multipleOf",
        r#"{"type":"number","multipleOf":0.5}"#,
        "1.5",
        "1.3",
    ),
    row(
        "minLength",
        r#"{"type":"string","minLength":2}"#,
        r#""éé""#,
        r#""é""#,
    ),
    row(
        "maxLength",
        r#"{"type":"string","maxLength":2}"#,
        r#""éé""#,
        r#""abc""#,
    ),
    row(
        "pattern",
        r#"{"type":"string","pattern":"^(?!x)[a-z]+$"}"#,
        r#""ax""#,
        r#""xa""#,
    ),
    row(
        "pattern",
        r#"{"type":"string","pattern":"^(a|b)\\1$"}"#,
        r#""aa""#,
        r#""ab""#,
    ),
    row(
        "format",
        r#"{"type":"string","format":"date"}"#,
        r#""2024-02-29""#,
        r#""2023-02-29""#,
    ),
    row(
        "format",
        r#"{"type":"string","format":"regex"}"#,
        r#""a+""#,
        r#""a(""#,
    ),
    row(
        "format",
        r#"{"type":"string","format":"shoe-size"}"#,
        r#""any""#,
        "",
    ),
    row(
        "items",
        r#"{"type":"array","items":{"type":"null"}}"#,
        "[null]",
        "[1]",
    ),
    row(
        "prefixItems",
        r#"{"type":"array","prefixItems":[{"type":"null"}]}"#,
        "[null,1]",
        "[1]",
    ),
    read_by(
        "additionalItems",
        "items",
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"null"}],"additionalItems":false}"#,
        "[null]",
        "[null,1]",
    ),
    row("minItems", r#"{"type":"array","minItems":1}"#, "[1]", "[]"),
    row(
        "maxItems",
        r#"{"type":"array","maxItems":1}"#,
        "[1]",
        "[1,2]",
    ),
    row(
        "uniqueItems",
        r#"{"type":"array","uniqueItems":true}"#,
        "[1,2]",
        "[1,1.0]",
    ),
    row(
        "contains",
        r#"{"type":"array","contains":{"const":1}}"#,
        "[2,1]",
        "[2]",
    ),
    read_by(
        "minContains",
        "contains",
        r#"{"type":"array","contains":{"const":1},"minContains":2}"#,
        "[1,1]",
        "[1]",
    ),
    read_by(
        "maxContains",
        "contains",
        r#"{"type":"array","contains":{"const":1},"maxContains":1}"#,
        "[1]",
        "[1,1]",
    ),
    row(
        "unevaluatedItems",
        r#"{"type":"array","prefixItems":[{"type":"null"}],"unevaluatedItems":false}"#,
        "[null]",
        "[null,1]",
    ),
    row(
        "properties",
        r#"{"type":"object","properties":{"a":{"type":"null"}}}"#,
        r#"{"a":null}"#,
        r#"{"a":1}"#,
    ),
    row(
        "patternProperties",
        r#"{"type":"object","patternProperties":{"^x":{"type":"null"}}}"#,
        r#"{"x1":null}"#,
        r#"{"x1":1}"#,
    ),
    row(
        "additionalProperties",
        r#"{"type":"object","properties":{"a":{}},"additionalProperties":false}"#,
        r#"{"a":1}"#,
        r#"{"b":1}"#,
    ),
    row(
        "required",
        r#"{"type":"object","properties":{"a":{},"b":{}},"required":["b"]}"#,
        r#"{"b":1}"#,
        r#"{"a":1}"#,
    ),
    row(
        "minProperties",
        r#"{"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,"minProperties":1}"#,
        r#"{"b":1}"#,
        "{}",
    ),
    row(
        "maxProperties",
        r#"{"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,"maxProperties":1}"#,
        r#"{"b":1}"#,
        r#"{"a":1,"b":1}"#,
    ),
    row(
        "propertyNames",
        r#"{"type":"object","propertyNames":{"pattern":"^[a-z]+$"}}"#,
        r#"{"ab":1}"#,
        r#"{"A":1}"#,
    ),
    row(
        "dependentRequired",
        r#"{"type":"object","properties":{"a":{},"b":{}},"dependentRequired":{"a":["b"]}}"#,
        r#"{"a":1,"b":1}"#,
        r#"{"a":1}"#,
    ),
    row(
        "dependentSchemas",
        r#"{"type":"object","properties":{"a":{},"b":{}},"dependentSchemas":{"a":{"required":["b"]}}}"#,
        r#"{"b":1}"#,
        r#"{"a":1}"#,
    ),
    row(
        "dependencies",
        r#"{"type":"object","properties":{"a":{},"b":{}},"dependencies":{"a":["b"]}}"#,
        r#"{"b":1}"#,
        r#"{"a":1}"#,
    ),
    row(
        "unevaluatedProperties",
        r#"{"type":"object","allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}"#,
        r#"{"a":1}"#,
        r#"{"b":1}"#,
    ),
    row(
        "allOf",
        r#"{"allOf":[{"type":"integer"},{"minimum":3}]}"#,
        "3",
        "2",
    ),
    row(
        "anyOf",
        r#"{"anyOf":[{"type":"null"},{"const":1}]}"#,
        "1",
        "2",
    ),
    row(
        "oneOf",
        r#"{"oneOf":[{"type":"null"},{"type":"integer"}]}"#,
        "1",
        r#""a""#,
    ),
    row(
        "oneOf",
        r#"{"oneOf":[{"type":"integer"},{"minimum":2}]}"#,
        "1",
        "3",
    ),
    row(
        "not",
        r#"{"type":"string","not":{"enum":["a"]}}"#,
        r#""b""#,
        r#""a""#,
    ),
    row(
        "not",
        r#"{"type":"array","not":{"uniqueItems":true}}"#,
        "[1,1]",
        "[1,2]",
    ),
    row(
        "if",
        r#"{"type":"integer","if":{"minimum":10},"then":{"multipleOf":10}}"#,
        "20",
        "21",
    ),
    read_by(
        "then",
        "if",
        r#"{"type":"integer","if":{"minimum":10},"then":{"multipleOf":10}}"#,
        "7",
        "11",
    ),
    read_by(
        "else",
        "if",
        r#"{"type":"integer","if":{"minimum":10},"else":{"const":1}}"#,
        "1",
        "2",
    ),
    row(
        "$ref",
        r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"null"}}}"##,
        "null",
        "1",
    ),
    row("$ref", r##"{"$ref":"#/$defs/missing"}"##, "", ""),
    row("$ref", r##"{"$ref":"#"}"##, "", ""),
    row(
        "$dynamicRef",
        r##"{"$dynamicRef":"#a","$defs":{"x":{"$dynamicAnchor":"a","type":"null"}}}"##,
        "null",
        "1",
    ),
    row("title", r#"{"type":"null","title":"A"}"#, "null", ""),
    row(
        "description",
        r#"{"type":"null","description":"A"}"#,
        "null",
        "",
    ),
    row("default", r#"{"type":"null","default":1}"#, "null", ""),
    row("examples", r#"{"type":"null","examples":[1]}"#, "null", ""),
    row(
        "contentEncoding",
        r#"{"type":"string","contentEncoding":"base64"}"#,
        r#""?""#,
        "",
    ),
    row("readOnly", r#"{"type":"null","readOnly":true}"#, "null", ""),
];

/// Whether `text` passes, byte by byte, masks and guards.
fn accepts(vocabulary: &Arc<Vocabulary>, schema: &Value, text: &str) -> bool {
    let compiler = Compiler::new(
        vocabulary.clone(),
        Limits::default(),
        SchemaOptions::default(),
    );
    let grammar = compiler
        .compile(
            &GrammarSource::JsonSchema(schema.clone()),
            &CancelToken::new(),
        )
        .unwrap();
    let mut matcher = grammar.matcher();
    let mut mask = vec![0u32; vocabulary.logits().div_ceil(32)];
    for byte in text.bytes() {
        let status = matcher.mask(&mut mask).unwrap();
        let set = mask[usize::from(byte) / 32] >> (byte % 32) & 1 == 1;
        if status != MaskStatus::Constrained || !set {
            return false;
        }
        if matcher.accept(u32::from(byte)).unwrap() != Accepted::Taken {
            return false;
        }
    }
    matcher.may_end().unwrap()
}

/// How the keyword is enforced, with and without guards.
fn how(row: &Row, schema: &Value) -> (String, String) {
    let explained = |guards: bool| {
        let mut options = SchemaOptions::default();
        options.guards = guards;
        match compile_schema(schema, &options) {
            Err(report) => format!("refused: {}", report.first().message()),
            Ok(compiled) => {
                let notes = compiled
                    .explained
                    .iter()
                    .filter(|e| e.keyword == row.explained);
                let how = notes.map(|e| e.how).max().unwrap_or(How::Annotation);
                how.to_string()
            }
        }
    };
    (explained(true), explained(false))
}

#[test]
fn the_table_of_keywords_is_what_happens() {
    let vocabulary = toy();
    let mut table = String::new();
    for row in ROWS {
        let schema: Value = serde_json::from_str(row.schema).unwrap();
        let (with, without) = how(row, &schema);
        if !row.yes.is_empty() {
            assert!(
                accepts(&vocabulary, &schema, row.yes),
                "{} should accept {}",
                row.schema,
                row.yes
            );
        } else {
            assert!(
                with.starts_with("refused"),
                "{} should be refused",
                row.schema
            );
        }
        if !row.no.is_empty() {
            assert!(
                !accepts(&vocabulary, &schema, row.no),
                "{} should reject {}",
                row.schema,
                row.no
            );
        }
        assert_eq!(
            row.no.is_empty(),
            with == "annotation" || with.starts_with("refused"),
            "{}: {with}",
            row.schema
        );
        let code = |text: &str| match text {
            "" => String::new(),
            text => format!("`{}`", text.replace('|', "\\|")),
        };
        let without = if without == with {
            "the same".to_owned()
        } else {
            without.replace('|', "\\|")
        };
        writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} |",
            code(row.keyword),
            with.replace('|', "\\|"),
            without,
            code(row.schema),
            code(row.yes),
            code(row.no)
        )
        .unwrap();
    }
    let text = format!("{HEAD}{table}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json-schema.md");
    if std::env::var_os("RUSHLIGHT_WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == text,
        "{} is out of date: run this test with RUSHLIGHT_WRITE_DOCS=1",
        path.display()
    );
}

const HEAD: &str = "\
# JSON Schema: how each keyword is enforced

This table is written by `rushlight-grammar/tests/suite/json_schema_keywords.rs`: each row is a schema that is compiled, and texts
that are walked through it.

- *grammar*: every mask enforces it, as it is written.
- *rewriting*: every mask enforces it, after an equivalent rewriting.
- *guard*: a validator judges each value as it closes; a token that would close it wrongly is refused and another drawn.
- *annotation*: it asserts nothing, as the specification says.
- *refused*: the schema does not compile; nothing is dropped.

Undeclared members are kept distinct by a guard wherever they are allowed; with guards off, a schema that counts them is
refused. Members come in the order in which they are declared, undeclared ones last, and no white space stands between tokens.
`nullable` adds `null` to the `type` beside it and to nothing else: an `enum` lists it itself.

What is valid but never written: numbers of more than 19 digits before the point, 17 after it or 3 in the exponent, unless a
`const` or `enum` names them with no other keyword about numbers beside it; exponents and `-0` beside `multipleOf`, `const`, `enum`, `not` and bounds other than a lower one
of 0; `1.0` where the type is `integer`; of the multiples of a step with decimals, some with fewer decimals than the step has
(`0.5` for 0.25). Where a guard judges a value, numbers in it that a 64-bit integer or float does not hold as they are written, and where the
schema has a `multipleOf`, those of more than 15 digits. Strings and names with an escape that they can do without (`\\u0061`,
`\\/`), and in strings U+007F without one. Of some formats a part of the texts: no date of the year 0000, no leap second but at offset zero, no quoted local part
in `email`, no host name with `xn--` or of many long labels, none beyond ASCII in `idn-hostname`. Their complements hold no
text that may be of the format. A schema that leaves nothing but what is never written is refused.

| keyword | enforced by | with guards off | schema | accepts | rejects |
|---|---|---|---|---|---|
";
