//! How a prompt is cut into passes.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::error::{EngineError, ErrorKind, Result};

/// How long prompts are cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PrefillSplit {
    /// Whole chunks, then what is left in the pass that yields the first logits. The fewest passes:
    /// each pass reads all weights once.
    #[default]
    Remainder,
    /// Chunks of nearly equal length, then the last token alone. Peak memory is lowest, and the
    /// pass that yields logits is as small as any later one.
    Balanced,
}

impl PrefillSplit {
    /// Every split.
    pub const ALL: [Self; 2] = [Self::Remainder, Self::Balanced];

    /// The split's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Remainder => "remainder",
            Self::Balanced => "balanced",
        }
    }
}

impl fmt::Display for PrefillSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PrefillSplit {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|split| split.name() == name)
            .ok_or_else(|| {
                EngineError::unknown_name("prefill split", name, Self::ALL.map(Self::name))
            })
    }
}

/// When and how prompts are read in chunks. A pass's activations grow with its tokens, so the chunk
/// bounds peak memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefillOptions {
    /// The most tokens in a chunk. At least 1.
    pub chunk: usize,
    /// Prompts of at most this many tokens are read in one pass.
    pub threshold: usize,
    /// How longer prompts are cut.
    pub split: PrefillSplit,
}

impl Default for PrefillOptions {
    fn default() -> Self {
        Self {
            chunk: 512,
            threshold: 1024,
            split: PrefillSplit::Remainder,
        }
    }
}

/// The passes that read one prompt: chunks of equal length (the last may be shorter), then the
/// *tail*, whose pass yields the first logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefillPlan {
    tokens: usize,
    /// Tokens before the tail.
    body: usize,
    chunk: usize,
}

impl PrefillPlan {
    /// Cuts a prompt of `tokens` tokens (those not already in the cache).
    ///
    /// # Errors
    /// [`EmptyPrompt`](ErrorKind::EmptyPrompt) for no tokens,
    /// [`InvalidOption`](ErrorKind::InvalidOption) for chunks of no tokens.
    pub fn new(tokens: usize, options: &PrefillOptions) -> Result<Self> {
        if options.chunk == 0 {
            return Err(EngineError::invalid_option(
                "prefill chunk",
                0,
                "at least 1",
            ));
        }
        let Some(before_last) = tokens.checked_sub(1) else {
            return Err(ErrorKind::EmptyPrompt.into());
        };
        let (body, chunk) = if tokens <= options.threshold {
            (0, options.chunk)
        } else {
            match options.split {
                PrefillSplit::Remainder => {
                    let left = before_last % options.chunk;
                    (before_last - left, options.chunk)
                }
                PrefillSplit::Balanced => {
                    let chunks = before_last.div_ceil(options.chunk).max(1);
                    (before_last, before_last.div_ceil(chunks).max(1))
                }
            }
        };
        Ok(Self {
            tokens,
            body,
            chunk,
        })
    }

    /// Tokens in the prompt.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Tokens in the last pass, the one that yields logits: at least 1.
    pub fn tail(&self) -> usize {
        self.tokens - self.body
    }

    /// The tokens of each pass, the tail's last. The end of each is the progress after it.
    pub fn passes(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Self {
            tokens,
            body,
            chunk,
        } = *self;
        let chunks = (0..body).step_by(chunk);
        let chunks = chunks.map(move |start| start..body.min(start.saturating_add(chunk)));
        chunks.chain(std::iter::once(body..tokens))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(tokens: usize, chunk: usize, split: PrefillSplit) -> PrefillPlan {
        let options = PrefillOptions {
            chunk,
            threshold: 0,
            split,
        };
        PrefillPlan::new(tokens, &options).unwrap()
    }

    fn lengths(plan: &PrefillPlan) -> Vec<usize> {
        plan.passes().map(|pass| pass.len()).collect()
    }

    fn progress(plan: &PrefillPlan) -> Vec<usize> {
        plan.passes().map(|pass| pass.end).collect()
    }

    #[test]
    fn eng_19_balanced_and_remainder_splits() {
        let balanced = plan(31_885, 1024, PrefillSplit::Balanced);
        let mut expected = vec![997; 31];
        expected.extend([977, 1]);
        assert_eq!(lengths(&balanced), expected);
        assert_eq!(balanced.tail(), 1);
        let remainder = plan(31_885, 1024, PrefillSplit::Remainder);
        let mut expected = vec![1024; 31];
        expected.push(141);
        assert_eq!(lengths(&remainder), expected);
        assert_eq!(remainder.tail(), 141);
        assert_eq!(lengths(&plan(300, 512, PrefillSplit::Balanced)), [299, 1]);
        let whole = PrefillPlan::new(300, &PrefillOptions::default()).unwrap();
        assert_eq!((lengths(&whole), whole.tail()), (vec![300], 300));
    }

    #[test]
    fn eng_20_progress() {
        assert_eq!(
            progress(&plan(25, 8, PrefillSplit::Balanced)),
            [8, 16, 24, 25]
        );
        assert_eq!(
            progress(&plan(25, 7, PrefillSplit::Balanced)),
            [6, 12, 18, 24, 25]
        );
        assert_eq!(
            progress(&plan(26, 8, PrefillSplit::Remainder)),
            [8, 16, 24, 26]
        );
        let whole = PrefillPlan::new(25, &PrefillOptions::default()).unwrap();
        assert_eq!(progress(&whole), [25]);
    }

    #[test]
    fn the_defaults_cut_above_the_threshold() {
        let options = PrefillOptions::default();
        let lengths = |tokens| lengths(&PrefillPlan::new(tokens, &options).unwrap());
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(1024), [1024]);
        assert_eq!(lengths(1025), [512, 512, 1]);
        assert_eq!(lengths(1536), [512, 512, 512]);
    }

    #[test]
    fn no_tokens_and_no_chunk_are_errors() {
        let e = PrefillPlan::new(0, &PrefillOptions::default()).unwrap_err();
        assert_eq!(e.kind(), &ErrorKind::EmptyPrompt);
        let none = PrefillOptions {
            chunk: 0,
            ..PrefillOptions::default()
        };
        assert!(PrefillPlan::new(5, &none).is_err());
        let e = "even".parse::<PrefillSplit>().unwrap_err();
        assert_eq!(
            e.to_string(),
            "unknown prefill split 'even'; valid: remainder, balanced"
        );
    }

    proptest! {
        #[test]
        fn passes_cover_the_prompt_once_and_keep_to_the_chunk(
            tokens in 1usize..3000,
            chunk in 1usize..600,
            threshold in 0usize..2000,
            split in prop::sample::select(PrefillSplit::ALL.to_vec()),
        ) {
            let options = PrefillOptions { chunk, threshold, split };
            let plan = PrefillPlan::new(tokens, &options).unwrap();
            let mut at = 0;
            for pass in plan.passes() {
                prop_assert_eq!(pass.start, at);
                prop_assert!(!pass.is_empty());
                prop_assert!(pass.len() <= chunk || tokens <= threshold);
                at = pass.end;
            }
            prop_assert_eq!(at, tokens);
            prop_assert_eq!(plan.passes().last().map(|pass| pass.len()), Some(plan.tail()));
        }
    }
}
