//! Which ids may be sampled at all, and a constraint's mask over them.

use crate::error::{EngineError, ErrorKind, Result};

/// Bits in one word of a mask.
pub(crate) const WORD_BITS: usize = 32;

/// The widest row of logits the sampler takes, so that a row's weights sum in 64 bits.
pub(crate) const MAX_WIDTH: usize = 1 << 23;

/// The ids a model may say: those its tokenizer knows, less the unused ones.
///
/// A row of logits is often wider than the tokenizer's vocabulary (rows padded to a multiple of 64)
/// and sometimes narrower (added tokens without an embedding). What has no text, or no logit, is
/// never sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleVocab {
    width: usize,
    tokens: usize,
    legal: Vec<u32>,
}

impl SampleVocab {
    /// `tokenizer` ids are known to the tokenizer (`0..tokenizer`), `width` values are in a row of
    /// logits, and `unused` ids have no text (GGUF type *unused*, reserved slots).
    ///
    /// Unused ids past the row are ignored: they cannot be sampled anyhow.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) where `tokenizer` or `width` is 0 or `width` is
    /// over 8,388,608; [`NoLegalToken`](ErrorKind::NoLegalToken) where every id is unused.
    pub fn new(tokenizer: usize, width: usize, unused: &[u32]) -> Result<Self> {
        if tokenizer == 0 {
            return Err(EngineError::invalid_option(
                "vocabulary size",
                tokenizer,
                "at least 1",
            ));
        }
        if width == 0 || width > MAX_WIDTH {
            let expected = format!("from 1 to {MAX_WIDTH}");
            return Err(EngineError::invalid_option("logits width", width, expected));
        }
        let tokens = tokenizer.min(width);
        let mut vocab = Self {
            width,
            tokens,
            legal: vec![0; width.div_ceil(WORD_BITS)],
        };
        for (index, word) in vocab.legal.iter_mut().enumerate() {
            let first = index * WORD_BITS;
            *word = match tokens.saturating_sub(first) {
                0 => 0,
                left if left >= WORD_BITS => u32::MAX,
                left => (1 << left) - 1,
            };
        }
        for &id in unused {
            vocab.forbid(id);
        }
        if vocab.legal.iter().all(|&word| word == 0) {
            return Err(ErrorKind::NoLegalToken.into());
        }
        Ok(vocab)
    }

    /// Values in a row of logits.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Ids that have both text and a logit: `0..tokens` less the unused ones.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether `id` may be sampled.
    pub fn allows(&self, id: u32) -> bool {
        bit(&self.legal, id)
    }

    /// Takes `id` out of what may be sampled.
    pub(crate) fn forbid(&mut self, id: u32) {
        let id = id as usize;
        if let Some(word) = self.legal.get_mut(id / WORD_BITS) {
            *word &= !(1 << (id % WORD_BITS));
        }
    }

    /// One bit an id, LSB first, `width` bits rounded up to whole words.
    pub(crate) fn words(&self) -> &[u32] {
        &self.legal
    }
}

/// The tokens a constraint allows next: one bit a token, least significant bit first, in 32-bit
/// words. Ids past the last word are not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask<'a> {
    words: &'a [u32],
}

impl<'a> Mask<'a> {
    /// A mask over `words`: token `t` is bit `t % 32` of word `t / 32`.
    pub fn new(words: &'a [u32]) -> Self {
        Self { words }
    }

    /// Whether the mask allows `id`.
    pub fn allows(&self, id: u32) -> bool {
        bit(self.words, id)
    }

    /// The words, as given.
    pub fn words(&self) -> &'a [u32] {
        self.words
    }

    /// Fails where the mask is too short to speak about every id of `vocab`.
    pub(crate) fn check(&self, vocab: &SampleVocab) -> Result<()> {
        let found = self.words.len().saturating_mul(WORD_BITS);
        let expected = vocab.tokens();
        if found < expected {
            return Err(ErrorKind::MaskWidth { found, expected }.into());
        }
        Ok(())
    }
}

fn bit(words: &[u32], id: u32) -> bool {
    let id = id as usize;
    words
        .get(id / WORD_BITS)
        .is_some_and(|word| word >> (id % WORD_BITS) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_and_unused_ids_are_not_legal() {
        let vocab = SampleVocab::new(33, 64, &[0, 32, 63, 1000]).unwrap();
        let legal: Vec<u32> = (0..70).filter(|&id| vocab.allows(id)).collect();
        assert_eq!(legal, (1..32).collect::<Vec<u32>>());
        assert_eq!((vocab.tokens(), vocab.width()), (33, 64));
    }

    #[test]
    fn a_tokenizer_wider_than_the_row_is_cut_to_the_row() {
        // Gemma 3's text checkpoints: 262,145 tokenizer ids, 262,144 logits.
        let vocab = SampleVocab::new(41, 40, &[]).unwrap();
        assert!(vocab.allows(39));
        assert!(!vocab.allows(40));
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for (tokenizer, width) in [(0, 8), (8, 0), (8, MAX_WIDTH + 1)] {
            let e = SampleVocab::new(tokenizer, width, &[]).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::InvalidOption { .. }));
        }
        let e = SampleVocab::new(2, 2, &[0, 1]).unwrap_err();
        assert_eq!(e.kind(), &ErrorKind::NoLegalToken);
    }
}
