//! Weights in the forms that the kernels read, made once at load.

use std::sync::Mutex;
use std::sync::PoisonError;

use rushlight_asset::{Tensor, Weights};
use rushlight_ir::backend::{BackendError, BackendErrorKind};
use rushlight_ir::graph::Graph;
use rushlight_ir::op::Op;
use rushlight_kernels::matmul::{PANEL, PackedMatrix, pack_panel, panel_bytes};
use rushlight_kernels::pool::Pool;
use rushlight_kernels::{KernelError, qfmt};

/// A weight as the instructions read it; a tied table is there both ways.
#[derive(Default)]
pub(crate) struct Weight {
    /// For products: rows in panels.
    pub(crate) packed: Option<PackedMatrix>,
    /// For look-ups: the file's own rows.
    pub(crate) table: Option<Tensor>,
    /// For norms and biases: f32.
    pub(crate) vector: Option<Vec<f32>>,
}

impl Weight {
    pub(crate) fn bytes(&self) -> u64 {
        let packed = self.packed.as_ref().map_or(0, PackedMatrix::bytes);
        let vector = self
            .vector
            .as_ref()
            .map_or(0, |v| v.len() * size_of::<f32>());
        (packed + vector) as u64
    }
}

/// Prepares every weight of `graph`, in its order, telling `progress` of bytes done.
pub(crate) fn prepack(
    graph: &Graph,
    weights: &Weights,
    pool: &Pool,
    progress: Option<&dyn Fn(u64, u64)>,
) -> Result<Vec<Weight>, BackendError> {
    let mut uses = vec![Uses::default(); graph.weights().len()];
    for node in graph.nodes() {
        match node.op {
            Op::Embed { table, .. } => uses[table.index()].table = true,
            Op::RmsNorm { weight, .. } => uses[weight.index()].vector = true,
            Op::MatMul { weight, bias } => {
                uses[weight.index()].packed = true;
                if let Some(bias) = bias {
                    uses[bias.index()].vector = true;
                }
            }
            Op::GluMlp { gate, up, down, .. } => {
                for weight in [gate, up, down] {
                    uses[weight.index()].packed = true;
                }
            }
            Op::Rope { .. }
            | Op::Attention { .. }
            | Op::Add
            | Op::SelectOutputs
            | Op::Softcap { .. } => {}
        }
    }
    let tensors = graph.weights().iter().map(|spec| {
        weights.find(&spec.name).ok_or_else(|| {
            BackendError::new(
                BackendErrorKind::Internal,
                format!("{} was verified and is gone", spec.name),
            )
        })
    });
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    let total = tensors.iter().map(|tensor| tensor.byte_len()).sum();
    let mut done = 0;
    let mut prepared = Vec::with_capacity(tensors.len());
    for (tensor, uses) in tensors.into_iter().zip(uses) {
        prepared.push(Weight {
            packed: uses.packed.then(|| pack(tensor, pool)).transpose()?,
            table: uses.table.then(|| tensor.clone()),
            vector: uses.vector.then(|| vector(tensor)).transpose()?,
        });
        done += tensor.byte_len();
        if let Some(progress) = progress {
            progress(done, total);
        }
    }
    // A file that was shortened meanwhile gave zeros.
    weights.intact().map_err(|error| {
        BackendError::new(
            BackendErrorKind::Asset,
            "the checkpoint changed while it was read",
        )
        .with_source(error)
    })?;
    Ok(prepared)
}

#[derive(Clone, Copy, Default)]
struct Uses {
    packed: bool,
    table: bool,
    vector: bool,
}

fn vector(tensor: &Tensor) -> Result<Vec<f32>, BackendError> {
    let mut out = vec![0.0; tensor.cols()];
    qfmt::decode(tensor.format(), row(tensor, 0)?, &mut out)
        .map_err(|e| kernel_error(tensor, e))?;
    Ok(out)
}

/// Packs the panels on all threads.
fn pack(tensor: &Tensor, pool: &Pool) -> Result<PackedMatrix, BackendError> {
    let (format, rows, cols) = (tensor.format(), tensor.rows(), tensor.cols());
    let size = panel_bytes(format, cols).map_err(|e| kernel_error(tensor, e))?;
    let panels = rows.div_ceil(PANEL);
    let mut data = Vec::new();
    let bytes = size.checked_mul(panels);
    let reserved = bytes.is_some_and(|bytes| data.try_reserve_exact(bytes).is_ok());
    if !reserved {
        return Err(BackendError::new(
            BackendErrorKind::OutOfMemory,
            format!(
                "no memory for {panels} panels of {size} bytes of {}",
                tensor.called()
            ),
        ));
    }
    data.resize(size * panels, 0);
    // Panels are dealt to the threads in runs, each a slice of its own behind a lock that nobody
    // contends for.
    const RUN: usize = 64;
    let failed: Mutex<Option<BackendError>> = Mutex::new(None);
    let runs: Vec<Mutex<&mut [u8]>> = data
        .chunks_mut((size * RUN).max(1))
        .map(Mutex::new)
        .collect();
    pool.for_each(runs.len(), 1, &|range| {
        for i in range {
            let mut run = runs[i].lock().unwrap_or_else(PoisonError::into_inner);
            for (j, out) in run.chunks_mut(size.max(1)).enumerate() {
                if let Err(error) = pack_one(tensor, (i * RUN + j) * PANEL, out) {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                    return;
                }
            }
        }
    });
    drop(runs);
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    PackedMatrix::from_packed(format, rows, cols, data).map_err(|e| kernel_error(tensor, e))
}

fn pack_one(tensor: &Tensor, first: usize, out: &mut [u8]) -> Result<(), BackendError> {
    let mut sources: [&[u8]; PANEL] = [&[]; PANEL];
    let count = PANEL.min(tensor.rows() - first);
    for (i, source) in sources.iter_mut().enumerate().take(count) {
        *source = row(tensor, first + i)?;
    }
    pack_panel(tensor.format(), tensor.cols(), &sources[..count], out)
        .map_err(|e| kernel_error(tensor, e))
}

fn row(tensor: &Tensor, row: usize) -> Result<&[u8], BackendError> {
    tensor.row(row).map_err(|error| {
        BackendError::new(
            BackendErrorKind::Asset,
            format!("{} cannot be read", tensor.called()),
        )
        .with_source(error)
    })
}

fn kernel_error(tensor: &Tensor, error: KernelError) -> BackendError {
    BackendError::new(
        BackendErrorKind::Internal,
        format!("{} ({}) does not pack", tensor.called(), tensor.format()),
    )
    .with_source(error)
}
