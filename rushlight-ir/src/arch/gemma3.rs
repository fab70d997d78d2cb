//! Gemma 3 (text): norms before and after both blocks, normalised queries and keys, sliding layers
//! with their own rotary base between full ones, scaled embeddings.

use rushlight_asset::config::Config;

use super::{Has, layer::Decoder};
use crate::error::IrError;
use crate::graph::Graph;

pub(super) fn build(config: &Config, has: Has<'_>) -> Result<Graph, IrError> {
    let mut d = Decoder::new(config, has);
    let hidden = config.hidden_size;
    let mut x = d.embed()?;
    for i in 0..config.layers {
        let h = d.norm(x, &format!("layers.{i}.attention_norm.weight"), hidden)?;
        let h = d.attention(h, i, true)?;
        let h = d.norm(h, &format!("layers.{i}.post_attention_norm.weight"), hidden)?;
        x = d.add(x, h)?;
        let h = d.norm(x, &format!("layers.{i}.mlp_norm.weight"), hidden)?;
        let h = d.mlp(h, i)?;
        let h = d.norm(h, &format!("layers.{i}.post_mlp_norm.weight"), hidden)?;
        x = d.add(x, h)?;
    }
    d.finish(x)
}
