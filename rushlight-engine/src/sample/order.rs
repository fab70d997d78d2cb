//! The order of the sampler's filters, by name.

use std::fmt;
use std::str::FromStr;

use crate::error::{EngineError, Result};

/// A stage of the sampler whose place can be chosen.
///
/// Penalties, logit bias and mask are not here: they always come first, in that order. A filter
/// in front of the mask could keep nothing but tokens that the mask then forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Divide every logit by the temperature.
    Temperature,
    /// Keep tokens at least `min_p` times as likely as the likeliest.
    MinP,
    /// Keep the likeliest tokens until their probabilities reach `top_p`.
    TopP,
    /// Keep the `top_k` likeliest tokens.
    TopK,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 4] = [Self::Temperature, Self::MinP, Self::TopP, Self::TopK];

    /// The stage's name, the same as its option's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::MinP => "min_p",
            Self::TopP => "top_p",
            Self::TopK => "top_k",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Stage {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|stage| stage.name() == name)
            .ok_or_else(|| {
                EngineError::unknown_name("sampler stage", name, Self::ALL.map(Self::name))
            })
    }
}

/// The order in which the filters run: each of the four [stages](Stage) exactly once, so that no
/// option can be set and then skipped.
///
/// Parsed from a name (`default`, `transformers`, `llama.cpp`) or from the four stage names with
/// commas between them: `top_k,top_p,min_p,temperature`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SamplerOrder([Stage; 4]);

impl SamplerOrder {
    /// temperature, min-p, top-p, top-k.
    pub const DEFAULT: Self = Self([Stage::Temperature, Stage::MinP, Stage::TopP, Stage::TopK]);
    /// temperature, top-k, top-p, min-p: the order of Hugging Face transformers.
    pub const TRANSFORMERS: Self =
        Self([Stage::Temperature, Stage::TopK, Stage::TopP, Stage::MinP]);
    /// top-k, top-p, min-p, temperature: the order of llama.cpp's default chain.
    pub const LLAMA_CPP: Self = Self([Stage::TopK, Stage::TopP, Stage::MinP, Stage::Temperature]);

    const NAMED: [(&'static str, Self); 3] = [
        ("default", Self::DEFAULT),
        ("transformers", Self::TRANSFORMERS),
        ("llama.cpp", Self::LLAMA_CPP),
    ];

    /// An order of one's own.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) where a stage comes twice, and so
    /// another is missing.
    pub fn new(stages: [Stage; 4]) -> Result<Self> {
        let order = Self(stages);
        if Stage::ALL.iter().any(|stage| !stages.contains(stage)) {
            return Err(EngineError::invalid_option(
                "sampler order",
                order,
                expected_list(),
            ));
        }
        Ok(order)
    }

    /// The stages, first to last.
    pub fn stages(&self) -> [Stage; 4] {
        self.0
    }
}

impl Default for SamplerOrder {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for SamplerOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = &self.0;
        first.fmt(f)?;
        rest.iter().try_for_each(|stage| write!(f, ",{stage}"))
    }
}

impl FromStr for SamplerOrder {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self> {
        if let Some((_, order)) = Self::NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*order);
        }
        if !text.contains(',') && text.parse::<Stage>().is_err() {
            let valid = Self::NAMED.map(|(name, _)| name).into_iter();
            let valid = valid.chain(Stage::ALL.map(Stage::name));
            return Err(EngineError::unknown_name("sampler order", text, valid));
        }
        let stages = text
            .split(',')
            .map(|name| name.trim().parse())
            .collect::<Result<Vec<Stage>>>()?;
        let stages = <[Stage; 4]>::try_from(stages)
            .map_err(|_| EngineError::invalid_option("sampler order", text, expected_list()))?;
        Self::new(stages)
    }
}

fn expected_list() -> String {
    let stages = Stage::ALL.map(Stage::name).join(", ");
    let names = SamplerOrder::NAMED.map(|(name, _)| name).join(", ");
    format!("{stages}, each exactly once, or one of the named orders {names}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn names_and_lists_parse_and_print_back() {
        for (name, order) in SamplerOrder::NAMED {
            assert_eq!(name.parse::<SamplerOrder>().unwrap(), order);
            assert_eq!(order.to_string().parse::<SamplerOrder>().unwrap(), order);
        }
        let order: SamplerOrder = "min_p, temperature,top_k ,top_p".parse().unwrap();
        assert_eq!(order.to_string(), "min_p,temperature,top_k,top_p");
    }

    #[test]
    fn unknown_repeated_and_missing_stages_are_errors_with_the_valid_list() {
        let e = "fast".parse::<SamplerOrder>().unwrap_err().to_string();
        assert!(
            e.contains("'fast'") && e.contains("llama.cpp") && e.contains("min_p"),
            "{e}"
        );
        let e = "top_k,top_q,min_p,temperature"
            .parse::<SamplerOrder>()
            .unwrap_err();
        assert!(
            matches!(e.kind(), ErrorKind::UnknownName { value, valid, .. }
            if value == "top_q" && valid.len() == 4)
        );
        for text in [
            "top_k",
            "top_k,top_p,min_p",
            "top_k,top_k,min_p,temperature",
            "",
        ] {
            assert!(text.parse::<SamplerOrder>().is_err(), "{text}");
        }
    }
}
