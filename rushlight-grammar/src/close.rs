//! Finds a short text that closes an answer from where it stands.
//!
//! The search walks a copy of the parser a byte at a time. Where there is a choice it tries the bytes that close things
//! first; a walk that does not end within its limit is given up for a search in order of length. What it finds is short
//! rather than shortest.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use llguidance::TokenParser;

use crate::compile::CompiledGrammar;
use crate::lower::{GuardRun, GuardStep};
use crate::matcher::push_all;
use crate::vocabulary::Vocabulary;

/// Bytes that a walk may choose.
const WALK_BYTES: usize = 16_384;
/// Bytes that a walk may take, those that follow by themselves included.
const TEXT_BYTES: usize = 1 << 21;
/// Bytes that a walk over bytes alone may choose where there are closers to try after it.
const BYTEWISE_BYTES: usize = 256;
/// Closers that are tried.
const MAX_CLOSERS: usize = 64;
/// States that the search in order of length may visit.
const SEARCH_STATES: usize = 600;
/// Bytes of all texts that it may copy: each step copies a state.
const SEARCH_BYTES: usize = 64 << 10;
/// Bytes in the order in which a walk tries them inside a string: what closes it, what is short, then the rest.
const IN_STRING: &[u8] = b"\"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ -_./:@#,;+*=()[]{}<>&%$!?~^'`|\\";
/// The same elsewhere; blanks and escapes last.
const ELSEWHERE: &[u8] = b"}]\")>0123456789,:ntfaebcdghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ<{[(_-./@#;'`|=+*&%$!?~^ \n\t\r\\";

/// A short text after which the answer may end; empty where it may end already, `None` where none was found.
pub(crate) fn completion(
    parser: &TokenParser,
    guards: Vec<Box<dyn GuardRun>>,
    before: &[u8],
    grammar: &CompiledGrammar,
) -> Result<Option<Vec<u8>>, String> {
    let (vocabulary, closers) = (grammar.vocabulary(), grammar.closers());
    let mut quotes = Quotes::default();
    before.iter().for_each(|&byte| quotes.push(byte));
    let start = Walk {
        parser: parser.clone(),
        guards,
        quotes,
        text: Vec::new(),
    };
    let bytewise = match closers.texts.as_slice() {
        [] => WALK_BYTES,
        _ => BYTEWISE_BYTES,
    };
    // What helped before is tried first: states of one grammar are alike.
    let mut found = None;
    if !closers.helped.load(Ordering::Relaxed) {
        found = walk(start.copy(), vocabulary, &[], bytewise)?;
    }
    if found.is_none() && !closers.texts.is_empty() {
        found = walk(start.copy(), vocabulary, &closers.texts, WALK_BYTES)?;
        closers.helped.store(found.is_some(), Ordering::Relaxed);
    }
    match found {
        Some(text) => Ok(Some(text)),
        None => search(start, vocabulary),
    }
}

/// Texts of a grammar that end free text.
#[derive(Debug, Default)]
pub(crate) struct Closers {
    texts: Vec<Vec<u8>>,
    /// Whether they found a way where bytes alone did not, the last time.
    helped: AtomicBool,
}

impl Closers {
    pub(crate) fn new(texts: Vec<String>) -> Self {
        let mut bytes: Vec<Vec<u8>> = Vec::new();
        for text in texts {
            if bytes.len() < MAX_CLOSERS
                && !text.is_empty()
                && !bytes.iter().any(|known| known == text.as_bytes())
            {
                bytes.push(text.into_bytes());
            }
        }
        Self {
            texts: bytes,
            helped: AtomicBool::new(false),
        }
    }
}

/// Tokens that the tokenizer, or where it has no spelling the longest-first one, makes of `text`.
pub(crate) fn token_count(vocabulary: &Vocabulary, text: &[u8]) -> usize {
    match std::str::from_utf8(text) {
        Ok(text) => vocabulary.encode(text).len(),
        Err(_) => vocabulary.trie().greedy_tokenize(text).len(),
    }
}

/// The tokens that spell a start of `way` and leave a rest that fits into `left - 1` tokens; at least the tokenizer's own
/// first token, where it has one.
pub(crate) fn tokens_along(vocabulary: &Vocabulary, way: &[u8], left: usize) -> Vec<u32> {
    let mut tokens: Vec<u32> = vocabulary
        .trie()
        .all_prefixes(way)
        .into_iter()
        .filter(|&token| {
            let length = vocabulary.token_bytes(token).len();
            length > 0
                && way
                    .get(length..)
                    .is_some_and(|rest| token_count(vocabulary, rest) < left)
        })
        .collect();
    if let Ok(text) = std::str::from_utf8(way)
        && let Some(&first) = vocabulary.encode(text).first()
        && !tokens.contains(&first)
    {
        tokens.push(first);
    }
    tokens
}

struct Walk {
    parser: TokenParser,
    guards: Vec<Box<dyn GuardRun>>,
    quotes: Quotes,
    text: Vec<u8>,
}

/// Whether a text stands inside a JSON string: a hint for the order of tries, no more.
#[derive(Clone, Copy, Default)]
struct Quotes {
    inside: bool,
    escaped: bool,
}

impl Quotes {
    fn push(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.inside => self.escaped = true,
            b'"' => self.inside = !self.inside,
            _ => {}
        }
    }

    fn order(self) -> &'static [u8] {
        if self.inside { IN_STRING } else { ELSEWHERE }
    }
}

impl Walk {
    fn copy(&self) -> Self {
        Self {
            parser: self.parser.clone(),
            guards: self.guards.iter().map(|g| g.fork()).collect(),
            quotes: self.quotes,
            text: self.text.clone(),
        }
    }

    fn is_done(&mut self) -> bool {
        self.parser.is_accepting() && self.guards.iter().all(|g| g.finish() == GuardStep::Accept)
    }

    /// Takes `byte` if the grammar and the guards allow it.
    fn push(&mut self, byte: u8, vocabulary: &Vocabulary) -> Result<bool, String> {
        let Some(token) = vocabulary.byte_token(byte) else {
            return Ok(false);
        };
        if !self
            .parser
            .validate_token(token)
            .map_err(|e| e.to_string())?
        {
            return Ok(false);
        }
        if !self.guards.is_empty() {
            let mut tried: Vec<_> = self.guards.iter().map(|g| g.fork()).collect();
            if push_all(&mut tried, &[byte]).is_some() {
                return Ok(false);
            }
            self.guards = tried;
        }
        self.parser
            .consume_token(token)
            .map_err(|e| e.to_string())?;
        self.quotes.push(byte);
        self.text.push(byte);
        Ok(true)
    }
}

/// Goes straight on, closing what can be closed, and chooses `limit` bytes at most. Each of `closers` is taken as soon as it can
/// be, and once at most until something closes.
fn walk(
    mut at: Walk,
    vocabulary: &Vocabulary,
    closers: &[Vec<u8>],
    limit: usize,
) -> Result<Option<Vec<u8>>, String> {
    let mut left: Vec<&[u8]> = closers.iter().map(Vec::as_slice).collect();
    let mut chosen = 0;
    while chosen < limit && at.text.len() < TEXT_BYTES {
        if at.is_done() {
            return Ok(Some(at.text));
        }
        if let Some(b'"' | b'}' | b']' | b',' | b'\n') = at.text.last() {
            left = closers.iter().map(Vec::as_slice).collect();
        }
        if close_once(&mut at, vocabulary, &mut left)? {
            continue;
        }
        let forced = at.parser.force_bytes();
        let moved = if forced.is_empty() {
            chosen += 1;
            step(&mut at, vocabulary)?
        } else {
            let mut all = true;
            for byte in forced {
                all &= at.push(byte, vocabulary)?;
            }
            all
        };
        if !moved {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Takes the first closer of `left` that fits here, if one does.
fn close_once(
    at: &mut Walk,
    vocabulary: &Vocabulary,
    left: &mut Vec<&[u8]>,
) -> Result<bool, String> {
    for index in 0..left.len() {
        let Some(&closer) = left.get(index) else {
            break;
        };
        let mut tried = at.copy();
        let mut fits = true;
        for &byte in closer {
            fits = fits && tried.push(byte, vocabulary)?;
        }
        if fits {
            *at = tried;
            left.remove(index);
            return Ok(true);
        }
    }
    Ok(false)
}

fn step(at: &mut Walk, vocabulary: &Vocabulary) -> Result<bool, String> {
    for &byte in at.quotes.order() {
        if at.push(byte, vocabulary)? {
            return Ok(true);
        }
    }
    // Control characters and the bytes of other scripts.
    for byte in (0x80..=0xf4).chain(0..0x20) {
        if at.push(byte, vocabulary)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Visits states in order of length.
fn search(start: Walk, vocabulary: &Vocabulary) -> Result<Option<Vec<u8>>, String> {
    let mut queue = VecDeque::from([start]);
    let (mut visited, mut copied) = (0, 0);
    while let Some(mut at) = queue.pop_front() {
        if at.is_done() {
            return Ok(Some(at.text));
        }
        for &byte in at.quotes.order() {
            copied += at.text.len();
            if copied > SEARCH_BYTES {
                return Ok(None);
            }
            let mut next = at.copy();
            if next.push(byte, vocabulary)? {
                visited += 1;
                if visited > SEARCH_STATES {
                    return Ok(None);
                }
                queue.push_back(next);
            }
        }
    }
    Ok(None)
}
