//! A thread that does one job at a time for its owner: a pass, or the next mask.

use std::sync::mpsc;
use std::thread;

use crate::error::{EngineError, Fault, Result};

/// A thread of its own for jobs `J` with results `D`. Dropping it ends the thread after its job.
pub(crate) struct Worker<J, D> {
    // Dropped before the handle is joined, which ends the thread's loop.
    jobs: Option<mpsc::Sender<J>>,
    done: mpsc::Receiver<D>,
    thread: Option<thread::JoinHandle<()>>,
    pending: bool,
}

impl<J: Send + 'static, D: Send + 'static> Worker<J, D> {
    /// Starts the thread; `work` must not panic.
    pub(crate) fn spawn(name: &str, work: fn(J) -> D) -> Result<Worker<J, D>> {
        let (jobs, inbox) = mpsc::channel::<J>();
        let (outbox, done) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                for job in inbox {
                    if outbox.send(work(job)).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| EngineError::backend(Fault::Request, error))?;
        Ok(Worker {
            jobs: Some(jobs),
            done,
            thread: Some(thread),
            pending: false,
        })
    }

    /// Hands a job over, or gives it back where the thread is gone.
    pub(crate) fn start(&mut self, job: J) -> std::result::Result<(), Box<J>> {
        match &self.jobs {
            Some(jobs) => jobs
                .send(job)
                .map_err(|mpsc::SendError(job)| Box::new(job))?,
            None => return Err(Box::new(job)),
        }
        self.pending = true;
        Ok(())
    }

    /// The result of the job under way, if there is one, when it is done.
    pub(crate) fn wait(&mut self) -> Option<D> {
        if !std::mem::take(&mut self.pending) {
            return None;
        }
        self.done.recv().ok()
    }
}

impl<J, D> Drop for Worker<J, D> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It ends when its jobs do; jobs catch their own panics.
            let _ = thread.join();
        }
    }
}
