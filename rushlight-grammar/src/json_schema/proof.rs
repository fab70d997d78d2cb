//! What can be proven to hold no value.
//!
//! Proofs look a few levels down and answer "not proven" beyond that, so an answer of "empty" can be relied on. They are
//! what makes `oneOf` an ordinary choice, and what drops combinations of alternatives that contradict each other.

use std::rc::Rc;

use super::cases::Bound;
use super::compiler::{Compiler, StateId};
use super::logic::{Atom, Case, Formula, Kind, Members};
use super::number::Compare;
use super::rx::Rx;
use super::schema::{NodeId, Test, types};

/// Schemas that are looked at to count the values of one.
const DISTINCT_LOOKS: u32 = 256;

impl<'a> Compiler<'a> {
    /// At most so many distinct values are in `state`; `None` where that is not plain to see.
    pub(super) fn distinct(&mut self, state: StateId) -> Option<u64> {
        let mut looks = DISTINCT_LOOKS;
        let literals = self.literals(state);
        let positive = literals.iter().filter(|(_, positive)| *positive);
        let counts = positive.map(|(node, _)| self.distinct_in(*node, &mut looks));
        counts.fold(None, fewer)
    }

    fn distinct_in(&mut self, node: NodeId, looks: &mut u32) -> Option<u64> {
        *looks = looks.checked_sub(1)?;
        if node == NodeId::FALSE {
            return Some(0);
        }
        let (mut low, mut high, mut whole) = (None, None, false);
        let mut fewest = None;
        for rule in self.rules(node).iter() {
            let count = match &rule.test {
                Test::Values(values) => Some(values.len() as u64),
                Test::Types(types::INTEGER) => {
                    whole = true;
                    None
                }
                Test::Types(types::NULL) => Some(1),
                Test::Types(types::BOOLEAN) => Some(2),
                Test::Compare(compare, bound) => {
                    let bound: Option<i64> = bound.text().parse().ok();
                    match compare {
                        Compare::AtLeast | Compare::More => low = low.or(bound),
                        Compare::AtMost | Compare::Less => high = high.or(bound),
                    }
                    None
                }
                Test::Ref(node) => self.distinct_in(*node, looks),
                Test::All(nodes) => {
                    let counts = nodes.iter().map(|node| self.distinct_in(*node, looks));
                    counts.fold(None, fewer)
                }
                Test::Any(nodes) | Test::One(nodes) => nodes.iter().try_fold(0u64, |sum, node| {
                    Some(sum.saturating_add(self.distinct_in(*node, looks)?))
                }),
                _ => None,
            };
            fewest = fewer(fewest, count);
        }
        match (whole, low, high) {
            (true, Some(low), Some(high)) if low > high => Some(0),
            // With a bound that is excluded itself there are fewer.
            (true, Some(low), Some(high)) => {
                fewer(fewest, Some(low.abs_diff(high).saturating_add(1)))
            }
            _ => fewest,
        }
    }

    /// Whether no text is in `rx`, as far as the work for proofs allows.
    pub(super) fn is_empty(&mut self, rx: &Rx) -> Option<bool> {
        if let Some(known) = self.emptiness.get(rx) {
            return *known;
        }
        let before = self.proof_work;
        let verdict = rx.is_empty(&mut self.proof_work);
        if self.proof_work < before {
            self.emptiness.insert(rx.clone(), verdict);
        }
        verdict
    }

    /// Whether `text` is in `rx`, as far as the work for proofs allows.
    pub(super) fn matches(&mut self, rx: &Rx, text: &str) -> Option<bool> {
        if let Some(known) = self.matched.get(rx).and_then(|texts| texts.get(text)) {
            return *known;
        }
        let before = self.proof_work;
        let verdict = rx.matches(text, &mut self.proof_work);
        if self.proof_work < before {
            let texts = self.matched.entry(rx.clone()).or_default();
            texts.insert(text.to_owned(), verdict);
        }
        verdict
    }

    /// Whether `formula` holds for no value of `kind`: a proof to `depth` levels, never a guess.
    pub(super) fn is_false(&mut self, formula: &Formula, kind: Kind, depth: u32) -> bool {
        match (formula, kind) {
            (Formula::False, _) => true,
            (Formula::True, _) => false,
            (_, Kind::Null | Kind::True | Kind::False) => false,
            (_, Kind::Number) if self.long_numbers => false,
            (formula, Kind::Number) => {
                let base = self.numbers.any();
                let rx = self.language(formula, &base, Bound::Valid, &mut true);
                self.is_empty(&rx) == Some(true)
            }
            (formula, Kind::String) => {
                let rx = self.language(formula, &Rx::All, Bound::Valid, &mut true);
                self.is_empty(&rx) == Some(true)
            }
            (formula, kind) => {
                // A proof writes no notes: it may look at combinations that are never emitted.
                self.mute();
                let cases = self.disjunction(vec![Case::default()], formula, kind);
                let empty = cases
                    .iter()
                    .all(|case| self.case_is_empty(case, kind, depth));
                self.unmute();
                empty
            }
        }
    }

    pub(super) fn case_is_empty(&mut self, case: &Case, kind: Kind, depth: u32) -> bool {
        if depth == 0 {
            return false;
        }
        self.mute();
        let empty = match kind {
            Kind::Object => self.object_is_empty(case, depth),
            _ => match self.array_shape(case) {
                None => true,
                Some(shape) => {
                    let min = usize::try_from(shape.min).unwrap_or(usize::MAX);
                    let rest = (min > shape.prefix.len()).then_some(shape.rest);
                    let needed = shape.prefix.iter().copied().take(min).chain(rest);
                    let needed: Vec<_> = needed.collect();
                    needed
                        .into_iter()
                        .any(|state| self.state_is_empty(state, depth - 1))
                }
            },
        };
        self.unmute();
        empty
    }

    /// Looks only at required members, which is all that can make an object impossible.
    fn object_is_empty(&mut self, case: &Case, depth: u32) -> bool {
        let mut members: Vec<Rc<Members>> = Vec::new();
        let mut names: Vec<Rc<str>> = Vec::new();
        let mut name_rules = Vec::new();
        let (mut min, mut max) = (0, u64::MAX);
        for atom in &case.atoms {
            match atom {
                Atom::Members(m) => members.push(m.clone()),
                Atom::Required(name) if !names.contains(name) => names.push(name.clone()),
                Atom::Names(state, _) => {
                    name_rules.extend(self.names_language(*state, Bound::Valid))
                }
                Atom::MinMembers(n) => min = min.max(*n),
                Atom::MaxMembers(n) => max = max.min(*n),
                _ => {}
            }
        }
        if (names.len() as u64) > max || min > max {
            return true;
        }
        names.iter().any(|name| {
            let mut rules = name_rules.iter();
            if rules.any(|rx| self.matches(rx, name) == Some(false)) {
                return true;
            }
            let state = self.member_state(&members, name);
            self.state_is_empty(state, depth - 1)
        })
    }

    /// Whether no value is in `state`: a proof to `depth` levels.
    pub(super) fn state_is_empty(&mut self, state: StateId, depth: u32) -> bool {
        match state {
            StateId::ANY => return false,
            StateId::NEVER => return true,
            _ => {}
        }
        match self.empty.get(&state) {
            Some((_, true)) => return true,
            Some((seen, false)) if *seen >= depth => return false,
            _ => {}
        }
        // Seen again below itself, it counts as inhabited.
        self.empty.insert(state, (depth, false));
        let empty = Kind::ALL.into_iter().all(|kind| {
            let formula = self.expand(state, kind);
            self.is_false(&formula, kind, depth)
        });
        self.empty.insert(state, (depth, empty));
        empty
    }
}

/// The smaller of two upper bounds, either of which may be unknown.
fn fewer(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (known, None) | (None, known) => known,
    }
}
