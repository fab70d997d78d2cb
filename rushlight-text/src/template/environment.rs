//! The Jinja environment that `transformers` compiles chat templates in.

use std::error::Error as StdError;
use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value};

use super::clock::Clock;
use super::{json, python};
use crate::error::{TextError, TextErrorKind};

/// Calls of macros and nested blocks that may be open at once; each takes a few kilobytes of stack.
const RECURSION: usize = 96;

pub(crate) fn new(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    // The builder only fails on clashing delimiters, and these are the defaults.
    if let Ok(syntax) = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
    {
        environment.set_syntax(syntax);
    }
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_recursion_limit(RECURSION);
    // Places of errors are only kept in debug mode.
    environment.set_debug(true);
    environment.set_formatter(print);
    environment.set_unknown_method_callback(python::call_method);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("trim", python::trim);
    environment.add_test("sequence", is_sequence);
    environment.add_function("raise_exception", raise);
    set_clock(&mut environment, clock);
    environment
}

pub(crate) fn set_clock(environment: &mut Environment<'static>, clock: Clock) {
    environment.add_function("strftime_now", move |format: &str| {
        clock().format(format).map_err(|error| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now cannot format {format:?}"),
            )
            .with_source(error)
        })
    });
}

/// What `{{ … }}` prints: as Python's `str`, which minijinja follows except for the exponents of floats.
fn print(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number
        && !value.is_integer()
        && let Ok(number) = f64::try_from(value.clone())
        && number.is_finite()
    {
        return Ok(out.write_str(&json::float(number))?);
    }
    Ok(write!(out, "{value}")?)
}

/// Jinja2 calls everything a sequence that has a length and items by index or key.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::String | ValueKind::Map
    )
}

fn raise(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// What a template passed to `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Raised {}

/// The output has grown past this many bytes.
#[derive(Debug)]
pub(crate) struct OutputLimit(pub(crate) usize);

impl fmt::Display for OutputLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the template's output is past the limit of {} bytes",
            self.0
        )
    }
}

impl StdError for OutputLimit {}

/// A template's error with its place, in our kinds.
pub(crate) fn error(error: Error, name: &str, source: &str) -> TextError {
    let causes = || {
        let first: &(dyn StdError + 'static) = &error;
        std::iter::successors(Some(first), |cause: &&(dyn StdError + 'static)| {
            (*cause).source()
        })
    };
    let raised = causes().find_map(|cause| cause.downcast_ref::<Raised>());
    let out_of_fuel = causes().any(|cause| {
        cause
            .downcast_ref::<Error>()
            .is_some_and(|cause| cause.kind() == ErrorKind::OutOfFuel)
    });
    let (kind, message) = if let Some(Raised(message)) = raised {
        (TextErrorKind::TemplateRaised, message.clone())
    } else if out_of_fuel {
        (
            TextErrorKind::TemplateLimit,
            "the template did more work than its limit allows".to_owned(),
        )
    } else {
        let kind = match error.kind() {
            ErrorKind::SyntaxError | ErrorKind::BadEscape => TextErrorKind::TemplateSyntax,
            ErrorKind::WriteFailure => TextErrorKind::TemplateLimit,
            ErrorKind::UnknownMethod
            | ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownFunction => TextErrorKind::TemplateUnsupported,
            _ => TextErrorKind::TemplateFailed,
        };
        let message = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        (kind, message)
    };
    let beneath: Vec<String> = causes()
        .skip(1)
        .map(|cause| match cause.downcast_ref::<Error>() {
            // Its words without the place, which is ours already.
            Some(cause) => cause.detail().unwrap_or_default().to_owned(),
            None => cause.to_string(),
        })
        .filter(|words| !words.is_empty() && !message.contains(words))
        .collect();
    let place = error
        .range()
        .and_then(|range| line_column(source, range.start))
        .or_else(|| Some((error.line()?, 1)));
    let found = TextError::new(kind, message).at(name, place);
    match beneath.is_empty() {
        true => found,
        false => found.caused_by(beneath.join(": ")),
    }
}

/// Line and column, from 1, of a byte offset.
fn line_column(source: &str, offset: usize) -> Option<(usize, usize)> {
    let before = source.get(..offset)?;
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    Some((line, before.get(line_start..)?.chars().count() + 1))
}
