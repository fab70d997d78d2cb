//! What a matcher promises, on a toy vocabulary.

use rushlight_engine::constrain::{Accepted, MaskStatus};
use rushlight_grammar::{CancelToken, Compiler, GrammarErrorKind, GrammarSource};
use serde_json::json;

use crate::vocab::{
    Draws, STOP, STOP_TOO, TOOL, accepts, compile, compiler, has, limits, mask_of, matcher, person,
    set, toy, toy_canonical,
};

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
        (
            "[0-9]{4}(-[0-9]{2})?([a-z]+)?",
            vec!["2024", "2024-05z", "2024x"],
            vec!["2024-"],
        ),
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
fn a_repetition_may_be_repeated() {
    const TIMES: [(&str, usize, usize); 9] = [
        ("?", 0, 1),
        ("??", 0, 1),
        ("*", 0, 9),
        ("*?", 0, 9),
        ("+", 1, 9),
        ("+?", 1, 9),
        ("{2}", 2, 2),
        ("{0,2}", 0, 2),
        ("{2,}", 2, 9),
    ];
    for (inner, least, most) in TIMES {
        for (outer, at_least, at_most) in TIMES {
            for (open, close) in [("(", ")"), ("(?:", ")"), ("((?:", "))")] {
                let pattern = format!("x{open}a{inner}{close}{outer}y");
                let grammar = compile(&GrammarSource::Regex(pattern.clone())).unwrap();
                for count in 0..6 {
                    let may = (at_least..=at_most).any(|n| (n * least..=n * most).contains(&count));
                    let text = format!("x{}y", "a".repeat(count));
                    assert_eq!(accepts(&grammar, &text), may, "{pattern} {text}");
                }
            }
        }
    }
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
