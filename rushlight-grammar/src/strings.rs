//! Strings of bounded length.
//!
//! Each character of one leads the lexer to a state that it never met, so the mask engine starts anew at every token. Yet all
//! that the bound says is how many characters are left: within one string, the mask with fewer left is the mask with more
//! left, without the tokens that are too long. This module knows where in a JSON text a string stands; the matcher keeps the
//! mask.

use std::collections::HashMap;

/// A bound on the characters of a string that is the whole of one lexeme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoundedString {
    /// The lexeme's number in the mask engine.
    pub(crate) lexeme: usize,
    pub(crate) min: usize,
    pub(crate) max: usize,
}

/// The bounded strings of a grammar whose whole text is JSON.
#[derive(Debug, Default)]
pub(crate) struct BoundedStrings(HashMap<usize, BoundedString>);

impl BoundedStrings {
    pub(crate) fn new(strings: Vec<BoundedString>) -> Self {
        Self(strings.into_iter().map(|s| (s.lexeme, s)).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The characters left in the string of `lexeme` after `chars` of them, where it may close at any of them.
    pub(crate) fn left(&self, lexeme: usize, chars: usize) -> Option<usize> {
        let string = self.0.get(&lexeme)?;
        if chars < string.min {
            return None;
        }
        string.max.checked_sub(chars)
    }
}

/// Where a JSON text stands, as far as its strings go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StringPlace {
    /// Bytes of the text.
    at: usize,
    /// Bytes of the text up to the string's opening quote, while inside of one.
    start: Option<usize>,
    /// Characters of the string that have begun; an escape is one.
    chars: usize,
    rest: Rest,
}

/// What is missing of a character that has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    Nothing,
    /// The letter of an escape.
    Escape,
    /// So many hexadecimal digits.
    Digits(u8),
    /// So many continuation bytes.
    Bytes(u8),
}

impl StringPlace {
    pub(crate) fn push(&mut self, byte: u8) {
        self.at += 1;
        if self.start.is_none() {
            if byte == b'"' {
                self.start = Some(self.at);
                self.chars = 0;
            }
            return;
        }
        self.rest = match self.rest {
            Rest::Escape if byte == b'u' => Rest::Digits(4),
            Rest::Escape | Rest::Digits(1) | Rest::Bytes(1) => Rest::Nothing,
            Rest::Digits(n) => Rest::Digits(n - 1),
            Rest::Bytes(n) => Rest::Bytes(n - 1),
            Rest::Nothing if byte == b'"' => {
                self.start = None;
                Rest::Nothing
            }
            Rest::Nothing => {
                self.chars += 1;
                match byte {
                    b'\\' => Rest::Escape,
                    0xc0..=0xdf => Rest::Bytes(1),
                    0xe0..=0xef => Rest::Bytes(2),
                    0xf0..=0xff => Rest::Bytes(3),
                    _ => Rest::Nothing,
                }
            }
        };
    }

    /// Whether it is in a string, within one of its characters or between two.
    pub(crate) fn is_inside(&self) -> bool {
        self.start.is_some()
    }

    /// Whether the next byte says what a backslash stands for.
    pub(crate) fn is_escape(&self) -> bool {
        self.rest == Rest::Escape
    }

    /// Where the string starts that this stands in, and its characters so far; `None` outside of strings and within a character.
    pub(crate) fn inside(&self) -> Option<(usize, usize)> {
        match self.rest {
            Rest::Nothing => Some((self.start?, self.chars)),
            _ => None,
        }
    }
}

/// The characters that a token begins in a string that it stands in, up to where it closes it.
pub(crate) fn characters(token: &[u8]) -> usize {
    let mut place = StringPlace {
        start: Some(0),
        ..StringPlace::default()
    };
    for &byte in token {
        place.push(byte);
        if place.start.is_none() {
            break;
        }
    }
    place.chars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_end_with_the_string() {
        for (token, count) in [
            ("", 0),
            ("\"", 0),
            ("ab", 2),
            ("ab\",\"cde", 2),
            ("\\\"a", 2),
            ("\\u000ax", 2),
            ("é東🦀\"", 3),
            ("\\", 1),
        ] {
            assert_eq!(characters(token.as_bytes()), count, "{token}");
        }
        assert_eq!(characters(&[0xe6, 0x9d]), 1);
    }

    #[test]
    fn a_place_is_inside_between_whole_characters() {
        let mut place = StringPlace::default();
        let mut seen = Vec::new();
        for &byte in b"{\"k\":\"a\\u0009\xc3\xa9\"}" {
            place.push(byte);
            seen.push(place.inside());
        }
        let none = None;
        assert_eq!(
            seen,
            [
                none,
                Some((2, 0)),
                Some((2, 1)),
                none,
                none,
                Some((6, 0)),
                Some((6, 1)),
                none,
                none,
                none,
                none,
                none,
                Some((6, 2)),
                none,
                Some((6, 3)),
                none,
                none,
            ]
        );
    }

    #[test]
    fn a_bound_is_known_once_the_string_may_close() {
        let strings = BoundedStrings::new(vec![BoundedString {
            lexeme: 3,
            min: 2,
            max: 5,
        }]);
        assert_eq!(strings.left(3, 1), None);
        assert_eq!(strings.left(3, 2), Some(3));
        assert_eq!(strings.left(3, 5), Some(0));
        assert_eq!(strings.left(3, 6), None);
        assert_eq!(strings.left(4, 2), None);
    }
}
