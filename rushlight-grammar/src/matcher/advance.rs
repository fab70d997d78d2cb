//! Going on and going back: tokens taken, refused and undone.

use rushlight_engine::constrain::Accepted;

use super::{Matcher, internal};
use crate::error::{GrammarError, GrammarErrorKind, Place, Result};
use crate::lower::{GuardRun, GuardStep};
use crate::vocabulary::bit;

impl Matcher {
    /// Whether `token`, not a stop id, may come next.
    pub(super) fn allows(&mut self, token: u32) -> Result<bool> {
        if usize::try_from(token).map_or(true, |id| id >= self.vocabulary().len()) {
            return Ok(false);
        }
        if let Some(next) = &self.next {
            return Ok(bit(&next.mask, token));
        }
        let position = self.tokens.len();
        if self.excluded.contains(&(position, token)) {
            return Ok(false);
        }
        let token = self.vocabulary().in_trie(token);
        if self.vocabulary().trie().token(token).is_empty() {
            return Ok(false);
        }
        self.engine(|parser| parser.validate_token(token))
    }

    /// Takes a token that is known to be legal.
    pub(super) fn consume(&mut self, token: u32) -> Result<()> {
        let in_trie = self.vocabulary().in_trie(token);
        let backtrack = self.engine(|parser| parser.consume_token(in_trie))?;
        if backtrack != 0 {
            let error = internal("the engine asked to backtrack");
            self.failure = Some(error.clone());
            return Err(error);
        }
        let grammar = self.grammar.clone();
        let bytes = grammar.vocabulary().token_bytes(token);
        if bytes.is_empty() {
            self.controls += 1;
        }
        self.text.extend_from_slice(bytes);
        self.tokens.push(token);
        self.ends.push(self.text.len());
        if let Some(budget) = &mut self.budget {
            budget.advance(bytes);
        }
        self.forget_next();
        Ok(())
    }

    /// Undoes `tokens` tokens, at most as many as were accepted.
    pub(super) fn undo(&mut self, tokens: usize) -> Result<()> {
        let keep = self.tokens.len().saturating_sub(tokens);
        if keep == self.tokens.len() {
            return Ok(());
        }
        let in_parser = tokens - usize::from(self.ended);
        if in_parser > 0 {
            self.engine(|parser| {
                parser.rollback(in_parser)?;
                // Its key (row number, lexer state) can name another row after a rollback.
                parser.invalidate_bias_cache();
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            })?;
        }
        self.ended = false;
        let grammar = self.grammar.clone();
        let dropped = self.tokens.get(keep..).unwrap_or(&[]);
        let controls = dropped
            .iter()
            .filter(|&&t| {
                grammar.vocabulary().token_bytes(t).is_empty() && !grammar.vocabulary().is_stop(t)
            })
            .count();
        self.controls -= controls.min(self.controls);
        self.tokens.truncate(keep);
        self.ends.truncate(keep);
        let bytes = self.ends.last().copied().unwrap_or(0);
        self.text.truncate(bytes);
        for guard in &mut self.guards {
            guard.truncate(bytes);
        }
        self.excluded.retain(|&(position, _)| position <= keep);
        if let Some(budget) = &mut self.budget {
            budget.rewind();
        }
        self.forget_next();
        Ok(())
    }

    pub(super) fn forget_next(&mut self) {
        if let Some(next) = self.next.take() {
            self.spare = next.mask;
        }
    }

    /// Shows the token's bytes to the guards. On a refusal they are as before, and the answer is where the value starts.
    pub(super) fn push_guards(&mut self, token: u32) -> Option<usize> {
        if self.guards.is_empty() {
            return None;
        }
        let grammar = self.grammar.clone();
        let bytes = grammar.vocabulary().token_bytes(token);
        let before = self.text.len();
        let refused = push_all(&mut self.guards, bytes);
        if refused.is_some() {
            for guard in &mut self.guards {
                guard.truncate(before);
            }
        }
        refused
    }

    pub(super) fn guards_finish(&self) -> bool {
        self.guards.iter().all(|g| g.finish() == GuardStep::Accept)
    }

    /// Excludes `token` here and goes back as far as needed for something else to be legal, first of all to `value_start`.
    pub(super) fn refuse(&mut self, token: u32, value_start: usize) -> Result<Accepted> {
        self.counts.excluded += 1;
        self.refusals += 1;
        let start = self.tokens.len();
        let firm = self.firm();
        self.excluded.push((start, token));
        self.forget_next();
        loop {
            if self.refusals > self.grammar.limits().rewinds {
                let error = GrammarError::new(
                    GrammarErrorKind::GuardExhausted,
                    format!(
                        "every continuation tried was refused; {} refusals are allowed",
                        self.grammar.limits().rewinds
                    ),
                )
                .with_place(Place::Token { position: start });
                self.failure = Some(error.clone());
                return Err(error);
            }
            let next = self.next()?;
            if next.has_token || next.may_end {
                let undone = start - self.tokens.len();
                self.counts.rewound += u64::try_from(undone).unwrap_or(u64::MAX);
                return Ok(Accepted::Rewound { tokens: undone });
            }
            let here = self.tokens.len();
            // What is firm may have been shown to someone already.
            if here <= firm {
                let error = self.dead_end();
                self.failure = Some(error.clone());
                return Err(error);
            }
            // The token in which the value starts, or just the one before where that is not further back.
            let to = self
                .ends
                .iter()
                .position(|&end| end > value_start)
                .unwrap_or(here)
                .min(here - 1)
                .max(firm);
            let choice = self.tokens.get(to).copied();
            self.undo(here - to)?;
            if let Some(choice) = choice {
                self.excluded.push((to, choice));
            }
            self.refusals += 1;
            self.forget_next();
        }
    }
}

/// Shows `bytes` to every guard; the start of the value that one refuses, or `None`. A refusal leaves the guards anywhere.
pub(crate) fn push_all(guards: &mut [Box<dyn GuardRun>], bytes: &[u8]) -> Option<usize> {
    let mut refused: Option<usize> = None;
    for guard in guards {
        for &byte in bytes {
            if let GuardStep::Reject { value_start } = guard.push(byte) {
                refused = Some(refused.map_or(value_start, |other| other.min(value_start)));
                break;
            }
        }
    }
    refused
}
