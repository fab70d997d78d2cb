//! What can go wrong in the engine, where, and whose fault it is.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::constrain::ConstraintError;

/// A result of the engine.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Whose fault an error is, so that a caller can choose an exit code or an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request cannot be met as it was asked: change the request.
    Request,
    /// The model's file is at fault, or does not fit what was asked of it.
    File,
    /// rushlight is at fault: a broken invariant of ours.
    Bug,
}

/// What went wrong, with the values that say where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option's value is outside its range.
    #[error("{field} is {value}; it must be {expected}")]
    InvalidOption {
        /// The option's name, as the caller spells it.
        field: &'static str,
        /// The value given.
        value: String,
        /// The range or form that is accepted.
        expected: String,
    },
    /// A name is not one of a closed set.
    #[error("unknown {field} '{value}'; valid: {}", valid.join(", "))]
    UnknownName {
        /// What the name names.
        field: &'static str,
        /// The name given.
        value: String,
        /// Every valid name.
        valid: Vec<&'static str>,
    },
    /// The prompt has more tokens than the context holds.
    #[error("the prompt has {prompt} tokens; the context holds {context}")]
    ContextOverflow {
        /// Tokens in the prompt.
        prompt: usize,
        /// Tokens the context holds.
        context: usize,
    },
    /// There is no token to start from.
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    /// A token id is not in the vocabulary.
    #[error(
        "token {token} at position {position} of {what} is outside the vocabulary of {vocab} ids"
    )]
    TokenOutOfRange {
        /// Which tokens were given.
        what: &'static str,
        /// The id given.
        token: u32,
        /// Ids in the vocabulary: valid ones are `0..vocab`.
        vocab: usize,
        /// Where the token stands in the tokens given.
        position: usize,
    },
    /// A forward pass gave a logit that is not a number.
    #[error("the logit of token {token} is NaN; the weights are damaged or a kernel is wrong")]
    NanLogits {
        /// The first token with such a logit.
        token: u32,
    },
    /// A forward pass gave a logit of positive infinity, which has no probability.
    #[error("the logit of token {token} is +infinity; logits must be finite or -infinity")]
    InfiniteLogits {
        /// The first token with such a logit.
        token: u32,
    },
    /// A row of logits is not as wide as the model says.
    #[error("a row of logits has {found} values; this model has {expected}")]
    LogitsWidth {
        /// Values in the row.
        found: usize,
        /// Values expected.
        expected: usize,
    },
    /// A mask has too few bits for the vocabulary.
    #[error("a mask has {found} bits; the vocabulary has {expected} ids")]
    MaskWidth {
        /// Bits in the mask.
        found: usize,
        /// Bits needed.
        expected: usize,
    },
    /// Mask, bias and vocabulary leave nothing to sample.
    #[error("no token is legal here: mask, logit bias and vocabulary leave none")]
    NoLegalToken,
    /// The engine variant cannot run this model's structure.
    #[error("engine variant '{variant}' cannot run a {structure} model: {reason}")]
    UnsupportedPlan {
        /// The variant asked for.
        variant: &'static str,
        /// The model's structure.
        structure: String,
        /// Why not, and what would do.
        reason: String,
    },
    /// The model's functions are not those of any structure this engine runs.
    #[error("the model's functions fit no known structure ({reason}); it has: {}", functions.join(", "))]
    UnknownStructure {
        /// The functions found.
        functions: Vec<String>,
        /// What is missing or malformed.
        reason: String,
    },
    /// The constraint failed; the cause is in `source()`.
    #[error("the constraint cannot be kept")]
    Constraint {
        /// Whose fault the cause is.
        fault: Fault,
    },
    /// A limit ended an answer that its constraint does not allow to end there.
    #[error("the answer is not whole: it was cut by {limit} before its constraint allowed an end")]
    Unfinished {
        /// `max_tokens` or `context`.
        limit: &'static str,
    },
    /// The backend failed; the cause is in `source()`.
    #[error("the backend failed")]
    Backend {
        /// Whose fault the cause is.
        fault: Fault,
    },
    /// Loading failed; the cause is in `source()`.
    #[error("loading {what} failed")]
    Load {
        /// What was being loaded.
        what: String,
        /// Whose fault the cause is.
        fault: Fault,
    },
    /// The thread that was loading panicked; those who waited for it get this.
    #[error("loading stopped in a panic of the loading thread")]
    LoadPanicked,
    /// A load asked for the very thing it is loading, which would wait for itself for ever.
    #[error("a load asked for what it is itself loading")]
    LoadReentered,
    /// The sequence or engine is in use by another generation.
    #[error("busy: {what} is in use by another generation")]
    Busy {
        /// What is in use.
        what: &'static str,
    },
}

/// An error of the engine: a [kind](ErrorKind) and, where another layer failed, its cause.
///
/// Cloning is cheap and shares the cause: everyone who waits for one load gets the same error.
#[derive(Debug, Clone)]
pub struct EngineError {
    kind: Box<ErrorKind>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl EngineError {
    /// An option outside its range; `expected` completes "it must be …".
    pub fn invalid_option(
        field: &'static str,
        value: impl fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        let value = value.to_string();
        let expected = expected.into();
        ErrorKind::InvalidOption {
            field,
            value,
            expected,
        }
        .into()
    }

    /// A name outside a closed set, with the whole set.
    pub fn unknown_name(
        field: &'static str,
        value: impl Into<String>,
        valid: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let value = value.into();
        let valid = valid.into_iter().collect();
        ErrorKind::UnknownName {
            field,
            value,
            valid,
        }
        .into()
    }

    /// A failure of the backend, with its cause.
    pub fn backend(fault: Fault, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::from(ErrorKind::Backend { fault }).with_source(source)
    }

    /// A failure to load `what` (a path or a name), with its cause.
    pub fn load(
        what: impl fmt::Display,
        fault: Fault,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let what = what.to_string();
        Self::from(ErrorKind::Load { what, fault }).with_source(source)
    }

    /// The same error with `source` as its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match *self.kind {
            ErrorKind::InvalidOption { .. }
            | ErrorKind::UnknownName { .. }
            | ErrorKind::ContextOverflow { .. }
            | ErrorKind::EmptyPrompt
            | ErrorKind::TokenOutOfRange { .. }
            | ErrorKind::NoLegalToken
            | ErrorKind::UnsupportedPlan { .. }
            | ErrorKind::Unfinished { .. }
            | ErrorKind::Busy { .. } => Fault::Request,
            // Checks at load read shapes, not values: damaged weights show here.
            ErrorKind::UnknownStructure { .. }
            | ErrorKind::NanLogits { .. }
            | ErrorKind::InfiniteLogits { .. } => Fault::File,
            ErrorKind::LogitsWidth { .. }
            | ErrorKind::MaskWidth { .. }
            | ErrorKind::LoadPanicked
            | ErrorKind::LoadReentered => Fault::Bug,
            ErrorKind::Backend { fault }
            | ErrorKind::Constraint { fault }
            | ErrorKind::Load { fault, .. } => fault,
        }
    }
}

impl From<ConstraintError> for EngineError {
    fn from(error: ConstraintError) -> Self {
        let fault = error.fault();
        Self::from(ErrorKind::Constraint { fault }).with_source(error.into_cause())
    }
}

impl From<ErrorKind> for EngineError {
    fn from(kind: ErrorKind) -> Self {
        Self {
            kind: Box::new(kind),
            source: None,
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_field_value_and_range() {
        let e = EngineError::invalid_option("top_p", 1.5, "above 0 and at most 1");
        assert_eq!(
            e.to_string(),
            "top_p is 1.5; it must be above 0 and at most 1"
        );
        assert_eq!(e.fault(), Fault::Request);
        let e = EngineError::unknown_name("stage", "top_q", ["top_k", "top_p"]);
        assert_eq!(e.to_string(), "unknown stage 'top_q'; valid: top_k, top_p");
    }

    #[test]
    fn the_cause_is_kept_and_shared_by_clones() {
        let io = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "short read");
        let e = EngineError::load("model.gguf", Fault::File, io);
        assert_eq!(e.to_string(), "loading model.gguf failed");
        assert_eq!(e.fault(), Fault::File);
        let copy = e.clone();
        let cause = copy
            .source()
            .unwrap()
            .downcast_ref::<std::io::Error>()
            .unwrap();
        assert_eq!(cause.to_string(), "short read");
    }

    #[test]
    fn errors_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}
        check::<EngineError>();
    }
}
