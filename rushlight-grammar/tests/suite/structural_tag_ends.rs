//! Structural tags: where one part of a text ends and the next begins, and what is refused because that cannot be told.

use crate::structural_tag::{check, refusal, source, tag};
use crate::vocab::compile;
use rushlight_grammar::GrammarErrorKind;
use serde_json::{Value, json};

fn schema(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": schema})
}

fn integer() -> Value {
    schema(json!({"type": "integer"}))
}

fn regex(pattern: &str) -> Value {
    json!({"type": "regex", "pattern": pattern})
}

fn text(value: &str) -> Value {
    json!({"type": "const_string", "value": value})
}

fn any() -> Value {
    json!({"type": "any_text"})
}

fn sequence(elements: &[Value]) -> Value {
    json!({"type": "sequence", "elements": elements})
}

fn or(elements: &[Value]) -> Value {
    json!({"type": "or", "elements": elements})
}

fn list() -> Value {
    schema(json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true}))
}

fn triggered(trigger: &str, content: Value) -> Value {
    json!({"type": "triggered_tags", "triggers": [trigger],
        "tags": [tag(&format!("{trigger}f>"), content, "</f>")]})
}

/// The byte that ends a number or a pattern may be a stop of the free text after it.
#[test]
fn a_stop_of_one_byte_may_come_at_once() {
    for number in [
        integer(),
        regex("[0-9]+"),
        or(&[text(";"), regex("[0-9]+")]),
    ] {
        check(
            sequence(&[number.clone(), triggered("<", integer())]),
            &["1", "1<f>5</f>", "1 <f>5</f> a<f>6</f>", "12 a"],
            &[
                "1<",
                "1<a",
                "1<anything<f>5</f>",
                "1<f>x</f>",
                "1<<f>5</f>",
                "1 <a",
            ],
        );
        check(
            sequence(&[number.clone(), triggered("<", list())]),
            &["1<f>[1]</f>", "1 <f>[1,2]</f><f>[]</f>"],
            &["1<a", "1<f>[1,1]</f>", "1<f>[1]</f><f>[2,2]</f>"],
        );
        check(
            sequence(&[number, tag("", any(), "]")]),
            &["1]", "1i]", "12 a]"],
            &["1]i]", "1]]", "1i]]", "1"],
        );
    }
    let mut several = tag("", any(), "");
    several["end"] = json!(["]", ">>", ">", "]a"]);
    check(
        sequence(&[integer(), several, text("Z")]),
        &["1]Z", "1>Z", "1a>Z", "1a]Z"],
        &["1>>Z", "1]aZ", "1>a]Z", "1]a>Z", "1a>>Z"],
    );
    // An end of the tags' free text, a trigger in it, both of one byte.
    check(
        sequence(&[integer(), tag("", triggered("<", integer()), "]")]),
        &["1]", "1<f>2</f>]", "1<f>2</f>a<f>3</f>b]"],
        &["1]]", "1]<f>2</f>]", "1<a]", "1<f>2</f>]a]"],
    );
    check(
        sequence(&[
            integer(),
            tag("", json!({"type": "any_text", "excludes": ["no"]}), "]"),
        ]),
        &["1]", "1a]"],
        &["1no]", "1a no]", "1]]"],
    );
}

#[test]
fn a_guarded_value_may_follow_a_number_at_once() {
    let object = || schema(json!({"type": "object"}));
    check(
        sequence(&[integer(), object()]),
        &["1{}", "12{\"a\":1,\"b\":2}"],
        &["1", "{}", "1{\"a\":1,\"a\":2}", "1{}{}"],
    );
    check(
        sequence(&[integer(), or(&[text("x"), list()]), text("!")]),
        &["1x!", "2[3,4]!"],
        &["2[3,3]!", "1!", "1[1]x!"],
    );
    // The next number is no part of this one.
    let halves = || schema(json!({"enum": [1.5, 7]}));
    check(
        sequence(&[halves(), halves(), list()]),
        &["1.507[1,2]", "77[]", "1.51.50[1]"],
        &["1.507[1,1]", "1.5[1]", "1.5077[]"],
    );
}

#[test]
fn a_value_begins_with_all_that_its_schema_takes() {
    let within = |value: Value| sequence(&[text("A"), schema(value), text("B")]);
    let list = json!({"type": "array", "uniqueItems": true});
    let with = |more: Value| {
        let mut schema = list.clone();
        for (key, value) in more.as_object().unwrap() {
            schema[key] = value.clone();
        }
        within(schema)
    };
    check(
        with(json!({"nullable": true})),
        &["A[1]B", "AnullB"],
        &["A[1,1]B"],
    );
    check(
        with(json!({"nullable": true, "enum": [[1, 1], [1, 2], null]})),
        &["A[1,2]B", "AnullB"],
        &["A[1,1]B"],
    );
    check(
        with(json!({"nullable": true, "enum": [[1, 1], [1, 2]]})),
        &["A[1,2]B"],
        &["A[1,1]B", "AnullB"],
    );
    // A percent-encoded pointer, and one through a resource of its own.
    check(
        within(
            json!({"$ref": "#/$defs/a%62", "$defs": {"a%62": {"type": "string"}, "ab": list.clone()}}),
        ),
        &["A[1]B"],
        &["A[1,1]B", "A\"x\"B"],
    );
    check(
        within(
            json!({"$ref": "#/$defs/x/$defs/y", "$defs": {"z": {"type": "string"},
            "x": {"$id": "http://e/x", "$defs": {"y": {"$ref": "#/$defs/z"}, "z": list.clone()}}}}),
        ),
        &["A[1]B"],
        &["A[1,1]B", "A\"x\"B"],
    );
    // A definition of this name is no base.
    check(
        within(
            json!({"$ref": "#/$defs/id", "$defs": {"id": list.clone(), "n": {"$ref": "#/$defs/id"}}}),
        ),
        &["A[1]B"],
        &["A[1,1]B"],
    );
}

#[test]
fn a_regular_grammar_ends_where_its_text_does() {
    let grammar = |text: &str| json!({"type": "grammar", "grammar": text});
    check(
        tag("<note>", grammar("root ::= [^\\n]+"), "</note>"),
        &["<note>hi</note>", "<note></note></note>"],
        &["<note></note>", "<note>hi", "<note>h\ni</note>"],
    );
    check(
        tag(
            "<",
            grammar("root ::= digit digits\ndigits ::= digit digits | \"\"\ndigit ::= [0-9]"),
            "1",
        ),
        &["<21", "<1211"],
        &["<1", "<12"],
    );
    let digits = || grammar("root ::= [0-9]+");
    check(
        sequence(&[digits(), digits()]),
        &["12", "1234"],
        &["1", "12a"],
    );
    check(
        sequence(&[
            grammar("root ::= \"a.b\" ([x-z] | \"]\"){2} | \"\""),
            text("x"),
        ]),
        &["x", "a.byyx", "a.bx]x"],
        &["a.byx", "aabyyx"],
    );
    let e = refusal(&sequence(&[digits(), integer()]));
    assert!(
        e.contains("at '/format/elements/0/grammar': the pattern could go on"),
        "{e}"
    );
}

#[test]
fn numbers_that_swallow_what_follows_are_refused() {
    let grammar = |rule: &str| json!({"type": "grammar", "grammar": format!("root ::= {rule} | \"(\" root \")\"")});
    let number = || schema(json!({"type": "number"}));
    for format in [
        sequence(&[schema(json!({"enum": [1.5]})), text("0x")]),
        sequence(&[schema(json!({"enum": [1000.0]})), text(".")]),
        // A guard of what comes later would take the number's beginning for all of it.
        sequence(&[schema(json!({"enum": [1000]})), text("0"), list()]),
        sequence(&[schema(json!({"enum": [0.5, 0.5001]})), text("1")]),
        sequence(&[number(), any()]),
        sequence(&[number(), triggered("<", integer())]),
        sequence(&[number(), tag("", any(), "]")]),
        sequence(&[schema(json!({"enum": [1, 123]})), any()]),
        sequence(&[
            schema(json!({"type": "integer", "multipleOf": 5})),
            tag("", any(), "]"),
        ]),
        sequence(&[integer(), grammar("\"12\"")]),
        sequence(&[number(), grammar("\".x\"")]),
    ] {
        let e = refusal(&format);
        assert!(
            e.contains("/elements/0/json_schema': a number could go on"),
            "{format}: {e}"
        );
    }
    let e = refusal(&sequence(&[regex("[a-z]+"), grammar("\"abc\"")]));
    assert!(
        e.contains("at '/format/elements/0/pattern': the pattern could go on"),
        "{e}"
    );
    check(
        sequence(&[schema(json!({"enum": [-0.0, 7]})), text("x")]),
        &["0x", "7x"],
        &["1x"],
    );
    check(
        sequence(&[
            schema(json!({"type": "integer", "minimum": 5, "maximum": 120})),
            tag("", any(), "]"),
        ]),
        &["7]", "7a]", "120a]", "77]"],
        &["4]", "a]"],
    );
    check(
        sequence(&[schema(json!({"enum": [1, 2]})), any()]),
        &["12x", "1", "2."],
        &["3"],
    );
}

#[test]
fn many_patterns_are_joined_flat() {
    let mut elements = vec![regex("a?"); 90];
    elements.push(text("ab"));
    check(
        sequence(&elements),
        &["ab", "aab", &format!("{}b", "a".repeat(91))],
        &["b", &format!("{}b", "a".repeat(92))],
    );
    let nested = (0..40).fold(text("b"), |inner, _| {
        or(&[
            text("c"),
            sequence(&[regex("a?"), sequence(&[text("a"), inner])]),
        ])
    });
    check(nested, &["c", "ac", "aac", "aaac"], &["a", "b", "acb"]);
    // Nested as deep as may be; what is too deep is refused, joined or not.
    let mut outcomes = [0, 0];
    for depth in 75..90 {
        let deep = (0..depth).fold("a+".to_owned(), |inner, _| format!("(?:{inner}a)?"));
        for next in ["a", "b"] {
            match compile(&source(sequence(&[regex(&deep), text(next)]))) {
                Ok(_) => outcomes[0] += 1,
                Err(e) => {
                    assert_eq!(e.first().kind(), GrammarErrorKind::Limit, "{depth}: {e}");
                    let place = "'/format/elements/0/pattern'";
                    assert!(e.to_string().contains(place), "{depth}: {e}");
                    outcomes[1] += 1;
                }
            }
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

/// The work of looking for ends is one for the whole document.
#[test]
fn the_check_of_ends_has_one_limit() {
    let pattern = "([ab]{0,9}a[ab]{9}c)*[ab]?";
    let elements: Vec<Value> = (0..400)
        .flat_map(|n| [regex(&format!("{pattern}{n}")), any_of_two()])
        .collect();
    let started = std::time::Instant::now();
    let e = compile(&source(sequence(&elements))).unwrap_err();
    assert!(started.elapsed().as_secs() < 60);
    assert_eq!(e.first().kind(), GrammarErrorKind::Limit, "{e}");
    assert!(e.to_string().contains("/pattern': "), "{e}");
}

fn any_of_two() -> Value {
    schema(json!({"type": ["boolean", "null"]}))
}

/// Ways that begin alike hide texts of each other, and let no other text through.
#[test]
fn ways_that_begin_alike_take_no_other_text() {
    let string = schema(json!({"type": "string"}));
    check(
        or(&[tag("<", any(), ">"), tag("<", string, "]")]),
        &["<a>", "<\"x\">"],
        &["<\"x\"]", "<a]", "<a"],
    );
    // A thought that need not be there, before tags whose trigger begins it.
    let think = tag("<think>", any(), "</think>");
    check(
        sequence(&[or(&[text(""), think]), triggered("<", integer())]),
        &[
            "<think>a</think>b<f>1</f>",
            "<think></think><f>1</f>",
            "<f>1</f>",
            "a<f>1</f>",
        ],
        &["<think>", "<a", "a<think></think>", "<think></think><a"],
    );
}
