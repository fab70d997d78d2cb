//! The crate's one error type, and the report that holds every problem of a source.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use rushlight_engine::Fault;
use rushlight_engine::constrain::ConstraintError;

/// A result whose error is a [`GrammarError`].
pub type Result<T, E = GrammarError> = std::result::Result<T, E>;

/// What went wrong, in a form that a program can match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrammarErrorKind {
    /// The source is not well formed: bad JSON Schema, a syntax error in a grammar or a pattern.
    Invalid,
    /// The source is well formed, but asks for something that cannot be enforced; it is refused.
    Unsupported,
    /// A reference or rule name that is defined nowhere.
    Undefined,
    /// A rule or tag that is defined twice.
    Duplicate,
    /// A rule that reaches itself without consuming anything, or whose first step is itself.
    LeftRecursion,
    /// A rule, schema or source that matches no text at all.
    Unsatisfiable,
    /// A rule that the start rule never reaches.
    Unreachable,
    /// A rule that can match one text in two ways by its shape alone.
    Ambiguous,
    /// A stated limit was passed: bytes, depth, rules, states, items.
    Limit,
    /// Compilation ran past its time budget.
    TimedOut,
    /// The caller cancelled the compilation.
    Cancelled,
    /// The tokenizer's table contradicts itself.
    Vocabulary,
    /// A token that the grammar does not allow here.
    IllegalToken,
    /// A guard left no continuation, and every rewind it may take is spent.
    GuardExhausted,
    /// The token budget is smaller than the shortest answer.
    Budget,
    /// No token of the vocabulary continues the text, and it may not end here.
    DeadEnd,
    /// The matcher failed before and refuses further work.
    Poisoned,
    /// An option outside its range.
    InvalidOption,
    /// rushlight or the mask engine broke an invariant; the message is the panic's.
    Internal,
}

/// Where in a source a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// In a JSON document: a JSON Pointer (RFC 6901; empty is the root) and, where one is to blame, the keyword.
    Json {
        /// The JSON Pointer of the schema or value at fault.
        pointer: String,
        /// The keyword at fault, which is a member of what the pointer names.
        keyword: Option<String>,
    },
    /// In the text of a grammar or pattern; line and column count from 1, the column in characters.
    Text {
        /// The rule at fault, where there is one.
        rule: Option<String>,
        /// The line, from 1.
        line: usize,
        /// The column, in characters from 1.
        column: usize,
    },
    /// A position in generated tokens, from 0.
    Token {
        /// The token's index in the sequence that the matcher has accepted.
        position: usize,
    },
}

/// An error of this crate: kind, message, place, the tool it came from, and the cause.
///
/// Cloning is cheap and shares the cause.
#[derive(Clone, Debug)]
pub struct GrammarError {
    inner: Box<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    kind: GrammarErrorKind,
    message: String,
    place: Option<Place>,
    tool: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl GrammarError {
    /// An error with a message and no place yet.
    pub fn new(kind: GrammarErrorKind, message: impl Into<String>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                message: message.into(),
                place: None,
                tool: None,
                source: None,
            }),
        }
    }

    /// A problem of a JSON document: `pointer` is RFC 6901, `keyword` may be empty.
    pub fn json(
        kind: GrammarErrorKind,
        pointer: impl Into<String>,
        keyword: &str,
        reason: impl Into<String>,
    ) -> Self {
        Self::new(kind, reason).with_place(Place::Json {
            pointer: pointer.into(),
            keyword: (!keyword.is_empty()).then(|| keyword.to_owned()),
        })
    }

    /// The same error at `place`.
    #[must_use]
    pub fn with_place(mut self, place: Place) -> Self {
        self.inner.place = Some(place);
        self
    }

    /// The same error, naming the tool whose parameters were being compiled.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Into<String>) -> Self {
        self.inner.tool = Some(tool.into());
        self
    }

    /// The same error with `source` as its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.inner.source = Some(Arc::from(source.into()));
        self
    }

    /// The same error with `prefix` before its JSON Pointer, for a source inside another document. A place in a text keeps
    /// its line and column, and the message says where the text is.
    #[must_use]
    pub fn under_pointer(mut self, prefix: &str) -> Self {
        match &mut self.inner.place {
            Some(Place::Json { pointer, .. }) => pointer.insert_str(0, prefix),
            place @ None => {
                *place = Some(Place::Json {
                    pointer: prefix.to_owned(),
                    keyword: None,
                });
            }
            Some(_) => {
                let text = format!(" (in the text at '{prefix}')");
                self.inner.message.push_str(&text);
            }
        }
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> GrammarErrorKind {
        self.inner.kind
    }

    /// The reason, without the place.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Where it went wrong, where that is known.
    pub fn place(&self) -> Option<&Place> {
        self.inner.place.as_ref()
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self.inner.kind {
            GrammarErrorKind::Internal
            | GrammarErrorKind::IllegalToken
            | GrammarErrorKind::Poisoned => Fault::Bug,
            GrammarErrorKind::Vocabulary => Fault::File,
            _ => Fault::Request,
        }
    }

    /// The tool whose parameters are at fault, where the source was a tool.
    pub fn tool(&self) -> Option<&str> {
        self.inner.tool.as_deref()
    }
}

impl fmt::Display for GrammarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(tool) = &self.inner.tool {
            write!(f, "tool '{tool}': ")?;
        }
        if let Some(place) = &self.inner.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.inner.message)
    }
}

impl From<GrammarError> for ConstraintError {
    fn from(error: GrammarError) -> Self {
        Self::new(error.fault(), error)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { pointer, keyword } => {
                write!(f, "at '{pointer}'")?;
                match keyword {
                    Some(keyword) => write!(f, ", keyword '{keyword}'"),
                    None => Ok(()),
                }
            }
            Self::Text { rule, line, column } => {
                write!(f, "{line}:{column}")?;
                match rule {
                    Some(rule) => write!(f, " in rule '{rule}'"),
                    None => Ok(()),
                }
            }
            Self::Token { position } => write!(f, "token {position}"),
        }
    }
}

impl Error for GrammarError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.source.as_deref().map(|e| e as _)
    }
}

/// Every problem of one source, in source order; never empty.
#[derive(Clone, Debug)]
pub struct GrammarReport {
    first: GrammarError,
    rest: Vec<GrammarError>,
}

impl GrammarReport {
    /// A report of `problems`, or `None` where there are none.
    pub fn from_problems(problems: Vec<GrammarError>) -> Option<Self> {
        let mut problems = problems.into_iter();
        let first = problems.next()?;
        Some(Self {
            first,
            rest: problems.collect(),
        })
    }

    /// The problems, in source order.
    pub fn problems(&self) -> impl Iterator<Item = &GrammarError> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Whose fault it is: that of the first problem.
    pub fn fault(&self) -> Fault {
        self.first.fault()
    }

    /// The first problem.
    pub fn first(&self) -> &GrammarError {
        &self.first
    }

    /// How many problems there are; at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a report is never empty")]
    pub fn len(&self) -> usize {
        1 + self.rest.len()
    }

    /// The same report with `change` made to every problem: a tool's name, a pointer's prefix.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(GrammarError) -> GrammarError) -> Self {
        let first = change(self.first);
        let rest = self.rest.into_iter().map(change).collect();
        Self { first, rest }
    }
}

impl From<GrammarError> for GrammarReport {
    fn from(first: GrammarError) -> Self {
        Self {
            first,
            rest: Vec::new(),
        }
    }
}

impl fmt::Display for GrammarReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        for problem in &self.rest {
            write!(f, "\n{problem}")?;
        }
        Ok(())
    }
}

impl Error for GrammarReport {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.first.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_tool_place_and_reason() {
        let e = GrammarError::json(
            GrammarErrorKind::Unsupported,
            "/properties/a",
            "contains",
            "needs a guard",
        )
        .under_pointer("/tools/1")
        .with_tool("book");
        assert_eq!(
            e.to_string(),
            "tool 'book': at '/tools/1/properties/a', keyword 'contains': needs a guard"
        );
        let e = GrammarError::new(GrammarErrorKind::LeftRecursion, "left recursion").with_place(
            Place::Text {
                rule: Some("root".into()),
                line: 1,
                column: 10,
            },
        );
        assert_eq!(e.to_string(), "1:10 in rule 'root': left recursion");
    }

    #[test]
    fn a_report_keeps_every_problem_in_order() {
        let problem = |m: &str| GrammarError::new(GrammarErrorKind::Invalid, m);
        assert!(GrammarReport::from_problems(Vec::new()).is_none());
        let report = GrammarReport::from_problems(vec![problem("a"), problem("b")]).unwrap();
        assert_eq!(report.len(), 2);
        assert_eq!(
            report.map(|e| e.with_tool("t")).to_string(),
            "tool 't': a\ntool 't': b"
        );
    }

    #[test]
    fn errors_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}
        check::<GrammarReport>();
    }
}
