//! A turn's events, as a `Stream` and as an iterator.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};

use futures_channel::mpsc::UnboundedReceiver;
use futures_core::Stream;
use rushlight_engine::CancelToken;

use crate::error::SessionError;
use crate::event::Event;
use crate::session::lost;
use crate::transcript::{Entry, Transcript};

type Item = Result<Event, SessionError>;

/// A turn under way, as an asynchronous stream.
///
/// Ends after [`Event::Finished`] or an error. Dropped before that, the turn is cancelled within one
/// step, and neither prompt nor answer are part of the transcript. The drop itself does not wait.
#[derive(Debug)]
#[must_use = "a stream that is not polled is cancelled"]
pub struct ResponseStream<'a> {
    turn: Turn<'a>,
    receiver: UnboundedReceiver<Item>,
}

impl<'a> ResponseStream<'a> {
    pub(crate) fn new(turn: Turn<'a>, receiver: UnboundedReceiver<Item>) -> ResponseStream<'a> {
        ResponseStream { turn, receiver }
    }

    /// The next event, for callers without a `StreamExt`.
    pub async fn next_event(&mut self) -> Option<Item> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// The answer so far.
    pub fn text(&self) -> &str {
        &self.turn.text
    }

    /// Cancels this turn from any thread: the stream then ends with
    /// [`Cancelled`](crate::SessionErrorKind::Cancelled).
    pub fn cancel_token(&self) -> CancelToken {
        self.turn.cancel.clone()
    }
}

impl Stream for ResponseStream<'_> {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = self.get_mut();
        if this.turn.ended {
            return Poll::Ready(None);
        }
        Pin::new(&mut this.receiver)
            .poll_next(context)
            .map(|item| Some(this.turn.take(item)))
    }
}

/// A turn under way, as an iterator that waits for each event.
///
/// Ends, and cancels when dropped, as [`ResponseStream`] does.
#[derive(Debug)]
#[must_use = "a stream that is not iterated is cancelled"]
pub struct BlockingStream<'a> {
    turn: Turn<'a>,
    receiver: mpsc::Receiver<Item>,
}

impl<'a> BlockingStream<'a> {
    pub(crate) fn new(turn: Turn<'a>, receiver: mpsc::Receiver<Item>) -> BlockingStream<'a> {
        BlockingStream { turn, receiver }
    }

    /// The answer so far.
    pub fn text(&self) -> &str {
        &self.turn.text
    }

    /// Cancels this turn from any thread: the iterator then ends with
    /// [`Cancelled`](crate::SessionErrorKind::Cancelled).
    pub fn cancel_token(&self) -> CancelToken {
        self.turn.cancel.clone()
    }
}

impl Iterator for BlockingStream<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if self.turn.ended {
            return None;
        }
        Some(self.turn.take(self.receiver.recv().ok()))
    }
}

/// What both streams do: gather the text, and put a finished turn into the transcript.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    transcript: &'a mut Transcript,
    prompt: Option<Entry>,
    cancel: CancelToken,
    text: String,
    ended: bool,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(
        transcript: &'a mut Transcript,
        prompt: Entry,
        cancel: CancelToken,
    ) -> Turn<'a> {
        Turn {
            transcript,
            prompt: Some(prompt),
            cancel,
            text: String::new(),
            ended: false,
        }
    }

    /// Takes what the turn's thread sent; `None` when it ended without sending an end.
    fn take(&mut self, item: Option<Item>) -> Item {
        let item = item.unwrap_or_else(|| Err(lost()));
        match &item {
            Ok(Event::Text(piece)) => self.text.push_str(piece),
            Ok(Event::Finished(response)) => {
                self.ended = true;
                // A prompt that got no answer would leave two prompts in a row.
                let prompt = self.prompt.take().filter(|_| !response.text.is_empty());
                if let Some(prompt) = prompt {
                    self.transcript.push(prompt);
                    self.transcript.push(Entry::response(response.text.clone()));
                }
            }
            Ok(_) => {}
            Err(_) => self.ended = true,
        }
        item
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
