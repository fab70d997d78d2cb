//! Going on and going back: tokens taken, refused and undone.

use rushlight_engine::constrain::Accepted;

use super::{Matcher, internal};
use crate::close;
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
            return Ok(bit(&next.mask, self.vocabulary().in_trie(token)));
        }
        let position = self.tokens.len();
        let grammar = self.grammar.clone();
        if self.is_doomed(grammar.vocabulary().token_bytes(token)) {
            return Ok(false);
        }
        let token = self.vocabulary().in_trie(token);
        if self.excluded.contains(&(position, token)) {
            return Ok(false);
        }
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
        self.text.extend_from_slice(bytes);
        self.tokens.push(token);
        self.ends.push(self.text.len());
        if !grammar.strings().is_empty() {
            let mut place = self.places.last().copied().unwrap_or_default();
            bytes.iter().for_each(|&byte| place.push(byte));
            self.places.push(place);
        }
        if let Some(budget) = &mut self.budget {
            let count = |text: &[u8]| close::token_count(grammar.vocabulary(), text);
            budget.advance(self.tokens.len() - 1, bytes, count);
        }
        self.next = None;
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
        self.tokens.truncate(keep);
        self.ends.truncate(keep);
        self.places.truncate(keep);
        self.string_mask = None;
        let bytes = self.ends.last().copied().unwrap_or(0);
        self.text.truncate(bytes);
        for guard in &mut self.guards {
            guard.truncate(bytes);
        }
        self.excluded.retain(|&(position, _)| position <= keep);
        if let Some((_, budget)) = self.given_up.take_if(|&mut (at, _)| keep <= at) {
            self.budget = Some(budget);
        }
        if let Some(budget) = &mut self.budget {
            budget.rewind(keep);
        }
        self.next = None;
        Ok(())
    }

    /// Shows the token's bytes to the guards. On a refusal they are as before, and the answer is the text that no answer begins
    /// with: what was said, and the token's bytes up to the one that was refused.
    pub(super) fn push_guards(&mut self, token: u32) -> Option<Vec<u8>> {
        if self.guards.is_empty() {
            return None;
        }
        let grammar = self.grammar.clone();
        let bytes = grammar.vocabulary().token_bytes(token);
        let before = self.text.len();
        let refused = push_all(&mut self.guards, bytes)?;
        for guard in &mut self.guards {
            guard.truncate(before);
        }
        let mut text = self.text.clone();
        text.extend_from_slice(bytes.get(..=refused).unwrap_or(bytes));
        Some(text)
    }

    pub(super) fn guards_finish(&self) -> bool {
        self.guards.iter().all(|g| g.finish() == GuardStep::Accept)
    }

    /// Excludes `token` here, for want of room behind it; false, and nothing is changed, where nothing else is legal.
    pub(super) fn refuse_token(&mut self, token: u32) -> Result<bool> {
        self.check_alive()?;
        let excluded = (self.tokens.len(), self.vocabulary().in_trie(token));
        self.excluded.push(excluded);
        self.next = None;
        let next = self.next()?;
        let is_refused = next.has_token || next.may_end;
        if is_refused {
            self.counts.excluded += 1;
        } else {
            self.excluded.pop();
            self.next = None;
        }
        Ok(is_refused)
    }

    /// Excludes every answer that begins with `text`, however it is spelled, and goes back as far as needed for something else to
    /// be legal.
    pub(super) fn refuse_text(&mut self, mut text: Vec<u8>) -> Result<Accepted> {
        self.check_alive()?;
        self.counts.excluded += 1;
        let start = self.tokens.len();
        let firm = self.firm();
        loop {
            if self.refusals >= self.grammar.limits().rewinds {
                return Err(self.exhausted(start, "every continuation tried was refused"));
            }
            self.refusals += 1;
            // The bytes behind the last choice follow from it, so what is wrong with them is wrong with that choice.
            let Some(choice) = self.last_choice(firm, &text)? else {
                // What is firm may have been shown to someone already.
                return Err(self.exhausted(start, "nothing else is left to say"));
            };
            text.truncate(choice + 1);
            let keep = self.ends.partition_point(|&end| end <= choice);
            self.doomed.push(text);
            self.undo(self.tokens.len().saturating_sub(keep))?;
            self.next = None;
            let next = self.next()?;
            if next.has_token || next.may_end {
                let undone = start.saturating_sub(self.tokens.len());
                self.counts.rewound += u64::try_from(undone).unwrap_or(u64::MAX);
                return Ok(Accepted::Rewound { tokens: undone });
            }
            text = self.text.clone();
        }
    }

    /// The last byte of `text` at which the grammar leaves a choice, at or behind the firm tokens.
    fn last_choice(&mut self, firm: usize, text: &[u8]) -> Result<Option<usize>> {
        let grammar = self.grammar.clone();
        let vocabulary = grammar.vocabulary();
        let back = self.tokens.len().saturating_sub(firm);
        let mut at = match firm.checked_sub(1) {
            None => 0,
            Some(last) => self.ends.get(last).copied().unwrap_or(0),
        };
        self.engine(|parser| {
            let mut walk = parser.deep_clone();
            walk.rollback(back).map_err(|e| e.to_string())?;
            walk.invalidate_bias_cache();
            let mut choice = None;
            while at < text.len() {
                if grammar.is_endless(&mut walk) {
                    return Ok(choice);
                }
                let forced = walk.force_bytes().len();
                if forced == 0 {
                    choice = Some(at);
                }
                for &byte in text.iter().skip(at).take(forced.max(1)) {
                    let Some(token) = vocabulary.byte_token(byte) else {
                        return Ok(choice);
                    };
                    if !walk.validate_token(token).map_err(|e| e.to_string())? {
                        return Ok(choice);
                    }
                    walk.consume_token(token).map_err(|e| e.to_string())?;
                    at += 1;
                }
            }
            Ok::<_, String>(choice)
        })
    }

    /// How many of `tokens`, one after another, the guards have nothing against.
    pub(super) fn unrefused(&self, tokens: &[u32]) -> usize {
        if self.guards.is_empty() && self.doomed.is_empty() {
            return tokens.len();
        }
        let mut guards: Vec<_> = self.guards.iter().map(|guard| guard.fork()).collect();
        let mut ahead = Vec::new();
        for (count, &token) in tokens.iter().enumerate() {
            let bytes = self.grammar.vocabulary().token_bytes(token);
            ahead.extend_from_slice(bytes);
            if push_all(&mut guards, bytes).is_some() || self.is_doomed(&ahead) {
                return count;
            }
        }
        tokens.len()
    }

    /// Whether an answer may go on with `bytes` here, for all that is known to be refused.
    pub(super) fn is_doomed(&self, bytes: &[u8]) -> bool {
        self.doomed.iter().any(|doomed| {
            doomed
                .strip_prefix(self.text.as_slice())
                .is_some_and(|rest| bytes.starts_with(rest))
        })
    }

    fn exhausted(&mut self, position: usize, reason: &str) -> GrammarError {
        let error = GrammarError::new(
            GrammarErrorKind::GuardExhausted,
            format!(
                "{reason}; {} of {} refusals were needed",
                self.refusals,
                self.grammar.limits().rewinds
            ),
        )
        .with_place(Place::Token { position });
        self.failure = Some(error.clone());
        error
    }
}

/// Shows `bytes` to every guard; the index of the first byte that one refuses, or `None`. A refusal leaves the guards anywhere.
pub(crate) fn push_all(guards: &mut [Box<dyn GuardRun>], bytes: &[u8]) -> Option<usize> {
    let mut refused: Option<usize> = None;
    for guard in guards {
        for (at, &byte) in bytes.iter().enumerate() {
            if let GuardStep::Reject { .. } = guard.push(byte) {
                refused = Some(refused.map_or(at, |other| other.min(at)));
                break;
            }
        }
    }
    refused
}
