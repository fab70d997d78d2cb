//! Grammars in the mask engine's variant of Lark.
//!
//! The engine reads them itself. Its parser recurses over groups, so their depth is checked first; and the texts that a grammar
//! spells out are collected, as they end what a token limit has to close. Both look at the text as the engine's lexer cuts it.

use std::panic::AssertUnwindSafe;

use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::panic_utils;

use crate::compile::engine_error;
use crate::error::{GrammarError, GrammarErrorKind, Place, Result};
use crate::limits::Limits;
use crate::lower::Lowered;
use crate::regex;
use crate::vocabulary::Vocabulary;

/// Lowers a grammar.
///
/// # Errors
/// [`GrammarErrorKind::Invalid`] and [`GrammarErrorKind::Limit`].
pub(crate) fn lower(
    text: &str,
    vocabulary: Option<&Vocabulary>,
    limits: &Limits,
) -> Result<Lowered> {
    limits.check_bytes(text.len())?;
    let rules = text.lines().filter(|line| line.contains(':')).count();
    if rules > limits.rules {
        return Err(GrammarError::new(
            GrammarErrorKind::Limit,
            format!("{rules} rules; the limit is {}", limits.rules),
        ));
    }
    let (pieces, unclosed) = pieces(text);
    check_depth(text, &pieces, limits)?;
    if let Some(open) = unclosed {
        let what = match text.as_bytes().get(open) {
            Some(b'"') => "a text",
            _ => "a pattern",
        };
        let message = format!("{what} that is not closed");
        return Err(
            GrammarError::new(GrammarErrorKind::Invalid, message).with_place(place(text, open))
        );
    }
    let grammar = GrammarInit::Serialized(TopLevelGrammar::from_lark(text.to_owned()));
    let tokens = vocabulary.map(|vocabulary| vocabulary.factory().tok_env().clone());
    let engine = limits.engine();
    let (grammar, lexer) =
        panic_utils::catch_unwind(AssertUnwindSafe(|| grammar.to_internal(tokens, engine)))
            .map_err(|e| engine_error(&e.to_string(), text))?;
    Ok(Lowered {
        closers: literals(&pieces),
        ..Lowered::from(GrammarInit::Internal(grammar, lexer))
    })
}

/// A part of a grammar's text, without its delimiters; comments are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Code(&'a str),
    Text(&'a str),
    Pattern(&'a str),
}

/// The pieces of `text`, and where one begins that is not closed: from there on all is code.
fn pieces(text: &str) -> (Vec<Piece<'_>>, Option<usize>) {
    let mut out = Vec::new();
    let (mut code, mut at, mut unclosed) = (0, 0, None);
    while let Some(found) = text.get(at..).and_then(|rest| rest.find(['"', '/', '#'])) {
        let open = at + found;
        let (sign, inside) = text.get(open..).unwrap_or("").split_at(1);
        let is_comment = sign == "#" || sign == "/" && inside.starts_with('/');
        let body = match sign {
            _ if is_comment => inside.split('\n').next(),
            // A pattern may go over lines, a text does not.
            "/" => closed(inside, '/', false).filter(|body| !body.is_empty()),
            _ => closed(inside, '"', true),
        };
        let Some(body) = body else {
            unclosed = Some(open);
            break;
        };
        at = open + 1;
        out.extend(text.get(code..open).map(Piece::Code));
        at += body.len();
        if !is_comment {
            at += 1;
            out.push(match sign {
                "/" => Piece::Pattern(body),
                _ => Piece::Text(body),
            });
        }
        code = at;
    }
    out.extend(text.get(code..).map(Piece::Code));
    (out, unclosed)
}

/// Line and column, in characters, of the byte `at`.
fn place(text: &str, at: usize) -> Place {
    let before = text.get(..at).unwrap_or("");
    let line = before.rsplit('\n').next().unwrap_or("");
    Place::Text {
        rule: None,
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
    }
}

/// What stands before the first `end` that no backslash escapes.
fn closed(inside: &str, end: char, in_line: bool) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            '\n' if in_line || escaped => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == end => return inside.get(..at),
            _ => {}
        }
    }
    None
}

fn check_depth(text: &str, pieces: &[Piece<'_>], limits: &Limits) -> Result<()> {
    let mut depth = 0usize;
    for piece in pieces {
        let Piece::Code(code) = piece else {
            continue;
        };
        for (at, c) in code.char_indices() {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > limits.depth {
                let start = code.as_ptr().addr() - text.as_ptr().addr();
                return Err(GrammarError::new(
                    GrammarErrorKind::Limit,
                    format!("groups are nested more than {} deep", limits.depth),
                )
                .with_place(place(text, start + at)));
            }
        }
    }
    Ok(())
}

/// The texts that a grammar spells out, in its texts and its patterns.
fn literals(pieces: &[Piece<'_>]) -> Vec<String> {
    let mut texts = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Code(_) => {}
            Piece::Text(body) => {
                texts.extend(serde_json::from_str::<String>(&format!("\"{body}\"")).ok());
            }
            Piece::Pattern(body) => texts.extend(regex::literals(body)),
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_patterns_are_told_from_code_and_comments() {
        let grammar = "// \"no\"\nstart: \"<think>\" TEXT \"\\n\" | /[a-z]+end/\nTEXT: /a\\/b/ # \"no\"\nb: \"c#d\"";
        assert_eq!(
            literals(&pieces(grammar).0),
            ["<think>", "\n", "end", "a/b", "c#d"]
        );
        assert_eq!(
            pieces("a: /x\n\"/ (\"b").0,
            [
                Piece::Code("a: "),
                Piece::Pattern("x\n\""),
                Piece::Code(" (\"b")
            ]
        );
    }

    #[test]
    fn deep_lark_is_refused_with_line_and_column() {
        let text = format!("start: {}\"a\"{}", "(".repeat(300), ")".repeat(300));
        let e = lower(&text, None, &Limits::default()).unwrap_err();
        assert_eq!(e.kind(), GrammarErrorKind::Limit);
        assert!(e.to_string().starts_with("1:258: "), "{e}");
    }

    #[test]
    fn what_is_not_closed_is_told_where_it_opens() {
        for (text, told) in [
            ("start: /a|b", "1:8: a pattern that is not closed"),
            (
                "start: é\né: \"a\nb: \"c\"",
                "2:4: a text that is not closed",
            ),
        ] {
            let e = lower(text, None, &Limits::default()).unwrap_err();
            assert_eq!(e.to_string(), told);
        }
    }

    #[test]
    fn what_is_not_closed_is_read_once() {
        let text = format!("a: \"{}", "\\\"".repeat(2 << 20));
        assert_eq!(pieces(&text).0.len(), 1);
    }

    #[test]
    fn groups_are_counted_in_code_alone() {
        let limits = Limits::default();
        let deep = "(".repeat(limits.depth + 1);
        for sound in [
            format!("start: \"a\" // {deep}"),
            format!("start: \"{deep}\""),
            format!("start: \"b\" # {deep}"),
        ] {
            lower(&sound, None, &limits).unwrap();
        }
        // Whatever seems to open before them.
        for hidden in ["a: ", "a: /x\n\"/ ", "a: \"é\" \"", "a: /x\\/ "] {
            let error = lower(&format!("{hidden}{deep}"), None, &limits).unwrap_err();
            assert_eq!(error.kind(), GrammarErrorKind::Limit, "{hidden}");
        }
    }
}
