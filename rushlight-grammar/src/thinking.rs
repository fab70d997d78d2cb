//! Thinking first: no constraint until the model's end-of-thought token, then a grammar.

use rushlight_engine::constrain::{
    Accepted, Constraint, ConstraintCounts, ConstraintError, MaskStatus,
};

use crate::budget::zones;
use crate::error::{GrammarError, GrammarErrorKind, Place, Result};
use crate::matcher::Matcher;
use crate::vocabulary::{clear_bit, set_bit};

/// A matcher that begins after a marker token.
///
/// Before the marker every id of the vocabulary may be sampled but the stop ids and the ids that spell nothing: a thought that
/// stops the answer would leave none. The marker is a control id, so no text can spell it. With a budget, the marker is the only
/// legal token once as many tokens are left as the grammar's soft zone has.
pub struct AfterMarker {
    inner: Matcher,
    marker: u32,
    // Tokens before the marker, and with it once it came.
    thought: usize,
    began: bool,
    // The position at which the budget is spent, and the position at which the thought must end.
    budget: Option<(usize, usize)>,
}

impl AfterMarker {
    /// `inner` after `marker`.
    ///
    /// # Errors
    /// [`GrammarErrorKind::Vocabulary`] where the marker is no control token of the vocabulary, or a stop id.
    pub fn new(inner: Matcher, marker: u32) -> Result<Self> {
        let vocabulary = inner.grammar().vocabulary();
        if !vocabulary.is_control(marker) || vocabulary.is_stop(marker) {
            return Err(GrammarError::new(
                GrammarErrorKind::Vocabulary,
                format!(
                    "token {marker} cannot end a thought: it is no control token, or a stop id"
                ),
            ));
        }
        Ok(Self {
            inner,
            marker,
            thought: 0,
            began: false,
            budget: None,
        })
    }

    /// Whether the marker came.
    pub fn has_begun(&self) -> bool {
        self.began
    }

    /// The matcher after the marker.
    pub fn inner(&self) -> &Matcher {
        &self.inner
    }

    fn must_end(&self) -> bool {
        self.budget.is_some_and(|(_, at)| self.thought >= at)
    }
}

impl Constraint for AfterMarker {
    fn vocab(&self) -> usize {
        Constraint::vocab(&self.inner)
    }

    fn mask(&mut self, mask: &mut [u32]) -> Result<MaskStatus, ConstraintError> {
        if self.began {
            return Ok(self.inner.mask(mask)?);
        }
        let words = self.vocab().div_ceil(32);
        if mask.len() != words {
            let error = GrammarError::new(
                GrammarErrorKind::InvalidOption,
                format!("the mask has {} words; it must have {words}", mask.len()),
            );
            return Err(error.into());
        }
        mask.fill(0);
        if self.must_end() {
            set_bit(mask, self.marker);
            return Ok(MaskStatus::Constrained);
        }
        let vocabulary = self.inner.grammar().vocabulary();
        for id in (0u32..).take(vocabulary.len()) {
            if vocabulary.is_used(id) {
                set_bit(mask, id);
            }
        }
        for &id in vocabulary.stop_ids() {
            clear_bit(mask, id);
        }
        Ok(MaskStatus::Constrained)
    }

    fn accept(&mut self, token: u32) -> Result<Accepted, ConstraintError> {
        if self.began {
            return Ok(self.inner.accept(token)?);
        }
        let vocabulary = self.inner.grammar().vocabulary();
        let late = self.must_end() && token != self.marker;
        if late || vocabulary.is_stop(token) || !vocabulary.is_used(token) {
            let error = GrammarError::new(
                GrammarErrorKind::IllegalToken,
                format!("token {token} is not legal in a thought"),
            )
            .with_place(Place::Token {
                position: self.thought,
            });
            return Err(error.into());
        }
        self.thought += 1;
        if token == self.marker {
            self.began = true;
            if let Some((end, _)) = self.budget {
                self.inner.budget(end.saturating_sub(self.thought))?;
            }
        }
        Ok(Accepted::Taken)
    }

    fn forced(&mut self) -> Result<Vec<u32>, ConstraintError> {
        if self.began {
            return Ok(self.inner.forced()?);
        }
        Ok(match self.must_end() {
            true => vec![self.marker],
            false => Vec::new(),
        })
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        let inside = self.inner.tokens().len();
        let thought = tokens.saturating_sub(inside);
        if thought > self.thought {
            let error = GrammarError::new(
                GrammarErrorKind::InvalidOption,
                format!(
                    "cannot undo {tokens} tokens: {} were accepted",
                    self.accepted()
                ),
            );
            return Err(error.into());
        }
        self.inner.rollback(tokens.min(inside))?;
        if thought > 0 {
            // The marker is the newest token of the thought.
            self.began = false;
            self.thought -= thought;
        }
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Constraint>, ConstraintError> {
        Ok(Box::new(Self {
            inner: self.inner.fork()?,
            marker: self.marker,
            thought: self.thought,
            began: self.began,
            budget: self.budget,
        }))
    }

    fn may_end(&mut self) -> Result<bool, ConstraintError> {
        Ok(self.began && self.inner.may_end()?)
    }

    fn accepted(&self) -> usize {
        self.thought + self.inner.tokens().len()
    }

    fn firm(&self) -> usize {
        self.thought + self.inner.firm()
    }

    fn budget(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        if self.began {
            return Ok(self.inner.budget(tokens)?);
        }
        let grammar = self.inner.grammar();
        let reserve = grammar.reserve();
        let needed = grammar.shortest().map_or(0, |_| reserve);
        // The marker takes one.
        let Some(answer) = tokens.checked_sub(1).filter(|&left| left >= needed) else {
            let error = GrammarError::new(
                GrammarErrorKind::Budget,
                format!(
                    "a thought's end and the shortest answer found have {} tokens, and the limit on tokens leaves {tokens}",
                    needed + 1
                ),
            );
            return Err(error.into());
        };
        let (soft, _) = zones(tokens, reserve);
        let end = self.thought.saturating_add(tokens);
        self.budget = Some((end, end.saturating_sub(soft.min(answer) + 1)));
        Ok(())
    }

    fn counts(&self) -> ConstraintCounts {
        self.inner.counts()
    }
}

impl std::fmt::Debug for AfterMarker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AfterMarker")
            .field("marker", &self.marker)
            .field("began", &self.began)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
