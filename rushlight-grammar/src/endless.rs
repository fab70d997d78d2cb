//! Text that would be forced for ever.
//!
//! Where a grammar's author lets a lexeme go on with what has to follow it, as skipped blanks do with a blank that must come, one
//! byte may be all that can ever follow. The engine's search for forced text does not end there, so this looks first.

use llguidance::TokenParser;
use toktrie::Recognizer;

use crate::vocabulary::Vocabulary;

/// Bytes, each the only one that may follow, after which there is taken to be no end: more than texts that an author spells out.
const ENDLESS: usize = 128 << 10;
/// Bytes among which the text is looked at for a place where it may end, as the engine forces none behind one.
const LOOKED_AT: usize = 256;

/// Whether the engine's search for forced text would not end from where `parser` stands, or only behind a text as long.
pub(crate) fn is_endless(parser: &mut TokenParser, vocabulary: &Vocabulary) -> bool {
    if parser.is_accepting() {
        return false;
    }
    let Some(text) = lone_bytes(parser, LOOKED_AT) else {
        return false;
    };
    let mut ahead = parser.clone();
    for byte in text {
        let token = vocabulary.byte_token(byte);
        if token.is_none_or(|token| ahead.consume_token(token).is_err()) || ahead.is_accepting() {
            return false;
        }
    }
    lone_bytes(parser, ENDLESS).is_some()
}

/// The next `count` bytes, where each is the only one that may follow.
fn lone_bytes(parser: &mut TokenParser, count: usize) -> Option<Vec<u8>> {
    parser.parser.with_recognizer(|r| {
        r.trie_started("lone bytes");
        let mut text = Vec::new();
        while text.len() < count {
            let mut fits = (0..=u8::MAX).filter(|&byte| {
                let fits = r.try_push_byte(byte);
                r.pop_bytes(usize::from(fits));
                fits
            });
            let (Some(only), None) = (fits.next(), fits.next()) else {
                break;
            };
            if !r.try_push_byte(only) {
                break;
            }
            text.push(only);
        }
        r.pop_bytes(text.len());
        r.trie_finished();
        (text.len() == count).then_some(text)
    })
}
