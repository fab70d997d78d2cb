//! Where a checkpoint's tokenizer is: files beside the weights, or metadata inside a GGUF file.
//!
//! Nothing is interpreted here beyond types and lengths; building the tokenizer is the text
//! crate's work.

use std::path::PathBuf;

/// The tokenizer as the checkpoint carries it.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizerSource {
    /// Hugging Face files. Only paths: they are not read here, and whoever reads them finds special
    /// tokens and chat templates in files beside them.
    Files {
        /// `tokenizer.json`.
        tokenizer_json: PathBuf,
        /// `tokenizer_config.json`.
        tokenizer_config: Option<PathBuf>,
    },
    /// A GGUF file's `tokenizer.*` metadata.
    Gguf(Box<GgufTokenizer>),
    /// The checkpoint has none.
    None,
}

impl TokenizerSource {
    /// One word for people: the GGUF model (`gpt2`, `llama`, …), `tokenizer.json`, or `none`.
    pub fn kind(&self) -> &str {
        match self {
            TokenizerSource::Files { .. } => "tokenizer.json",
            TokenizerSource::Gguf(tokenizer) => &tokenizer.model,
            TokenizerSource::None => "none",
        }
    }
}

/// The `tokenizer.*` metadata of a GGUF file, as the
/// [GGUF specification](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) names it.
///
/// `scores` and `token_types`, where present, have one entry a token, and every id is below
/// `tokens.len()`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GgufTokenizer {
    /// `gpt2` (byte-level BPE), `llama` (SentencePiece), or another family's name.
    pub model: String,
    /// The pre-tokenizer's name, for example `smollm` or `llama-bpe`.
    pub pre: Option<String>,
    /// Token texts; the index is the id.
    pub tokens: Vec<String>,
    /// SentencePiece log-probabilities.
    pub scores: Option<Vec<f32>>,
    /// 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Vec<i32>>,
    /// BPE merges in order of rank, two pieces with a space between.
    pub merges: Vec<String>,
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Ends a turn.
    pub eot: Option<u32>,
    /// Ends a message that expects a tool's answer.
    pub eom: Option<u32>,
    /// Stands for what the vocabulary lacks.
    pub unk: Option<u32>,
    /// Fills batches.
    pub pad: Option<u32>,
    /// Separates segments.
    pub sep: Option<u32>,
    /// Whether encoding begins with `bos`.
    pub add_bos: Option<bool>,
    /// Whether encoding ends with `eos`.
    pub add_eos: Option<bool>,
    /// Whether a space is put before the text.
    pub add_space_prefix: Option<bool>,
    /// Whether runs of whitespace become one space.
    pub remove_extra_whitespaces: Option<bool>,
    /// A SentencePiece normaliser's compiled character map.
    pub precompiled_charsmap: Option<Vec<u8>>,
    /// The default chat template, Jinja source.
    pub chat_template: Option<String>,
    /// Templates with a name of their own (`tool_use`, `rag`, …) in file order.
    pub named_chat_templates: Vec<(String, String)>,
}
