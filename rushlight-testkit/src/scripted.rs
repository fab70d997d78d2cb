//! A program whose logits are a function of the history, and which records what it is asked to run.
//!
//! The engine is tested over it: a wrong rewind, a token run twice or a lane mixed up with another
//! changes the history that the script sees, and so the answer.

use std::any::Any;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use rushlight_ir::backend::{
    BackendError, BackendErrorKind, Lane, Logits, Memory, Program, StateOptions, States,
};
use rushlight_ir::graph::Signature;

/// The logits, `[vocab]`, behind a history.
pub type Script = dyn Fn(&[u32]) -> Vec<f32> + Send + Sync;

/// A lane as it was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRecord {
    /// The position of its first token.
    pub position: usize,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Rows of logits wanted.
    pub logits: usize,
}

/// A scripted [`Program`].
pub struct ScriptedProgram {
    signature: Signature,
    script: Box<Script>,
    steps: Mutex<Vec<Vec<LaneRecord>>>,
    fail_at: Mutex<Option<usize>>,
}

impl ScriptedProgram {
    /// A program over `vocab` ids and `context` positions whose logits are `script(history)`.
    pub fn new(
        vocab: usize,
        context: usize,
        script: impl Fn(&[u32]) -> Vec<f32> + Send + Sync + 'static,
    ) -> Arc<ScriptedProgram> {
        Arc::new(ScriptedProgram {
            signature: Signature {
                function: "main".to_owned(),
                vocab,
                logits: vocab,
                context,
                states: Vec::new(),
            },
            script: Box::new(script),
            steps: Mutex::default(),
            fail_at: Mutex::default(),
        })
    }

    /// A program that prefers `next(history)` by 10 and gives every other id 0.
    pub fn choosing(
        vocab: usize,
        context: usize,
        next: impl Fn(&[u32]) -> u32 + Send + Sync + 'static,
    ) -> Arc<ScriptedProgram> {
        ScriptedProgram::new(vocab, context, move |history| {
            let mut row = vec![0.0; vocab];
            if let Some(logit) = row.get_mut(next(history) as usize) {
                *logit = 10.0;
            }
            row
        })
    }

    /// Makes the step of this number, counted from 0, fail.
    pub fn fail_at(&self, step: usize) {
        *self.fail_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
    }

    /// What was submitted, step by step.
    pub fn steps(&self) -> Vec<Vec<LaneRecord>> {
        self.steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The tokens of every lane of every step, in order.
    pub fn tokens_run(&self) -> Vec<u32> {
        let lanes = self.steps().into_iter().flatten();
        lanes.flat_map(|lane| lane.tokens).collect()
    }
}

impl Program for ScriptedProgram {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn states(&self, _: &StateOptions) -> Result<Box<dyn States>, BackendError> {
        Ok(Box::new(History(Vec::new())))
    }

    fn submit(&self, lanes: &mut [Lane<'_>]) -> Result<Box<dyn Logits>, BackendError> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let record = lanes.iter().map(|lane| LaneRecord {
            position: lane.states.len(),
            tokens: lane.tokens.to_vec(),
            logits: lane.logits,
        });
        steps.push(record.collect());
        let fail_at = *self.fail_at.lock().unwrap_or_else(PoisonError::into_inner);
        if fail_at == Some(steps.len() - 1) {
            return Err(BackendError::new(
                BackendErrorKind::OutOfMemory,
                "scripted failure",
            ));
        }
        let mut rows = Vec::new();
        for lane in lanes {
            if lane.tokens.is_empty() {
                return Err(BackendError::new(BackendErrorKind::Input, "an empty lane"));
            }
            let first_row = lane.tokens.len().saturating_sub(lane.logits);
            let history = lane
                .states
                .as_any_mut()
                .downcast_mut::<History>()
                .ok_or_else(|| {
                    BackendError::new(BackendErrorKind::Input, "states of another program")
                })?;
            for (i, &token) in lane.tokens.iter().enumerate() {
                history.0.push(token);
                if i >= first_row {
                    rows.push((self.script)(&history.0));
                }
            }
        }
        Ok(Box::new(Rows {
            width: self.signature.logits,
            rows,
        }))
    }
}

struct Rows {
    width: usize,
    rows: Vec<Vec<f32>>,
}

impl Logits for Rows {
    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn width(&self) -> usize {
        self.width
    }

    fn row(&self, row: usize) -> Cow<'_, [f32]> {
        Cow::Borrowed(&self.rows[row])
    }
}

struct History(Vec<u32>);

impl States for History {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn rewind(&mut self, to: usize) -> usize {
        self.0.truncate(to);
        self.0.len()
    }

    fn reserve(&mut self, _: usize) -> Result<(), BackendError> {
        Ok(())
    }

    fn fork(&self) -> Box<dyn States> {
        Box::new(History(self.0.clone()))
    }

    fn bytes(&self) -> u64 {
        self.0.len() as u64 * 4
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
