//! Guided generation: a source that says what an answer may be, enforced token by token or refused.
#![forbid(unsafe_code)]

mod error;
pub mod json_schema;
pub mod lower;

pub use error::{GrammarError, GrammarErrorKind, GrammarReport, Place, Result};
