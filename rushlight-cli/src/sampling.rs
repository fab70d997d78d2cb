//! The options of choosing tokens, and what stands where they are left out.

use clap::Args;
use rushlight::engine::EngineError;
use rushlight::engine::sample::{SampleVocab, SamplingOptions};
use rushlight::{Filters, GenerationOptions, LocalModel, SamplingMode};

use crate::failure::Failure;
use crate::source::Guide;

/// The defaults where a model says nothing of its own: less than the whole distribution, whose long
/// tail derails small models.
const TEMPERATURE: f32 = 0.8;
const TOP_P: f32 = 0.95;

/// How an answer is made.
#[derive(Args, Debug)]
#[command(
    next_help_heading = "Sampling (where left out: the model's generation_config.json; where that is \
                         silent: temperature 0.8, top-p 0.95)"
)]
pub(crate) struct SamplingArgs {
    /// Tokens to make at most [default: until the model ends or the context is full]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Divides the logits; 0 takes the likeliest token every time, whatever else is given
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Draw from this many of the likeliest tokens
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Draw from the likeliest tokens of this total probability; 1 keeps all
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Draw from tokens at least this many times as likely as the likeliest
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Divides positive and multiplies negative logits of tokens seen; 1 does nothing
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Subtracted once from the logit of a token seen
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Subtracted from a token's logit for each time it was seen
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// Seeds the draws: the same seed gives the same text [default: drawn, and told]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// A text that ends the answer and is no part of it; may be given several times
    #[arg(long, value_name = "S")]
    stop: Vec<String>,
    /// Added to a token's logit, for example 1234=-5; -inf bans it; may be given several times
    #[arg(long, value_name = "ID=F", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
}

impl SamplingArgs {
    /// Refuses what no model could take, before one is loaded.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.max_tokens == Some(0) {
            return Err(EngineError::invalid_option("max_tokens", 0, "at least 1").into());
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(EngineError::invalid_option("stop", "empty", "a text").into());
        }
        let silent = SamplingOptions::default();
        let given = SamplingOptions {
            temperature: self.temperature.unwrap_or(silent.temperature),
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty.unwrap_or(silent.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(silent.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(silent.frequency_penalty),
            ..silent
        };
        // No range but that of the bias, which is left out, depends on the vocabulary.
        Ok(given.check(&SampleVocab::new(1, 1, &[])?)?)
    }

    /// The request for `model`. A filter that is given replaces that filter alone.
    pub(crate) fn resolve(&self, model: &LocalModel, guide: Guide) -> GenerationOptions {
        let own = &model.summary().generation;
        let silent = own.do_sample.is_none()
            && own.temperature.is_none()
            && (own.top_k, own.top_p, own.min_p) == (None, None, None);
        let mode = if silent {
            SamplingMode::top_p(TOP_P)
        } else {
            model.default_sampling()
        };
        let filtered = self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some();
        let sampling = match mode {
            SamplingMode::Random(own) => Some(SamplingMode::Random(self.filters(own))),
            SamplingMode::Greedy if filtered => {
                Some(SamplingMode::Random(self.filters(Filters::default())))
            }
            SamplingMode::Greedy => None,
        };
        GenerationOptions {
            sampling,
            temperature: self.temperature.or(silent.then_some(TEMPERATURE)),
            seed: self.seed,
            maximum_response_tokens: self.max_tokens,
            stop_strings: self.stop.clone(),
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.clone(),
            grammar: guide.grammar,
            grammar_after: guide.grammar_after,
            sample_forced: guide.sample_forced,
            ..GenerationOptions::default()
        }
    }

    fn filters(&self, own: Filters) -> Filters {
        Filters {
            top_k: self.top_k.or(own.top_k),
            top_p: self.top_p.or(own.top_p),
            min_p: self.min_p.or(own.min_p),
        }
    }
}

fn logit_bias(entry: &str) -> Result<(u32, f32), String> {
    let parsed = entry
        .split_once('=')
        .and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?)));
    parsed.ok_or_else(|| "a token id and a number are wanted, as in 1234=-5".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_is_an_id_and_a_number() {
        assert_eq!(logit_bias("5=-1.5"), Ok((5, -1.5)));
        assert_eq!(logit_bias("0=-inf"), Ok((0, f32::NEG_INFINITY)));
        for wrong in ["5", "=1", "5=", "-1=2", "x=1", "5=a", "4294967296=1"] {
            assert!(logit_bias(wrong).is_err(), "{wrong}");
        }
    }
}
