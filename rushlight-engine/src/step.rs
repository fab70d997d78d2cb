//! The one loop: gather what every generation wants run, run it in one pass, hand the logits out.

use std::time::Instant;

use rushlight_ir::backend::{BackendError, BackendErrorKind, Lane, Logits, Program};

use crate::error::{EngineError, Fault, Result};
use crate::run::{Pass, Run};
use crate::sequence::Sequence;

/// A generation and the sequence it works on.
pub(crate) struct Member<'a> {
    pub(crate) run: &'a mut Run,
    pub(crate) sequence: &'a mut Sequence,
}

/// What one call of [`advance`] came to.
pub(crate) struct Advance {
    /// Whether any member wanted a pass.
    pub(crate) ran: bool,
    /// Errors, each with the member that it ended; `None`: the pass failed, and ended all in it.
    pub(crate) errors: Vec<(Option<usize>, EngineError)>,
}

/// Runs one pass over all members that want one.
pub(crate) fn advance(program: &dyn Program, members: &mut [Member<'_>]) -> Advance {
    let start = Instant::now();
    let mut errors = Vec::new();
    let mut passes: Vec<(usize, Pass)> = Vec::with_capacity(members.len());
    for (i, member) in members.iter_mut().enumerate() {
        match member.run.next_pass(member.sequence) {
            Ok(Some(pass)) => passes.push((i, pass)),
            Ok(None) => {}
            Err(error) => {
                member.run.fail(member.sequence);
                errors.push((Some(i), error));
            }
        }
    }
    if passes.is_empty() {
        let ran = !errors.is_empty();
        return Advance { ran, errors };
    }
    let logits = match submit(program, members, &passes) {
        Ok(logits) => logits,
        Err(error) => {
            for (i, _) in &passes {
                let member = &mut members[*i];
                member.run.fail(member.sequence);
            }
            errors.push((None, error));
            return Advance { ran: true, errors };
        }
    };
    let mut row = 0;
    for (i, pass) in &passes {
        let member = &mut members[*i];
        let rows = row..row + pass.logits;
        row = rows.end;
        if let Err(error) = member.run.absorb(member.sequence, pass, &*logits, rows) {
            member.run.fail(member.sequence);
            errors.push((Some(*i), error));
        }
        let spent = start.elapsed();
        if pass.prefill {
            member.run.timings.prefill += spent;
        } else {
            member.run.timings.decode += spent;
        }
    }
    Advance { ran: true, errors }
}

fn submit(
    program: &dyn Program,
    members: &mut [Member<'_>],
    passes: &[(usize, Pass)],
) -> Result<Box<dyn Logits>> {
    let mut passes = passes.iter().peekable();
    let mut lanes = Vec::with_capacity(passes.len());
    for (i, member) in members.iter_mut().enumerate() {
        if let Some((_, pass)) = passes.next_if(|(at, _)| *at == i) {
            lanes.push(Lane {
                states: &mut **member.sequence.states()?,
                tokens: &pass.tokens,
                logits: pass.logits,
            });
        }
    }
    program.submit(&mut lanes).map_err(backend_error)
}

/// A backend's error with whose fault it is.
pub(crate) fn backend_error(error: BackendError) -> EngineError {
    let fault = match error.kind() {
        BackendErrorKind::Option | BackendErrorKind::OutOfMemory => Fault::Request,
        BackendErrorKind::Graph | BackendErrorKind::Asset => Fault::File,
        // Inputs were checked before they were submitted.
        _ => Fault::Bug,
    };
    EngineError::backend(fault, error)
}
