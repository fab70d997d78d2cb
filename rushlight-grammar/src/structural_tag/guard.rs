//! Guards of schemas inside tags: they must learn where their value starts.
//!
//! The text is followed along the structure that it has. Where a value begins its guards start; where it ends they are done.

use std::sync::Arc;

use super::automaton::Set;
use super::content::{Read, Scan};
use super::track::{Stand, Track};
use crate::lower::{Guard, GuardRun, GuardStep};

/// Judges the schemas of tags.
pub(super) struct TagGuard {
    track: Arc<Track>,
}

impl TagGuard {
    pub(super) fn new(track: Track) -> Self {
        Self {
            track: Arc::new(track),
        }
    }
}

impl Guard for TagGuard {
    fn begin(&self) -> Box<dyn GuardRun> {
        Box::new(Run {
            state: State::At(self.track.start()),
            track: self.track.clone(),
            len: 0,
            past: Vec::new(),
        })
    }

    fn describe(&self) -> String {
        let guards = self.track.contents.iter().flat_map(|c| &c.guards);
        guards.map(|g| g.describe()).collect::<Vec<_>>().join("; ")
    }
}

struct Run {
    track: Arc<Track>,
    // Bytes read.
    len: usize,
    state: State,
    // States that were left, and how much text there was: a truncation goes back to one.
    past: Vec<(usize, State)>,
}

enum State {
    At(Stand),
    Value(Value),
}

/// A value that is being read.
struct Value {
    start: usize,
    contents: Arc<Vec<usize>>,
    after: Arc<Set>,
    runs: Vec<Box<dyn GuardRun>>,
    // Each with how much text there was when it began to hold; never empty.
    scans: Vec<(usize, Scan)>,
}

impl State {
    fn copy(&self) -> Self {
        match self {
            Self::At(stand) => Self::At(stand.clone()),
            Self::Value(value) => Self::Value(Value {
                start: value.start,
                contents: value.contents.clone(),
                after: value.after.clone(),
                runs: value.runs.iter().map(|run| run.fork()).collect(),
                scans: value.scans.clone(),
            }),
        }
    }
}

impl Value {
    /// Gives `byte`, or the end where there is none, to the guards; those before one that refuses take it back.
    fn judge(&mut self, byte: Option<u8>, inside: usize) -> Result<(), GuardStep> {
        for at in 0..self.runs.len() {
            let step = match (self.runs.get_mut(at), byte) {
                (Some(run), Some(byte)) => run.push(byte),
                (Some(run), None) => run.finish(),
                (None, _) => GuardStep::Accept,
            };
            if let GuardStep::Reject { value_start } = step {
                if byte.is_some() {
                    for run in self.runs.iter_mut().take(at) {
                        run.truncate(inside);
                    }
                }
                return Err(GuardStep::Reject {
                    value_start: self.start + value_start,
                });
            }
        }
        Ok(())
    }

    fn scan(&self) -> Scan {
        self.scans.last().map_or(Scan::Before, |&(_, scan)| scan)
    }
}

impl Run {
    /// The state after `byte`, where it is another one.
    fn moved(&mut self, byte: u8) -> Result<Option<State>, GuardStep> {
        let (track, len) = (&self.track, self.len);
        match &mut self.state {
            State::At(stand) => match from(track, stand, byte, len)? {
                State::At(next) if next == *stand => Ok(None),
                next => Ok(Some(next)),
            },
            State::Value(value) => {
                let scan = value.scan();
                let follows = || track.follows(&value.contents, &value.after, byte);
                let read = scan.read(byte, follows);
                if let Read::Over = read {
                    value.judge(None, 0)?;
                    // The byte may begin the next value.
                    return from(track, &track.after(&value.after), byte, len).map(Some);
                }
                value.judge(Some(byte), len - value.start)?;
                match read {
                    Read::More(next) => {
                        if next != scan {
                            value.scans.push((len + 1, next));
                        }
                        Ok(None)
                    }
                    _ => Ok(Some(State::At(track.after(&value.after)))),
                }
            }
        }
    }
}

/// The state after `byte`, read at `stand` after `len` bytes.
fn from(track: &Track, stand: &Stand, byte: u8, len: usize) -> Result<State, GuardStep> {
    match stand {
        Stand::Value {
            contents, after, ..
        } if track.begins(contents, byte) => {
            let guards = track.contents_of(contents).next();
            let guards = guards.into_iter().flat_map(|content| &content.guards);
            let mut value = Value {
                start: len,
                contents: contents.clone(),
                after: after.clone(),
                runs: guards.map(|guard| guard.begin()).collect(),
                scans: Vec::new(),
            };
            value.judge(Some(byte), 0)?;
            if let Read::More(scan) = Scan::Before.read(byte, || false) {
                value.scans.push((len + 1, scan));
            }
            Ok(State::Value(value))
        }
        // The grammar never lets other text through: it has no more texts than the automaton.
        _ => match track.step(stand, byte) {
            Some(next) => Ok(State::At(next)),
            None => Err(GuardStep::Reject { value_start: len }),
        },
    }
}

impl GuardRun for Run {
    fn push(&mut self, byte: u8) -> GuardStep {
        match self.moved(byte) {
            Ok(Some(next)) => {
                let before = std::mem::replace(&mut self.state, next);
                self.past.push((self.len, before));
            }
            Ok(None) => {}
            Err(step) => return step,
        }
        self.len += 1;
        GuardStep::Accept
    }

    fn may_refuse(&self, bytes: &[u8]) -> bool {
        match &self.state {
            State::At(stand) => {
                let mut stand = stand.clone();
                for &byte in bytes {
                    match self.track.step(&stand, byte) {
                        Some(next) if matches!(stand, Stand::Text(_)) => stand = next,
                        _ => return true,
                    }
                }
                false
            }
            State::Value(value) => {
                let mut scan = value.scan();
                for &byte in bytes {
                    let follows = || self.track.follows(&value.contents, &value.after, byte);
                    match scan.read(byte, follows) {
                        Read::More(next) => scan = next,
                        _ => return true,
                    }
                }
                value.runs.iter().any(|run| run.may_refuse(bytes))
            }
        }
    }

    fn finish(&self) -> GuardStep {
        if let State::Value(value) = &self.state {
            for run in &value.runs {
                if let GuardStep::Reject { value_start } = run.finish() {
                    return GuardStep::Reject {
                        value_start: value.start + value_start,
                    };
                }
            }
        }
        GuardStep::Accept
    }

    fn open_from(&self) -> Option<usize> {
        match &self.state {
            State::Value(value) => {
                let open = value.runs.iter().filter_map(|run| run.open_from()).min();
                open.map(|from| value.start + from)
            }
            // Before its first byte a value is open from where it will start.
            State::At(Stand::Value { contents, .. }) => {
                let mut contents = self.track.contents_of(contents);
                contents.any(|c| c.class.is_some()).then_some(self.len)
            }
            State::At(Stand::Text(_)) => None,
        }
    }

    fn truncate(&mut self, len: usize) {
        while let Some((_, state)) = self.past.pop_if(|(at, _)| *at >= len) {
            self.state = state;
        }
        self.len = len;
        if let State::Value(value) = &mut self.state {
            while value.scans.len() > 1 && value.scans.last().is_some_and(|&(at, _)| at > len) {
                value.scans.pop();
            }
            for run in &mut value.runs {
                run.truncate(len.saturating_sub(value.start));
            }
        }
    }

    fn fork(&self) -> Box<dyn GuardRun> {
        Box::new(Self {
            track: self.track.clone(),
            len: self.len,
            state: self.state.copy(),
            past: self
                .past
                .iter()
                .map(|(at, state)| (*at, state.copy()))
                .collect(),
        })
    }
}
