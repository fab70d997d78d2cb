//! Where reading a pattern or a number as long as possible would lose texts: what comes next could as well go on with it.

use std::collections::{HashMap, HashSet};

use super::automaton::{Automaton, Node, Set};
use super::content::Content;
use super::shape::{Part, Shape};
use crate::error::{GrammarError, GrammarErrorKind, Result};

/// Nodes that the checks of one document walk.
const STEPS: usize = 2_000_000;

/// What the checks of one document may still cost, and what they found: many formats have the same pattern.
pub(super) struct Work {
    left: usize,
    firsts: HashMap<String, First>,
    going_on: HashMap<(String, First), bool>,
}

impl Work {
    pub(super) fn new() -> Self {
        Self {
            left: STEPS,
            firsts: HashMap::new(),
            going_on: HashMap::new(),
        }
    }

    /// Nothing where there is not so much left.
    fn spend(&mut self, steps: usize) -> Option<()> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.map(|_| ())
    }
}

/// The error of a pattern whose check costs too much.
pub(super) fn too_large(pointer: &str) -> GrammarError {
    let reason =
        "the document's patterns, up to this one, are too large to tell where their texts end";
    GrammarError::json(GrammarErrorKind::Limit, pointer, "", reason)
}

/// What may come next.
#[derive(Clone, PartialEq, Eq, Hash)]
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

    /// Any text.
    fn any() -> Self {
        Self {
            bytes: [true; 256],
            free: true,
        }
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
///
/// # Errors
/// [`GrammarErrorKind::Unsupported`], [`GrammarErrorKind::Limit`].
pub(super) fn check(whole: &Part, contents: &[Content], work: &mut Work) -> Result<()> {
    let mut check = Check {
        contents,
        work,
        firsts: HashMap::new(),
    };
    check.part(whole, &First::none())
}

struct Check<'a> {
    contents: &'a [Content],
    work: &'a mut Work,
    // By address: parts live as long as the tree does.
    firsts: HashMap<*const Shape, (First, bool)>,
}

impl Check<'_> {
    fn part(&mut self, part: &Shape, after: &First) -> Result<()> {
        match part {
            Shape::Regex { pattern, pointer } => {
                if let Err(e) = regex_syntax::parse(pattern) {
                    let reason = format!("the pattern, joined with what follows it: {}", cause(&e));
                    return Err(GrammarError::json(
                        GrammarErrorKind::Limit,
                        pointer.clone(),
                        "",
                        reason,
                    ));
                }
                if !goes_on(pattern, after, self.work).ok_or_else(|| too_large(pointer))? {
                    return Ok(());
                }
                let reason = "the pattern could go on with what follows it, so that its end is not known; end it by a character \
                              that it does not take";
                Err(GrammarError::json(
                    GrammarErrorKind::Unsupported,
                    pointer.clone(),
                    "",
                    reason,
                ))
            }
            Shape::Json { content, .. } => match self.contents.get(*content) {
                Some(content)
                    if content.number.iter().any(|&b| after.has(b))
                        || (content.breaks && after.free) =>
                {
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
                    let (mut first, nullable) = self.first(part)?;
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
                after.join(&self.first(inner)?.0);
                self.part(inner, &after)
            }
            Shape::Separated { tag, separator } => {
                let mut after = after.clone();
                let (first, nullable) = self.first(separator)?;
                after.join(&first);
                if nullable {
                    after.join(&self.first(tag)?.0);
                }
                self.part(tag, &after)
            }
        }
    }

    /// What `part` may begin with, and whether it may be empty.
    fn first(&mut self, part: &Shape) -> Result<(First, bool)> {
        let key = std::ptr::from_ref(part);
        if let Some(known) = self.firsts.get(&key) {
            return Ok(known.clone());
        }
        let first = self.fresh_first(part)?;
        self.firsts.insert(key, first.clone());
        Ok(first)
    }

    fn fresh_first(&mut self, part: &Shape) -> Result<(First, bool)> {
        Ok(match part {
            Shape::Text(text) => (First::of(text.bytes().next()), text.is_empty()),
            Shape::Regex { pattern, pointer } => {
                let nullable = regex_syntax::parse(pattern)
                    .is_ok_and(|hir| hir.properties().minimum_len() == Some(0));
                let first = first_of_pattern(pattern, self.work);
                (first.ok_or_else(|| too_large(pointer))?, nullable)
            }
            Shape::Json { content, .. } => {
                let first = self.contents.get(*content).map(|content| &content.first);
                (First::of(first.into_iter().flatten().copied()), false)
            }
            // A grammar's first characters are not known here.
            Shape::Built(_) => (First::any(), true),
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
                    let (first, nullable) = self.first(part)?;
                    all.join(&first);
                    if !nullable {
                        return Ok((all, false));
                    }
                }
                (all, true)
            }
            Shape::Alt(ways) => {
                let (mut all, mut any) = (First::none(), false);
                for way in ways {
                    let (first, nullable) = self.first(way)?;
                    all.join(&first);
                    any |= nullable;
                }
                (all, any)
            }
            Shape::Star(inner) => (self.first(inner)?.0, true),
            Shape::Separated { tag, .. } => self.first(tag)?,
        })
    }
}

fn cause(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(e) => e.kind().to_string(),
        regex_syntax::Error::Translate(e) => e.kind().to_string(),
        _ => "is none".to_owned(),
    }
}

/// What a text of `pattern` may begin with; nothing where telling costs too much.
pub(super) fn first_of_pattern(pattern: &str, work: &mut Work) -> Option<First> {
    if let Some(first) = work.firsts.get(pattern) {
        return Some(first.clone());
    }
    let (automaton, start) = alone(pattern, work)?;
    let set = automaton.closure([start]);
    let mut first = First::none();
    let starts: Vec<u8> = automaton.bytes_of(&set).into_iter().collect();
    for (n, &low) in starts.iter().enumerate() {
        work.spend(set.len())?;
        if !automaton.step(&set, low).is_empty() {
            let next = starts.get(n + 1).map_or(256, |&next| usize::from(next));
            let slots = first.bytes.iter_mut().take(next);
            slots.skip(low.into()).for_each(|slot| *slot = true);
        }
    }
    work.firsts.insert(pattern.to_owned(), first.clone());
    Some(first)
}

/// Whether a whole text of `pattern` could be gone on with by what may come next, so that reading the longest loses texts; nothing
/// where telling costs too much.
pub(super) fn goes_on(pattern: &str, after: &First, work: &mut Work) -> Option<bool> {
    // Nothing follows.
    if !after.free && !after.bytes.contains(&true) {
        return Some(false);
    }
    let key = (pattern.to_owned(), after.clone());
    if let Some(&known) = work.going_on.get(&key) {
        return Some(known);
    }
    let answer = walk(pattern, after, work)?;
    work.going_on.insert(key, answer);
    Some(answer)
}

fn walk(pattern: &str, after: &First, work: &mut Work) -> Option<bool> {
    let (automaton, start) = alone(pattern, work)?;
    let ends = |set: &Set| {
        let mut nodes = set.iter().filter_map(|&id| automaton.nodes.get(id));
        nodes.any(|node| matches!(node, Node::End))
    };
    // The flag says that the text was whole before.
    let mut open = vec![(automaton.closure([start]), false)];
    let mut seen = HashSet::new();
    while let Some((set, was_whole)) = open.pop() {
        let whole = ends(&set);
        if after.free && was_whole && !whole {
            return Some(true);
        }
        let starts: Vec<u8> = automaton.bytes_of(&set).into_iter().collect();
        for (n, &low) in starts.iter().enumerate() {
            work.spend(set.len())?;
            let next = automaton.step(&set, low);
            if next.is_empty() {
                continue;
            }
            let end = starts.get(n + 1).map_or(256, |&next| usize::from(next));
            let mut taken = after.bytes.iter().take(end).skip(low.into());
            if whole && taken.any(|&has| has) {
                return Some(true);
            }
            let next = (next, was_whole || whole);
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Some(false)
}

fn alone(pattern: &str, work: &mut Work) -> Option<(Automaton, usize)> {
    let mut automaton = Automaton::default();
    let end = automaton.node(Node::End)?;
    let start = automaton.hir(&regex_syntax::parse(pattern).ok()?, end)?;
    work.spend(automaton.nodes.len())?;
    Some((automaton, start))
}
