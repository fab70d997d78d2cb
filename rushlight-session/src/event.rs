//! What comes of a turn: events while it runs, a response at its end.

use std::fmt;
use std::sync::Arc;

use rushlight_engine::constrain::ConstraintCounts;
use rushlight_engine::{Reuse, StopReason, Timings, Usage};

/// What a stream yields.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one comes once a turn, and a box would be in every caller's way"
)]
pub enum Event {
    /// Prompt tokens were read.
    Prefill {
        /// Tokens read so far, those kept from before not counted.
        done: usize,
        /// Tokens to read.
        total: usize,
    },
    /// The next piece of the answer; the pieces together are the answer.
    Text(String),
    /// The answer is whole, and the turn is part of the transcript, unless the answer is empty.
    /// Always last.
    Finished(Response),
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Response {
    /// The text, without the stop string or stop token that ended it.
    pub text: String,
    /// The ids of its tokens, the stop token included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub stop: StopReason,
    /// Tokens read, kept and made.
    pub usage: Usage,
    /// How the prompt compared with what had been read before, and where they diverged.
    pub reuse: Reuse,
    /// How long it took.
    pub timings: Timings,
    /// The seed that its draws came from: the request's, or the one drawn for it.
    pub seed: Option<u64>,
    /// What the grammar did, where there was one.
    pub constraint: Option<ConstraintCounts>,
}

impl Response {
    /// A response of which only the text is known; set the other fields where they are.
    pub fn new(text: impl Into<String>, stop: StopReason) -> Response {
        Response {
            text: text.into(),
            tokens: Vec::new(),
            stop,
            usage: Usage::default(),
            reuse: Reuse::default(),
            timings: Timings::default(),
            seed: None,
            constraint: None,
        }
    }
}

/// Where an [`Executor`](crate::Executor) tells of its progress. Clones lead to the same place.
#[derive(Clone)]
pub struct Events(Arc<dyn Fn(Event) + Send + Sync>);

impl Events {
    /// Events that are given to `receive`, on whatever thread they arise.
    pub fn new(receive: impl Fn(Event) + Send + Sync + 'static) -> Events {
        Events(Arc::new(receive))
    }

    /// Events that nobody wants.
    pub fn ignored() -> Events {
        Events::new(|_| {})
    }

    /// Tells that `done` of `total` prompt tokens were read.
    pub fn prefill(&self, done: usize, total: usize) {
        (self.0)(Event::Prefill { done, total });
    }

    /// Gives the next piece of the answer.
    pub fn text(&self, piece: impl Into<String>) {
        (self.0)(Event::Text(piece.into()));
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}
