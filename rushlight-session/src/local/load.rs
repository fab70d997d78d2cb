//! From a path to a model that can answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rushlight_asset::Checkpoint;
use rushlight_asset::config::RopeFrequencies;
use rushlight_engine::sample::SampleVocab;
use rushlight_engine::{Engine, EngineOptions};
use rushlight_ir::backend::{Backend, CompileOptions, KvDtype};

use super::LocalModel;
use super::guided::Grammars;
use super::sampling;
use super::summary::{Summary, graph};
use super::text::Text;
use crate::error::SessionError;

/// How a model is loaded. The default takes every core, the model's whole context and a cache in
/// f16 that grows as it is needed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadOptions {
    /// Threads of a step; `None` takes every core that the process may use.
    pub threads: Option<usize>,
    /// Element type of cached keys and values.
    pub kv_dtype: KvDtype,
    /// How rotary frequencies are rounded; `f32` is what the mathematics says.
    pub rope_frequencies: RopeFrequencies,
    /// Engine variant, prefill, cache strategy and context.
    pub engine: EngineOptions,
}

impl LoadOptions {
    /// Fails on the first option that no model could take on `backend`. Loading begins with it.
    ///
    /// # Errors
    /// [`SessionErrorKind::InvalidOption`](crate::SessionErrorKind::InvalidOption), or the backend's
    /// own refusal.
    pub fn check(&self, backend: &dyn Backend) -> Result<(), SessionError> {
        backend.check(&self.compile(None))?;
        Ok(self.engine.check()?)
    }

    fn compile<'a>(&self, progress: Option<&'a dyn Fn(u64, u64)>) -> CompileOptions<'a> {
        CompileOptions {
            threads: self.threads,
            kv_dtype: self.kv_dtype,
            progress,
        }
    }
}

impl LocalModel {
    /// Loads the checkpoint at `path` (a `.gguf` file, or a directory that
    /// [`Checkpoint::open`] takes) onto `backend`. Options are checked before the file is opened, and
    /// everything that can be checked without weights before they are read. `progress` is called as weights are prepared, with bytes done
    /// and bytes in all.
    ///
    /// # Errors
    /// A [`SessionError`] that names the file and tensor, the configuration's field, or the option
    /// at fault.
    pub fn load(
        path: &Path,
        backend: &dyn Backend,
        options: &LoadOptions,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Arc<LocalModel>, SessionError> {
        LocalModel::open(path, backend, options, progress).map(Arc::new)
    }

    pub(crate) fn open(
        path: &Path,
        backend: &dyn Backend,
        options: &LoadOptions,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<LocalModel, SessionError> {
        let start = Instant::now();
        options.check(backend)?;
        let mut checkpoint = Checkpoint::open(path)?;
        checkpoint.config.rope_frequencies = options.rope_frequencies;
        let graph = graph(&checkpoint)?;
        options.engine.check_for(graph.signature())?;
        let text = Text::open(&checkpoint.tokenizer)?;
        let rows = graph.signature().vocab;
        let vocab = match &text {
            Some(text) => text.sample_vocab(rows, graph.signature().logits)?,
            None => SampleVocab::new(rows, graph.signature().logits, &[])?,
        };
        sampling::check(&checkpoint.generation, &vocab)?;
        let compile = options.compile(progress);
        let program = backend.compile(&graph, &checkpoint.weights, &compile)?;
        // A file that shrank meanwhile was read as zeros from there on.
        checkpoint.weights.intact()?;
        let engine = Engine::new(program, vocab, options.engine.clone())?;
        let stop_tokens = stop_tokens(&checkpoint, text.as_ref(), rows);
        Ok(LocalModel {
            summary: Summary::with(&checkpoint, graph.signature()),
            engine,
            text,
            stop_tokens,
            grammars: Grammars::default(),
            load_time: start.elapsed(),
        })
    }
}

/// Every id that ends an answer: the generation defaults' and the tokenizer's. An id without an
/// embedding can neither be read nor sampled.
fn stop_tokens(checkpoint: &Checkpoint, text: Option<&Text>, rows: usize) -> Vec<u32> {
    let mut ids = checkpoint.generation.eos_token_ids.clone();
    ids.extend(text.into_iter().flat_map(Text::stop_tokens));
    ids.retain(|&id| usize::try_from(id).is_ok_and(|id| id < rows));
    ids.sort_unstable();
    ids.dedup();
    ids
}
