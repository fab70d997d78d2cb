//! Guided generation: a source that says what an answer may be, enforced token by token or refused.
#![forbid(unsafe_code)]

pub mod budget;
pub mod choice;
mod close;
mod compile;
pub mod ebnf;
mod error;
pub mod json_schema;
mod limits;
pub mod lower;
mod matcher;
pub mod regex;
mod source;
pub mod structural_tag;
mod target;
mod thinking;
mod vocabulary;

pub use compile::{CompiledGrammar, Compiler};
pub use error::{GrammarError, GrammarErrorKind, GrammarReport, Place, Result};
pub use limits::{CompileCancel, Limits};
pub use matcher::Matcher;
pub use source::{GrammarSource, lower};
pub use thinking::AfterMarker;
pub use vocabulary::{Encode, TokenEntry, TokenTable, Vocabulary};
