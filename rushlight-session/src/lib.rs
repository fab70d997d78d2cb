//! Sessions: conversations with a language model, and local models to hold them with.
//!
//! # What this crate will not do
//! It picks no backend and finds no model by name: the `rushlight` crate does. It brings no async
//! runtime and needs none. It does not cut a conversation that has grown too long: that is an error
//! with both counts. And it does not yet call tools or keep thoughts apart: [`Capabilities`] says so.
//!
//! # The parts
//! ```text
//!  Session ──Request──► Executor ──────────────► Response
//!     │                    │   (LocalModel's)       ▲
//!     ▼                    ▼                        │
//!  Transcript      template → tokenizer → Engine → text
//! ```
//! A [`Session`] is one conversation: it owns the [`Transcript`], and a turn joins it whole or not at
//! all. It talks to a [`LanguageModel`] through the [`Executor`] that the model makes for it; both are
//! traits, so that a model elsewhere can stand where a [`LocalModel`] does. The executor of a local
//! model keeps what it has read, so that a turn reads only what is new:
//! [`Response::usage`] and [`Response::reuse`] tell how much that was.
//!
//! ```no_run
//! # fn run(model: std::sync::Arc<rushlight_session::LocalModel>) -> Result<(), rushlight_session::SessionError> {
//! use rushlight_session::{Event, GenerationOptions, Session};
//!
//! let mut session = Session::new(model, Some("Answer in one sentence."))?;
//! for event in session.stream_blocking("Why is the sky blue?", &GenerationOptions::default())? {
//!     match event? {
//!         Event::Text(piece) => print!("{piece}"),
//!         Event::Finished(response) => println!("\n{:?}", response.usage),
//!         _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! An answer of a guaranteed shape is one option: [`GenerationOptions::grammar`] takes a JSON Schema, a
//! grammar, a pattern or a choice, and the turn fails where the source cannot be enforced.
//!
//! [`Completion`] goes on with raw text for models without a chat template. [`Models`] shares loaded
//! models by path.

#![forbid(unsafe_code)]

mod error;
mod event;
mod local;
mod model;
mod models;
mod options;
mod session;
mod stream;
mod transcript;

pub use error::{SessionError, SessionErrorKind};
pub use event::{Event, Events, Response};
pub use local::{Completion, LoadOptions, LocalModel, Summary, Text, vocabulary};
pub use model::{Availability, Capabilities, Executor, LanguageModel, Request};
pub use models::Models;
pub use options::{Filters, GenerationOptions, SamplingMode};
pub use rushlight_engine::constrain::ConstraintCounts;
pub use rushlight_engine::{CancelToken, Fault, Reuse, StopReason, Timings, Usage};
pub use rushlight_grammar::GrammarSource;
pub use session::Session;
pub use stream::{BlockingStream, ResponseStream};
pub use transcript::{Entry, Segment, Transcript};
