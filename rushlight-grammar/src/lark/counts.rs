//! How often the parts of a Lark grammar may be repeated: repetitions in each other multiply, through terminals too.

use foldhash::HashMap;

use super::{Piece, place};
use crate::error::Result;
use crate::limits::Limits;
use crate::regex;

/// What matters of a grammar's text, and where in it.
enum Event<'a> {
    /// A definition of this name begins.
    Define(&'a str, usize),
    /// A name is used here.
    Name(&'a str, usize),
    /// A text, or a pattern whose parts may stand so often.
    Item(usize),
    Open,
    Close,
    /// What stands before is repeated, at most so often.
    Count(usize),
}

/// Refuses repetitions in each other that go on too long together.
///
/// # Errors
/// [`GrammarErrorKind::Limit`](crate::GrammarErrorKind::Limit), with the place of the definition.
pub(super) fn check(text: &str, pieces: &[Piece<'_>], limits: &Limits) -> Result<()> {
    let events = events(text, pieces);
    let mut known: HashMap<&str, usize> = HashMap::default();
    // Each round that changes something multiplies, so that the limit ends them.
    loop {
        let mut changed = false;
        let (mut name, mut at) = ("", 0);
        let mut around: Vec<usize> = Vec::new();
        // The most in this group, and of its last part.
        let (mut most, mut last): (usize, usize) = (1, 1);
        for event in events.iter().chain([&Event::Define("", text.len())]) {
            match event {
                Event::Define(next, start) => {
                    around.drain(..).for_each(|outer| most = most.max(outer));
                    limits
                        .check_times(most)
                        .map_err(|e| e.with_place(place(text, at)))?;
                    // Rules may use each other in cycles, terminals may not.
                    if name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_') {
                        changed |= known.insert(name, most).unwrap_or(1) < most;
                    }
                    (name, at, most, last) = (next, *start, 1, 1);
                }
                Event::Name(used, _) => last = known.get(used).copied().unwrap_or(1),
                Event::Item(times) => last = *times,
                Event::Open => around.push(std::mem::replace(&mut most, 1)),
                Event::Close => {
                    last = most;
                    most = around.pop().unwrap_or(1);
                }
                Event::Count(times) => last = last.saturating_mul(*times),
            }
            most = most.max(last);
        }
        if !changed {
            return Ok(());
        }
    }
}

fn events<'a>(text: &str, pieces: &[Piece<'a>]) -> Vec<Event<'a>> {
    let mut out = Vec::new();
    let mut is_after_text = false;
    for piece in pieces {
        // A colon behind a text is one of JSON.
        let is_json = std::mem::replace(&mut is_after_text, matches!(piece, Piece::Text(_)));
        let code = match piece {
            Piece::Text(_) => {
                out.push(Event::Item(1));
                continue;
            }
            Piece::Pattern(body) => {
                out.push(Event::Item(regex::times_of(body)));
                continue;
            }
            Piece::Code(code) => *code,
        };
        let start = code.as_ptr().addr() - text.as_ptr().addr();
        let of_json = code.len() - code.trim_start().len();
        let mut at = 0;
        while let Some(sign) = code.get(at..).and_then(|rest| rest.chars().next()) {
            let rest = code.get(at + sign.len_utf8()..).unwrap_or("");
            let mut length = sign.len_utf8();
            match sign {
                '(' | '[' => out.push(Event::Open),
                ')' | ']' | '}' => out.push(Event::Close),
                '{' | '~' => match count(sign, rest) {
                    Some((times, taken)) => {
                        out.push(Event::Count(times));
                        length += taken;
                    }
                    None => out.push(Event::Open),
                },
                ':' if at != of_json || !is_json => define(&mut out),
                _ if is_of_name(sign) => {
                    let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
                    length += end;
                    let name = code.get(at..at + length).unwrap_or("");
                    out.push(Event::Name(name, start + at));
                }
                _ => {}
            }
            at += length;
        }
    }
    out
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The count that `sign` and `rest` begin with, and how many bytes of `rest` it takes.
fn count(sign: char, rest: &str) -> Option<(usize, usize)> {
    let is_of_count = |c: char| c.is_ascii_digit() || " \t,.".contains(c);
    let length = rest.find(|c| !is_of_count(c)).unwrap_or(rest.len());
    let body = rest.get(..length)?;
    let taken = match sign {
        '{' => length + rest.get(length..)?.strip_prefix('}').map(|_| 1)?,
        _ => length,
    };
    let mut numbers = body
        .split(|c: char| !c.is_ascii_digit())
        .filter(|number| !number.is_empty())
        .map(|number| number.parse().unwrap_or(usize::MAX));
    let last = numbers.next_back()?;
    Some((last.max(1), taken))
}

/// The last name before this place, but for its attributes, is what is defined here.
fn define(events: &mut Vec<Event<'_>>) {
    let mut depth = 0usize;
    let found = events.iter().rposition(|event| {
        match event {
            Event::Close => depth += 1,
            Event::Open => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(event, Event::Name(name, _) if !name.starts_with(|c: char| c.is_ascii_digit()))
    });
    let Some(found) = found else { return };
    if let Some(Event::Name(name, at)) = events.get(found) {
        let defined = Event::Define(name, *at);
        events.truncate(found);
        events.push(defined);
    }
}

#[cfg(test)]
mod tests {
    use crate::error::GrammarErrorKind;
    use crate::lark::lower;
    use crate::limits::Limits;

    #[test]
    fn repetitions_in_each_other_multiply() {
        let limits = Limits {
            repeat: 1000,
            ..Limits::default()
        };
        for (text, is_within) in [
            ("start: /(a{0,10}b?){0,100}/", true),
            ("start: /(a{0,10}b?){0,101}/", false),
            ("start: \"a\"{0,10} \"b\"{1000}", true),
            ("start: (\"a\"{0,10} \"b\"?){0,101}", false),
            ("start: (\"a\"~0..10 \"b\"?) ~ 0..101", false),
            ("start: (/x{11}/ | \"b\"){,100}", false),
            (
                "start: A\nA[lazy]: (B | \"x\"){5,10}\nB: C{100}\nC: \"c\"~2",
                false,
            ),
            (
                "start: A\nA[lazy]: (B | \"x\"){5,10}\nB: C{50}\nC: \"c\"~2",
                true,
            ),
            (
                "start: %json {\"type\": \"array\", \"maxItems\": 5} \"a\"{9}",
                true,
            ),
            ("start: \"a\" start{900} | \"b\"", true),
        ] {
            let e = lower(text, None, &limits).err();
            let is_limit = e
                .as_ref()
                .is_some_and(|e| e.kind() == GrammarErrorKind::Limit);
            assert_eq!(is_limit, !is_within, "{text}: {e:?}");
        }
        let e = lower("start: A\nA: /(a{99}){99}/", None, &limits).unwrap_err();
        assert!(
            e.to_string().starts_with("2:1: repetitions in each other"),
            "{e}"
        );
    }
}
