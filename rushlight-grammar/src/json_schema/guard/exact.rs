//! Numbers that the validator reads as they are written. It reckons with 64-bit integers and floats: of longer numbers it would
//! judge others, which are near.

use crate::json_schema::number::Decimal;
use crate::json_schema::text;

/// Digits of which a float holds any number exactly, and of its quotients whether they are whole.
const DIGITS: usize = 15;

/// Whether every number of the JSON text `json` is one that [`is_exact`].
pub(super) fn are_exact(json: &str, divides: bool) -> bool {
    text::numbers(json).all(|(_, number)| is_exact(number, divides))
}

/// Whether the value of `number` is the one that is read, and where it `divides`, one that a float divides exactly.
fn is_exact(number: &str, divides: bool) -> bool {
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    if digits <= DIGITS && !number.contains(['e', 'E']) {
        return true;
    }
    let is_short = || Decimal::parse(number).is_some_and(|value| value.digits() <= DIGITS);
    text::read_otherwise(number).is_none() && (!divides || is_short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_outside_of_strings() {
        for (json, exact) in [
            (
                r#"{"9007199254740993.0":[-2,"\"9007199254740993.0",4.5e6,true],"x\\":7}"#,
                true,
            ),
            (r#"{"x\\":[1,9007199254740993.0]}"#, false),
            ("9007199254740993.0", false),
            ("12", true),
        ] {
            assert_eq!(are_exact(json, false), exact, "{json}");
        }
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
        ] {
            assert_eq!(is_exact(number, false), read, "{number}");
            assert_eq!(is_exact(number, true), divided, "{number}");
        }
    }
}
