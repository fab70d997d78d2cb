//! Generations as callers see them: an iterator of steps over one sequence, or over several.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use rushlight_ir::backend::{BackendError, Lane, Logits, Program, States};

use crate::error::{EngineError, ErrorKind, Result};
use crate::plan::{Lookahead, Plan};
use crate::request::{Outcome, Step, StopReason};
use crate::run::{Pass, Run};
use crate::sequence::Sequence;
use crate::step::{Member, advance, backend_error};

/// An answer as it is made, step by step. Dropping it cancels it within one step and leaves the
/// sequence usable, with the tokens that were given out.
pub struct Generation<'a> {
    program: &'a Arc<dyn Program>,
    sequence: &'a mut Sequence,
    run: Run,
    /// With a lookahead of 2: the thread that runs the next pass while the caller has this step.
    ahead: Option<Ahead>,
}

impl<'a> Generation<'a> {
    pub(crate) fn new(
        program: &'a Arc<dyn Program>,
        plan: &Plan,
        sequence: &'a mut Sequence,
        run: Run,
    ) -> Generation<'a> {
        Generation {
            program,
            sequence,
            run,
            ahead: (plan.lookahead == Lookahead::Two).then(Ahead::default),
        }
    }

    /// How it went; before the last step, as if it were cancelled now.
    pub fn outcome(&self) -> Outcome {
        self.run.outcome()
    }

    /// The history so far.
    pub fn tokens(&self) -> &[u32] {
        self.sequence.tokens()
    }

    /// Runs until a step is ready or there is none.
    fn fill(&mut self) -> Result<()> {
        while !self.run.has_ready() {
            if let Some(done) = self.ahead.as_mut().and_then(Ahead::wait) {
                self.land(done)?;
                continue;
            }
            let mut member = [Member {
                run: &mut self.run,
                sequence: self.sequence,
            }];
            if !advance(&**self.program, &mut member).map_err(|(_, error)| error)? {
                break;
            }
        }
        Ok(())
    }

    /// Takes a pass that ran on the other thread.
    fn land(&mut self, done: Done) -> Result<()> {
        self.sequence.put_states(done.states);
        let result = match done.logits {
            Ok(logits) => {
                let rows = 0..done.pass.logits;
                self.run.absorb(self.sequence, &done.pass, &*logits, rows)
            }
            Err(error) => Err(backend_error(error)),
        };
        self.run.timings.decode += done.start.elapsed();
        if result.is_err() {
            self.run.end(StopReason::Error);
        }
        result
    }

    fn start_ahead(&mut self) -> Result<()> {
        if let Some(ahead) = &mut self.ahead
            && !self.run.has_ready()
            && let Some(pass) = self.run.next_pass(self.sequence)
        {
            let states = self.sequence.take_states()?;
            ahead.start(self.program, states, pass)?;
        }
        Ok(())
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fill() {
            return Some(Err(error));
        }
        let step = self.run.pop()?;
        // With a step in hand, a failure to start early is met again, and reported, by the next call.
        if let Err(error) = self.start_ahead() {
            self.run.end(StopReason::Error);
            return Some(Err(error));
        }
        Some(Ok(step))
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        if let Some(mut done) = self.ahead.as_mut().and_then(Ahead::wait) {
            // It may have run forced tokens that were not given out.
            done.states.rewind(self.sequence.len());
            self.sequence.put_states(done.states);
        }
    }
}

/// Several answers made side by side: every pass has a lane for each that is not finished.
pub struct Batch<'a> {
    program: &'a dyn Program,
    members: Vec<(Run, &'a mut Sequence)>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        program: &'a dyn Program,
        members: Vec<(Run, &'a mut Sequence)>,
    ) -> Batch<'a> {
        Batch { program, members }
    }

    /// How the answer of the request at `index` went; `None` past the last request.
    pub fn outcome(&self, index: usize) -> Option<Outcome> {
        self.members.get(index).map(|(run, _)| run.outcome())
    }
}

/// Steps of all requests as they come, with the index of the request. An error that names a request
/// ends that one; one that names none failed a pass, and ends all that were in it.
impl Iterator for Batch<'_> {
    type Item = (Option<usize>, Result<Step>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for (i, (run, _)) in self.members.iter_mut().enumerate() {
                if let Some(step) = run.pop() {
                    return Some((Some(i), Ok(step)));
                }
            }
            let mut members: Vec<Member<'_>> = self
                .members
                .iter_mut()
                .map(|(run, sequence)| Member { run, sequence })
                .collect();
            match advance(self.program, &mut members) {
                Ok(true) => {}
                Ok(false) => return None,
                Err((index, error)) => return Some((index, Err(error))),
            }
        }
    }
}

/// One pass under way on a thread of its own.
#[derive(Default)]
struct Ahead {
    worker: Option<Worker>,
    pending: bool,
}

struct Worker {
    // Dropped before the handle is joined, which ends the thread's loop.
    jobs: Option<mpsc::Sender<Job>>,
    done: mpsc::Receiver<Done>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Job {
    program: Arc<dyn Program>,
    states: Box<dyn States>,
    pass: Pass,
}

struct Done {
    states: Box<dyn States>,
    pass: Pass,
    logits: std::result::Result<Box<dyn Logits>, BackendError>,
    start: Instant,
}

impl Ahead {
    fn start(
        &mut self,
        program: &Arc<dyn Program>,
        states: Box<dyn States>,
        pass: Pass,
    ) -> Result<()> {
        let worker = match &mut self.worker {
            Some(worker) => worker,
            none => none.insert(Worker::spawn()?),
        };
        let job = Job {
            program: Arc::clone(program),
            states,
            pass,
        };
        let sent = worker.jobs.as_ref().map(|jobs| jobs.send(job));
        match sent {
            Some(Ok(())) => {
                self.pending = true;
                Ok(())
            }
            _ => Err(ErrorKind::Busy {
                what: "the pass thread",
            }
            .into()),
        }
    }

    /// The pass under way, if there is one, when it is done.
    fn wait(&mut self) -> Option<Done> {
        if !std::mem::take(&mut self.pending) {
            return None;
        }
        self.worker
            .as_ref()
            .and_then(|worker| worker.done.recv().ok())
    }
}

impl Worker {
    fn spawn() -> Result<Worker> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (outbox, done) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("rushlight-ahead".to_owned())
            .spawn(move || {
                for mut job in inbox {
                    let start = Instant::now();
                    let logits = job.program.submit(&mut [Lane {
                        states: &mut *job.states,
                        tokens: &job.pass.tokens,
                        logits: job.pass.logits,
                    }]);
                    let done = Done {
                        states: job.states,
                        pass: job.pass,
                        logits,
                        start,
                    };
                    if outbox.send(done).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| EngineError::backend(crate::error::Fault::Request, error))?;
        Ok(Worker {
            jobs: Some(jobs),
            done,
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic in it was reported as a pass that never came back.
            let _ = thread.join();
        }
    }
}
