//! What a backend is: it compiles graphs into programs; a program runs steps over lanes.
//!
//! The traits say what engines may rely on, on every backend:
//!
//! * A lane's result depends on its own history alone: bit for bit the same whether its tokens come
//!   in one step or in several, beside other lanes or alone, with one thread or with many.
//! * A failed [`Program::submit`] leaves every lane's states as they were.
//! * Nothing panics on a token id, a length or a state that does not fit: it is an error.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use rushlight_asset::Weights;

use crate::graph::{Graph, Signature};

/// Compiles graphs for one kind of device.
pub trait Backend: Send + Sync {
    /// The name in messages and records, for example `cpu`.
    fn name(&self) -> &'static str;

    /// Checks options that need neither graph nor weights, so that they can be refused before a file is
    /// opened.
    ///
    /// # Errors
    /// [`BackendErrorKind::Option`], as [`compile`](Backend::compile) would give it.
    fn check(&self, options: &CompileOptions<'_>) -> Result<(), BackendError>;

    /// Checks `graph` against `weights` and makes a program of it. The weights may be dropped
    /// afterwards.
    ///
    /// # Errors
    /// A graph that does not fit its weights, a file that fails while it is read, or memory.
    fn compile(
        &self,
        graph: &Graph,
        weights: &Weights,
        options: &CompileOptions<'_>,
    ) -> Result<Arc<dyn Program>, BackendError>;
}

/// How a program is made.
#[derive(Clone, Copy, Default)]
pub struct CompileOptions<'a> {
    /// Threads of the step; `None` takes every core that the process may use.
    pub threads: Option<usize>,
    /// Element type of cached keys and values.
    pub kv_dtype: KvDtype,
    /// Called as weights are prepared, with bytes done and bytes in all.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

impl fmt::Debug for CompileOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompileOptions")
            .field("threads", &self.threads)
            .field("kv_dtype", &self.kv_dtype)
            .finish_non_exhaustive()
    }
}

/// Element type of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvDtype {
    /// Two bytes an element.
    #[default]
    F16,
    /// Four bytes an element: exact, and twice the memory.
    F32,
}

impl KvDtype {
    /// Bytes an element.
    pub fn bytes(self) -> usize {
        match self {
            KvDtype::F16 => 2,
            KvDtype::F32 => 4,
        }
    }
}

/// A compiled function: immutable, shared by any number of sequences.
pub trait Program: Send + Sync {
    /// What it takes, gives and keeps.
    fn signature(&self) -> &Signature;

    /// Bytes it holds and will take.
    fn memory(&self) -> Memory;

    /// Fresh states for one sequence.
    ///
    /// # Errors
    /// [`BackendErrorKind::OutOfMemory`] when `options.reserve` tokens do not fit.
    fn states(&self, options: &StateOptions) -> Result<Box<dyn States>, BackendError>;

    /// One forward pass over all lanes. Appends each lane's tokens to its states and gives the
    /// logits that were asked for, lane after lane, in token order.
    ///
    /// # Errors
    /// [`BackendErrorKind::Input`] for no lanes, an empty lane, a token id outside the vocabulary,
    /// more positions than the context, or states of another program;
    /// [`BackendErrorKind::OutOfMemory`]. All states are then as before.
    fn submit(&self, lanes: &mut [Lane<'_>]) -> Result<Box<dyn Logits>, BackendError>;
}

/// One sequence's part in a step.
pub struct Lane<'a> {
    /// The sequence's states; its length is the position of the first new token.
    pub states: &'a mut dyn States,
    /// New tokens, at least one.
    pub tokens: &'a [u32],
    /// How many of the last tokens' logits are wanted (0: none; at most `tokens.len()`).
    pub logits: usize,
}

/// The logits of a step, where the backend made them.
pub trait Logits: Send {
    /// Rows, over all lanes.
    fn rows(&self) -> usize;

    /// Columns: the vocabulary, padding included.
    fn width(&self) -> usize;

    /// One row, f32; borrowed where the backend's memory is the host's.
    ///
    /// # Panics
    /// If `row` is not below [`rows`](Logits::rows).
    fn row(&self, row: usize) -> Cow<'_, [f32]>;
}

/// The mutable memory of one sequence.
pub trait States: Send {
    /// Positions held.
    fn len(&self) -> usize;

    /// Whether no position is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets positions from `to` on, and says where it really landed: at most `to`, and less where
    /// what `to` needs was already given up (a window's dropped pages). Prefill goes on from there.
    fn rewind(&mut self, to: usize) -> usize;

    /// Makes room for `tokens` positions in all, so that steps up to there cannot run out.
    ///
    /// # Errors
    /// [`BackendErrorKind::OutOfMemory`].
    fn reserve(&mut self, tokens: usize) -> Result<(), BackendError>;

    /// A second sequence with the same history. Memory is shared until one of them writes.
    fn fork(&self) -> Box<dyn States>;

    /// Bytes held (shared ones counted in full).
    fn bytes(&self) -> u64;

    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;

    /// For the backend that made it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// How a sequence's states take memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateOptions {
    /// Positions to make room for at once.
    pub reserve: usize,
    /// Bounded memory: full-attention states keep the first `sinks` positions and the last
    /// `window` ones, and a query sees only those. `None` keeps all.
    pub bounded: Option<Bounded>,
}

/// Attention sinks and a window (arXiv 2309.17453, with positions kept as they were).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// First positions that stay visible for ever.
    pub sinks: usize,
    /// Last positions seen, the query's own included.
    pub window: usize,
}

/// What a program holds and takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of prepared weights.
    pub weights: u64,
    /// Bytes a token of states of unbounded kind takes, all layers together.
    pub kv_per_token: u64,
    /// The most bytes that windowed states take, however long the sequence.
    pub windows: u64,
}

/// What went wrong in a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// A lane asks for what cannot be: see [`Program::submit`].
    Input,
    /// An option has no use here, for example zero threads.
    Option,
    /// The graph does not fit the checkpoint; the source says where.
    Graph,
    /// The checkpoint's file failed while it was read; the source says where.
    Asset,
    /// Memory for states could not be had.
    OutOfMemory,
    /// Our bug: the backend lacks what the graph needs.
    Internal,
}

/// A backend's error.
#[derive(Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// An error without a deeper cause.
    pub fn new(kind: BackendErrorKind, message: impl Into<String>) -> BackendError {
        BackendError {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> BackendError {
        self.source = Some(Box::new(source));
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
