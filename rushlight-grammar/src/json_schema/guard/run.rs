//! One text's way through a guard: open containers, the value that is being written, and what was seen of each.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use jsonschema::Validator;
use llguidance::panic_utils::catch_unwind;
use serde_json::Value;

use super::seen::{Seen, same};
use super::{Plan, Spot, exact};
use crate::json_schema::format;
use crate::lower::{GuardRun, GuardStep};

/// Bytes between two saved positions.
const SAVE_EVERY: usize = 256;

#[derive(Clone)]
pub(super) struct Run {
    plan: Arc<Plan>,
    text: Vec<u8>,
    at: Position,
    seen: Seen,
    /// Positions before every so many bytes, to go back to.
    saved: Vec<(usize, Position)>,
    /// The newest position gone back to: trying one token after another goes back to the same.
    gone_back: Option<(usize, Position)>,
}

/// Where the text stands.
#[derive(Clone, Default)]
struct Position {
    open: Vec<Open>,
    /// Inside a string: where its quote stands, and whether a backslash is pending.
    string: Option<(usize, bool)>,
    /// Inside a number or a word: where it starts.
    scalar: Option<usize>,
}

/// An open container.
#[derive(Clone)]
struct Open {
    object: bool,
    start: usize,
    spot: Option<usize>,
    /// The member name before the colon, then the spot of its value.
    awaiting_name: bool,
    value_spot: Option<usize>,
    index: usize,
    /// Where its last value ended, or just behind its bracket.
    done: usize,
}

/// What is said of a value that closes.
enum Verdict {
    Fails,
    /// With its array and its hash, where it is to be kept for comparison.
    Holds(Option<(usize, u64)>),
}

impl Run {
    /// A run at the start of a text.
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan,
            text: Vec::new(),
            at: Position::default(),
            seen: Seen::default(),
            saved: Vec::new(),
            gone_back: None,
        }
    }

    fn spot(&self, id: Option<usize>) -> Option<&Spot> {
        id.and_then(|id| self.plan.spots.get(id))
    }

    /// The spot of a value that starts here.
    fn next_spot(&self) -> Option<usize> {
        match self.at.open.last() {
            None => self.plan.root,
            Some(open) if open.object => open.value_spot,
            Some(open) => {
                let spot = self.spot(open.spot)?;
                spot.prefix.get(open.index).copied().unwrap_or(spot.rest)
            }
        }
    }

    /// Judges the value `text[start..end]`, which closes with the next byte or has just closed. Where it may stand and is an
    /// item to compare with others, the answer holds its container and hash.
    fn judge(&self, start: usize, end: usize, spot: Option<usize>) -> Verdict {
        let judge = self.spot(spot).and_then(|s| s.judge.as_ref());
        let compared =
            self.at.open.last().filter(|open| {
                !open.object && self.spot(open.spot).is_some_and(|spot| spot.unique)
            });
        if judge.is_none() && compared.is_none() {
            return Verdict::Holds(None);
        }
        let read = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
        let Some(value) = self.text.get(start..end).and_then(read) else {
            // Nested deeper than can be judged.
            return Verdict::Fails;
        };
        if judge.is_some() && !self.is_read_exactly(start, end) {
            return Verdict::Fails;
        }
        // A value that the validator fails over is none that it found valid.
        let holds = |judge: &Validator| {
            format::decidedly(|| {
                catch_unwind(AssertUnwindSafe(|| Ok(judge.is_valid(&value)))).unwrap_or(false)
            })
        };
        if judge.is_some_and(|judge| !holds(judge)) {
            return Verdict::Fails;
        }
        let Some(array) = compared else {
            return Verdict::Holds(None);
        };
        let hash = self.seen.hash_value(array.start, &value);
        let other = |text: &[u8]| read(text).is_some_and(|other| same(&other, &value));
        match self.seen.holds(array.start, hash, &self.text, other) {
            true => Verdict::Fails,
            false => Verdict::Holds(Some((array.start, hash))),
        }
    }

    /// Whether the validator, which reckons with 64 bits, judges the very numbers that `text[start..end]` says.
    fn is_read_exactly(&self, start: usize, end: usize) -> bool {
        let text = self.text.get(start..end).map(std::str::from_utf8);
        matches!(text, Some(Ok(text)) if exact::are_exact(text, self.plan.divides))
    }

    /// Judges `text[start..end]`, and records that it closed where it may, with the text of `since` bytes; whether it may.
    fn close(&mut self, (start, end): (usize, usize), spot: Option<usize>, since: usize) -> bool {
        let Verdict::Holds(item) = self.judge(start, end, spot) else {
            return false;
        };
        if let Some((container, hash)) = item {
            self.seen.keep(container, hash, (start, end), since);
        }
        self.closed(end);
        true
    }

    /// Records that a value closed which ends at `end`.
    fn closed(&mut self, end: usize) {
        if let Some(open) = self.at.open.last_mut() {
            open.done = end;
        }
    }

    fn is_named(&self, container: usize, name: &str) -> bool {
        let hash = self.seen.hash_name(container, name);
        let other = |text: &[u8]| serde_json::from_slice::<String>(text).is_ok_and(|o| o == name);
        self.seen.holds(container, hash, &self.text, other)
    }

    /// One byte; `judging` is off while replaying text that was accepted before, whose names and items are known.
    fn step(&mut self, byte: u8, judging: bool) -> GuardStep {
        let here = self.text.len();
        if let Some((start, escaped)) = self.at.string {
            if escaped || byte == b'\\' {
                self.at.string = Some((start, !escaped));
            } else if byte == b'"' {
                return self.end_string(start, here, judging);
            }
            self.text.push(byte);
            return GuardStep::Accept;
        }
        if let Some(start) = self.at.scalar
            && matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')
        {
            if !judging {
                self.closed(here);
            } else if !self.close((start, here), self.next_spot(), here + 1) {
                return GuardStep::Reject { value_start: start };
            }
            self.at.scalar = None;
        }
        match byte {
            b'"' => self.at.string = Some((here, false)),
            b'{' | b'[' => {
                let spot = self.next_spot();
                self.at.open.push(Open {
                    object: byte == b'{',
                    start: here,
                    spot,
                    awaiting_name: byte == b'{',
                    value_spot: None,
                    index: 0,
                    done: here + 1,
                });
            }
            b'}' | b']' => {
                let Some(open) = self.at.open.pop() else {
                    self.text.push(byte);
                    return GuardStep::Accept;
                };
                self.text.push(byte);
                if !judging {
                    self.closed(here + 1);
                    return GuardStep::Accept;
                }
                let required = self
                    .spot(open.spot)
                    .filter(|_| open.object)
                    .map_or(&[][..], |s| s.required.as_slice());
                let whole = required.iter().all(|name| self.is_named(open.start, name));
                if !(whole && self.close((open.start, here + 1), open.spot, here + 1)) {
                    self.text.pop();
                    let value_start = open.start;
                    self.at.open.push(open);
                    return GuardStep::Reject { value_start };
                }
                return GuardStep::Accept;
            }
            b',' => {
                if let Some(open) = self.at.open.last_mut() {
                    open.awaiting_name = open.object;
                    open.index += 1;
                }
            }
            b':' | b' ' | b'\n' | b'\r' | b'\t' => {}
            _ => {
                self.at.scalar.get_or_insert(here);
            }
        }
        self.text.push(byte);
        GuardStep::Accept
    }

    /// The closing quote, at `here`, of the string that starts at `start`.
    fn end_string(&mut self, start: usize, here: usize, judging: bool) -> GuardStep {
        self.text.push(b'"');
        let naming = self.at.open.last().is_some_and(|o| o.awaiting_name);
        if !naming {
            if !judging {
                self.closed(here + 1);
            } else if !self.close((start, here + 1), self.next_spot(), here + 1) {
                self.text.pop();
                return GuardStep::Reject { value_start: start };
            }
            self.at.string = None;
            return GuardStep::Accept;
        }
        let name: Option<String> = self
            .text
            .get(start..=here)
            .and_then(|text| serde_json::from_slice(text).ok());
        let Some(name) = name else {
            self.at.string = None;
            return GuardStep::Accept;
        };
        let object = self.at.open.last().map(|open| open.start);
        if judging
            && self.plan.distinct_names
            && let Some(object) = object
        {
            if self.is_named(object, &name) {
                self.text.pop();
                return GuardStep::Reject { value_start: start };
            }
            let hash = self.seen.hash_name(object, &name);
            self.seen.keep(object, hash, (start, here + 1), here + 1);
        }
        let value_spot = self
            .at
            .open
            .last()
            .and_then(|o| self.spot(o.spot))
            .and_then(|spot| spot.named.get(&name).copied().unwrap_or(spot.other));
        self.at.string = None;
        if let Some(open) = self.at.open.last_mut() {
            open.awaiting_name = false;
            open.value_spot = value_spot;
        }
        GuardStep::Accept
    }
}

impl GuardRun for Run {
    fn push(&mut self, byte: u8) -> GuardStep {
        if self.text.len().is_multiple_of(SAVE_EVERY) {
            self.saved.truncate(self.text.len() / SAVE_EVERY);
            self.saved.push((self.text.len(), self.at.clone()));
        }
        let scalar = self.at.scalar;
        let done = self.at.open.last().map(|open| open.done);
        let step = self.step(byte, true);
        if let GuardStep::Reject { .. } = step {
            // The byte may have closed a scalar before it was refused.
            self.seen.truncate(self.text.len());
            self.at.scalar = scalar;
            if let (Some(open), Some(done)) = (self.at.open.last_mut(), done) {
                open.done = done;
            }
        }
        step
    }

    fn may_refuse(&self, bytes: &[u8]) -> bool {
        // Strings are refused as they close. One that is not open yet opens first.
        let quotes = bytes.iter().filter(|byte| **byte == b'"').count();
        if self.plan.spots.is_empty() {
            let naming = self.at.open.last().is_some_and(|open| open.awaiting_name);
            return quotes > usize::from(self.at.string.is_none() || !naming);
        }
        quotes > usize::from(self.at.string.is_none())
            || bytes
                .iter()
                .any(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
    }

    fn finish(&self) -> GuardStep {
        if let Some(start) = self.at.scalar
            && self.at.open.is_empty()
            && let Verdict::Fails = self.judge(start, self.text.len(), self.plan.root)
        {
            return GuardStep::Reject { value_start: start };
        }
        GuardStep::Accept
    }

    fn open_from(&self) -> Option<usize> {
        let Some(innermost) = self.at.open.last() else {
            return self.at.string.map(|(start, _)| start).or(self.at.scalar);
        };
        // A container that is judged as a whole may be undone as a whole; one whose values are compared, from the last of them
        // on; and a member's name may be a second one of its kind.
        let judged = |open: &&Open| {
            self.spot(open.spot)
                .is_some_and(|spot| spot.judge.is_some() || !spot.required.is_empty())
        };
        let compared = |open: &&Open| self.spot(open.spot).is_some_and(|spot| spot.unique);
        let whole = self.at.open.iter().find(judged).map(|open| open.start);
        let apart = self.at.open.iter().find(compared).map(|open| open.done);
        [whole, apart]
            .into_iter()
            .flatten()
            .min()
            .or(Some(innermost.done))
    }

    fn truncate(&mut self, len: usize) {
        if len >= self.text.len() {
            return;
        }
        self.seen.truncate(len);
        while self.saved.last().is_some_and(|(at, _)| *at > len) {
            self.saved.pop();
        }
        if let Some((to, at)) = &self.gone_back
            && *to == len
        {
            self.at = at.clone();
            self.text.truncate(len);
            return;
        }
        let (from, at) = self.saved.last().cloned().unwrap_or_default();
        let replay = self
            .text
            .get(from..len)
            .map(<[u8]>::to_vec)
            .unwrap_or_default();
        self.text.truncate(from);
        self.at = at;
        for byte in replay {
            self.step(byte, false);
        }
        self.gone_back = Some((len, self.at.clone()));
    }

    fn fork(&self) -> Box<dyn GuardRun> {
        Box::new(self.clone())
    }
}
