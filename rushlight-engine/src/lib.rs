//! Sequences, plans, the generation loop and sampling.
#![forbid(unsafe_code)]

mod cache;
mod engine;
mod error;
pub mod gate;
mod generate;
pub mod load;
mod metrics;
pub mod plan;
mod request;
mod run;
pub mod sample;
mod sequence;
mod step;
pub mod stop;

pub use cache::Reuse;
pub use engine::{Engine, EngineOptions};
pub use error::{EngineError, ErrorKind, Fault, Result};
pub use generate::{Batch, Generation};
pub use metrics::{Timings, Usage};
pub use request::{CancelToken, GenerateOptions, Outcome, Progress, Step, StopReason, TokenText};
pub use sequence::Sequence;
