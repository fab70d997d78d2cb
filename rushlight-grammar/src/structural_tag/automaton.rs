//! The texts of a structural tag as an automaton over bytes, in which a JSON value is one step.
//!
//! It takes at least the texts that the grammar takes: grammars of their own count as any text, and large counts as loops.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use regex_syntax::hir::{Class, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;

use super::shape::{Shape, Until};

/// Nodes of one automaton.
const NODES: usize = 300_000;
/// Nodes that the copies of a counted repetition may take before it counts as a loop.
const COPIES: usize = 4_000;

/// Nodes that wait for a byte, sorted.
pub(super) type Set = Vec<usize>;

#[derive(Default)]
pub(super) struct Automaton {
    pub(super) nodes: Vec<Node>,
    races: Vec<Race>,
}

pub(super) enum Node {
    Split(Vec<usize>),
    Byte {
        low: u8,
        high: u8,
        next: usize,
    },
    /// Free text that has come to node `at` of its race.
    Race {
        race: usize,
        at: usize,
    },
    /// A JSON value; `loose` reads any text in its place.
    Json {
        content: usize,
        next: usize,
        loose: usize,
    },
    /// Any text.
    Any {
        next: usize,
    },
    End,
}

/// Free text that looks out for several strings at once (Aho and Corasick's automaton).
struct Race {
    nodes: Vec<RaceNode>,
    // The automaton's node of this race's node 0.
    base: usize,
    exits: Vec<usize>,
    // Where the text may go on from anywhere in it.
    leave: Option<usize>,
    bytes: BTreeSet<u8>,
}

#[derive(Default)]
struct RaceNode {
    next: BTreeMap<u8, usize>,
    fail: usize,
    dead: bool,
    rival: bool,
    stops: BTreeSet<usize>,
}

impl Automaton {
    /// A node that reads `shape` and goes on at `next`; `None` where there are too many. `blank` says whether white space may
    /// follow a JSON value.
    pub(super) fn add(&mut self, shape: &Shape, next: usize, blank: bool) -> Option<usize> {
        match shape {
            Shape::Text(text) => self.text(text.as_bytes(), next),
            Shape::Regex { pattern, .. } => self.hir(&regex_syntax::parse(pattern).ok()?, next),
            Shape::Built(_) => self.node(Node::Any { next }),
            Shape::Json { content, .. } => {
                let mut next = next;
                if blank {
                    let after = self.node(Node::Split(vec![next]))?;
                    let more = self.bytes(b" \t\r\n", after)?;
                    self.link(after, more);
                    next = after;
                }
                let loose = self.node(Node::Any { next })?;
                self.node(Node::Json {
                    content: *content,
                    next,
                    loose,
                })
            }
            Shape::Until(until) => {
                let Until {
                    stops,
                    rivals,
                    excludes,
                } = until;
                let mut exits = Vec::with_capacity(stops.len());
                for (_, then) in stops {
                    exits.push(self.add(then, next, blank)?);
                }
                let stops: Vec<&str> = stops.iter().map(|(stop, _)| stop.as_str()).collect();
                self.race(Race::new(&stops, rivals, excludes), exits, None)
            }
            Shape::Rest { excludes } => {
                self.race(Race::new(&[], &[], excludes), Vec::new(), Some(next))
            }
            Shape::Seq(parts) => parts
                .iter()
                .rev()
                .try_fold(next, |next, part| self.add(part, next, blank)),
            Shape::Alt(ways) => {
                let mut starts = Vec::with_capacity(ways.len());
                for way in ways {
                    starts.push(self.add(way, next, blank)?);
                }
                self.node(Node::Split(starts))
            }
            Shape::Star(inner) => {
                let again = self.node(Node::Split(vec![next]))?;
                let start = self.add(inner, again, blank)?;
                self.link(again, start);
                Some(again)
            }
            Shape::Separated { tag, separator } => {
                let after = self.node(Node::Split(vec![next]))?;
                let start = self.add(tag, after, blank)?;
                let more = self.add(separator, start, blank)?;
                self.link(after, more);
                Some(start)
            }
        }
    }

    /// A node that reads what `hir` does and goes on at `next`.
    pub(super) fn hir(&mut self, hir: &Hir, next: usize) -> Option<usize> {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Some(next),
            HirKind::Literal(literal) => self.text(&literal.0, next),
            HirKind::Class(Class::Bytes(class)) => {
                let mut ways = Vec::new();
                for range in class.ranges() {
                    ways.push(self.range(range.start(), range.end(), next)?);
                }
                self.node(Node::Split(ways))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let mut ways = Vec::new();
                for range in class.ranges() {
                    for sequence in Utf8Sequences::new(range.start(), range.end()) {
                        let first = sequence
                            .as_slice()
                            .iter()
                            .rev()
                            .try_fold(next, |next, range| self.range(range.start, range.end, next));
                        ways.push(first?);
                    }
                }
                self.node(Node::Split(ways))
            }
            HirKind::Capture(capture) => self.hir(&capture.sub, next),
            HirKind::Concat(parts) => parts
                .iter()
                .rev()
                .try_fold(next, |next, part| self.hir(part, next)),
            HirKind::Alternation(parts) => {
                let mut ways = Vec::with_capacity(parts.len());
                for part in parts {
                    ways.push(self.hir(part, next)?);
                }
                self.node(Node::Split(ways))
            }
            HirKind::Repetition(repetition) => {
                let sub = &repetition.sub;
                let least = repetition.min;
                let most = repetition.max.unwrap_or(least);
                let copies = usize::try_from(most).unwrap_or(usize::MAX);
                if copies.saturating_mul(size_of(sub)) > COPIES {
                    return self.repeat(sub, least.min(1), next);
                }
                let mut at = next;
                match repetition.max {
                    None => at = self.repeat(sub, 0, next)?,
                    Some(_) => {
                        for _ in least..most {
                            let start = self.hir(sub, at)?;
                            at = self.node(Node::Split(vec![next, start]))?;
                        }
                    }
                }
                (0..least).try_fold(at, |at, _| self.hir(sub, at))
            }
        }
    }

    fn repeat(&mut self, sub: &Hir, least: u32, next: usize) -> Option<usize> {
        let again = self.node(Node::Split(vec![next]))?;
        let start = self.hir(sub, again)?;
        self.link(again, start);
        Some(if least == 0 { again } else { start })
    }

    pub(super) fn node(&mut self, node: Node) -> Option<usize> {
        if self.nodes.len() >= NODES {
            return None;
        }
        self.nodes.push(node);
        Some(self.nodes.len() - 1)
    }

    fn link(&mut self, split: usize, to: usize) {
        if let Some(Node::Split(ways)) = self.nodes.get_mut(split) {
            ways.push(to);
        }
    }

    fn range(&mut self, low: u8, high: u8, next: usize) -> Option<usize> {
        self.node(Node::Byte { low, high, next })
    }

    fn text(&mut self, text: &[u8], next: usize) -> Option<usize> {
        text.iter()
            .rev()
            .try_fold(next, |next, &byte| self.range(byte, byte, next))
    }

    fn bytes(&mut self, bytes: &[u8], next: usize) -> Option<usize> {
        let ways: Option<Vec<_>> = bytes.iter().map(|&b| self.range(b, b, next)).collect();
        self.node(Node::Split(ways?))
    }

    fn race(&mut self, mut race: Race, exits: Vec<usize>, leave: Option<usize>) -> Option<usize> {
        race.base = self.nodes.len();
        race.exits = exits;
        race.leave = leave;
        let number = self.races.len();
        for at in 0..race.nodes.len() {
            self.node(Node::Race { race: number, at })?;
        }
        let base = race.base;
        self.races.push(race);
        Some(base)
    }

    /// Every node that waits for a byte or a value and is reached from `from` without one.
    pub(super) fn closure(&self, from: impl IntoIterator<Item = usize>) -> Set {
        let mut open: Vec<usize> = from.into_iter().collect();
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            match self.nodes.get(id) {
                Some(Node::Split(ways)) => open.extend(ways),
                Some(Node::Any { next }) => open.push(*next),
                Some(Node::Race { race, .. }) => {
                    open.extend(self.races.get(*race).and_then(|race| race.leave));
                }
                _ => {}
            }
        }
        seen.retain(|id| !matches!(self.nodes.get(*id), Some(Node::Split(_))));
        seen.into_iter().collect()
    }

    /// The nodes after `byte`; values are not entered.
    pub(super) fn step(&self, set: &[usize], byte: u8) -> Set {
        let mut to = Vec::new();
        for &id in set {
            match self.nodes.get(id) {
                Some(Node::Byte { low, high, next }) if (*low..=*high).contains(&byte) => {
                    to.push(*next);
                }
                Some(Node::Any { .. }) => to.push(id),
                Some(Node::Race { race, at }) => {
                    if let Some(race) = self.races.get(*race) {
                        race.step(*at, byte, &mut to);
                    }
                }
                _ => {}
            }
        }
        self.closure(to)
    }

    /// Bytes of which each stands for all up to the next: they lead from `set` to the same nodes.
    pub(super) fn bytes_of(&self, set: &[usize]) -> BTreeSet<u8> {
        let mut starts = BTreeSet::from([0]);
        let mut cut = |low: u8, high: u8| {
            starts.insert(low);
            starts.extend(high.checked_add(1));
        };
        for &id in set {
            match self.nodes.get(id) {
                Some(Node::Byte { low, high, .. }) => cut(*low, *high),
                Some(Node::Race { race, .. }) => {
                    let bytes = self.races.get(*race).map(|race| &race.bytes);
                    bytes.into_iter().flatten().for_each(|&b| cut(b, b));
                }
                _ => {}
            }
        }
        starts
    }
}

/// About how many nodes `hir` takes.
fn size_of(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len(),
        // A range is a few sequences of bytes.
        HirKind::Class(Class::Unicode(class)) => 3 * class.ranges().len(),
        HirKind::Capture(capture) => size_of(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(size_of).fold(1, usize::saturating_add)
        }
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min).max(1);
            let copies = usize::try_from(copies).unwrap_or(usize::MAX);
            copies.saturating_mul(size_of(&repetition.sub)).min(COPIES)
        }
    }
}

impl Race {
    fn new(stops: &[&str], rivals: &[String], excludes: &[String]) -> Self {
        let mut race = Self {
            nodes: vec![RaceNode::default()],
            base: 0,
            exits: Vec::new(),
            leave: None,
            bytes: BTreeSet::new(),
        };
        for (n, stop) in stops.iter().enumerate() {
            if let Some(node) = race.word(stop) {
                node.stops.insert(n);
            }
        }
        for rival in rivals {
            if let Some(node) = race.word(rival) {
                node.rival = true;
            }
        }
        for exclude in excludes {
            if let Some(node) = race.word(exclude) {
                node.dead = true;
            }
        }
        race.link();
        race
    }

    fn word(&mut self, word: &str) -> Option<&mut RaceNode> {
        let mut at = 0;
        for byte in word.bytes() {
            self.bytes.insert(byte);
            let fresh = self.nodes.len();
            at = *self.nodes.get_mut(at)?.next.entry(byte).or_insert(fresh);
            if at == fresh {
                self.nodes.push(RaceNode::default());
            }
        }
        self.nodes.get_mut(at)
    }

    /// Links each node to that of its longest proper end, breadth first, and takes over what that end says.
    fn link(&mut self) {
        let mut open = VecDeque::from([0]);
        while let Some(at) = open.pop_front() {
            let Some(node) = self.nodes.get(at) else {
                continue;
            };
            let fail = node.fail;
            let children: Vec<(u8, usize)> = node.next.iter().map(|(&b, &to)| (b, to)).collect();
            for (byte, child) in children {
                let to = if at == 0 { 0 } else { self.goto(fail, byte) };
                let (dead, rival, stops) = match self.nodes.get(to) {
                    Some(end) => (end.dead, end.rival, end.stops.clone()),
                    None => continue,
                };
                if let Some(node) = self.nodes.get_mut(child) {
                    node.fail = to;
                    node.dead |= dead;
                    node.rival |= rival;
                    node.stops.extend(stops);
                }
                open.push_back(child);
            }
        }
    }

    fn goto(&self, mut at: usize, byte: u8) -> usize {
        while let Some(node) = self.nodes.get(at) {
            match node.next.get(&byte) {
                Some(&to) => return to,
                None if at == 0 => break,
                None => at = node.fail,
            }
        }
        0
    }

    fn step(&self, at: usize, byte: u8, to: &mut Vec<usize>) {
        let at = self.goto(at, byte);
        match self.nodes.get(at) {
            Some(node) if node.dead => {}
            Some(node) if !node.stops.is_empty() => {
                to.extend(node.stops.iter().filter_map(|&n| self.exits.get(n)));
            }
            Some(node) if node.rival => {}
            _ => to.push(self.base + at),
        }
    }
}
