//! What every front end lowers to: a grammar for the mask engine, and the guards beside it.

use std::fmt;
use std::sync::Arc;

use llguidance::api::GrammarInit;

use crate::strings::BoundedString;

/// A source after lowering: a context-free part, which masks enforce, and guards for the rest.
#[derive(Clone)]
pub struct Lowered {
    /// The grammar in the mask engine's own form.
    pub grammar: GrammarInit,
    /// Rules that no context-free grammar can state, judged as text grows. Empty where the grammar says it all.
    pub guards: Vec<Arc<dyn Guard>>,
    /// A short text that the grammar and the guards accept: the reserve that a token budget keeps back.
    pub minimal: Option<String>,
    /// Texts that end free text, such as a tag's end: what the search for a way to the end tries where bytes lead nowhere.
    pub closers: Vec<String>,
    /// Its lexemes are its author's: one may go on with the text that has to follow it.
    pub(crate) may_be_endless: bool,
    /// Strings of bounded length, where the whole text is JSON.
    pub(crate) strings: Vec<BoundedString>,
}

impl From<GrammarInit> for Lowered {
    fn from(grammar: GrammarInit) -> Self {
        Self {
            grammar,
            guards: Vec::new(),
            minimal: None,
            closers: Vec::new(),
            may_be_endless: false,
            strings: Vec::new(),
        }
    }
}

impl fmt::Debug for Lowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lowered")
            .field("guards", &self.guards.len())
            .field("minimal", &self.minimal)
            .finish_non_exhaustive()
    }
}

/// A rule beside the grammar: a `uniqueItems`, a `contains`, a general `not`.
///
/// A guard is immutable and shared; [`Guard::begin`] starts one run per sequence.
pub trait Guard: Send + Sync {
    /// A run at the start of the guarded text (the whole answer for a schema; the tag's content for a tag).
    fn begin(&self) -> Box<dyn GuardRun>;

    /// What the guard enforces, for explanations: the JSON Pointer and keyword.
    fn describe(&self) -> String;
}

/// One sequence's progress through one guard.
///
/// A run sees only text that the grammar has already allowed, a byte at a time.
pub trait GuardRun: Send {
    /// Takes one more byte. [`GuardStep::Reject`] leaves the run as it was before the byte.
    fn push(&mut self, byte: u8) -> GuardStep;

    /// Whether one of `bytes`, said next, might be refused. A run that can tell at little cost spares its caller the trial.
    fn may_refuse(&self, bytes: &[u8]) -> bool {
        let _ = bytes;
        true
    }

    /// Whether the text may end here: judges values that only the end closes, such as a number that is the whole answer.
    fn finish(&self) -> GuardStep {
        GuardStep::Accept
    }

    /// Where the outermost value starts that is not judged to its end yet, as an offset in bytes from the start of the guarded
    /// text; `None` while none is open. What stands before it is firm. Unless it is told, everything is open.
    fn open_from(&self) -> Option<usize> {
        Some(0)
    }

    /// Goes back to the state after the first `len` bytes; `len` is at most the bytes pushed so far.
    fn truncate(&mut self, len: usize);

    /// An independent copy.
    fn fork(&self) -> Box<dyn GuardRun>;
}

/// What a guard says of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardStep {
    /// Nothing to object to.
    Accept,
    /// The byte would close a value wrongly.
    Reject {
        /// The offset, in bytes from the start of the guarded text, where that value starts: where to rewind to when
        /// nothing else may follow.
        value_start: usize,
    },
}
