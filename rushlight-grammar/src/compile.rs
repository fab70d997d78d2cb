//! Compiling sources: on a thread of its own, within a time, cached by source.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use llguidance::api::GrammarInit;
use llguidance::{Logger, TokenParser};
use rushlight_engine::CancelToken;
use toktrie::InferenceCapabilities;

use crate::budget::DEFAULT_RESERVE;
use crate::close::{self, Closers};
use crate::endless;
use crate::error::{GrammarError, GrammarErrorKind, GrammarReport, Place, Result};
use crate::json_schema::SchemaOptions;
use crate::limits::{self, Limits};
use crate::lower::Guard;
use crate::matcher::Matcher;
use crate::small;
use crate::source::{self, GrammarSource};
use crate::strings::BoundedStrings;
use crate::vocabulary::Vocabulary;
use crate::worker::{CANCEL_POLL, Deliver, Workers};

/// Parsers kept for the next sequence, a grammar.
const IDLE_PARSERS: usize = 4;
/// A parser whose lexer has grown beyond this is not kept, in bytes.
const IDLE_PARSER_BYTES: usize = 32 << 20;
/// Masks kept a grammar.
const MEMO_MASKS: usize = 128;

/// Compiles sources for one vocabulary, and keeps what it compiled.
///
/// Cheap to clone; clones share the cache.
#[derive(Clone)]
pub struct Compiler {
    shared: Arc<Shared>,
}

struct Shared {
    vocabulary: Arc<Vocabulary>,
    limits: Limits,
    schema: SchemaOptions,
    cache: Mutex<Cache>,
    workers: Arc<Workers>,
}

impl Compiler {
    /// A compiler with an empty cache.
    pub fn new(vocabulary: Arc<Vocabulary>, limits: Limits, schema: SchemaOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                vocabulary,
                limits,
                schema,
                cache: Mutex::default(),
                workers: Arc::default(),
            }),
        }
    }

    /// The vocabulary that grammars are compiled for.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.shared.vocabulary
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Compiles `source`, or finds it in the cache.
    ///
    /// What takes more than milliseconds is done on another thread; this one waits. When the time is up or `cancel` is raised the
    /// caller gets its error at once, and the thread ends at its next limit.
    ///
    /// # Errors
    /// A report of every problem of the source; [`GrammarErrorKind::Limit`], [`GrammarErrorKind::TimedOut`] and
    /// [`GrammarErrorKind::Cancelled`].
    pub fn compile(
        &self,
        source: &GrammarSource,
        cancel: &CancelToken,
    ) -> Result<Arc<CompiledGrammar>, GrammarReport> {
        limits::check_cancelled(cancel)?;
        let shared = &self.shared;
        if let GrammarSource::JsonSchema(document) | GrammarSource::StructuralTag(document) = source
        {
            shared.limits.check_depth(document)?;
        }
        let key = source.cache_key();
        if let Some(found) = lock(&shared.cache).find(&key) {
            return Ok(found);
        }
        shared.limits.check_bytes(key.len())?;
        let compiled = match self.compile_here(source, key.len(), cancel) {
            Some(done) => Arc::new(done?),
            None => Arc::new(self.compile_elsewhere(source, cancel)?),
        };
        lock(&shared.cache).keep(key, &compiled, shared.limits.cache_bytes);
        Ok(compiled)
    }

    /// Compiles a source of `bytes` bytes on this thread; `None` where that may take long.
    fn compile_here(
        &self,
        source: &GrammarSource,
        bytes: usize,
        cancel: &CancelToken,
    ) -> Option<Result<CompiledGrammar, GrammarReport>> {
        let shared = &self.shared;
        let (limits, schema) = small::limits(source, bytes, &shared.limits, &shared.schema)?;
        match build(shared, (&limits, &schema), source, cancel) {
            Err(report)
                if report
                    .problems()
                    .any(|p| p.kind() == GrammarErrorKind::Limit) =>
            {
                None
            }
            done => Some(done),
        }
    }

    /// Compiles a source on another thread, and waits for it.
    fn compile_elsewhere(
        &self,
        source: &GrammarSource,
        cancel: &CancelToken,
    ) -> Result<CompiledGrammar, GrammarReport> {
        let shared = &self.shared;
        let deadline = Instant::now().checked_add(shared.limits.compile_time);
        let (send, receive) = mpsc::sync_channel(1);
        let job = {
            let shared = shared.clone();
            let source = source.clone();
            let cancel = cancel.clone();
            Box::new(move || {
                let limits = (&shared.limits, &shared.schema);
                let built = build(&shared, limits, &source, &cancel);
                // The receiver is gone where the caller gave up.
                Box::new(move || drop(send.send(built))) as Deliver
            })
        };
        shared.workers.run(job, deadline, cancel)?;
        loop {
            match receive.recv_timeout(CANCEL_POLL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {
                    limits::check_cancelled(cancel)?;
                    if deadline.is_some_and(|at| Instant::now() >= at) {
                        return Err(timed_out(&shared.limits).into());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(GrammarError::new(
                        GrammarErrorKind::Internal,
                        "the compiling thread ended without an answer",
                    )
                    .into());
                }
            }
        }
    }

    /// Bytes that the cache holds now, by its own estimate.
    pub fn cached_bytes(&self) -> usize {
        lock(&self.shared.cache).bytes
    }
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler")
            .field("vocabulary", &self.shared.vocabulary)
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

fn timed_out(limits: &Limits) -> GrammarError {
    GrammarError::new(
        GrammarErrorKind::TimedOut,
        format!(
            "compiling took longer than {} ms",
            limits.compile_time.as_millis()
        ),
    )
}

/// What the engine's own words for a panic begin with.
const PANIC: &str = "panic: ";

/// Compiles, whatever happens: a panic is an error.
fn build(
    shared: &Shared,
    limits: (&Limits, &SchemaOptions),
    source: &GrammarSource,
    cancel: &CancelToken,
) -> Result<CompiledGrammar, GrammarReport> {
    let done = llguidance::panic_utils::catch_unwind(AssertUnwindSafe(|| {
        Ok(build_guarded(shared, limits, source, cancel))
    }));
    match done {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.to_string();
            let reason = text.lines().next().unwrap_or_default();
            Err(failed(reason.strip_prefix(PANIC).unwrap_or(reason)).into())
        }
    }
}

fn build_guarded(
    shared: &Shared,
    (limits, schema): (&Limits, &SchemaOptions),
    source: &GrammarSource,
    cancel: &CancelToken,
) -> Result<CompiledGrammar, GrammarReport> {
    let lowered = source::lower(source, Some(&shared.vocabulary), limits, schema)?;
    limits::check_cancelled(cancel)?;
    let parser = start(shared, limits, lowered.grammar)?;
    limits::check_cancelled(cancel)?;
    // Lexer tables, and as much again for the grammar beside them.
    let bytes = parser
        .parser
        .lexer_stats()
        .num_bytes
        .saturating_mul(2)
        .saturating_add(16 << 10);
    Ok(CompiledGrammar {
        vocabulary: shared.vocabulary.clone(),
        limits: shared.limits.clone(),
        guards: lowered.guards,
        minimal: lowered.minimal,
        closers: Closers::new(lowered.closers),
        may_be_endless: lowered.may_be_endless,
        strings: BoundedStrings::new(lowered.strings),
        shortest: OnceLock::new(),
        master: Mutex::new(parser),
        broken: OnceLock::new(),
        idle: Mutex::default(),
        memo: Memo::default(),
        bytes,
    })
}

/// Makes the parser that every matcher is a copy of.
fn start(shared: &Shared, limits: &Limits, grammar: GrammarInit) -> Result<TokenParser> {
    let made = shared.vocabulary.factory().create_parser_from_init_ext(
        grammar,
        Logger::new(0, 0),
        InferenceCapabilities::default(),
        limits.engine(),
    );
    let mut parser = made.map_err(|e| engine_error(&e.to_string(), ""))?;
    parser.start_without_prompt();
    Ok(parser)
}

/// What the engine says of the Lark grammar `source`, empty for another: a line that may begin with the place, as in `at 3(7): …`,
/// and for a pattern a drawing of it, under which a line says what is wrong.
pub(crate) fn engine_error(text: &str, source: &str) -> GrammarError {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or("");
    if let Some(reason) = first.strip_prefix(PANIC) {
        return failed(reason);
    }
    let (place, first) = match engine_place(first, source) {
        Some((place, rest)) => (Some(place), rest),
        None => (None, first),
    };
    let drawn = lines.find_map(|line| line.trim_start().strip_prefix("error: "));
    let message = match drawn {
        Some(reason) => format!("{} {reason}", first.trim_end()),
        None if first.starts_with("fuel ") => format!("the expressions are too large: {first}"),
        None => first.to_owned(),
    };
    let error = GrammarError::new(kind_of(text), message);
    match place {
        Some(place) => error.with_place(place),
        None => error,
    }
}

/// What a panic of the engine over a source tells.
fn failed(reason: &str) -> GrammarError {
    // Symbols have numbers of 16 bits; those of a Lark grammar are counted nowhere else.
    if reason.contains("symbols.len() < u16::MAX") {
        let message = "the grammar has more symbols than the mask engine can number";
        return GrammarError::new(GrammarErrorKind::Limit, message);
    }
    let message = format!("the mask engine failed over this source: {reason}");
    GrammarError::new(GrammarErrorKind::Internal, message)
}

/// The place in `source` that a message of the engine begins with, and the rest of it. The engine's columns count bytes.
fn engine_place<'m>(message: &'m str, source: &str) -> Option<(Place, &'m str)> {
    let at = message.strip_prefix("at ").unwrap_or(message);
    let (place, rest) = at.split_once("): ")?;
    let (line, column) = place.split_once('(')?;
    let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
    let text = source.lines().nth(line.saturating_sub(1)).unwrap_or("");
    let inside = text
        .char_indices()
        .filter(|&(byte, c)| byte + c.len_utf8() < column);
    let beyond = column.saturating_sub(text.len() + 1);
    let place = Place::Text {
        rule: None,
        line,
        column: inside.count() + 1 + beyond,
    };
    Some((place, rest))
}

/// The engine reports in prose; its limits say so.
pub(crate) fn kind_of(message: &str) -> GrammarErrorKind {
    const LIMITS: [&str; 7] = [
        "too big",
        "too large",
        "too many",
        "too complex",
        "too deeply",
        "limit",
        "fuel exhausted",
    ];
    // Below it the source is quoted.
    let lower = message.lines().next().unwrap_or("").to_lowercase();
    if LIMITS.iter().any(|l| lower.contains(l)) {
        GrammarErrorKind::Limit
    } else if lower.contains("unsatisfiable") {
        GrammarErrorKind::Unsatisfiable
    } else {
        GrammarErrorKind::Invalid
    }
}

/// A compiled source: shared by every sequence that follows it.
pub struct CompiledGrammar {
    vocabulary: Arc<Vocabulary>,
    limits: Limits,
    guards: Vec<Arc<dyn Guard>>,
    minimal: Option<String>,
    closers: Closers,
    may_be_endless: bool,
    strings: BoundedStrings,
    // With the order of closers that found it.
    shortest: OnceLock<Option<(Vec<u8>, usize)>>,
    master: Mutex<TokenParser>,
    // What broke the master on its first mask: it would break every copy.
    broken: OnceLock<GrammarError>,
    idle: Mutex<Vec<TokenParser>>,
    memo: Memo,
    bytes: usize,
}

impl CompiledGrammar {
    /// A matcher at the start.
    pub fn matcher(self: &Arc<Self>) -> Matcher {
        Matcher::new(self.clone())
    }

    /// A parser at the start: one with the lexer of a sequence that is done, else a copy of the compiled one.
    ///
    /// # Errors
    /// Those of [`copy`](Self::copy).
    pub(crate) fn parser(&self) -> Result<TokenParser> {
        let idle = lock(&self.idle).pop();
        idle.map_or_else(|| self.copy(), Ok)
    }

    /// A copy of the compiled parser.
    ///
    /// # Errors
    /// That of its first mask, where it broke.
    fn copy(&self) -> Result<TokenParser> {
        let master = lock(&self.master);
        match self.broken.get() {
            Some(error) => Err(error.clone()),
            None => Ok(master.deep_clone()),
        }
    }

    /// Runs `call` on the parser that all are copied from. It must leave it at the start.
    ///
    /// # Errors
    /// Its own, which is every later one too: a parser that broke stays so.
    pub(crate) fn at_start<T>(
        &self,
        call: impl FnOnce(&mut TokenParser) -> Result<T>,
    ) -> Result<T> {
        let mut master = lock(&self.master);
        if let Some(error) = self.broken.get() {
            return Err(error.clone());
        }
        let done = call(&mut master);
        if let Err(error) = &done {
            self.broken.get_or_init(|| error.clone());
        }
        done
    }

    /// The vocabulary it was compiled for.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// The limits it was compiled under.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The rules beside the grammar.
    pub fn guards(&self) -> &[Arc<dyn Guard>] {
        &self.guards
    }

    /// Tokens of a short whole answer: what a token budget keeps back. [`DEFAULT_RESERVE`] where none is known.
    pub fn reserve(&self) -> usize {
        self.shortest().map_or(DEFAULT_RESERVE, |text| {
            close::token_count(&self.vocabulary, text)
        })
    }

    /// A short whole answer, where one was found.
    pub(crate) fn shortest(&self) -> Option<&[u8]> {
        self.find_shortest().map(|(text, _)| text.as_slice())
    }

    /// The order of closers with which a sequence begins.
    pub(crate) fn first_order(&self) -> usize {
        self.find_shortest().map_or(0, |(_, order)| *order)
    }

    fn find_shortest(&self) -> Option<&(Vec<u8>, usize)> {
        let find = || {
            if let Some(text) = &self.minimal {
                return Some((text.clone().into_bytes(), 0));
            }
            let mut parser = self.copy().ok()?;
            // Whatever the first mask left, the search has as much to spend.
            close::refill(&mut parser, self.vocabulary.trie());
            let guards = self.guards.iter().map(|g| g.begin()).collect();
            let mut order = 0;
            let found = llguidance::panic_utils::catch_unwind(AssertUnwindSafe(|| {
                Ok(close::completion(&parser, guards, &[], self, &mut order))
            }));
            let text: Option<Vec<u8>> = found.ok()?.ok()?;
            Some((text?, order))
        };
        self.shortest.get_or_init(find).as_ref()
    }

    /// Bytes that it holds, by estimate, without its masks and what its sequences add.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn closers(&self) -> &Closers {
        &self.closers
    }

    /// Whether nothing but one text without an end may follow where `parser` stands.
    pub(crate) fn is_endless(&self, parser: &mut TokenParser) -> bool {
        self.may_be_endless && endless::is_endless(parser, &self.vocabulary)
    }

    pub(crate) fn strings(&self) -> &BoundedStrings {
        &self.strings
    }

    pub(crate) fn memo(&self) -> &Memo {
        &self.memo
    }

    /// Takes back the parser of a matcher that accepted `tokens` tokens.
    pub(crate) fn give_back(&self, mut parser: TokenParser, tokens: usize) {
        let stats = parser.parser.lexer_stats();
        if stats.error || stats.num_bytes > IDLE_PARSER_BYTES {
            return;
        }
        let reset = llguidance::panic_utils::catch_unwind(AssertUnwindSafe(|| {
            parser.rollback(tokens)?;
            parser.invalidate_bias_cache();
            Ok(())
        }));
        if reset.is_err() || parser.stopped() {
            return;
        }
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_PARSERS {
            idle.push(parser);
        }
    }
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledGrammar")
            .field("guards", &self.guards.len())
            .field("minimal", &self.minimal)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// A mask over the ids of the trie, and whether the text may end.
type KnownMask = (Vec<u32>, bool);

/// Masks near the start, which every sequence of a grammar passes again. The tokens tell the state; the text alone does not, as
/// a grammar may count tokens.
#[derive(Default)]
pub(crate) struct Memo {
    // By tokens; `None` where they were met once, which pays for no copy.
    masks: Mutex<HashMap<Vec<u32>, Option<KnownMask>>>,
}

impl Memo {
    /// The mask after `tokens`, where it is known.
    pub(crate) fn get(&self, tokens: &[u32]) -> Option<KnownMask> {
        lock(&self.masks).get(tokens)?.clone()
    }

    /// Keeps the mask after `tokens`, at once where there are none, as every sequence starts so, and else from the second time
    /// on, while there is room.
    pub(crate) fn keep(&self, tokens: &[u32], mask: &KnownMask) {
        let mut masks = lock(&self.masks);
        if let Some(met) = masks.get_mut(tokens) {
            met.get_or_insert_with(|| mask.clone());
        } else if masks.len() < MEMO_MASKS {
            masks.insert(tokens.to_vec(), tokens.is_empty().then(|| mask.clone()));
        }
    }
}

/// Compiled grammars in order of last use.
#[derive(Default)]
struct Cache {
    entries: HashMap<String, Entry>,
    bytes: usize,
    clock: u64,
}

struct Entry {
    grammar: Arc<CompiledGrammar>,
    bytes: usize,
    used: u64,
}

impl Cache {
    fn find(&mut self, key: &str) -> Option<Arc<CompiledGrammar>> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(entry.grammar.clone())
    }

    fn keep(&mut self, key: String, grammar: &Arc<CompiledGrammar>, budget: usize) {
        // Idle parsers and masks come on top of what was compiled.
        let masks = MEMO_MASKS * grammar.vocabulary.trie().vocab_size().div_ceil(8);
        let bytes = grammar.bytes * (1 + IDLE_PARSERS) + masks + key.len();
        if bytes > budget {
            return;
        }
        while self.bytes + bytes > budget {
            let Some(oldest) = self
                .entries
                .iter()
                .min_by_key(|(_, e)| e.used)
                .map(|(k, _)| k.clone())
            else {
                break;
            };
            if let Some(gone) = self.entries.remove(&oldest) {
                self.bytes -= gone.bytes;
            }
        }
        self.clock += 1;
        let entry = Entry {
            grammar: grammar.clone(),
            bytes,
            used: self.clock,
        };
        self.bytes += bytes;
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.bytes;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these hold is whole between calls.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
