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

#[test]
fn items_that_a_guard_judges_are_judged_where_they_are_counted() {
    for (contains, yes, no) in [
        (
            json!({"type": "array", "uniqueItems": true}),
            "[[1,2],[1,1]]",
            "[[1,1]]",
        ),
        (json!({"pattern": r"^(a|b)\1$"}), r#"["aa"]"#, r#"["ab"]"#),
        (
            json!({"format": "regex", "type": "string"}),
            r#"["a"]"#,
            r#"["("]"#,
        ),
    ] {
        let inside = json!({"properties": {"x": {"type": "array", "contains": contains}}});
        let (yes_in, no_in) = (format!("{{\"x\":{yes}}}"), format!("{{\"x\":{no}}}"));
        check(
            json!({"type": "array", "contains": contains}),
            &[yes],
            &[no],
        );
        check(inside, &[&yes_in], &[&no_in]);
    }
    let some = json!({"multipleOf": 0.5});
    for not in [json!({"contains": some}), json!({"items": some})] {
        check(json!({"type": "array", "not": not}), &["[0.3]"], &["[0.5]"]);
    }
    check(
        json!({"type": "array", "contains": some, "maxContains": 1}),
        &["[0.5,0.3]"],
        &["[0.5,1]", "[0.3]"],
    );
    // Members in any order are watched by a guard too.
    let any = SchemaOptions {
        member_order: MemberOrder::Any,
        ..SchemaOptions::default()
    };
    check_with(
        json!({"type": "array", "contains": {"type": "object", "required": ["x"]}}),
        &any,
        &[r#"[{"y":1,"x":1}]"#],
        &[r#"[{"y":1}]"#],
    );
}

#[test]
fn a_number_is_judged_as_it_is_written() {
    check(
        json!({"type": "number", "not": {"multipleOf": 1.5}}),
        &["1.25", "2"],
        &["3", "9007199254740993", "9007199254740994.5", "3e99"],
    );
    check(
        json!({"type": "array", "not": {"uniqueItems": true}}),
        &["[1,1]", "[9223372036854775807,9223372036854775807]"],
        &[
            "[-9999999999999999999,-9999999999999999998]",
            "[9007199254740993.5,9007199254740993.25]",
        ],
    );
}

#[test]
fn the_flag_for_null_is_one_of_schemas_only() {
    let item = r#"{"nullable":true,"type":"string"}"#;
    let pair = format!("[{item},{item}]");
    let value: Value = serde_json::from_str(item).unwrap();
    check(
        json!({"type": "array", "items": {"enum": [value]}, "not": {"uniqueItems": true}}),
        &[&pair],
        &[],
    );
    check(
        json!({"properties": {"enum": {"type": "string", "nullable": true}}, "not": {"required": ["a", "b"]}}),
        &[r#"{"enum":null}"#, r#"{"enum":"x"}"#],
        &[r#"{"enum":1}"#],
    );
    check(
        json!({"type": "array", "items": {"$ref": "#/components/schemas/de~1fault"}, "not": {"uniqueItems": true},
            "components": {"schemas": {"de/fault": {"type": "string", "nullable": true}}}}),
        &["[null,null]", r#"["",""]"#],
        &["[null]", "[1,1]"],
    );
}

#[test]
fn what_a_guard_judges_by_a_pattern_is_judged_as_ecma_does() {
    let pattern = |pattern: &str| json!({"type": "string", "pattern": pattern});
    check(
        pattern(r"\bfoo\b"),
        &[r#""foo""#, r#""éfoo""#],
        &[r#""foox""#],
    );
    check(pattern(r"(?<=a)\w$"), &[r#""ab""#], &[r#""aé""#]);
    check(pattern(r"^(\w)\1$"), &[r#""aa""#], &[r#""éé""#, r#""ab""#]);
    // A look-ahead is the grammar's, but not under a keyword that only a guard can judge.
    let ahead = json!({"required": ["t"], "properties": {"t": {"pattern": r"^(?!x)\w$"}}});
    check(
        json!({"type": "array", "items": ahead, "not": {"uniqueItems": true}}),
        &[r#"[{"t":"a"},{"t":"a"}]"#],
        &[r#"[{"t":"é"},{"t":"é"}]"#],
    );
    let members = json!({"patternProperties": {r"^\bx/~": {"type": "integer"}, "(?:)": true, r"(?<!\w)y": {"const": 1}}});
    check(
        members.clone(),
        &[
            r#"{"x/~":1}"#,
            r#"{"éx/~":"s"}"#,
            r#"{"by":2}"#,
            r#"{"éy":1}"#,
        ],
        &[r#"{"x/~":"s"}"#, r#"{"éy":2}"#],
    );
    check(
        json!({"patternProperties": {r"^\bx": {"type": "integer"}}, "properties": {"y": {"$ref": "#/patternProperties/%5E%5Cbx"}}}),
        &[r#"{"x":1}"#, r#"{"y":1,"éx":"s"}"#],
        &[r#"{"y":"s"}"#, r#"{"x":"s"}"#],
    );
    check(
        json!({"patternProperties": {r"^\bx/~": {"not": {"uniqueItems": true}}}}),
        &[r#"{"x/~":[1,1]}"#, r#"{"éx/~":[1]}"#],
        &[r#"{"x/~":[1]}"#],
    );
    for unknown in [r"^(a)?\1b$", r"^(?:(a)|b)*\1$"] {
        let report = compile_schema(&pattern(unknown), &SchemaOptions::default()).unwrap_err();
        assert!(
            report.to_string().contains("knows this pattern"),
            "{report}"
        );
    }
}

#[test]
fn relative_identifiers_have_a_base_in_guards_too() {
    let judged = json!({"type": "array", "not": {"uniqueItems": true}});
    let with = |more: Value| {
        let mut schema = judged.clone();
        schema
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        schema
    };
    for schema in [
        with(json!({"$id": "root.json"})),
        with(json!({"$id": "/schemas/root"})),
        with(json!({"$schema": "http://json-schema.org/draft-04/schema#", "id": "root"})),
        json!({"$ref": "sub", "$defs": {"sub": with(json!({"$id": "sub"}))}}),
        json!({"$id": "http://example.com/a/", "$ref": "b", "$defs": {"b": with(json!({"$id": "b"}))}}),
        with(
            json!({"items": {"anyOf": [{"$id": "b.json", "type": "integer"}, {"type": "string"}]}}),
        ),
    ] {
        check(schema, &["[1,1]"], &["[1]", "{}"]);
    }
}

#[test]
fn steps_of_many_remainders_are_left_to_a_guard() {
    let each =
        |steps: &[u32]| -> Vec<_> { steps.iter().map(|s| json!({"multipleOf": s})).collect() };
    for steps in [
        &[2, 3, 5, 7, 11, 9973][..],
        &[2, 3, 5, 7, 11, 13],
        &[2, 3, 5, 7, 11, 13, 17],
    ] {
        let none = json!({"type": "integer", "not": {"anyOf": each(steps)}});
        check(none, &["19", "1"], &["0", "2", "33"]);
    }
    let all: Vec<u32> = (1..400).collect();
    check(
        json!({"type": "integer", "allOf": each(&all)}),
        &["0"],
        &["1", "2520"],
    );
    let multiples = json!({"type": "integer", "minimum": 1, "allOf": [{"multipleOf": 97}, {"multipleOf": 89}, {"multipleOf": 83}]});
    check(multiples, &["716539", "1433078"], &["97", "8633", "0"]);
    check(
        json!({"type": "integer", "anyOf": [{"multipleOf": 97}, {"multipleOf": 89}, {"multipleOf": 83}]}),
        &["97", "178", "83", "0"],
        &["1", "98"],
    );
    // Their least common multiple counts, not their product.
    check_unguarded(
        json!({"type": "number", "allOf": [{"multipleOf": 0.5}, {"multipleOf": 100}, {"multipleOf": 250}, {"multipleOf": 4}]}),
        &["500", "0", "-1000"],
        &["250", "100", "500.5"],
    );
    check(
        json!({"type": "integer", "not": {"anyOf": [{"multipleOf": 97}, {"multipleOf": 89}, {"multipleOf": 83}]}}),
        &["1", "98"],
        &["97", "178", "0"],
    );
}

#[test]
fn a_declared_member_is_judged_by_its_own_schema_alone() {
    let repeats = json!({"not": {"uniqueItems": true}});
    for rest in ["additionalProperties", "unevaluatedProperties"] {
        for own in [
            json!(true),
            json!({"type": "integer"}),
            json!({"enum": [1, [1]]}),
        ] {
            let schema = json!({"properties": {"a": own}, rest: repeats});
            check(
                schema,
                &[r#"{"a":1}"#, r#"{"a":1,"b":[1,1]}"#, r#"{"b":[1,1]}"#],
                &[r#"{"a":1,"b":[1]}"#, r#"{"b":1}"#],
            );
        }
    }
    check(
        json!({"prefixItems": [true, {"type": "integer"}], "items": repeats}),
        &["[1,1,[1,1]]", "[1]"],
        &["[1,1,[1]]", "[1,1,1]"],
    );
}

/// Each pattern is in a guard's schema, where no grammar judges it.
#[test]
fn guards_read_patterns_as_the_grammar_does() {
    for (pattern, yes, no) in [
        (r"\<", "<", "a"),
        (r"^\<a\>$", "<a>", "a"),
        (r"^[^]$", "x", ""),
        (r"^[\d-x]$", "-", "5x"),
        (r"^\ud83d\ude00$", "😀", "x"),
        (r"^.\w$", "\u{85}a", "aé"),
    ] {
        let judged = json!({"type": "array", "items": {"type": "string"}, "not": {"uniqueItems": true},
            "contains": {"pattern": pattern}, "minContains": 70});
        let list = |text: &str| serde_json::to_string(&vec![text; 70]).unwrap();
        check(judged, &[&list(yes)], &[&list(no)]);
        check(
            json!({"type": "string", "pattern": pattern, "not": {"pattern": "(?<=qq)zzz"}}),
            &[&json!(yes).to_string()],
            &[&json!(no).to_string()],
        );
    }
    check(
        json!({"type": "object", "patternProperties": {"\\<": {"type": "integer"}}, "additionalProperties": {"pattern": "\\bq"}}),
        &[r#"{"a":"q"}"#, r#"{"<":1}"#],
        &[r#"{"a":"aq"}"#, r#"{"<":"q"}"#],
    );
}

#[test]
fn references_go_through_members_that_guards_call_otherwise() {
    let named = |reference: Value| json!({"$id": "http://x/y", "patternProperties": {"\\bf-o": {"pattern": "\\bz"}}, "properties": {"a": reference}});
    for reference in [
        json!({"$ref": "y#/patternProperties/%5Cbf-o"}),
        json!({"$ref": "http://x/y#/patternProperties/%5Cbf-o"}),
        json!({"$dynamicRef": "#/patternProperties/%5Cbf-o"}),
    ] {
        check(
            named(reference),
            &[r#"{"a":"z"}"#, r#"{"f-o":"z","b":1}"#],
            &[r#"{"a":"az"}"#, r#"{"f-o":"az"}"#],
        );
    }
    check(
        json!({"$ref": "http://d/d", "$defs": {"d": {"$id": "http://d/d", "patternProperties": {"\\bx": {"type": "integer"}},
            "properties": {"q": {"$ref": "#/patternProperties/%5Cbx"}}}}}),
        &[r#"{"q":1}"#, r#"{"x":1}"#],
        &[r#"{"q":"a"}"#, r#"{"x":"a"}"#],
    );
}

#[test]
fn what_nothing_refers_to_may_refer_anywhere() {
    check(
        json!({"uniqueItems": true, "$defs": {"x": {"$ref": "other"}, "y": {"$ref": "http://a/b"}}}),
        &["[1,2]"],
        &["[1,1]"],
    );
}
