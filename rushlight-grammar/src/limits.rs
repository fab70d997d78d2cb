//! How much a source may ask for: every limit is an option, and passing one is a typed error.

use std::time::Duration;

use llguidance::api::ParserLimits;
use rushlight_engine::CancelToken;
use serde_json::Value;

use crate::error::{GrammarError, GrammarErrorKind, Result};

/// The limits of one compiler.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of a source's text, or of its JSON written compactly. Default 4 MiB.
    pub source_bytes: usize,
    /// Nesting of a source: groups of a grammar or pattern, containers of a JSON document. Default 250.
    pub depth: usize,
    /// Rules of a grammar, branches of a choice, tags of a structural tag. Default 20,000.
    pub rules: usize,
    /// The largest count in a repetition of a grammar or pattern (`{m,n}`), times those of the repetitions around it: a text may
    /// stand at as many places. Default 100,000.
    pub repeat: usize,
    /// Symbols in the productions that a source lowers to. Default 500,000.
    pub symbols: usize,
    /// Lexer states; 1 to 2 kB each. Default 250,000.
    pub lexer_states: usize,
    /// Work units of the mask engine's lexer for one compilation; about 14,000 a millisecond. Default 5,000,000.
    pub compile_lexer_work: u64,
    /// Wall time of one compilation. Default 10 s.
    pub compile_time: Duration,
    /// Bytes that the compiler's cache may hold, by what each grammar took when it was compiled; its parsers grow with use.
    /// Default 256 MiB.
    pub cache_bytes: usize,
    /// Work units of the mask engine's lexer for one mask; about 14,000 a millisecond. Default 1,000,000.
    pub mask_lexer_work: u64,
    /// Earley items made for one mask; about 20,000 a millisecond. Default 500,000.
    pub mask_items: usize,
    /// Times that guards may make one sequence go back before it fails. Default 256.
    pub rewinds: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            source_bytes: 4 << 20,
            depth: 250,
            rules: 20_000,
            repeat: 100_000,
            symbols: 500_000,
            lexer_states: 250_000,
            compile_lexer_work: 5_000_000,
            compile_time: Duration::from_secs(10),
            cache_bytes: 256 << 20,
            mask_lexer_work: 1_000_000,
            mask_items: 500_000,
            rewinds: 256,
        }
    }
}

impl Limits {
    /// The same limits in the mask engine's terms.
    pub(crate) fn engine(&self) -> ParserLimits {
        ParserLimits {
            max_items_in_row: 4000,
            initial_lexer_fuel: self.compile_lexer_work,
            step_lexer_fuel: self.mask_lexer_work,
            step_max_items: self.mask_items,
            max_lexer_states: self.lexer_states,
            max_grammar_size: self.symbols,
            // It walks the whole vocabulary while compiling, which costs more than the masks it saves.
            precompute_large_lexemes: false,
            // Errors must not carry the text of a conversation.
            verbose_errors: false,
        }
    }

    /// Refuses a source of `bytes` bytes that is over the limit.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<()> {
        if bytes > self.source_bytes {
            return Err(GrammarError::new(
                GrammarErrorKind::Limit,
                format!(
                    "the source has {bytes} bytes; the limit is {}",
                    self.source_bytes
                ),
            ));
        }
        Ok(())
    }

    /// Refuses repetitions in each other whose counts are `times` together.
    pub(crate) fn check_times(&self, times: usize) -> Result<()> {
        if times > self.repeat {
            let limit = self.repeat;
            let message = format!(
                "repetitions in each other go on more than {limit} times together, which is the limit"
            );
            return Err(GrammarError::new(GrammarErrorKind::Limit, message));
        }
        Ok(())
    }

    /// Refuses a document that is nested too deep. Everything that looks at one recurses, cloning and dropping included, so
    /// this comes first.
    pub(crate) fn check_depth(&self, document: &Value) -> Result<()> {
        let mut open = vec![(document, 0usize)];
        while let Some((value, depth)) = open.pop() {
            if depth > self.depth {
                return Err(GrammarError::new(
                    GrammarErrorKind::Limit,
                    format!("the document is nested more than {} deep", self.depth),
                ));
            }
            match value {
                Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
                Value::Object(members) => {
                    open.extend(members.values().map(|member| (member, depth + 1)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// An error once `cancel` was raised.
pub(crate) fn check_cancelled(cancel: &CancelToken) -> Result<()> {
    if cancel.is_cancelled() {
        return Err(GrammarError::new(
            GrammarErrorKind::Cancelled,
            "the compilation was cancelled",
        ));
    }
    Ok(())
}
