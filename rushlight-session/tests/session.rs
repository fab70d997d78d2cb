//! What a session does with turns, over an executor that is told what to do by the prompt.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rushlight_session::{
    Availability, CancelToken, Capabilities, Entry, Event, Events, Executor, Fault,
    GenerationOptions, LanguageModel, Request, Response, Session, SessionError, SessionErrorKind,
    StopReason, Transcript,
};

/// Answers a prompt word by word with `re: ` before it, and records every conversation it is shown.
/// The prompts `fail`, `panic`, `wait` and `nothing` do that instead.
#[derive(Default)]
struct Parrot {
    executors: AtomicUsize,
    shown: Arc<Mutex<Vec<Transcript>>>,
}

struct ParrotExecutor {
    shown: Arc<Mutex<Vec<Transcript>>>,
    prewarmed: usize,
}

impl LanguageModel for Parrot {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn availability(&self) -> Availability {
        Availability::Available
    }

    fn executor(self: Arc<Self>) -> Result<Box<dyn Executor>, SessionError> {
        self.executors.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(ParrotExecutor {
            shown: Arc::clone(&self.shown),
            prewarmed: 0,
        }))
    }
}

impl Executor for ParrotExecutor {
    fn respond(
        &mut self,
        request: Request<'_>,
        events: &Events,
        cancel: &CancelToken,
    ) -> Result<Response, SessionError> {
        self.shown.lock().unwrap().push(request.transcript.clone());
        let prompt = request.transcript.entries().last().unwrap().text();
        let stopped = || SessionError::new(SessionErrorKind::Cancelled, "cancelled");
        match prompt.as_str() {
            "fail" => return Err(SessionError::new(SessionErrorKind::Engine, "no luck")),
            "panic" => panic!("a bug of the executor's"),
            "wait" => {
                events.text("half an ");
                while !cancel.is_cancelled() {
                    std::thread::yield_now();
                }
                return Err(stopped());
            }
            "nothing" => return Ok(Response::new("", StopReason::Eos)),
            _ => {}
        }
        let answer = format!("re: {prompt}");
        events.prefill(1, 2);
        events.prefill(2, 2);
        for piece in answer.split_inclusive(' ') {
            events.text(piece);
        }
        let mut response = Response::new(answer, StopReason::Eos);
        response.usage.cached = self.prewarmed;
        Ok(response)
    }

    fn prewarm(&mut self, transcript: &Transcript) -> Result<(), SessionError> {
        self.prewarmed = transcript.entries().len();
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Executor>, SessionError> {
        Ok(Box::new(ParrotExecutor {
            shown: Arc::clone(&self.shown),
            prewarmed: self.prewarmed,
        }))
    }
}

fn session(instructions: Option<&str>) -> (Session, Arc<Parrot>) {
    let parrot = Arc::new(Parrot::default());
    (Session::new(parrot.clone(), instructions).unwrap(), parrot)
}

fn texts(transcript: &Transcript) -> Vec<String> {
    transcript.entries().iter().map(Entry::text).collect()
}

fn options() -> GenerationOptions {
    GenerationOptions::default()
}

#[test]
fn turns_join_the_transcript_whole() {
    let (mut session, parrot) = session(Some("Repeat."));
    let response = session.respond_blocking("one", &options()).unwrap();
    assert_eq!(response.text, "re: one");
    session.respond_blocking("two", &options()).unwrap();
    let expected = ["Repeat.", "one", "re: one", "two", "re: two"];
    assert_eq!(texts(session.transcript()), expected);
    let shown = parrot.shown.lock().unwrap();
    assert_eq!(texts(&shown[1]), expected[..4]);
}

#[test]
fn events_come_in_order_and_text_grows() {
    let (mut session, _) = session(None);
    let mut stream = session.stream_blocking("a b", &options()).unwrap();
    let mut texts = Vec::new();
    let mut progress = Vec::new();
    let mut finished = None;
    while let Some(event) = stream.next() {
        match event.unwrap() {
            Event::Prefill { done, total } => progress.push((done, total)),
            Event::Text(_) => texts.push(stream.text().to_owned()),
            Event::Finished(response) => finished = Some(response.text),
            _ => unreachable!(),
        }
    }
    assert_eq!(progress, [(1, 2), (2, 2)]);
    assert_eq!(texts, ["re: ", "re: a ", "re: a b"]);
    assert_eq!(finished.as_deref(), Some("re: a b"));
    assert!(stream.next().is_none());
}

#[test]
fn async_and_blocking_are_the_same() {
    let (mut session, _) = session(None);
    pollster::block_on(async {
        session.respond("one", &options()).await.unwrap();
        let mut stream = session.stream("two", &options()).unwrap();
        let mut pieces = String::new();
        while let Some(event) = stream.next_event().await {
            if let Event::Text(piece) = event.unwrap() {
                pieces.push_str(&piece);
            }
        }
        assert_eq!(pieces, "re: two");
    });
    let expected = ["one", "re: one", "two", "re: two"];
    assert_eq!(texts(session.transcript()), expected);
}

#[test]
fn a_failed_turn_leaves_the_transcript_as_it_was() {
    let (mut session, parrot) = session(Some("Repeat."));
    let error = session.respond_blocking("fail", &options()).unwrap_err();
    assert_eq!(error.to_string(), "no luck");
    assert_eq!(texts(session.transcript()), ["Repeat."]);
    session.respond_blocking("one", &options()).unwrap();
    let shown = parrot.shown.lock().unwrap();
    assert_eq!(texts(&shown[1]), ["Repeat.", "one"]);
}

/// CACHE-8: a turn that yields nothing is rolled back.
#[test]
fn an_empty_answer_leaves_the_transcript_as_it_was() {
    let (mut session, parrot) = session(None);
    let response = session.respond_blocking("nothing", &options()).unwrap();
    assert_eq!(
        (response.text.as_str(), response.stop),
        ("", StopReason::Eos)
    );
    assert!(session.transcript().is_empty());
    session.respond_blocking("one", &options()).unwrap();
    assert_eq!(texts(&parrot.shown.lock().unwrap()[1]), ["one"]);
}

/// CACHE-8: an interrupted turn is rolled back; the next request holds only the new one.
#[test]
fn a_dropped_stream_cancels_its_turn_and_leaves_no_trace() {
    let (mut session, parrot) = session(None);
    let mut stream = session.stream_blocking("wait", &options()).unwrap();
    assert_eq!(
        stream.next().unwrap().unwrap(),
        Event::Text("half an ".into())
    );
    drop(stream);
    // Were the turn not cancelled, this would wait for it for ever.
    session.respond_blocking("one", &options()).unwrap();
    assert_eq!(texts(session.transcript()), ["one", "re: one"]);
    let shown = parrot.shown.lock().unwrap();
    assert_eq!(texts(&shown[1]), ["one"]);
    assert_eq!(parrot.executors.load(Ordering::Relaxed), 1);
}

#[test]
fn a_dropped_async_stream_does_too() {
    let (mut session, _) = session(None);
    pollster::block_on(async {
        let mut stream = session.stream("wait", &options()).unwrap();
        stream.next_event().await.unwrap().unwrap();
        drop(stream);
        session.respond("one", &options()).await.unwrap();
    });
    assert_eq!(texts(session.transcript()), ["one", "re: one"]);
}

#[test]
fn a_turn_is_cancelled_from_another_thread() {
    let (mut session, _) = session(None);
    let mut stream = session.stream_blocking("wait", &options()).unwrap();
    let cancel = stream.cancel_token();
    stream.next().unwrap().unwrap();
    std::thread::spawn(move || cancel.cancel());
    let error = stream.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), &SessionErrorKind::Cancelled);
    assert!(stream.next().is_none());
    drop(stream);
    assert!(session.transcript().is_empty());
}

#[test]
fn a_panicking_executor_is_an_error_and_is_replaced() {
    let (mut session, parrot) = session(None);
    let error = session.respond_blocking("panic", &options()).unwrap_err();
    assert_eq!(error.kind(), &SessionErrorKind::Panicked);
    assert_eq!(error.fault(), Fault::Bug);
    session.respond_blocking("one", &options()).unwrap();
    assert_eq!(texts(session.transcript()), ["one", "re: one"]);
    assert_eq!(parrot.executors.load(Ordering::Relaxed), 2);
}

#[test]
fn an_empty_prompt_is_refused_before_the_model_is_asked() {
    let (mut session, parrot) = session(None);
    let error = session.respond_blocking("", &options()).unwrap_err();
    assert_eq!(error.kind(), &SessionErrorKind::EmptyPrompt);
    assert!(parrot.shown.lock().unwrap().is_empty());
}

#[test]
fn forks_go_on_independently() {
    let (mut session, _) = session(None);
    session.respond_blocking("one", &options()).unwrap();
    session.prewarm_blocking().unwrap();
    let mut fork = session.fork().unwrap();
    let response = fork.respond_blocking("two", &options()).unwrap();
    assert_eq!(response.usage.cached, 2, "the fork has what was prewarmed");
    assert_eq!(texts(session.transcript()), ["one", "re: one"]);
    assert_eq!(
        texts(fork.transcript()),
        ["one", "re: one", "two", "re: two"]
    );
}

#[test]
fn reset_keeps_instructions_and_instructions_can_change() {
    let (mut session, _) = session(Some("Repeat."));
    session.respond_blocking("one", &options()).unwrap();
    session.set_instructions(Some("Repeat louder."));
    assert_eq!(
        texts(session.transcript()),
        ["Repeat louder.", "one", "re: one"]
    );
    session.reset();
    assert_eq!(texts(session.transcript()), ["Repeat louder."]);
    session.set_instructions(None);
    assert!(session.transcript().is_empty());
}

#[test]
fn a_conversation_goes_on_from_its_transcript() {
    let (mut session, parrot) = session(Some("Repeat."));
    session.respond_blocking("one", &options()).unwrap();
    let saved = session.transcript().to_json();
    let transcript = Transcript::from_json(&saved).unwrap();
    let mut resumed = Session::resume(parrot.clone(), transcript).unwrap();
    resumed.respond_blocking("two", &options()).unwrap();
    let shown = parrot.shown.lock().unwrap();
    assert_eq!(texts(&shown[1]), ["Repeat.", "one", "re: one", "two"]);
}

#[test]
fn sessions_and_their_futures_cross_threads() {
    fn check<T: Send>(_: &T) {}
    let (mut session, _) = session(None);
    check(&session);
    let options = options();
    check(&session.prewarm());
    check(&session.respond("one", &options));
    check(&session.stream("one", &options).unwrap());
}
