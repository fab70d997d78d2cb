//! Two conversations at once on one thread: answers are made on threads of their own, and any
//! executor can wait for them.
//!
//! `cargo run --release --example stream_async -- MODEL "First question" "Second question"`

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use rushlight::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(one), Some(two)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: stream_async MODEL QUESTION QUESTION".into());
    };
    let model = rushlight::load(&model)?;
    let mut first = Session::new(model.clone(), None)?;
    let mut second = Session::new(model, None)?;
    let options = GenerationOptions::default();
    let answers = pollster::block_on(both(
        first.respond(&one, &options),
        second.respond(&two, &options),
    ));
    let mut out = std::io::stdout();
    for (question, answer) in [(one, answers.0?), (two, answers.1?)] {
        std::io::Write::write_fmt(&mut out, format_args!("{question}\n{}\n\n", answer.text))?;
    }
    Ok(())
}

/// Waits for both futures, as an executor's own `join` would.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_done, mut b_done) = (None, None);
    poll_fn(move |context| {
        if a_done.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(context)
        {
            a_done = Some(output);
        }
        if b_done.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(context)
        {
            b_done = Some(output);
        }
        match (a_done.take(), b_done.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (a_done, b_done) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}
