//! What a caller asks of one generation, and what it gets back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cache::Reuse;
use crate::constrain::{Constraint, ConstraintCounts};
use crate::metrics::{Timings, Usage};
use crate::sample::{SamplingOptions, TokenLogprob};

/// Turns tokens into text as they come. Implemented over a tokenizer by the layer above.
pub trait TokenText: Send {
    /// The text that `token` completes; empty while a character is unfinished.
    fn push(&mut self, token: u32) -> String;

    /// What is still held back.
    fn finish(&mut self) -> String;
}

/// Stops a generation from any thread, within one step, or the compiling of a grammar for one.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Cancels all work that holds a clone. Without any, it does nothing.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](CancelToken::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Called with prompt tokens done and prompt tokens to do, after each prefill pass.
pub type Progress = Box<dyn FnMut(usize, usize) + Send>;

/// What a generation is asked for.
#[derive(Default)]
pub struct GenerateOptions {
    /// Tokens to make at most; `None` goes on until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Ids that end the answer.
    pub stop_tokens: Vec<u32>,
    /// Texts that end the answer; they are never part of it. They need `text`.
    pub stop_strings: Vec<String>,
    /// Makes each step's text; without it steps carry ids alone.
    pub text: Option<Box<dyn TokenText>>,
    /// Tokens that the answer begins with whatever the model prefers; run in one pass. They count
    /// towards `max_tokens`, which may end the answer inside them.
    pub forced: Vec<u32>,
    /// What the answer may be. Its text is whole when the answer ends, whatever ends it but a stop
    /// string, cancelling or an error; within `max_tokens` and the context it is brought to its end.
    /// `forced` tokens are part of what it follows.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Samples even the tokens that the constraint leaves no choice about, one pass each. Otherwise
    /// they are taken together in the next pass, spelled as the tokenizer spells them: sooner, and
    /// nearer to what the model has seen in training.
    pub sample_forced: bool,
    /// Whether each step carries the logits that its token was chosen from.
    pub logits: bool,
    /// Stops the generation from elsewhere.
    pub cancel: CancelToken,
    /// Told of prefill.
    pub progress: Option<Progress>,
}

impl std::fmt::Debug for GenerateOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GenerateOptions")
            .field("max_tokens", &self.max_tokens)
            .field("sampling", &self.sampling)
            .field("stop_tokens", &self.stop_tokens)
            .field("stop_strings", &self.stop_strings)
            .field("forced", &self.forced.len())
            .field("constrained", &self.constraint.is_some())
            .field("logits", &self.logits)
            .finish_non_exhaustive()
    }
}

/// One token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The token.
    pub token: u32,
    /// The text that is safe to show now; the texts of all steps are the answer.
    pub text: String,
    /// Whether the token was forced rather than sampled.
    pub forced: bool,
    /// The token's log-probability under the model's own distribution, where the sampling options
    /// ask for it.
    pub logprob: Option<f32>,
    /// The same among the tokens that the constraint allowed, where there is one and the token was
    /// sampled.
    pub masked_logprob: Option<f32>,
    /// The likeliest tokens under the model's own distribution, as many as asked for.
    pub top: Vec<TokenLogprob>,
    /// The logits that the token was chosen from, `[width]`, where asked for.
    pub logits: Option<Vec<f32>>,
    /// Set on the last step of an answer that came to an end: why there is no further one. An answer
    /// that was cancelled or failed ends without such a step.
    pub stop: Option<StopReason>,
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// `max_tokens` were made.
    MaxTokens,
    /// The model gave a stop token.
    Eos,
    /// This stop string was met.
    StopSequence(String),
    /// The constraint's text is whole and nothing may follow it. The last step carries it, unless that
    /// was only found when a further token was refused.
    Grammar,
    /// The context is full.
    Context,
    /// It was cancelled, or dropped before its end.
    Cancelled,
    /// A pass failed; the iterator gave the error.
    Error,
}

impl StopReason {
    /// The name in JSON: `max_tokens`, `eos`, `stop_sequence`, `grammar`, `context`, `cancelled`, `error`.
    pub fn name(&self) -> &'static str {
        match self {
            StopReason::MaxTokens => "max_tokens",
            StopReason::Eos => "eos",
            StopReason::StopSequence(_) => "stop_sequence",
            StopReason::Grammar => "grammar",
            StopReason::Context => "context",
            StopReason::Cancelled => "cancelled",
            StopReason::Error => "error",
        }
    }
}

/// How a generation went.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub stop: StopReason,
    /// Tokens read and made.
    pub usage: Usage,
    /// What was kept of the sequence's history.
    pub reuse: Reuse,
    /// Times.
    pub timings: Timings,
    /// The seed that its draws came from.
    pub seed: u64,
    /// What the constraint did, where there is one.
    pub constraint: Option<ConstraintCounts>,
    /// Text that was held back, as a possible beginning of a character or a stop string, where no step
    /// carried the end: the answer was cancelled or failed, or its constraint ended it after the last
    /// step was given out. Else empty, the last step having it.
    pub rest: String,
}
