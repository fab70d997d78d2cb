//! The most of everything that a file may ask for, and why.
//!
//! Each limit is several times what any published checkpoint needs; beyond it, a file is an attack
//! or a mistake. Counts are also held against the bytes that are left in the file before anything
//! is allocated, so memory stays proportional to the file.

/// Metadata entries in a GGUF file. Published files have fewer than 100.
pub const METADATA_ENTRIES: u64 = 65_536;
/// Tensors in one file. The largest mixtures of experts have about 100,000 unfused.
pub const TENSORS: u64 = 1_000_000;
/// Bytes of a metadata key: the GGUF specification's own limit.
pub const KEY_BYTES: u64 = 65_535;
/// Bytes of a tensor's name. GGUF allows 64; Hugging Face names reach about 120.
pub const TENSOR_NAME_BYTES: u64 = 1_024;
/// Bytes of a metadata string. Chat templates, the longest, are below 100 KB.
pub const STRING_BYTES: u64 = 16 << 20;
/// Elements of a metadata array. Merge lists, the longest, are below one million.
pub const ARRAY_ELEMENTS: u64 = 1 << 24;
/// Arrays within arrays. No known key nests even once.
pub const ARRAY_DEPTH: usize = 4;
/// Dimensions of a GGUF tensor, as the specification has it.
pub const GGUF_DIMENSIONS: u32 = 4;
/// Dimensions of a safetensors tensor. Video patch embeddings have 5.
pub const SAFETENSORS_DIMENSIONS: usize = 8;
/// Alignment of GGUF tensor data, in bytes. 32 is usual; beyond a large page nothing is gained.
pub const ALIGNMENT: u64 = 2 << 20;
/// Bytes of a safetensors header: the format's own limit.
pub const SAFETENSORS_HEADER_BYTES: u64 = 100_000_000;
/// Bytes of a JSON file beside the weights (`config.json`, the shard index).
pub const JSON_BYTES: u64 = 64 << 20;
/// Files that one checkpoint may be split over. The largest published ones have about 200.
pub const PARTS: u64 = 4_096;
/// Decoder layers. The deepest published models have about 130.
pub const LAYERS: u64 = 4_096;
/// Any single width or count in a configuration, so that products of three fit 64 bits.
pub const DIMENSION: u64 = 1 << 21;
/// Positions of context, in tokens. The longest published are 10 million.
pub const CONTEXT: u64 = 1 << 30;
/// Files that can be memory-mapped at once, over all open checkpoints.
pub const MAPPINGS: usize = 8_192;
