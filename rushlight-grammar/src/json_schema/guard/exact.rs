//! Numbers that the validator reads as they are written. It reckons with 64-bit integers and floats: of longer numbers it would
//! judge others, which are near.

use serde_json::Number;

use crate::json_schema::number::Decimal;

/// Digits of which a float holds any number exactly, and of its quotients whether they are whole.
const DIGITS: usize = 15;

/// The numbers in a JSON text, in order.
pub(super) struct Numbers<'a> {
    text: &'a [u8],
}

impl<'a> Numbers<'a> {
    pub(super) fn of(text: &'a [u8]) -> Self {
        Self { text }
    }
}

impl<'a> Iterator for Numbers<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let (&first, rest) = self.text.split_first()?;
            match first {
                b'"' => {
                    let mut escaped = false;
                    let end = rest.iter().position(|&byte| {
                        let ends = byte == b'"' && !escaped;
                        escaped = byte == b'\\' && !escaped;
                        ends
                    })?;
                    self.text = rest.get(end + 1..)?;
                }
                b'-' | b'0'..=b'9' => {
                    let is_number =
                        |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                    let len = self.text.iter().take_while(|byte| is_number(byte)).count();
                    let (number, rest) = self.text.split_at_checked(len)?;
                    self.text = rest;
                    return Some(number);
                }
                _ => self.text = rest,
            }
        }
    }
}

/// Whether the value of `number` is the one that is read, and where it `divides`, one that a float divides exactly.
pub(super) fn is_exact(number: &[u8], divides: bool) -> bool {
    let digits = number.iter().filter(|byte| byte.is_ascii_digit()).count();
    if digits <= DIGITS && !number.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return true;
    }
    let Ok(text) = std::str::from_utf8(number) else {
        return false;
    };
    let read = serde_json::from_str::<Number>(text).map(|number| number.to_string());
    let (Some(said), Some(read)) = (
        Decimal::parse(text),
        read.ok().as_deref().and_then(Decimal::parse),
    ) else {
        return false;
    };
    said == read && !(divides && said.digits() > DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_outside_of_strings() {
        let found: Vec<_> = Numbers::of(br#"{"1":[-2,"\"3",4.5e6,true],"x\\":7}"#).collect();
        assert_eq!(found, [&b"-2"[..], b"4.5e6", b"7"]);
        assert_eq!(Numbers::of(b"12").collect::<Vec<_>>(), [b"12"]);
    }

    #[test]
    fn a_number_is_exact_as_far_as_it_is_read_and_divided() {
        for (number, read, divided) in [
            ("0.1", true, true),
            ("-12345.6789", true, true),
            ("3e-1", true, true),
            ("1e15", true, false),
            ("3e99", true, false),
            ("1e-20", true, false),
            ("18446744073709551615", true, false),
            ("9007199254740993", true, false),
            ("9007199254740993.0", false, false),
            ("9007199254740994.5", false, false),
            ("-9999999999999999999", false, false),
            ("0.12345678901234567", false, false),
            ("1e400", false, false),
        ] {
            assert_eq!(is_exact(number.as_bytes(), false), read, "{number}");
            assert_eq!(is_exact(number.as_bytes(), true), divided, "{number}");
        }
    }
}
