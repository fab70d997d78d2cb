//! Compiling: the cache, time, cancelling, reports.

use std::time::{Duration, Instant};

use rushlight_grammar::{CancelToken, Compiler, GrammarErrorKind, GrammarSource};
use serde_json::json;

use crate::vocab::{accepts, compile, compiler, limits, person, toy, toy_canonical};

#[test]
fn the_cache_finds_a_source_again_and_keeps_to_its_budget() {
    let compiler = compiler(toy());
    let cancel = CancelToken::new();
    let first = compiler.compile(&person(), &cancel).unwrap();
    let begun = Instant::now();
    for _ in 0..100 {
        let again = compiler.compile(&person(), &cancel).unwrap();
        assert!(std::sync::Arc::ptr_eq(&first, &again));
    }
    eprintln!("{:?} a hit", begun.elapsed() / 100);
    let small = Compiler::new(
        toy(),
        limits(|l| l.cache_bytes = 700_000),
        Default::default(),
    );
    for n in 0..20 {
        small
            .compile(&GrammarSource::Choice(vec![format!("text {n}")]), &cancel)
            .unwrap();
        assert!(small.cached_bytes() <= 700_000);
    }
    assert!(small.cached_bytes() > 0);
}

#[test]
fn a_cancelled_or_late_compilation_says_so() {
    let cancel = CancelToken::new();
    cancel.cancel();
    let e = compiler(toy()).compile(&person(), &cancel).unwrap_err();
    assert_eq!(e.first().kind(), GrammarErrorKind::Cancelled);
    let late = Compiler::new(
        toy(),
        limits(|l| l.compile_time = Duration::ZERO),
        Default::default(),
    );
    let many = (0..5000)
        .map(|n| format!("{n} bottles of {}", n * 7919))
        .collect();
    let e = late
        .compile(&GrammarSource::Choice(many), &CancelToken::new())
        .unwrap_err();
    assert_eq!(e.first().kind(), GrammarErrorKind::TimedOut);
}

#[test]
fn what_is_small_and_takes_long_is_compiled_with_the_limits_of_large_sources() {
    // Bounds of many digits and a step: the engine's lexer takes more than it is given for a small source.
    for (schema, yes, no) in [
        (
            json!({"type": "array", "contains": {"minimum": 999_997},
                "items": {"type": "integer", "maximum": 1_000_000, "multipleOf": 360}}),
            "",
            "[999720]",
        ),
        (
            json!({"type": "array", "contains": {"minimum": 500_000},
                "items": {"type": "integer", "maximum": 1_000_000, "multipleOf": 360}}),
            "[0,999720]",
            "[0]",
        ),
    ] {
        let grammar = compile(&GrammarSource::JsonSchema(schema.clone()))
            .unwrap_or_else(|e| panic!("{schema}: {e}"));
        assert!(yes.is_empty() || accepts(&grammar, yes), "{schema}");
        assert!(!accepts(&grammar, no), "{schema}");
    }
}

#[test]
fn more_symbols_than_the_engine_has_are_a_limit() {
    let text = format!("start: {}\"a\"", "\"a\" | ".repeat(66_000));
    let e = compile(&GrammarSource::Lark(text)).unwrap_err();
    assert_eq!(e.first().kind(), GrammarErrorKind::Limit, "{e}");
}

#[test]
fn what_is_no_schema_is_a_report() {
    let e = compile(&GrammarSource::JsonSchema(
        json!({"type": "flibbertigibbet"}),
    ))
    .unwrap_err();
    assert!(e.to_string().contains("flibbertigibbet"), "{e}");
    assert!(compile(&GrammarSource::JsonSchema(json!("not valid json {{{"))).is_err());
}

#[test]
fn an_error_of_lark_is_told_at_its_line_and_column() {
    for (text, said) in [
        ("start: b\n", "1:8: unknown name: \"b\""),
        ("start: \"é東\" )\n", "1:13: "),
        (
            "start: b\nb: /(/\n",
            "2:4: invalid regex \"(\" (in regex): regex parse error: unclosed group",
        ),
        ("start: b\nb: \"a\n", "2:4: a text that is not closed"),
    ] {
        let report = compile(&GrammarSource::Lark(text.into())).expect_err(text);
        let text = report.to_string();
        assert!(text.starts_with(said), "{text}");
    }
}

#[test]
fn a_compilation_under_way_is_cancelled() {
    let properties: serde_json::Map<String, serde_json::Value> = (0..5000)
        .map(|n| (format!("optional_{n}"), json!({"type": "string"})))
        .collect();
    let source = GrammarSource::JsonSchema(json!({
        "type": "object", "properties": properties, "minProperties": 2,
    }));
    let compiler = Compiler::new(
        toy(),
        limits(|l| l.compile_time = Duration::from_secs(600)),
        Default::default(),
    );
    let cancel = CancelToken::new();
    let raised = cancel.clone();
    let raise = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        raised.cancel();
    });
    let report = compiler.compile(&source, &cancel).unwrap_err();
    assert_eq!(report.first().kind(), GrammarErrorKind::Cancelled);
    raise.join().unwrap();
}

#[test]
fn text_that_has_no_end_is_an_error_where_it_begins() {
    let compiler = compiler(toy_canonical());
    // The blank that must come is taken for one that is skipped, and so is every one behind it.
    let skipped = "start: \"Hello\" \" \" NAME\nNAME: /[A-Z][a-z]+/\n%ignore /[ ]+/\n";
    for (text, said) in [(skipped, "Hello"), ("start: /ba+/ \"a\"", "b")] {
        let grammar = compiler
            .compile(&GrammarSource::Lark(text.into()), &CancelToken::new())
            .expect(text);
        let mut matcher = grammar.matcher();
        for byte in said.bytes() {
            matcher.accept(u32::from(byte)).expect(text);
        }
        let error = matcher.forced().unwrap_err();
        assert_eq!(error.kind(), GrammarErrorKind::DeadEnd, "{error}");
        let mut mask = vec![0; grammar.vocabulary().logits().div_ceil(32)];
        let error = matcher.mask(&mut mask).unwrap_err();
        assert_eq!(error.kind(), GrammarErrorKind::DeadEnd, "{error}");
    }
    // What may end, or ends late, is none.
    for text in [
        "start: /ba+/",
        "start: \"a\"{500} \"b\"",
        "start: \"b\" /a+/ \"c\"",
        "start: /a{20000}/ \"b\"",
    ] {
        let grammar = compiler
            .compile(&GrammarSource::Lark(text.into()), &CancelToken::new())
            .expect(text);
        let mut matcher = grammar.matcher();
        let first = if text.contains("00") { b'a' } else { b'b' };
        matcher.accept(u32::from(first)).expect(text);
        matcher.forced().expect(text);
    }
}
