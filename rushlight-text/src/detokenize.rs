//! Ids to text, one at a time.

use crate::error::{Result, TextError, TextErrorKind};
use crate::tokenizer::Tokenizer;

/// How a [`Detokenizer`] shows control tokens and treats the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetokenizerOptions {
    /// Show control tokens as they are spelled, instead of leaving them out.
    pub show_control: bool,
    /// The ids continue a text: the space that SentencePiece puts before a text's first word is a real space here.
    pub continues: bool,
}

/// Turns a stream of ids into text, holding back bytes until they are whole characters.
///
/// The deltas of [`push`](Self::push) and the rest from [`finish`](Self::finish) are together exactly what
/// [`Tokenizer::decode`] makes of all the ids, wherever the stream is cut. A delta never ends within a character and
/// never holds U+FFFD for one that is not yet whole; bytes that cannot become UTF-8 any more are replaced as
/// [`String::from_utf8_lossy`] does. At most three bytes are held, and a token costs time in its own length only.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    show_control: bool,
    /// The next byte of output is the first, and one space there is dropped.
    strip_space: bool,
    /// The beginning of a character.
    held: Vec<u8>,
}

impl Detokenizer {
    pub(crate) fn new(tokenizer: Tokenizer, options: DetokenizerOptions) -> Self {
        Self {
            strip_space: tokenizer.strips_leading_space() && !options.continues,
            tokenizer,
            show_control: options.show_control,
            held: Vec::new(),
        }
    }

    /// Adds a token; returns the text that is now certain, which may be empty.
    ///
    /// # Errors
    /// [`TextErrorKind::UnknownToken`]; the state is then unchanged.
    pub fn push(&mut self, id: u32) -> Result<String> {
        let mut bytes = self.tokenizer.token_bytes(id).ok_or_else(|| {
            TextError::new(
                TextErrorKind::UnknownToken,
                format!(
                    "no token has the id {id}; the vocabulary ends before {}",
                    self.tokenizer.vocab_size()
                ),
            )
        })?;
        if !self.show_control && self.tokenizer.is_control(id) {
            return Ok(String::new());
        }
        if self.strip_space && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.strip_space = false;
        }
        self.held.extend_from_slice(bytes);
        Ok(take_characters(&mut self.held))
    }

    /// Ends the stream: what is still held can no longer become a character, and is U+FFFD once.
    pub fn finish(&mut self) -> String {
        if self.held.is_empty() {
            return String::new();
        }
        self.held.clear();
        String::from('\u{FFFD}')
    }

    /// Whether a part of a character is being held back.
    pub fn is_mid_character(&self) -> bool {
        !self.held.is_empty()
    }
}

/// Takes all that is decided from the front of `held`, leaving at most the beginning of one character.
fn take_characters(held: &mut Vec<u8>) -> String {
    let mut text = String::with_capacity(held.len());
    let mut rest = held.as_slice();
    let mut incomplete = 0;
    for chunk in rest.utf8_chunks() {
        text.push_str(chunk.valid());
        let invalid = chunk.invalid();
        rest = rest
            .get(chunk.valid().len() + invalid.len()..)
            .unwrap_or_default();
        if invalid.is_empty() {
            continue;
        }
        if rest.is_empty() && may_become_character(invalid) {
            incomplete = invalid.len();
        } else {
            text.push('\u{FFFD}');
        }
    }
    held.drain(..held.len() - incomplete);
    text
}

/// Whether more bytes could make these a character.
fn may_become_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
