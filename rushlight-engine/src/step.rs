//! The one loop: gather what every generation wants run, run it in one pass, hand the logits out.

use std::time::Instant;

use rushlight_ir::backend::{BackendError, BackendErrorKind, Lane, Logits, Program};

use crate::error::{EngineError, Fault, Result};
use crate::request::StopReason;
use crate::run::{Pass, Run};
use crate::sequence::Sequence;

/// A generation and the sequence it works on.
pub(crate) struct Member<'a> {
    pub(crate) run: &'a mut Run,
    pub(crate) sequence: &'a mut Sequence,
}

/// Runs one pass over all members that want one. `false` when none does.
///
/// An error of the pass is everyone's, since nobody's tokens were run; an error in choosing a token
/// ends that member alone and is given with its index.
pub(crate) fn advance(
    program: &dyn Program,
    members: &mut [Member<'_>],
) -> std::result::Result<bool, (Option<usize>, EngineError)> {
    let start = Instant::now();
    let mut passes: Vec<(usize, Pass)> = Vec::with_capacity(members.len());
    for (i, member) in members.iter_mut().enumerate() {
        if let Some(pass) = member.run.next_pass(member.sequence) {
            passes.push((i, pass));
        }
    }
    if passes.is_empty() {
        return Ok(false);
    }
    let logits = match submit(program, members, &passes) {
        Ok(logits) => logits,
        Err(error) => {
            for (i, _) in &passes {
                members[*i].run.end(StopReason::Error);
            }
            return Err((None, error));
        }
    };
    let mut row = 0;
    let mut failed = None;
    for (i, pass) in &passes {
        let member = &mut members[*i];
        let rows = row..row + pass.logits;
        row = rows.end;
        if let Err(error) = member.run.absorb(member.sequence, pass, &*logits, rows) {
            member.run.end(StopReason::Error);
            failed.get_or_insert((Some(*i), error));
        }
        let spent = start.elapsed();
        if pass.prefill {
            member.run.timings.prefill += spent;
        } else {
            member.run.timings.decode += spent;
        }
    }
    failed.map_or(Ok(true), Err)
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
        BackendErrorKind::Input | BackendErrorKind::Option | BackendErrorKind::OutOfMemory => {
            Fault::Request
        }
        BackendErrorKind::Graph | BackendErrorKind::Asset => Fault::File,
        _ => Fault::Bug,
    };
    EngineError::backend(fault, error)
}
