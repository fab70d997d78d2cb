//! Methods of Python's strings, where minijinja's own port of them is silent or differs.
//!
//! Python's idea of white space includes the four separators U+001C to U+001F, which Rust's does not.

use minijinja::value::{Value, from_args};
use minijinja::{Error, ErrorKind, State};

/// Called for every method that a template calls on a value.
pub(crate) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(result) = string_method(state, text, method, args)
    {
        return result;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// The `trim` filter, which is `str.strip`.
pub(crate) fn trim(value: &Value, chars: Option<&str>) -> String {
    match value.as_str() {
        Some(text) => strip(text, chars, Sides::Both).to_owned(),
        None => strip(&value.to_string(), chars, Sides::Both).to_owned(),
    }
}

fn string_method(
    state: &State<'_, '_>,
    text: &str,
    method: &str,
    args: &[Value],
) -> Option<Result<Value, Error>> {
    let sides = match method {
        "strip" => Some(Sides::Both),
        "lstrip" => Some(Sides::Left),
        "rstrip" => Some(Sides::Right),
        _ => None,
    };
    if let Some(sides) = sides {
        return Some(
            from_args(args).map(|(chars,): (Option<&str>,)| Value::from(strip(text, chars, sides))),
        );
    }
    Some(match method {
        "split" => split(state, text, args, Direction::Forward),
        "rsplit" => split(state, text, args, Direction::Backward),
        "splitlines" => from_args(args).and_then(|(keep,): (Option<bool>,)| {
            pay(state, text.len())?;
            Ok(strings(split_lines(text, keep.unwrap_or(false))))
        }),
        "partition" => from_args(args).and_then(|(sep,): (&str,)| {
            not_empty(sep)?;
            let (a, b, c) = match text.split_once(sep) {
                Some((before, after)) => (before, sep, after),
                None => (text, "", ""),
            };
            Ok([a, b, c].into_iter().map(Value::from).collect())
        }),
        "rpartition" => from_args(args).and_then(|(sep,): (&str,)| {
            not_empty(sep)?;
            let (a, b, c) = match text.rsplit_once(sep) {
                Some((before, after)) => (before, sep, after),
                None => ("", "", text),
            };
            Ok([a, b, c].into_iter().map(Value::from).collect())
        }),
        "removeprefix" => from_args(args)
            .map(|(fix,): (&str,)| Value::from(text.strip_prefix(fix).unwrap_or(text))),
        "removesuffix" => from_args(args)
            .map(|(fix,): (&str,)| Value::from(text.strip_suffix(fix).unwrap_or(text))),
        "casefold" => from_args(args).map(|(): ()| Value::from(text.to_lowercase())),
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Sides {
    Left,
    Right,
    Both,
}

fn strip<'t>(text: &'t str, chars: Option<&str>, sides: Sides) -> &'t str {
    let is_stripped = |c: char| match chars {
        Some(chars) => chars.contains(c),
        None => is_space(c),
    };
    let text = if sides == Sides::Right {
        text
    } else {
        text.trim_start_matches(is_stripped)
    };
    if sides == Sides::Left {
        text
    } else {
        text.trim_end_matches(is_stripped)
    }
}

fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

enum Direction {
    Forward,
    Backward,
}

/// `str.split` and `str.rsplit`: at a separator, or at runs of white space; at most `maxsplit` times.
fn split(
    state: &State<'_, '_>,
    text: &str,
    args: &[Value],
    direction: Direction,
) -> Result<Value, Error> {
    let (sep, max): (Option<Value>, Option<i64>) = from_args(args)?;
    let max = max
        .and_then(|max| usize::try_from(max).ok())
        .unwrap_or(usize::MAX);
    let sep = sep.filter(|sep| !sep.is_none());
    // Each part is a copy and costs at least a value's 24 bytes.
    pay(state, text.len())?;
    let parts: Vec<&str> = match &sep {
        Some(sep) => {
            let sep = sep.as_str().ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidOperation,
                    "the separator must be a string",
                )
            })?;
            not_empty(sep)?;
            let limit = max.saturating_add(1);
            match direction {
                Direction::Forward => text.splitn(limit, sep).collect(),
                Direction::Backward => {
                    let mut parts: Vec<&str> = text.rsplitn(limit, sep).collect();
                    parts.reverse();
                    parts
                }
            }
        }
        None => split_words(text, max, direction),
    };
    pay(state, parts.len().saturating_mul(24))?;
    Ok(strings(parts))
}

fn split_words(text: &str, max: usize, direction: Direction) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_matches(is_space);
    while !rest.is_empty() {
        let cut = match direction {
            Direction::Forward => rest.find(is_space),
            Direction::Backward => rest.rfind(is_space),
        };
        let Some(at) = cut.filter(|_| parts.len() < max) else {
            parts.push(rest);
            break;
        };
        let width = rest[at..].chars().next().map_or(1, char::len_utf8);
        let (before, after) = (&rest[..at], &rest[at + width..]);
        match direction {
            Direction::Forward => {
                parts.push(before);
                rest = after.trim_start_matches(is_space);
            }
            Direction::Backward => {
                parts.push(after);
                rest = before.trim_end_matches(is_space);
            }
        }
    }
    if matches!(direction, Direction::Backward) {
        parts.reverse();
    }
    parts
}

fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some((at, end)) = rest.char_indices().find(|(_, c)| is_end(*c)) else {
            lines.push(rest);
            break;
        };
        let width = if rest[at..].starts_with("\r\n") {
            2
        } else {
            end.len_utf8()
        };
        lines.push(&rest[..if keep_ends { at + width } else { at }]);
        rest = &rest[at + width..];
    }
    lines
}

fn strings(parts: Vec<&str>) -> Value {
    parts.into_iter().map(Value::from).collect()
}

fn not_empty(separator: &str) -> Result<(), Error> {
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    Ok(())
}

/// Pays for bytes that are about to be made.
fn pay(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(u64::try_from(bytes / 64).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_words_as_python_does() {
        assert_eq!(
            split_words("  a b\u{1c} c  ", usize::MAX, Direction::Forward),
            ["a", "b", "c"]
        );
        assert_eq!(
            split_words("a  b  c ", 1, Direction::Forward),
            ["a", "b  c"]
        );
        assert_eq!(
            split_words(" a  b  c", 1, Direction::Backward),
            ["a  b", "c"]
        );
        assert!(split_words(" \n", 3, Direction::Forward).is_empty());
    }

    #[test]
    fn splits_lines_as_python_does() {
        assert_eq!(split_lines("a\r\nb\n\nc", false), ["a", "b", "", "c"]);
        assert_eq!(split_lines("a\r\nb\n", true), ["a\r\n", "b\n"]);
        assert!(split_lines("", false).is_empty());
    }

    #[test]
    fn strips_pythons_white_space() {
        assert_eq!(strip("\u{1f} a ", None, Sides::Both), "a");
        assert_eq!(strip("xxaxx", Some("x"), Sides::Left), "axx");
        assert_eq!(strip("\n a \n", Some("\n"), Sides::Right), "\n a ");
    }
}
