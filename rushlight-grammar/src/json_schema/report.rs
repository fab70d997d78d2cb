//! What was decided: per keyword how it is enforced, and every problem of a schema.

use std::fmt;

use crate::{GrammarError, GrammarErrorKind, GrammarReport};

/// How a keyword of a schema is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// It asserts nothing, as the specification says: an unknown `format`, an unknown keyword.
    Annotation,
    /// Every mask enforces it, as it is written.
    Grammar,
    /// Every mask enforces it, after an equivalent rewriting.
    Rewriting,
    /// A guard judges each value as it closes.
    Guard,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => "annotation",
            Self::Grammar => "grammar",
            Self::Rewriting => "rewriting",
            Self::Guard => "guard",
        })
    }
}

/// One keyword and how it is enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The JSON Pointer of the schema that holds the keyword.
    pub pointer: String,
    /// The keyword.
    pub keyword: String,
    /// How it is enforced.
    pub how: How,
    /// Why, where it is not the grammar that enforces it as it is written.
    pub reason: String,
}

/// A problem found while compiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: GrammarErrorKind,
    pub(super) pointer: String,
    pub(super) keyword: &'static str,
    pub(super) reason: String,
}

/// All `problems` as one report; `None` where there are none.
pub(super) fn report(problems: &[Problem]) -> Option<GrammarReport> {
    GrammarReport::from_problems(
        problems
            .iter()
            .map(|p| GrammarError::json(p.kind, p.pointer.clone(), p.keyword, p.reason.clone()))
            .collect(),
    )
}
