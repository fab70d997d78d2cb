//! Sources that are made to hurt: each is an error or works, soon, on a stack of ordinary size.

use std::time::Instant;

use crate::vocab::{Draws, compile, compiler, mask_of, set};
use rushlight_engine::constrain::MaskStatus;
use rushlight_grammar::{CancelToken, GrammarErrorKind, GrammarSource};
use serde_json::{Value, json};

/// Compiles and takes some steps, and tells how long that took; the error where there was one.
fn try_out(name: &str, source: &GrammarSource) -> Option<GrammarErrorKind> {
    let compiler = compiler(crate::vocab::toy());
    let begun = Instant::now();
    let mut error = None;
    match compiler.compile(source, &CancelToken::new()) {
        Ok(grammar) => {
            let mut m = grammar.matcher();
            let mut mask = mask_of(&m);
            let mut draws = Draws(1);
            for _ in 0..20 {
                match m.mask(&mut mask) {
                    Ok(MaskStatus::Constrained) => {
                        let legal = set(&mask);
                        if let Err(e) = m.accept(legal[draws.below(legal.len())]) {
                            error = Some(e.kind());
                            break;
                        }
                    }
                    Ok(_) => break,
                    Err(e) => {
                        error = Some(e.kind());
                        break;
                    }
                }
            }
        }
        Err(e) => error = Some(e.first().kind()),
    }
    eprintln!("{name}: {:?} {error:?}", begun.elapsed());
    error
}

#[test]
fn patterns() {
    for (name, pattern) in [
        ("counts", "^(a{1,2000}){1,2000}$".to_owned()),
        (
            "nested",
            format!("{}a{}", "(".repeat(60_000), ")".repeat(60_000)),
        ),
        ("stars", "((a*)*)*b".to_owned()),
        (
            "wide",
            (0..3000)
                .map(|n| format!("word{n}"))
                .collect::<Vec<_>>()
                .join("|"),
        ),
        ("classes", r"[\p{L}\p{N}]{1,5000}x".to_owned()),
        (
            "counts of counts",
            "((([a-z]{0,100}){0,100}){0,100}){0,100}".to_owned(),
        ),
    ] {
        let error = try_out(name, &GrammarSource::Regex(pattern));
        assert_ne!(error, Some(GrammarErrorKind::Internal), "{name}");
    }
}

#[test]
fn lark() {
    let nested = format!("start: {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000));
    let chain: String = (0..5000)
        .map(|n| format!("r{n}: \"a\" r{}\n", n + 1))
        .collect();
    // Each rule in a group of the one before, on one line.
    let (open, close) = ("(".repeat(27), ")".repeat(27));
    let groups: String = (0..700)
        .map(|n| format!("r{n}: {open} r{} | \"b\" {close} -> x ", n + 1))
        .collect();
    for (name, text) in [
        ("groups", format!("start: r0\n{groups}r700: \"b\"\n")),
        (
            "hidden",
            format!("start: </a> {}</b>", "t{".repeat(620_000)),
        ),
        (
            "line",
            format!(
                "start: {}\"a\"",
                (0..120_000)
                    .map(|n| format!("r{n} -> x r{n}: "))
                    .collect::<String>()
            ),
        ),
        ("nested", nested),
        ("left", "start: start \"a\" | \"b\"".to_owned()),
        ("stars", "start: (\"a\"*)*".to_owned()),
        ("chain", format!("start: r0\n{chain}r5000: \"b\"\n")),
        ("none", "start: start".to_owned()),
        ("empty", String::new()),
        ("broken", "start: \"".to_owned()),
        ("counts", "start: /a{1,2000}/{1,2000}".to_owned()),
    ] {
        let error = try_out(name, &GrammarSource::Lark(text));
        assert_ne!(error, Some(GrammarErrorKind::Internal), "{name}");
    }
}

/// A schema that is the first of a ring of `count`, each made from a reference to the next.
fn ring(count: usize, each: impl Fn(Value) -> Value) -> Value {
    let mut ring: serde_json::Map<String, Value> = (0..count)
        .map(|n| {
            let next = json!({"$ref": format!("#/{}", (n + 1) % count)});
            (n.to_string(), each(next))
        })
        .collect();
    ring.insert("$ref".into(), "#/0".into());
    Value::Object(ring)
}

/// A schema that is the first of a chain of `count`, each made from a reference to the next.
fn chain(count: usize, each: impl Fn(Value) -> Value) -> Value {
    let mut chain = ring(count, each);
    chain[(count - 1).to_string()] = json!({"type": "string"});
    chain
}

#[test]
fn schemas() {
    // Without the macro, which would copy it, and recurse.
    let deep = (0..20_000).fold(Value::Bool(true), |inner, _| {
        let mut outer = serde_json::Map::new();
        outer.insert("items".into(), inner);
        Value::Object(outer)
    });
    for (name, schema) in [
        (
            "maxItems",
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1_000_000_000}),
        ),
        (
            "minItems",
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000_000}),
        ),
        ("maxLength", json!({"type": "string", "maxLength": 100_000})),
        (
            "proofs",
            ring(3000, |next| json!({"oneOf": [next, {"type": "null"}]})),
        ),
        (
            "complements",
            ring(3000, |next| json!({"not": {"oneOf": [next, false]}})),
        ),
        (
            "unevaluated",
            chain(
                14,
                |next| json!({"anyOf": [next.clone(), {"properties": {"x": next.clone()}}], "unevaluatedProperties": next}),
            ),
        ),
        (
            "nothing unevaluated",
            chain(
                20,
                |next| json!({"anyOf": [next, {"properties": {"x": true}}], "unevaluatedProperties": false}),
            ),
        ),
        (
            "steps",
            json!({"allOf": [{"multipleOf": 97}, {"multipleOf": 89}, {"multipleOf": 83}]}),
        ),
        (
            "backtracking",
            json!({"anyOf": (0..400).map(|n| json!({"pattern": format!("^((?:a|aa)+)\\1$(?<=b{n})")})).collect::<Vec<_>>()}),
        ),
        (
            "pattern",
            json!({"type": "string", "pattern": "^(a{1,2000}){1,2000}$"}),
        ),
        ("itself", json!({"$ref": "#"})),
    ] {
        let error = try_out(name, &GrammarSource::JsonSchema(schema));
        assert_ne!(error, Some(GrammarErrorKind::Internal), "{name}");
    }
    let deep = GrammarSource::JsonSchema(deep);
    let error = try_out("deep", &deep);
    assert_eq!(error, Some(GrammarErrorKind::Limit));
    // Dropping it would recurse through all of it.
    std::mem::forget(deep);
}

#[test]
fn budgets_of_answers_without_end() {
    for (name, schema) in [
        ("items", json!({"type": "array", "minItems": 1_000_000_000})),
        (
            "distinct items",
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 100_000, "uniqueItems": true}),
        ),
        (
            "members",
            json!({"type": "object", "minProperties": 1_000_000, "additionalProperties": {"type": "null"}}),
        ),
        (
            "pattern",
            json!({"type": "string", "pattern": "(a{300}){300}"}),
        ),
    ] {
        let grammar = compile(&GrammarSource::JsonSchema(schema)).unwrap();
        let begun = Instant::now();
        let mut m = grammar.matcher();
        // Refused, or not known to be too long.
        let known = m.budget(30).map_err(|e| e.kind());
        assert!(
            matches!(known, Ok(()) | Err(GrammarErrorKind::Budget)),
            "{name}: {known:?}"
        );
        eprintln!("{name}: {:?} {known:?}", begun.elapsed());
    }
}

/// One derivative of the engine has no bound of its own where repetitions in each other meet.
#[test]
fn counts_of_counts_are_limited_together() {
    let within = |open: &str, close: &str, count: &str, depth: usize| {
        format!(
            "{}{}{}",
            open.repeat(depth),
            "\"a\"",
            format!("{close}{count}").repeat(depth)
        )
    };
    let deep = within("(", ")", "{0,30}", 6);
    let pattern = format!("^{}$", deep.replace('"', ""));
    let rules: String = (0..6)
        .map(|n| format!("r{n} ::= r{}{{0,30}}\n", n + 1))
        .collect();
    for source in [
        GrammarSource::Ebnf(format!("root ::= {deep}")),
        GrammarSource::Ebnf(format!("root ::= r0\n{rules}r6 ::= \"a\"")),
        GrammarSource::Lark(format!("start: {deep}")),
        GrammarSource::Lark(format!("start: /{}/", &pattern)),
        GrammarSource::Regex(pattern.clone()),
        GrammarSource::JsonSchema(json!({"pattern": pattern})),
        GrammarSource::JsonSchema(
            json!({"patternProperties": {pattern.clone(): {"not": {"uniqueItems": true}}}}),
        ),
    ] {
        let error = compile(&source).err().map(|e| e.to_string());
        let told = error.is_some_and(|e| e.contains("repetitions in each other"));
        assert!(told, "{source:?}");
    }
    let few = GrammarSource::Ebnf(format!("root ::= {}", within("(", ")", "{0,10}", 3)));
    assert!(compile(&few).is_ok());
}

#[test]
fn two_hundred_tools_work() {
    let tags: Vec<Value> = (0..200)
        .map(|n| {
            let properties: serde_json::Map<String, Value> = (0..20)
                .map(|p| {
                    let property = json!({"type": "string", "description": format!("what the {p}th argument of tool {n} is for, at length")});
                    (format!("argument_{p}"), property)
                })
                .collect();
            json!({
                "begin": format!("<call=tool_{n}>"),
                "content": {"type": "json_schema", "json_schema": {"type": "object", "properties": properties, "additionalProperties": false}},
                "end": "</call>",
            })
        })
        .collect();
    assert!(tags[0].to_string().len() > 2000);
    let source = GrammarSource::StructuralTag(json!({"type": "structural_tag", "format": {
        "type": "triggered_tags", "triggers": ["<call="], "tags": tags,
    }}));
    let error = try_out("tools", &source);
    assert_eq!(error, None);
    let grammar = compile(&source).unwrap();
    assert!(crate::vocab::accepts(
        &grammar,
        "so <call=tool_199>{\"argument_3\":\"x\"}</call>"
    ));
    assert!(!crate::vocab::accepts(
        &grammar,
        "so <call=tool_200>{}</call>"
    ));
}

#[test]
fn small_schemas_take_little_stack() {
    // Those that are compiled on their caller's thread, which may be any.
    let nested = (0..23).fold(json!({"type": "string"}), |inner, n| match n % 3 {
        0 => json!({"items": inner}),
        1 => json!({"properties": {"a": inner}}),
        _ => json!({"anyOf": [inner, {"type": "null"}]}),
    });
    let mut defs: serde_json::Map<String, Value> = (0..30)
        .map(|n| {
            (
                format!("d{n}"),
                json!({"allOf": [{"$ref": format!("#/$defs/d{}", n + 1)}]}),
            )
        })
        .collect();
    defs.insert(
        "d30".into(),
        json!({"not": {"items": {"const": [[[{"a": [1]}]]]}}}),
    );
    let chain = json!({"$ref": "#/$defs/d0", "$defs": defs});
    let groups = json!({"pattern": format!("^{}a{}$", "(".repeat(240), ")".repeat(240))});
    let proofs = ring(200, |next| json!({"oneOf": [next, {"type": "null"}]}));
    let members = ring(
        100,
        |next| json!({"oneOf": [{"properties": {"a": next}}, {"properties": {"b": next}}]}),
    );
    let guarded = json!({"uniqueItems": true, "contains": {"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, "minContains": 90});
    let work = move || {
        for (name, schema) in [
            ("nested", nested),
            ("chain", chain),
            ("groups", groups),
            ("guarded", guarded),
        ] {
            let error = try_out(name, &GrammarSource::JsonSchema(schema));
            assert_eq!(error, None, "{name}");
        }
        for (name, schema) in [("proofs", proofs), ("members", members)] {
            try_out(name, &GrammarSource::JsonSchema(schema));
        }
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10);
    thread.spawn(work).unwrap().join().unwrap();
}
