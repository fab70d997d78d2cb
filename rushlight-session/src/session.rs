//! One conversation with one model.

use std::sync::{Arc, Mutex, MutexGuard};

use rushlight_engine::CancelToken;

use crate::error::{SessionError, SessionErrorKind};
use crate::event::{Event, Events, Response};
use crate::model::{Executor, LanguageModel, Request};
use crate::options::GenerationOptions;
use crate::stream::{BlockingStream, ResponseStream, Turn};
use crate::transcript::{Entry, Transcript};

/// A conversation with a language model.
///
/// A turn is whole or it never was: prompt and answer join the [transcript](Session::transcript)
/// together when the answer is finished, and a turn that fails, is cancelled, is dropped or gets an
/// empty answer leaves the transcript as it was. What the model has read is kept, so the next turn reads only what is new.
///
/// Every method that runs the model comes twice, async and `_blocking`. The async ones need no
/// particular runtime: the work is done on a thread of the turn's own, and the caller is woken
/// through a channel.
pub struct Session {
    model: Arc<dyn LanguageModel>,
    /// Locked by the thread of the turn under way. A turn after a dropped one waits here, on its own
    /// thread, for at most the step that the dropped one was in.
    executor: Arc<Mutex<Box<dyn Executor>>>,
    transcript: Transcript,
}

impl Session {
    /// A conversation that begins with `instructions`, if there are any.
    ///
    /// # Errors
    /// Those of [`LanguageModel::executor`].
    pub fn new(
        model: Arc<dyn LanguageModel>,
        instructions: Option<&str>,
    ) -> Result<Session, SessionError> {
        let mut transcript = Transcript::new();
        transcript.set_instructions(instructions.map(str::to_owned));
        Session::resume(model, transcript)
    }

    /// A conversation that goes on where `transcript` ends. The first turn reads all of it.
    ///
    /// # Errors
    /// Those of [`LanguageModel::executor`].
    pub fn resume(
        model: Arc<dyn LanguageModel>,
        transcript: Transcript,
    ) -> Result<Session, SessionError> {
        let executor = Arc::clone(&model).executor()?;
        Ok(Session {
            model,
            executor: Arc::new(Mutex::new(executor)),
            transcript,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<dyn LanguageModel> {
        &self.model
    }

    /// The conversation so far.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Asks, and waits for the whole answer.
    ///
    /// # Errors
    /// [`SessionErrorKind::EmptyPrompt`]; an option out of its range; a conversation longer than the
    /// context; or what failed below. The transcript is then as it was.
    pub async fn respond(
        &mut self,
        prompt: &str,
        options: &GenerationOptions,
    ) -> Result<Response, SessionError> {
        let mut stream = self.stream(prompt, options)?;
        loop {
            match stream.next_event().await {
                Some(Ok(Event::Finished(response))) => return Ok(response),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Err(lost()),
            }
        }
    }

    /// [`respond`](Session::respond), blocking the caller's thread.
    ///
    /// # Errors
    /// As [`respond`](Session::respond).
    pub fn respond_blocking(
        &mut self,
        prompt: &str,
        options: &GenerationOptions,
    ) -> Result<Response, SessionError> {
        for event in self.stream_blocking(prompt, options)? {
            if let Event::Finished(response) = event? {
                return Ok(response);
            }
        }
        Err(lost())
    }

    /// Asks, and gives events as they come. Dropping the stream cancels the turn within one step.
    ///
    /// # Errors
    /// [`SessionErrorKind::EmptyPrompt`] and [`SessionErrorKind::Thread`]; every other error comes
    /// through the stream.
    pub fn stream(
        &mut self,
        prompt: &str,
        options: &GenerationOptions,
    ) -> Result<ResponseStream<'_>, SessionError> {
        let (sender, receiver) = futures_channel::mpsc::unbounded();
        // A send that fails has no receiver: the stream was dropped, and the turn is being cancelled.
        let turn = self.start(prompt, options, move |item| {
            let _ = sender.unbounded_send(item);
        })?;
        Ok(ResponseStream::new(turn, receiver))
    }

    /// [`stream`](Session::stream) as an iterator that blocks the caller's thread.
    ///
    /// # Errors
    /// As [`stream`](Session::stream).
    pub fn stream_blocking(
        &mut self,
        prompt: &str,
        options: &GenerationOptions,
    ) -> Result<BlockingStream<'_>, SessionError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let turn = self.start(prompt, options, move |item| {
            let _ = sender.send(item);
        })?;
        Ok(BlockingStream::new(turn, receiver))
    }

    /// Reads ahead what the next turn would have to read before its prompt, for example long
    /// instructions, so that its first token comes sooner. Ready when it is done.
    ///
    /// # Errors
    /// Those that the next turn would meet.
    pub async fn prewarm(&mut self) -> Result<(), SessionError> {
        let transcript = self.transcript.clone();
        let model = Arc::clone(&self.model);
        let executor = Arc::clone(&self.executor);
        let (sender, receiver) = futures_channel::oneshot::channel();
        spawn(move || {
            let end =
                lock(&executor, &model).and_then(|mut executor| executor.prewarm(&transcript));
            // Nobody receives where the future was dropped; what was read stays read.
            let _ = sender.send(end);
        })?;
        receiver.await.unwrap_or_else(|_| Err(lost()))
    }

    /// [`prewarm`](Session::prewarm), blocking the caller's thread.
    ///
    /// # Errors
    /// As [`prewarm`](Session::prewarm).
    pub fn prewarm_blocking(&mut self) -> Result<(), SessionError> {
        lock(&self.executor, &self.model)?.prewarm(&self.transcript)
    }

    /// A second conversation with the same past. The two go on independently, and neither reads that
    /// past again. Waits for a turn that was just dropped, at most one step.
    ///
    /// # Errors
    /// Those of [`Executor::fork`].
    pub fn fork(&self) -> Result<Session, SessionError> {
        let executor = lock(&self.executor, &self.model)?.fork()?;
        Ok(Session {
            model: Arc::clone(&self.model),
            executor: Arc::new(Mutex::new(executor)),
            transcript: self.transcript.clone(),
        })
    }

    /// Forgets every turn and keeps the instructions.
    pub fn reset(&mut self) {
        self.transcript.clear_turns();
    }

    /// Gives the conversation other instructions, or none. Turns are kept; the next one reads again
    /// from where the old and the new instructions diverge.
    pub fn set_instructions(&mut self, instructions: Option<&str>) {
        self.transcript
            .set_instructions(instructions.map(str::to_owned));
    }

    /// Starts a turn on a thread of its own, which gives every event and then the end to `send`.
    fn start(
        &mut self,
        prompt: &str,
        options: &GenerationOptions,
        send: impl Fn(Result<Event, SessionError>) + Send + Sync + 'static,
    ) -> Result<Turn<'_>, SessionError> {
        if prompt.is_empty() {
            return Err(SessionError::new(
                SessionErrorKind::EmptyPrompt,
                "the prompt is empty; give it some text",
            ));
        }
        let prompt = Entry::prompt(prompt);
        let transcript = self.transcript.with(prompt.clone())?;
        let options = options.clone();
        let model = Arc::clone(&self.model);
        let executor = Arc::clone(&self.executor);
        let cancel = CancelToken::new();
        let cancelled = cancel.clone();
        spawn(move || {
            let send = Arc::new(send);
            let pieces = Arc::clone(&send);
            let events = Events::new(move |event| pieces(Ok(event)));
            let request = Request::new(&transcript, &options);
            let end = lock(&executor, &model)
                .and_then(|mut executor| executor.respond(request, &events, &cancelled));
            send(end.map(Event::Finished));
        })?;
        Ok(Turn::new(&mut self.transcript, prompt, cancel))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("entries", &self.transcript.entries().len())
            .finish_non_exhaustive()
    }
}

/// Runs `turn` on a thread of its own.
fn spawn(turn: impl FnOnce() + Send + 'static) -> Result<(), SessionError> {
    let thread = std::thread::Builder::new().name("rushlight-turn".to_owned());
    thread.spawn(turn).map(drop).map_err(|error| {
        let message = format!("no thread could be started for the turn: {error}");
        SessionError::new(SessionErrorKind::Thread, message).with_source(error)
    })
}

/// The executor, or a fresh one where a panic left the old one in an unknown state.
fn lock<'a>(
    executor: &'a Mutex<Box<dyn Executor>>,
    model: &Arc<dyn LanguageModel>,
) -> Result<MutexGuard<'a, Box<dyn Executor>>, SessionError> {
    executor.lock().or_else(|poisoned| {
        let mut guard = poisoned.into_inner();
        *guard = Arc::clone(model).executor()?;
        executor.clear_poison();
        Ok(guard)
    })
}

/// The turn's thread ended without an end.
pub(crate) fn lost() -> SessionError {
    SessionError::new(
        SessionErrorKind::Panicked,
        "the executor panicked, which is a bug; the transcript is as it was, and the session can be used",
    )
}
