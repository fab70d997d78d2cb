//! Grammars in llama.cpp's spelling: what they accept, what is refused, and that reading lexemes loses no text.

use std::time::Instant;

use crate::vocab::{TOOL, accepts, compile, has, mask_of, matcher, set};
use rushlight_grammar::{GrammarErrorKind, GrammarSource, Limits, ebnf};

const JSON: &str = r##"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"##;

#[test]
fn grammars_accept_their_texts_and_no_others() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("root ::= \"a\"", &["a"], &["", "b", "aa"]),
        ("root ::= [a-c]{2,3}", &["ab", "abc"], &["a", "abca", "ad"]),
        ("root ::= \"x\"{2}", &["xx"], &["x", "xxx"]),
        ("root ::= \"x\"{2,}", &["xx", "xxxxx"], &["x"]),
        (
            "root ::= \"a\"? \"b\"* \"c\"+",
            &["c", "abbc", "acc"],
            &["ab", "b"],
        ),
        (
            r#"root ::= "\x41\u00e9\U0001F600\t\"""#,
            &["Aé😀\t\""],
            &["A"],
        ),
        ("root ::= [^a\\]] .", &["bé", "é]", "b\n"], &["ab", "]b"]),
        (
            "root ::= a | b\na ::= \"x\"\nb ::= \"y\" a",
            &["x", "yx"],
            &["y", "xy"],
        ),
        (
            "root ::= \"(\" root \")\" | \"\"",
            &["", "()", "((()))"],
            &["(", "(()", ")"],
        ),
        (
            "root ::= \"a\" root \"b\" | \"ab\"",
            &["ab", "aabb", "aaabbb"],
            &["aab", "abab"],
        ),
        // Reading the longest would lose these.
        (
            "root ::= (\"a\" | \"ab\") tail\ntail ::= \"b\" tail \"c\" | \"\"",
            &["ab", "abc", "abbc", "a", "abbcc"],
            &["b", "abcc", "abb"],
        ),
        (
            "root ::= [a-z]+ tail\ntail ::= [a-z] tail \"!\" | \".\"",
            &["a.", "ab.", "ab.!", "abc.!!", "abc."],
            &["a.!", "ab.!!", "."],
        ),
        (
            "root ::= x root y | \"|\"\nx ::= [0-9]+\ny ::= [0-9]+ \";\"",
            &["|", "1|2;", "12|3;", "1|23;", "12|3;4;"],
            &["1|", "1|2;3;"],
        ),
        ("root ::= (\"a\"*)*", &["", "a", "aaa"], &["b"]),
        (
            "root ::= w (\",\" w)*\nw ::= [a-z] w | [a-z]",
            &["a", "ab,c"],
            &[",", "a,"],
        ),
        ("root ::= \"\"", &[""], &["a"]),
        (
            "root ::= (\"a\" | \"\") (\"b\" | \"\")",
            &["", "a", "b", "ab"],
            &["ba"],
        ),
        (
            "root ::=\n  \"a\" |\n  \"b\"\n  | \"c\"\n",
            &["a", "b", "c"],
            &["ab"],
        ),
    ];
    for (grammar, yes, no) in cases {
        let compiled = compile(&GrammarSource::Ebnf((*grammar).into()))
            .unwrap_or_else(|e| panic!("{grammar}: {e}"));
        for text in *yes {
            assert!(accepts(&compiled, text), "{grammar}\n  accepts {text:?}");
        }
        for text in *no {
            assert!(!accepts(&compiled, text), "{grammar}\n  refuses {text:?}");
        }
    }
}

#[test]
fn texts_may_be_put_together_in_more_ways_than_one() {
    for (text, whole) in [
        (r#"root ::= "a" "bcd" | "abcd""#, "abcd"),
        (r#"root ::= "a" ("" | "") "bcd" | "abcd""#, "abcd"),
        (r#"root ::= "a" [b] "cde" | "abcde""#, "abcde"),
        (r#"root ::= ("ab" | "ab") "cd" | "a" "bcd""#, "abcd"),
        (
            "root ::= a b | \"foobar\" | c\na ::= \"foo\"\nb ::= \"bar\"\nc ::= a [b] \"ar\"",
            "foobar",
        ),
    ] {
        let grammar =
            compile(&GrammarSource::Ebnf(text.into())).unwrap_or_else(|e| panic!("{text}: {e}"));
        let mut m = grammar.matcher();
        for byte in whole.bytes() {
            m.accept(byte.into())
                .unwrap_or_else(|e| panic!("{text}: {e}"));
        }
        assert!(m.may_end().unwrap(), "{text}");
    }
    for (pattern, whole) in [
        ("a(|)bc|abc", "abc"),
        ("a(?:bc|b[c])de|abcde", "abcde"),
        ("a(?:(?:)|x{0})bc|abc", "abc"),
    ] {
        let grammar = compile(&GrammarSource::Regex(pattern.into()))
            .unwrap_or_else(|e| panic!("{pattern}: {e}"));
        let mut m = grammar.matcher();
        for byte in whole.bytes() {
            m.accept(byte.into())
                .unwrap_or_else(|e| panic!("{pattern}: {e}"));
        }
        assert!(m.may_end().unwrap(), "{pattern}");
    }
}

#[test]
fn the_json_grammar_of_llama_cpp_is_json() {
    let grammar = compile(&GrammarSource::Ebnf(JSON.into())).unwrap();
    for text in [
        "{}",
        r#"{"a":1}"#,
        r#"{"a": [1, 2.5e-3, -0, {"b": "\u00e9\n\"x"}], "c":true}"#,
        "{\n\t\t\"k\":\n null\n}\n",
        r#"{"a":[[[]]]}"#,
    ] {
        assert!(accepts(&grammar, text), "{text}");
    }
    for text in [
        "",
        "[]",
        "{\"a\":01}",
        "{\"a\":1,}",
        "{'a':1}",
        "{\"a\":\"\u{1}\"}",
        "{ \t\"a\":1}",
    ] {
        assert!(!accepts(&grammar, text), "{text}");
    }
}

#[test]
fn tokens_are_named_or_numbered() {
    let mut m = matcher(&GrammarSource::Ebnf(
        "root ::= \"a\" <|tool|> !<[97]> <[258]>".into(),
    ));
    let mut mask = mask_of(&m);
    m.accept(b'a'.into()).unwrap();
    m.mask(&mut mask).unwrap();
    assert_eq!(set(&mask), [TOOL]);
    m.accept(crate::vocab::TOOL).unwrap();
    m.mask(&mut mask).unwrap();
    assert!(has(&mask, b'b'.into()) && !has(&mask, b'a'.into()) && !has(&mask, 259));
    m.accept(b'b'.into()).unwrap();
    m.accept(crate::vocab::TOOL).unwrap();
    assert!(m.may_end().unwrap());
    m.rollback(3).unwrap();
    m.mask(&mut mask).unwrap();
    assert_eq!(set(&mask), [TOOL]);
    for (text, kind) in [
        ("root ::= \"a\" <|nothing|>", GrammarErrorKind::Undefined),
        ("root ::= <[9999]>", GrammarErrorKind::Undefined),
        ("root ::= !<|tool|>", GrammarErrorKind::Unsupported),
    ] {
        let e = compile(&GrammarSource::Ebnf(text.into())).unwrap_err();
        assert_eq!(e.first().kind(), kind, "{text}: {e}");
        assert!(e.to_string().starts_with("1:"), "{e}");
    }
}

#[test]
fn a_report_has_every_problem() {
    let text = "root ::= x y\nx ::= x \"a\" | \"b\"\nx ::= \"c\"\n";
    let e = compile(&GrammarSource::Ebnf(text.into())).unwrap_err();
    let kinds: Vec<_> = e.problems().map(|p| p.kind()).collect();
    assert_eq!(
        kinds,
        [GrammarErrorKind::Duplicate, GrammarErrorKind::Undefined]
    );
    let e = compile(&GrammarSource::Ebnf("root ::= root \"a\" | \"b\"".into())).unwrap_err();
    assert_eq!(
        e.to_string(),
        "1:10 in rule 'root': left recursion: this rule starts with itself"
    );
    let notes = ebnf::inspect(
        "root ::= (\"a\"*)+ | \"b\"\nlost ::= \"c\"",
        &Limits::default(),
    )
    .unwrap();
    assert!(
        notes
            .iter()
            .any(|n| n.kind() == GrammarErrorKind::Unreachable)
    );
}

#[test]
fn hostile_grammars_are_errors_or_work() {
    let nested = format!("root ::= {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000));
    let mut chain = String::new();
    for n in 0..5000 {
        chain.push_str(&format!("r{n} ::= \"a\" r{}\n", n + 1));
    }
    let chain = format!("root ::= r0\n{chain}r5000 ::= \"b\"\n");
    let mut doubled = String::from("root ::= r0\n");
    for n in 0..60 {
        doubled.push_str(&format!("r{n} ::= r{} r{}\n", n + 1, n + 1));
    }
    doubled.push_str("r60 ::= \"\"\n");
    let units: String = (0..5000)
        .map(|n| format!("u{n} ::= u{}\n", n + 1))
        .collect();
    let cycle: String = (0..5000)
        .map(|n| format!("c{n} ::= c{} | \"x\"\n", (n + 1) % 5000))
        .collect();
    // A cycle against the order in which rules are looked at.
    let long = "[ab] \"c\" ".repeat(10);
    let adverse: String = (0..20_000)
        .map(|n| format!("r{n} ::= \"a\" r{} | \"q\" r0 {long}\n", n + 1))
        .collect();
    let adverse = format!("root ::= r0 | r20000\n{adverse}r20000 ::= \"z\" | \"y\" r0\n");
    // Every rule of a cycle becomes shorter once for each rule of another one.
    let mut late = String::from("root ::= r0\n");
    for n in 0..9_900 {
        let next = if n < 9_899 {
            (format!("\"a\" r{}", n + 1), format!("\"aa\" l{}", n + 1))
        } else {
            ("\"a\" r0 | \"b\"".to_owned(), "\"cccc\"".to_owned())
        };
        late.push_str(&format!(
            "r{n} ::= {} | l{n}\nl{n} ::= {}\n",
            next.0, next.1
        ));
    }
    // One rule uses every other one of its cycle.
    let uses: String = (0..19_000).map(|n| format!(" r{n}")).collect();
    let wide: String = (0..19_000)
        .map(|n| format!("r{n} ::= \"a\"{{{}}} | \"(\" root \")\"\n", n % 40 + 1))
        .collect();
    for (name, text) in [
        ("wide", format!("root ::={uses} | \"xx\"\n{wide}")),
        ("late", late),
        ("adverse", adverse),
        ("nested", nested),
        ("left", "root ::= root \"a\" | \"b\"".to_owned()),
        ("stars", "root ::= (\"a\"*)*".to_owned()),
        ("chain", chain),
        ("doubled", doubled),
        ("units", format!("root ::= u0\n{units}u5000 ::= \"b\"\n")),
        ("cycle", format!("root ::= c0\n{cycle}")),
        (
            "counts",
            "root ::= (([a-z]{1,2000}){1,2000} \"x\"){1,2000}".to_owned(),
        ),
        (
            "recursive counts",
            "root ::= (\"(\" root \")\"){0,100000} | \"x\"".to_owned(),
        ),
    ] {
        let begun = Instant::now();
        let kind = match compile(&GrammarSource::Ebnf(text)) {
            Ok(grammar) => {
                let mut m = grammar.matcher();
                let mut mask = mask_of(&m);
                let taken = m.mask(&mut mask).and_then(|_| {
                    let first = set(&mask).first().copied();
                    first.map_or(Ok(()), |token| m.accept(token).map(drop))
                });
                taken.err().map(|e| e.kind())
            }
            Err(report) => Some(report.first().kind()),
        };
        assert_ne!(kind, Some(GrammarErrorKind::Internal), "{name}");
        // The toy vocabulary of each compile takes part of it.
        eprintln!("{name}: {:?}", begun.elapsed());
    }
}
