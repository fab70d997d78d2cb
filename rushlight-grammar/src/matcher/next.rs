//! What may come next: the engine's mask, without what guards and the token budget exclude.

use llguidance::api::StopReason;

use super::{Matcher, Next, internal};
use crate::budget::{Budget, Zone};
use crate::close;
use crate::error::Result;
use crate::vocabulary::{bit, clear_bit, few_set_tokens, set_bit, set_tokens};

/// A guarded mask with at most this many tokens is checked token by token, so that a choice which a guard has narrowed to
/// nothing is found before it is sampled.
const GUARDED_CHOICES: usize = 64;
/// Masks of texts up to this length are kept for the next sequence of the same grammar.
const MEMO_TEXT_BYTES: usize = 96;

impl Matcher {
    /// What may come next, computed once a position.
    pub(super) fn next(&mut self) -> Result<&Next> {
        if self.next.is_none() {
            let made = self.compute_next()?;
            self.next = Some(made);
        }
        match &self.next {
            Some(next) => Ok(next),
            None => Err(internal("the mask was lost")),
        }
    }

    pub(super) fn compute_next(&mut self) -> Result<Next> {
        let grammar = self.grammar.clone();
        let memo =
            (self.controls == 0 && self.text.len() <= MEMO_TEXT_BYTES).then(|| grammar.memo());
        let (mut mask, mut may_end) = match memo.and_then(|memo| memo.get(&self.text)) {
            Some(known) => known,
            None => {
                let made = self.compute_mask()?;
                if let Some(memo) = memo {
                    memo.keep(&self.text, &made);
                }
                made
            }
        };
        let position = self.tokens.len();
        for &(at, token) in &self.excluded {
            if at == position {
                clear_bit(&mut mask, token);
            }
        }
        if !self.doomed.is_empty() {
            self.clear_doomed(&mut mask);
        }
        if !self.guards.is_empty() {
            may_end &= self.guards_finish();
            self.clear_guarded(&mut mask);
        }
        let has_token = mask.iter().any(|&word| word != 0);
        Ok(Next {
            mask,
            may_end,
            has_token,
        })
    }

    /// The engine's own mask, and whether the text may end.
    fn compute_mask(&mut self) -> Result<(Vec<u32>, bool)> {
        let grammar = self.grammar.clone();
        let vocabulary = grammar.vocabulary();
        self.engine_at_start(|parser| {
            if parser.stop_reason() == StopReason::NoExtensionBias {
                return Ok((Vec::new(), false));
            }
            match parser.compute_mask() {
                Ok(set) => {
                    let mut mask = Vec::from(set);
                    let may_end = bit(&mask, vocabulary.end());
                    vocabulary.clear_private(&mut mask);
                    Ok((mask, may_end))
                }
                // Nothing may follow: for this crate a state like any other, which a rollback leaves.
                Err(_) if parser.stop_reason() == StopReason::NoExtensionBias => {
                    Ok((Vec::new(), false))
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Clears the tokens that lead to what was refused before.
    fn clear_doomed(&self, mask: &mut [u32]) {
        let vocabulary = self.grammar.vocabulary();
        for doomed in &self.doomed {
            let Some(rest) = doomed.strip_prefix(self.text.as_slice()) else {
                continue;
            };
            let led: Vec<u32> = set_tokens(mask)
                .filter(|&token| vocabulary.token_bytes(token).starts_with(rest))
                .collect();
            led.into_iter().for_each(|token| clear_bit(mask, token));
        }
    }

    /// Clears the tokens that a guard would refuse, where few enough are set to try them all.
    pub(super) fn clear_guarded(&mut self, mask: &mut [u32]) {
        let Some(choices) = few_set_tokens(mask, GUARDED_CHOICES) else {
            return;
        };
        let grammar = self.grammar.clone();
        for token in choices {
            let bytes = grammar.vocabulary().token_bytes(token);
            if !self.guards.iter().any(|guard| guard.may_refuse(bytes)) {
                continue;
            }
            let before = self.text.len();
            if self.push_guards(token).is_some() {
                clear_bit(mask, token);
            } else {
                for guard in &mut self.guards {
                    guard.truncate(before);
                }
            }
        }
    }

    /// In the hard zone, keeps only the tokens on the way to the end.
    pub(super) fn narrow_to_budget(&mut self) -> Result<()> {
        let Some(budget) = &self.budget else {
            return Ok(());
        };
        if budget.zone(self.tokens.len()) != Zone::Hard {
            return Ok(());
        }
        let left = budget.left(self.tokens.len());
        let Some(way) = self.completion()? else {
            return Ok(());
        };
        self.next()?;
        let grammar = self.grammar.clone();
        let vocabulary = grammar.vocabulary();
        let Some(next) = &mut self.next else {
            return Ok(());
        };
        if way.is_empty() {
            // It may end, so it does.
            next.mask.fill(0);
            next.has_token = false;
            return Ok(());
        }
        let mut kept = vec![0; next.mask.len()];
        let mut has_token = false;
        for token in close::tokens_along(vocabulary, &way, left) {
            let token = vocabulary.in_trie(token);
            if bit(&next.mask, token) {
                set_bit(&mut kept, token);
                has_token = true;
            }
        }
        if has_token {
            next.mask = kept;
        }
        Ok(())
    }

    /// Whether the answer can still close in the tokens that are left. Looked at in the soft and hard zones, and now and
    /// then before.
    pub(super) fn fits_budget(&mut self) -> Result<bool> {
        let position = self.tokens.len();
        let Some(budget) = &self.budget else {
            return Ok(true);
        };
        if budget.zone(position) == Zone::Free && !budget.is_checkpoint(position) {
            return Ok(true);
        }
        let left = budget.left(position);
        let Some(way) = self.completion()? else {
            return Ok(true);
        };
        let needed = close::token_count(self.vocabulary(), &way);
        if let Some(budget) = &mut self.budget {
            budget.seen(position, needed);
        }
        Ok(needed <= left)
    }

    /// A short text that closes the answer from here; `None` where none was found.
    pub(super) fn completion(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(known) = self.budget.as_ref().and_then(Budget::way) {
            return Ok(Some(known.to_vec()));
        }
        let position = self.tokens.len();
        if self.budget.as_ref().is_some_and(|b| !b.looks(position)) {
            return Ok(None);
        }
        let grammar = self.grammar.clone();
        let way = if position == 0 {
            grammar.shortest().map(<[u8]>::to_vec)
        } else {
            let guards: Vec<_> = self.guards.iter().map(|g| g.fork()).collect();
            let text = std::mem::take(&mut self.text);
            let way = self.engine(|parser| close::completion(parser, guards, &text, &grammar));
            self.text = text;
            way?
        };
        if let Some(budget) = &mut self.budget {
            match &way {
                Some(way) => budget.set_way(way.clone()),
                None => budget.lose_way(position),
            }
        }
        Ok(way)
    }
}
