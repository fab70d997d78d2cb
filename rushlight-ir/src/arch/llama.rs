//! Llama: pre-norm blocks of grouped-query attention and a gated feed-forward block.

use rushlight_asset::config::Config;

use super::{Has, layer::Decoder};
use crate::error::IrError;
use crate::graph::Graph;

pub(super) fn build(config: &Config, has: Has<'_>) -> Result<Graph, IrError> {
    let mut d = Decoder::new(config, has);
    let mut x = d.embed()?;
    for i in 0..config.layers {
        let h = d.norm(
            x,
            &format!("layers.{i}.attention_norm.weight"),
            config.hidden_size,
        )?;
        let h = d.attention(h, i, false)?;
        x = d.add(x, h)?;
        let h = d.norm(
            x,
            &format!("layers.{i}.mlp_norm.weight"),
            config.hidden_size,
        )?;
        let h = d.mlp(h, i)?;
        x = d.add(x, h)?;
    }
    d.finish(x)
}
