//! Completion of raw text, without messages or template.

use std::sync::Arc;

use rushlight_engine::{CancelToken, GenerateOptions, Sequence};

use super::LocalModel;
use super::answer::answer;
use crate::error::SessionError;
use crate::event::{Events, Response};
use crate::options::GenerationOptions;

/// Goes on with raw text, as base models do. What one text and the next begin with alike is not
/// read twice.
///
/// ```no_run
/// # fn run(model: std::sync::Arc<rushlight_session::LocalModel>) -> Result<(), rushlight_session::SessionError> {
/// use rushlight_session::{CancelToken, Completion, Events, GenerationOptions};
///
/// let mut completion = Completion::new(model)?;
/// let response = completion.complete(
///     "The capital of France is",
///     &GenerationOptions::greedy(),
///     &Events::ignored(),
///     &CancelToken::new(),
/// )?;
/// assert!(response.text.starts_with(" Paris"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Completion {
    model: Arc<LocalModel>,
    sequence: Sequence,
}

impl Completion {
    /// A completion that has read nothing.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub fn new(model: Arc<LocalModel>) -> Result<Completion, SessionError> {
        let sequence = model.engine().sequence()?;
        Ok(Completion { model, sequence })
    }

    /// Goes on with `text`, begun with BOS where the model has one. Blocks until the end; `events`
    /// are told of each piece, and `cancel` ends it from any thread within one step.
    ///
    /// # Errors
    /// As [`LocalModel::raw_tokens`] and [`complete_tokens`](Completion::complete_tokens).
    pub fn complete(
        &mut self,
        text: &str,
        options: &GenerationOptions,
        events: &Events,
        cancel: &CancelToken,
    ) -> Result<Response, SessionError> {
        let tokens = self.model.raw_tokens(text)?;
        self.complete_tokens(&tokens, options, events, cancel)
    }

    /// Goes on with exactly these tokens. Where the checkpoint has no tokenizer, the response has
    /// ids and no text.
    ///
    /// # Errors
    /// [`EmptyPrompt`](crate::SessionErrorKind::EmptyPrompt),
    /// [`ContextOverflow`](crate::SessionErrorKind::ContextOverflow), an option out of its range,
    /// [`Cancelled`](crate::SessionErrorKind::Cancelled), or what failed below.
    pub fn complete_tokens(
        &mut self,
        tokens: &[u32],
        options: &GenerationOptions,
        events: &Events,
        cancel: &CancelToken,
    ) -> Result<Response, SessionError> {
        let options = GenerateOptions {
            text: self.model.token_text(true),
            ..self.model.generate_options(options, cancel)?
        };
        answer(&self.model, &mut self.sequence, tokens, options, events)
    }
}
