//! Sequences, plans, the generation loop and sampling.
#![forbid(unsafe_code)]

mod error;
pub mod plan;
pub mod sample;
pub mod stop;

pub use error::{EngineError, ErrorKind, Fault, Result};
