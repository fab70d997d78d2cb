//! One sequence's way through a compiled grammar.
//!
//! [`Matcher`] drives the mask engine's parser and adds what it lacks: stop ids and twins, guards with bounded rewinds, the
//! token budget, forced text in the tokenizer's own spelling, and a wall around panics. A panic, or a mask past its limit,
//! ends that matcher and no other: each has a lexer of its own.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::TokenParser;
use llguidance::api::StopReason;
use rushlight_engine::constrain::{
    Accepted, Constraint, ConstraintCounts, ConstraintError, MaskStatus,
};

use crate::budget::{Budget, Zone};
use crate::close;
use crate::compile::CompiledGrammar;
use crate::error::{GrammarError, GrammarErrorKind, Place, Result};
use crate::lower::{GuardRun, GuardStep};
use crate::vocabulary::{Vocabulary, bit, clear_bit, set_bit, set_tokens};

/// A guarded mask with at most this many tokens is checked token by token, so that a choice which a guard has narrowed to
/// nothing is found before it is sampled.
const GUARDED_CHOICES: usize = 64;
/// Masks of texts up to this length are kept for the next sequence of the same grammar.
const MEMO_TEXT_BYTES: usize = 96;

/// Follows one sequence through a [`CompiledGrammar`].
pub struct Matcher {
    grammar: Arc<CompiledGrammar>,
    // `None` once it failed.
    parser: Option<TokenParser>,
    failure: Option<GrammarError>,
    guards: Vec<Box<dyn GuardRun>>,
    tokens: Vec<u32>,
    // Bytes of `text` after each token.
    ends: Vec<usize>,
    text: Vec<u8>,
    // Control tokens accepted: they are not in `text`, so the text alone does not tell the state.
    controls: usize,
    ended: bool,
    // Tokens that may not stand at a position, given the tokens before it.
    excluded: Vec<(usize, u32)>,
    next: Option<Next>,
    spare: Vec<u32>,
    budget: Option<Budget>,
    refusals: usize,
    counts: ConstraintCounts,
}

/// What may follow the accepted tokens.
struct Next {
    // One bit an id, as wide as the logits; stop ids included.
    mask: Vec<u32>,
    may_end: bool,
    has_token: bool,
}

impl Matcher {
    pub(crate) fn new(grammar: Arc<CompiledGrammar>, parser: TokenParser) -> Self {
        let guards = grammar.guards().iter().map(|g| g.begin()).collect();
        Self {
            grammar,
            parser: Some(parser),
            failure: None,
            guards,
            tokens: Vec::new(),
            ends: Vec::new(),
            text: Vec::new(),
            controls: 0,
            ended: false,
            excluded: Vec::new(),
            next: None,
            spare: Vec::new(),
            budget: None,
            refusals: 0,
            counts: ConstraintCounts::default(),
        }
    }

    /// The grammar that this follows.
    pub fn grammar(&self) -> &Arc<CompiledGrammar> {
        &self.grammar
    }

    /// The text so far, without control tokens. It may end inside a character.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The tokens accepted and not undone, stop ids included.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Writes what may come next; see [`Constraint::mask`].
    ///
    /// # Errors
    /// [`GrammarErrorKind::InvalidOption`] for a buffer of another length, [`GrammarErrorKind::DeadEnd`],
    /// [`GrammarErrorKind::Limit`], [`GrammarErrorKind::Internal`] and, after one of those, [`GrammarErrorKind::Poisoned`].
    pub fn mask(&mut self, out: &mut [u32]) -> Result<MaskStatus> {
        let words = self.vocabulary().logits().div_ceil(32);
        if out.len() != words {
            return Err(GrammarError::new(
                GrammarErrorKind::InvalidOption,
                format!("the mask has {} words; it must have {words}", out.len()),
            ));
        }
        self.counts.masks += 1;
        if self.ended {
            self.check_alive()?;
            return Ok(MaskStatus::Terminated);
        }
        self.narrow_to_budget()?;
        let next = self.next()?;
        if !next.has_token {
            if next.may_end {
                return Ok(MaskStatus::Terminated);
            }
            return Err(self.dead_end());
        }
        out.copy_from_slice(&next.mask);
        Ok(MaskStatus::Constrained)
    }

    /// Takes a token; see [`Constraint::accept`].
    ///
    /// # Errors
    /// [`GrammarErrorKind::IllegalToken`] leaves the matcher as it was; [`GrammarErrorKind::GuardExhausted`] and the errors of
    /// [`mask`](Self::mask) do not.
    pub fn accept(&mut self, token: u32) -> Result<Accepted> {
        self.check_alive()?;
        if self.ended {
            return Err(self.illegal(token, "the text has ended"));
        }
        if self.vocabulary().is_stop(token) {
            if !self.may_end()? {
                return Err(self.illegal(token, "the text may not end here"));
            }
            self.ended = true;
            self.tokens.push(token);
            self.ends.push(self.text.len());
            return Ok(Accepted::Taken);
        }
        if !self.allows(token)? {
            return Err(self.illegal(token, "the grammar does not allow it here"));
        }
        if let Some(value_start) = self.push_guards(token) {
            return self.refuse(token, value_start);
        }
        self.consume(token)?;
        if !self.guards.is_empty() {
            // A guard may leave nothing to say; the sequence must learn that now, when it can still go back.
            let next = self.next()?;
            if !next.has_token && !next.may_end {
                let at = self.text.len();
                self.undo(1)?;
                return self.refuse(token, at);
            }
        }
        if !self.fits_budget()? {
            self.undo(1)?;
            let at = self.text.len();
            return self.refuse(token, at);
        }
        Ok(Accepted::Taken)
    }

    /// The tokens of the text that must come next; see [`Constraint::forced`].
    ///
    /// # Errors
    /// Those of [`mask`](Self::mask).
    pub fn forced(&mut self) -> Result<Vec<u32>> {
        self.check_alive()?;
        if self.ended || !self.vocabulary().is_canonical() {
            return Ok(Vec::new());
        }
        let bytes = self.engine(|parser| Ok::<_, String>(parser.force_bytes()))?;
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            // The rest of the last character depends on what is chosen.
            Err(e) => bytes
                .get(..e.valid_up_to())
                .and_then(|whole| std::str::from_utf8(whole).ok())
                .unwrap_or(""),
        };
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let Some(mut tokens) = self.spell(text) else {
            self.counts.disagreements += 1;
            return Ok(Vec::new());
        };
        let vocabulary = self.grammar.vocabulary().clone();
        let in_trie: Vec<u32> = tokens.iter().map(|&t| vocabulary.in_trie(t)).collect();
        let whole = text.len() == bytes.len();
        let (straddling, _) = self.engine(|parser| {
            Ok::<_, String>(
                parser
                    .parser
                    .with_recognizer(|r| vocabulary.trie().chop_tokens(r, &in_trie)),
            )
        })?;
        let straddling = if whole { straddling } else { straddling.max(1) };
        tokens.truncate(tokens.len().saturating_sub(straddling));
        self.counts.forced += u64::try_from(tokens.len()).unwrap_or(u64::MAX);
        Ok(tokens)
    }

    /// Undoes the newest `tokens` tokens; see [`Constraint::rollback`].
    ///
    /// # Errors
    /// [`GrammarErrorKind::InvalidOption`] for more tokens than were accepted.
    pub fn rollback(&mut self, tokens: usize) -> Result<()> {
        self.check_alive()?;
        if tokens > self.tokens.len() {
            return Err(GrammarError::new(
                GrammarErrorKind::InvalidOption,
                format!(
                    "cannot undo {tokens} tokens: {} were accepted",
                    self.tokens.len()
                ),
            ));
        }
        self.undo(tokens)
    }

    /// An independent matcher in the same state.
    ///
    /// # Errors
    /// [`GrammarErrorKind::Poisoned`].
    pub fn fork(&self) -> Result<Self> {
        self.check_alive()?;
        Ok(Self {
            grammar: self.grammar.clone(),
            // With a lexer of its own, so that a panic here is no trouble there.
            parser: self.parser.as_ref().map(TokenParser::deep_clone),
            failure: None,
            guards: self.guards.iter().map(|g| g.fork()).collect(),
            tokens: self.tokens.clone(),
            ends: self.ends.clone(),
            text: self.text.clone(),
            controls: self.controls,
            ended: self.ended,
            excluded: self.excluded.clone(),
            next: None,
            spare: Vec::new(),
            budget: self.budget.clone(),
            refusals: self.refusals,
            counts: self.counts,
        })
    }

    /// Whether the text may end here; true once it has ended.
    ///
    /// # Errors
    /// Those of [`mask`](Self::mask).
    pub fn may_end(&mut self) -> Result<bool> {
        self.check_alive()?;
        if self.ended {
            return Ok(true);
        }
        if let Some(next) = &self.next {
            return Ok(next.may_end);
        }
        let accepting = self.engine(|parser| Ok::<_, String>(parser.is_accepting()))?;
        Ok(accepting && self.guards_finish())
    }

    /// Whether a stop id was accepted.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Says that at most `tokens` more tokens will be sampled; see [`Constraint::budget`].
    ///
    /// # Errors
    /// [`GrammarErrorKind::Budget`] where the shortest answer known needs more.
    pub fn budget(&mut self, tokens: usize) -> Result<()> {
        self.check_alive()?;
        let reserve = self.grammar.reserve();
        let needed = match self.completion()? {
            Some(text) => close::token_count(self.vocabulary(), &text),
            None => 0,
        };
        if needed > tokens {
            return Err(GrammarError::new(
                GrammarErrorKind::Budget,
                format!("the shortest answer has {needed} tokens; {tokens} are left"),
            ));
        }
        self.budget = Some(Budget::new(self.tokens.len(), tokens, reserve));
        self.next = None;
        Ok(())
    }

    /// What it did so far.
    pub fn counts(&self) -> ConstraintCounts {
        self.counts
    }

    fn vocabulary(&self) -> &Vocabulary {
        self.grammar.vocabulary()
    }

    fn check_alive(&self) -> Result<()> {
        match &self.failure {
            Some(cause) => Err(GrammarError::new(
                GrammarErrorKind::Poisoned,
                "this matcher failed before and cannot go on",
            )
            .with_source(cause.clone())),
            None => Ok(()),
        }
    }

    /// Runs the engine behind a wall: whatever goes wrong ends this matcher.
    fn engine<T, E: fmt::Display>(
        &mut self,
        call: impl FnOnce(&mut TokenParser) -> Result<T, E>,
    ) -> Result<T> {
        self.check_alive()?;
        let position = self.tokens.len();
        let Some(parser) = self.parser.as_mut() else {
            return Err(internal("the matcher has no parser"));
        };
        let done = llguidance::panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(call(parser))));
        let error = match done {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(e)) => match parser.stop_reason() {
                StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
                    GrammarError::new(GrammarErrorKind::Limit, e.to_string())
                }
                _ => internal(e),
            },
            Err(panic) => {
                let text = panic.to_string();
                internal(text.lines().next().unwrap_or("panic"))
            }
        }
        .with_place(Place::Token { position });
        self.failure = Some(error.clone());
        self.parser = None;
        self.next = None;
        Err(error)
    }

    /// Whether `token`, not a stop id, may come next.
    fn allows(&mut self, token: u32) -> Result<bool> {
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
    fn consume(&mut self, token: u32) -> Result<()> {
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
    fn undo(&mut self, tokens: usize) -> Result<()> {
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

    fn forget_next(&mut self) {
        if let Some(next) = self.next.take() {
            self.spare = next.mask;
        }
    }

    /// Shows the token's bytes to the guards. On a refusal they are as before, and the answer is where the value starts.
    fn push_guards(&mut self, token: u32) -> Option<usize> {
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

    fn guards_finish(&self) -> bool {
        self.guards.iter().all(|g| g.finish() == GuardStep::Accept)
    }

    /// Excludes `token` here and goes back as far as needed for something else to be legal, first of all to `value_start`.
    fn refuse(&mut self, token: u32, value_start: usize) -> Result<Accepted> {
        self.counts.excluded += 1;
        self.refusals += 1;
        let start = self.tokens.len();
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
            if here == 0 {
                return Err(self.dead_end());
            }
            // The token in which the value starts, or just the one before where that is not further back.
            let to = self
                .ends
                .iter()
                .position(|&end| end > value_start)
                .unwrap_or(here)
                .min(here - 1);
            let choice = self.tokens.get(to).copied();
            self.undo(here - to)?;
            if let Some(choice) = choice {
                self.excluded.push((to, choice));
            }
            self.refusals += 1;
            self.forget_next();
        }
    }

    /// What may come next, computed once a position.
    fn next(&mut self) -> Result<&Next> {
        if self.next.is_none() {
            let made = self.compute_next()?;
            self.next = Some(made);
        }
        match &self.next {
            Some(next) => Ok(next),
            None => Err(internal("the mask was lost")),
        }
    }

    fn compute_next(&mut self) -> Result<Next> {
        let grammar = self.grammar.clone();
        let vocabulary = grammar.vocabulary();
        let mut mask = std::mem::take(&mut self.spare);
        mask.resize(vocabulary.logits().div_ceil(32), 0);
        let memo =
            (self.controls == 0 && self.text.len() <= MEMO_TEXT_BYTES).then(|| grammar.memo());
        let known = memo.and_then(|memo| memo.copy(&self.text, &mut mask));
        let mut may_end = match known {
            Some(may_end) => may_end,
            None => {
                let may_end = self.compute_mask(&mut mask)?;
                if let Some(memo) = memo {
                    memo.keep(&self.text, &mask, may_end);
                }
                may_end
            }
        };
        let position = self.tokens.len();
        for &(at, token) in &self.excluded {
            if at == position {
                clear_bit(&mut mask, token);
            }
        }
        if !self.guards.is_empty() {
            may_end &= self.guards_finish();
            self.clear_guarded(&mut mask);
        }
        let has_token = mask.iter().any(|&word| word != 0);
        if may_end {
            for &id in vocabulary.stop_ids() {
                set_bit(&mut mask, id);
            }
        }
        Ok(Next {
            mask,
            may_end,
            has_token,
        })
    }

    /// The engine's own mask, without stop ids; the answer says whether the text may end.
    fn compute_mask(&mut self, mask: &mut [u32]) -> Result<bool> {
        let grammar = self.grammar.clone();
        let vocabulary = grammar.vocabulary();
        let end = vocabulary.end();
        self.engine(|parser| {
            if parser.stop_reason() == StopReason::NoExtensionBias {
                mask.fill(0);
                return Ok(false);
            }
            match parser.compute_mask() {
                Ok(set) => {
                    let words = set.as_slice();
                    vocabulary.export(words, false, mask);
                    Ok(bit(words, end))
                }
                // Nothing may follow: for this crate a state like any other, which a rollback leaves.
                Err(_) if parser.stop_reason() == StopReason::NoExtensionBias => {
                    mask.fill(0);
                    Ok(false)
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Clears the tokens that a guard would refuse, where few enough are set to try them all.
    fn clear_guarded(&mut self, mask: &mut [u32]) {
        let choices: Vec<u32> = set_tokens(mask).take(GUARDED_CHOICES + 1).collect();
        if choices.len() > GUARDED_CHOICES {
            return;
        }
        for token in choices {
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
    fn narrow_to_budget(&mut self) -> Result<()> {
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
    fn fits_budget(&mut self) -> Result<bool> {
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
    fn completion(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(known) = self.budget.as_ref().and_then(Budget::way) {
            return Ok(Some(known.to_vec()));
        }
        let grammar = self.grammar.clone();
        let guards: Vec<_> = self.guards.iter().map(|g| g.fork()).collect();
        let way = self.engine(|parser| close::completion(parser, guards, grammar.vocabulary()))?;
        if let (Some(budget), Some(way)) = (&mut self.budget, &way) {
            budget.set_way(way.clone());
        }
        Ok(way)
    }

    /// `text` in the tokenizer's spelling after what stands before it; `None` where that spells something else.
    fn spell(&mut self, text: &str) -> Option<Vec<u32>> {
        let vocabulary = self.grammar.vocabulary().clone();
        let previous = self.tokens.last().copied();
        let context = previous
            .and_then(|t| std::str::from_utf8(vocabulary.token_bytes(t)).ok())
            .filter(|c| !c.is_empty());
        if let (Some(context), Some(previous)) = (context, previous) {
            let joined = vocabulary.encode(&format!("{context}{text}"));
            if joined.first() == Some(&previous) {
                let tokens: Vec<u32> = joined.into_iter().skip(1).collect();
                if spells(&vocabulary, &tokens, text) {
                    return Some(tokens);
                }
            }
            self.counts.disagreements += 1;
        }
        let tokens = vocabulary.encode(text);
        spells(&vocabulary, &tokens, text).then_some(tokens)
    }

    fn illegal(&self, token: u32, reason: &str) -> GrammarError {
        GrammarError::new(
            GrammarErrorKind::IllegalToken,
            format!("token {token} is not legal: {reason}"),
        )
        .with_place(Place::Token {
            position: self.tokens.len(),
        })
    }

    fn dead_end(&self) -> GrammarError {
        GrammarError::new(
            GrammarErrorKind::DeadEnd,
            "no token continues the text, and it may not end here",
        )
        .with_place(Place::Token {
            position: self.tokens.len(),
        })
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

fn spells(vocabulary: &Vocabulary, tokens: &[u32], text: &str) -> bool {
    let mut rest = text.as_bytes();
    for &token in tokens {
        let bytes = vocabulary.token_bytes(token);
        match rest.strip_prefix(bytes) {
            Some(after) if !bytes.is_empty() => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

fn internal(message: impl fmt::Display) -> GrammarError {
    GrammarError::new(GrammarErrorKind::Internal, message.to_string())
}

impl Drop for Matcher {
    fn drop(&mut self) {
        // The lexer has learnt states that the next sequence of this grammar will meet again.
        let in_parser = self.tokens.len() - usize::from(self.ended);
        if self.failure.is_some() {
            return;
        }
        if let Some(parser) = self.parser.take() {
            self.grammar.give_back(parser, in_parser);
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher")
            .field("tokens", &self.tokens.len())
            .field("ended", &self.ended)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl Constraint for Matcher {
    fn vocab(&self) -> usize {
        self.vocabulary().logits()
    }

    fn mask(&mut self, mask: &mut [u32]) -> Result<MaskStatus, ConstraintError> {
        Ok(Matcher::mask(self, mask)?)
    }

    fn accept(&mut self, token: u32) -> Result<Accepted, ConstraintError> {
        Ok(Matcher::accept(self, token)?)
    }

    fn forced(&mut self) -> Result<Vec<u32>, ConstraintError> {
        Ok(Matcher::forced(self)?)
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        Ok(Matcher::rollback(self, tokens)?)
    }

    fn fork(&self) -> Result<Box<dyn Constraint>, ConstraintError> {
        Ok(Box::new(Matcher::fork(self)?))
    }

    fn may_end(&mut self) -> Result<bool, ConstraintError> {
        Ok(Matcher::may_end(self)?)
    }

    fn accepted(&self) -> usize {
        self.tokens.len()
    }

    fn budget(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        Ok(Matcher::budget(self, tokens)?)
    }

    fn counts(&self) -> ConstraintCounts {
        Matcher::counts(self)
    }
}
