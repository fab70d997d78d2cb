//! Tokenizers, streaming detokenisation and chat templates: everything between text and token ids.
//!
//! What this crate will **not** do: guess. A tokenizer component, decoder or pre-tokenizer name that it does not
//! implement is an error that lists those it does; a chat template that calls what does not exist here fails with
//! line and column; a template without tools is reported as such ([`Capabilities`]), not worked around. It trains no
//! tokenizers, pads and truncates nothing, and downloads nothing.
//!
//! ```text
//! tokenizer.json ──┐                messages, tools ──► ChatTemplate::render ──► Rendered ──┐
//! GGUF metadata ───┴──► Tokenizer ◄──────────── encode_rendered ────────────────────────────┘
//!                           └──► ids ──► model ──► ids ──► Detokenizer ──► text deltas
//! ```
//!
//! ```
//! use rushlight_text::{GgufVocabulary, Specials, Tokenizer};
//!
//! # fn main() -> Result<(), rushlight_text::TextError> {
//! let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
//!     model: "llama".into(),
//!     tokens: ["<unk>", "<|end|>", "▁", "h", "i", "hi", "▁hi"].map(String::from).to_vec(),
//!     token_types: Some(vec![2, 3, 1, 1, 1, 1, 1]),
//!     scores: Some(vec![0.0, 0.0, -3.0, -3.0, -3.0, -1.0, -2.0]),
//!     unk: Some(0),
//!     eos: Some(1),
//!     ..GgufVocabulary::default()
//! })?;
//! assert_eq!(tokenizer.encode("hi<|end|>", Specials::Recognised)?, [6, 1]);
//! // In content the same characters are text, here of a vocabulary that cannot spell them.
//! assert!(!tokenizer.encode("hi<|end|>", Specials::AsText)?.contains(&1));
//! # Ok(())
//! # }
//! ```
//!
//! # Text is data
//! Message content, tool results and tool definitions cannot become control tokens, whatever they spell:
//! [`Tokenizer::encode`] asks for every text whether it is content ([`Specials::AsText`]), and
//! [`ChatTemplate::render`] says which bytes of a prompt came from content ([`Rendered::literal`]), which
//! [`Tokenizer::encode_rendered`] honours.
//!
//! # Limits
//! Tokenizer files up to 512 MiB, ids below 2²⁴, templates up to 4 MiB, messages nested up to 128 deep, and
//! [`TemplateLimits`] of work and output. Text of any length is encoded in O(n log n).
#![forbid(unsafe_code)]

pub mod markers;

mod detokenize;
mod error;
mod template;
mod tokenizer;

pub use detokenize::{Detokenizer, DetokenizerOptions};
pub use error::{Place, Result, TextError, TextErrorKind};
pub use template::{
    Capabilities, ChatTemplate, Clock, LocalTime, RenderRequest, Rendered, TemplateLimits,
    TemplateSource, TemplateTokens, ToolCallForm,
};
pub use tokenizer::{DeclaredToken, GgufVocabulary, Specials, Tokenizer, TokenizerConfig};
