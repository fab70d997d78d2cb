//! Answers of a guaranteed shape: grammars compiled for a model's tokenizer.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rushlight_engine::CancelToken;
use rushlight_engine::constrain::Constraint;
use rushlight_grammar::{
    AfterMarker, Compiler, GrammarReport, Limits, TokenEntry, TokenTable, Vocabulary,
};
use rushlight_text::{Specials, Tokenizer};

use super::text::Text;
use crate::error::{SessionError, SessionErrorKind};
use crate::options::GenerationOptions;

/// The compiler of one model's grammars, made when the first one is asked for.
#[derive(Default)]
pub(super) struct Grammars {
    compiler: Mutex<Option<Compiler>>,
}

impl Grammars {
    /// The compiler, over the model's tokenizer, rows of `logits` values and all its stop ids.
    pub(super) fn compiler(
        &self,
        text: &Text,
        logits: usize,
        stop_ids: &[u32],
    ) -> Result<Compiler, SessionError> {
        // A failure is not kept, and what is kept is whole.
        let mut made = self.compiler.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiler) = &*made {
            return Ok(compiler.clone());
        }
        let vocabulary = vocabulary(text.tokenizer(), logits, stop_ids)?;
        let compiler = Compiler::new(vocabulary, Limits::default(), Default::default());
        Ok(made.insert(compiler).clone())
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grammars")
    }
}

/// A tokenizer's table for [`Compiler`]s: every id with its bytes, for rows of `logits` values.
///
/// Ids past the row (control tokens without an embedding) are left out: they are never sampled.
///
/// # Errors
/// [`SessionErrorKind::Grammar`] where the tokens do not fit the limits of the mask engine.
pub fn vocabulary(
    tokenizer: &Tokenizer,
    logits: usize,
    stop_ids: &[u32],
) -> Result<Arc<Vocabulary>, SessionError> {
    let ids = tokenizer.vocab_size().min(logits);
    let entry = |id: u32| match tokenizer.token_bytes(id) {
        _ if tokenizer.is_unused(id) => TokenEntry::Unused,
        None | Some([]) => TokenEntry::Unused,
        Some(bytes) if tokenizer.is_control(id) => {
            TokenEntry::Control(String::from_utf8_lossy(bytes).into_owned())
        }
        Some(bytes) => TokenEntry::Text(bytes.to_vec()),
    };
    let spelling = tokenizer.clone();
    let stop_ids = stop_ids.iter().copied();
    let table = TokenTable {
        identity: String::new(),
        // Tokenizers keep their ids below 2^24.
        tokens: (0..ids as u32).map(entry).collect(),
        stop_ids: stop_ids.filter(|&id| (id as usize) < ids).collect(),
        logits,
        // Text without a spelling is spelled as nothing, which the matcher sees and forces nothing.
        encode: Some(Arc::new(move |text| {
            spelling.encode(text, Specials::AsText).unwrap_or_default()
        })),
    };
    Ok(Vocabulary::new(table).map_err(GrammarReport::from)?)
}

/// What follows an answer made with `options`, where they have a grammar.
pub(super) fn constraint(
    options: &GenerationOptions,
    cancel: &CancelToken,
    compiler: impl FnOnce() -> Result<Compiler, SessionError>,
) -> Result<Option<Box<dyn Constraint>>, SessionError> {
    let Some(source) = &options.grammar else {
        if options.sample_forced {
            return Err(SessionError::new(
                SessionErrorKind::InvalidOption {
                    field: "sample_forced",
                },
                "sample_forced is set, but no grammar is given",
            ));
        }
        return match &options.grammar_after {
            None => Ok(None),
            Some(marker) => Err(SessionError::new(
                SessionErrorKind::InvalidOption {
                    field: "grammar_after",
                },
                format!("grammar_after is {marker:?}, but no grammar is given"),
            )),
        };
    };
    let compiler = compiler()?;
    let matcher = compiler.compile(source, cancel)?.matcher();
    let Some(marker) = &options.grammar_after else {
        return Ok(Some(Box::new(matcher)));
    };
    let id = compiler.vocabulary().control_token(marker).ok_or_else(|| {
        SessionError::new(
            SessionErrorKind::InvalidOption {
                field: "grammar_after",
            },
            format!("grammar_after is {marker:?}, which is no control token of the model"),
        )
    })?;
    let after = AfterMarker::new(matcher, id).map_err(|error| {
        SessionError::new(
            SessionErrorKind::InvalidOption {
                field: "grammar_after",
            },
            format!(
                "grammar_after is {marker:?}, which ends an answer and so cannot come before one"
            ),
        )
        .with_source(error)
    })?;
    Ok(Some(Box::new(after)))
}
