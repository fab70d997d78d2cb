//! Where reading a pattern or a number as long as possible would lose texts: what comes next could as well go on with it.

use std::collections::HashSet;

use super::automaton::{Automaton, Node, Set};
use super::content::Content;
use super::shape::{Part, Shape};
use crate::error::{GrammarError, GrammarErrorKind, Result};

/// Nodes that one pattern's check walks.
const STEPS: usize = 500_000;

/// What may come next.
#[derive(Clone)]
pub(super) struct First {
    bytes: [bool; 256],
    // Whether any text may.
    free: bool,
}

impl First {
    fn none() -> Self {
        Self {
            bytes: [false; 256],
            free: false,
        }
    }

    pub(super) fn of(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut first = Self::none();
        for byte in bytes {
            if let Some(slot) = first.bytes.get_mut(usize::from(byte)) {
                *slot = true;
            }
        }
        first
    }

    fn join(&mut self, other: &Self) {
        for (slot, more) in self.bytes.iter_mut().zip(other.bytes) {
            *slot |= more;
        }
        self.free |= other.free;
    }

    fn has(&self, byte: u8) -> bool {
        self.bytes.get(usize::from(byte)).copied().unwrap_or(false)
    }
}

/// Refuses patterns and numbers that swallow what follows them.
pub(super) fn check(whole: &Part, contents: &[Content]) -> Result<()> {
    Check { contents }.part(whole, &First::none())
}

struct Check<'a> {
    contents: &'a [Content],
}

impl Check<'_> {
    fn part(&self, part: &Shape, after: &First) -> Result<()> {
        match part {
            Shape::Regex { pattern, pointer } => {
                if !goes_on(pattern, after) {
                    return Ok(());
                }
                let reason = "the pattern could go on with what follows it, or is too large to tell, so that its end is not known; \
                              end it by a character that it does not take";
                Err(GrammarError::json(
                    GrammarErrorKind::Unsupported,
                    pointer.clone(),
                    "",
                    reason,
                ))
            }
            Shape::Json { content, .. } => match self.contents.get(*content) {
                Some(content) if content.number.iter().any(|&b| after.has(b)) => {
                    let reason = "a number could go on with the text that follows it, so that its end cannot be told";
                    Err(GrammarError::json(
                        GrammarErrorKind::Unsupported,
                        content.pointer.clone(),
                        "",
                        reason,
                    ))
                }
                _ => Ok(()),
            },
            Shape::Text(_) | Shape::Built(_) | Shape::Rest { .. } => Ok(()),
            Shape::Until(until) => {
                let mut thens = until.stops.iter().map(|(_, then)| then);
                thens.try_for_each(|then| self.part(then, after))
            }
            Shape::Seq(parts) => {
                let mut after = after.clone();
                for part in parts.iter().rev() {
                    self.part(part, &after)?;
                    let (mut first, nullable) = self.first(part);
                    if nullable {
                        first.join(&after);
                    }
                    after = first;
                }
                Ok(())
            }
            Shape::Alt(ways) => ways.iter().try_for_each(|way| self.part(way, after)),
            Shape::Star(inner) => {
                let mut after = after.clone();
                after.join(&self.first(inner).0);
                self.part(inner, &after)
            }
            Shape::Separated { tag, separator } => {
                let mut after = after.clone();
                let (first, nullable) = self.first(separator);
                after.join(&first);
                if nullable {
                    after.join(&self.first(tag).0);
                }
                self.part(tag, &after)
            }
        }
    }

    /// What `part` may begin with, and whether it may be empty.
    fn first(&self, part: &Shape) -> (First, bool) {
        match part {
            Shape::Text(text) => (First::of(text.bytes().next()), text.is_empty()),
            Shape::Regex { pattern, .. } => {
                let nullable = regex_syntax::parse(pattern)
                    .is_ok_and(|hir| hir.properties().minimum_len() == Some(0));
                (first_of_pattern(pattern).unwrap_or(First::none()), nullable)
            }
            Shape::Json { content, .. } => {
                let first = self.contents.get(*content).map(|content| &content.first);
                (First::of(first.into_iter().flatten().copied()), false)
            }
            // A grammar's first characters are not known here.
            Shape::Built(_) => (First::none(), false),
            Shape::Until(until) => {
                let stops = until
                    .stops
                    .iter()
                    .filter_map(|(stop, _)| stop.bytes().next());
                let mut first = First::of(stops);
                first.free = true;
                (first, false)
            }
            Shape::Rest { .. } => {
                let mut first = First::none();
                first.free = true;
                (first, true)
            }
            Shape::Seq(parts) => {
                let mut all = First::none();
                for part in parts {
                    let (first, nullable) = self.first(part);
                    all.join(&first);
                    if !nullable {
                        return (all, false);
                    }
                }
                (all, true)
            }
            Shape::Alt(ways) => {
                let (mut all, mut any) = (First::none(), false);
                for way in ways {
                    let (first, nullable) = self.first(way);
                    all.join(&first);
                    any |= nullable;
                }
                (all, any)
            }
            Shape::Star(inner) => (self.first(inner).0, true),
            Shape::Separated { tag, .. } => self.first(tag),
        }
    }
}

/// What a text of `pattern` may begin with.
pub(super) fn first_of_pattern(pattern: &str) -> Option<First> {
    let (automaton, start) = alone(pattern)?;
    let set = automaton.closure([start]);
    let bytes = (0..=255).filter(|&byte| !automaton.step(&set, byte).is_empty());
    Some(First::of(bytes))
}

/// Whether a whole text of `pattern` could be gone on with by what may come next, so that reading the longest loses texts.
pub(super) fn goes_on(pattern: &str, after: &First) -> bool {
    // Nothing follows.
    if !after.free && !after.bytes.contains(&true) {
        return false;
    }
    let Some((automaton, start)) = alone(pattern) else {
        return true;
    };
    let ends = |set: &Set| {
        let mut nodes = set.iter().filter_map(|&id| automaton.nodes.get(id));
        nodes.any(|node| matches!(node, Node::End))
    };
    // The flag says that the text was whole before.
    let mut open = vec![(automaton.closure([start]), false)];
    let mut seen = HashSet::new();
    let mut steps = 0;
    while let Some((set, was_whole)) = open.pop() {
        let whole = ends(&set);
        if after.free && was_whole && !whole {
            return true;
        }
        if whole && (0..=255).any(|b| after.has(b) && !automaton.step(&set, b).is_empty()) {
            return true;
        }
        for byte in automaton.bytes_of(&set) {
            steps += set.len();
            if steps > STEPS {
                return true;
            }
            let next = automaton.step(&set, byte);
            let next = (next, was_whole || whole);
            if !next.0.is_empty() && seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    false
}

fn alone(pattern: &str) -> Option<(Automaton, usize)> {
    let mut automaton = Automaton::default();
    let end = automaton.node(Node::End)?;
    let start = automaton.hir(&regex_syntax::parse(pattern).ok()?, end)?;
    Some((automaton, start))
}
