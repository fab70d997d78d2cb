//! A constraint within a generation: its next mask is made on another thread while a pass runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::constrain::{Accepted, Constraint, ConstraintCounts, ConstraintError, MaskStatus};
use crate::error::{EngineError, ErrorKind, Fault, Result};
use crate::worker::Worker;

/// A constraint, and the mask of the token after those it accepted.
pub(crate) struct Guided {
    /// Absent while the other thread has it, and for good after a panic.
    constraint: Option<Box<dyn Constraint>>,
    words: Vec<u32>,
    /// Known for the state that the constraint is in.
    status: Option<MaskStatus>,
    worker: Option<Worker<Job, Done>>,
    counts: ConstraintCounts,
    waited: Duration,
}

impl Guided {
    /// Follows `constraint` over rows of `width` logits.
    pub(crate) fn new(constraint: Box<dyn Constraint>, width: usize) -> Result<Guided> {
        if constraint.vocab() != width {
            return Err(ErrorKind::MaskWidth {
                found: constraint.vocab(),
                expected: width,
            }
            .into());
        }
        Ok(Guided {
            words: vec![0; width.div_ceil(32)],
            counts: constraint.counts(),
            constraint: Some(constraint),
            status: None,
            worker: None,
            waited: Duration::ZERO,
        })
    }

    /// Begins the next mask on the other thread, unless it is known.
    pub(crate) fn start(&mut self) -> Result<()> {
        if self.status.is_some() {
            return Ok(());
        }
        let Some(constraint) = self.constraint.take() else {
            return Ok(());
        };
        let worker = match &mut self.worker {
            Some(worker) => worker,
            none => none.insert(Worker::spawn("rushlight-mask", Job::run)?),
        };
        let job = Job {
            constraint,
            words: std::mem::take(&mut self.words),
        };
        if let Err(job) = worker.start(job) {
            // Without the thread the mask is made when it is wanted.
            self.constraint = Some(job.constraint);
            self.words = job.words;
        }
        Ok(())
    }

    /// What may come next; [`words`](Self::words) are its bits.
    pub(crate) fn mask(&mut self) -> Result<MaskStatus> {
        self.land()?;
        if let Some(status) = self.status {
            return Ok(status);
        }
        let mut words = std::mem::take(&mut self.words);
        let status = self.call(|constraint| constraint.mask(&mut words));
        self.words = words;
        let status = status?;
        self.status = Some(status);
        Ok(status)
    }

    /// The bits of the last mask.
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    /// Takes a token.
    pub(crate) fn accept(&mut self, token: u32) -> Result<Accepted> {
        self.land()?;
        self.status = None;
        self.call(|constraint| constraint.accept(token))
    }

    /// The tokens that must come next.
    pub(crate) fn forced(&mut self) -> Result<Vec<u32>> {
        self.land()?;
        self.call(|constraint| constraint.forced())
    }

    /// Says that at most `tokens` more tokens will be taken.
    pub(crate) fn budget(&mut self, tokens: usize) -> Result<()> {
        self.land()?;
        self.status = None;
        self.call(|constraint| constraint.budget(tokens))
    }

    /// Whether the text may end here.
    pub(crate) fn may_end(&mut self) -> Result<bool> {
        self.land()?;
        self.call(|constraint| constraint.may_end())
    }

    /// Whether the text is whole and nothing may follow.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.may_end()? && self.mask()? == MaskStatus::Terminated)
    }

    /// Tokens that were accepted and will not be undone.
    pub(crate) fn firm(&mut self) -> Result<usize> {
        self.land()?;
        self.call(|constraint| Ok(constraint.firm()))
    }

    pub(crate) fn counts(&self) -> ConstraintCounts {
        self.counts
    }

    /// Time spent in waiting for the constraint.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits for the mask under way, if there is one.
    fn land(&mut self) -> Result<()> {
        let start = Instant::now();
        let Some(done) = self.worker.as_mut().and_then(Worker::wait) else {
            return Ok(());
        };
        self.waited += start.elapsed();
        self.words = done.words;
        self.constraint = done.constraint;
        if let Some(constraint) = &self.constraint {
            self.counts = constraint.counts();
        }
        self.status = Some(done.status?);
        Ok(())
    }

    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Box<dyn Constraint>) -> Result<T, ConstraintError>,
    ) -> Result<T> {
        let start = Instant::now();
        let constraint = self.constraint.as_mut().ok_or_else(panicked)?;
        let done = catch_unwind(AssertUnwindSafe(|| call(constraint)));
        self.counts = constraint.counts();
        self.waited += start.elapsed();
        match done {
            Ok(result) => Ok(result?),
            Err(_) => {
                self.constraint = None;
                Err(panicked())
            }
        }
    }
}

struct Job {
    constraint: Box<dyn Constraint>,
    words: Vec<u32>,
}

struct Done {
    constraint: Option<Box<dyn Constraint>>,
    words: Vec<u32>,
    status: Result<MaskStatus>,
}

impl Job {
    fn run(mut self) -> Done {
        let status = catch_unwind(AssertUnwindSafe(|| self.constraint.mask(&mut self.words)));
        match status {
            Ok(status) => Done {
                constraint: Some(self.constraint),
                words: self.words,
                status: status.map_err(EngineError::from),
            },
            Err(_) => Done {
                constraint: None,
                words: self.words,
                status: Err(panicked()),
            },
        }
    }
}

fn panicked() -> EngineError {
    ConstraintError::new(Fault::Bug, "the constraint panicked").into()
}
