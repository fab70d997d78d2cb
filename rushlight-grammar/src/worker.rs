//! The threads that compile: bounded in number, and kept for a moment, since starting one costs as much as a small schema.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rushlight_engine::CancelToken;

use crate::error::{GrammarError, GrammarErrorKind, Result};
use crate::limits;

/// Stack of a compiling thread, in bytes. The engine's front ends recurse over rules; the memory is only reserved.
const STACK_BYTES: usize = 256 << 20;
/// How often a caller that waits looks at its cancel flag.
pub(crate) const CANCEL_POLL: Duration = Duration::from_millis(5);
/// How long a thread waits for more work.
const IDLE: Duration = Duration::from_secs(5);

/// Work, whose answer hands over its result. The thread is ready for more before that, so that a caller who comes back at
/// once finds it.
pub(crate) type Job = Box<dyn FnOnce() -> Deliver + Send>;
/// Hands over a result.
pub(crate) type Deliver = Box<dyn FnOnce()>;

/// The compiling threads of one compiler, those that their callers gave up on included.
#[derive(Default)]
pub(crate) struct Workers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Jobs under way.
    active: usize,
    idle: Vec<(u64, mpsc::Sender<Job>)>,
    started: u64,
}

impl Workers {
    /// Runs `job` on a compiling thread, once fewer than the limit are at work.
    ///
    /// # Errors
    /// [`GrammarErrorKind::TimedOut`] and [`GrammarErrorKind::Cancelled`] while it waits; [`GrammarErrorKind::Limit`] where no
    /// thread can be started.
    pub(crate) fn run(
        self: &Arc<Self>,
        job: Job,
        deadline: Option<Instant>,
        cancel: &CancelToken,
    ) -> Result<()> {
        let limit = thread::available_parallelism()
            .map_or(1, |n| n.get())
            .max(2);
        let mut job = loop {
            let mut state = self.lock();
            if state.active < limit {
                state.active += 1;
                let place = Place(Arc::downgrade(self));
                let job: Job = Box::new(move || {
                    let _place = place;
                    job()
                });
                match state.idle.pop() {
                    Some((_, jobs)) => match jobs.send(job) {
                        Ok(()) => return Ok(()),
                        Err(mpsc::SendError(job)) => break job,
                    },
                    None => break job,
                }
            }
            drop(state);
            limits::check_cancelled(cancel)?;
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(GrammarError::new(
                    GrammarErrorKind::TimedOut,
                    format!("{limit} compilations are running; none ended in time"),
                ));
            }
            thread::sleep(CANCEL_POLL);
        };
        let id = {
            let mut state = self.lock();
            state.started += 1;
            state.started
        };
        let workers = Arc::downgrade(self);
        let work = move || {
            loop {
                let deliver = job();
                let (send, receive) = mpsc::channel();
                let known = workers
                    .upgrade()
                    .map(|workers| workers.lock().idle.push((id, send)));
                deliver();
                if known.is_none() {
                    return;
                }
                job = match next(&workers, id, &receive) {
                    Some(job) => job,
                    None => return,
                };
            }
        };
        let started = thread::Builder::new()
            .name("grammar-compile".into())
            .stack_size(STACK_BYTES)
            .spawn(work);
        match started {
            Ok(_) => Ok(()),
            Err(e) => Err(GrammarError::new(
                GrammarErrorKind::Limit,
                "no thread could be started to compile on",
            )
            .with_source(e)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The counts are whole between calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next job of the thread `id`; `None` where it should end.
fn next(workers: &Weak<Workers>, id: u64, receive: &mpsc::Receiver<Job>) -> Option<Job> {
    match receive.recv_timeout(IDLE) {
        Ok(job) => return Some(job),
        Err(RecvTimeoutError::Disconnected) => return None,
        Err(RecvTimeoutError::Timeout) => {}
    }
    if let Some(workers) = workers.upgrade() {
        let mut state = workers.lock();
        let before = state.idle.len();
        state.idle.retain(|(other, _)| *other != id);
        if state.idle.len() < before {
            return None;
        }
    }
    // Somebody took it off the list just now, and sends.
    receive.recv().ok()
}

/// A job under way.
struct Place(Weak<Workers>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(workers) = self.0.upgrade() {
            let mut state = workers.lock();
            state.active = state.active.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_used_again() {
        let workers = Arc::new(Workers::default());
        let mut ids = Vec::new();
        for _ in 0..3 {
            let (send, receive) = mpsc::channel();
            let job: Job = Box::new(move || {
                let id = thread::current().id();
                Box::new(move || send.send(id).unwrap())
            });
            workers.run(job, None, &CancelToken::new()).unwrap();
            ids.push(receive.recv().unwrap());
        }
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    }
}
