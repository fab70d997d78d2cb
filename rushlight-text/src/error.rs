//! The crate's one error type.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// A result whose error is a [`TextError`].
pub type Result<T, E = TextError> = std::result::Result<T, E>;

/// What went wrong, in a form that a program can match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TextErrorKind {
    /// A file could not be read.
    Io,
    /// A tokenizer file, vocabulary or configuration contradicts its own format.
    Malformed,
    /// A component that the file asks for (a model type, a decoder, a pre-tokenizer name) is not implemented.
    Unsupported,
    /// A file, text or template result is larger than the stated limit.
    TooLarge,
    /// A token id is not in the vocabulary.
    UnknownToken,
    /// The vocabulary cannot spell the text.
    Unspellable,
    /// The template's source is not valid Jinja.
    TemplateSyntax,
    /// The template called `raise_exception`; [`TextError::message`] is what it said, word for word.
    TemplateRaised,
    /// The template calls a method, filter, test or function that does not exist here.
    TemplateUnsupported,
    /// An expression of the template failed.
    TemplateFailed,
    /// An expression of the template failed on what it was given: null, missing or structured content, tools or
    /// variables. The same roles with plain text render.
    TemplateRejected,
    /// The template ran past its limit of work or of output.
    TemplateLimit,
    /// No template of the wanted name is there.
    TemplateMissing,
    /// The messages, tools or variables given to a template have the wrong shape.
    InvalidInput,
}

/// An error of this crate: kind, message, place and cause.
#[derive(Debug, thiserror::Error)]
pub struct TextError {
    kind: TextErrorKind,
    message: String,
    place: Option<Place>,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Where an error is: a file or a template, and a line and column (both from 1) where known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A file's path, or a template's name.
    pub name: PathBuf,
    /// Line and column, both counted from 1; the column counts characters.
    pub line_column: Option<(usize, usize)>,
}

impl TextError {
    /// An error with a message and no place yet.
    pub(crate) fn new(kind: TextErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            place: None,
            source: None,
        }
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(TextErrorKind::Malformed, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(TextErrorKind::Unsupported, message)
    }

    /// The error of a template as one of the request that it was given.
    pub(crate) fn rejected(mut self, why: &str) -> Self {
        self.kind = TextErrorKind::TemplateRejected;
        self.message = format!("{}; {why}", self.message);
        self
    }

    /// Names the file, keeping a line and column that are already known.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        let line_column = self.place.take().and_then(|place| place.line_column);
        self.place = Some(Place {
            name: path.to_owned(),
            line_column,
        });
        self
    }

    pub(crate) fn at(mut self, name: &str, line_column: Option<(usize, usize)>) -> Self {
        self.place = Some(Place {
            name: name.into(),
            line_column,
        });
        self
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> TextErrorKind {
        self.kind
    }

    /// The message without place or kind. For [`TextErrorKind::TemplateRaised`], the template's own words.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where it went wrong, if known.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{}", place.name.display())?;
            if let Some((line, column)) = place.line_column {
                write!(f, ":{line}:{column}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}
