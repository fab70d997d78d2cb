//! From a row of logits to a token.
//!
//! A [`Sampler`] belongs to one request. It runs, in this order: repetition, presence and frequency
//! penalties, logit bias, the constraint's mask, temperature, min-p, top-p, top-k, softmax, draw.
//! The four filters from temperature to top-k may run in another [`SamplerOrder`].
//!
//! ```
//! use rushlight_engine::sample::{SampleVocab, Sampler, SamplingOptions};
//!
//! let vocab = SampleVocab::new(4, 4, &[])?;
//! let options = SamplingOptions { top_k: Some(2), seed: Some(7), ..SamplingOptions::default() };
//! let mut sampler = Sampler::new(&options, &vocab)?;
//! sampler.observe(&[3]); // the prompt
//! let token = sampler.sample(&[0.1, 2.0, 1.5, -1.0], None)?.token;
//! assert!(token == 1 || token == 2);
//! sampler.observe(&[token]);
//! # Ok::<(), rushlight_engine::EngineError>(())
//! ```
//!
//! What makes two runs with one seed equal, on every platform and release: the generator and the
//! exponential are fixed by definition, weights are whole numbers whose sums do not depend on the
//! order of adding, candidates are walked in order of ids, and a draw takes exactly one output of
//! the generator.

mod exp;
mod filter;
mod history;
mod logprob;
mod options;
mod order;
mod row;
mod seed;
#[cfg(test)]
mod tests;
mod vocab;

pub use history::TokenCounts;
pub use logprob::{SequenceScore, TokenLogprob, log_softmax_at, top_logprobs};
pub use options::SamplingOptions;
pub use order::{SamplerOrder, Stage};
pub use row::check_logits;
pub use seed::Draws;
pub use vocab::{Mask, SampleVocab};

use filter::Candidates;
use row::{Row, Scale};
use seed::fresh_seed;

use crate::error::{ErrorKind, Result};

/// A sampled token.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The token's id.
    pub token: u32,
    /// Where [`logprobs`](SamplingOptions::logprobs) asks for it: the token's log-probability under
    /// the model's own distribution, the softmax of the logits as they came in. Penalties, bias,
    /// mask, temperature and filters do not show in it.
    pub logprob: Option<f32>,
    /// Where asked for and a mask was given: the token's log-probability among the ids that mask,
    /// vocabulary and bans leave, before every other option. Finite.
    pub masked_logprob: Option<f32>,
    /// The likeliest tokens under the model's own distribution, as many as asked for, likeliest
    /// first. Only ids that have text; the mask does not narrow them.
    pub top: Vec<TokenLogprob>,
}

/// Chooses a request's tokens, one row of logits at a time.
///
/// Working memory is `4 · width` bytes and a little; once warm, sampling allocates nothing unless
/// alternatives are asked for.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplingOptions,
    /// Ids with text.
    vocab: SampleVocab,
    /// Ids with text that no bias bans.
    legal: SampleVocab,
    /// Present where a penalty needs it.
    history: Option<TokenCounts>,
    seed: u64,
    draws: Draws,
    row: Row,
    candidates: Candidates,
}

impl Sampler {
    /// A sampler for one request over `vocab`, with an empty history.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption) with the name of the first option outside its
    /// range.
    pub fn new(options: &SamplingOptions, vocab: &SampleVocab) -> Result<Self> {
        options.check(vocab)?;
        let mut options = options.clone();
        let mut legal = vocab.clone();
        options.logit_bias.retain(|&(id, bias)| {
            let banned = bias == f32::NEG_INFINITY;
            if banned {
                legal.forbid(id);
            }
            !banned
        });
        let penalised = options.repetition_penalty != 1.0
            || options.presence_penalty != 0.0
            || options.frequency_penalty != 0.0;
        let context = options.penalty_context.map(|n| n as usize);
        let seed = options.seed.unwrap_or_else(fresh_seed);
        Ok(Self {
            vocab: vocab.clone(),
            history: penalised.then(|| TokenCounts::new(vocab.width(), context)),
            seed,
            draws: Draws::new(seed),
            row: Row::new(vocab.width()),
            candidates: Candidates::default(),
            options,
            legal,
        })
    }

    /// Appends tokens to the history that the penalties look at: the prompt, and every token the
    /// sequence takes afterwards, whether sampled or forced. Ids outside the vocabulary have no
    /// logit to penalise and are ignored.
    pub fn observe(&mut self, tokens: &[u32]) {
        if let Some(history) = &mut self.history {
            tokens.iter().for_each(|&token| history.push(token));
        }
    }

    /// Empties the history. The stream of draws goes on where it was.
    pub fn forget(&mut self) {
        if let Some(history) = &mut self.history {
            history.clear();
        }
    }

    /// The seed of this request's draws, given or drawn.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the likeliest token is taken without drawing.
    pub fn is_greedy(&self) -> bool {
        self.options.temperature == 0.0
    }

    /// Chooses a token from `logits`, `[width]`, among those that `mask` allows. The token is not
    /// added to the history: [`observe`](Self::observe) it once the sequence takes it.
    ///
    /// # Errors
    /// [`NanLogits`](ErrorKind::NanLogits) and [`InfiniteLogits`](ErrorKind::InfiniteLogits) where
    /// any logit, legal or not, is NaN or +∞ (+∞ has no probability, and two have no order);
    /// [`NoLegalToken`](ErrorKind::NoLegalToken) where all that remain are −∞;
    /// [`LogitsWidth`](ErrorKind::LogitsWidth) and [`MaskWidth`](ErrorKind::MaskWidth) for a row or
    /// mask of the wrong size. After an error nothing was drawn.
    pub fn sample(&mut self, logits: &[f32], mask: Option<Mask<'_>>) -> Result<Sampled> {
        if let Some(mask) = mask {
            mask.check(&self.legal)?;
        }
        self.row.load(logits, self.legal.words(), mask)?;
        let shown = mask.is_some() && self.options.logprobs.is_some();
        let masked = if shown {
            Some(logprob::log_sum_exp(self.row.logits())?)
        } else {
            None
        };
        self.penalise();
        for &(id, bias) in &self.options.logit_bias {
            self.row.change(id, |logit| logit + f64::from(bias));
        }
        self.row.index()?;
        let token = if self.is_greedy() {
            self.row.argmax()
        } else {
            self.draw()
        };
        // Every filter keeps the best token, so some token owns every place of the total.
        let token = token.ok_or(ErrorKind::NoLegalToken)?;
        let (logprob, top) = self.logprobs(logits, token)?;
        let logit = logits.get(token as usize);
        let masked_logprob = masked
            .zip(logit)
            .map(|(norm, &logit)| logprob::logprob_of(logit, norm));
        Ok(Sampled {
            token,
            logprob,
            masked_logprob,
            top,
        })
    }

    fn penalise(&mut self) {
        let Some(history) = &self.history else {
            return;
        };
        let repetition = f64::from(self.options.repetition_penalty);
        let presence = f64::from(self.options.presence_penalty);
        let frequency = f64::from(self.options.frequency_penalty);
        for (id, count) in history.iter() {
            self.row.change(id, |logit| {
                repeated(logit, repetition) - presence - frequency * f64::from(count)
            });
        }
    }

    fn draw(&mut self) -> Option<u32> {
        let mut scale = Scale {
            max: self.row.max(),
            temperature: 1.0,
        };
        self.candidates.reset();
        for stage in self.options.order.stages() {
            match stage {
                Stage::Temperature => scale.temperature = self.options.temperature,
                Stage::MinP => {
                    if let Some(ratio) = self.options.min_p.filter(|&ratio| ratio > 0.0) {
                        self.candidates.keep_min_p(&self.row, scale, ratio);
                    }
                }
                Stage::TopP => {
                    if let Some(share) = self.options.top_p.filter(|&share| share < 1.0) {
                        self.candidates.keep_top_p(&self.row, scale, share);
                    }
                }
                Stage::TopK => {
                    if let Some(k) = self.options.top_k {
                        self.candidates.keep_top_k(&mut self.row, k as usize);
                    }
                }
            }
        }
        let total = self.candidates.total_weight(&mut self.row, scale);
        let at = self.draws.below(total);
        self.candidates.token_at(&self.row, at, scale)
    }

    fn logprobs(&mut self, logits: &[f32], token: u32) -> Result<(Option<f32>, Vec<TokenLogprob>)> {
        let Some(wanted) = self.options.logprobs else {
            return Ok((None, Vec::new()));
        };
        let norm = logprob::log_sum_exp(logits)?;
        let logit = logits.get(token as usize).copied();
        let own = logit.map(|logit| logprob::logprob_of(logit, norm));
        if wanted == 0 {
            return Ok((own, Vec::new()));
        }
        self.row.load(logits, self.vocab.words(), None)?;
        self.row.index()?;
        let top = logprob::top_of(&mut self.row, &mut self.candidates, wanted as usize, norm);
        Ok((own, top))
    }
}

/// The repetition penalty: towards −∞ on both sides of zero.
fn repeated(logit: f64, penalty: f64) -> f64 {
    if logit > 0.0 {
        logit / penalty
    } else {
        logit * penalty
    }
}
