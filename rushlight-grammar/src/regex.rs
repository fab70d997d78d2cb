//! A pattern that the whole answer matches.
//!
//! The dialect is that of Rust's `regex` crate, without what a finite automaton cannot do: no back references, no look-around
//! (`\b` included). The pattern is anchored at both ends; `^` and `$` may stand there and nowhere else. `.` is any character but
//! a line feed. `\d`, `\w`, `\s` and their opposites are ASCII; the inline flags `(?i)`, `(?s)` and `(?x)` work.

use llguidance::derivre::RegexAst;
use regex_syntax::hir::{Hir, HirKind, Look};

use crate::error::{GrammarError, GrammarErrorKind, Place, Result};
use crate::limits::Limits;
use crate::lower::Lowered;
use crate::target::Target;

/// Lowers `pattern`.
///
/// # Errors
/// [`GrammarErrorKind::Invalid`] with line and column for what is no pattern, [`GrammarErrorKind::Unsupported`] for look-around,
/// [`GrammarErrorKind::Unsatisfiable`] for a pattern that matches nothing, [`GrammarErrorKind::Limit`].
pub fn lower(pattern: &str, limits: &Limits) -> Result<Lowered> {
    let expression = RegexAst::Regex(printed(pattern, limits)?);
    let mut target = Target::new(limits)?;
    let first = target.lexeme(expression)?;
    Ok(Lowered {
        closers: literals(pattern),
        ..Lowered::from(target.finish(first)?)
    })
}

/// The texts that `pattern` spells out; none where it is no pattern of this dialect.
pub(crate) fn literals(pattern: &str) -> Vec<String> {
    let Ok(hir) = regex_syntax::parse(pattern) else {
        return Vec::new();
    };
    let mut texts = Vec::new();
    let mut open = vec![&hir];
    while let Some(part) = open.pop() {
        match part.kind() {
            HirKind::Literal(literal) => {
                texts.extend(String::from_utf8(literal.0.to_vec()));
            }
            HirKind::Repetition(repetition) => open.push(&repetition.sub),
            HirKind::Capture(capture) => open.push(&capture.sub),
            HirKind::Concat(parts) | HirKind::Alternation(parts) => open.extend(parts.iter().rev()),
            HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => {}
        }
    }
    texts
}

/// The pattern as the mask engine spells it, without anchors.
///
/// # Errors
/// Those of [`lower`].
pub(crate) fn printed(pattern: &str, limits: &Limits) -> Result<String> {
    limits.check_bytes(pattern.len())?;
    let ascii = ascii_classes(pattern);
    let hir = parse(&ascii, pattern, limits)?;
    let body = strip_anchors(&hir);
    check_looks(&body)?;
    if body.properties().minimum_len().is_none() {
        return Err(GrammarError::new(
            GrammarErrorKind::Unsatisfiable,
            "the pattern matches no text",
        ));
    }
    check_repeats(&body, limits)?;
    // Printed from the parsed form: flags are resolved, and the anchors gone.
    Ok(body.to_string())
}

fn parse(pattern: &str, original: &str, limits: &Limits) -> Result<Hir> {
    let depth = u32::try_from(limits.depth).unwrap_or(u32::MAX);
    regex_syntax::ParserBuilder::new()
        .nest_limit(depth)
        .unicode(true)
        .utf8(true)
        .build()
        .parse(pattern)
        .map_err(|e| {
            let (kind, message, span) = match &e {
                regex_syntax::Error::Parse(e) => (
                    match e.kind() {
                        regex_syntax::ast::ErrorKind::NestLimitExceeded(_) => {
                            GrammarErrorKind::Limit
                        }
                        regex_syntax::ast::ErrorKind::UnsupportedLookAround
                        | regex_syntax::ast::ErrorKind::UnsupportedBackreference => {
                            GrammarErrorKind::Unsupported
                        }
                        _ => GrammarErrorKind::Invalid,
                    },
                    e.kind().to_string(),
                    Some(*e.span()),
                ),
                regex_syntax::Error::Translate(e) => (
                    GrammarErrorKind::Invalid,
                    e.kind().to_string(),
                    Some(*e.span()),
                ),
                _ => (GrammarErrorKind::Invalid, e.to_string(), None),
            };
            let error = GrammarError::new(kind, format!("pattern: {message}"));
            match span {
                // Columns of the text as it was given; classes written out before them shift it.
                Some(span) if pattern == original => error.with_place(Place::Text {
                    rule: None,
                    line: span.start.line,
                    column: span.start.column,
                }),
                _ => error,
            }
        })
}

/// Writes `\d`, `\w` and `\s` out as ASCII classes.
fn ascii_classes(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let class = match chars.peek() {
            Some('d') => "[0-9]",
            Some('D') => "[^0-9]",
            Some('w') => "[0-9A-Za-z_]",
            Some('W') => "[^0-9A-Za-z_]",
            Some('s') => "[ \\t\\n\\r\\x0b\\x0c]",
            Some('S') => "[^ \\t\\n\\r\\x0b\\x0c]",
            _ => "",
        };
        if class.is_empty() {
            out.push(c);
            out.extend(chars.next());
        } else {
            // Classes nest, so this stands inside brackets too.
            out.push_str(class);
            chars.next();
        }
    }
    out
}

/// The pattern without `^` at its start and `$` at its end, through groups and alternatives.
fn strip_anchors(hir: &Hir) -> Hir {
    strip_side(&strip_side(hir, true), false)
}

fn strip_side(hir: &Hir, start: bool) -> Hir {
    let anchor = if start { Look::Start } else { Look::End };
    match hir.kind() {
        HirKind::Look(look) if *look == anchor => Hir::empty(),
        HirKind::Capture(capture) => strip_side(&capture.sub, start),
        HirKind::Alternation(ways) => {
            Hir::alternation(ways.iter().map(|way| strip_side(way, start)).collect())
        }
        HirKind::Concat(parts) => {
            let mut parts = parts.clone();
            let side = if start {
                parts.first_mut()
            } else {
                parts.last_mut()
            };
            if let Some(part) = side {
                *part = strip_side(part, start);
            }
            Hir::concat(parts)
        }
        _ => hir.clone(),
    }
}

fn check_looks(hir: &Hir) -> Result<()> {
    if hir.properties().look_set().is_empty() {
        return Ok(());
    }
    Err(GrammarError::new(
        GrammarErrorKind::Unsupported,
        "pattern: an anchor or word boundary that is not at the pattern's start or end",
    ))
}

/// Depth is bounded by the parser's own limit.
fn check_repeats(hir: &Hir, limits: &Limits) -> Result<()> {
    match hir.kind() {
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(repetition.min);
            if usize::try_from(most).unwrap_or(usize::MAX) > limits.repeat {
                return Err(GrammarError::new(
                    GrammarErrorKind::Limit,
                    format!(
                        "pattern: a repetition of {most}; the limit is {}",
                        limits.repeat
                    ),
                ));
            }
            check_repeats(&repetition.sub, limits)
        }
        HirKind::Capture(capture) => check_repeats(&capture.sub, limits),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts
            .iter()
            .try_for_each(|part| check_repeats(part, limits)),
        _ => Ok(()),
    }
}
