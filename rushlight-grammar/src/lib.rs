//! Guided generation: a source that says what an answer may be, enforced token by token or refused.
//!
//! What this crate does not do: it samples nothing, loads no tokenizer and no model, and starts no thread but those that
//! compilations run on. It never drops a part of a source: what it cannot enforce is an error with its place.
//!
//! ```text
//! GrammarSource ──lower──► grammar + guards ──Compiler──► CompiledGrammar ──matcher()──► Matcher
//!  json-schema, json-object,                  (one per     (shared, cached)              (one per
//!  gbnf, lark, regex, choice,                 Vocabulary)                                 sequence)
//!  structural tag
//! ```
//!
//! ```
//! use rushlight_engine::constrain::MaskStatus;
//! use rushlight_grammar::{
//!     CancelToken, Compiler, GrammarSource, Limits, TokenEntry, TokenTable, Vocabulary,
//! };
//!
//! // Ids 0 to 255 are the bytes; 256 ends a text.
//! let mut tokens: Vec<_> = (0..=255u8).map(|b| TokenEntry::Text(vec![b])).collect();
//! tokens.push(TokenEntry::Control("</s>".into()));
//! let vocabulary = Vocabulary::new(TokenTable {
//!     identity: "bytes".into(),
//!     tokens,
//!     stop_ids: vec![256],
//!     logits: 320, // wider than the vocabulary: what is beyond is never legal
//!     encode: None,
//! })?;
//! let compiler = Compiler::new(vocabulary, Limits::default(), Default::default());
//! let source = GrammarSource::Choice(vec!["yes".into(), "yes please".into()]);
//! let grammar = compiler.compile(&source, &CancelToken::new())?;
//!
//! let mut matcher = grammar.matcher();
//! for byte in b"yes" {
//!     matcher.accept(u32::from(*byte))?;
//! }
//! let mut mask = [0u32; 10]; // one bit an id
//! assert_eq!(matcher.mask(&mut mask)?, MaskStatus::Constrained);
//! assert_eq!(mask[256 / 32] & 1, 1); // it may end here …
//! assert_eq!(mask[usize::from(b' ') / 32] & 1, 1); // … or go on
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`json_schema`], [`ebnf`], [`regex`], [`choice`] and [`structural_tag`] document their dialects and what they refuse.
//! - [`Matcher`] is the [`Constraint`](rushlight_engine::constrain::Constraint) of the generation loop: masks, forced text,
//!   rollback, forks. [`AfterMarker`] starts one after a thought.
//! - Rules that no grammar states are [guards](lower::Guard): a token that breaks one is refused and another drawn, or the
//!   sequence goes back to where the value began, a bounded number of times.
//! - [`budget`] closes answers within a number of tokens.
//! - [`Limits`] bound every source; passing one is an error like any other.
//! - Every error is a [`GrammarError`]: a kind, a place (JSON Pointer and keyword, or rule, line and column), a reason. A
//!   [`GrammarReport`] holds every problem of one source.
#![forbid(unsafe_code)]

pub mod budget;
pub mod choice;
mod close;
mod compile;
pub mod ebnf;
mod endless;
mod error;
mod expression;
pub mod json_schema;
mod lark;
mod limits;
pub mod lower;
mod matcher;
pub mod regex;
mod small;
mod source;
mod strings;
pub mod structural_tag;
mod target;
mod thinking;
mod vocabulary;
mod worker;

pub use compile::{CompiledGrammar, Compiler};
pub use error::{GrammarError, GrammarErrorKind, GrammarReport, Place, Result};
pub use limits::Limits;
pub use matcher::Matcher;
pub use rushlight_engine::CancelToken;
pub use source::{GrammarSource, lower};
pub use thinking::AfterMarker;
pub use vocabulary::{Encode, TokenEntry, TokenTable, Vocabulary};
