//! One sequence's way through a compiled grammar.
//!
//! [`Matcher`] drives the mask engine's parser and adds what it lacks: stop ids and twins, guards with bounded rewinds, the
//! token budget, forced text in the tokenizer's own spelling, and a wall around panics. A panic, or a mask past its limit,
//! ends that matcher and no other, as each has a lexer of its own; the first mask of a grammar, which all share, ends each of
//! them with the same error.

mod advance;
mod constraint;
mod next;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use llguidance::TokenParser;
use llguidance::api::StopReason;
use rushlight_engine::constrain::{Accepted, ConstraintCounts, MaskStatus};

use crate::budget::Budget;
use crate::compile::CompiledGrammar;
use crate::error::{GrammarError, GrammarErrorKind, Place, Result};
use crate::lower::GuardRun;
use crate::strings::StringPlace;
use crate::vocabulary::Vocabulary;
pub(crate) use advance::push_all;

/// Tokens that the budget refuses in one place before it is given up.
const REFUSED_HERE: usize = 16;

/// Follows one sequence through a [`CompiledGrammar`].
pub struct Matcher {
    grammar: Arc<CompiledGrammar>,
    // `None` until something other than the first mask needs it, and once it failed.
    parser: Option<TokenParser>,
    failure: Option<GrammarError>,
    guards: Vec<Box<dyn GuardRun>>,
    tokens: Vec<u32>,
    // Bytes of `text` after each token.
    ends: Vec<usize>,
    // Where `text` stands after each token, in a grammar with strings of bounded length.
    places: Vec<StringPlace>,
    text: Vec<u8>,
    ended: bool,
    // Tokens, as the trie has them, that may not stand at a position, given the tokens before it.
    excluded: Vec<(usize, u32)>,
    // Texts that no answer begins with: what the guards refuse in the end comes of each of them.
    doomed: Vec<Vec<u8>>,
    next: Option<Next>,
    string_mask: Option<StringMask>,
    budget: Option<Budget>,
    // A budget that was given up, and the position at which no way fitted into it.
    given_up: Option<(usize, Budget)>,
    // The order of closers that led to the end the last time.
    order: usize,
    refusals: usize,
    counts: ConstraintCounts,
}

/// What may follow the accepted tokens.
struct Next {
    // One bit an id of the trie, none for private ids and twins.
    mask: Vec<u32>,
    may_end: bool,
    has_token: bool,
}

/// The engine's mask in a string of bounded length, which tells every later one of the same string.
struct StringMask {
    // Bytes of the text up to the string.
    start: usize,
    // Characters that were left.
    left: usize,
    mask: Vec<u32>,
}

impl Matcher {
    pub(crate) fn new(grammar: Arc<CompiledGrammar>) -> Self {
        let guards = grammar.guards().iter().map(|g| g.begin()).collect();
        Self {
            grammar,
            parser: None,
            failure: None,
            guards,
            tokens: Vec::new(),
            ends: Vec::new(),
            places: Vec::new(),
            text: Vec::new(),
            ended: false,
            excluded: Vec::new(),
            doomed: Vec::new(),
            next: None,
            string_mask: None,
            budget: None,
            given_up: None,
            order: 0,
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

    /// Writes what may come next; see [`Constraint::mask`](rushlight_engine::constrain::Constraint::mask).
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
        let grammar = self.grammar.clone();
        let next = self.next()?;
        if !next.has_token {
            if next.may_end {
                return Ok(MaskStatus::Terminated);
            }
            return Err(self.dead_end());
        }
        grammar.vocabulary().export(&next.mask, next.may_end, out);
        Ok(MaskStatus::Constrained)
    }

    /// Takes a token; see [`Constraint::accept`](rushlight_engine::constrain::Constraint::accept).
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
        if let Some(text) = self.push_guards(token) {
            return self.refuse_text(text);
        }
        let way = self.budget.as_ref().and_then(Budget::way).cloned();
        self.consume(token)?;
        if !self.guards.is_empty() {
            // A guard may leave nothing to say; the sequence must learn that now, when it can still go back.
            let next = self.next()?;
            if !next.has_token && !next.may_end {
                let text = self.text.clone();
                self.undo(1)?;
                return self.refuse_text(text);
            }
        }
        if self.fits_budget()? {
            return Ok(Accepted::Taken);
        }
        // The way from before the token is known to fit, though the token may be a wasteful start of it.
        if let (Some(budget), Some(way)) = (&mut self.budget, way) {
            budget.regret(way, self.tokens.len());
        }
        self.undo(1)?;
        let position = self.tokens.len();
        let refused = self.excluded.iter().filter(|(at, _)| *at == position);
        if refused.count() < REFUSED_HERE && self.keep_to_the_way()? && self.refuse_token(token)? {
            return Ok(Accepted::Rewound { tokens: 0 });
        }
        // No other token fits better. The limit will cut the answer, unless a guard goes back behind this place, and whoever
        // counts tokens says so.
        self.given_up = self.budget.take().map(|budget| (position, budget));
        self.excluded.clear();
        // The guards took it before.
        self.push_guards(token);
        self.consume(token)?;
        Ok(Accepted::Taken)
    }

    /// The tokens of the text that must come next; see [`Constraint::forced`](rushlight_engine::constrain::Constraint::forced).
    ///
    /// # Errors
    /// Those of [`mask`](Self::mask).
    pub fn forced(&mut self) -> Result<Vec<u32>> {
        self.check_alive()?;
        if self.ended || !self.vocabulary().is_canonical() {
            return Ok(Vec::new());
        }
        let grammar = self.grammar.clone();
        let bytes = self.engine(|parser| {
            Ok::<_, String>((!grammar.is_endless(parser)).then(|| parser.force_bytes()))
        })?;
        let Some(bytes) = bytes else {
            return Err(self.endless());
        };
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
        // A refusal, or a guard's look ahead, may have taken away what the grammar alone would force.
        match tokens.first() {
            Some(&first) if !self.allows(first)? => return Ok(Vec::new()),
            _ => tokens.truncate(self.unrefused(&tokens)),
        }
        self.counts.forced += u64::try_from(tokens.len()).unwrap_or(u64::MAX);
        Ok(tokens)
    }

    /// Undoes the newest `tokens` tokens; see [`Constraint::rollback`](rushlight_engine::constrain::Constraint::rollback).
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
            places: self.places.clone(),
            text: self.text.clone(),
            ended: self.ended,
            excluded: self.excluded.clone(),
            doomed: self.doomed.clone(),
            next: None,
            string_mask: None,
            budget: self.budget.clone(),
            given_up: self.given_up.clone(),
            order: self.order,
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

    /// Accepted tokens that no refusal undoes; see [`Constraint::firm`](rushlight_engine::constrain::Constraint::firm).
    pub fn firm(&self) -> usize {
        let open = self
            .guards
            .iter()
            .filter_map(|guard| guard.open_from())
            .min();
        match open {
            None => self.tokens.len(),
            Some(from) => self.ends.partition_point(|&end| end <= from),
        }
    }

    /// Says that at most `tokens` more tokens will be sampled; see [`Constraint::budget`](rushlight_engine::constrain::Constraint::budget).
    ///
    /// # Errors
    /// [`GrammarErrorKind::Budget`] where the shortest answer that was found needs more. Where no way to the end fits later on, the
    /// budget is given up, and the answer is cut by whoever counts its tokens.
    pub fn budget(&mut self, tokens: usize) -> Result<()> {
        self.check_alive()?;
        let reserve = self.grammar.reserve();
        // What an earlier budget looked for and refused says nothing about this one.
        let earlier = self.budget.take();
        self.order = self.grammar.first_order();
        let way = self.completion();
        self.budget = earlier;
        let way = way?;
        let needed = way.as_ref().map_or(0, |way| way.tokens);
        if needed > tokens {
            return Err(GrammarError::new(
                GrammarErrorKind::Budget,
                format!(
                    "the shortest answer found has {needed} tokens, and the limit on tokens leaves {tokens}"
                ),
            ));
        }
        let mut budget = Budget::new(self.tokens.len(), tokens, reserve);
        if let Some(way) = way {
            budget.set_way(way);
        }
        self.budget = Some(budget);
        self.given_up = None;
        self.excluded.clear();
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
        let done = match &mut self.parser {
            Some(parser) => behind_wall(parser, call),
            none => self
                .grammar
                .parser()
                .and_then(|parser| behind_wall(none.insert(parser), call)),
        };
        self.keep_or_fail(done)
    }

    /// As [`engine`](Self::engine), where nothing that `call` does depends on the sequence: at the start it runs on the parser
    /// that all are copied from, so that the copy, which takes as long as a small mask, is made later and has learnt from it.
    fn engine_at_start<T, E: fmt::Display>(
        &mut self,
        call: impl FnOnce(&mut TokenParser) -> Result<T, E>,
    ) -> Result<T> {
        if self.parser.is_some() {
            return self.engine(call);
        }
        self.check_alive()?;
        let done = self.grammar.at_start(|parser| behind_wall(parser, call));
        self.keep_or_fail(done)
    }

    /// `done`, after which an error has ended this matcher.
    fn keep_or_fail<T>(&mut self, done: Result<T>) -> Result<T> {
        done.map_err(|error| {
            let position = self.tokens.len();
            let error = error.with_place(Place::Token { position });
            self.failure = Some(error.clone());
            self.parser = None;
            self.next = None;
            error
        })
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

    fn endless(&self) -> GrammarError {
        self.stuck("one text alone may follow, and for more than 128 KiB it has no end: a part of the grammar may go on with what should follow it")
    }

    fn dead_end(&self) -> GrammarError {
        self.stuck("no token continues the text, and it may not end here")
    }

    fn stuck(&self, reason: &str) -> GrammarError {
        GrammarError::new(GrammarErrorKind::DeadEnd, reason).with_place(Place::Token {
            position: self.tokens.len(),
        })
    }
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

/// Runs `call`; a panic becomes an error, and an error gets its kind.
fn behind_wall<T, E: fmt::Display>(
    parser: &mut TokenParser,
    call: impl FnOnce(&mut TokenParser) -> Result<T, E>,
) -> Result<T> {
    let done = llguidance::panic_utils::catch_unwind(AssertUnwindSafe(|| Ok(call(parser))));
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(match parser.stop_reason() {
            StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
                GrammarError::new(GrammarErrorKind::Limit, e.to_string())
            }
            _ => internal(e),
        }),
        Err(panic) => {
            let text = panic.to_string();
            let first = text.lines().next().unwrap_or("panic");
            Err(internal(format!("the mask engine failed: {first}")))
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_schema::SchemaOptions;
    use crate::{CancelToken, Compiler, GrammarSource, Limits, TokenEntry, TokenTable};

    #[test]
    fn a_panic_ends_its_own_matcher_and_no_other() {
        let vocabulary = Vocabulary::new(TokenTable {
            identity: "bytes".into(),
            tokens: (0..=255u8).map(|b| TokenEntry::Text(vec![b])).collect(),
            stop_ids: vec![0],
            logits: 256,
            encode: None,
        })
        .unwrap();
        let compiler = Compiler::new(vocabulary, Limits::default(), SchemaOptions::default());
        let grammar = compiler
            .compile(&GrammarSource::JsonObject, &CancelToken::new())
            .unwrap();
        let mut broken = grammar.matcher();
        let mut whole = broken.fork().unwrap();
        let mut mask = [0; 8];
        let e = broken
            .engine(|parser| parser.parser.test_trigger_lexer_error())
            .unwrap_err();
        assert_eq!(e.kind(), GrammarErrorKind::Internal);
        assert!(e.message().contains("synthetic"), "{e}");
        for e in [
            broken.mask(&mut mask).unwrap_err(),
            broken.accept(b'{'.into()).unwrap_err(),
            broken.rollback(0).unwrap_err(),
            broken.fork().unwrap_err(),
        ] {
            assert_eq!(e.kind(), GrammarErrorKind::Poisoned);
            assert!(std::error::Error::source(&e).is_some());
        }
        drop(broken);
        assert_eq!(whole.mask(&mut mask).unwrap(), MaskStatus::Constrained);
        assert_eq!(whole.accept(b'{'.into()).unwrap(), Accepted::Taken);
        assert!(grammar.matcher().mask(&mut mask).is_ok());
    }
}
