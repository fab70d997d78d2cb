//! One conversation's token history and states.

use rushlight_ir::backend::States;

use crate::error::{EngineError, ErrorKind, Result};

/// A conversation's tokens and the states that stand for them.
///
/// Two sequences never share mutable state: a [`fork`](Sequence::fork) shares memory only until one of
/// the two writes.
pub struct Sequence {
    /// All tokens; the states hold the first `states.len()` of them. The last token of an answer was
    /// sampled but not run, so the history may be one longer than the states.
    tokens: Vec<u32>,
    /// Absent while a pass is under way on another thread.
    states: Option<Box<dyn States>>,
}

impl Sequence {
    pub(crate) fn new(states: Box<dyn States>) -> Sequence {
        Sequence {
            tokens: Vec::new(),
            states: Some(states),
        }
    }

    /// The history: prompts and answers, the last token of the last answer included.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Tokens in the history.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no history.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens whose states are held.
    pub fn held(&self) -> usize {
        self.states.as_ref().map_or(0, |states| states.len())
    }

    /// Bytes of the states.
    pub fn bytes(&self) -> u64 {
        self.states.as_ref().map_or(0, |states| states.bytes())
    }

    /// Forgets tokens from `to` on, and says how many are left: less than `to` where windowed states
    /// had already given up what `to` needs.
    pub fn rewind(&mut self, to: usize) -> usize {
        if let Some(states) = &mut self.states {
            let landed = if to < states.len() {
                states.rewind(to)
            } else {
                to
            };
            self.tokens.truncate(landed);
        }
        self.tokens.len()
    }

    /// A second sequence with the same history.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a generation that was leaked, not dropped, still holds the states.
    pub fn fork(&self) -> Result<Sequence> {
        let states = self.states.as_ref().ok_or_else(busy)?.fork();
        Ok(Sequence {
            tokens: self.tokens.clone(),
            states: Some(states),
        })
    }

    pub(crate) fn states(&mut self) -> Result<&mut Box<dyn States>> {
        self.states.as_mut().ok_or_else(busy)
    }

    /// Whether no pass on another thread has the states.
    pub(crate) fn check_free(&self) -> Result<()> {
        self.states.as_ref().map(|_| ()).ok_or_else(busy)
    }

    pub(crate) fn take_states(&mut self) -> Result<Box<dyn States>> {
        self.states.take().ok_or_else(busy)
    }

    pub(crate) fn put_states(&mut self, states: Box<dyn States>) {
        self.states = Some(states);
    }

    /// Forgets the newest `tokens` tokens, and the states of the one before, which the next pass runs
    /// again for its logits.
    pub(crate) fn take_back(&mut self, tokens: usize) {
        let to = self.tokens.len().saturating_sub(tokens);
        let rest = self.tokens.get(..to).map(<[u32]>::to_vec);
        self.rewind(to.saturating_sub(1));
        let held = self.tokens.len();
        if let Some(again) = rest.as_deref().and_then(|rest| rest.get(held..)) {
            self.tokens.extend_from_slice(again);
        }
    }

    pub(crate) fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// The history's tail without states.
    pub(crate) fn unheld(&self) -> &[u32] {
        &self.tokens[self.held().min(self.tokens.len())..]
    }

    pub(crate) fn extend(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence")
            .field("tokens", &self.tokens.len())
            .field("held", &self.held())
            .finish()
    }
}

fn busy() -> EngineError {
    ErrorKind::Busy {
        what: "the sequence",
    }
    .into()
}
