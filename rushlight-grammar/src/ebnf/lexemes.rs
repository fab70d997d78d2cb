//! Where reading the longest lexeme would lose texts.
//!
//! A lexer that takes the longest piece is exact when, wherever a lexeme may stop, no character that may come next could
//! also carry on a lexeme that read the same characters so far. This module looks for pairs that break the rule: it walks the
//! product of each lexeme's automaton with those of all lexemes, and compares what carries the other on with what may follow
//! the first. It errs on the safe side: every lexeme counts as expected everywhere, counts become loops, and what is too large
//! to look at counts as broken.

use std::collections::{BTreeSet, HashSet};

use super::analyse::nullable;
use super::node::{Node, Range};
use super::write::{Plan, Sym};

/// States of all automata together.
const STATES: usize = 60_000;
/// Pairs of states that are walked at a time.
const PAIRS: usize = 1_500_000;
/// Pairs of states that are walked for one grammar, however often its lexemes are split.
pub(crate) const ALL_PAIRS: usize = 2_000_000;

/// A set of characters: a bit for each range that the grammar does not divide.
type Set = Vec<u64>;

/// The rules whose lexemes may stop where another could go on, those split into characters already apart. `left` are the
/// pairs of states that may still be walked.
pub(crate) fn conflicts(
    plan: &Plan<'_>,
    bodies: &[Node],
    nullables: &[bool],
    left: &mut usize,
) -> BTreeSet<usize> {
    let coarse = |owners: &BTreeSet<usize>| owners.iter().any(|&owner| !plan.is_fine(owner));
    let mut found = BTreeSet::new();
    if !plan.lexemes.iter().any(|lexeme| coarse(&lexeme.owners)) {
        return found;
    }
    let alphabet = Alphabet::of(plan, bodies);
    let follows = Follows::of(plan, bodies, nullables, &alphabet);
    let everything = || -> BTreeSet<usize> {
        plan.lexemes
            .iter()
            .flat_map(|lexeme| lexeme.owners.iter().copied())
            .filter(|&owner| !plan.is_fine(owner))
            .collect()
    };
    if follows.lexemes.iter().all(|set| is_empty(set)) {
        return found;
    }
    let Some(automata) = Automata::of(plan, bodies, &alphabet) else {
        return everything();
    };
    let most = PAIRS.min(*left);
    let mut pairs = most;
    for (id, follow) in follows.lexemes.iter().enumerate() {
        if is_empty(follow) {
            continue;
        }
        let Some(met) = automata.meet(id, follow, &mut pairs) else {
            *left = left.saturating_sub(most);
            return everything();
        };
        for other in met {
            for lexeme in [id, other] {
                let owners = plan.lexemes.get(lexeme).map(|l| &l.owners);
                found.extend(owners.into_iter().flatten().filter(|&&o| !plan.is_fine(o)));
            }
        }
    }
    *left = left.saturating_sub(most - pairs);
    found
}

/// Ranges that no class of the grammar divides, by their starts.
struct Alphabet {
    starts: Vec<u32>,
}

impl Alphabet {
    fn of(plan: &Plan<'_>, bodies: &[Node]) -> Self {
        let mut starts = BTreeSet::from([0]);
        for node in plan.lexemes.iter().map(|l| &l.node).chain(bodies) {
            cuts(node, &mut starts);
        }
        Self {
            starts: starts.into_iter().collect(),
        }
    }

    fn empty(&self) -> Set {
        vec![0; self.starts.len().div_ceil(64)]
    }

    fn set(&self, ranges: &[Range]) -> Set {
        let mut set = self.empty();
        for &(low, high) in ranges {
            let from = self.starts.partition_point(|&s| s < low);
            let to = self.starts.partition_point(|&s| s <= high);
            for bit in from..to {
                if let Some(word) = set.get_mut(bit / 64) {
                    *word |= 1 << (bit % 64);
                }
            }
        }
        set
    }

    fn first_of(&self, text: &str) -> Set {
        match text.chars().next() {
            Some(c) => self.set(&[(c.into(), c.into())]),
            None => self.empty(),
        }
    }
}

fn cuts(node: &Node, starts: &mut BTreeSet<u32>) {
    match node {
        Node::Text(text) => {
            for c in text.chars() {
                starts.extend([u32::from(c), u32::from(c) + 1]);
            }
        }
        Node::Class(ranges) => {
            for &(low, high) in ranges {
                starts.extend([low, high + 1]);
            }
        }
        Node::Seq(parts) | Node::Alt(parts) => parts.iter().for_each(|part| cuts(part, starts)),
        Node::Repeat(inner, _, _) => cuts(inner, starts),
        Node::Rule(_) | Node::Token(_) => {}
    }
}

/// What may come after each lexeme.
struct Follows {
    lexemes: Vec<Set>,
}

struct Walk<'a> {
    alphabet: &'a Alphabet,
    nullables: &'a [bool],
    bodies: &'a [Node],
    // First characters of the rules' bodies, as expressions.
    first_rules: Vec<Set>,
    first_lexemes: Vec<Set>,
    follow_rules: Vec<Set>,
    follow_lexemes: Vec<Set>,
    changed: bool,
}

impl Follows {
    fn of(plan: &Plan<'_>, bodies: &[Node], nullables: &[bool], alphabet: &Alphabet) -> Self {
        let mut walk = Walk {
            alphabet,
            nullables,
            bodies,
            first_rules: vec![alphabet.empty(); bodies.len()],
            first_lexemes: Vec::new(),
            follow_rules: vec![alphabet.empty(); bodies.len()],
            follow_lexemes: vec![alphabet.empty(); plan.lexemes.len()],
            changed: true,
        };
        while walk.changed {
            walk.changed = false;
            // Users tend to stand before what they use, so the way back settles soonest.
            for (id, body) in bodies.iter().enumerate().rev() {
                let first = walk.first(body);
                if let Some(known) = walk.first_rules.get_mut(id) {
                    walk.changed |= join(known, &first);
                }
            }
        }
        walk.first_lexemes = plan.lexemes.iter().map(|l| walk.first(&l.node)).collect();
        walk.changed = true;
        while walk.changed {
            walk.changed = false;
            for (id, rule) in plan.rules.iter().enumerate() {
                if let Some(sym) = rule {
                    let after = walk.follow_rules.get(id).cloned().unwrap_or_default();
                    walk.follow(sym, &after);
                }
            }
        }
        Self {
            lexemes: walk.follow_lexemes,
        }
    }
}

impl Walk<'_> {
    fn first(&self, node: &Node) -> Set {
        match node {
            Node::Text(text) => self.alphabet.first_of(text),
            Node::Class(ranges) => self.alphabet.set(ranges),
            Node::Token(_) => self.alphabet.empty(),
            Node::Rule(id) => self.first_rules.get(*id).cloned().unwrap_or_default(),
            Node::Repeat(inner, _, _) => self.first(inner),
            Node::Alt(ways) => {
                let mut set = self.alphabet.empty();
                for way in ways {
                    join(&mut set, &self.first(way));
                }
                set
            }
            Node::Seq(parts) => {
                let mut set = self.alphabet.empty();
                for part in parts {
                    join(&mut set, &self.first(part));
                    if !nullable(part, self.nullables) {
                        break;
                    }
                }
                set
            }
        }
    }

    fn first_sym(&self, sym: &Sym) -> Set {
        match sym {
            Sym::Empty | Sym::Token(_) => self.alphabet.empty(),
            Sym::Lexeme(id) => self.first_lexemes.get(*id).cloned().unwrap_or_default(),
            Sym::Rule(id) => self.first_rules.get(*id).cloned().unwrap_or_default(),
            Sym::Repeat(inner, _, _) => self.first_sym(inner),
            Sym::Alt(ways) => {
                let mut set = self.alphabet.empty();
                for way in ways {
                    join(&mut set, &self.first_sym(way));
                }
                set
            }
            Sym::Seq(parts) => {
                let mut set = self.alphabet.empty();
                for part in parts {
                    join(&mut set, &self.first_sym(part));
                    if !self.nullable_sym(part) {
                        break;
                    }
                }
                set
            }
        }
    }

    fn nullable_sym(&self, sym: &Sym) -> bool {
        match sym {
            Sym::Empty => true,
            Sym::Lexeme(_) | Sym::Token(_) => false,
            Sym::Rule(id) => self
                .bodies
                .get(*id)
                .is_some_and(|body| nullable(body, self.nullables)),
            Sym::Repeat(inner, min, _) => *min == 0 || self.nullable_sym(inner),
            Sym::Alt(ways) => ways.iter().any(|way| self.nullable_sym(way)),
            Sym::Seq(parts) => parts.iter().all(|part| self.nullable_sym(part)),
        }
    }

    fn follow(&mut self, sym: &Sym, after: &[u64]) {
        match sym {
            Sym::Empty | Sym::Token(_) => {}
            Sym::Lexeme(id) => {
                if let Some(known) = self.follow_lexemes.get_mut(*id) {
                    self.changed |= join(known, after);
                }
            }
            Sym::Rule(id) => {
                if let Some(known) = self.follow_rules.get_mut(*id) {
                    self.changed |= join(known, after);
                }
            }
            Sym::Alt(ways) => ways.iter().for_each(|way| self.follow(way, after)),
            Sym::Repeat(inner, _, max) => {
                let mut after = after.to_vec();
                if *max != Some(1) {
                    join(&mut after, &self.first_sym(inner));
                }
                self.follow(inner, &after);
            }
            Sym::Seq(parts) => {
                let mut after = after.to_vec();
                for part in parts.iter().rev() {
                    self.follow(part, &after);
                    let first = self.first_sym(part);
                    if self.nullable_sym(part) {
                        join(&mut after, &first);
                    } else {
                        after = first;
                    }
                }
            }
        }
    }
}

/// The automata of all lexemes, side by side.
struct Automata {
    states: Vec<State>,
    // Of each lexeme: its start and its end.
    ends: Vec<(usize, usize)>,
}

#[derive(Default)]
struct State {
    empty: Vec<usize>,
    step: Option<(Set, usize)>,
    lexeme: usize,
}

impl Automata {
    fn of(plan: &Plan<'_>, bodies: &[Node], alphabet: &Alphabet) -> Option<Self> {
        let mut automata = Self {
            states: Vec::new(),
            ends: Vec::new(),
        };
        for (id, lexeme) in plan.lexemes.iter().enumerate() {
            let start = automata.state(id);
            let end = automata.add(&lexeme.node, start, id, bodies, alphabet)?;
            automata.ends.push((start, end));
        }
        Some(automata)
    }

    fn state(&mut self, lexeme: usize) -> usize {
        self.states.push(State {
            lexeme,
            ..State::default()
        });
        self.states.len() - 1
    }

    fn link(&mut self, from: usize, to: usize) {
        if let Some(state) = self.states.get_mut(from) {
            state.empty.push(to);
        }
    }

    /// Adds `node` from state `from` on; the answer is where it ends, `None` where there are too many states.
    fn add(
        &mut self,
        node: &Node,
        from: usize,
        lexeme: usize,
        bodies: &[Node],
        alphabet: &Alphabet,
    ) -> Option<usize> {
        if self.states.len() > STATES {
            return None;
        }
        match node {
            Node::Text(text) => {
                let mut at = from;
                for c in text.chars() {
                    at = self.step(at, alphabet.set(&[(c.into(), c.into())]), lexeme);
                }
                Some(at)
            }
            Node::Class(ranges) => Some(self.step(from, alphabet.set(ranges), lexeme)),
            Node::Seq(parts) => parts.iter().try_fold(from, |at, part| {
                self.add(part, at, lexeme, bodies, alphabet)
            }),
            Node::Alt(ways) => {
                let end = self.state(lexeme);
                for way in ways {
                    let start = self.state(lexeme);
                    self.link(from, start);
                    let at = self.add(way, start, lexeme, bodies, alphabet)?;
                    self.link(at, end);
                }
                Some(end)
            }
            Node::Repeat(inner, _, max) => {
                let start = self.state(lexeme);
                let end = self.state(lexeme);
                self.link(from, start);
                self.link(start, end);
                let at = self.add(inner, start, lexeme, bodies, alphabet)?;
                self.link(at, end);
                if *max != Some(1) {
                    self.link(at, start);
                }
                Some(end)
            }
            Node::Rule(id) => {
                // A state of its own for every use, so that the limit bounds rules that hold nothing.
                let start = self.state(lexeme);
                self.link(from, start);
                self.add(bodies.get(*id)?, start, lexeme, bodies, alphabet)
            }
            Node::Token(_) => None,
        }
    }

    fn step(&mut self, from: usize, set: Set, lexeme: usize) -> usize {
        let before = self.state(lexeme);
        self.link(from, before);
        let to = self.state(lexeme);
        if let Some(state) = self.states.get_mut(before) {
            state.step = Some((set, to));
        }
        to
    }

    /// The lexemes that a character of `follow` could carry on after a whole match of lexeme `id`; `None` where there is too
    /// much to walk.
    fn meet(&self, id: usize, follow: &[u64], pairs: &mut usize) -> Option<BTreeSet<usize>> {
        let &(start, end) = self.ends.get(id)?;
        let mut met = BTreeSet::new();
        let mut seen = HashSet::new();
        // The flag says that a character was read: the empty text is no lexeme.
        let mut open: Vec<(usize, usize, bool)> = self
            .ends
            .iter()
            .map(|&(other, _)| (start, other, false))
            .collect();
        while let Some((a, b, read)) = open.pop() {
            if !seen.insert((a, b, read)) {
                continue;
            }
            *pairs = pairs.checked_sub(1)?;
            let (left, right) = (self.states.get(a)?, self.states.get(b)?);
            open.extend(left.empty.iter().map(|&next| (next, b, read)));
            open.extend(right.empty.iter().map(|&next| (a, next, read)));
            if let Some((set, _)) = &right.step
                && a == end
                && read
                && meets(set, follow)
            {
                met.insert(right.lexeme);
            }
            if let (Some((x, x_to)), Some((y, y_to))) = (&left.step, &right.step)
                && meets(x, y)
            {
                open.push((*x_to, *y_to, true));
            }
        }
        Some(met)
    }
}

/// Adds `more` to `set`; whether that changed it.
fn join(set: &mut [u64], more: &[u64]) -> bool {
    let mut changed = false;
    for (word, &new) in set.iter_mut().zip(more) {
        changed |= new & !*word != 0;
        *word |= new;
    }
    changed
}

fn meets(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).any(|(x, y)| x & y != 0)
}

fn is_empty(set: &[u64]) -> bool {
    set.iter().all(|&word| word == 0)
}
