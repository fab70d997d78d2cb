//! Guards inside structural tags: each runs on its own value wherever that stands, or the tag is refused with its place.

use crate::structural_tag::{check, refusal, tag};
use serde_json::{Value, json};

/// Lists without repetition: no grammar says that.
fn unique() -> Value {
    json!({"type": "json_schema", "json_schema": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true, "maxItems": 40}})
}

fn schema(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": schema})
}

fn text(value: &str) -> Value {
    json!({"type": "const_string", "value": value})
}

fn sequence(elements: &[Value]) -> Value {
    json!({"type": "sequence", "elements": elements})
}

fn or(elements: &[Value]) -> Value {
    json!({"type": "or", "elements": elements})
}

#[test]
fn a_tag_without_a_begin_is_guarded() {
    check(
        tag("", unique(), "</a>"),
        &["[2,1]</a>", "[]</a>"],
        &["[1,1]</a>", "[2,1,1]</a>"],
    );
    check(
        sequence(&[
            tag("<think>", json!({"type": "any_text"}), "</think>"),
            unique(),
        ]),
        &["<think>[1,1]</think>[1,2]"],
        &["<think></think>[1,1]"],
    );
}

#[test]
fn tags_of_one_begin_share_a_guard_or_are_refused() {
    for format in [
        or(&[
            tag("<t>", unique(), "</t>"),
            tag(
                "<t>",
                json!({"type": "regex", "pattern": "\\[1,1\\]"}),
                "</t>",
            ),
        ]),
        or(&[
            tag("<t>", unique(), "</a>"),
            tag("<t>", schema(json!({"type": "array"})), "</b>"),
        ]),
        json!({"type": "triggered_tags", "triggers": ["<t"], "tags": [
            tag("<t>", unique(), "</t>"),
            tag("<t>", schema(json!({"type": "array", "items": {"type": "integer"}})), "</t>"),
        ]}),
    ] {
        let e = refusal(&format);
        assert!(
            e.contains("needs a guard, and after the text \"<t>\"")
                && e.contains("/content/json_schema'"),
            "{format}: {e}"
        );
    }
    check(
        or(&[
            tag("<t>", unique(), "</a>"),
            tag("<t>", unique(), "</b>"),
            tag("<tt>", schema(json!({"type": "array"})), "</b>"),
        ]),
        &["<t>[1,2]</a>", "<t>[1,2]</b>", "<tt>[1,1]</b>"],
        &["<t>[1,1]</a>", "<t>[1,1]</b>"],
    );
}

#[test]
fn a_begin_in_other_text_misleads_no_guard() {
    let list = || tag("<a>", unique(), "</a>");
    check(
        sequence(&[text("<a>\""), list()]),
        &["<a>\"<a>[1,2]</a>"],
        &["<a>\"<a>[1,1]</a>"],
    );
    check(
        json!({"type": "tags_with_separator", "tags": [list()], "separator": "<a>["}),
        &["<a>[1,2]</a><a>[<a>[2,1]</a>"],
        &["<a>[1,2]</a><a>[<a>[1,1]</a>"],
    );
    let pattern = json!({"type": "regex", "pattern": "[a-z<>\"]*!"});
    check(
        sequence(&[tag("<p>", pattern, "</p>"), list()]),
        &["<p><a>\"!</p><a>[1,2]</a>"],
        &["<p><a>\"!</p><a>[1,1]</a>"],
    );
    let some = sequence(&[text("so: "), json!({"type": "any_text"})]);
    check(
        sequence(&[tag("<p>", some, "</p>"), list()]),
        &["<p>so: <a>\"</p><a>[1,2]</a>"],
        &["<p>so: <a>\"</p><a>[1,1]</a>"],
    );
    let parameters = json!({"type": "qwen_xml_parameter", "json_schema": {
        "type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a"],
    }});
    check(
        sequence(&[tag("<p>", parameters, "</p>"), list()]),
        &[
            "<p><parameter=a>say <a>\"</parameter></p><a>[1,2]</a>",
            "<p><parameter=a><a></parameter>\n<parameter=n>1</parameter></p><a>[1,2]</a>",
        ],
        &[
            "<p><parameter=a>say <a>\"</parameter></p><a>[1,1]</a>",
            "<p><parameter=a><a></parameter>\n<parameter=n>1</parameter></p><a>[1,1]</a>",
        ],
    );
    let string = schema(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
    );
    check(
        or(&[string, list()]),
        &["{\"a\":\"<a>[1,1]\"}", "<a>[1,2]</a>"],
        &["<a>[1,1]</a>"],
    );
}

#[test]
fn a_guard_knows_where_its_value_ends() {
    let odd = || schema(json!({"not": {"const": 5}, "type": ["integer", "string", "boolean"]}));
    check(
        json!({"type": "tags_with_separator", "tags": [tag("", odd(), ";"), tag("<b>", unique(), ".")], "separator": ""}),
        &["6;<b>[1].", "51;6;true;\"5\";\"<b>[1,1].\";<b>[1,2]."],
        &["5;", "6;5;", "true;<b>[1,1].", "\"<b>\";5;"],
    );
    // The end goes on with no integer, though it would with other numbers.
    check(
        tag(
            "<n>",
            schema(json!({"type": "integer", "not": {"const": 5}})),
            ".</n>",
        ),
        &["<n>51.</n>"],
        &["<n>5.</n>"],
    );
}

#[test]
fn a_value_that_cannot_be_told_is_refused() {
    let any = json!({"type": "grammar", "grammar": "root ::= [a-z<>\"]* \"!\" | \"(\" root \")\""});
    for (format, after) in [
        (sequence(&[any, tag("<a>", unique(), "</a>")]), "<a>"),
        (or(&[text("[1,1]"), unique()]), ""),
        (
            sequence(&[
                or(&[text(""), text("<a>")]),
                or(&[tag("<a>", unique(), "</a>"), text("[1,1]</a>")]),
            ]),
            "<a>",
        ),
    ] {
        let e = refusal(&format);
        assert!(
            e.contains(&format!("and after the text {after:?} its value")),
            "{format}: {e}"
        );
    }
}

#[test]
fn many_guarded_calls_in_free_text() {
    let tags: Vec<_> = (0..120)
        .map(|n| {
            let schema = schema(json!({"type": "object", "properties": {
                format!("list_{n}"): {"type": "array", "items": {"type": "integer"}, "uniqueItems": true},
                "say": {"type": "string"},
            }, "additionalProperties": false}));
            tag(&format!("<function=call_{n}>"), schema, "</function>")
        })
        .collect();
    check(
        json!({"type": "sequence", "elements": [
            tag("<think>", json!({"type": "any_text"}), "</think>"),
            {"type": "triggered_tags", "triggers": ["<function="], "tags": tags},
        ]}),
        &[
            "<think><function=call_1>{</think>so <function=call_11>{\"list_11\":[1,2]}</function> and <function=call_1>{}</function>",
            "<think></think><function=call_7>{\"list_7\":[1],\"say\":\"<function=call_1>{\"}</function>",
        ],
        &[
            "<think></think>so <function=call_11>{\"list_11\":[1,1]}</function>",
            "<think></think><function=call_7>{\"list_7\":[1],\"say\":\"<function=\"}</function><function=call_119>{\"list_119\":[3,3]}",
        ],
    );
}

/// A walk that takes bytes back comes to the same verdicts.
#[test]
fn guards_go_back_with_the_text() {
    use rushlight_grammar::json_schema::SchemaOptions;
    use rushlight_grammar::{GrammarSource, lower};

    let format = json!({"type": "triggered_tags", "triggers": ["<a"], "tags": [
        tag("<a>", unique(), "</a>"), tag("<ab>", schema(json!({"type": "integer", "not": {"const": 5}})), ";"),
    ]});
    let source = GrammarSource::StructuralTag(json!({"type": "structural_tag", "format": format}));
    let lowered = lower(
        &source,
        None,
        &Default::default(),
        &SchemaOptions::default(),
    )
    .unwrap();
    let text = b"x<a>[1,2]</a><<ab>51;<a>[\"<a>[1\",12,1]</a>.";
    let fresh = |len: usize| {
        let mut run = lowered.guards[0].begin();
        for &byte in &text[..len] {
            run.push(byte);
        }
        run
    };
    for to in 0..text.len() {
        for from in to..=text.len() {
            let mut run = fresh(from);
            run.truncate(to);
            let mut other = fresh(to);
            assert_eq!(run.open_from(), other.open_from(), "{from} to {to}");
            assert_eq!(run.finish(), other.finish(), "{from} to {to}");
            for &byte in &text[to..] {
                let probe = run.fork().push(b'1');
                assert_eq!(probe, other.fork().push(b'1'), "{from} to {to}");
                assert_eq!(run.push(byte), other.push(byte), "{from} to {to}");
            }
        }
    }
}

/// Draws that are the same in every run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const LISTS: [&str; 6] = ["[1,1]", "[2,1,1]", "[1,2]", "[2]", "[]", "[2,1]"];

fn list(unique: bool) -> Value {
    schema(
        json!({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3, "uniqueItems": unique}),
    )
}

fn drawn_tag(draws: &mut Draws, depth: usize) -> Value {
    let begin = draws.one(&["<a>", "<a>", "<ab>", "<", "[", ""]);
    let content = match draws.below(6) {
        0 => json!({"type": "any_text"}),
        1 | 2 if depth > 0 => drawn(draws, depth - 1),
        3 if depth > 0 => triggered(draws, depth - 1),
        4 => list(false),
        _ => list(true),
    };
    tag(begin, content, draws.one(&["</a>", "</a>", "<", "]", ">"]))
}

fn triggered(draws: &mut Draws, depth: usize) -> Value {
    let mut tags = [drawn_tag(draws, depth), drawn_tag(draws, depth)];
    for tag in &mut tags {
        tag["begin"] = json!(format!("<{}", draws.one(&["a>", "", "[", "<a>"])));
    }
    json!({"type": "triggered_tags", "triggers": ["<"], "tags": tags})
}

/// A format of begins and texts that are easily taken for each other.
fn drawn(draws: &mut Draws, depth: usize) -> Value {
    match draws.below(if depth == 0 { 2 } else { 6 }) {
        0 => text(draws.one(&["<a>", "<a>\"", "[1,1]", "x", "<", ""])),
        1 => list(draws.below(2) == 0),
        2 => sequence(&[drawn(draws, depth - 1), drawn(draws, depth - 1)]),
        3 => or(&[drawn(draws, depth - 1), drawn(draws, depth - 1)]),
        4 => {
            json!({"type": "tags_with_separator", "separator": draws.one(&["", "<a>", ","]), "at_least_one": true,
            "tags": [drawn_tag(draws, depth - 1), drawn_tag(draws, depth - 1)]})
        }
        _ => drawn_tag(draws, depth - 1),
    }
}

fn drawn_text(format: &Value, draws: &mut Draws) -> String {
    let all = |key: &str| format[key].as_array().unwrap();
    match format["type"].as_str().unwrap() {
        "const_string" => format["value"].as_str().unwrap().to_owned(),
        "json_schema" => draws.one(&LISTS).to_owned(),
        "any_text" => draws
            .one(&["", "<a>", "x\"", "[1,1]", "<a>[1,1]</a", "]"])
            .to_owned(),
        "sequence" => all("elements")
            .iter()
            .map(|e| drawn_text(e, draws))
            .collect(),
        "or" => {
            let n = draws.below(2);
            drawn_text(&all("elements")[n], draws)
        }
        "tag" => {
            let content = drawn_text(&format["content"], draws);
            format!(
                "{}{content}{}",
                format["begin"].as_str().unwrap(),
                format["end"].as_str().unwrap()
            )
        }
        kind @ ("tags_with_separator" | "triggered_tags") => {
            let parts: Vec<_> = (0..1 + draws.below(3))
                .map(|_| {
                    let n = draws.below(2);
                    drawn_text(&all("tags")[n], draws)
                })
                .collect();
            match kind {
                "triggered_tags" => parts.join(draws.one(&["", ">", "[1,1]", "</a", "a>"])),
                _ => parts.join(format["separator"].as_str().unwrap()),
            }
        }
        other => panic!("{other}"),
    }
}

/// Where a text of `format` that starts at `at` may end: tried out, without an automaton.
fn ends(format: &Value, text: &str, at: usize) -> Vec<usize> {
    let all = |key: &str| format[key].as_array().unwrap();
    let after = |at: usize, word: &Value| {
        let word = word.as_str().unwrap();
        text[at..].starts_with(word).then(|| at + word.len())
    };
    match format["type"].as_str().unwrap() {
        "const_string" => after(at, &format["value"]).into_iter().collect(),
        "json_schema" => {
            let unique = format["json_schema"]["uniqueItems"] == true;
            let Some(close) = text[at..].find(']') else {
                return Vec::new();
            };
            let value = serde_json::from_str::<Vec<u8>>(&text[at..=at + close]).unwrap_or(vec![9]);
            let twice = (1..value.len()).any(|n| value[..n].contains(&value[n]));
            let fits = value.len() <= 3 && value.iter().all(|v| [1, 2].contains(v));
            Vec::from_iter((fits && !(unique && twice)).then_some(at + close + 1))
        }
        "sequence" => all("elements").iter().fold(vec![at], |ats, element| {
            ats.iter().flat_map(|&at| ends(element, text, at)).collect()
        }),
        "or" => all("elements")
            .iter()
            .flat_map(|e| ends(e, text, at))
            .collect(),
        "tag" => {
            let Some(at) = after(at, &format["begin"]) else {
                return Vec::new();
            };
            let end = &format["end"];
            if format["content"]["type"] == "any_text" {
                let end = end.as_str().unwrap();
                return text[at..]
                    .find(end)
                    .map(|n| at + n + end.len())
                    .into_iter()
                    .collect();
            }
            if format["content"]["type"] == "triggered_tags" {
                return triggered_ends(&format["content"], text, at, end.as_str());
            }
            let insides = ends(&format["content"], text, at);
            insides
                .into_iter()
                .filter_map(|at| after(at, end))
                .collect()
        }
        "triggered_tags" => triggered_ends(format, text, at, None),
        "tags_with_separator" => {
            let one = |at: usize| {
                all("tags")
                    .iter()
                    .flat_map(|t| ends(t, text, at))
                    .collect::<Vec<_>>()
            };
            let mut found = Vec::new();
            let mut open = one(at);
            while let Some(at) = open.pop() {
                if !found.contains(&at) {
                    found.push(at);
                    open.extend(after(at, &format["separator"]).into_iter().flat_map(one));
                }
            }
            found
        }
        other => panic!("{other}"),
    }
}

/// The same of free text with tags, up to and with `end`.
fn triggered_ends(format: &Value, text: &str, at: usize, end: Option<&str>) -> Vec<usize> {
    let (mut found, mut open, mut seen) = (Vec::new(), vec![at], Vec::new());
    while let Some(at) = open.pop() {
        if seen.contains(&at) {
            continue;
        }
        seen.push(at);
        let trigger = text[at..].find('<').map(|n| at + n);
        let close = end.and_then(|end| text[at..].find(end).map(|n| at + n + end.len()));
        match (trigger, close) {
            // Whatever is whole first is what it is; an end that holds the trigger is none.
            (Some(trigger), close) if close.is_none_or(|close| trigger < close) => {
                let tags = format["tags"].as_array().unwrap();
                open.extend(tags.iter().flat_map(|tag| ends(tag, text, trigger)));
            }
            (_, Some(close)) => found.push(close),
            (_, None) if end.is_none() => found.push(text.len()),
            _ => {}
        }
    }
    found
}

fn without_guards(format: &Value) -> Value {
    let text = format
        .to_string()
        .replace("\"uniqueItems\":true", "\"uniqueItems\":false");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn guards_refuse_what_is_no_text_and_nothing_else() {
    use crate::structural_tag::source;
    use crate::vocab::{accepts, compile};

    let mut draws = Draws(11);
    let (mut guarded, mut refused, mut yes, mut no) = (0, 0, 0, 0);
    while guarded < 80 {
        let mut format = drawn(&mut draws, 3);
        if draws.below(3) == 0 {
            format = sequence(&[format, triggered(&mut draws, 1)]);
        }
        let Ok(plain) = compile(&source(without_guards(&format))) else {
            continue;
        };
        let Ok(grammar) = compile(&source(format.clone())) else {
            refused += 1;
            continue;
        };
        if grammar.guards().is_empty() {
            continue;
        }
        guarded += 1;
        for _ in 0..12 {
            let text = drawn_text(&format, &mut draws);
            let expected = accepts(&plain, &text) && ends(&format, &text, 0).contains(&text.len());
            *(if expected { &mut yes } else { &mut no }) += 1;
            assert_eq!(accepts(&grammar, &text), expected, "{format}\n  {text:?}");
        }
    }
    assert!(
        yes > 150 && no > 150 && refused < 400,
        "{yes} {no} {refused}"
    );
}
