//! How a vocabulary's spellings stand for bytes.
//!
//! Byte-level BPE writes each byte as one printable character: the bytes that Latin-1 prints stand for themselves,
//! the other 68 are U+0100 and up in byte order (the table of GPT-2's `encoder.py`). SentencePiece writes a space as
//! `▁` (U+2581) and a byte that no piece covers as `<0xNN>`.

/// SentencePiece's stand-in for a space.
pub(crate) const META_SPACE: char = '\u{2581}';

/// How the spellings of ordinary tokens stand for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// One character a byte.
    ByteLevel,
    /// UTF-8 with `▁` for a space; with `byte_fallback`, `<0xNN>` for one byte.
    MetaSpace { byte_fallback: bool },
}

impl Spelling {
    /// The bytes that a token of this spelling stands for.
    pub(crate) fn bytes_of(self, token: &str) -> Vec<u8> {
        match self {
            Spelling::ByteLevel => token
                .chars()
                .map(byte_of_char)
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| token.as_bytes().to_vec()),
            Spelling::MetaSpace { byte_fallback } => {
                match fallback_byte(token).filter(|_| byte_fallback) {
                    Some(byte) => vec![byte],
                    None => token.replace(META_SPACE, " ").into_bytes(),
                }
            }
        }
    }
}

/// The byte of a `<0xNN>` spelling.
pub(crate) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// The character that stands for a byte.
pub(crate) fn char_of_byte(byte: u8) -> char {
    let code = u32::from(byte);
    let shifted = match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x00..=0x20 => 0x100 + code,
        0x7F..=0xA0 => 0x121 + (code - 0x7F),
        0xAD => 0x143,
    };
    char::from_u32(shifted).unwrap_or('\u{FFFD}')
}

/// The byte that a character stands for, if it is one of the 256.
pub(crate) fn byte_of_char(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// A text's bytes as byte-level characters.
pub(crate) fn byte_level(text: &str) -> String {
    text.bytes().map(char_of_byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_characters_are_a_bijection() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255u8 {
            let c = char_of_byte(byte);
            assert_eq!(byte_of_char(c), Some(byte));
            assert!(seen.insert(c));
        }
        assert_eq!(char_of_byte(b' '), 'Ġ');
        assert_eq!(char_of_byte(b'\n'), 'Ċ');
        assert_eq!(byte_of_char('▁'), None);
    }

    #[test]
    fn spellings_stand_for_bytes() {
        assert_eq!(Spelling::ByteLevel.bytes_of("Ġnaïve"), b" na\xefve");
        assert_eq!(
            Spelling::ByteLevel.bytes_of("<｜User｜>"),
            "<｜User｜>".as_bytes()
        );
        let fallback = Spelling::MetaSpace {
            byte_fallback: true,
        };
        assert_eq!(fallback.bytes_of("<0xE6>"), [0xE6]);
        assert_eq!(fallback.bytes_of("▁two"), b" two");
        let plain = Spelling::MetaSpace {
            byte_fallback: false,
        };
        assert_eq!(plain.bytes_of("<0xE6>"), b"<0xE6>");
    }
}
