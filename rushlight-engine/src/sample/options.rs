//! A request's sampling options and their ranges.

use std::fmt;

use super::order::SamplerOrder;
use super::vocab::SampleVocab;
use crate::error::{EngineError, Result};

/// How tokens are chosen. The default is the model's own distribution: temperature 1, no filter,
/// no penalty.
///
/// Every field is checked when a [`Sampler`](super::Sampler) is made; a value outside its range is
/// an error that names the field, never a clamp.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingOptions {
    /// Divides the logits; 0 means greedy whatever the filters say. Finite, at least 0.
    pub temperature: f32,
    /// Keep this many of the likeliest tokens; `None` keeps all. At least 1.
    pub top_k: Option<u32>,
    /// Keep the likeliest tokens until their probabilities sum to this, the crossing one
    /// included. Above 0, at most 1; 1 and `None` keep all.
    pub top_p: Option<f32>,
    /// Keep tokens at least this many times as likely as the likeliest. From 0 to 1.
    pub min_p: Option<f32>,
    /// Divides the positive and multiplies the negative logits of tokens in the history; 1 does
    /// nothing. Finite, above 0. (Keskar et al., CTRL, 2019, made symmetric about zero.)
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of every token in the history. Finite.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit once for each time it is in the history. Finite.
    pub frequency_penalty: f32,
    /// How many of the last tokens the three penalties look at; `None` is all of them, prompt
    /// included. At least 1.
    pub penalty_context: Option<u32>,
    /// Added to the logits of these ids; −∞ bans one. Each id below the vocabulary's size and at
    /// most once, each value finite or −∞.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seeds this request's draws; `None` draws a seed, which
    /// [`Sampler::seed`](super::Sampler::seed) reports.
    pub seed: Option<u64>,
    /// The order of the filters.
    pub order: SamplerOrder,
    /// `None`: no log-probabilities. `Some(n)`: the chosen token's, and those of the `n`
    /// likeliest tokens. At most the vocabulary's size.
    pub logprobs: Option<u32>,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_context: None,
            logit_bias: Vec::new(),
            seed: None,
            order: SamplerOrder::DEFAULT,
            logprobs: None,
        }
    }
}

impl SamplingOptions {
    /// The likeliest token every time.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Fails with the name of the first field outside its range. `vocab` bounds the ids of
    /// [`logit_bias`](Self::logit_bias).
    pub fn check(&self, vocab: &SampleVocab) -> Result<()> {
        check(
            "temperature",
            self.temperature,
            self.temperature.is_finite() && self.temperature >= 0.0,
            "finite and at least 0",
        )?;
        check_some("top_k", self.top_k, |k| k >= 1, "at least 1")?;
        let above_zero_to_one = |p: f32| p > 0.0 && p <= 1.0;
        check_some(
            "top_p",
            self.top_p,
            above_zero_to_one,
            "above 0 and at most 1",
        )?;
        let zero_to_one = |p: f32| (0.0..=1.0).contains(&p);
        check_some("min_p", self.min_p, zero_to_one, "from 0 to 1")?;
        check(
            "repetition_penalty",
            self.repetition_penalty,
            self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0,
            "finite and above 0",
        )?;
        for (field, value) in [
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ] {
            check(field, value, value.is_finite(), "finite")?;
        }
        check_some(
            "penalty_context",
            self.penalty_context,
            |n| n >= 1,
            "at least 1",
        )?;
        self.check_bias(vocab)?;
        let most = vocab.tokens();
        let fits = |n: u32| usize::try_from(n).is_ok_and(|n| n <= most);
        let expected = format!("at most the vocabulary's size, {most}");
        check_some("logprobs", self.logprobs, fits, &expected)
    }

    fn check_bias(&self, vocab: &SampleVocab) -> Result<()> {
        let mut ids = Vec::with_capacity(self.logit_bias.len());
        for &(id, bias) in &self.logit_bias {
            let known = usize::try_from(id).is_ok_and(|id| id < vocab.tokens());
            let expected = format!("for a token id below {}", vocab.tokens());
            let entry = format!("{id}={bias}");
            check("logit_bias", &entry, known, &expected)?;
            let valid = bias.is_finite() || bias == f32::NEG_INFINITY;
            check(
                "logit_bias",
                &entry,
                valid,
                "finite, or -inf to ban the token",
            )?;
            ids.push(id);
        }
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(EngineError::invalid_option(
                "logit_bias",
                format!("given twice for token {}", pair[0]),
                "given once a token",
            )),
            None => Ok(()),
        }
    }
}

fn check(field: &'static str, value: impl fmt::Display, valid: bool, expected: &str) -> Result<()> {
    if valid {
        Ok(())
    } else {
        Err(EngineError::invalid_option(field, value, expected))
    }
}

fn check_some<T: fmt::Display + Copy>(
    field: &'static str,
    value: Option<T>,
    valid: impl Fn(T) -> bool,
    expected: &str,
) -> Result<()> {
    value.map_or(Ok(()), |value| check(field, value, valid(value), expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn field_of(change: impl FnOnce(&mut SamplingOptions)) -> &'static str {
        let vocab = SampleVocab::new(10, 16, &[]).unwrap();
        let mut options = SamplingOptions::default();
        change(&mut options);
        match options.check(&vocab).unwrap_err().kind() {
            ErrorKind::InvalidOption { field, .. } => field,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn every_value_outside_its_range_is_an_error_that_names_its_field() {
        for t in [-1.0, f32::NAN, f32::INFINITY, -f32::MIN_POSITIVE] {
            assert_eq!(field_of(|o| o.temperature = t), "temperature");
        }
        assert_eq!(field_of(|o| o.top_k = Some(0)), "top_k");
        for p in [0.0, 1.5, -0.1, f32::NAN] {
            assert_eq!(field_of(|o| o.top_p = Some(p)), "top_p");
        }
        for p in [-0.1, 1.01, f32::NAN] {
            assert_eq!(field_of(|o| o.min_p = Some(p)), "min_p");
        }
        for p in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(field_of(|o| o.repetition_penalty = p), "repetition_penalty");
        }
        assert_eq!(
            field_of(|o| o.presence_penalty = f32::NAN),
            "presence_penalty"
        );
        assert_eq!(
            field_of(|o| o.frequency_penalty = f32::INFINITY),
            "frequency_penalty"
        );
        assert_eq!(field_of(|o| o.penalty_context = Some(0)), "penalty_context");
        assert_eq!(field_of(|o| o.logprobs = Some(11)), "logprobs");
        // Id 10 has a logit (the row is 16 wide) but no text.
        for bias in [
            (10, 1.0),
            (u32::MAX, 1.0),
            (3, f32::NAN),
            (3, f32::INFINITY),
        ] {
            assert_eq!(field_of(|o| o.logit_bias = vec![bias]), "logit_bias");
        }
        assert_eq!(
            field_of(|o| o.logit_bias = vec![(3, 1.0), (3, 2.0)]),
            "logit_bias"
        );
    }

    #[test]
    fn the_edges_of_the_ranges_are_valid() {
        let vocab = SampleVocab::new(10, 16, &[]).unwrap();
        let options = SamplingOptions {
            temperature: 0.0,
            top_k: Some(1),
            top_p: Some(1.0),
            min_p: Some(1.0),
            repetition_penalty: 0.5,
            presence_penalty: -2.0,
            frequency_penalty: 2.0,
            penalty_context: Some(1),
            logit_bias: vec![(9, f32::NEG_INFINITY), (0, 100.0)],
            logprobs: Some(10),
            ..SamplingOptions::default()
        };
        options.check(&vocab).unwrap();
        SamplingOptions::default().check(&vocab).unwrap();
    }
}
