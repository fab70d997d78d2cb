//! The options of loading a model, which most subcommands take.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use clap::{Args, ValueEnum};
use rushlight::asset::config::RopeFrequencies;
use rushlight::asset::{Checkpoint, Store};
use rushlight::engine::EngineOptions;
use rushlight::engine::plan::{EngineVariant, KvCacheStrategy, KvOptions, PrefillOptions};
use rushlight::ir::backend::KvDtype;
use rushlight::session::Text;
use rushlight::{LoadOptions, LocalModel};

use crate::failure::{Exit, Failure};
use crate::progress::Bar;

/// Which model, and how it is run.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// A .gguf file, a checkpoint directory, or the name of a model in the store
    #[arg(long, short, value_name = "MODEL")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// How a model is run.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineArgs {
    /// Threads of a step [default: every core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Positions that a sequence may have [default: the model's own context]
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// How passes are planned: auto, sequential, pipelined or static-shape
    #[arg(long, value_name = "VARIANT", default_value_t)]
    pub(crate) engine: EngineVariant,
    /// Element type of cached keys and values
    #[arg(long, value_name = "DTYPE", value_enum, default_value_t)]
    pub(crate) kv_dtype: Kv,
    /// Precision of the rotary frequencies: bf16 is that of models that transformers runs wholly in
    /// bf16, and of references made so
    #[arg(long, value_name = "DTYPE", value_enum, default_value_t)]
    pub(crate) rope_frequencies: Rope,
    /// How memory for keys and values is taken: auto, growing, fixed_size or chunked
    #[arg(long, value_name = "STRATEGY", default_value_t)]
    pub(crate) kv_cache_strategy: KvCacheStrategy,
    /// Positions taken at once; with fixed_size the most there will be; not with chunked
    #[arg(long, value_name = "N")]
    pub(crate) kv_cache_initial_capacity: Option<usize>,
    /// Positions that chunked holds at most, sinks included [default: 4096 or the context]
    #[arg(long, value_name = "N")]
    pub(crate) kv_cache_capacity: Option<usize>,
    /// First positions that chunked never drops [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) kv_cache_sinks: Option<usize>,
    /// Tokens of a prompt that are read in one pass at most [default: 512]
    #[arg(long, value_name = "N")]
    pub(crate) chunk_size: Option<usize>,
    /// Prompts of at most this many tokens are read in one pass [default: 1024, or the chunk size
    /// where one is given]
    #[arg(long, value_name = "N")]
    pub(crate) chunk_threshold: Option<usize>,
}

/// Element type of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kv {
    /// Two bytes an element
    #[default]
    F16,
    /// Four bytes an element: exact
    F32,
}

impl From<Kv> for KvDtype {
    fn from(kv: Kv) -> KvDtype {
        match kv {
            Kv::F16 => KvDtype::F16,
            Kv::F32 => KvDtype::F32,
        }
    }
}

/// Precision of rotary frequencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rope {
    /// As computed
    #[default]
    F32,
    /// Rounded to eight bits
    Bf16,
}

impl From<Rope> for RopeFrequencies {
    fn from(rope: Rope) -> RopeFrequencies {
        match rope {
            Rope::F32 => RopeFrequencies::F32,
            Rope::Bf16 => RopeFrequencies::Bf16,
        }
    }
}

impl LoadArgs {
    /// Loads the model, with a bar while it takes long.
    pub(crate) fn load(&self) -> Result<Arc<LocalModel>, Failure> {
        let bar = Bar::bytes("loading");
        let progress = |done, total| bar.at(done, total);
        let loaded = rushlight::load_with(&self.model, &self.engine.options(), Some(&progress));
        bar.clear();
        loaded.map_err(|error| Failure::from(error).of_model(&self.model))
    }
}

impl EngineArgs {
    fn options(&self) -> LoadOptions {
        LoadOptions {
            threads: self.threads,
            kv_dtype: self.kv_dtype.into(),
            rope_frequencies: self.rope_frequencies.into(),
            engine: EngineOptions {
                variant: self.engine,
                prefill: self.prefill(),
                kv_cache: KvOptions {
                    strategy: self.kv_cache_strategy,
                    initial_capacity: self.kv_cache_initial_capacity,
                    capacity: self.kv_cache_capacity,
                    sinks: self.kv_cache_sinks,
                },
                context: self.context,
            },
        }
    }

    /// Who asks for chunks of a size means prompts of that size to be cut already.
    fn prefill(&self) -> PrefillOptions {
        let default = PrefillOptions::default();
        PrefillOptions {
            chunk: self.chunk_size.unwrap_or(default.chunk),
            threshold: self
                .chunk_threshold
                .or(self.chunk_size)
                .unwrap_or(default.threshold),
            ..default
        }
    }
}

/// Threads that a step takes where none are asked for.
pub(crate) fn all_threads() -> usize {
    available_parallelism().map_or(1, NonZeroUsize::get)
}

/// A model's tokenizer and template, without its weights.
pub(crate) fn text(model: &str) -> Result<Text, Failure> {
    let path = Store::locate(model)?;
    let checkpoint = Checkpoint::open(&path)?;
    let text =
        Text::open(&checkpoint.tokenizer).map_err(|error| Failure::from(error).of_model(model))?;
    text.ok_or_else(|| Failure::new(Exit::File, "the checkpoint has no tokenizer").of_model(model))
}
