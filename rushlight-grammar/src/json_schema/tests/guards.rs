//! What the grammar leaves to guards, and what they judge.

use super::*;

#[test]
fn guards_off_refuses_what_needs_one() {
    let schema = json!({"properties": {"tags": {"type": "array", "uniqueItems": true}}});
    let options = SchemaOptions {
        guards: false,
        ..SchemaOptions::default()
    };
    let report = compile_schema(&schema, &options).unwrap_err();
    assert_eq!(report.first().kind(), GrammarErrorKind::Unsupported);
    assert!(
        report
            .to_string()
            .contains("'/properties/tags', keyword 'uniqueItems'"),
        "{report}"
    );
    let compiled = compile_schema(&schema, &SchemaOptions::default()).unwrap();
    let how = compiled
        .explained
        .iter()
        .find(|e| e.keyword == "uniqueItems")
        .map(|e| e.how);
    assert_eq!(how, Some(How::Guard));
}

#[test]
fn a_guard_run_goes_back_and_forks() {
    let schema = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true});
    let compiled = compile_schema(&schema, &SchemaOptions::default()).unwrap();
    let guard: &Arc<dyn Guard> = compiled.guards.first().unwrap();
    let mut run = guard.begin();
    let long: String = (0..200).map(|i| format!("\"{i}\",")).collect();
    let text = format!("[{long}\"5");
    for byte in text.bytes() {
        assert_eq!(run.push(byte), GuardStep::Accept);
    }
    let start = text.len() - 2;
    assert_eq!(run.push(b'"'), GuardStep::Reject { value_start: start });
    let mut other = run.fork();
    // Refused, the byte was not taken: the item may still become another.
    assert_eq!(run.push(b'x'), GuardStep::Accept);
    assert_eq!(run.push(b'"'), GuardStep::Accept);
    run.truncate(start);
    for byte in b"\"6\"".iter().take(2) {
        assert_eq!(run.push(*byte), GuardStep::Accept);
    }
    assert_eq!(run.push(b'"'), GuardStep::Reject { value_start: start });
    assert_eq!(other.push(b'"'), GuardStep::Reject { value_start: start });
}

#[test]
fn going_back_and_forth_is_as_beginning_again() {
    let schema = json!({"type": "array", "uniqueItems": true, "items": {"type": ["number", "string", "object", "array"]}});
    let compiled = compile_schema(&schema, &SchemaOptions::default()).unwrap();
    let guard: &Arc<dyn Guard> = compiled.guards.first().unwrap();
    let items = [
        "1",
        "1.0",
        "10",
        "1e1",
        "\"a\"",
        "\"\"",
        "{\"a\":1}",
        "{\"a\":1,\"a\":2}",
        "{\"b\":{\"a\":1},\"a\":1}",
        "{\"a\":1.0,\"b\":{\"a\":1}}",
        "[1,1]",
        "[1,1.0]",
        "[{\"a\":1}]",
        "3",
    ];
    let mut run = guard.begin();
    assert_eq!(run.push(b'['), GuardStep::Accept);
    let (mut text, mut ends, mut seed) = (b"[".to_vec(), vec![1], 1u64);
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let (mut refused, mut longest) = (0, 0);
    for turn in 0..1500 {
        let own = format!("{turn},");
        let item = items
            .get(random(items.len() * 4))
            .map_or(own, |item| format!("{item},"));
        let mut fresh = guard.begin();
        for &byte in &text {
            assert_eq!(fresh.push(byte), GuardStep::Accept);
        }
        let mut whole = true;
        for &byte in item.as_bytes() {
            let step = run.push(byte);
            assert_eq!(
                step,
                fresh.push(byte),
                "{}{item}",
                String::from_utf8_lossy(&text)
            );
            assert_eq!(run.open_from(), fresh.open_from());
            if step != GuardStep::Accept {
                whole = false;
                refused += 1;
                break;
            }
            text.push(byte);
        }
        if whole {
            ends.push(text.len());
        }
        if !whole || random(8) == 0 {
            // Mostly a little, at times far.
            let back = if random(150) == 0 {
                ends.len()
            } else {
                ends.len().min(3)
            };
            let keep = ends.len() - random(back);
            ends.truncate(keep);
            text.truncate(ends[keep - 1]);
            run.truncate(text.len());
        }
        if random(16) == 0 {
            run = run.fork();
        }
        longest = longest.max(text.len());
    }
    assert!(refused > 100 && longest > 600, "{refused} {longest}");
}

#[test]
fn items_and_names_without_number_are_told_apart() {
    let schema = json!({"type": "array", "uniqueItems": true});
    let compiled = compile_schema(&schema, &SchemaOptions::default()).unwrap();
    let mut run = compiled.guards.first().unwrap().begin();
    let items: String = (0..50_000).map(|i| format!("{i},")).collect();
    let names: String = (0..50_000).map(|i| format!("\"{i}\":1,")).collect();
    let text = format!("[{items}{{{names}");
    for (at, byte) in text.bytes().enumerate() {
        assert_eq!(run.push(byte), GuardStep::Accept, "{at}");
        if at % 3 == 2 {
            run.truncate(at - 1);
            for byte in &text.as_bytes()[at - 1..=at] {
                assert_eq!(run.push(*byte), GuardStep::Accept);
            }
        }
    }
    let step = b"\"777".iter().map(|&byte| run.push(byte)).last();
    assert_eq!(step, Some(GuardStep::Accept));
    assert!(matches!(run.push(b'"'), GuardStep::Reject { .. }));
}

#[test]
fn lengths_of_large_patterns_are_left_to_a_guard() {
    let schema = json!({"type": "string", "pattern": "^\\w+([.-]?\\w+)*@\\w+([.-]?\\w+)*(\\.\\w{2,})+$", "minLength": 6, "maxLength": 60});
    let long = format!("\"{}@b.co\"", "a".repeat(60));
    check(schema, &["\"a@b.co\""], &["\"a@b\"", &long]);
}

#[test]
fn dynamic_references_are_judged_from_the_root() {
    check(
        json!({
            "$id": "https://test/root",
            "$ref": "list",
            "$defs": {
                "foo": {"$dynamicAnchor": "items", "type": "string"},
                "list": {"$id": "list", "type": "array", "items": {"$dynamicRef": "#items"}, "$defs": {"items": {"$dynamicAnchor": "items"}}},
            },
        }),
        &["[\"foo\"]"],
        &["[\"foo\",42]"],
    );
}

#[test]
fn multiples_of_many_remainders_are_left_to_a_guard() {
    check(
        json!({"type": "number", "multipleOf": 123_457}),
        &["246914"],
        &["246915"],
    );
    check(
        json!({"type": "integer", "multipleOf": 0.123456789}),
        &["0"],
        &["1"],
    );
}

#[test]
fn the_guard_checks_formats_as_the_grammar_does() {
    // Draft-06 knows no durations; the two alternatives are told apart by a guard where members come in any order.
    let options = SchemaOptions {
        member_order: MemberOrder::Any,
        ..SchemaOptions::default()
    };
    check_with(
        json!({
            "$schema": "http://json-schema.org/draft-06/schema#",
            "oneOf": [
                {"type": "object", "properties": {"a": {"type": "string", "format": "duration"}, "b": {}}, "required": ["a"]},
                {"type": "object", "properties": {"c": {}, "b": {}}, "required": ["c"]},
            ]
        }),
        &options,
        &[r#"{"b":1,"a":"P1D"}"#, r#"{"b":1,"c":1}"#],
        &[r#"{"b":1,"a":"abc"}"#],
    );
}

#[test]
fn many_overlapping_patterns_are_left_to_a_guard() {
    let patterns =
        ["customer", "maker", "operator", "admin", "designer"].map(|p| json!({"pattern": p}));
    check(
        json!({"type": "string", "oneOf": patterns}),
        &["\"customer\"", "\"the maker\""],
        &["\"x\"", "\"customer maker\""],
    );
}

#[test]
fn numbers_longer_than_what_is_written_prove_nothing() {
    let schema = json!({"oneOf": [{"minimum": 5}, {"const": 1e30}]});
    let long = format!("1{}", "0".repeat(30));
    check(schema, &["6"], &[&long]);
}
