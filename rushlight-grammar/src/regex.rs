//! A pattern that the whole answer matches.
//!
//! The dialect is that of Rust's `regex` crate, without what a finite automaton cannot do: no back references, no look-around
//! (`\b` included). The pattern is anchored at both ends; `^` and `$` may stand there and nowhere else. `.` is any character but
//! a line feed. `\d`, `\w`, `\s` and their opposites are ASCII; the inline flags `(?i)`, `(?s)` and `(?x)` work. `(?i)` folds
//! classes as Unicode does: with it `\w`, as `[a-z]`, has `ſ` and the Kelvin sign too.

use llguidance::derivre::RegexAst;
use regex_syntax::ast::{
    Assertion, AssertionKind, Ast, ClassAscii, ClassAsciiKind, ClassBracketed, ClassPerl,
    ClassPerlKind, ClassSet, ClassSetItem, ErrorKind, RepetitionKind, RepetitionRange, Span,
};
use regex_syntax::hir::{Capture, Class, Hir, HirKind, Look, Repetition};

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
    let read = Read::new(pattern, limits)?;
    read.check_repeats(&read.ast, limits)?;
    limits.check_times(times(&read.ast))?;
    let body = strip_anchors(&read.hir);
    read.check_looks(&body)?;
    let Some(body) = satisfiable(&body) else {
        return Err(GrammarError::new(
            GrammarErrorKind::Unsatisfiable,
            "the pattern matches no text",
        ));
    };
    // Printed from the parsed form: flags are resolved, and the anchors gone.
    Ok(body.to_string())
}

/// How often the most repeated part of `pattern` may stand in a text, where its repetitions have an end; 1 where it is no pattern.
pub(crate) fn times_of(pattern: &str) -> usize {
    let parsed = regex_syntax::ast::parse::Parser::new().parse(pattern);
    parsed.map_or(1, |ast| times(&ast))
}

/// Depth is bounded by the parser's own limit.
fn times(ast: &Ast) -> usize {
    let inside = parts(ast).iter().map(times).max().unwrap_or(1);
    inside.saturating_mul(match ast {
        Ast::Repetition(repetition) => match &repetition.op.kind {
            RepetitionKind::Range(range) => most(range).max(1),
            _ => 1,
        },
        _ => 1,
    })
}

fn most(range: &RepetitionRange) -> usize {
    let most = match *range {
        RepetitionRange::Exactly(n) | RepetitionRange::AtLeast(n) => n,
        RepetitionRange::Bounded(_, most) => most,
    };
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// A pattern, read.
struct Read<'p> {
    pattern: &'p str,
    ast: Ast,
    hir: Hir,
}

impl<'p> Read<'p> {
    fn new(pattern: &'p str, limits: &Limits) -> Result<Self> {
        let depth = u32::try_from(limits.depth).unwrap_or(u32::MAX);
        let parsed = regex_syntax::ast::parse::ParserBuilder::new()
            .nest_limit(depth)
            .build()
            .parse(pattern);
        let mut ast = parsed.map_err(|e| {
            let kind = match e.kind() {
                ErrorKind::NestLimitExceeded(_) => GrammarErrorKind::Limit,
                ErrorKind::UnsupportedLookAround | ErrorKind::UnsupportedBackreference => {
                    GrammarErrorKind::Unsupported
                }
                _ => GrammarErrorKind::Invalid,
            };
            let at = place(pattern, e.span().start.offset);
            GrammarError::new(kind, format!("pattern: {}", e.kind())).with_place(at)
        })?;
        to_ascii(&mut ast);
        let translated = regex_syntax::hir::translate::TranslatorBuilder::new()
            .unicode(true)
            .utf8(true)
            .build()
            .translate(pattern, &ast);
        let hir = translated.map_err(|e| {
            let at = place(pattern, e.span().start.offset);
            let message = format!("pattern: {}", e.kind());
            GrammarError::new(GrammarErrorKind::Invalid, message).with_place(at)
        })?;
        Ok(Self { pattern, ast, hir })
    }

    fn at(&self, error: GrammarError, span: &Span) -> GrammarError {
        error.with_place(place(self.pattern, span.start.offset))
    }

    /// Depth is bounded by the parser's own limit.
    fn check_repeats(&self, ast: &Ast, limits: &Limits) -> Result<()> {
        if let Ast::Repetition(repetition) = ast
            && let RepetitionKind::Range(range) = &repetition.op.kind
        {
            let most = most(range);
            if most > limits.repeat {
                let limit = limits.repeat;
                let message = format!("pattern: a repetition of {most}; the limit is {limit}");
                let error = GrammarError::new(GrammarErrorKind::Limit, message);
                return Err(self.at(error, &repetition.op.span));
            }
        }
        parts(ast)
            .iter()
            .try_for_each(|part| self.check_repeats(part, limits))
    }

    /// Refuses what `body`, the pattern without its anchors, looks at beside the characters that it reads.
    fn check_looks(&self, body: &Hir) -> Result<()> {
        let looks = body.properties().look_set();
        if looks.is_empty() {
            return Ok(());
        }
        let message = if looks.contains_word() {
            "word boundaries are not supported"
        } else if looks.contains(Look::Start) || looks.contains(Look::End) {
            "an anchor that is not at the pattern's start or end"
        } else {
            "anchors of lines, as of (?m), are not supported"
        };
        let error = GrammarError::new(GrammarErrorKind::Unsupported, format!("pattern: {message}"));
        let inside = !looks.contains_word() && looks.contains_anchor_haystack();
        let wanted = |assertion: &Assertion| {
            let is_anchor = matches!(
                assertion.kind,
                AssertionKind::StartLine
                    | AssertionKind::EndLine
                    | AssertionKind::StartText
                    | AssertionKind::EndText
            );
            is_anchor != looks.contains_word()
        };
        Err(match assertion(&self.ast, (inside, inside), &wanted) {
            Some(span) => self.at(error, &span),
            None => error,
        })
    }
}

/// The first assertion that `wanted` names; not those at the pattern's start or its end where `skip` says so.
fn assertion(ast: &Ast, skip: (bool, bool), wanted: &impl Fn(&Assertion) -> bool) -> Option<Span> {
    match ast {
        Ast::Assertion(found) => {
            let stands = match found.kind {
                AssertionKind::StartLine | AssertionKind::StartText => skip.0,
                AssertionKind::EndLine | AssertionKind::EndText => skip.1,
                _ => false,
            };
            (!stands && wanted(found)).then_some(found.span)
        }
        Ast::Concat(concat) => {
            let reads = |part: &Ast| !matches!(part, Ast::Flags(_));
            let first = concat.asts.iter().position(reads);
            let last = concat.asts.iter().rposition(reads);
            concat.asts.iter().enumerate().find_map(|(at, part)| {
                let skip = (skip.0 && Some(at) == first, skip.1 && Some(at) == last);
                assertion(part, skip, wanted)
            })
        }
        Ast::Repetition(repetition) => assertion(&repetition.ast, (false, false), wanted),
        _ => parts(ast)
            .iter()
            .find_map(|part| assertion(part, skip, wanted)),
    }
}

fn parts(ast: &Ast) -> &[Ast] {
    match ast {
        Ast::Repetition(repetition) => std::slice::from_ref(&*repetition.ast),
        Ast::Group(group) => std::slice::from_ref(&*group.ast),
        Ast::Alternation(alternation) => &alternation.asts,
        Ast::Concat(concat) => &concat.asts,
        _ => &[],
    }
}

/// The place in `pattern` of the byte `offset`.
fn place(pattern: &str, offset: usize) -> Place {
    let before = pattern.get(..offset).unwrap_or(pattern);
    let line = before.rsplit('\n').next().unwrap_or("");
    Place::Text {
        rule: None,
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
    }
}

/// `hir` without the ways that match nothing, such as an empty class; `None` where none is left.
fn satisfiable(hir: &Hir) -> Option<Hir> {
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) if class.ranges().is_empty() => None,
        HirKind::Class(Class::Bytes(class)) if class.ranges().is_empty() => None,
        HirKind::Capture(capture) => satisfiable(&capture.sub),
        HirKind::Concat(parts) => {
            let parts: Option<Vec<Hir>> = parts.iter().map(satisfiable).collect();
            parts.map(Hir::concat)
        }
        HirKind::Alternation(ways) => {
            let mut ways: Vec<Hir> = ways.iter().filter_map(satisfiable).collect();
            // Literals meet where a choice is none; the mask engine fails over two spellings of one text beside each other.
            ways.dedup();
            (!ways.is_empty()).then(|| Hir::alternation(ways))
        }
        HirKind::Repetition(repetition) => match satisfiable(&repetition.sub) {
            Some(sub) => {
                // Printed without a group, `(?:a+)?` would be the lazy `a+?`.
                let sub = match sub.kind() {
                    HirKind::Repetition(_) => Hir::capture(Capture {
                        index: 1,
                        name: None,
                        sub: Box::new(sub),
                    }),
                    _ => sub,
                };
                Some(Hir::repetition(Repetition {
                    sub: Box::new(sub),
                    ..repetition.clone()
                }))
            }
            None => (repetition.min == 0).then(Hir::empty),
        },
        _ => Some(hir.clone()),
    }
}

/// Makes the classes `\d`, `\w`, `\s` and their opposites those of ASCII. Depth is bounded by the parser's own limit.
fn to_ascii(ast: &mut Ast) {
    match ast {
        Ast::ClassPerl(perl) => {
            *ast = Ast::class_bracketed(ClassBracketed {
                span: perl.span,
                negated: false,
                kind: ClassSet::Item(ascii(perl)),
            });
        }
        Ast::ClassBracketed(class) => set_to_ascii(&mut class.kind),
        Ast::Repetition(repetition) => to_ascii(&mut repetition.ast),
        Ast::Group(group) => to_ascii(&mut group.ast),
        Ast::Alternation(alternation) => alternation.asts.iter_mut().for_each(to_ascii),
        Ast::Concat(concat) => concat.asts.iter_mut().for_each(to_ascii),
        _ => {}
    }
}

fn set_to_ascii(set: &mut ClassSet) {
    match set {
        ClassSet::Item(item) => item_to_ascii(item),
        ClassSet::BinaryOp(operation) => {
            set_to_ascii(&mut operation.lhs);
            set_to_ascii(&mut operation.rhs);
        }
    }
}

fn item_to_ascii(item: &mut ClassSetItem) {
    match item {
        ClassSetItem::Perl(perl) => *item = ascii(perl),
        ClassSetItem::Bracketed(class) => set_to_ascii(&mut class.kind),
        ClassSetItem::Union(union) => union.items.iter_mut().for_each(item_to_ascii),
        _ => {}
    }
}

fn ascii(perl: &ClassPerl) -> ClassSetItem {
    ClassSetItem::Ascii(ClassAscii {
        span: perl.span,
        kind: match perl.kind {
            ClassPerlKind::Digit => ClassAsciiKind::Digit,
            ClassPerlKind::Space => ClassAsciiKind::Space,
            ClassPerlKind::Word => ClassAsciiKind::Word,
        },
        negated: perl.negated,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_say_where_they_stand_in_the_pattern_as_given() {
        for (pattern, says) in [
            ("a(", "1:2: pattern: unclosed group"),
            ("\\d+(", "1:4: pattern: unclosed group"),
            ("é\\w\n\\s[\\d](", "2:7: pattern: unclosed group"),
            ("\\d[b-\\d]", "1:6: pattern: "),
            ("[+-\\d]", "1:4: pattern: "),
            ("[\\d-z]", "1:2: pattern: "),
            (
                "\\da{1000000}",
                "1:4: pattern: a repetition of 1000000; the limit is 100000",
            ),
            (
                "\\bfoo\\b",
                "1:1: pattern: word boundaries are not supported",
            ),
            ("a\\b", "1:2: pattern: word boundaries are not supported"),
            (
                "(?m)^a$",
                "1:5: pattern: anchors of lines, as of (?m), are not supported",
            ),
            (
                "^\\d^b$",
                "1:4: pattern: an anchor that is not at the pattern's start or end",
            ),
            (
                "(^a|b$c)$",
                "1:6: pattern: an anchor that is not at the pattern's start or end",
            ),
        ] {
            let said = printed(pattern, &Limits::default()).unwrap_err();
            assert!(said.to_string().starts_with(says), "{pattern}: {said}");
        }
    }

    #[test]
    fn ways_that_match_nothing_take_no_others_with_them() {
        let text = |pattern: &str| printed(pattern, &Limits::default()).expect(pattern);
        assert_eq!(text(r"a[^\x00-\x{10FFFF}]|b"), text("b"));
        assert_eq!(text(r"a(?:[^\x00-\x{10FFFF}])*b"), text("ab"));
        for nothing in [r"a[^\x00-\x{10FFFF}]", r"[a&&b]+|c[a&&b]"] {
            let e = printed(nothing, &Limits::default()).unwrap_err();
            assert_eq!(e.kind(), GrammarErrorKind::Unsatisfiable);
        }
    }
}
