//! Local language models for Rust programs, with answers you can rely on.
//!
//! # What it will not do
//! * Degrade silently. An option, a field of a file or a capability is honoured, or the call fails and
//!   says what, where and why.
//! * Fetch anything. A model is a file that you have; opening one touches no network.
//! * Train, convert or quantise models.
//! * Run on a GPU, call tools or see images: not yet, and [`Capabilities`] says so truthfully.
//!
//! # The whole of it
//! ```text
//!              rushlight::load("model.gguf")
//!                           │
//!                      LocalModel  ◄── shared by any number of sessions
//!                           │
//!    prompt ──►  Session ───┴──► events: Prefill, Text, Text, … Finished(Response)
//!                   │
//!               Transcript   instructions, prompts, responses: plain data
//! ```
//!
//! # The least program
//! ```no_run
//! use rushlight::prelude::*;
//!
//! fn main() -> Result<(), SessionError> {
//!     let model = rushlight::load("SmolLM2-135M-Instruct.Q4_1.gguf")?;
//!     let mut session = Session::new(model, Some("Answer in one sentence."))?;
//!     let answer = session.respond_blocking("Why is the sky blue?", &GenerationOptions::default())?;
//!     println!("{}", answer.text);
//!     Ok(())
//! }
//! ```
//! `examples/answer.rs` is this program with the text streamed as it comes, `examples/chat.rs` holds a
//! conversation, and `examples/stream_async.rs` does it without blocking.
//!
//! # The tour
//! **A model** is loaded with [`load`], from a path or by its name in the store, onto the CPU.
//! [`load_with`] takes [`LoadOptions`]: threads, context, the type and strategy of the cache, and
//! tells of progress. A [`LocalModel`] opens its parts to programs that need tokens, logits or
//! log-probabilities instead of a conversation.
//!
//! **A session** ([`Session`]) is one conversation. Its methods come twice: [`respond`] and
//! [`stream`] are async and need no particular runtime, [`respond_blocking`] and [`stream_blocking`]
//! block. What a session has read is kept, so the second turn reads only what is new;
//! [`Response::usage`] has the count, and [`Response::reuse`] says which token diverged where there
//! was a miss. Dropping a stream cancels its turn within one step, and a turn that fails or is
//! cancelled leaves the transcript as it was.
//!
//! **Options** ([`GenerationOptions`]) say how one answer is made: greedy or random, with which
//! filters, temperature, penalties, bias, stop strings and length. What is unset is as the model's
//! makers have it. The same seed gives the same text: cold or with a warm cache, with one thread or
//! many, on one machine.
//!
//! **A grammar** ([`GenerationOptions::grammar`]) says what an answer may be: a JSON Schema, a GBNF or
//! Lark grammar, a pattern, a choice, or tags in free text ([`GrammarSource`]). Every token is chosen
//! under it, with all other options in force; a source that cannot be enforced as a whole is refused
//! with the place and the reason. The [`grammar`] crate says how each part is enforced.
//!
//! **A transcript** ([`Transcript`]) is the conversation as data. [`Transcript::to_json`] saves it and
//! [`Session::resume`] goes on with it.
//!
//! **Text is data.** What a prompt spells can never become a control token: `<|im_end|>` in a
//! message is ten characters.
//!
//! **Base models** have no chat template. A session with one fails and says so; [`Completion`] goes
//! on with raw text.
//!
//! **Errors** ([`SessionError`]) have a [kind](SessionErrorKind) to match on, one sentence to show,
//! and say [whose fault](Fault) they are: the request's, the file's, or ours.
//!
//! # Limits
//! Models: GGUF files and Hugging Face directories with safetensors, of the architectures that
//! [`rushlight_ir::arch::known`] lists. A conversation may be as long as the model's
//! context; past it, a turn fails with both counts, and nothing is cut unasked. A file is never
//! trusted: what is wrong with it is an error with the place, not a crash.
//!
//! # Underneath
//! [`session`] → [`engine`] (the loop, sampling, prefix reuse) → [`ir`] (graphs and the backend
//! traits) → [`cpu`]; [`text`] has tokenizers and templates, [`asset`] reads files. Another backend
//! takes the place of [`cpu::CpuBackend`] in [`LocalModel::load`].
//!
//! [`respond`]: Session::respond
//! [`stream`]: Session::stream
//! [`respond_blocking`]: Session::respond_blocking
//! [`stream_blocking`]: Session::stream_blocking

#![forbid(unsafe_code)]

use std::sync::Arc;

pub use rushlight_asset as asset;
pub use rushlight_cpu as cpu;
pub use rushlight_engine as engine;
pub use rushlight_grammar as grammar;
pub use rushlight_ir as ir;
pub use rushlight_session as session;
pub use rushlight_text as text;

pub use rushlight_session::{
    Availability, CancelToken, Capabilities, Completion, Entry, Event, Events, Executor, Fault,
    Filters, GenerationOptions, GrammarSource, LanguageModel, LoadOptions, LocalModel, Models,
    Request, Response, Reuse, SamplingMode, Segment, Session, SessionError, SessionErrorKind,
    StopReason, Summary, Timings, Transcript, Usage,
};

/// What most programs need.
pub mod prelude {
    pub use rushlight_session::{
        Event, GenerationOptions, GrammarSource, LanguageModel, LoadOptions, LocalModel, Response,
        SamplingMode, Session, SessionError, StopReason, Transcript,
    };
}

/// Loads a model onto the CPU: a path, or the name of a model in the store
/// (`$RUSHLIGHT_HOME/models`, else `rushlight/models` in the user's data folder).
///
/// # Errors
/// A [`SessionError`] that says what is wrong with the name, the file or the machine.
pub fn load(model: &str) -> Result<Arc<LocalModel>, SessionError> {
    load_with(model, &LoadOptions::default(), None)
}

/// [`load`] with options, and with progress told as bytes done and bytes in all.
///
/// # Errors
/// As [`load`], and an option that is out of its range.
pub fn load_with(
    model: &str,
    options: &LoadOptions,
    progress: Option<&dyn Fn(u64, u64)>,
) -> Result<Arc<LocalModel>, SessionError> {
    let backend = cpu::CpuBackend::new();
    // Loading checks them again, but after the name, and the options are the caller's.
    options.check(&backend)?;
    let path = asset::Store::locate(model)?;
    LocalModel::load(&path, &backend, options, progress)
}
