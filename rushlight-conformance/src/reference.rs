//! The reference interpreter: every node by its plain twin, over f32 weights and contiguous states.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rushlight_asset::config::Activation;
use rushlight_asset::{Tensor, Weights};
use rushlight_ir::backend::{
    Backend, BackendError, BackendErrorKind, Bounded, CompileOptions, KvDtype, Lane, Logits,
    Memory, Program, StateOptions, States,
};
use rushlight_ir::graph::{Graph, Node, Signature, StateKind};
use rushlight_ir::op::{Op, WeightId};
use rushlight_ir::verify::verify;
use rushlight_kernels::naive::{self, AttentionArgs};
use rushlight_kernels::rope::RopeShape;
use rushlight_kernels::{self as kernels, Format, RmsNorm};

/// The arbiter of what a graph computes. Slow on purpose; f32 throughout, whatever the options say of
/// threads.
#[derive(Clone, Copy, Debug)]
pub struct Reference;

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn check(&self, options: &CompileOptions<'_>) -> Result<(), BackendError> {
        match options.threads {
            Some(0) => Err(BackendError::new(
                BackendErrorKind::Option,
                "threads is 0; it must be at least 1",
            )),
            _ => Ok(()),
        }
    }

    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        options: &CompileOptions<'_>,
    ) -> Result<Arc<dyn Program>, BackendError> {
        verify(graph, weights).map_err(|error| {
            BackendError::new(
                BackendErrorKind::Graph,
                "the checkpoint does not fit its architecture",
            )
            .with_source(error)
        })?;
        self.check(options)?;
        let decoded = graph.weights().iter().map(|spec| {
            let tensor = weights.find(&spec.name).ok_or_else(|| {
                BackendError::new(
                    BackendErrorKind::Internal,
                    format!("{} was verified and is gone", spec.name),
                )
            })?;
            decode(tensor)
        });
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Arc::new(Interpreter {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            weights: decoded.collect::<Result<_, _>>()?,
            graph: graph.clone(),
            kv_dtype: options.kv_dtype,
        }))
    }
}

/// A tensor's rows in order, f32.
fn decode(tensor: &Tensor) -> Result<Vec<f32>, BackendError> {
    let mut all = Vec::new();
    let mut row = vec![0.0; tensor.cols()];
    for i in 0..tensor.rows() {
        let bytes = tensor.row(i).map_err(|error| {
            BackendError::new(
                BackendErrorKind::Asset,
                format!("{} cannot be read", tensor.name()),
            )
            .with_source(error)
        })?;
        kernels::decode(tensor.format(), bytes, &mut row).map_err(|error| {
            BackendError::new(
                BackendErrorKind::Internal,
                format!("{} does not decode", tensor.name()),
            )
            .with_source(error)
        })?;
        all.extend_from_slice(&row);
    }
    Ok(all)
}

struct Interpreter {
    id: u64,
    graph: Graph,
    /// By the graph's order, row-major f32.
    weights: Vec<Vec<f32>>,
    kv_dtype: KvDtype,
}

impl Program for Interpreter {
    fn signature(&self) -> &Signature {
        self.graph.signature()
    }

    fn memory(&self) -> Memory {
        let states = self.graph.signature().states.iter();
        Memory {
            weights: self
                .weights
                .iter()
                .map(|w| (w.len() * size_of::<f32>()) as u64)
                .sum(),
            kv_per_token: states
                .map(|s| (2 * s.kv_heads * s.head_dim * size_of::<f32>()) as u64)
                .sum(),
            windows: 0,
        }
    }

    fn states(&self, options: &StateOptions) -> Result<Box<dyn States>, BackendError> {
        Ok(Box::new(PlainStates {
            program: self.id,
            len: 0,
            layers: vec![(Vec::new(), Vec::new()); self.graph.signature().states.len()],
            cols: self
                .graph
                .signature()
                .states
                .iter()
                .map(|s| s.kv_heads * s.head_dim)
                .collect(),
            bounded: options.bounded,
        }))
    }

    fn submit(&self, lanes: &mut [Lane<'_>]) -> Result<Box<dyn Logits>, BackendError> {
        let input = |message: &str| Err(BackendError::new(BackendErrorKind::Input, message));
        if lanes.is_empty() {
            return input("a step without lanes");
        }
        for lane in &*lanes {
            match lane.states.as_any().downcast_ref::<PlainStates>() {
                Some(states) if states.program == self.id => {}
                _ => return input("states of another program"),
            }
            if lane.tokens.is_empty() || lane.logits > lane.tokens.len() {
                return input("an empty lane, or more rows of logits than tokens");
            }
            if lane.states.len() + lane.tokens.len() > self.graph.signature().context {
                return input("more positions than the context");
            }
            if lane
                .tokens
                .iter()
                .any(|&t| t as usize >= self.graph.signature().vocab)
            {
                return input("a token outside the vocabulary");
            }
        }
        let mut rows = Vec::new();
        for lane in lanes {
            if let Some(states) = lane.states.as_any_mut().downcast_mut::<PlainStates>() {
                rows.extend(self.lane(states, lane.tokens, lane.logits)?);
            }
        }
        Ok(Box::new(PlainLogits {
            width: self.graph.signature().logits,
            rows,
        }))
    }
}

impl Interpreter {
    /// Runs one lane by itself: batching is not a matter of meaning.
    fn lane(
        &self,
        states: &mut PlainStates,
        tokens: &[u32],
        logits: usize,
    ) -> Result<Vec<f32>, BackendError> {
        let mut values: Vec<Vec<f32>> = vec![Vec::new(); self.graph.values().len()];
        for node in self.graph.nodes() {
            let value = self.node(node, &values, states, tokens, logits)?;
            values[node.output.index()] = value;
        }
        states.len += tokens.len();
        Ok(std::mem::take(&mut values[self.graph.logits().index()]))
    }

    fn node(
        &self,
        node: &Node,
        values: &[Vec<f32>],
        states: &mut PlainStates,
        tokens: &[u32],
        logits: usize,
    ) -> Result<Vec<f32>, BackendError> {
        let input = |i: usize| &values[node.inputs[i].index()];
        let x = input(0);
        Ok(match node.op {
            Op::Embed { table, scale } => {
                let cols = self.graph.weight(table).shape[1];
                let rows = tokens.iter().flat_map(|&token| {
                    let start = token as usize * cols;
                    &self.weights[table.index()][start..start + cols]
                });
                rows.map(|x| x * scale).collect()
            }
            Op::RmsNorm {
                weight,
                eps,
                offset,
                ..
            } => {
                let weight = &self.weights[weight.index()];
                naive::rms_norm(
                    &RmsNorm {
                        weight,
                        offset,
                        eps,
                    },
                    x,
                )
            }
            Op::MatMul { weight, bias } => {
                let mut y = self.product(weight, x)?;
                if let Some(bias) = bias {
                    let bias = &self.weights[bias.index()];
                    for row in y.chunks_mut(bias.len()) {
                        row.copy_from_slice(&naive::add(row, bias));
                    }
                }
                y
            }
            Op::Rope {
                rope,
                heads,
                head_dim,
            } => {
                let table = self.graph.rope(rope);
                let half = table.dim() / 2;
                let (mut cos, mut sin) = (
                    vec![0.0; tokens.len() * half],
                    vec![0.0; tokens.len() * half],
                );
                let rows = cos.chunks_mut(half).zip(sin.chunks_mut(half));
                for (position, (cos, sin)) in (states.len..).zip(rows) {
                    table.fill(position, cos, sin);
                }
                let mut y = x.clone();
                let shape = RopeShape {
                    heads,
                    head_dim,
                    rotary_dim: table.dim(),
                };
                naive::rope(shape, &cos, &sin, &mut y);
                y
            }
            Op::Attention {
                state,
                heads,
                scale,
                softcap,
            } => {
                let spec = self.graph.state(state);
                let (window, sinks) = match (spec.kind, states.bounded) {
                    (StateKind::Window { tokens }, _) => (Some(tokens), 0),
                    (StateKind::Kv, Some(bounded)) => (Some(bounded.window), bounded.sinks),
                    (StateKind::Kv, None) => (None, 0),
                };
                let position = states.len;
                let (keys, values) = &mut states.layers[state.index()];
                keys.truncate(position * spec.kv_heads * spec.head_dim);
                values.truncate(keys.len());
                keys.extend(self.stored(input(1)));
                values.extend(self.stored(input(2)));
                let head_of = |all: &[f32], head: usize| -> Vec<f32> {
                    let rows = all.chunks(spec.kv_heads * spec.head_dim);
                    rows.flat_map(|row| {
                        row[head * spec.head_dim..(head + 1) * spec.head_dim].to_vec()
                    })
                    .collect()
                };
                let mut y = vec![0.0; x.len()];
                for kv_head in 0..spec.kv_heads {
                    let args = AttentionArgs {
                        keys: &head_of(keys, kv_head),
                        values: &head_of(values, kv_head),
                        scale,
                        softcap,
                        window,
                        sinks,
                    };
                    let group = heads / spec.kv_heads;
                    for head in kv_head * group..(kv_head + 1) * group {
                        for t in 0..tokens.len() {
                            let start = (t * heads + head) * spec.head_dim;
                            let query = &x[start..start + spec.head_dim];
                            let out = naive::attention(&args, query, position + t);
                            y[start..start + spec.head_dim].copy_from_slice(&out);
                        }
                    }
                }
                y
            }
            Op::GluMlp {
                gate,
                up,
                down,
                activation,
            } => {
                let activation = match activation {
                    Activation::Silu => kernels::Activation::Silu,
                    Activation::GeluTanh => kernels::Activation::GeluTanh,
                };
                let inner = naive::glu(activation, &self.product(gate, x)?, &self.product(up, x)?);
                self.product(down, &inner)?
            }
            Op::Add => naive::add(x, input(1)),
            Op::SelectOutputs => {
                let cols = x.len() / tokens.len();
                x[(tokens.len() - logits) * cols..].to_vec()
            }
            Op::Softcap { cap } => naive::softcap(x, cap),
        })
    }

    fn product(&self, weight: WeightId, x: &[f32]) -> Result<Vec<f32>, BackendError> {
        let shape = &self.graph.weight(weight).shape;
        let bytes: Vec<u8> = self.weights[weight.index()]
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        naive::matmul(Format::F32, &bytes, shape[0], shape[1], x).map_err(|error| {
            BackendError::new(BackendErrorKind::Internal, "a plain product failed")
                .with_source(error)
        })
    }

    /// Keys or values as states of the chosen type would give them back.
    fn stored(&self, x: &[f32]) -> Vec<f32> {
        match self.kv_dtype {
            KvDtype::F32 => x.to_vec(),
            KvDtype::F16 => x.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect(),
        }
    }
}

#[derive(Clone)]
struct PlainStates {
    program: u64,
    len: usize,
    /// Keys and values of each layer, `[len, kv_heads · head_dim]`.
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    cols: Vec<usize>,
    bounded: Option<Bounded>,
}

impl States for PlainStates {
    fn len(&self) -> usize {
        self.len
    }

    fn rewind(&mut self, to: usize) -> usize {
        self.len = self.len.min(to);
        for ((keys, values), cols) in self.layers.iter_mut().zip(&self.cols) {
            keys.truncate(self.len * cols);
            values.truncate(self.len * cols);
        }
        self.len
    }

    fn reserve(&mut self, _: usize) -> Result<(), BackendError> {
        Ok(())
    }

    fn fork(&self) -> Box<dyn States> {
        Box::new(self.clone())
    }

    fn bytes(&self) -> u64 {
        let elements: usize = self
            .layers
            .iter()
            .map(|(keys, values)| keys.len() + values.len())
            .sum();
        (elements * size_of::<f32>()) as u64
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

struct PlainLogits {
    width: usize,
    rows: Vec<f32>,
}

impl Logits for PlainLogits {
    fn rows(&self) -> usize {
        self.rows.len() / self.width
    }

    fn width(&self) -> usize {
        self.width
    }

    fn row(&self, row: usize) -> Cow<'_, [f32]> {
        Cow::Borrowed(&self.rows[row * self.width..(row + 1) * self.width])
    }
}
