//! Checkpoints and bundles: GGUF and safetensors import, canonical names and config.

pub mod config;
