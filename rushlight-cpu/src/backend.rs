//! The backend and its programs: what is checked, what is held, and who waits for whom.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use rushlight_asset::Weights;
use rushlight_ir::backend::{
    Backend, BackendError, BackendErrorKind, CompileOptions, KvDtype, Lane, Logits, Memory,
    Program, StateOptions, States,
};
use rushlight_ir::graph::{Graph, Signature, StateKind};
use rushlight_ir::verify::verify;
use rushlight_kernels::Isa;
use rushlight_kernels::pool::Pool;

use crate::lower::lower;
use crate::memory::{CpuStates, PAGE};
use crate::prepack::{Weight, prepack};
use crate::run::{Machine, Part, Workspace};

/// Threads beyond this are refused: no machine has them, and each takes a stack.
const MAX_THREADS: usize = 1024;

/// Runs programs on the processor's cores, with the instruction set found at run time.
#[derive(Clone, Copy, Debug)]
pub struct CpuBackend {
    isa: Isa,
}

impl CpuBackend {
    /// The backend for this machine.
    pub fn new() -> CpuBackend {
        CpuBackend { isa: Isa::detect() }
    }

    /// The backend on a given instruction set.
    pub fn with_isa(isa: Isa) -> CpuBackend {
        CpuBackend { isa }
    }

    /// The instruction set that kernels run on.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}

impl Default for CpuBackend {
    fn default() -> CpuBackend {
        CpuBackend::new()
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn check(&self, options: &CompileOptions<'_>) -> Result<(), BackendError> {
        threads(options).map(drop)
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
        let threads = threads(options)?;
        let pool = Pool::new(threads).map_err(|error| {
            BackendError::new(
                BackendErrorKind::OutOfMemory,
                format!("the system gives no {threads} threads"),
            )
            .with_source(error)
        })?;
        let weights = prepack(graph, weights, &pool, options.progress)?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Arc::new(CpuProgram {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            signature: graph.signature().clone(),
            kv_dtype: options.kv_dtype,
            weight_bytes: weights.iter().map(Weight::bytes).sum(),
            machine: Machine {
                isa: self.isa,
                lowered: lower(graph),
                ropes: graph.ropes().to_vec(),
                weights,
                pool,
            },
            workspace: Mutex::default(),
            spare: Arc::default(),
        }))
    }
}

/// Threads of a step.
fn threads(options: &CompileOptions<'_>) -> Result<usize, BackendError> {
    let threads = options
        .threads
        .unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
    if threads == 0 || threads > MAX_THREADS {
        return Err(BackendError::new(
            BackendErrorKind::Option,
            format!("threads is {threads}; it must be from 1 to {MAX_THREADS}"),
        ));
    }
    Ok(threads)
}

struct CpuProgram {
    id: u64,
    signature: Signature,
    kv_dtype: KvDtype,
    weight_bytes: u64,
    machine: Machine,
    /// Held for a step: steps of one program wait for each other, as they share its threads.
    workspace: Mutex<Workspace>,
    /// The last step's buffer of logits, to be filled again.
    spare: Arc<Mutex<Vec<f32>>>,
}

impl CpuProgram {
    /// Checks a step before anything is touched.
    fn check(&self, lanes: &[Lane<'_>]) -> Result<(), BackendError> {
        let input = |message: String| Err(BackendError::new(BackendErrorKind::Input, message));
        if lanes.is_empty() {
            return input("a step without lanes".to_owned());
        }
        for (i, lane) in lanes.iter().enumerate() {
            let Some(states) = lane.states.as_any().downcast_ref::<CpuStates>() else {
                return input(format!("lane {i}: states of another backend"));
            };
            if states.program != self.id {
                return input(format!("lane {i}: states of another program"));
            }
            if lane.tokens.is_empty() {
                return input(format!("lane {i}: no tokens"));
            }
            if lane.logits > lane.tokens.len() {
                return input(format!(
                    "lane {i}: {} rows of logits from {} tokens",
                    lane.logits,
                    lane.tokens.len()
                ));
            }
            let end = states.len().saturating_add(lane.tokens.len());
            if end > self.signature.context {
                return input(format!(
                    "lane {i}: {end} positions where the context has {}",
                    self.signature.context
                ));
            }
            let vocab = self.signature.vocab;
            let bad = |&&token: &&u32| usize::try_from(token).map_or(true, |token| token >= vocab);
            if let Some(token) = lane.tokens.iter().find(bad) {
                return input(format!(
                    "lane {i}: token {token} where the vocabulary has {vocab}"
                ));
            }
        }
        Ok(())
    }
}

impl Program for CpuProgram {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn memory(&self) -> Memory {
        let mut memory = Memory {
            weights: self.weight_bytes,
            ..Memory::default()
        };
        for state in &self.signature.states {
            let token = (2 * state.kv_heads * state.head_dim * self.kv_dtype.bytes()) as u64;
            match state.kind {
                StateKind::Kv => memory.kv_per_token += token,
                StateKind::Window { tokens } => {
                    memory.windows +=
                        token * (2 * tokens + PAGE).min(self.signature.context) as u64;
                }
            }
        }
        memory
    }

    fn states(&self, options: &StateOptions) -> Result<Box<dyn States>, BackendError> {
        let specs = &self.signature.states;
        CpuStates::new(self.id, specs, self.kv_dtype, options).map(|states| Box::new(states) as _)
    }

    fn submit(&self, lanes: &mut [Lane<'_>]) -> Result<Box<dyn Logits>, BackendError> {
        self.check(lanes)?;
        let mut parts = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let Some(states) = lane.states.as_any_mut().downcast_mut::<CpuStates>() else {
                return Err(BackendError::new(
                    BackendErrorKind::Internal,
                    "states changed their backend",
                ));
            };
            // Pages are taken before the first write: what fails, fails here.
            states.prepare(lane.tokens.len())?;
            parts.push(Part {
                position: states.len(),
                states,
                tokens: lane.tokens,
                logits: lane.logits,
            });
        }
        let mut workspace = self
            .workspace
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let spare = std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner));
        let data = self.machine.run(&mut parts, &mut workspace, spare)?;
        // Look-ups read the file; one that was shortened since it was opened gave zeros.
        for table in self
            .machine
            .weights
            .iter()
            .filter_map(|weight| weight.table.as_ref())
        {
            table.intact().map_err(|error| {
                BackendError::new(
                    BackendErrorKind::Asset,
                    "the model's file changed while in use",
                )
                .with_source(error)
            })?;
        }
        for part in parts {
            part.states.commit(part.tokens.len());
        }
        Ok(Box::new(CpuLogits {
            width: self.signature.logits,
            data,
            home: Arc::clone(&self.spare),
        }))
    }
}

struct CpuLogits {
    width: usize,
    data: Vec<f32>,
    home: Arc<Mutex<Vec<f32>>>,
}

impl Logits for CpuLogits {
    fn rows(&self) -> usize {
        self.data.len().checked_div(self.width).unwrap_or(0)
    }

    fn width(&self) -> usize {
        self.width
    }

    fn row(&self, row: usize) -> Cow<'_, [f32]> {
        Cow::Borrowed(&self.data[row * self.width..(row + 1) * self.width])
    }
}

impl Drop for CpuLogits {
    fn drop(&mut self) {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        *home = std::mem::take(&mut self.data);
    }
}
