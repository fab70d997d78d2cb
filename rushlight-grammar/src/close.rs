//! Finds a short text that closes an answer from where it stands.
//!
//! The search walks a copy of the parser a byte at a time. Where there is a choice it tries the bytes that close things
//! first; a walk that does not end within its limit is given up for a search in order of length. What it finds is short
//! rather than shortest.

use std::collections::VecDeque;

use llguidance::TokenParser;

use crate::lower::{GuardRun, GuardStep};
use crate::matcher::push_all;
use crate::vocabulary::Vocabulary;

/// Bytes that a walk may take.
const WALK_BYTES: usize = 4096;
/// States that the search in order of length may visit.
const SEARCH_STATES: usize = 600;
/// Bytes in the order in which a walk tries them inside a string: what closes it, what is short, then the rest.
const IN_STRING: &[u8] = b"\"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ -_./:@#,;+*=()[]{}<>&%$!?~^'`|\\";
/// The same elsewhere; blanks and escapes last.
const ELSEWHERE: &[u8] = b"}]\")>0123456789,:ntfaebcdghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ<{[(_-./@#;'`|=+*&%$!?~^ \n\t\r\\";

/// A short text after which the answer may end; empty where it may end already, `None` where none was found.
pub(crate) fn completion(
    parser: &TokenParser,
    guards: Vec<Box<dyn GuardRun>>,
    before: &[u8],
    vocabulary: &Vocabulary,
) -> Result<Option<Vec<u8>>, String> {
    let mut quotes = Quotes::default();
    before.iter().for_each(|&byte| quotes.push(byte));
    let start = Walk {
        parser: parser.clone(),
        guards,
        quotes,
        text: Vec::new(),
    };
    if let Some(text) = walk(start.copy(), vocabulary)? {
        return Ok(Some(text));
    }
    search(start, vocabulary)
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

/// Goes straight on, closing what can be closed.
fn walk(mut at: Walk, vocabulary: &Vocabulary) -> Result<Option<Vec<u8>>, String> {
    while at.text.len() < WALK_BYTES {
        if at.is_done() {
            return Ok(Some(at.text));
        }
        let forced = at.parser.force_bytes();
        let moved = if forced.is_empty() {
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
    let mut visited = 0;
    while let Some(mut at) = queue.pop_front() {
        if at.is_done() {
            return Ok(Some(at.text));
        }
        for &byte in at.quotes.order() {
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
