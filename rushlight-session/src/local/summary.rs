//! What a model is, without its weights.

use std::path::Path;

use rushlight_asset::weights::{FormatShare, Skipped};
use rushlight_asset::{Checkpoint, Config, GenerationDefaults, SourceInfo};
use rushlight_ir::backend::KvDtype;
use rushlight_ir::graph::{Graph, Signature, StateKind};
use rushlight_ir::{arch, verify};

use crate::error::SessionError;

/// What a model is, without its weights: all that can be told from headers and configuration.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Hyperparameters.
    pub config: Config,
    /// The files it came from, and what they say about themselves.
    pub source: SourceInfo,
    /// Elements of all weights. A head tied to the embedding counts once.
    pub parameters: u64,
    /// Bytes of all weights in their files.
    pub weight_bytes: u64,
    /// Bytes and tensors of each weight format, most bytes first.
    pub formats: Vec<FormatShare>,
    /// Tensors that the weights do without, and why.
    pub skipped: Vec<Skipped>,
    /// What the function takes, gives and keeps.
    pub signature: Signature,
    /// One word for the tokenizer: `gpt2`, `llama`, …, `tokenizer.json` or `none`.
    pub tokenizer: String,
    /// How the model's makers would have it sampled and stopped.
    pub generation: GenerationDefaults,
}

impl Summary {
    /// Opens a checkpoint, builds its graph and holds them against each other. Reads no weights.
    ///
    /// # Errors
    /// [`Checkpoint`](crate::SessionErrorKind::Checkpoint) and
    /// [`Architecture`](crate::SessionErrorKind::Architecture), as loading would meet them.
    pub fn read(path: &Path) -> Result<Summary, SessionError> {
        Summary::of(&Checkpoint::open(path)?)
    }

    /// As [`read`](Summary::read), of a checkpoint that is open already.
    ///
    /// # Errors
    /// [`Architecture`](crate::SessionErrorKind::Architecture).
    pub fn of(checkpoint: &Checkpoint) -> Result<Summary, SessionError> {
        let graph = graph(checkpoint)?;
        Ok(Summary::with(checkpoint, graph.signature()))
    }

    pub(super) fn with(checkpoint: &Checkpoint, signature: &Signature) -> Summary {
        Summary {
            config: checkpoint.config.clone(),
            source: checkpoint.source.clone(),
            parameters: checkpoint.parameter_count(),
            weight_bytes: checkpoint.weights.total_bytes(),
            formats: checkpoint.weights.by_format(),
            skipped: checkpoint.weights.skipped().to_vec(),
            signature: signature.clone(),
            tokenizer: checkpoint.tokenizer.kind().to_owned(),
            generation: checkpoint.generation.clone(),
        }
    }

    /// Bytes of one sequence's keys and values at `context` positions, before they are rounded up
    /// to pages: 2 × KV heads × head width × bytes of an element, a position and layer, and no more
    /// positions than its window in a layer that has one.
    pub fn state_bytes(&self, context: usize, dtype: KvDtype) -> u64 {
        let bytes_of = |positions: usize, kv_heads: usize, head_dim: usize| {
            [2, kv_heads, head_dim, dtype.bytes()]
                .into_iter()
                .fold(positions as u64, |bytes, n| bytes.saturating_mul(n as u64))
        };
        let states = self.signature.states.iter().map(|state| {
            let positions = match state.kind {
                StateKind::Kv => context,
                StateKind::Window { tokens } => context.min(tokens),
            };
            bytes_of(positions, state.kv_heads, state.head_dim)
        });
        states.fold(0, u64::saturating_add)
    }
}

/// A checkpoint's graph, held against its tensors.
pub(super) fn graph(checkpoint: &Checkpoint) -> Result<Graph, SessionError> {
    let has = |name: &str| checkpoint.weights.find(name).is_some();
    let graph = arch::build(&checkpoint.config, &has)?;
    verify::verify(&graph, &checkpoint.weights)?;
    Ok(graph)
}
