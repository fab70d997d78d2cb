//! Finds a short text that closes an answer from where it stands.
//!
//! A grammar's closers are the texts that it spells out: what ends a loop over free text is one of them, and no search byte by
//! byte finds it. A walk takes them as they fit, in an order; which order helps depends on the grammar, so each sequence begins
//! with the one that helped it the last time.
//!
//! The search walks a copy of the parser a byte at a time. Inside a string it takes the shortest text that the lexer closes it
//! after; else, where there is a choice, it tries the bytes that close things first. A walk that does not end within its limit
//! is given up for a search in order of length; one that can go nowhere, as where a guard refuses every way to close the value
//! that it began, goes back to its last choices first. What it finds is short rather than shortest.

use std::collections::{HashSet, VecDeque};
use std::iter;

use llguidance::TokenParser;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use toktrie::{Recognizer, SimpleVob, TokTrie};

use crate::compile::CompiledGrammar;
use crate::lower::{GuardRun, GuardStep};
use crate::matcher::push_all;
use crate::strings::StringPlace;
use crate::vocabulary::Vocabulary;

/// Bytes that a walk may choose, and one from the start, which a grammar takes once.
const WALK_BYTES: usize = 2048;
const FIRST_WALK_BYTES: usize = 8192;
/// Blanks in a row after which a walk is going nowhere.
const BLANKS: usize = 64;
/// Choices that a walk remembers, to go back to.
const CHOICES: usize = 8;
/// Times that a walk may go back.
const TURNS: usize = 256;
/// Bytes that all walks of one look may take, those that follow by themselves included.
const TEXT_BYTES: usize = 48 << 10;
/// Bytes that a walk may choose in an order of closers that did not help the last time.
const TRY_BYTES: usize = 256;
/// Orders of closers that are tried, beside theirs.
const FAVOURITES: usize = 6;
/// Closers that are tried, and their bytes.
const MAX_CLOSERS: usize = 64;
const CLOSER_BYTES: usize = 256;
/// States that the search in order of length may visit.
const SEARCH_STATES: usize = 600;
/// Bytes of all texts that it may copy: each step copies a state.
const SEARCH_BYTES: usize = 64 << 10;
/// Lexer states that are looked through for the end of a string.
const STRING_STATES: usize = 4096;
/// Bytes that all walks of one look may try for the ends of their strings.
const STRING_TRIES: usize = 400_000;
/// What copying the parser for one such search takes, in tries: at least, and the bytes of its lexer that one pays for.
const COPY_TRIES: usize = 500;
const COPY_BYTES: usize = 4096;
/// Bytes in the order in which a walk tries them inside a string: what closes it, what tokenizers join, then the rest.
const IN_STRING: &[u8] = b"\"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -_./:@#,;+*=()[]{}<>&%$!?~^'`|\\";
/// The same elsewhere: what ends a number comes before what makes it longer, blanks and escapes last.
const ELSEWHERE: &[u8] = b"}]\")>,1234567890:ntfaebcdghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ<{[(_-./@#;'`|=+*&%$!?~^ \n\t\r\\";

/// A short text after which the answer may end; empty where it may end already, `None` where none was found. `helped` is the
/// order of closers that is tried first, and then the one that helped.
pub(crate) fn completion(
    parser: &TokenParser,
    guards: Vec<Box<dyn GuardRun>>,
    before: &[u8],
    grammar: &CompiledGrammar,
    helped: &mut usize,
) -> Result<Option<Vec<u8>>, String> {
    let (vocabulary, closers) = (grammar.vocabulary(), grammar.closers());
    let mut place = StringPlace::default();
    before.iter().for_each(|&byte| place.push(byte));
    let start = Walk {
        parser: parser.clone(),
        guards,
        place,
        before,
        text: Vec::new(),
        grammar,
        pushed: 0,
    };
    let mut effort = Effort {
        bytes: TEXT_BYTES,
        tries: STRING_TRIES,
    };
    let first = *helped;
    let others = (0..closers.orders()).filter(|&order| order != first);
    for order in iter::once(first).chain(others) {
        let limit = match before {
            [] if order <= 1 => FIRST_WALK_BYTES,
            _ if order == first => WALK_BYTES,
            _ => TRY_BYTES,
        };
        let found = walk(
            start.copy(),
            vocabulary,
            &closers.ordered(order),
            (limit, &mut effort),
        )?;
        if found.is_some() {
            *helped = order;
            return Ok(found);
        }
    }
    search(start, vocabulary)
}

/// What the walks of one look have left to spend.
struct Effort {
    bytes: usize,
    tries: usize,
}

/// Texts of a grammar that end free text.
#[derive(Debug, Default)]
pub(crate) struct Closers {
    texts: Vec<Vec<u8>>,
}

impl Closers {
    /// The last few of `texts`, each once.
    pub(crate) fn new(texts: Vec<String>) -> Self {
        let mut seen = HashSet::new();
        let short = |text: &String| (1..=CLOSER_BYTES).contains(&text.len());
        let mut texts: Vec<Vec<u8>> = texts
            .into_iter()
            .filter(|text| short(text) && seen.insert(text.clone()))
            .map(String::into_bytes)
            .collect();
        texts.drain(..texts.len().saturating_sub(MAX_CLOSERS));
        Self { texts }
    }

    /// The orders in which a walk may try them: none of them, as they stand, and with one of the last few before the others.
    /// What begins a further round of a loop fits wherever what ends it does, and the end is written last, as a rule.
    fn orders(&self) -> usize {
        match self.texts.len() {
            0 => 1,
            count => 1 + count.min(1 + FAVOURITES),
        }
    }

    fn ordered(&self, order: usize) -> Vec<&[u8]> {
        let Some(later) = order.checked_sub(1) else {
            return Vec::new();
        };
        let mut texts: Vec<&[u8]> = self.texts.iter().map(Vec::as_slice).collect();
        if let Some(favourite) = later.checked_sub(1)
            && let Some(last) = texts.len().checked_sub(favourite + 1)
            && let Some(before) = texts.get_mut(..=last)
        {
            before.rotate_right(1);
        }
        texts
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

struct Walk<'a> {
    parser: TokenParser,
    guards: Vec<Box<dyn GuardRun>>,
    // A hint for the order of tries, no more: the text need not be JSON.
    place: StringPlace,
    // The answer before `text`.
    before: &'a [u8],
    text: Vec<u8>,
    grammar: &'a CompiledGrammar,
    // Bytes taken, those taken back included.
    pushed: usize,
}

/// A place that a walk was at: the bytes of its text, and what followed from them.
#[derive(Clone, Copy)]
struct Mark {
    len: usize,
    place: StringPlace,
}

impl Walk<'_> {
    fn copy(&self) -> Self {
        Self {
            parser: self.parser.clone(),
            guards: self.guards.iter().map(|g| g.fork()).collect(),
            place: self.place,
            before: self.before,
            text: self.text.clone(),
            grammar: self.grammar,
            pushed: self.pushed,
        }
    }

    fn order(&self) -> &'static [u8] {
        if self.place.is_inside() {
            IN_STRING
        } else {
            ELSEWHERE
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            len: self.text.len(),
            place: self.place,
        }
    }

    /// Goes back to where it was at `mark`. It took a token a byte.
    fn go_back(&mut self, mark: Mark) -> Result<(), String> {
        let taken = self.text.len().saturating_sub(mark.len);
        if taken > 0 {
            self.parser.rollback(taken).map_err(|e| e.to_string())?;
            // Its key (row number, lexer state) can name another row after a rollback.
            self.parser.invalidate_bias_cache();
        }
        for guard in &mut self.guards {
            guard.truncate(self.before.len() + mark.len);
        }
        self.text.truncate(mark.len);
        self.place = mark.place;
        Ok(())
    }

    fn is_done(&mut self) -> bool {
        self.parser.is_accepting() && self.guards.iter().all(|g| g.finish() == GuardStep::Accept)
    }

    /// How much of `closer` the text ends with, short of all of it.
    fn begun(&self, closer: &[u8]) -> usize {
        let ends_with = |begun: &[u8]| match begun.len().checked_sub(self.text.len()) {
            None => self.text.ends_with(begun),
            Some(split) => {
                let (first, last) = begun.split_at(split);
                self.text == last && self.before.ends_with(first)
            }
        };
        let mut lengths = (1..closer.len()).rev();
        lengths
            .find(|&length| closer.get(..length).is_some_and(ends_with))
            .unwrap_or(0)
    }

    /// Whether the grammar allows `bytes` here.
    fn allows(&mut self, bytes: &[u8]) -> bool {
        self.parser.parser.with_recognizer(|r| {
            r.trie_started("closer");
            let taken = bytes.iter().take_while(|&&b| r.try_push_byte(b)).count();
            r.pop_bytes(taken);
            r.trie_finished();
            taken == bytes.len()
        })
    }

    /// The shortest text that ends the string that it stands in, as far as the grammar knows; `None` outside of one, and where
    /// none was found in `tries`. Within a string the lexer's state says all, so each is looked at once.
    fn string_end(&mut self, trie: &TokTrie, tries: &mut usize) -> Option<Vec<u8>> {
        if !self.place.is_inside() {
            return None;
        }
        let escaped = self.place.is_escape();
        if !escaped && self.allows(b"\"") {
            return Some(vec![b'"']);
        }
        let copy = COPY_TRIES + self.parser.parser.lexer_stats().num_bytes / COPY_BYTES;
        *tries = tries.saturating_sub(copy);
        if *tries == 0 {
            return None;
        }
        // On a lexer of its own: one that runs out of fuel or states stays so, and the sequence needs this one.
        let mut copy = self.parser.deep_clone();
        refill(&mut copy, trie);
        copy.parser.with_recognizer(|r| {
            r.trie_started("string end");
            let found = string_end(r, escaped, tries);
            r.trie_finished();
            found
        })
    }

    /// Takes `bytes` if the grammar and the guards allow all of them.
    fn push_all(&mut self, bytes: &[u8], vocabulary: &Vocabulary) -> Result<bool, String> {
        let mark = self.mark();
        for &byte in bytes {
            if !self.push(byte, vocabulary)? {
                self.go_back(mark)?;
                return Ok(false);
            }
        }
        Ok(true)
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
        if push_all(&mut self.guards, &[byte]).is_some() {
            for guard in &mut self.guards {
                guard.truncate(self.before.len() + self.text.len());
            }
            return Ok(false);
        }
        self.parser
            .consume_token(token)
            .map_err(|e| e.to_string())?;
        self.place.push(byte);
        self.text.push(byte);
        self.pushed += 1;
        Ok(true)
    }
}

/// Gives the lexer of `parser`, which must be its own, the fuel that a mask has.
pub(crate) fn refill(parser: &mut TokenParser, trie: &TokTrie) {
    parser.parser.compute_bias(&Refill(trie), b" ");
}

/// The engine fills up a lexer's fuel where it computes a mask, and only there; what the last mask left depends on what the
/// lexer knew before it. This computes none.
struct Refill<'a>(&'a TokTrie);

impl BiasComputer for Refill<'_> {
    fn compute_bias(&self, _: &mut ParserRecognizer<'_>, _: &[u8]) -> SimpleVob {
        self.0.alloc_token_set()
    }

    fn trie(&self) -> &TokTrie {
        self.0
    }
}

/// Goes straight on, closing what can be closed, and chooses `limit` bytes and closers at most, the ends of strings apart, within
/// `effort`. Each of `closers` is taken as soon as it can be, and once at most until something closes.
fn walk(
    mut at: Walk<'_>,
    vocabulary: &Vocabulary,
    closers: &[&[u8]],
    (limit, effort): (usize, &mut Effort),
) -> Result<Option<Vec<u8>>, String> {
    // Whether each was taken since something closed.
    let mut taken = vec![false; closers.len()];
    let (mut chosen, mut turns) = (0, 0);
    // Where a byte was chosen, newest last, and how many of the choices there were tried.
    let mut back: VecDeque<(Mark, usize)> = VecDeque::new();
    // Whether the end of this string was looked for in vain: no closer to it is found from the next byte.
    let mut endless = false;
    let mut paid = at.pushed;
    while chosen < limit && effort.bytes > 0 {
        effort.bytes = effort.bytes.saturating_sub(at.pushed - paid);
        paid = at.pushed;
        if at.is_done() {
            return Ok(Some(at.text));
        }
        let is_blank = |byte: &&u8| byte.is_ascii_whitespace();
        if at.text.iter().rev().take_while(is_blank).count() > BLANKS {
            return Ok(None);
        }
        if let Some(b'"' | b'}' | b']' | b',' | b'\n') = at.text.last() {
            taken.fill(false);
        }
        if close_once(&mut at, vocabulary, closers, &mut taken)? {
            chosen += 1;
            endless = false;
            back.clear();
            continue;
        }
        if at.grammar.is_endless(&mut at.parser) {
            return Ok(None);
        }
        let forced = at.parser.force_bytes();
        endless &= at.place.is_inside() && forced.is_empty();
        let moved = if !forced.is_empty() {
            at.push_all(&forced, vocabulary)?
        } else {
            let end = match endless {
                true => None,
                false => at.string_end(vocabulary.trie(), &mut effort.tries),
            };
            let ended = end.map(|end| at.push_all(&end, vocabulary)).transpose()?;
            ended == Some(true) || {
                // None was found, or the guards refuse it.
                endless = at.place.is_inside();
                chosen += 1;
                choose(&mut at, 0, vocabulary, &mut back)?
            }
        };
        if moved {
            continue;
        }
        loop {
            let Some((choice, from)) = back.pop_back().filter(|_| turns < TURNS) else {
                return Ok(None);
            };
            turns += 1;
            at.go_back(choice)?;
            if choose(&mut at, from, vocabulary, &mut back)? {
                endless = false;
                break;
            }
        }
    }
    Ok(None)
}

/// Takes the first of `closers` that fits here and is not `taken`, if one does.
fn close_once(
    at: &mut Walk<'_>,
    vocabulary: &Vocabulary,
    closers: &[&[u8]],
    taken: &mut [bool],
) -> Result<bool, String> {
    for (closer, taken) in closers.iter().zip(taken) {
        if *taken {
            continue;
        }
        let begun = at.begun(closer);
        let rest = closer.get(begun..).unwrap_or(closer);
        for text in iter::once(rest).chain((begun > 0).then_some(*closer)) {
            if at.allows(text) && at.push_all(text, vocabulary)? {
                *taken = true;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// See [`Walk::string_end`]: a search in order of length from where `r` stands, which it leaves there.
fn string_end(r: &mut ParserRecognizer<'_>, escaped: bool, tries: &mut usize) -> Option<Vec<u8>> {
    struct Node {
        parent: usize,
        byte: u8,
        escaped: bool,
    }
    let path = |nodes: &[Node], mut at: usize| {
        let mut bytes = Vec::new();
        while at > 0
            && let Some(node) = nodes.get(at)
        {
            bytes.push(node.byte);
            at = node.parent;
        }
        bytes.reverse();
        bytes
    };
    let mut nodes = vec![Node {
        parent: 0,
        byte: 0,
        escaped,
    }];
    let mut seen = HashSet::from([(r.lexer_state(), escaped)]);
    let mut at = 0;
    while let Some(node) = nodes.get(at) {
        let escaped = node.escaped;
        let way = path(&nodes, at);
        let taken = way.iter().take_while(|&&b| r.try_push_byte(b)).count();
        let mut tried = taken;
        let mut found = None;
        if taken == way.len() {
            for byte in IN_STRING.iter().copied().chain(0x80..=0xf4) {
                tried += 1;
                if !r.try_push_byte(byte) {
                    continue;
                }
                let closes = byte == b'"' && !escaped;
                let escapes = byte == b'\\' && !escaped;
                if closes {
                    found = Some(byte);
                } else if nodes.len() < STRING_STATES && seen.insert((r.lexer_state(), escapes)) {
                    nodes.push(Node {
                        parent: at,
                        byte,
                        escaped: escapes,
                    });
                }
                r.pop_bytes(1);
                if closes {
                    break;
                }
            }
        }
        r.pop_bytes(taken);
        if let Some(byte) = found {
            let mut way = way;
            way.push(byte);
            return Some(way);
        }
        *tries = tries.saturating_sub(tried);
        if *tries == 0 {
            return None;
        }
        at += 1;
    }
    None
}

/// Takes the first byte that fits, from the `from`th of the order in which they are tried on, and remembers in `back` what it was
/// chosen among.
fn choose(
    at: &mut Walk<'_>,
    from: usize,
    vocabulary: &Vocabulary,
    back: &mut VecDeque<(Mark, usize)>,
) -> Result<bool, String> {
    let mark = at.mark();
    // Control characters and the bytes of other scripts come last.
    let order = at.order().iter().copied();
    let bytes = order.chain(0x80..=0xf4).chain(0..0x20);
    for (index, byte) in bytes.enumerate().skip(from) {
        if at.push(byte, vocabulary)? {
            if back.len() == CHOICES {
                back.pop_front();
            }
            back.push_back((mark, index + 1));
            return Ok(true);
        }
    }
    Ok(false)
}

/// Visits states in order of length.
fn search(start: Walk<'_>, vocabulary: &Vocabulary) -> Result<Option<Vec<u8>>, String> {
    let mut queue = VecDeque::from([start]);
    let (mut visited, mut copied) = (0, 0);
    while let Some(mut at) = queue.pop_front() {
        if at.is_done() {
            return Ok(Some(at.text));
        }
        // What follows by itself comes before any byte that is chosen.
        if at.grammar.is_endless(&mut at.parser) {
            continue;
        }
        let forced = at.parser.force_bytes();
        if !forced.is_empty() {
            copied += forced.len();
            if copied <= SEARCH_BYTES && at.push_all(&forced, vocabulary)? {
                queue.push_back(at);
            }
            continue;
        }
        for &byte in at.order() {
            copied += at.text.len();
            if copied > SEARCH_BYTES {
                return Ok(None);
            }
            if !at.allows(&[byte]) {
                continue;
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
