//! A model as every importer leaves it: canonical configuration, names and defaults.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::Config;
use crate::error::AssetError;
use crate::import;
use crate::tokenizer::TokenizerSource;
use crate::weights::Weights;

/// A model's configuration, weights and tokenizer, whatever container they came in.
#[derive(Debug)]
pub struct Checkpoint {
    /// Hyperparameters.
    pub config: Config,
    /// Tensors.
    pub weights: Weights,
    /// Where the tokenizer is.
    pub tokenizer: TokenizerSource,
    /// How the model's makers would have it sampled and stopped.
    pub generation: GenerationDefaults,
    /// Where all of it came from.
    pub source: SourceInfo,
}

impl Checkpoint {
    /// Opens a checkpoint: a `.gguf` file (any part of a split one), a directory with
    /// `config.json` and safetensors weights, or a directory that holds one GGUF model.
    ///
    /// Reads headers and configuration only; weights stay on disk until they are read. Nothing is
    /// fetched from a network.
    ///
    /// # Errors
    /// An [`AssetError`] that names the file and, where there is one, the tensor or key at fault.
    pub fn open(path: &Path) -> Result<Checkpoint, AssetError> {
        import::open(path)
    }

    /// Elements of all weights. A head tied to the embedding counts once.
    pub fn parameter_count(&self) -> u64 {
        self.weights.total_elements()
    }
}

/// Sampling and stopping defaults: `generation_config.json`, or a GGUF file's metadata.
///
/// Values are as the file gives them; `None` means that it is silent. Ranges are checked where
/// they are used, by the engine's sampler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Ids that end an answer, in file order, without repeats.
    pub eos_token_ids: Vec<u32>,
    /// Texts that end an answer (`stop_strings`, then `stop`), without repeats.
    pub stop_strings: Vec<String>,
    /// `false` means greedy whatever the other values say.
    pub do_sample: Option<bool>,
    /// Divides logits.
    pub temperature: Option<f32>,
    /// Keeps the k likeliest tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keeps the likeliest tokens of this total probability.
    pub top_p: Option<f32>,
    /// Keeps tokens at least this likely relative to the likeliest.
    pub min_p: Option<f32>,
    /// Divides positive and multiplies negative logits of tokens seen before.
    pub repetition_penalty: Option<f32>,
}

/// Which files a checkpoint was read from, and what they say about themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceInfo {
    /// The path that was opened.
    pub path: PathBuf,
    /// Weight files, in order.
    pub files: Vec<PathBuf>,
    /// The container format.
    pub container: Container,
    /// Bytes of all weight files together.
    pub file_bytes: u64,
    /// The model's own name, if it gives one.
    pub name: Option<String>,
    /// Everything the file says, in file order: GGUF metadata, or the fields of `config.json`.
    /// GGUF arrays of more than 16 elements are replaced by a string such as `49152 strings`.
    pub metadata: Vec<(String, Value)>,
}

/// A container format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// GGUF of that version.
    Gguf {
        /// 2 or 3.
        version: u32,
    },
    /// A Hugging Face directory with safetensors.
    Safetensors,
}

impl std::fmt::Display for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Container::Gguf { version } => write!(f, "GGUF v{version}"),
            Container::Safetensors => f.write_str("safetensors"),
        }
    }
}
