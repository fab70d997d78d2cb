//! A token budget: the answer closes within it, or is refused.

use std::sync::Arc;

use rushlight_engine::constrain::MaskStatus;
use rushlight_grammar::{
    CancelToken, CompiledGrammar, GrammarErrorKind, GrammarSource, Matcher, Vocabulary,
};
use serde_json::json;

use crate::vocab::{Draws, compile, compiler, mask_of, set, toy_canonical};

/// A matcher after tokens drawn from its masks, as many as `limit` lets it take.
fn drawn_within(grammar: &Arc<CompiledGrammar>, limit: usize, seed: u64) -> Matcher {
    let mut draws = Draws(seed);
    let mut m = grammar.matcher();
    let mut mask = mask_of(&m);
    m.budget(limit).unwrap();
    while m.tokens().len() < limit
        && m.mask(&mut mask).unwrap() == MaskStatus::Constrained
        && !m.has_ended()
    {
        let allowed = set(&mask);
        m.accept(allowed[draws.below(allowed.len())]).unwrap();
    }
    m
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
                if draws.below(9) == 0 {
                    let taken = m.tokens().len();
                    m.rollback(draws.below(taken.min(4) + 1)).unwrap();
                }
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
fn items_that_a_list_has_to_hold_are_said_in_time() {
    for (contains, min) in [
        (json!({"const": 7}), 3),
        (json!({"const": 7}), 17),
        (
            json!({"type": "object", "properties": {"kind": {"const": "sum"}}, "required": ["kind"]}),
            2,
        ),
    ] {
        let grammar = compile(&GrammarSource::JsonSchema(json!({
            "type": "array", "contains": contains, "minContains": min,
        })))
        .unwrap();
        let mut draws = Draws(3);
        let mut m = grammar.matcher();
        let mut mask = mask_of(&m);
        m.budget(60).unwrap();
        while m.mask(&mut mask).unwrap() == MaskStatus::Constrained {
            assert!(
                m.tokens().len() < 60,
                "{:?}",
                String::from_utf8_lossy(m.text())
            );
            let legal = set(&mask);
            m.accept(legal[draws.below(legal.len())]).unwrap();
        }
        assert!(m.may_end().unwrap());
        assert!(m.counts().curtailed > 0);
    }
}

#[test]
fn the_shortest_answer_is_short_in_numbers_and_strings() {
    for (schema, tokens) in [
        (
            json!({"type": "array", "minItems": 2, "items": {"type": "integer", "minimum": 1}}),
            5,
        ),
        (
            json!({"type": "array", "minItems": 2, "items": {"type": "number", "exclusiveMinimum": 0}}),
            9,
        ),
    ] {
        let grammar = compile(&GrammarSource::JsonSchema(schema)).unwrap();
        assert!(grammar.reserve() <= tokens, "{}", grammar.reserve());
    }
}

#[test]
fn a_token_that_leaves_no_room_is_undone_and_one_on_the_way_is_taken() {
    // Each opening bracket makes the way to the end longer by a whole record.
    let record = json!({
        "type": "object",
        "properties": {"more": {"type": "array", "items": {"$ref": "#"}}, "identification": {"type": "string"}},
        "required": ["more", "identification"],
        "additionalProperties": false,
    });
    let grammar = compile(&GrammarSource::JsonSchema(record)).unwrap();
    for limit in [60, 120, 400, 1200] {
        let mut m = grammar.matcher();
        let mut mask = mask_of(&m);
        m.budget(limit).unwrap();
        while m.mask(&mut mask).unwrap() == MaskStatus::Constrained {
            assert!(m.tokens().len() < limit);
            let legal = set(&mask);
            let open = legal.iter().find(|&&token| token == u32::from(b'{'));
            m.accept(*open.unwrap_or(&legal[0])).unwrap();
        }
        let value: serde_json::Value = serde_json::from_slice(m.text()).unwrap();
        assert!(value["more"].is_array());
        // Never one by one through the vocabulary.
        assert!(m.counts().excluded <= 64, "{:?}", m.counts());
    }
}

#[test]
fn an_answer_that_fits_is_said_as_it_is() {
    let city = GrammarSource::JsonSchema(json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "inhabitants": {"type": "integer"}},
        "required": ["city", "inhabitants"],
        "additionalProperties": false,
    }));
    let grammar = compile(&city).unwrap();
    let answer =
        r#"{"city":"Saint-Denis de la Réunion, in the Indian Ocean","inhabitants":113116}"#;
    let limit = answer.len();
    // Far within eight times the shortest answer.
    assert!(limit < 8 * grammar.reserve());
    let mut m = grammar.matcher();
    let mut mask = mask_of(&m);
    m.budget(limit).unwrap();
    for token in answer.bytes().map(u32::from) {
        assert_eq!(m.mask(&mut mask).unwrap(), MaskStatus::Constrained);
        assert!(
            set(&mask).contains(&token),
            "{:?}",
            String::from_utf8_lossy(m.text())
        );
        m.accept(token).unwrap();
    }
    assert_eq!(m.mask(&mut mask).unwrap(), MaskStatus::Terminated);
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
fn a_further_round_of_a_loop_is_not_taken_for_its_end() {
    for source in [
        GrammarSource::Regex(r#""[^"]*"(, "[^"]*")*;"#.into()),
        GrammarSource::Ebnf("root ::= (\"- \" [^\\n]+ \"\\n\")+ \"Done\"\n".into()),
        GrammarSource::Ebnf("root ::= (\"- \" [^\\n]+ \"\\n\")+ \"\\n\"\n".into()),
        GrammarSource::Ebnf(
            "root ::= \"BEGIN\\n\" line{3,} \"FINISHED\"\nline ::= [a-zA-Z ,]+ \"\\n\"\n".into(),
        ),
        GrammarSource::Lark("start: TEXT \".\"\nTEXT: /[a-z]+/\n".into()),
        GrammarSource::Lark("start: TEXT \"</think>\"\nTEXT: /[^<]*/\n".into()),
        GrammarSource::Lark("start: line+ \"END\"\nline: /[^\\n]*/ \"\\n\"\n".into()),
    ] {
        let grammar = compiler(toy_canonical())
            .compile(&source, &CancelToken::new())
            .unwrap();
        for seed in 0..4 {
            let mut m = drawn_within(&grammar, 60, seed);
            let text = String::from_utf8_lossy(m.text()).into_owned();
            assert!(m.may_end().unwrap(), "{source:?}: {text:?}");
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
            let mut m = drawn_within(&grammar, 40, seed);
            assert!(
                m.may_end().unwrap(),
                "{source:?}: {:?}",
                String::from_utf8_lossy(m.text())
            );
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
