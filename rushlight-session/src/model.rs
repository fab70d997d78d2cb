//! What a session talks to: a language model, and the executor it makes for one conversation.

use std::fmt;
use std::sync::Arc;

use rushlight_engine::CancelToken;

use crate::error::SessionError;
use crate::event::{Events, Response};
use crate::options::GenerationOptions;
use crate::transcript::Transcript;

/// A model that conversations can be held with, wherever it runs.
///
/// Local and remote models implement the same two traits; a [`Session`](crate::Session) knows no
/// other.
pub trait LanguageModel: Send + Sync {
    /// What this model, as it stands here, can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether it could answer now.
    fn availability(&self) -> Availability;

    /// Makes the executor of one conversation. Two executors share no mutable state.
    ///
    /// # Errors
    /// What the executor needs (memory, a connection) cannot be had.
    fn executor(self: Arc<Self>) -> Result<Box<dyn Executor>, SessionError>;
}

/// Runs the turns of one conversation.
///
/// The transcript comes whole with every request, so an executor holds nothing that cannot be made
/// again from it: what it keeps (states of the tokens already read) makes the next turn cheaper and
/// never changes an answer.
pub trait Executor: Send {
    /// Answers the transcript, whose last entry is the prompt. Text and progress go to `events` as
    /// they come; the whole answer is returned.
    ///
    /// # Errors
    /// [`Cancelled`](crate::SessionErrorKind::Cancelled) where `cancel` ended it, within one step;
    /// else why it failed. The executor can be used again after either.
    fn respond(
        &mut self,
        request: Request<'_>,
        events: &Events,
        cancel: &CancelToken,
    ) -> Result<Response, SessionError>;

    /// Does ahead what the next [`respond`](Executor::respond) to `transcript` and a prompt would
    /// have to do before it sees the prompt.
    ///
    /// # Errors
    /// Those that `respond` would meet there.
    fn prewarm(&mut self, transcript: &Transcript) -> Result<(), SessionError>;

    /// A second executor that has read what this one has.
    ///
    /// # Errors
    /// As [`LanguageModel::executor`].
    fn fork(&self) -> Result<Box<dyn Executor>, SessionError>;
}

/// One turn, as an executor is asked for it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The conversation, the prompt to answer last.
    pub transcript: &'a Transcript,
    /// How to answer.
    pub options: &'a GenerationOptions,
}

impl<'a> Request<'a> {
    /// A request to answer the last prompt of `transcript`.
    pub fn new(transcript: &'a Transcript, options: &'a GenerationOptions) -> Request<'a> {
        Request {
            transcript,
            options,
        }
    }
}

/// What a model can do, of what not every model can. Text in, text out goes without saying.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Answers of a guaranteed shape.
    pub guided_generation: bool,
    /// Calls of tools.
    pub tool_calling: bool,
    /// Thoughts apart from the answer.
    pub reasoning: bool,
    /// Images in prompts.
    pub vision: bool,
}

/// Whether a model could answer now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Everything it needs is there.
    Available,
    /// What it needs is on its way. A [`LocalModel`](crate::LocalModel) is never in this state:
    /// opening a model fetches nothing.
    Downloading,
    /// It cannot answer, for this reason.
    Unavailable(String),
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Availability::Available => f.write_str("available"),
            Availability::Downloading => f.write_str("downloading"),
            Availability::Unavailable(reason) => write!(f, "unavailable: {reason}"),
        }
    }
}
