//! Checks that every importer makes on its configuration and weights.

use crate::config::{Config, RopeScaling};
use crate::error::{AssetError, ErrorKind};
use crate::limits;
use crate::weights::Weights;

/// A count or width from a file, positive and within [`limits::DIMENSION`].
pub(super) fn dimension(key: &str, value: u64) -> Result<usize, AssetError> {
    bounded(key, value, limits::DIMENSION)
}

/// A positive number up to `limit`.
pub(super) fn bounded(key: &str, value: u64, limit: u64) -> Result<usize, AssetError> {
    if value == 0 {
        return Err(AssetError::malformed("must not be zero").key(key));
    }
    usize::try_from(value)
        .ok()
        .filter(|_| value <= limit)
        .ok_or_else(|| {
            AssetError::new(
                ErrorKind::Limit,
                format!("{value}; at most {limit} is accepted"),
            )
            .key(key)
        })
}

/// Whether the numbers make sense together, so that no architecture divides by zero or rotates
/// half an element.
pub(super) fn config(config: &Config) -> Result<(), AssetError> {
    let fault = |message: String| Err(AssetError::new(ErrorKind::Mismatch, message));
    if !config.heads.is_multiple_of(config.kv_heads) {
        return fault(format!(
            "{} query heads cannot share {} key/value heads evenly",
            config.heads, config.kv_heads
        ));
    }
    if !(config.norm_eps >= 0.0 && config.norm_eps < 1.0) {
        return fault(format!("a norm's ε of {}", config.norm_eps));
    }
    for rope in std::iter::once(&config.rope).chain(&config.sliding_rope) {
        if !rope.dim.is_multiple_of(2) || rope.dim == 0 || rope.dim > config.head_dim {
            return fault(format!(
                "{} of a head's {} elements rotate; it must be an even number up to all",
                rope.dim, config.head_dim
            ));
        }
        if rope.theta <= 0.0 {
            return fault(format!("a rotary base of {}", rope.theta));
        }
        scaling(&rope.scaling, rope.dim)?;
    }
    for (what, scale) in [
        ("attention softcap", config.attention_softcap),
        ("logit softcap", config.logit_softcap),
        ("attention scale", config.attention_scale),
        ("embedding scale", Some(config.embedding_scale)),
    ] {
        if scale.is_some_and(|scale| scale <= 0.0) {
            return fault(format!("{what} must be positive"));
        }
    }
    Ok(())
}

fn scaling(scaling: &RopeScaling, dim: usize) -> Result<(), AssetError> {
    let positive = |value: f32| value > 0.0 && value.is_finite();
    let sound = match scaling {
        RopeScaling::None => true,
        RopeScaling::Linear { factor } => positive(*factor),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context,
        } => {
            positive(*factor)
                && positive(*low_freq_factor)
                && high_freq_factor > low_freq_factor
                && *original_context > 0
        }
        RopeScaling::Yarn {
            factor,
            original_context,
            beta_fast,
            beta_slow,
            attention_factor,
        } => {
            positive(*factor)
                && *original_context > 0
                && positive(*beta_slow)
                && beta_fast >= beta_slow
                && attention_factor.is_none_or(positive)
        }
        RopeScaling::Factors { factors } => {
            if factors.len() != dim / 2 {
                return Err(AssetError::new(
                    ErrorKind::Mismatch,
                    format!(
                        "{} rotary divisors for {} rotating pairs",
                        factors.len(),
                        dim / 2
                    ),
                ));
            }
            factors.iter().all(|&factor| positive(factor))
        }
    };
    if sound {
        Ok(())
    } else {
        Err(AssetError::new(
            ErrorKind::Mismatch,
            format!("rotary scaling out of range: {scaling:?}"),
        ))
    }
}

/// Whether the vocabulary that the configuration states is the embedding's and the tokenizer's.
pub(super) fn vocabulary(
    vocab_size: usize,
    weights: &Weights,
    tokens: Option<usize>,
) -> Result<(), AssetError> {
    for name in ["embed.weight", "head.weight"] {
        if let Some(tensor) = weights.find(name)
            && tensor.rows() != vocab_size
        {
            return Err(tensor.error(
                ErrorKind::Mismatch,
                format!(
                    "{} rows for a vocabulary of {vocab_size} tokens",
                    tensor.rows()
                ),
            ));
        }
    }
    match tokens {
        Some(tokens) if tokens != vocab_size => Err(AssetError::new(
            ErrorKind::Mismatch,
            format!("{tokens} tokens for a vocabulary of {vocab_size}"),
        )
        .key("tokenizer.ggml.tokens")),
        _ => Ok(()),
    }
}
