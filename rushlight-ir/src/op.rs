//! The operations a graph is made of: the closed set that kernels are written for.

use rushlight_asset::config::Activation;

/// A weight that a graph reads, by its place in [`Graph::weights`](crate::Graph::weights).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub(crate) usize);

/// A state that a graph reads and writes, by its place in the signature's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub(crate) usize);

/// A rotary embedding, by its place in [`Graph::ropes`](crate::Graph::ropes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RopeId(pub(crate) usize);

/// A value, by its place in [`Graph::values`](crate::Graph::values).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) usize);

macro_rules! index {
    ($($id:ty),*) => {$(
        impl $id {
            /// The place in its list.
            pub fn index(self) -> usize {
                self.0
            }
        }
    )*};
}
index!(WeightId, StateId, RopeId, ValueId);

/// One operation. Shapes are `[rows, cols]` as in [`Shape`](crate::dim::Shape); values are f32.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Rows of a table: ids `[T, 1]` → `[T, hidden]`, each element times `scale`.
    Embed {
        /// `[vocab, hidden]`.
        table: WeightId,
        /// Multiplies every element (1 changes nothing).
        scale: f32,
    },
    /// Root-mean-square norm of every run of `width` columns:
    /// `x / sqrt(mean(x²) + eps) · (w + offset)`.
    RmsNorm {
        /// `[width]`.
        weight: WeightId,
        /// Columns normalised together; divides the row.
        width: usize,
        /// Keeps the root away from zero.
        eps: f32,
        /// Added to each weight.
        offset: f32,
    },
    /// `x · wᵀ + b`: `[R, k]` → `[R, n]`.
    MatMul {
        /// `[n, k]`, in any block format.
        weight: WeightId,
        /// `[n]`.
        bias: Option<WeightId>,
    },
    /// Rotates the halves of every head by the row's position: `[T, heads · head_dim]`, same shape.
    Rope {
        /// Frequencies.
        rope: RopeId,
        /// Heads in a row.
        heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
    /// Appends `k`, `v` to the state, then attends causally:
    /// `q [T, heads · head_dim]`, `k` and `v [T, kv_heads · head_dim]` → `[T, heads · head_dim]`.
    /// Which positions are seen is the state's kind.
    Attention {
        /// Where keys and values are kept.
        state: StateId,
        /// Query heads; head `h` reads key/value head `h / (heads / kv_heads)`.
        heads: usize,
        /// Multiplies `q·k`.
        scale: f32,
        /// Bounds scores by `cap · tanh(score / cap)` before the softmax.
        softcap: Option<f32>,
    },
    /// The gated feed-forward block: `down(act(gate(x)) · up(x))`, `[R, hidden]` → `[R, hidden]`.
    GluMlp {
        /// `[intermediate, hidden]`.
        gate: WeightId,
        /// `[intermediate, hidden]`.
        up: WeightId,
        /// `[hidden, intermediate]`.
        down: WeightId,
        /// Applied to the gate.
        activation: Activation,
    },
    /// Element-wise sum of two values of one shape.
    Add,
    /// The rows whose logits were asked for: `[T, n]` → `[O, n]`.
    SelectOutputs,
    /// `cap · tanh(x / cap)`.
    Softcap {
        /// The bound.
        cap: f32,
    },
}

impl Op {
    /// The name in printed graphs, profiles and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::RmsNorm { .. } => "rms_norm",
            Op::MatMul { .. } => "matmul",
            Op::Rope { .. } => "rope",
            Op::Attention { .. } => "attention",
            Op::GluMlp { .. } => "glu_mlp",
            Op::Add => "add",
            Op::SelectOutputs => "select_outputs",
            Op::Softcap { .. } => "softcap",
        }
    }

    /// The weights that it reads, in a fixed order.
    pub fn weights(&self) -> Vec<WeightId> {
        match *self {
            Op::Embed { table, .. } => vec![table],
            Op::RmsNorm { weight, .. } => vec![weight],
            Op::MatMul { weight, bias } => std::iter::once(weight).chain(bias).collect(),
            Op::GluMlp { gate, up, down, .. } => vec![gate, up, down],
            Op::Rope { .. }
            | Op::Attention { .. }
            | Op::Add
            | Op::SelectOutputs
            | Op::Softcap { .. } => Vec::new(),
        }
    }
}
