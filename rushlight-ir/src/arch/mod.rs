//! Architectures: one short file a family, canonical configuration in, graph out.
//!
//! To add one: write `build` in a new file, add its line to `FAMILIES`, add a golden checkpoint and
//! a printed-graph snapshot. Formats and file layouts never appear here.

mod gemma3;
mod layer;
mod llama;

use rushlight_asset::config::{AttentionKind, Config};

use crate::error::{IrError, IrErrorKind};
use crate::graph::Graph;

/// Says whether the checkpoint holds a tensor, for those that a family may or may not have.
pub type Has<'a> = &'a dyn Fn(&str) -> bool;

type Build = fn(&Config, Has<'_>) -> Result<Graph, IrError>;

/// By name, sorted.
const FAMILIES: &[(&str, Build)] = &[("gemma3", gemma3::build), ("llama", llama::build)];

/// The names of the architectures that [`build`] knows, sorted.
pub fn known() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

/// The graph of a configuration's `main` function.
///
/// # Errors
/// [`IrErrorKind::UnknownArchitecture`] listing the known ones, or [`IrErrorKind::Config`] naming
/// the field.
pub fn build(config: &Config, has: Has<'_>) -> Result<Graph, IrError> {
    let Some((_, build)) = FAMILIES
        .iter()
        .find(|(name, _)| *name == config.architecture)
    else {
        return Err(IrError::new(
            IrErrorKind::UnknownArchitecture,
            "config: architecture",
            format!(
                "`{}` is not an architecture that rushlight runs; it runs {}",
                config.architecture,
                known().collect::<Vec<_>>().join(", ")
            ),
        ));
    };
    check(config)?;
    build(config, has)
}

/// Contradictions that every family would trip over.
fn check(config: &Config) -> Result<(), IrError> {
    let fail = |field: &str, message: String| {
        Err(IrError::new(
            IrErrorKind::Config,
            format!("config: {field}"),
            message,
        ))
    };
    for (field, size) in [
        ("vocab_size", config.vocab_size),
        ("hidden_size", config.hidden_size),
        ("intermediate_size", config.intermediate_size),
        ("layers", config.layers),
        ("heads", config.heads),
        ("kv_heads", config.kv_heads),
        ("head_dim", config.head_dim),
        ("context", config.context),
    ] {
        // Above this a product of two sizes could overflow on 64-bit machines.
        if size == 0 || size > 1 << 31 {
            return fail(field, format!("{size} is not a usable size"));
        }
    }
    if !config.heads.is_multiple_of(config.kv_heads) {
        return fail(
            "kv_heads",
            format!("{} does not divide {} heads", config.kv_heads, config.heads),
        );
    }
    if config.attention.len() != config.layers {
        return fail(
            "attention",
            format!(
                "{} entries for {} layers",
                config.attention.len(),
                config.layers
            ),
        );
    }
    if config
        .attention
        .contains(&AttentionKind::Sliding { window: 0 })
    {
        return fail(
            "attention",
            "a sliding window of 0 positions sees nothing".to_owned(),
        );
    }
    if !(config.norm_eps.is_finite() && config.norm_eps >= 0.0) {
        return fail("norm_eps", format!("{} is not usable", config.norm_eps));
    }
    Ok(())
}
