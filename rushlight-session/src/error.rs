//! The crate's error: what went wrong, whose fault it is, and the layer below's own words.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use rushlight_asset::AssetError;
use rushlight_asset::error::ErrorKind as AssetErrorKind;
use rushlight_engine::{EngineError, ErrorKind as EngineErrorKind, Fault};
use rushlight_grammar::{GrammarErrorKind, GrammarReport};
use rushlight_ir::IrError;
use rushlight_ir::backend::{BackendError, BackendErrorKind};
use rushlight_text::{TextError, TextErrorKind};

/// What went wrong, in a form that a program can match on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionErrorKind {
    /// The checkpoint could not be opened or read.
    Checkpoint,
    /// The architecture is unknown, or configuration and tensors do not fit it.
    Architecture,
    /// The backend could not prepare the model.
    Backend,
    /// The tokenizer could not be built.
    Tokenizer,
    /// The checkpoint has no tokenizer.
    NoTokenizer,
    /// The tokenizer has ids that the embedding table has no row for.
    VocabularyMismatch {
        /// Ids of the tokenizer.
        tokenizer: usize,
        /// Rows of the embedding table.
        rows: usize,
    },
    /// The model's own sampling defaults are out of range.
    GenerationDefaults,
    /// The model has no chat template, so messages cannot be put into its form.
    NoTemplate,
    /// The chat template failed or refused, in its own words.
    Template,
    /// The chat template has no place for instructions.
    InstructionsUnsupported,
    /// Text that the tokenizer cannot spell.
    Unspellable,
    /// The prompt has no text.
    EmptyPrompt,
    /// The conversation has more tokens than the context holds.
    ContextOverflow {
        /// Tokens of the conversation, the prompt included.
        prompt: usize,
        /// Tokens the context holds.
        context: usize,
    },
    /// An option's value is outside its range.
    InvalidOption {
        /// The option's name.
        field: &'static str,
    },
    /// A grammar is not one, or asks for what cannot be enforced; or it could not be kept.
    Grammar,
    /// A limit cut an answer before its grammar allowed an end.
    Unfinished,
    /// The transcript is not one.
    Transcript,
    /// Running the model failed.
    Engine,
    /// A turn, or the compiling of a grammar, was cancelled.
    Cancelled,
    /// No thread could be started to run a turn on.
    Thread,
    /// The executor panicked; the next turn gets a fresh one.
    Panicked,
}

/// An error of a session or of loading a model.
///
/// Displays as one sentence that holds the causes' own words; the causes themselves are the
/// [`source`](Error::source) chain. Cloning is cheap: everyone who waits for one load gets the same
/// error.
#[derive(Clone)]
pub struct SessionError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: SessionErrorKind,
    fault: Fault,
    message: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl SessionError {
    /// An error of this kind, with the fault that such errors usually are.
    pub fn new(kind: SessionErrorKind, message: impl Into<String>) -> SessionError {
        let fault = match kind {
            SessionErrorKind::Checkpoint
            | SessionErrorKind::Architecture
            | SessionErrorKind::Backend
            | SessionErrorKind::Tokenizer
            | SessionErrorKind::NoTokenizer
            | SessionErrorKind::VocabularyMismatch { .. }
            | SessionErrorKind::GenerationDefaults => Fault::File,
            SessionErrorKind::Engine | SessionErrorKind::Panicked => Fault::Bug,
            _ => Fault::Request,
        };
        SessionError(Box::new(Inner {
            kind,
            fault,
            message: message.into(),
            source: None,
        }))
    }

    /// The same error with another one at fault than its kind alone tells.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> SessionError {
        self.0.fault = fault;
        self
    }

    /// The same error with `source` as its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> SessionError {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &SessionErrorKind {
        &self.0.kind
    }

    /// Whose fault it is, for exit codes and HTTP statuses.
    pub fn fault(&self) -> Fault {
        self.0.fault
    }

    /// An error of the text crate, met while the tokenizer was built.
    pub(crate) fn tokenizer(error: TextError) -> SessionError {
        SessionError::wrap(SessionErrorKind::Tokenizer, Fault::File, error)
    }

    /// An error of the text crate, met while messages were put into the model's form.
    pub(crate) fn template(error: TextError) -> SessionError {
        let (kind, fault) = match error.kind() {
            // The template says, or shows, that this conversation is not for it.
            TextErrorKind::TemplateRaised | TextErrorKind::TemplateRejected => {
                (SessionErrorKind::Template, Fault::Request)
            }
            TextErrorKind::TooLarge | TextErrorKind::Unspellable => {
                (SessionErrorKind::Unspellable, Fault::Request)
            }
            TextErrorKind::InvalidInput => (SessionErrorKind::Template, Fault::Bug),
            _ => (SessionErrorKind::Template, Fault::File),
        };
        SessionError::wrap(kind, fault, error)
    }

    fn wrap(
        kind: SessionErrorKind,
        fault: Fault,
        source: impl Error + Send + Sync + 'static,
    ) -> SessionError {
        SessionError::new(kind, sentence(&source))
            .with_fault(fault)
            .with_source(source)
    }
}

impl From<AssetError> for SessionError {
    fn from(error: AssetError) -> SessionError {
        let fault = match error.kind() {
            AssetErrorKind::Usage => Fault::Request,
            _ => Fault::File,
        };
        SessionError::wrap(SessionErrorKind::Checkpoint, fault, error)
    }
}

impl From<IrError> for SessionError {
    fn from(error: IrError) -> SessionError {
        SessionError::wrap(SessionErrorKind::Architecture, Fault::File, error)
    }
}

impl From<BackendError> for SessionError {
    fn from(error: BackendError) -> SessionError {
        let fault = match error.kind() {
            BackendErrorKind::Option | BackendErrorKind::OutOfMemory => Fault::Request,
            BackendErrorKind::Graph | BackendErrorKind::Asset => Fault::File,
            _ => Fault::Bug,
        };
        SessionError::wrap(SessionErrorKind::Backend, fault, error)
    }
}

impl From<EngineError> for SessionError {
    fn from(error: EngineError) -> SessionError {
        // A shared load carries its loader's own error.
        let own = error
            .source()
            .and_then(|source| source.downcast_ref::<SessionError>());
        if let Some(own) = own {
            return own.clone();
        }
        let kind = match *error.kind() {
            EngineErrorKind::ContextOverflow { prompt, context } => {
                SessionErrorKind::ContextOverflow { prompt, context }
            }
            EngineErrorKind::EmptyPrompt => SessionErrorKind::EmptyPrompt,
            EngineErrorKind::InvalidOption { field, .. }
            | EngineErrorKind::UnknownName { field, .. } => {
                SessionErrorKind::InvalidOption { field }
            }
            EngineErrorKind::Constraint { .. } => SessionErrorKind::Grammar,
            EngineErrorKind::Unfinished { .. } => SessionErrorKind::Unfinished,
            _ => SessionErrorKind::Engine,
        };
        let fault = error.fault();
        SessionError::wrap(kind, fault, error)
    }
}

impl From<GrammarReport> for SessionError {
    fn from(report: GrammarReport) -> SessionError {
        let kind = match report.first().kind() {
            GrammarErrorKind::Cancelled => SessionErrorKind::Cancelled,
            _ => SessionErrorKind::Grammar,
        };
        let fault = report.fault();
        SessionError::wrap(kind, fault, report)
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl Error for SessionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// An error's words, then those of each cause that are not among them yet.
fn sentence(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !message.contains(&words) {
            message = format!("{message}: {words}");
        }
        cause = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_holds_the_causes_words_once() {
        let memory = BackendError::new(BackendErrorKind::OutOfMemory, "9 GiB cannot be had");
        let error = SessionError::from(EngineError::backend(Fault::Request, memory));
        assert_eq!(error.to_string(), "the backend failed: 9 GiB cannot be had");
        assert_eq!(error.fault(), Fault::Request);
        let engine = error.source().and_then(|e| e.downcast_ref::<EngineError>());
        let cause = engine.and_then(Error::source).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("9 GiB cannot be had"));
        assert_eq!(sentence(&error), error.to_string());
    }

    #[test]
    fn engine_errors_keep_their_field_and_counts() {
        let error = SessionError::from(EngineError::invalid_option("top_p", 1.5, "at most 1"));
        assert_eq!(
            error.kind(),
            &SessionErrorKind::InvalidOption { field: "top_p" }
        );
        let overflow = EngineErrorKind::ContextOverflow {
            prompt: 9,
            context: 8,
        };
        let error = SessionError::from(EngineError::from(overflow));
        assert_eq!(
            error.kind(),
            &SessionErrorKind::ContextOverflow {
                prompt: 9,
                context: 8
            }
        );
        assert_eq!(error.fault(), Fault::Request);
    }
}
