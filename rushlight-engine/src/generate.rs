//! Generations as callers see them: an iterator of steps over one sequence, or over several.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rushlight_ir::backend::{BackendError, BackendErrorKind, Lane, Logits, Program, States};

use crate::error::{EngineError, Fault, Result};
use crate::plan::{Lookahead, Plan};
use crate::request::{Outcome, Step};
use crate::run::{Pass, Run};
use crate::sequence::Sequence;
use crate::step::{Member, advance, backend_error};
use crate::worker::Worker;

/// An answer as it is made, step by step. Dropping it cancels it within one step and leaves the
/// sequence usable, with the tokens that were given out.
pub struct Generation<'a> {
    program: &'a Arc<dyn Program>,
    sequence: &'a mut Sequence,
    run: Run,
    /// With a lookahead of 2: the thread that runs the next pass while the caller has this step.
    ahead: Option<Ahead>,
    /// An error that waits for the steps before it to be given out.
    failed: Option<EngineError>,
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
            failed: None,
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
    fn fill(&mut self) {
        while !self.run.has_ready() && self.failed.is_none() {
            let result = match self.ahead.as_mut().and_then(Ahead::wait) {
                Some(done) => self.land(done),
                None => {
                    let mut member = [Member {
                        run: &mut self.run,
                        sequence: self.sequence,
                    }];
                    let mut advance = advance(&**self.program, &mut member);
                    if !advance.ran {
                        break;
                    }
                    advance.errors.pop().map_or(Ok(()), |(_, error)| Err(error))
                }
            };
            self.failed = result.err();
        }
    }

    /// Takes a pass that ran on the other thread.
    fn land(&mut self, done: Done) -> Result<()> {
        self.sequence.put_states(done.states);
        let start = Instant::now();
        let result = match done.logits {
            Ok(logits) => {
                let rows = 0..done.pass.logits;
                self.run.absorb(self.sequence, &done.pass, &*logits, rows)
            }
            Err(error) => Err(backend_error(error)),
        };
        self.run.timings.decode += done.spent + start.elapsed();
        if result.is_err() {
            self.run.fail(self.sequence);
        }
        result
    }

    /// Has the next pass under way while the caller has this step.
    fn start_ahead(&mut self) -> Result<()> {
        let Some(ahead) = &mut self.ahead else {
            return Ok(());
        };
        if self.run.has_ready() || self.failed.is_some() {
            return Ok(());
        }
        let worker = ahead.worker()?;
        if let Some(pass) = self.run.next_pass(self.sequence)? {
            let job = Job {
                program: Arc::clone(self.program),
                states: self.sequence.take_states()?,
                pass,
            };
            if let Err(job) = worker.start(job) {
                self.sequence.put_states(job.states);
                return Err(gone());
            }
        }
        Ok(())
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Self::Item> {
        self.fill();
        let Some(step) = self.run.pop() else {
            return self.failed.take().map(Err);
        };
        if let Err(error) = self.start_ahead() {
            self.run.fail(self.sequence);
            self.failed = Some(error);
        }
        Some(Ok(step))
    }
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation")
            .field("sequence", &self.sequence)
            .field("outcome", &self.outcome())
            .finish_non_exhaustive()
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        if let Some(done) = self.ahead.as_mut().and_then(Ahead::wait) {
            self.sequence.put_states(done.states);
        }
        self.run.leave(self.sequence);
    }
}

/// Several answers made side by side: every pass has a lane for each that is not finished.
pub struct Batch<'a> {
    program: &'a dyn Program,
    members: Vec<(Run, &'a mut Sequence)>,
    /// Errors that wait for the steps before them to be given out.
    failed: VecDeque<(Option<usize>, EngineError)>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        program: &'a dyn Program,
        members: Vec<(Run, &'a mut Sequence)>,
    ) -> Batch<'a> {
        Batch {
            program,
            members,
            failed: VecDeque::new(),
        }
    }

    /// How the answer of the request at `index` went; `None` past the last request.
    pub fn outcome(&self, index: usize) -> Option<Outcome> {
        self.members.get(index).map(|(run, _)| run.outcome())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for (run, sequence) in &mut self.members {
            run.leave(sequence);
        }
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
            if let Some((index, error)) = self.failed.pop_front() {
                return Some((index, Err(error)));
            }
            let mut members: Vec<Member<'_>> = self
                .members
                .iter_mut()
                .map(|(run, sequence)| Member { run, sequence })
                .collect();
            let advance = advance(self.program, &mut members);
            self.failed.extend(advance.errors);
            // What is cancelled gives out what it held, without a pass.
            if !advance.ran && !self.members.iter().any(|(run, _)| run.has_ready()) {
                return None;
            }
        }
    }
}

/// One pass under way on a thread of its own.
#[derive(Default)]
struct Ahead {
    worker: Option<Worker<Job, Done>>,
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
    spent: Duration,
}

impl Ahead {
    fn worker(&mut self) -> Result<&mut Worker<Job, Done>> {
        Ok(match &mut self.worker {
            Some(worker) => worker,
            none => none.insert(Worker::spawn("rushlight-ahead", Job::run)?),
        })
    }

    /// The pass under way, if there is one, when it is done.
    fn wait(&mut self) -> Option<Done> {
        self.worker.as_mut().and_then(Worker::wait)
    }
}

impl Job {
    fn run(mut self) -> Done {
        let start = Instant::now();
        // A panic is reported by the caller's next step, and the states stay the sequence's.
        let logits = catch_unwind(AssertUnwindSafe(|| {
            self.program.submit(&mut [Lane {
                states: &mut *self.states,
                tokens: &self.pass.tokens,
                logits: self.pass.logits,
            }])
        }));
        Done {
            states: self.states,
            pass: self.pass,
            logits: logits.unwrap_or_else(|_| {
                Err(BackendError::new(
                    BackendErrorKind::Internal,
                    "the pass panicked",
                ))
            }),
            spent: start.elapsed(),
        }
    }
}

fn gone() -> EngineError {
    let error = BackendError::new(BackendErrorKind::Internal, "the pass thread is gone");
    EngineError::backend(Fault::Bug, error)
}
