//! How one answer is made.

use rushlight_engine::sample::SamplerOrder;
use rushlight_grammar::GrammarSource;

/// How one answer is made. What is left unset is as the model's makers have it
/// (`generation_config.json`), and where they are silent, the model's own distribution.
///
/// Everything set is honoured, or the turn fails with an error that names the field; nothing is
/// clamped or dropped. Ranges are those of
/// [`SamplingOptions`](rushlight_engine::sample::SamplingOptions).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationOptions {
    /// How tokens are chosen.
    pub sampling: Option<SamplingMode>,
    /// Divides the logits; 0 is greedy whatever the mode. Finite, at least 0. Greedy sampling takes
    /// the likeliest token, which is the same at every temperature.
    pub temperature: Option<f32>,
    /// Seeds the draws; unset, a seed is drawn, and the response tells it.
    pub seed: Option<u64>,
    /// Tokens to make at most, at least 1; unset, until the model ends or the context is full.
    pub maximum_response_tokens: Option<usize>,
    /// Texts that end the answer and are no part of it, besides the model's own.
    pub stop_strings: Vec<String>,
    /// Divides the positive and multiplies the negative logits of tokens seen; finite, above 0.
    pub repetition_penalty: Option<f32>,
    /// Subtracted once from the logit of a token seen; finite.
    pub presence_penalty: Option<f32>,
    /// Subtracted from a token's logit for each time it was seen; finite.
    pub frequency_penalty: Option<f32>,
    /// How many of the last tokens the penalties look at, at least 1; unset, all.
    pub penalty_context: Option<u32>,
    /// Added to the logits of these ids; −∞ bans one.
    pub logit_bias: Vec<(u32, f32)>,
    /// The order of penalties, bias, temperature and filters.
    pub order: Option<SamplerOrder>,
    /// What the answer is: every other option holds under it. A source that cannot be enforced as a
    /// whole fails the turn before anything is read. An answer that ends by itself is whole; one
    /// that `maximum_response_tokens` or the context would cut is brought to its end within them, or
    /// the turn fails. Only a stop string or cancelling can end it elsewhere, and the response says so.
    pub grammar: Option<GrammarSource>,
    /// A control token of the model, such as `</think>`: what comes up to it is free, and the
    /// grammar begins behind it.
    pub grammar_after: Option<String>,
    /// Samples tokens that the grammar leaves no choice about too. Unset, they are taken many at a
    /// time, in the tokenizer's own spelling.
    pub sample_forced: bool,
}

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SamplingMode {
    /// The likeliest token every time.
    Greedy,
    /// A draw from what the filters leave.
    Random(Filters),
}

/// Which tokens a random draw is made from. The set replaces the model's own defaults as a whole:
/// a filter that is `None` keeps everything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Filters {
    /// Keeps this many of the likeliest tokens; at least 1.
    pub top_k: Option<u32>,
    /// Keeps the likeliest tokens until their probabilities sum to this, the crossing one included;
    /// above 0, at most 1.
    pub top_p: Option<f32>,
    /// Keeps tokens at least this many times as likely as the likeliest; from 0 to 1.
    pub min_p: Option<f32>,
}

impl SamplingMode {
    /// A draw from the `k` likeliest tokens.
    pub fn top_k(k: u32) -> SamplingMode {
        SamplingMode::Random(Filters {
            top_k: Some(k),
            ..Filters::default()
        })
    }

    /// A draw from the likeliest tokens of total probability `p`.
    pub fn top_p(p: f32) -> SamplingMode {
        SamplingMode::Random(Filters {
            top_p: Some(p),
            ..Filters::default()
        })
    }
}

impl GenerationOptions {
    /// The likeliest token every time; everything else as the model has it.
    pub fn greedy() -> GenerationOptions {
        GenerationOptions {
            sampling: Some(SamplingMode::Greedy),
            ..GenerationOptions::default()
        }
    }
}
