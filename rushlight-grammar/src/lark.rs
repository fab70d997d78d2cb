//! Grammars in the mask engine's variant of Lark.
//!
//! The engine reads them itself. Its parser recurses over groups, so their depth is checked first; and the texts that a grammar
//! spells out are collected, as they end what a token limit has to close. Both look at the text as the engine's lexer cuts it.

mod counts;

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
    let (pieces, unclosed) = pieces(text);
    check_depth(text, &pieces, limits)?;
    counts::check(text, &pieces, limits)?;
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
    while let Some(found) = text
        .get(at..)
        .and_then(|rest| rest.find(['"', '/', '#', '<']))
    {
        let open = at + found;
        let (sign, inside) = text.get(open..).unwrap_or("").split_at(1);
        if sign == "<" {
            // The name of a token, as `</think>`, is code. Where it is none the engine's lexer fails.
            let end = inside.find(|c: char| matches!(c, '<' | '>') || c.is_whitespace());
            at = open + 1 + end.unwrap_or(inside.len());
            continue;
        }
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

/// Checks how deep groups are nested, and how deep they are when every rule stands in the one before: the engine recurses over
/// both.
fn check_depth(text: &str, pieces: &[Piece<'_>], limits: &Limits) -> Result<()> {
    let (mut depth, mut deepest, mut total) = (0usize, 0usize, 0usize);
    let mut before = None;
    for piece in pieces {
        let after = before.replace(piece);
        let Piece::Code(code) = piece else {
            continue;
        };
        // What follows a text is no rule's colon but one of JSON.
        let of_json = match after {
            Some(Piece::Text(_)) => code.len() - code.trim_start().len(),
            _ => usize::MAX,
        };
        for (at, c) in code.char_indices() {
            match c {
                '(' | '[' | '{' => {
                    depth += 1;
                    if depth > deepest {
                        deepest = depth;
                        total += 1;
                    }
                }
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                ':' if at != of_json => {
                    deepest = depth;
                    total += 1;
                }
                _ => {}
            }
            let message = if depth > limits.depth {
                format!("groups are nested more than {} deep", limits.depth)
            } else if total > limits.rules {
                format!("more than {} rules and groups in groups", limits.rules)
            } else {
                continue;
            };
            let start = code.as_ptr().addr() - text.as_ptr().addr();
            return Err(GrammarError::new(GrammarErrorKind::Limit, message)
                .with_place(place(text, start + at)));
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

    #[test]
    fn the_name_of_a_token_opens_nothing() {
        let grammar = "start: <think> \"a\" </think> (\"b\" | </a\"b#c> /x/) // </d>";
        assert_eq!(literals(&pieces(grammar).0), ["a", "b", "x"]);
        let hidden = format!("start: </a> {} </b>", "t{".repeat(1000));
        let error = lower(&hidden, None, &Limits::default()).unwrap_err();
        assert!(
            error.to_string().starts_with("1:514: groups are nested"),
            "{error}"
        );
    }

    #[test]
    fn rules_and_groups_are_counted_as_deep_as_they_may_stand_in_each_other() {
        let limits = Limits {
            rules: 20,
            ..Limits::default()
        };
        let chain = |rules: usize, groups: usize, end: &str| -> String {
            let (open, close) = ("(".repeat(groups), ")".repeat(groups));
            let rules: String = (0..rules)
                .map(|n| format!("r{n}: {open} r{} {close}{end}", n + 1))
                .collect();
            format!("start: r0{end}{rules}")
        };
        for (text, is_within) in [
            (chain(18, 0, "\n"), true),
            (chain(20, 0, "\n"), false),
            (chain(20, 0, " -> x "), false),
            (chain(6, 2, "\n"), true),
            (chain(7, 2, "\n"), false),
            // Beside each other they are no deeper.
            (format!("start: {}", "(\"a\") ".repeat(50)), true),
            (
                format!(
                    "start: %json {{{}\"type\": \"integer\"}}",
                    "\"description\" : \"a:b\", ".repeat(50)
                ),
                true,
            ),
        ] {
            let e = lower(&text, None, &limits).err();
            let is_limit = e.is_some_and(|e| e.to_string().contains("more than 20 rules"));
            assert_eq!(is_limit, !is_within, "{text}");
        }
    }
}
