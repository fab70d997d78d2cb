//! The executor of a local model, and the one way in which it answers.

use std::sync::Arc;

use rushlight_engine::{CancelToken, ErrorKind, Fault, GenerateOptions, Sequence, StopReason};

use super::LocalModel;
use crate::error::{SessionError, SessionErrorKind};
use crate::event::{Events, Response};
use crate::model::{Executor, Request};
use crate::transcript::{Entry, Transcript};

/// A sequence of a local model: what it has read stays read.
pub(super) struct LocalExecutor {
    model: Arc<LocalModel>,
    sequence: Sequence,
}

impl LocalExecutor {
    pub(super) fn new(model: Arc<LocalModel>) -> Result<LocalExecutor, SessionError> {
        let sequence = model.engine().sequence()?;
        Ok(LocalExecutor { model, sequence })
    }
}

impl Executor for LocalExecutor {
    fn respond(
        &mut self,
        request: Request<'_>,
        events: &Events,
        cancel: &CancelToken,
    ) -> Result<Response, SessionError> {
        let prompt = self.model.chat_tokens(request.transcript)?;
        let options = self.model.generate_options(request.options, cancel)?;
        answer(&self.model, &mut self.sequence, &prompt, options, events)
    }

    fn prewarm(&mut self, transcript: &Transcript) -> Result<(), SessionError> {
        // What two prompts that begin differently have in common is what comes before any prompt.
        let one = self
            .model
            .chat_tokens(&transcript.with(Entry::prompt("1"))?)?;
        let two = self
            .model
            .chat_tokens(&transcript.with(Entry::prompt("a"))?)?;
        let common = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
        if common == 0 {
            return Ok(());
        }
        let options = GenerateOptions {
            max_tokens: Some(0),
            ..GenerateOptions::default()
        };
        let mut reading =
            self.model
                .engine()
                .generate(&mut self.sequence, &one[..common], options)?;
        reading.try_for_each(|step| step.map(drop))?;
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Executor>, SessionError> {
        Ok(Box::new(LocalExecutor {
            model: Arc::clone(&self.model),
            sequence: self.sequence.fork()?,
        }))
    }
}

/// Reads `prompt` and answers it, telling `events` of both.
pub(super) fn answer(
    model: &LocalModel,
    sequence: &mut Sequence,
    prompt: &[u32],
    options: GenerateOptions,
    events: &Events,
) -> Result<Response, SessionError> {
    let progress = events.clone();
    let options = GenerateOptions {
        progress: Some(Box::new(move |done, total| progress.prefill(done, total))),
        ..options
    };
    let end = generate(model, sequence, prompt, options, events);
    if end.as_ref().is_err_and(lost_states) {
        *sequence = model.engine().sequence()?;
    }
    let response = end?;
    if response.stop == StopReason::Cancelled {
        return Err(SessionError::new(
            SessionErrorKind::Cancelled,
            "the answer was cancelled; the conversation is as it was before",
        ));
    }
    Ok(response)
}

fn generate(
    model: &LocalModel,
    sequence: &mut Sequence,
    prompt: &[u32],
    options: GenerateOptions,
    events: &Events,
) -> Result<Response, rushlight_engine::EngineError> {
    let mut generation = model.engine().generate(sequence, prompt, options)?;
    let mut tokens = Vec::new();
    let mut text = String::new();
    for step in generation.by_ref() {
        let step = step?;
        tokens.push(step.token);
        if !step.text.is_empty() {
            text.push_str(&step.text);
            events.text(step.text);
        }
    }
    let outcome = generation.outcome();
    if !outcome.rest.is_empty() {
        text.push_str(&outcome.rest);
        events.text(outcome.rest);
    }
    Ok(Response {
        text,
        tokens,
        stop: outcome.stop,
        usage: outcome.usage,
        reuse: outcome.reuse,
        timings: outcome.timings,
        seed: Some(outcome.seed),
        constraint: outcome.constraint,
    })
}

/// Whether an error may have taken the sequence's states with it, so that it must begin anew.
fn lost_states(error: &rushlight_engine::EngineError) -> bool {
    error.fault() == Fault::Bug || matches!(error.kind(), ErrorKind::Busy { .. })
}
