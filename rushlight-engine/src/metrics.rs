//! What a generation used and how long it took.

use std::time::Duration;

/// Tokens of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Of those, tokens whose states were kept from before.
    pub cached: usize,
    /// Tokens of the answer, a stop token included.
    pub completion: usize,
}

/// Times of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// In passes over the prompt.
    pub prefill: Duration,
    /// Tokens that those passes read (the prompt less what was cached).
    pub prefill_tokens: usize,
    /// In passes over the answer, and in choosing its tokens.
    pub decode: Duration,
    /// Tokens that those passes read: one less than the answer, whose first token comes from the
    /// prompt's last pass and whose last is not run.
    pub decode_tokens: usize,
    /// Part of `prefill` and `decode`: waiting for the constraint, for masks that were not ready when
    /// their pass was and for tokens to be taken.
    pub mask: Duration,
}

impl Timings {
    /// Prompt tokens a second, where any were read.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prefill_tokens, self.prefill)
    }

    /// Answer tokens a second, where any were read.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decode_tokens, self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}
