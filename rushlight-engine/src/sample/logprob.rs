//! Log-probabilities under the model's own distribution, before any sampling option touches it.
//!
//! `log softmax(l)ᵢ = lᵢ − max l − ln Σⱼ exp(lⱼ − max l)`, in nats. Every value is finite or −∞.

use super::exp::exp_of_negative;
use super::filter::Candidates;
use super::row::{BLOCK, Key, Row, check_logits, max_of};
use crate::error::{ErrorKind, Result};

/// A token and its log-probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenLogprob {
    /// The token's id.
    pub token: u32,
    /// The natural logarithm of its probability: at most 0, −∞ for an impossible token.
    pub logprob: f32,
}

/// The log-probability of `token` in a row of logits.
///
/// # Errors
/// [`TokenOutOfRange`](ErrorKind::TokenOutOfRange) (with position 0) where the row has no such
/// token; NaN or +∞ logits; [`NoLegalToken`](ErrorKind::NoLegalToken) where every logit is −∞.
pub fn log_softmax_at(logits: &[f32], token: u32) -> Result<f64> {
    log_softmax_of(logits, token, 0)
}

/// The `n` likeliest tokens of a row, likeliest first and lower ids first among equals; all of
/// them where the row has fewer.
///
/// # Errors
/// NaN or +∞ logits; [`NoLegalToken`](ErrorKind::NoLegalToken) where every logit is −∞.
pub fn top_logprobs(logits: &[f32], n: usize) -> Result<Vec<TokenLogprob>> {
    let norm = log_sum_exp(logits)?;
    let mut row = Row::new(logits.len());
    row.load(logits, &vec![u32::MAX; logits.len().div_ceil(32)], None)?;
    row.index()?;
    Ok(top_of(&mut row, &mut Candidates::default(), n, norm))
}

/// The score of a text under a model: the sum of its tokens' log-probabilities.
///
/// ```
/// # use rushlight_engine::sample::SequenceScore;
/// let mut score = SequenceScore::default();
/// for target in [0, 3, 9] {
///     score.add(&[0.0; 10], target)?; // ten equal logits: each token has probability 1/10
/// }
/// assert!((score.perplexity() - 10.0).abs() < 1e-5);
/// # Ok::<(), rushlight_engine::EngineError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SequenceScore {
    sum: f64,
    count: usize,
}

impl SequenceScore {
    /// Adds the token `target`, which the model predicted with `logits`, and returns its
    /// log-probability.
    ///
    /// # Errors
    /// As [`log_softmax_at`], with the number of tokens added before as the position. The score is
    /// then unchanged.
    pub fn add(&mut self, logits: &[f32], target: u32) -> Result<f64> {
        let logprob = log_softmax_of(logits, target, self.count)?;
        self.sum += logprob;
        self.count += 1;
        Ok(logprob)
    }

    /// Tokens added.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The sum of the log-probabilities; 0 where there are none.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The mean log-probability; 0 where there are none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum / self.count as f64
        }
    }

    /// `exp(−mean)`: how many equally likely tokens would be as surprising. 1 where there are none.
    pub fn perplexity(&self) -> f64 {
        (-self.mean()).exp()
    }
}

/// `ln Σ exp(lᵢ)`.
pub(crate) fn log_sum_exp(logits: &[f32]) -> Result<f64> {
    check_logits(logits)?;
    let (blocks, rest) = logits.as_chunks::<BLOCK>();
    let mut last = [f32::NEG_INFINITY; BLOCK];
    if let Some(last) = last.get_mut(..rest.len()) {
        last.copy_from_slice(rest);
    }
    let blocks = || blocks.iter().chain([&last]);
    let max = blocks().map(max_of).fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return Err(ErrorKind::NoLegalToken.into());
    }
    let sums = blocks().map(|block| {
        let mut lanes = [0.0f32; 8];
        for part in block.as_chunks::<8>().0 {
            for (sum, &logit) in lanes.iter_mut().zip(part) {
                *sum += exp_of_negative(logit - max);
            }
        }
        f64::from(lanes.iter().sum::<f32>())
    });
    Ok(f64::from(max) + sums.sum::<f64>().ln())
}

/// The `n` likeliest tokens of an indexed row whose [`log_sum_exp`] is `norm`.
pub(crate) fn top_of(
    row: &mut Row,
    scratch: &mut Candidates,
    n: usize,
    norm: f64,
) -> Vec<TokenLogprob> {
    if n == 0 {
        return Vec::new();
    }
    scratch.reset();
    scratch.keep_top_k(row, n);
    let entry = |key: &Key| TokenLogprob {
        token: key.id(),
        logprob: logprob_of(key.logit(), norm),
    };
    scratch.sorted().iter().map(entry).collect()
}

/// Rounding can lift a certain token's value above 0 by a bit; a probability cannot exceed 1.
pub(crate) fn logprob_of(logit: f32, norm: f64) -> f32 {
    (f64::from(logit) - norm).min(0.0) as f32
}

fn log_softmax_of(logits: &[f32], token: u32, position: usize) -> Result<f64> {
    let out_of_range = || ErrorKind::TokenOutOfRange {
        what: "what is scored",
        token,
        vocab: logits.len(),
        position,
    };
    let &logit = logits.get(token as usize).ok_or_else(out_of_range)?;
    let norm = log_sum_exp(logits)?;
    Ok((f64::from(logit) - norm).min(0.0))
}
