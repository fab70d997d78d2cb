//! Every kind of source, each with a judge of its answers.

use rushlight::grammar::GrammarSource;
use serde_json::{Value, json};

use super::Failure;
use super::judge::Judge;

pub(crate) struct Source {
    pub(crate) name: &'static str,
    pub(crate) source: GrammarSource,
    pub(crate) judge: Judge,
}

pub(crate) fn all() -> Result<Vec<Source>, Failure> {
    let mut all = Vec::new();
    for (name, schema) in schemas() {
        let judge = Judge::schema_of(&schema)?;
        let source = GrammarSource::JsonSchema(schema);
        all.push(Source {
            name,
            source,
            judge,
        });
    }
    all.push(Source {
        name: "json object",
        source: GrammarSource::JsonObject,
        judge: Judge::Object,
    });
    for (name, pattern) in [
        (
            "regex of a version",
            r"[0-9]{1,3}\.[0-9]{1,3}(-[a-z]{1,8})?",
        ),
        ("regex of words", r"([a-z]{2,5} ){1,6}[A-Z][a-zé]*"),
        ("regex of alternatives", r"(yes|no|maybe( not)?)!{0,3}"),
    ] {
        all.push(Source {
            name,
            source: GrammarSource::Regex(pattern.to_owned()),
            judge: Judge::pattern(pattern)?,
        });
    }
    let choices: Vec<String> = ["yes", "yes please", "no", "été", "{\"a\": 1}"]
        .map(str::to_owned)
        .into();
    all.push(Source {
        name: "choice",
        source: GrammarSource::Choice(choices.clone()),
        judge: Judge::Choice(choices),
    });
    for (name, text, rule) in [
        (
            "gbnf of nested brackets",
            "root ::= \"(\" root \")\" | \"[\" root \"]\" | \"\"\n",
            nested as fn(&str) -> bool,
        ),
        (
            "gbnf of sums",
            "root ::= term ((\"+\" | \"-\") term)*\nterm ::= [0-9]{1,4} | \"(\" root \")\"\n",
            sum,
        ),
        (
            "gbnf of a list",
            "root ::= \"- \" item (\"\\n- \" item){0,4}\nitem ::= [^\\n]{1,20}\n",
            list,
        ),
    ] {
        all.push(Source {
            name,
            source: GrammarSource::Ebnf(text.to_owned()),
            judge: Judge::Rule(rule),
        });
    }
    all.push(Source {
        name: "lark of a call",
        source: GrammarSource::Lark(
            "start: NAME \"(\" [arg (\",\" arg)*] \")\"\narg: NAME | NUMBER\nNAME: /[a-z]{1,8}/\nNUMBER: /[0-9]{1,4}/\n"
                .to_owned(),
        ),
        judge: Judge::pattern(r"[a-z]{1,8}\((([a-z]{1,8}|[0-9]{1,4})(,([a-z]{1,8}|[0-9]{1,4}))*)?\)")?,
    });
    all.push(Source {
        name: "structural tag of calls in text",
        source: GrammarSource::StructuralTag(calls_in_text()),
        judge: Judge::Rule(calls),
    });
    all.push(Source {
        name: "structural tag of a thought and a schema",
        source: GrammarSource::StructuralTag(json!({"type": "structural_tag", "format": {
            "type": "sequence", "elements": [
                {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"},
                {"type": "json_schema", "json_schema": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
            ],
        }})),
        judge: Judge::Rule(thought),
    });
    Ok(all)
}

fn schemas() -> Vec<(&'static str, Value)> {
    let order = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
            "lines": {"type": "array", "minItems": 1, "maxItems": 3, "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 12},
                    "count": {"type": "integer", "minimum": 1, "maximum": 99},
                },
                "required": ["name", "count"], "additionalProperties": false,
            }},
            "paid": {"type": "boolean"},
        },
        "required": ["id", "lines", "paid"], "additionalProperties": false,
    });
    let tree = json!({
        "$defs": {"node": {
            "type": "object",
            "properties": {"value": {"enum": ["leaf", "branch", 7, null]}, "next": {"$ref": "#/$defs/node"}},
            "required": ["value"], "additionalProperties": false,
        }},
        "$ref": "#/$defs/node",
    });
    let shape = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}},
         "required": ["kind", "r"], "additionalProperties": false},
        {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number", "maximum": 10.5}},
         "required": ["kind", "side"], "additionalProperties": false},
        {"type": "string", "minLength": 2, "maxLength": 6},
    ]});
    vec![
        ("schema of an order", order),
        ("schema that is recursive", tree),
        ("schema of one of", shape),
        ("schema of anything", json!({})),
        (
            "schema of open objects",
            json!({"type": "object", "minProperties": 2, "maxProperties": 4, "additionalProperties": {"type": "integer"}}),
        ),
        (
            "schema of a date",
            json!({"type": "string", "format": "date"}),
        ),
        (
            "schema of a time",
            json!({"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}, "required": ["at"], "additionalProperties": false}),
        ),
        (
            "schema of multiples",
            json!({"type": "array", "items": {"type": "integer", "multipleOf": 5, "minimum": -100, "maximum": 1000}, "minItems": 2, "maxItems": 4}),
        ),
        (
            "schema of unique items",
            json!({"type": "array", "items": {"enum": ["red", "green", "blue", "grey"]}, "uniqueItems": true, "minItems": 2, "maxItems": 4}),
        ),
        (
            "schema of unique numbers",
            json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 30}, "uniqueItems": true, "minItems": 3, "maxItems": 6}),
        ),
        (
            "schema of long unique items",
            json!({"type": "array", "items": {"enum": ["ab one two three four", "ac one two three four"]}, "uniqueItems": true, "minItems": 2, "maxItems": 2}),
        ),
        (
            "schema of unique records",
            json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "boolean"}, "bravo": {"const": "one two three"}}, "required": ["a", "bravo"], "additionalProperties": false}, "uniqueItems": true, "minItems": 2, "maxItems": 2}),
        ),
        (
            "schema of contains",
            json!({"type": "array", "items": {"type": ["integer", "string"], "maxLength": 3, "minimum": 0, "maximum": 99}, "contains": {"type": "string"}, "minContains": 1, "maxContains": 2, "maxItems": 5}),
        ),
        (
            "schema of not",
            json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 4}, "b": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a", "b"], "additionalProperties": false, "not": {"properties": {"b": {"const": 3}}}}),
        ),
        (
            "schema of if",
            json!({"type": "object", "properties": {"kind": {"enum": ["card", "cash"]}, "number": {"type": "string", "pattern": "^[0-9]{4}$"}}, "required": ["kind"], "additionalProperties": false, "if": {"properties": {"kind": {"const": "card"}}}, "then": {"required": ["number"]}, "else": {"properties": {"number": false}}}),
        ),
        (
            "schema of dependents",
            json!({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "additionalProperties": false, "dependentRequired": {"a": ["b"]}, "minProperties": 1}),
        ),
        (
            "schema of names",
            json!({"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"}, "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 3}),
        ),
        (
            "schema of a tuple",
            json!({"type": "array", "prefixItems": [{"type": "integer", "maximum": 5, "minimum": 0}, {"enum": ["x", "y"]}], "items": false, "minItems": 2}),
        ),
    ]
}

fn calls_in_text() -> Value {
    json!({"type": "structural_tag", "format": {
        "type": "triggered_tags", "triggers": ["<tool>"], "stop_after_first": true,
        "tags": [{"begin": "<tool>", "content": {"type": "json_schema", "json_schema": {
            "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["n"], "additionalProperties": false,
        }}, "end": "</tool>"}],
    }})
}

fn nested(text: &str) -> bool {
    let mut open = Vec::new();
    let mut closing = false;
    for c in text.chars() {
        match c {
            '(' | '[' if !closing => open.push(c),
            ')' | ']' => {
                closing = true;
                if open.pop() != Some(if c == ')' { '(' } else { '[' }) {
                    return false;
                }
            }
            _ => return false,
        }
    }
    open.is_empty()
}

fn sum(text: &str) -> bool {
    fn expression(text: &[u8], mut at: usize) -> Option<usize> {
        at = term(text, at)?;
        while let Some(b'+' | b'-') = text.get(at) {
            at = term(text, at + 1)?;
        }
        Some(at)
    }
    fn term(text: &[u8], at: usize) -> Option<usize> {
        if text.get(at) == Some(&b'(') {
            let end = expression(text, at + 1)?;
            return (text.get(end) == Some(&b')')).then_some(end + 1);
        }
        let digits = text
            .get(at..)?
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        (1..=4).contains(&digits).then_some(at + digits)
    }
    expression(text.as_bytes(), 0) == Some(text.len())
}

fn list(text: &str) -> bool {
    let lines: Vec<&str> = text.split('\n').collect();
    let item = |line: &&str| {
        let item = line.strip_prefix("- ");
        item.is_some_and(|item| (1..=20).contains(&item.chars().count()))
    };
    lines.len() <= 5 && lines.iter().all(item)
}

/// Free text, at the end of which one call may stand.
fn calls(text: &str) -> bool {
    let Some((_, call)) = text.split_once("<tool>") else {
        return true;
    };
    call.strip_prefix("{\"n\":")
        .and_then(|call| call.strip_suffix("}</tool>"))
        .is_some_and(|n| n.len() == 1 && n.bytes().all(|byte| byte.is_ascii_digit()))
}

fn thought(text: &str) -> bool {
    let after = text
        .strip_prefix("<think>")
        .and_then(|text| text.split_once("</think>"));
    after.is_some_and(|(_, array)| {
        serde_json::from_str::<Vec<bool>>(array).is_ok_and(|items| items.len() <= 3)
    })
}
