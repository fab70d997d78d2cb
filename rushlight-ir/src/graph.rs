//! A function's graph: nodes in execution order over typed values, weights and states.

use std::collections::HashMap;

use crate::dim::{Dim, Shape};
use crate::error::{IrError, IrErrorKind};
use crate::infer::infer;
use crate::op::{Op, RopeId, StateId, ValueId, WeightId};
use crate::rope::RopeTable;

/// What a function takes, gives and keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// The function's name; `main` is the one that a decoder has.
    pub function: String,
    /// Token ids in: `[T, 1]`, u32, each below `vocab`.
    pub vocab: usize,
    /// Logits out: `[O, logits]`, f32.
    pub logits: usize,
    /// Positions that the rotary tables and states are made for, in tokens.
    pub context: usize,
    /// The states, in the order of their ids.
    pub states: Vec<StateSpec>,
}

/// A declared state of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct StateSpec {
    /// Unique in the function, for example `layers.3.kv`.
    pub name: String,
    /// What it keeps, and which positions it lets a query see.
    pub kind: StateKind,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// What a state keeps along its sequence axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Keys and values of every position.
    Kv,
    /// Keys and values of which a query at `p` sees `p + 1 - tokens ..= p`.
    Window {
        /// Positions seen, the query's own included.
        tokens: usize,
    },
}

/// A weight that the graph reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSpec {
    /// Canonical tensor name.
    pub name: String,
    /// Outermost first: `[rows, cols]`, or `[n]`.
    pub shape: Vec<usize>,
}

/// One application of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// What it reads.
    pub inputs: Vec<ValueId>,
    /// What it makes.
    pub output: ValueId,
}

/// A function's graph. Made by [`GraphBuilder`], so its shapes are consistent by construction.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    signature: Signature,
    values: Vec<Shape>,
    weights: Vec<WeightSpec>,
    ropes: Vec<RopeTable>,
    nodes: Vec<Node>,
    logits: ValueId,
}

impl Graph {
    /// What the function takes, gives and keeps.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The shape of every value; value 0 is the token ids.
    pub fn values(&self) -> &[Shape] {
        &self.values
    }

    /// The weights, each once.
    pub fn weights(&self) -> &[WeightSpec] {
        &self.weights
    }

    /// The rotary embeddings, each once.
    pub fn ropes(&self) -> &[RopeTable] {
        &self.ropes
    }

    /// The nodes in execution order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The value that holds the logits, `[O, vocab]`.
    pub fn logits(&self) -> ValueId {
        self.logits
    }

    /// The shape of one value.
    pub fn shape(&self, value: ValueId) -> Shape {
        self.values[value.0]
    }

    /// The declaration of one weight.
    pub fn weight(&self, weight: WeightId) -> &WeightSpec {
        &self.weights[weight.0]
    }

    /// The declaration of one state.
    pub fn state(&self, state: StateId) -> &StateSpec {
        &self.signature.states[state.0]
    }

    /// One rotary embedding.
    pub fn rope(&self, rope: RopeId) -> &RopeTable {
        &self.ropes[rope.0]
    }
}

/// Builds a [`Graph`] node by node, inferring and checking every shape as it goes.
#[derive(Debug)]
pub struct GraphBuilder {
    graph: Graph,
    weight_ids: HashMap<String, WeightId>,
}

impl GraphBuilder {
    /// A function over token ids below `vocab`, for at most `context` positions.
    pub fn new(function: &str, vocab: usize, context: usize) -> GraphBuilder {
        GraphBuilder {
            graph: Graph {
                signature: Signature {
                    function: function.to_owned(),
                    vocab,
                    logits: vocab,
                    context,
                    states: Vec::new(),
                },
                values: vec![Shape {
                    rows: Dim::Tokens,
                    cols: 1,
                }],
                weights: Vec::new(),
                ropes: Vec::new(),
                nodes: Vec::new(),
                logits: ValueId(0),
            },
            weight_ids: HashMap::new(),
        }
    }

    /// The token ids, `[T, 1]`.
    pub fn tokens(&self) -> ValueId {
        ValueId(0)
    }

    /// Declares a weight, or finds it where it was declared before.
    ///
    /// # Errors
    /// [`IrErrorKind::Shape`] when it was declared with another shape.
    pub fn weight(&mut self, name: &str, shape: &[usize]) -> Result<WeightId, IrError> {
        if let Some(&id) = self.weight_ids.get(name) {
            let known = &self.graph.weights[id.0].shape;
            if known != shape {
                return Err(IrError::new(
                    IrErrorKind::Shape,
                    format!("{}: {name}", self.graph.signature.function),
                    format!("read with shape {known:?} and with shape {shape:?}"),
                ));
            }
            return Ok(id);
        }
        let id = WeightId(self.graph.weights.len());
        self.graph.weights.push(WeightSpec {
            name: name.to_owned(),
            shape: shape.to_vec(),
        });
        self.weight_ids.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Declares a state.
    pub fn state(&mut self, spec: StateSpec) -> StateId {
        self.graph.signature.states.push(spec);
        StateId(self.graph.signature.states.len() - 1)
    }

    /// Declares a rotary embedding, or finds the equal one.
    pub fn rope(&mut self, table: RopeTable) -> RopeId {
        let at = self.graph.ropes.iter().position(|known| *known == table);
        RopeId(at.unwrap_or_else(|| {
            self.graph.ropes.push(table);
            self.graph.ropes.len() - 1
        }))
    }

    /// Adds a node and gives its value.
    ///
    /// # Errors
    /// [`IrErrorKind::Shape`] naming function, node and sizes when the inputs do not fit.
    pub fn push(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId, IrError> {
        let shape = infer(&self.graph, &op, inputs).map_err(|message| {
            IrError::new(
                IrErrorKind::Shape,
                format!(
                    "{}: node {} ({})",
                    self.graph.signature.function,
                    self.graph.nodes.len(),
                    op.name()
                ),
                message,
            )
        })?;
        let output = ValueId(self.graph.values.len());
        self.graph.values.push(shape);
        self.graph.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            output,
        });
        Ok(output)
    }

    /// The shape of a value.
    pub fn shape(&self, value: ValueId) -> Shape {
        self.graph.shape(value)
    }

    /// Ends the graph with its logits.
    ///
    /// # Errors
    /// [`IrErrorKind::Shape`] unless `logits` is `[O, vocab]`.
    pub fn finish(mut self, logits: ValueId) -> Result<Graph, IrError> {
        let got = self.graph.shape(logits);
        let want = Shape {
            rows: Dim::Outputs,
            cols: self.graph.signature.logits,
        };
        if got != want {
            return Err(IrError::new(
                IrErrorKind::Shape,
                format!("{}: logits", self.graph.signature.function),
                format!("{got} where the signature says {want}"),
            ));
        }
        self.graph.logits = logits;
        Ok(self.graph)
    }
}
