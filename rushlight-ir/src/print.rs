//! Graphs as text: one line a declaration, one line a node; what snapshots hold.

use std::fmt;

use crate::graph::{Graph, StateKind};
use crate::op::{Op, WeightId};

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signature = self.signature();
        writeln!(
            f,
            "function {}(tokens: [T, 1] < {}) -> logits [O, {}]  context {}",
            signature.function, signature.vocab, signature.logits, signature.context
        )?;
        for state in &signature.states {
            let kind = match state.kind {
                StateKind::Kv => "kv".to_owned(),
                StateKind::Window { tokens } => format!("window({tokens})"),
            };
            writeln!(
                f,
                "state {}: {kind} {} heads x {}",
                state.name, state.kv_heads, state.head_dim
            )?;
        }
        for (i, rope) in self.ropes().iter().enumerate() {
            let inv = rope.inv_freq();
            writeln!(
                f,
                "rope r{i}: dim {} freq {:e} .. {:e} magnitude {}",
                rope.dim(),
                inv[0],
                inv[inv.len() - 1],
                rope.magnitude()
            )?;
        }
        for node in self.nodes() {
            write!(f, "%{} {} = ", node.output.index(), self.shape(node.output))?;
            self.write_op(f, &node.op)?;
            for input in &node.inputs {
                write!(f, " %{}", input.index())?;
            }
            writeln!(f)?;
        }
        writeln!(f, "logits %{}", self.logits().index())
    }
}

impl Graph {
    fn write_op(&self, f: &mut fmt::Formatter<'_>, op: &Op) -> fmt::Result {
        let weight = |id: WeightId| {
            let spec = self.weight(id);
            format!("{}{:?}", spec.name, spec.shape)
        };
        write!(f, "{}", op.name())?;
        match *op {
            Op::Embed { table, scale } => write!(f, " {} scale {scale}", weight(table)),
            Op::RmsNorm {
                weight: w,
                width,
                eps,
                offset,
            } => write!(
                f,
                " {} width {width} eps {eps:e} offset {offset}",
                weight(w)
            ),
            Op::MatMul { weight: w, bias } => {
                write!(f, " {}", weight(w))?;
                bias.map_or(Ok(()), |bias| write!(f, " bias {}", weight(bias)))
            }
            Op::Rope {
                rope,
                heads,
                head_dim,
            } => write!(f, " r{} {heads} heads x {head_dim}", rope.index()),
            Op::Attention {
                state,
                heads,
                scale,
                softcap,
            } => {
                write!(f, " {} {heads} heads scale {scale}", self.state(state).name)?;
                softcap.map_or(Ok(()), |cap| write!(f, " softcap {cap}"))
            }
            Op::GluMlp {
                gate,
                up,
                down,
                activation,
            } => write!(
                f,
                " {activation:?} {} {} {}",
                weight(gate),
                weight(up),
                weight(down)
            ),
            Op::Add | Op::SelectOutputs => Ok(()),
            Op::Softcap { cap } => write!(f, " cap {cap}"),
        }
    }
}
