//! What a matcher promises, on a toy vocabulary.

mod vocab;

use std::time::{Duration, Instant};

use rushlight_engine::constrain::{Accepted, MaskStatus};
use rushlight_grammar::{
    CancelToken, Compiler, GrammarErrorKind, GrammarSource, Limits, Vocabulary,
};
use serde_json::json;
use vocab::{
    Draws, STOP, STOP_TOO, TOOL, accepts, compile, compiler, has, mask_of, matcher, set, toy,
    toy_canonical,
};

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

fn person() -> GrammarSource {
    GrammarSource::JsonSchema(json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": false,
    }))
}

#[test]
fn the_start_allows_what_opens_an_object_and_nothing_else() {
    let mut m = matcher(&person());
    let mut mask = mask_of(&m);
    assert_eq!(mask.len(), 300_usize.div_ceil(32));
    assert_eq!(m.mask(&mut mask).unwrap(), MaskStatus::Constrained);
    assert!(has(&mask, b'{'.into()));
    for no in [b'}'.into(), b'"'.into(), STOP, STOP_TOO, TOOL, 259] {
        assert!(!has(&mask, no), "{no}");
    }
    assert_eq!(m.accept(b'{'.into()).unwrap(), Accepted::Taken);
    m.mask(&mut mask).unwrap();
    assert!(has(&mask, b'"'.into()));
    assert!(!has(&mask, b'{'.into()));
    // Past the table, whatever the width of the logits.
    assert!(set(&mask).iter().all(|&t| t < 284));
}

#[test]
fn a_buffer_of_another_length_is_refused() {
    let mut m = matcher(&person());
    let e = m.mask(&mut [0; 9]).unwrap_err();
    assert_eq!(e.kind(), GrammarErrorKind::InvalidOption);
    assert!(m.mask(&mut [0; 10]).is_ok());
}

#[test]
fn an_illegal_token_is_an_error_and_changes_nothing() {
    let mut m = matcher(&person());
    let mut before = mask_of(&m);
    for token in [b'}'.into(), STOP, TOOL, 259, 283, 299, 100_000] {
        let e = m.accept(token).unwrap_err();
        assert_eq!(e.kind(), GrammarErrorKind::IllegalToken, "{token}");
    }
    m.mask(&mut before).unwrap();
    assert!(m.accept(b'}'.into()).is_err());
    let mut after = mask_of(&m);
    m.mask(&mut after).unwrap();
    assert_eq!(before, after);
    assert_eq!(m.accept(b'{'.into()).unwrap(), Accepted::Taken);
}

#[test]
fn every_stop_id_is_legal_where_the_text_may_end_and_nowhere_else() {
    let source = GrammarSource::Regex("[0-9]{1,3}".into());
    let mut m = matcher(&source);
    let mut mask = mask_of(&m);
    m.mask(&mut mask).unwrap();
    assert!(!has(&mask, STOP) && !has(&mask, STOP_TOO));
    assert!(!m.may_end().unwrap());
    m.accept(b'7'.into()).unwrap();
    m.mask(&mut mask).unwrap();
    assert!(has(&mask, STOP) && has(&mask, STOP_TOO) && has(&mask, b'1'.into()));
    assert!(m.may_end().unwrap());
    m.accept(STOP_TOO).unwrap();
    assert!(m.has_ended());
    let kept = mask.clone();
    assert_eq!(m.mask(&mut mask).unwrap(), MaskStatus::Terminated);
    assert_eq!(mask, kept, "the buffer is left as it was");
    assert!(m.accept(b'1'.into()).is_err());
    // Undoing the stop id opens the text again.
    m.rollback(1).unwrap();
    assert_eq!(m.mask(&mut mask).unwrap(), MaskStatus::Constrained);
    assert_eq!(mask, kept);
    m.accept(b'7'.into()).unwrap();
    m.accept(b'7'.into()).unwrap();
    assert_eq!(
        m.mask(&mut mask).unwrap(),
        MaskStatus::Terminated,
        "nothing may follow"
    );
}

#[test]
fn rollback_and_queries_leave_the_state_as_it_was() {
    let grammar = compiler(toy_canonical())
        .compile(&person(), &CancelToken::new())
        .unwrap();
    let mut m = grammar.matcher();
    let mut first = mask_of(&m);
    m.mask(&mut first).unwrap();
    let mut now = mask_of(&m);
    for _ in 0..3 {
        m.accept(b'{'.into()).unwrap();
        m.accept(b'"'.into()).unwrap();
        let forced = m.forced().unwrap();
        assert_eq!(forced, m.forced().unwrap());
        assert_eq!(m.tokens().len(), 2);
        m.rollback(2).unwrap();
        m.mask(&mut now).unwrap();
        assert_eq!(first, now);
    }
    assert!(m.rollback(1).is_err());
    assert!(
        m.accept(b'{'.into()).is_ok(),
        "a refused rollback does no harm"
    );
}

#[test]
fn forced_text_is_the_tokenizers_own_and_leaves_the_straddling_token() {
    let grammar = compiler(toy_canonical())
        .compile(&person(), &CancelToken::new())
        .unwrap();
    let mut m = grammar.matcher();
    let vocabulary = grammar.vocabulary().clone();
    let text = |tokens: &[u32]| {
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|&t| vocabulary.token_bytes(t).to_vec())
            .collect();
        String::from_utf8(bytes).unwrap()
    };
    let forced = m.forced().unwrap();
    // `{"name":"` is forced; `":"` and `"` may go on into the string.
    let said = text(&forced);
    assert!(
        said.starts_with("{\"name") && "{\"name\":\"".starts_with(&said),
        "{said}"
    );
    assert!(said.len() < "{\"name\":\"".len(), "{said}");
    for &t in &forced {
        assert_eq!(m.accept(t).unwrap(), Accepted::Taken);
    }
    assert_eq!(m.counts().forced, forced.len() as u64);
    assert_eq!(m.counts().disagreements, 0);
    // Without the tokenizer's spelling nothing is forced.
    assert!(matcher(&person()).forced().unwrap().is_empty());
}

#[test]
fn a_fork_goes_its_own_way() {
    let mut m = matcher(&GrammarSource::Choice(vec!["abc".into(), "abd".into()]));
    m.accept(b'a'.into()).unwrap();
    let mut fork = m.fork().unwrap();
    m.accept(b'b'.into()).unwrap();
    m.accept(b'c'.into()).unwrap();
    fork.accept(b'b'.into()).unwrap();
    fork.accept(b'd'.into()).unwrap();
    assert_eq!(m.text(), b"abc");
    assert_eq!(fork.text(), b"abd");
    assert!(m.may_end().unwrap() && fork.may_end().unwrap());
}

#[test]
fn after_yes_both_the_end_and_more_are_open() {
    let source = GrammarSource::Choice(vec![
        "yes please".into(),
        "yes".into(),
        "yes".into(),
        "no".into(),
    ]);
    let mut m = matcher(&source);
    let mut mask = mask_of(&m);
    m.mask(&mut mask).unwrap();
    let yes = 256 + 4 + 11;
    assert!(has(&mask, yes) && has(&mask, b'n'.into()));
    m.accept(yes).unwrap();
    m.mask(&mut mask).unwrap();
    assert!(has(&mask, STOP) && has(&mask, b' '.into()) && has(&mask, yes + 1));
    assert_eq!(set(&mask).len(), 4);
    let grammar = compile(&source).unwrap();
    for (text, expected) in [
        ("yes", true),
        ("yes please", true),
        ("no", true),
        ("ye", false),
        ("nos", false),
    ] {
        assert_eq!(accepts(&grammar, text), expected, "{text}");
    }
    let empty = compile(&GrammarSource::Choice(vec![String::new(), "a".into()])).unwrap();
    assert!(accepts(&empty, "") && accepts(&empty, "a") && !accepts(&empty, "b"));
    let e = compile(&GrammarSource::Choice(Vec::new())).unwrap_err();
    assert_eq!(e.first().kind(), GrammarErrorKind::Unsatisfiable);
}

#[test]
fn choices_of_every_shape_are_told_apart() {
    let texts = [
        "", "a", "ab", "aé", "aè", "a\n", "\"q\"", "\\", "日本", "日没", "😀", "\u{7f}",
    ];
    let grammar = compile(&GrammarSource::Choice(texts.map(String::from).to_vec())).unwrap();
    for text in texts {
        assert!(accepts(&grammar, text), "{text:?}");
    }
    for text in ["b", "aéa", "日", "q", "abb"] {
        assert!(!accepts(&grammar, text), "{text:?}");
    }
}

#[test]
fn patterns_match_the_whole_text() {
    for (pattern, yes, no) in [
        ("^[a-c]+$", vec!["a", "abc"], vec!["", "abcd"]),
        ("(?i)ab|cd", vec!["AB", "cD"], vec!["abcd"]),
        (r"\d{2}/\d{2}", vec!["12/34"], vec!["1/34", "١٢/34"]),
        (r"[\w.]+@x", vec!["a.b@x"], vec!["é@x"]),
        ("", vec![""], vec!["a"]),
        ("a.c", vec!["abc", "aéc"], vec!["a\nc"]),
    ] {
        let grammar = compile(&GrammarSource::Regex(pattern.into())).unwrap();
        for text in yes {
            assert!(accepts(&grammar, text), "{pattern} {text}");
        }
        for text in no {
            assert!(!accepts(&grammar, text), "{pattern} {text}");
        }
    }
    for (pattern, kind) in [
        ("a(", GrammarErrorKind::Invalid),
        ("a(?=b)", GrammarErrorKind::Unsupported),
        (r"(a)\1", GrammarErrorKind::Unsupported),
        (r"a\b", GrammarErrorKind::Unsupported),
        ("a$b", GrammarErrorKind::Unsupported),
        (r"[^\s\S]", GrammarErrorKind::Unsatisfiable),
        ("a{200000}", GrammarErrorKind::Limit),
    ] {
        let e = compile(&GrammarSource::Regex(pattern.into())).unwrap_err();
        assert_eq!(e.first().kind(), kind, "{pattern}: {e}");
    }
    let e = compile(&GrammarSource::Regex("ab(".into())).unwrap_err();
    assert!(e.to_string().starts_with("1:3"), "{e}");
}

#[test]
fn a_budget_closes_the_answer() {
    let words = GrammarSource::JsonSchema(json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "tags"],
        "additionalProperties": false,
    }));
    let grammar = compile(&words).unwrap();
    let mut draws = Draws(7);
    for limit in [24, 25, 30, 40, 64, 100] {
        for _ in 0..20 {
            let mut m = grammar.matcher();
            let mut mask = mask_of(&m);
            m.budget(limit).unwrap();
            while m.tokens().len() < limit && m.mask(&mut mask).unwrap() == MaskStatus::Constrained
            {
                let legal = set(&mask);
                // Rarely the closing quote, so that strings would run on.
                let token = legal[draws.below(legal.len())];
                m.accept(token).unwrap();
            }
            assert!(
                m.may_end().unwrap(),
                "{limit}: {:?}",
                String::from_utf8_lossy(m.text())
            );
            serde_json::from_slice::<serde_json::Value>(m.text()).unwrap();
        }
    }
    let e = grammar.matcher().budget(5).unwrap_err();
    assert_eq!(e.kind(), GrammarErrorKind::Budget);
}

#[test]
fn the_reserve_is_the_tokens_of_a_short_answer() {
    let single_bytes = |schema| {
        let tokens = (0..=255u8)
            .map(|b| rushlight_grammar::TokenEntry::Text(vec![b]))
            .collect();
        let vocabulary = Vocabulary::new(rushlight_grammar::TokenTable {
            identity: "bytes".into(),
            tokens,
            stop_ids: vec![],
            logits: 256,
            encode: None,
        })
        .unwrap();
        let source = GrammarSource::JsonSchema(schema);
        compiler(vocabulary)
            .compile(&source, &CancelToken::new())
            .unwrap()
            .reserve()
    };
    assert_eq!(single_bytes(json!({"type": "object"})), 2);
    assert_eq!(
        single_bytes(json!({
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        })),
        11
    );
}

#[test]
fn the_way_out_of_a_pattern_is_the_shortest() {
    // No digit or letter repeated ends this, and four colons are more than a search of all texts finds.
    let source = GrammarSource::JsonSchema(json!({
        "type": "string",
        "pattern": "^[a-z0-9-]+:[a-z0-9.-]+:([a-z0-9-]+)?:[a-z0-9-]+:[0-9]+$",
        "minLength": 9,
    }));
    let grammar = compile(&source).unwrap();
    let mut m = grammar.matcher();
    for byte in "\"a".bytes() {
        m.accept(u32::from(byte)).unwrap();
    }
    // Eight characters more, and the quote.
    let e = m.fork().unwrap().budget(8).unwrap_err();
    assert_eq!(e.kind(), GrammarErrorKind::Budget);
    m.budget(9).unwrap();
    let mut mask = mask_of(&m);
    while m.mask(&mut mask).unwrap() == MaskStatus::Constrained {
        let token = set(&mask)[0];
        m.accept(token).unwrap();
    }
    assert!(m.may_end().unwrap());
    assert_eq!(m.text().len(), 11);
}

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
fn what_is_no_schema_is_a_report() {
    let e = compile(&GrammarSource::JsonSchema(
        json!({"type": "flibbertigibbet"}),
    ))
    .unwrap_err();
    assert!(e.to_string().contains("flibbertigibbet"), "{e}");
    assert!(compile(&GrammarSource::JsonSchema(json!("not valid json {{{"))).is_err());
}

#[test]
fn random_walks_end_valid() {
    let source = GrammarSource::JsonSchema(json!({
        "type": "object",
        "properties": {
            "role": {"enum": ["user", "admin", "guest"]},
            "n": {"type": "integer"},
            "in": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"], "additionalProperties": false},
            "list": {"type": "array", "items": {"type": "number"}, "minItems": 1},
        },
        "required": ["role", "n", "in", "list"],
        "additionalProperties": false,
    }));
    let grammar = compile(&source).unwrap();
    let mut draws = Draws(42);
    for _ in 0..50 {
        let mut m = grammar.matcher();
        let mut mask = mask_of(&m);
        m.budget(120).unwrap();
        let mut steps = 0;
        while m.tokens().len() < 120 && m.mask(&mut mask).unwrap() == MaskStatus::Constrained {
            let legal = set(&mask);
            m.accept(legal[draws.below(legal.len())]).unwrap();
            steps += 1;
            assert!(steps < 1000);
        }
        let value: serde_json::Value = serde_json::from_slice(m.text()).unwrap();
        assert!(["user", "admin", "guest"].contains(&value["role"].as_str().unwrap()));
        assert!(!value["list"].as_array().unwrap().is_empty());
    }
}

#[test]
fn free_text_is_closed_by_the_text_that_ends_it() {
    let thought = GrammarSource::StructuralTag(
        serde_json::json!({"type": "structural_tag", "format": {
            "type": "sequence", "elements": [
                {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"},
                {"type": "regex", "pattern": "yes|no"},
            ],
        }}),
    );
    let lines = GrammarSource::Ebnf("root ::= \"[\" [a-z ]* \"] end of list\"".into());
    for (source, end) in [(thought, "</think>no"), (lines, "] end of list")] {
        let compiler = compiler(toy_canonical());
        let grammar = compiler.compile(&source, &CancelToken::new()).unwrap();
        let mut draws = Draws(5);
        for budget in [30, 60] {
            let mut m = grammar.matcher();
            let mut mask = mask_of(&m);
            m.budget(budget).unwrap();
            while m.mask(&mut mask).unwrap() == MaskStatus::Constrained {
                assert!(
                    m.tokens().len() < budget,
                    "{:?}",
                    String::from_utf8_lossy(m.text())
                );
                let allowed = set(&mask);
                let token = allowed[draws.below(allowed.len())];
                m.accept(token).unwrap();
                if m.has_ended() {
                    break;
                }
            }
            let text = String::from_utf8_lossy(m.text()).into_owned();
            let yes = end.replace("no", "yes");
            assert!(text.ends_with(end) || text.ends_with(&yes), "{text:?}");
        }
    }
}

#[test]
fn a_refused_value_is_not_tried_again_in_another_spelling() {
    let texts = json!({"type": "array", "uniqueItems": true, "minItems": 2, "maxItems": 2,
        "items": {"enum": ["ab the name true", "abc the name true"]}});
    let records = json!({"type": "array", "uniqueItems": true, "minItems": 2, "maxItems": 2, "items": {
        "type": "object", "required": ["a", "name"], "additionalProperties": false,
        "properties": {"a": {"type": "boolean"}, "name": {"const": "the name"}}}});
    for schema in [texts, records] {
        let compiler = compiler(toy_canonical());
        let source = GrammarSource::JsonSchema(schema);
        let grammar = compiler.compile(&source, &CancelToken::new()).unwrap();
        for seed in 0..40 {
            let mut draws = Draws(seed);
            let mut m = grammar.matcher();
            let mut mask = mask_of(&m);
            let forcing = seed % 2 == 0;
            while m.mask(&mut mask).unwrap() == MaskStatus::Constrained {
                let forced = if forcing {
                    m.forced().unwrap()
                } else {
                    Vec::new()
                };
                let token = match forced.first() {
                    Some(&token) => token,
                    None => {
                        let allowed = set(&mask);
                        allowed[draws.below(allowed.len())]
                    }
                };
                m.accept(token).unwrap();
                if m.has_ended() {
                    break;
                }
            }
            let value: serde_json::Value = serde_json::from_slice(m.text()).unwrap();
            assert_ne!(value[0], value[1]);
            assert!(m.counts().excluded <= 4, "seed {seed}: {:?}", m.counts());
        }
    }
}

#[test]
fn loops_before_a_text_that_must_come_are_left_in_time() {
    for source in [
        GrammarSource::Regex("[a-z]+@[a-z]{3}".into()),
        GrammarSource::Regex(".*b".into()),
        GrammarSource::JsonSchema(json!({"type": "string", "format": "email"})),
        GrammarSource::JsonSchema(json!({"type": "array", "minItems": 2, "maxItems": 2,
            "items": {"type": "string", "pattern": "^[a-z]+@[a-z]{3}$"}})),
    ] {
        let compiler = compiler(toy_canonical());
        let grammar = compiler.compile(&source, &CancelToken::new()).unwrap();
        for seed in 0..6 {
            let mut draws = Draws(seed);
            let mut m = grammar.matcher();
            let mut mask = mask_of(&m);
            m.budget(40).unwrap();
            while m.mask(&mut mask).unwrap() == MaskStatus::Constrained && !m.has_ended() {
                assert!(
                    m.tokens().len() < 40,
                    "{source:?}: {:?}",
                    String::from_utf8_lossy(m.text())
                );
                let allowed = set(&mask);
                m.accept(allowed[draws.below(allowed.len())]).unwrap();
            }
            assert!(m.may_end().unwrap());
        }
    }
}

#[test]
fn the_way_to_the_end_goes_round_what_guards_refuse() {
    let grammar = compile(&GrammarSource::JsonSchema(json!({
        "type": "object",
        "properties": {
            "scores": {
                "type": "array", "items": {"type": "integer", "minimum": -100, "maximum": 100},
                "minItems": 5, "maxItems": 5, "uniqueItems": true,
            },
            "names": {"type": "array", "items": {"enum": ["a", "b", "ab"]}, "minItems": 3, "uniqueItems": true},
        },
        "required": ["scores", "names"],
        "additionalProperties": false,
    })))
    .unwrap();
    let mut draws = Draws(11);
    for _ in 0..10 {
        let mut m = grammar.matcher();
        let mut mask = mask_of(&m);
        m.budget(80).unwrap();
        while m.mask(&mut mask).unwrap() == MaskStatus::Constrained {
            let allowed = set(&mask);
            m.accept(allowed[draws.below(allowed.len())]).unwrap();
        }
        assert!(m.may_end().unwrap());
        let value: serde_json::Value = serde_json::from_slice(m.text()).unwrap();
        assert_eq!(value["scores"].as_array().unwrap().len(), 5);
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
fn a_mask_past_its_limit_is_every_sequence_s_error() {
    let compiler = Compiler::new(toy(), limits(|l| l.mask_lexer_work = 1), Default::default());
    let source = GrammarSource::Regex("(name|the|yes)+ please".to_owned());
    let grammar = compiler.compile(&source, &CancelToken::new()).unwrap();
    let mut first = grammar.matcher();
    let mut mask = mask_of(&first);
    let e = first.mask(&mut mask).unwrap_err();
    assert_eq!(e.kind(), GrammarErrorKind::Limit, "{e}");
    let e = grammar.matcher().accept(b'n'.into()).unwrap_err();
    assert_eq!(e.kind(), GrammarErrorKind::Limit, "{e}");
}

#[test]
fn masks_of_one_text_differ_where_a_grammar_counts_tokens() {
    let source = GrammarSource::Ebnf("root ::= !<[0]> !<[0]> \"z\"".to_owned());
    let compiler = compiler(toy());
    let grammar = compiler.compile(&source, &CancelToken::new()).unwrap();
    let whole = (0..256u32)
        .chain(256..300)
        .find(|&id| grammar.vocabulary().token_bytes(id).len() > 1)
        .expect("the toy vocabulary has words");
    let bytes: Vec<u32> = grammar
        .vocabulary()
        .token_bytes(whole)
        .iter()
        .map(|&b| b.into())
        .collect();
    assert_eq!(bytes.len(), 2, "a word of two bytes comes first");
    let mut mask = mask_of(&grammar.matcher());
    for _ in 0..3 {
        let mut one = grammar.matcher();
        one.accept(whole).unwrap();
        one.mask(&mut mask).unwrap();
        assert!(has(&mask, b'q'.into()), "a second token is due");
        let mut two = grammar.matcher();
        for &byte in &bytes {
            two.accept(byte).unwrap();
        }
        two.mask(&mut mask).unwrap();
        assert_eq!(set(&mask), [u32::from(b'z')]);
    }
}

#[test]
fn a_budget_below_the_shortest_answer_is_refused_however_long_that_is() {
    for source in [
        GrammarSource::Choice(vec!["x".repeat(20_000)]),
        GrammarSource::JsonSchema(json!({"enum": ["y".repeat(50_000)]})),
        GrammarSource::JsonSchema(json!({"type": "string", "minLength": 5_000})),
    ] {
        let compiler = compiler(toy_canonical());
        let grammar = compiler.compile(&source, &CancelToken::new()).unwrap();
        let e = grammar.matcher().budget(50).unwrap_err();
        assert_eq!(e.kind(), GrammarErrorKind::Budget, "{e}");
    }
}
