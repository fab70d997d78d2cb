//! Checkpoints: what a model's files hold, in one vocabulary.
//!
//! # What this crate will not do
//! It computes nothing: no weight is decoded, no text is tokenised, no architecture is known by more
//! than its tables of names and keys. It fetches nothing from a network. It converts nothing:
//! weights stay in their file, in their format, and are read through a memory map. And it drops
//! nothing: metadata that changes what a model computes is honoured or refused by name.
//!
//! # From a path to weights
//! [`Checkpoint::open`] takes a GGUF file (or any part of a split one) or a Hugging Face directory and
//! gives the same four things for both:
//!
//! ```text
//!   model.gguf ──────► import::gguf ─────────┐    ┌► config      canonical hyperparameters
//!                                            ├────┼► weights     canonical names → bytes
//!   config.json, ────► import::huggingface ──┘    ├► tokenizer   files, or GGUF metadata
//!   *.safetensors                                 └► generation  stop ids, sampling defaults
//! ```
//!
//! ```no_run
//! use std::path::Path;
//! use rushlight_asset::Checkpoint;
//!
//! let checkpoint = Checkpoint::open(Path::new("SmolLM2-135M-Instruct.Q4_1.gguf"))?;
//! let q = checkpoint.weights.find("layers.0.q.weight").expect("a llama has queries");
//! println!("{} {:?}: row 0 is {} bytes", q.format(), q.shape(), q.row(0)?.len());
//! checkpoint.weights.intact()?;
//! # Ok::<(), rushlight_asset::AssetError>(())
//! ```
//!
//! [`names`] has the canonical tensor names and their spellings, [`config`] the canonical
//! hyperparameters, [`limits`] the most that a file may ask for, [`store`] the folder of models that
//! can be called by name.
//!
//! # Files are hostile
//! Headers are parsed from byte slices with checked arithmetic; counts are held against the bytes left
//! before anything is allocated; tensors must tile their file without overlap or gap; a file that is
//! shortened while open gives zeros and an error from [`Weights::intact`], not a crash. Every refusal is
//! an [`AssetError`] with the file, the tensor or key, and the byte.
#![deny(unsafe_code)]

pub mod checkpoint;
pub mod config;
pub mod error;
pub mod import;
pub mod limits;
pub mod names;
pub mod store;
pub mod tokenizer;
pub mod weights;

pub use checkpoint::{Checkpoint, Container, GenerationDefaults, SourceInfo};
pub use config::Config;
pub use error::{AssetError, ErrorKind};
pub use rushlight_kernels::qfmt::Format;
pub use store::Store;
pub use tokenizer::{GgufTokenizer, TokenizerSource};
pub use weights::{Tensor, Weights};
