//! The parts that decoder families share: norms, attention over a state, and the head.

use rushlight_asset::config::{AttentionKind, Config};

use super::Has;
use crate::error::IrError;
use crate::graph::{Graph, GraphBuilder, StateKind, StateSpec};
use crate::op::{Op, ValueId};
use crate::rope::RopeTable;

/// A graph under construction with the configuration it comes from.
pub(super) struct Decoder<'a> {
    pub(super) graph: GraphBuilder,
    config: &'a Config,
    has: Has<'a>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(config: &'a Config, has: Has<'a>) -> Decoder<'a> {
        Decoder {
            graph: GraphBuilder::new("main", config.vocab_size, config.context),
            config,
            has,
        }
    }

    /// Scaled embeddings, `[T, hidden]`.
    pub(super) fn embed(&mut self) -> Result<ValueId, IrError> {
        let shape = [self.config.vocab_size, self.config.hidden_size];
        let table = self.graph.weight("embed.weight", &shape)?;
        let tokens = self.graph.tokens();
        let scale = self.config.embedding_scale;
        self.graph.push(Op::Embed { table, scale }, &[tokens])
    }

    /// A norm of every run of `width` columns by the tensor `name`.
    pub(super) fn norm(
        &mut self,
        x: ValueId,
        name: &str,
        width: usize,
    ) -> Result<ValueId, IrError> {
        let weight = self.graph.weight(name, &[width])?;
        let op = Op::RmsNorm {
            weight,
            width,
            eps: self.config.norm_eps,
            offset: self.config.norm_offset,
        };
        self.graph.push(op, &[x])
    }

    /// `x · wᵀ`, with the bias where the checkpoint has one.
    pub(super) fn project(
        &mut self,
        x: ValueId,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<ValueId, IrError> {
        let weight = self
            .graph
            .weight(&format!("{name}.weight"), &[rows, cols])?;
        let bias_name = format!("{name}.bias");
        let bias = if (self.has)(&bias_name) {
            Some(self.graph.weight(&bias_name, &[rows])?)
        } else {
            None
        };
        self.graph.push(Op::MatMul { weight, bias }, &[x])
    }

    /// Self-attention of layer `i` over its state, `[T, hidden]` → `[T, hidden]`. Queries and keys
    /// are normalised head by head where `head_norms` says so.
    pub(super) fn attention(
        &mut self,
        x: ValueId,
        i: usize,
        head_norms: bool,
    ) -> Result<ValueId, IrError> {
        let c = self.config;
        let (q_cols, kv_cols) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let mut q = self.project(x, &format!("layers.{i}.q"), q_cols, c.hidden_size)?;
        let mut k = self.project(x, &format!("layers.{i}.k"), kv_cols, c.hidden_size)?;
        let v = self.project(x, &format!("layers.{i}.v"), kv_cols, c.hidden_size)?;
        if head_norms {
            q = self.norm(q, &format!("layers.{i}.q_norm.weight"), c.head_dim)?;
            k = self.norm(k, &format!("layers.{i}.k_norm.weight"), c.head_dim)?;
        }
        let (kind, rope) = match c.attention[i] {
            AttentionKind::Full => (StateKind::Kv, &c.rope),
            AttentionKind::Sliding { window } => (
                StateKind::Window { tokens: window },
                c.sliding_rope.as_ref().unwrap_or(&c.rope),
            ),
        };
        let rope = self
            .graph
            .rope(RopeTable::new(rope)?.held_as(c.rope_frequencies));
        let rotate = |heads| Op::Rope {
            rope,
            heads,
            head_dim: c.head_dim,
        };
        q = self.graph.push(rotate(c.heads), &[q])?;
        k = self.graph.push(rotate(c.kv_heads), &[k])?;
        let state = self.graph.state(StateSpec {
            name: format!("layers.{i}.kv"),
            kind,
            kv_heads: c.kv_heads,
            head_dim: c.head_dim,
        });
        let op = Op::Attention {
            state,
            heads: c.heads,
            scale: c
                .attention_scale
                .unwrap_or_else(|| 1.0 / (c.head_dim as f32).sqrt()),
            softcap: c.attention_softcap,
        };
        let attended = self.graph.push(op, &[q, k, v])?;
        self.project(attended, &format!("layers.{i}.o"), c.hidden_size, q_cols)
    }

    /// The gated feed-forward block of layer `i`, `[T, hidden]` → `[T, hidden]`.
    pub(super) fn mlp(&mut self, x: ValueId, i: usize) -> Result<ValueId, IrError> {
        let (hidden, inner) = (self.config.hidden_size, self.config.intermediate_size);
        let gate = self
            .graph
            .weight(&format!("layers.{i}.gate.weight"), &[inner, hidden])?;
        let up = self
            .graph
            .weight(&format!("layers.{i}.up.weight"), &[inner, hidden])?;
        let down = self
            .graph
            .weight(&format!("layers.{i}.down.weight"), &[hidden, inner])?;
        let op = Op::GluMlp {
            gate,
            up,
            down,
            activation: self.config.activation,
        };
        self.graph.push(op, &[x])
    }

    /// A residual connection.
    pub(super) fn add(&mut self, x: ValueId, y: ValueId) -> Result<ValueId, IrError> {
        self.graph.push(Op::Add, &[x, y])
    }

    /// The final norm and the head, over the rows whose logits are wanted.
    pub(super) fn finish(mut self, x: ValueId) -> Result<Graph, IrError> {
        let c = self.config;
        let x = self.graph.push(Op::SelectOutputs, &[x])?;
        let x = self.norm(x, "final_norm.weight", c.hidden_size)?;
        let head = if c.tied_head { "embed" } else { "head" };
        let mut logits = self.project(x, head, c.vocab_size, c.hidden_size)?;
        if let Some(cap) = c.logit_softcap {
            logits = self.graph.push(Op::Softcap { cap }, &[logits])?;
        }
        self.graph.finish(logits)
    }
}
