//! Execution of a step: the instructions, one after another, each on as many threads as it is worth.
//!
//! Matrix products hand out output columns, row-wise operations hand out rows, attention hands out
//! (lane, key/value head, run of positions). None of these cuts changes an element's arithmetic.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rushlight_asset::config::Activation;
use rushlight_ir::backend::{BackendError, BackendErrorKind};
use rushlight_ir::dim::Dim;
use rushlight_ir::rope::RopeTable;
use rushlight_kernels::elementwise;
use rushlight_kernels::matmul::PANEL;
use rushlight_kernels::pool::Pool;
use rushlight_kernels::rope::{RopeShape, rope};
use rushlight_kernels::{
    self as kernels, AttentionScratch, AttentionShape, ColumnQueue, Columns, Input, Isa,
    KernelError, PackedMatrix, QuantizedRows, Queries, RmsNorm,
};

use crate::lower::{Instr, Lowered, Product, Slot};
use crate::memory::{CpuStates, PAGE};
use crate::prepack::Weight;

/// Elements below which a row-wise operation is not worth waking another thread.
const WORTH_SHARING: usize = 16 * 1024;
/// Query positions of one attention task: enough to share a page among, few enough to balance.
const POSITIONS: usize = 16;

/// A lane of the step that is run.
pub(crate) struct Part<'a> {
    pub(crate) states: &'a mut CpuStates,
    pub(crate) position: usize,
    pub(crate) tokens: &'a [u32],
    pub(crate) logits: usize,
}

/// Buffers that steps use again and again.
#[derive(Default)]
pub(crate) struct Workspace {
    slots: Vec<Vec<f32>>,
    quantized: QuantizedRows,
    gate: Vec<f32>,
    up: Vec<f32>,
    /// Cosines and sines of each rotary embedding, `[tokens, dim / 2]`.
    turns: Vec<(Vec<f32>, Vec<f32>)>,
    scratch: Vec<Mutex<AttentionScratch>>,
}

/// Everything of a program that a step only reads.
pub(crate) struct Machine {
    pub(crate) isa: Isa,
    pub(crate) pool: Pool,
    pub(crate) lowered: Lowered,
    pub(crate) ropes: Vec<RopeTable>,
    pub(crate) weights: Vec<Weight>,
}

impl Machine {
    /// Runs one step and gives the logits, `[outputs, vocab]`, in `spare`'s memory.
    pub(crate) fn run(
        &self,
        parts: &mut [Part<'_>],
        ws: &mut Workspace,
        spare: Vec<f32>,
    ) -> Result<Vec<f32>, BackendError> {
        self.begin(parts, ws)?;
        for instr in &self.lowered.instrs {
            self.step(instr, parts, ws)?;
        }
        Ok(std::mem::replace(
            &mut ws.slots[self.lowered.logits.0],
            spare,
        ))
    }

    /// Sizes the buffers and computes the turns of all positions.
    fn begin(&self, parts: &[Part<'_>], ws: &mut Workspace) -> Result<(), BackendError> {
        let tokens: usize = parts.iter().map(|part| part.tokens.len()).sum();
        let outputs: usize = parts.iter().map(|part| part.logits).sum();
        ws.slots.resize_with(self.lowered.slots.len(), Vec::new);
        for (slot, shape) in ws.slots.iter_mut().zip(&self.lowered.slots) {
            let rows = match shape.rows {
                Dim::Tokens => tokens,
                Dim::Outputs => outputs,
                Dim::Fixed(rows) => rows,
            };
            resize(slot, rows, shape.cols)?;
        }
        ws.scratch.resize_with(self.pool.threads(), Mutex::default);
        ws.turns.resize_with(self.ropes.len(), Default::default);
        for (table, (cos, sin)) in self.ropes.iter().zip(&mut ws.turns) {
            let half = table.dim() / 2;
            cos.resize(tokens * half, 0.0);
            sin.resize(tokens * half, 0.0);
            let positions = parts
                .iter()
                .flat_map(|part| part.position..part.position + part.tokens.len());
            let rows = cos.chunks_exact_mut(half).zip(sin.chunks_exact_mut(half));
            for (position, (cos, sin)) in positions.zip(rows) {
                table.fill(position, cos, sin);
            }
        }
        Ok(())
    }

    fn step(
        &self,
        instr: &Instr,
        parts: &mut [Part<'_>],
        ws: &mut Workspace,
    ) -> Result<(), StepError> {
        match *instr {
            Instr::Embed { table, scale, out } => {
                self.embed(table, scale, parts, &mut ws.slots[out.0])
            }
            Instr::Norm {
                x,
                out,
                weight,
                width,
                eps,
                offset,
            } => {
                let norm = RmsNorm {
                    weight: self.vector(weight)?,
                    offset,
                    eps,
                };
                let mut y = std::mem::take(&mut ws.slots[out.0]);
                let x = &ws.slots[x.0];
                let result = self.rows(&mut y, width, &|range, y| {
                    kernels::rms_norm(self.isa, &norm, &x[range], y)
                });
                ws.slots[out.0] = y;
                Ok(result?)
            }
            Instr::MatMul { x, ref products } => self.products(x, products, ws),
            Instr::Rope {
                x,
                rope: table,
                heads,
                head_dim,
            } => {
                let (cos, sin) = &ws.turns[table];
                let half = self.ropes[table].dim() / 2;
                let width = heads * head_dim;
                let shape = RopeShape {
                    heads,
                    head_dim,
                    rotary_dim: 2 * half,
                };
                Ok(self.rows(&mut ws.slots[x.0], width, &|range, x| {
                    let turns = range.start / width * half..range.end / width * half;
                    rope(self.isa, shape, &cos[turns.clone()], &sin[turns], x)
                })?)
            }
            Instr::Attention { .. } => self.attention(instr, parts, ws),
            Instr::GluMlp {
                x,
                out,
                gate,
                up,
                down,
                activation,
            } => self.glu_mlp([gate, up, down], activation, (x, out), ws),
            Instr::Add { x, y } => {
                let mut sum = std::mem::take(&mut ws.slots[x.0]);
                // `x + x` reads what it writes.
                let result = if x == y {
                    elementwise::scale(self.isa, &mut sum, 2.0);
                    Ok(())
                } else {
                    let y = &ws.slots[y.0];
                    self.rows(&mut sum, 1, &|range, x| {
                        elementwise::add(self.isa, x, &y[range])
                    })
                };
                ws.slots[x.0] = sum;
                Ok(result?)
            }
            Instr::Select { x, out } => {
                let mut y = std::mem::take(&mut ws.slots[out.0]);
                let cols = self.lowered.slots[x.0].cols;
                let mut rows = y.chunks_exact_mut(cols);
                let mut end = 0;
                for part in &*parts {
                    end += part.tokens.len();
                    for row in end - part.logits..end {
                        if let Some(to) = rows.next() {
                            to.copy_from_slice(&ws.slots[x.0][row * cols..(row + 1) * cols]);
                        }
                    }
                }
                ws.slots[out.0] = y;
                Ok(())
            }
            Instr::Softcap { x, cap } => Ok(self.rows(&mut ws.slots[x.0], 1, &|_, x| {
                elementwise::softcap(self.isa, x, cap);
                Ok(())
            })?),
            Instr::Copy { x, out } => {
                let mut y = std::mem::take(&mut ws.slots[out.0]);
                y.copy_from_slice(&ws.slots[x.0]);
                ws.slots[out.0] = y;
                Ok(())
            }
        }
    }

    fn embed(
        &self,
        table: usize,
        scale: f32,
        parts: &[Part<'_>],
        out: &mut [f32],
    ) -> Result<(), StepError> {
        let Some(table) = &self.weights[table].table else {
            return Err(StepError::Lowering(
                "a look-up in a weight that is no table",
            ));
        };
        let tokens = parts.iter().flat_map(|part| part.tokens);
        for (&token, row) in tokens.zip(out.chunks_exact_mut(table.cols())) {
            let bytes = table
                .row(token as usize)
                .map_err(|_| StepError::Lowering("a token that was checked has no row"))?;
            kernels::decode(table.format(), bytes, row)?;
            if scale != 1.0 {
                elementwise::scale(self.isa, row, scale);
            }
        }
        Ok(())
    }

    fn products(&self, x: Slot, products: &[Product], ws: &mut Workspace) -> Result<(), StepError> {
        let weights = products
            .iter()
            .map(|p| self.packed(p.weight))
            .collect::<Result<Vec<&PackedMatrix>, _>>()?;
        let biases = products
            .iter()
            .map(|p| p.bias.map(|bias| self.vector(bias)).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let mut outs: Vec<Vec<f32>> = products
            .iter()
            .map(|p| std::mem::take(&mut ws.slots[p.out.0]))
            .collect();
        let result = self.multiply(&ws.slots[x.0], &weights, &mut outs, &mut ws.quantized);
        for ((product, bias), mut out) in products.iter().zip(biases).zip(outs) {
            if let Some(bias) = bias {
                for row in out.chunks_exact_mut(bias.len().max(1)) {
                    elementwise::add(self.isa, row, bias)?;
                }
            }
            ws.slots[product.out.0] = out;
        }
        Ok(result?)
    }

    /// `outs[i] = x · weights[i]ᵀ`, all in one parallel region.
    fn multiply(
        &self,
        x: &[f32],
        weights: &[&PackedMatrix],
        outs: &mut [Vec<f32>],
        quantized: &mut QuantizedRows,
    ) -> Result<(), KernelError> {
        let cols = match weights.first() {
            // No products, or no rows: nothing to compute.
            None => return Ok(()),
            Some(_) if x.is_empty() => return Ok(()),
            Some(weight) => weight.cols(),
        };
        if weights.iter().any(|weight| !weight.format().is_float()) {
            self.quantize(x, cols, quantized)?;
        }
        let mut queues = Vec::with_capacity(weights.len());
        for (weight, out) in weights.iter().zip(outs) {
            let rows = weight.rows();
            // A few turns a thread, so that a thread that was held up does not hold up the others.
            let turns = if self.pool.threads() == 1 {
                1
            } else {
                4 * self.pool.threads()
            };
            let chunk = rows.div_ceil(turns).next_multiple_of(PANEL);
            queues.push(ColumnQueue::new(Columns::new(out, rows, 0..rows)?, chunk));
        }
        let quantized = &*quantized;
        let failed = Failure::default();
        self.pool.run(&|_| {
            for (weight, queue) in weights.iter().zip(&queues) {
                let input = if weight.format().is_float() {
                    Input::F32(x)
                } else {
                    Input::Int8(quantized)
                };
                while let Some(mut part) = queue.take() {
                    failed.note(kernels::matmul(self.isa, weight, input, &mut part));
                }
            }
        });
        failed.into_result()
    }

    fn quantize(&self, x: &[f32], cols: usize, out: &mut QuantizedRows) -> Result<(), KernelError> {
        if x.len() < WORTH_SHARING || self.pool.threads() == 1 {
            return kernels::quantize_rows(self.isa, x, cols, out);
        }
        let rows = x.len() / cols;
        out.reset(rows, cols)?;
        let run = rows.div_ceil(4 * self.pool.threads());
        let parts: Vec<Mutex<_>> = out.parts(run).map(Mutex::new).collect();
        let failed = Failure::default();
        self.pool.for_each(parts.len(), 1, &|range| {
            for i in range {
                let mut part = parts[i].lock().unwrap_or_else(PoisonError::into_inner);
                let x = &x[i * run * cols..(i * run + run).min(rows) * cols];
                failed.note(part.quantize(self.isa, x));
            }
        });
        drop(parts);
        failed.into_result()
    }

    fn glu_mlp(
        &self,
        [gate, up, down]: [usize; 3],
        activation: Activation,
        (x, out): (Slot, Slot),
        ws: &mut Workspace,
    ) -> Result<(), StepError> {
        let (gate, up, down) = (self.packed(gate)?, self.packed(up)?, self.packed(down)?);
        let tokens = ws.slots[x.0].len() / gate.cols();
        let mut inner = [std::mem::take(&mut ws.gate), std::mem::take(&mut ws.up)];
        for buffer in &mut inner {
            buffer.resize(tokens * gate.rows(), 0.0);
        }
        let mut result = self.multiply(&ws.slots[x.0], &[gate, up], &mut inner, &mut ws.quantized);
        let [mut gated, ups] = inner;
        let activation = match activation {
            Activation::Silu => kernels::Activation::Silu,
            Activation::GeluTanh => kernels::Activation::GeluTanh,
        };
        result = result.and_then(|()| {
            self.rows(&mut gated, gate.rows(), &|range, gate| {
                kernels::glu(self.isa, activation, gate, &ups[range])
            })
        });
        let mut outs = [std::mem::take(&mut ws.slots[out.0])];
        result = result.and_then(|()| self.multiply(&gated, &[down], &mut outs, &mut ws.quantized));
        let [y] = outs;
        ws.slots[out.0] = y;
        (ws.gate, ws.up) = (gated, ups);
        Ok(result?)
    }

    fn attention(
        &self,
        instr: &Instr,
        parts: &mut [Part<'_>],
        ws: &mut Workspace,
    ) -> Result<(), StepError> {
        let &Instr::Attention {
            q,
            k,
            v,
            out,
            state,
            heads,
            scale,
            softcap,
        } = instr
        else {
            return Err(StepError::Lowering(
                "attention in an instruction that is none",
            ));
        };
        let kv_cols = self.lowered.slots[k.0].cols;
        let width = self.lowered.slots[q.0].cols;
        let head_dim = width / heads;
        let kv_heads = kv_cols / head_dim;
        let group = heads / kv_heads;
        let mut row = 0;
        for part in &mut *parts {
            let new = row * kv_cols..(row + part.tokens.len()) * kv_cols;
            let layer = &mut part.states.layers[state];
            layer.write(
                part.position,
                &ws.slots[k.0][new.clone()],
                &ws.slots[v.0][new],
                kv_cols,
            );
            row += part.tokens.len();
        }
        let mut y = std::mem::take(&mut ws.slots[out.0]);
        let queries = &ws.slots[q.0];
        let mut tasks = Vec::new();
        let mut rest = &mut y[..];
        let mut row = 0;
        for part in &*parts {
            let layer = &part.states.layers[state];
            for start in (0..part.tokens.len()).step_by(POSITIONS) {
                let count = POSITIONS.min(part.tokens.len() - start);
                let (rows, behind) = std::mem::take(&mut rest).split_at_mut(count * width);
                rest = behind;
                let mut columns = Columns::new(rows, width, 0..width)?;
                for kv_head in 0..kv_heads {
                    let (mine, others) = columns.split_at(group * head_dim);
                    columns = others;
                    let first = (row + start) * width + kv_head * group * head_dim;
                    tasks.push(Mutex::new(Task {
                        layer,
                        kv_head,
                        queries: Queries {
                            data: &queries[first..(row + start + count) * width],
                            stride: width,
                            group,
                            first_position: part.position + start,
                            count,
                        },
                        out: mine,
                    }));
                }
            }
            row += part.tokens.len();
        }
        let failed = Failure::default();
        let next = std::sync::atomic::AtomicUsize::new(0);
        self.pool.run(&|thread| {
            let mut scratch = ws.scratch[thread]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            // Later positions see more: taking them first leaves the short tasks to even out the end.
            while let Some(task) = tasks
                .len()
                .checked_sub(1 + next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
            {
                let mut task = tasks[task].lock().unwrap_or_else(PoisonError::into_inner);
                let visible = task.layer.visible;
                let shape = AttentionShape {
                    head_dim,
                    page_tokens: PAGE,
                    scale,
                    softcap,
                    window: visible.window,
                    sinks: visible.sinks,
                };
                let (layer, kv_head, queries) = (task.layer, task.kv_head, task.queries);
                let pages = |i: usize| {
                    let page = layer.pages.get(i)?.as_deref()?;
                    Some(page.head(kv_head, head_dim))
                };
                failed.note(kernels::attention(
                    self.isa,
                    &shape,
                    &queries,
                    &pages,
                    &mut scratch,
                    &mut task.out,
                ));
            }
        });
        drop(tasks);
        ws.slots[out.0] = y;
        Ok(failed.into_result()?)
    }

    /// Runs `f` on runs of whole rows of `y`, with each run's range of elements.
    fn rows(&self, y: &mut [f32], width: usize, f: &RowsFn<'_>) -> Result<(), KernelError> {
        if y.len() < WORTH_SHARING || self.pool.threads() == 1 {
            return f(0..y.len(), y);
        }
        let run = (y.len() / width).div_ceil(4 * self.pool.threads()) * width;
        let failed = Failure::default();
        let runs: Vec<Mutex<&mut [f32]>> = y.chunks_mut(run).map(Mutex::new).collect();
        self.pool.for_each(runs.len(), 1, &|range| {
            for i in range {
                let mut y = runs[i].lock().unwrap_or_else(PoisonError::into_inner);
                let elements = i * run..i * run + y.len();
                failed.note(f(elements, &mut y));
            }
        });
        failed.into_result()
    }

    fn packed(&self, weight: usize) -> Result<&PackedMatrix, StepError> {
        self.weights[weight]
            .packed
            .as_ref()
            .ok_or(StepError::Lowering(
                "a product with a weight that is no matrix",
            ))
    }

    fn vector(&self, weight: usize) -> Result<&[f32], StepError> {
        self.weights[weight]
            .vector
            .as_deref()
            .ok_or(StepError::Lowering(
                "a norm or bias with a weight that is no vector",
            ))
    }
}

/// Makes a buffer `rows × cols`, or says that there is no memory for a pass of so many rows.
fn resize(buffer: &mut Vec<f32>, rows: usize, cols: usize) -> Result<(), BackendError> {
    let len = rows.checked_mul(cols);
    let fits = len.is_some_and(|len| buffer.try_reserve(len.saturating_sub(buffer.len())).is_ok());
    match len {
        Some(len) if fits => {
            buffer.resize(len, 0.0);
            Ok(())
        }
        _ => Err(BackendError::new(
            BackendErrorKind::OutOfMemory,
            format!(
                "no memory for {rows} rows of {cols} activations; a smaller prefill chunk needs less"
            ),
        )),
    }
}

/// Why an instruction could not be run; ours either way.
enum StepError {
    /// A kernel refused its input.
    Kernel(KernelError),
    /// Lowering or packing broke its word.
    Lowering(&'static str),
}

impl From<KernelError> for StepError {
    fn from(error: KernelError) -> StepError {
        StepError::Kernel(error)
    }
}

impl From<StepError> for BackendError {
    fn from(error: StepError) -> BackendError {
        let kind = BackendErrorKind::Internal;
        match error {
            StepError::Kernel(error) => {
                BackendError::new(kind, "a kernel refused its input").with_source(error)
            }
            StepError::Lowering(broken) => BackendError::new(kind, broken),
        }
    }
}

/// Works on some rows of a buffer: their range of elements, and the elements.
type RowsFn<'a> = dyn Fn(Range<usize>, &mut [f32]) -> Result<(), KernelError> + Sync + 'a;

/// The part of attention that one thread does at a time.
struct Task<'a> {
    layer: &'a crate::memory::LayerKv,
    kv_head: usize,
    queries: Queries<'a>,
    out: Columns<'a>,
}

/// The first error of a parallel region.
#[derive(Default)]
struct Failure(Mutex<Option<KernelError>>);

impl Failure {
    fn note(&self, result: Result<(), KernelError>) {
        if let Err(error) = result {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
        }
    }

    fn into_result(self) -> Result<(), KernelError> {
        let first = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), Err)
    }
}
