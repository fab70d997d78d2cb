//! Texts of schemas, before they become values.

use serde_json::Number;

use crate::{GrammarError, GrammarErrorKind, Place};

/// Checks that every number in `json` is read as it is written.
///
/// A [`serde_json::Value`] holds whole numbers of 64 bits and `f64`s: it says nothing of the digits that a text had beyond,
/// and a schema would be compiled for another number. What is no JSON passes; the parser says more about it.
///
/// # Errors
/// [`GrammarErrorKind::Invalid`] with line and column of the first number that is read as another one.
pub fn check_numbers(json: &str) -> Result<(), GrammarError> {
    for (at, written) in numbers(json) {
        if let Some(read) = read_otherwise(written) {
            return Err(rounded(json.get(..at).unwrap_or_default(), written, &read));
        }
    }
    Ok(())
}

/// The numbers in `json`, and where each begins.
pub(super) fn numbers(json: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            match bytes.get(at)? {
                b'"' => at = after_string(bytes, at + 1),
                b'-' | b'0'..=b'9' => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    let len = rest.iter().take_while(|b| is_of_number(**b)).count();
                    let found = (at, json.get(at..at + len).unwrap_or_default());
                    at += len;
                    return Some(found);
                }
                _ => at += 1,
            }
        }
    })
}

fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E')
}

/// Where the string ends whose first character is at `at`.
fn after_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// The number that `written` is read as, if another one.
pub(super) fn read_otherwise(written: &str) -> Option<String> {
    let read = serde_json::from_str::<Number>(written).ok()?.to_string();
    (value(written) != value(&read)).then_some(read)
}

/// Sign, digits without zeros around them, and the power of ten of the last one.
fn value(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (negative, magnitude) = match mantissa.strip_prefix('-') {
        Some(magnitude) => (true, magnitude),
        None => (false, mantissa),
    };
    let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    if digits.is_empty() {
        return Some((false, String::new(), 0));
    }
    let zeros = all.len() - all.trim_end_matches('0').len();
    let exponent: i64 = exponent.parse().ok()?;
    let last = i64::try_from(zeros).ok()? - i64::try_from(fraction.len()).ok()?;
    Some((negative, digits.to_owned(), exponent.checked_add(last)?))
}

fn rounded(before: &str, written: &str, read: &str) -> GrammarError {
    let line = before.rsplit('\n').next().unwrap_or_default();
    GrammarError::new(
        GrammarErrorKind::Invalid,
        format!("the number {written} has more digits than are kept: it would be read as {read}"),
    )
    .with_place(Place::Text {
        rule: None,
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_kept_pass() {
        for text in [
            "0",
            "-0",
            "-0.0",
            "1.0",
            "1.50",
            "1e3",
            "1E+3",
            "0.1",
            "18446744073709551615",
            "-9223372036854775808",
            "9007199254740992.0",
            "1e300",
            "0e999999999999999999999",
            "1.7976931348623157e308",
            "5e-324",
            "100000000000000000000",
            r#"{"a \" 18446744073709551617": 3}"#,
            "[0.30000000000000004]",
        ] {
            assert!(check_numbers(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn numbers_that_are_rounded_are_named_with_their_place() {
        for number in [
            "18446744073709551617",
            "-9223372036854775809",
            "0.1234567890123456789",
            "9007199254740993.0",
            "1e-400",
            "123456789012345678e-1",
        ] {
            let error = check_numbers(&format!("{{\"é\":\n  {number}}}")).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(number), "{text}");
            assert_eq!(
                error.place(),
                Some(&Place::Text {
                    rule: None,
                    line: 2,
                    column: 3
                })
            );
        }
    }
}
