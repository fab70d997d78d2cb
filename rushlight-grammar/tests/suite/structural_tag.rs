//! Structural tags: each format's texts, and every refusal with its pointer.

use crate::vocab::{TOOL, accepts, compile, has, mask_of, matcher, set};
use rushlight_engine::constrain::{Accepted, Constraint, MaskStatus};
use rushlight_grammar::{AfterMarker, GrammarErrorKind, GrammarSource};
use serde_json::{Value, json};

pub(crate) fn tag(begin: &str, content: Value, end: &str) -> Value {
    json!({"type": "tag", "begin": begin, "content": content, "end": end})
}

fn integer() -> Value {
    json!({"type": "json_schema", "json_schema": {"type": "integer"}})
}

pub(crate) fn source(format: Value) -> GrammarSource {
    GrammarSource::StructuralTag(json!({"type": "structural_tag", "format": format}))
}

pub(crate) fn check(format: Value, yes: &[&str], no: &[&str]) {
    let grammar = compile(&source(format.clone())).unwrap_or_else(|e| panic!("{format}: {e}"));
    for text in yes {
        assert!(accepts(&grammar, text), "{format}\n  accepts {text:?}");
    }
    for text in no {
        assert!(!accepts(&grammar, text), "{format}\n  refuses {text:?}");
    }
}

pub(crate) fn refusal(format: &Value) -> String {
    match compile(&source(format.clone())) {
        Ok(_) => panic!("{format} compiles"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn plain_formats() {
    check(
        json!({"type": "const_string", "value": "hi"}),
        &["hi"],
        &["", "hi!"],
    );
    check(integer(), &["12"], &["a", "\"1\""]);
    check(
        json!({"type": "regex", "pattern": "[ab]+"}),
        &["ab"],
        &["", "c"],
    );
    check(
        tag(
            "<a>",
            json!({"type": "regex", "pattern": "([ab]+)?"}),
            "</a>",
        ),
        &["<a></a>", "<a>ab</a>"],
        &["<a>c</a>"],
    );
    check(
        json!({"type": "grammar", "grammar": "root ::= \"(\" root \")\" | \"x\""}),
        &["((x))"],
        &["(x"],
    );
    check(json!({"type": "any_text"}), &["", "anything\né"], &[]);
    check(
        json!({"type": "any_text", "excludes": ["no"]}),
        &["", "yes n o"],
        &["a no b"],
    );
    check(
        json!({"type": "sequence", "elements": [{"type": "const_string", "value": "n="}, integer()]}),
        &["n=5", "n=-3"],
        &["5", "n="],
    );
    check(
        json!({"type": "or", "elements": [{"type": "const_string", "value": "none"}, integer()]}),
        &["none", "7"],
        &["none7", ""],
    );
}

#[test]
fn tags_hold_their_content() {
    check(
        tag("<n>", integer(), "</n>"),
        &["<n>1</n>"],
        &["<n></n>", "1", "<n>1"],
    );
    check(
        tag("<t>", json!({"type": "any_text"}), "</t>"),
        &["<t>a < b</t>", "<t></t>"],
        &["<t>a</t>b", "<t>a"],
    );
    let mut several = tag("<t>", json!({"type": "any_text"}), "");
    several["end"] = json!(["</t>", "<eot>"]);
    check(several, &["<t>a</t>", "<t>a<eot>"], &["<t>a<eot></t>"]);
    let mut several = tag("<t>", integer(), "");
    several["end"] = json!([";", "."]);
    check(several, &["<t>1;", "<t>1."], &["<t>1", "<t>1,"]);
}

#[test]
fn triggers_switch_from_free_text_to_tags() {
    let tags = json!([
        tag("<f=a>", integer(), "</f>"),
        tag(
            "<f=b>",
            json!({"type": "const_string", "value": "x"}),
            "</f>"
        )
    ]);
    let with = |more: Value| {
        let mut format = json!({"type": "triggered_tags", "triggers": ["<f="], "tags": tags});
        for (key, value) in more.as_object().unwrap() {
            format[key] = value.clone();
        }
        format
    };
    let one = "<f=a>1</f>";
    let two = "say <f=a>1</f> and <f=b>x</f>!";
    check(
        with(json!({})),
        &["", "text", one, two, "<f a>"],
        &["<f=", "<f=c>1</f>", "<f=a>x</f>", "a <f=a>1"],
    );
    check(
        with(json!({"stop_after_first": true})),
        &["", "text", one, "go <f=b>x</f>"],
        &[two, "<f=a>1</f> "],
    );
    check(
        with(json!({"at_least_one": true})),
        &[one, "<f=a>1</f> and <f=b>x</f>!"],
        &["", "text", two],
    );
    check(
        with(json!({"at_least_one": true, "stop_after_first": true})),
        &[one, "<f=b>x</f>"],
        &["", two, "<f=a>1</f> "],
    );
    check(
        with(json!({"excludes": ["bad"]})),
        &["ok <f=a>1</f> ok"],
        &["bad", "bad <f=a>1</f>", "<f=a>1</f> bad"],
    );
    let old = GrammarSource::StructuralTag(json!({
        "structures": [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}],
        "triggers": ["<f="],
    }));
    let grammar = compile(&old).unwrap();
    assert!(accepts(&grammar, "t <f=a>1</f>") && !accepts(&grammar, "<f=b>x</f>"));
}

#[test]
fn separated_tags() {
    let tags = json!([tag("<a>", integer(), "</a>"), tag("<b>", integer(), "</b>")]);
    let format = |one: bool, stop: bool| json!({"type": "tags_with_separator", "tags": tags, "separator": ",", "at_least_one": one, "stop_after_first": stop});
    check(
        format(false, false),
        &["", "<a>1</a>", "<a>1</a>,<b>2</b>,<a>3</a>"],
        &[",", "<a>1</a>,", "<a>1</a><b>2</b>", "x"],
    );
    check(
        format(true, false),
        &["<a>1</a>", "<b>1</b>,<b>2</b>"],
        &[""],
    );
    check(
        format(false, true),
        &["", "<a>1</a>"],
        &["<a>1</a>,<b>2</b>"],
    );
}

#[test]
fn composition() {
    // Thinking, then a schema.
    check(
        json!({"type": "sequence", "elements": [tag("<think>", json!({"type": "any_text"}), "</think>"), integer()]}),
        &["<think>hm</think>4"],
        &["4", "<think>hm</think>", "<think>hm</think>4<"],
    );
    // Tools or a schema.
    check(
        json!({"type": "or", "elements": [
            {"type": "json_schema", "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}},
            {"type": "tags_with_separator", "tags": [tag("<call>", integer(), "</call>")], "separator": "\n", "at_least_one": true},
        ]}),
        &[r#"{"a":1}"#, "<call>1</call>\n<call>2</call>"],
        &["", r#"{"a":1}<call>1</call>"#],
    );
    // Free text in a tag, with tags in it.
    check(
        tag(
            "<out>",
            json!({"type": "triggered_tags", "triggers": ["<n>"], "tags": [tag("<n>", integer(), "</n>")]}),
            "</out>",
        ),
        &["<out>a<n>1</n>b</out>", "<out></out>"],
        &["<out>a<n>x</n></out>", "<out>a", "<out></out>b"],
    );
}

#[test]
fn qwen_parameters() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where"},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "days": {"type": "integer"},
        },
        "required": ["city"],
    });
    for format in [
        json!({"type": "qwen_xml_parameter", "json_schema": schema}),
        json!({"type": "json_schema", "style": "qwen_xml", "json_schema": schema}),
    ] {
        check(
            format,
            &[
                "<parameter=city>Paris</parameter>",
                "\n<parameter=city>\nSão \"P\"\n</parameter>\n<parameter=unit>\nC\n</parameter>\n<parameter=days>\n3\n</parameter>\n",
            ],
            &[
                "",
                "<parameter=unit>C</parameter>",
                "<parameter=city>P</parameter><parameter=days>x</parameter>",
            ],
        );
    }
    let e = compile(&source(
        json!({"type": "qwen_xml_parameter", "json_schema": {
            "type": "object", "properties": {"a/b": {"type": "string", "pattern": "x"}},
        }}),
    ))
    .unwrap_err();
    assert_eq!(e.first().kind(), GrammarErrorKind::Unsupported);
    assert!(
        e.to_string()
            .contains("'/format/json_schema/properties/a~1b', keyword 'pattern'"),
        "{e}"
    );
}

#[test]
fn strings_of_qwen_parameters_keep_their_keywords() {
    let one = |schema: Value| {
        json!({"type": "qwen_xml_parameter", "json_schema": {
            "type": "object", "properties": {"a": schema}, "required": ["a"],
        }})
    };
    check(
        one(json!({"type": "string", "enum": ["x", "y", 1], "const": "y"})),
        &["<parameter=a>y</parameter>"],
        &["<parameter=a>x</parameter>"],
    );
    for (schema, says) in [
        (
            json!({"type": "string", "enum": ["x"], "const": "y"}),
            "keyword 'const': no string is among the values",
        ),
        (
            json!({"type": "string", "enum": "b"}),
            "keyword 'enum': must be a list",
        ),
        (
            json!({"type": "string", "const": 5}),
            "keyword 'const': no string is among the values",
        ),
        (
            json!({"type": "string", "enum": ["a", "</parameter>"]}),
            "keyword 'enum': \"</parameter>\" cannot be written",
        ),
    ] {
        let e = refusal(&one(schema));
        let place = "at '/format/json_schema/properties/a', ";
        assert!(e.contains(&format!("{place}{says}")), "{e}");
    }
}

/// A reference in a property means what it does in the whole schema, and so does its dialect.
#[test]
fn qwen_parameters_are_parts_of_their_schema() {
    let qwen = |schema: Value| json!({"type": "qwen_xml_parameter", "json_schema": schema});
    let checked = |schema: Value, yes: &[&str], no: &[&str]| {
        let written = |values: &[&str]| -> Vec<String> {
            let parameter = |value| format!("<parameter=n>{value}</parameter>");
            values.iter().map(parameter).collect()
        };
        let (yes, no) = (written(yes), written(no));
        let yes: Vec<&str> = yes.iter().map(String::as_str).collect();
        let no: Vec<&str> = no.iter().map(String::as_str).collect();
        check(qwen(schema), &yes, &no);
    };
    let closed = |key: Value, more: Value| json!({"type": "object", "properties": {"k": key, "z": more}, "additionalProperties": false});
    checked(
        json!({"type": "object", "required": ["n"], "properties": {
            "n": closed(json!({"$ref": "#/properties/z"}), json!({"type": "string"})), "z": {"type": "integer"}}}),
        &["{\"k\":1}", "{\"z\":\"s\"}"],
        &["{\"k\":\"s\"}", "{\"z\":1}"],
    );
    checked(
        json!({"type": "object", "required": ["n"], "additionalProperties": false, "properties": {
            "n": closed(json!({"$ref": "#"}), json!({"type": "string"}))}}),
        &["{\"k\":{\"n\":{}}}", "{}"],
        &["{\"k\":{\"k\":{}}}", "{\"k\":{}}", "{\"k\":1}"],
    );
    checked(
        json!({"type": "object", "required": ["n"], "$defs": {"q": {"type": "integer"}}, "properties": {
            "n": {"$ref": "#/$defs/q", "$defs": {"q": {"type": "string"}}}}}),
        &["1"],
        &["\"s\""],
    );
    checked(
        json!({"type": "object", "required": ["n"], "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"n": {"type": "integer", "const": 1, "minimum": 1, "exclusiveMinimum": true}}}),
        &["2", "7"],
        &["1"],
    );
    checked(
        json!({"type": "object", "required": ["n"], "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"n": {"type": "string", "const": "x"}}}),
        &["x", "y"],
        &[],
    );
    checked(
        json!({"type": "object", "required": ["n"], "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"n": {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "integer"}}}}),
        &["[1]"],
        &["[null]"],
    );
    for (property, place) in [
        (json!({"$ref": "#/$defs/no"}), ""),
        (json!({"type": "array", "items": {"type": "x"}}), "/items"),
        (json!(false), ""),
    ] {
        let schema = json!({"type": "object", "properties": {"n": property}});
        let e = refusal(&qwen(schema));
        let place = format!("at '/format/json_schema/properties/n{place}'");
        assert!(e.contains(&place), "{e}");
    }
}

#[test]
fn patterns_and_numbers_end_where_the_next_begins() {
    let regex = |pattern: &str| json!({"type": "regex", "pattern": pattern});
    let end = || json!({"type": "const_string", "value": "end"});
    check(
        json!({"type": "sequence", "elements": [regex("[a-z]+"), end()]}),
        &["xend", "endend"],
        &["end", "x"],
    );
    check(
        tag("<a>", regex(".*"), "</a>"),
        &["<a></a>", "<a>x</a></a>"],
        &["<a>x"],
    );
    check(
        json!({"type": "sequence", "elements": [regex("(ab)*"), regex("a?"), end(), integer()]}),
        &["ababaend1", "end2"],
        &["abaaend1"],
    );
    let mut tag_of_numbers = tag(
        "<a>",
        json!({"type": "json_schema", "json_schema": {"enum": [1, 2]}}),
        "0</a>",
    );
    check(tag_of_numbers.clone(), &["<a>10</a>"], &["<a>1</a>"]);
    tag_of_numbers["content"] = integer();
    let then_text = |pattern: &str| json!({"type": "triggered_tags", "triggers": ["<a>"], "tags": [tag("<a>", regex(pattern), "</a>")]});
    check(then_text("[^<]*"), &["x<a>b</a>c<a></a>"], &["<a>b"]);
    for (format, says) in [
        (
            tag_of_numbers,
            "at '/format/content/json_schema': a number could go on",
        ),
        (
            json!({"type": "sequence", "elements": [regex("[a-z]+"), {"type": "json_schema", "json_schema": {"type": "boolean"}}]}),
            "at '/format/elements/0/pattern': the pattern could go on",
        ),
        (
            then_text(".*"),
            "at '/format/tags/0/content/pattern': the pattern could go on",
        ),
    ] {
        let e = refusal(&format);
        assert!(e.contains(says), "{format}: {e}");
    }
}

#[test]
fn guards_reach_into_tags() {
    let list = json!({"type": "json_schema", "json_schema": {
        "type": "array", "items": {"type": "integer"}, "uniqueItems": true, "minItems": 2, "maxItems": 40,
    }});
    let grammar = compile(&source(json!({
        "type": "triggered_tags", "triggers": ["<l>"], "tags": [tag("<l>", list, "</l>")],
    })))
    .unwrap();
    assert!(
        !grammar.guards().is_empty(),
        "the test needs a schema with a guard"
    );
    for (text, expected) in [
        ("a <l>[1,2]</l>", true),
        ("<l>[1,2]</l> and <l>[2,1]</l>", true),
        ("[1,1] <l>[1,2]</l>", true),
        ("<l>[1,1]</l>", false),
        ("<l>[1,2]</l> <l>[3,3]</l>", false),
    ] {
        assert_eq!(accepts(&grammar, text), expected, "{text}");
    }
}

#[test]
fn refusals_name_the_pointer() {
    for (format, says) in [
        (
            json!({"type": "token_triggered_tags"}),
            "at '/format', keyword 'type': the format 'token_triggered_tags' is not supported",
        ),
        (
            json!({"type": "sequence", "elements": [{"type": "any_text"}, {"type": "const_string", "value": "x"}]}),
            "at '/format/elements/0'",
        ),
        (
            json!({"type": "const_string"}),
            "keyword 'value': is missing",
        ),
        (
            json!({"type": "const_string", "value": "a", "case": "lower"}),
            "keyword 'case'",
        ),
        (
            json!({"type": "triggered_tags", "triggers": ["<a"], "tags": [tag("<b>", integer(), "</b>")]}),
            "at '/format/tags/0', keyword 'begin'",
        ),
        (
            json!({"type": "triggered_tags", "triggers": ["<a>", "<z>"], "tags": [tag("<a>", integer(), "</a>")]}),
            "at '/format/triggers/1': no tag begins with this trigger",
        ),
        (
            tag(
                "<a>",
                json!({"type": "any_text", "excludes": ["/a"]}),
                "</a>",
            ),
            "at '/format/content', keyword 'excludes': free text up to \"</a>\" could never end",
        ),
        (
            tag(
                "<o>",
                json!({"type": "triggered_tags", "triggers": ["<"], "tags": [tag("<a>", integer(), "</a>")]}),
                "</o>",
            ),
            "at '/format/content', keyword 'triggers': free text up to \"</o>\" could never end",
        ),
        (
            json!({"type": "any_text", "excludes": ["foo", ""]}),
            "at '/format/excludes/1': is the empty string",
        ),
        (
            tag("<a>", json!({"type": "any_text", "excludes": [""]}), "</a>"),
            "at '/format/content/excludes/0': is the empty string",
        ),
        (
            tag(
                "<a>",
                json!({"type": "json_schema", "json_schema": {"type": "flibbertigibbet"}}),
                "</a>",
            ),
            "at '/format/content/json_schema",
        ),
        (
            tag("<a>", json!({"type": "regex", "pattern": "("}), "</a>"),
            "pattern",
        ),
        (json!({"type": "or", "elements": []}), "matches no text"),
    ] {
        let e = compile(&source(format.clone())).unwrap_err();
        assert!(e.to_string().contains(says), "{format}: {e}");
    }
    let old = GrammarSource::StructuralTag(json!({
        "structures": [{"begin": "<a>", "schema": {"properties": {"x": {"type": "flibbertigibbet"}}}, "end": "</a>"}],
        "triggers": ["<a"],
    }));
    let e = compile(&old).unwrap_err();
    assert!(
        e.to_string()
            .contains("'/structures/0/schema/properties/x'"),
        "{e}"
    );
    let tag = json!({"begin": "<f>", "schema": {}, "end": "</f>"});
    for (old, says) in [
        (
            json!({"structures": [], "triggers": ["<f"]}),
            "keyword 'structures': no tag is there",
        ),
        (
            json!({"structures": [{"begin": "<f>", "end": "</f>"}], "triggers": ["<f"]}),
            "at '/structures/0', keyword 'schema': is missing",
        ),
        (
            json!({"structures": [tag]}),
            "at '', keyword 'triggers': is missing",
        ),
        (
            json!({"structures": [tag], "triggers": ["<f", "<g"]}),
            "at '/triggers/1': no tag begins",
        ),
        (
            json!({"type": "garbage", "structures": [tag], "triggers": ["<f"]}),
            "keyword 'type': must be \"structural_tag\"",
        ),
    ] {
        let e = compile(&GrammarSource::StructuralTag(old)).unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
    }
    let deep = (0..400).fold(
        json!({"type": "const_string", "value": "x"}),
        |inner, _| json!({"type": "sequence", "elements": [inner]}),
    );
    assert_eq!(
        compile(&source(deep)).unwrap_err().first().kind(),
        GrammarErrorKind::Limit
    );
}

#[test]
fn a_thought_comes_first_and_leaves_room_for_the_answer() {
    let inner = matcher(&GrammarSource::Choice(vec!["yes".into(), "no".into()]));
    let mut m = AfterMarker::new(inner, TOOL).unwrap();
    let mut mask = mask_of(m.inner());
    m.budget(12).unwrap();
    let mut thought = 0;
    loop {
        assert_eq!(m.mask(&mut mask).unwrap(), MaskStatus::Constrained);
        assert!(
            !has(&mask, crate::vocab::STOP),
            "a stop id would end it without an answer"
        );
        assert!(has(&mask, TOOL));
        if set(&mask) == [TOOL] {
            break;
        }
        assert!(m.forced().unwrap().is_empty());
        m.accept(b'h'.into()).unwrap();
        thought += 1;
        assert!(thought < 12);
    }
    assert!(thought > 0);
    assert_eq!(m.forced().unwrap(), [TOOL]);
    m.accept(TOOL).unwrap();
    assert!(m.has_begun());
    m.mask(&mut mask).unwrap();
    assert!(!has(&mask, b'h'.into()) && has(&mask, b'n'.into()));
    assert_eq!(m.accept(b'n'.into()).unwrap(), Accepted::Taken);
    m.rollback(2).unwrap();
    assert!(!m.has_begun());
    let inner = matcher(&GrammarSource::Choice(vec!["yes".into()]));
    assert_eq!(
        AfterMarker::new(inner, b'a'.into()).unwrap_err().kind(),
        GrammarErrorKind::Vocabulary
    );
}
