//! Lowering: a graph's nodes become instructions over numbered buffers.
//!
//! Three things are decided here, once, so that a step only executes:
//! * **Buffers.** A value's buffer is free again after its last reader; an operation that can work in
//!   place does, where its input dies with it.
//! * **Groups.** Matrix products of one input are one instruction: the input is quantised once, and the
//!   threads meet once.
//! * **Uses of weights.** What is multiplied is packed; what is added or scales is f32; a table that is
//!   only looked up stays as its file has it.

use std::collections::HashMap;

use rushlight_asset::config::Activation;
use rushlight_ir::dim::Dim;
use rushlight_ir::graph::{Graph, Node};
use rushlight_ir::op::{Op, ValueId};

/// A buffer of f32 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) usize);

/// What a buffer's rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotShape {
    pub(crate) rows: Dim,
    pub(crate) cols: usize,
}

/// A product of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    /// Graph index of the packed weight.
    pub(crate) weight: usize,
    /// Graph index of the bias.
    pub(crate) bias: Option<usize>,
    pub(crate) out: Slot,
}

/// One thing to do in a step. Weights, ropes and states are indices into the graph's lists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Instr {
    Embed {
        table: usize,
        scale: f32,
        out: Slot,
    },
    Norm {
        x: Slot,
        out: Slot,
        weight: usize,
        width: usize,
        eps: f32,
        offset: f32,
    },
    MatMul {
        x: Slot,
        products: Vec<Product>,
    },
    Rope {
        x: Slot,
        rope: usize,
        heads: usize,
        head_dim: usize,
    },
    Attention {
        q: Slot,
        k: Slot,
        v: Slot,
        out: Slot,
        state: usize,
        heads: usize,
        scale: f32,
        softcap: Option<f32>,
    },
    GluMlp {
        x: Slot,
        out: Slot,
        gate: usize,
        up: usize,
        down: usize,
        activation: Activation,
    },
    /// `x += y`.
    Add {
        x: Slot,
        y: Slot,
    },
    Select {
        x: Slot,
        out: Slot,
    },
    Softcap {
        x: Slot,
        cap: f32,
    },
    /// Before an operation in place whose input is read again.
    Copy {
        x: Slot,
        out: Slot,
    },
}

/// A lowered graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lowered {
    pub(crate) instrs: Vec<Instr>,
    pub(crate) slots: Vec<SlotShape>,
    pub(crate) logits: Slot,
}

pub(crate) fn lower(graph: &Graph) -> Lowered {
    let mut last_use: HashMap<ValueId, usize> = HashMap::new();
    for (at, node) in graph.nodes().iter().enumerate() {
        for &input in &node.inputs {
            last_use.insert(input, at);
        }
    }
    last_use.insert(graph.logits(), usize::MAX);
    let mut lowering = Lowering {
        graph,
        last_use,
        slot_of: HashMap::new(),
        free: Vec::new(),
        out: Lowered {
            instrs: Vec::new(),
            slots: Vec::new(),
            logits: Slot(0),
        },
    };
    for (at, node) in graph.nodes().iter().enumerate() {
        lowering.node(at, node);
    }
    lowering.out.logits = lowering.slot_of[&graph.logits()];
    lowering.out
}

struct Lowering<'a> {
    graph: &'a Graph,
    /// The index of the last node that reads a value.
    last_use: HashMap<ValueId, usize>,
    slot_of: HashMap<ValueId, Slot>,
    free: Vec<Slot>,
    out: Lowered,
}

impl Lowering<'_> {
    fn node(&mut self, at: usize, node: &Node) {
        match node.op {
            Op::Embed { table, scale } => {
                let out = self.fresh(node.output);
                self.out.instrs.push(Instr::Embed {
                    table: table.index(),
                    scale,
                    out,
                });
            }
            Op::RmsNorm {
                weight,
                width,
                eps,
                offset,
            } => {
                let x = self.slot_of[&node.inputs[0]];
                let out = self.fresh(node.output);
                let weight = weight.index();
                self.out.instrs.push(Instr::Norm {
                    x,
                    out,
                    weight,
                    width,
                    eps,
                    offset,
                });
            }
            Op::MatMul { weight, bias } => {
                let x = self.slot_of[&node.inputs[0]];
                let product = Product {
                    weight: weight.index(),
                    bias: bias.map(|bias| bias.index()),
                    out: self.fresh(node.output),
                };
                match self.out.instrs.last_mut() {
                    Some(Instr::MatMul { x: same, products }) if *same == x => {
                        products.push(product)
                    }
                    _ => self.out.instrs.push(Instr::MatMul {
                        x,
                        products: vec![product],
                    }),
                }
            }
            Op::Rope {
                rope,
                heads,
                head_dim,
            } => {
                let x = self.in_place(at, node);
                self.out.instrs.push(Instr::Rope {
                    x,
                    rope: rope.index(),
                    heads,
                    head_dim,
                });
            }
            Op::Attention {
                state,
                heads,
                scale,
                softcap,
            } => {
                let [q, k, v] = [0, 1, 2].map(|i| self.slot_of[&node.inputs[i]]);
                let out = self.fresh(node.output);
                let state = state.index();
                self.out.instrs.push(Instr::Attention {
                    q,
                    k,
                    v,
                    out,
                    state,
                    heads,
                    scale,
                    softcap,
                });
            }
            Op::GluMlp {
                gate,
                up,
                down,
                activation,
            } => {
                let x = self.slot_of[&node.inputs[0]];
                let out = self.fresh(node.output);
                let [gate, up, down] = [gate, up, down].map(|w| w.index());
                self.out.instrs.push(Instr::GluMlp {
                    x,
                    out,
                    gate,
                    up,
                    down,
                    activation,
                });
            }
            Op::Add => {
                let y = self.slot_of[&node.inputs[1]];
                let x = self.in_place(at, node);
                self.out.instrs.push(Instr::Add { x, y });
            }
            Op::SelectOutputs => {
                let x = self.slot_of[&node.inputs[0]];
                let out = self.fresh(node.output);
                self.out.instrs.push(Instr::Select { x, out });
            }
            Op::Softcap { cap } => {
                let x = self.in_place(at, node);
                self.out.instrs.push(Instr::Softcap { x, cap });
            }
        }
        for input in &node.inputs {
            if self.last_use.get(input) == Some(&at)
                && let Some(slot) = self.slot_of.remove(input)
                && self.slot_of.get(&node.output) != Some(&slot)
            {
                self.free.push(slot);
            }
        }
    }

    /// A buffer for a value: a free one of its shape, or a new one.
    fn fresh(&mut self, value: ValueId) -> Slot {
        let shape = self.graph.shape(value);
        let shape = SlotShape {
            rows: shape.rows,
            cols: shape.cols,
        };
        let reuse = self
            .free
            .iter()
            .position(|slot| self.out.slots[slot.0] == shape);
        let slot = match reuse {
            Some(i) => self.free.swap_remove(i),
            None => {
                self.out.slots.push(shape);
                Slot(self.out.slots.len() - 1)
            }
        };
        self.slot_of.insert(value, slot);
        slot
    }

    /// The buffer of an operation that overwrites its first input: that input's own where it dies here.
    fn in_place(&mut self, at: usize, node: &Node) -> Slot {
        let input = node.inputs[0];
        let x = self.slot_of[&input];
        let read_again = node.inputs[1..].contains(&input);
        if self.last_use.get(&input) == Some(&at) && !read_again {
            self.slot_of.insert(node.output, x);
            return x;
        }
        let out = self.fresh(node.output);
        self.out.instrs.push(Instr::Copy { x, out });
        out
    }
}
