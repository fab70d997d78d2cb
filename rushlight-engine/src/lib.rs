//! Sequences, plans, the generation loop and sampling.
#![forbid(unsafe_code)]

mod error;
pub mod sample;

pub use error::{EngineError, ErrorKind, Fault, Result};
