//! Sequences, plans, the generation loop and sampling.
//!
//! **What this crate will not do:** it knows no tokenizer (text comes in through [`TokenText`]), no chat
//! format and no backend (it drives any [`Program`](rushlight_ir::backend::Program)). It never cuts a
//! prompt, clamps an option or drops a stop string: what cannot be honoured is an error.
//!
//! ```text
//!  prompt ──► Run (state machine) ──pass──► step: one submit over all lanes ──► Program
//!               ▲      │ sampler, stop strings, forced tokens                     │
//!               └──────┴───────────────────── rows of logits ◄────────────────────┘
//! ```
//!
//! * A [`Sequence`] owns a conversation's tokens and states. Feed the whole conversation each time:
//!   what it begins with alike is kept, and [`Reuse`] says how much and where it diverged.
//! * A [`Generation`] is an iterator of [`Step`]s; dropping it cancels within one pass. A [`Batch`] runs
//!   several side by side, with the results that each would have alone.
//! * [`plan`] chooses shapes and lookahead by name; [`sample`] and [`stop`] say what a token is and when
//!   an answer ends; [`gate`] and [`load`] are for those who share engines among threads.
//!
//! ```
//! use rushlight_engine::sample::{SampleVocab, SamplingOptions};
//! use rushlight_engine::{Engine, EngineOptions, GenerateOptions};
//! # use rushlight_testkit::scripted::ScriptedProgram;
//! # let program = ScriptedProgram::choosing(8, 64, |history| (history.len() % 8) as u32);
//! // `program` is what a backend compiled.
//! let engine = Engine::new(program, SampleVocab::new(8, 8, &[])?, EngineOptions::default())?;
//! let mut sequence = engine.sequence()?;
//! let options = GenerateOptions {
//!     max_tokens: Some(3),
//!     sampling: SamplingOptions::greedy(),
//!     ..GenerateOptions::default()
//! };
//! let mut generation = engine.generate(&mut sequence, &[1, 2, 3], options)?;
//! for step in generation.by_ref() {
//!     println!("{}", step?.token);
//! }
//! assert_eq!(generation.outcome().usage.completion, 3);
//! # Ok::<(), rushlight_engine::EngineError>(())
//! ```
#![forbid(unsafe_code)]

mod cache;
pub mod constrain;
mod engine;
mod error;
pub mod gate;
mod generate;
mod guided;
pub mod load;
mod metrics;
pub mod plan;
mod request;
mod run;
pub mod sample;
mod sequence;
mod step;
pub mod stop;
mod worker;

pub use cache::Reuse;
pub use engine::{Engine, EngineOptions};
pub use error::{EngineError, ErrorKind, Fault, Result};
pub use generate::{Batch, Generation};
pub use metrics::{Timings, Usage};
pub use request::{CancelToken, GenerateOptions, Outcome, Progress, Step, StopReason, TokenText};
pub use sequence::Sequence;
