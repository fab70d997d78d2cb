//! Formulas to cases, cases to shapes, and what can be proven empty.
//!
//! A case is one conjunction of atoms about an object or an array; its shape is the same with the atoms merged: one
//! schema state for each named member, for each class of other names, for each position. Merging is exact.

use std::rc::Rc;

use foldhash::HashSet;

use super::compiler::{Compiler, StateId};
use super::logic::{Atom, Case, Formula, Items, Kind, Members, Source};
use super::rx::Rx;
use crate::GrammarErrorKind;

/// Values of which an array of distinct items is bounded by the grammar.
const FEW_VALUES: u64 = 64;

/// What an object may be, in one case.
#[derive(Clone, Debug)]
pub(super) struct ObjectShape {
    /// Named members that may be present, in order of output.
    pub(super) named: Vec<Named>,
    /// Classes of all other names, disjoint.
    pub(super) open: Vec<Class>,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
    pub(super) guarded: bool,
    /// Its members may be written in any order, so that only a guard sees which are there.
    pub(super) unordered: bool,
}

impl ObjectShape {
    /// The names of members that have to be there.
    pub(super) fn required(&self) -> impl Iterator<Item = &str> {
        self.named
            .iter()
            .filter(|n| n.required)
            .map(|n| n.name.as_str())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) state: StateId,
    pub(super) required: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Class {
    /// The names of the class.
    pub(super) names: Rx,
    pub(super) state: StateId,
}

/// What an array may be, in one case.
#[derive(Clone, Debug)]
pub(super) struct ArrayShape {
    pub(super) prefix: Vec<StateId>,
    pub(super) rest: StateId,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
    /// At least `.1` and at most `.2` items are in state `.0`.
    pub(super) contains: Option<(StateId, u64, Option<u64>)>,
    /// The states that its items are written in where they are counted: which of them an item is in does not follow from
    /// its place.
    pub(super) counted: Vec<StateId>,
    pub(super) unique: bool,
    pub(super) guarded: bool,
}

/// Which texts a language is asked for where its formula is known within bounds only.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// Those that may be generated: each of them is valid.
    Written,
    /// Those that may be valid: a proof has to hold for all of them.
    Valid,
}

impl<'a> Compiler<'a> {
    /// The cases of `state` for objects or arrays, without those that are plainly empty.
    pub(super) fn cases(&mut self, state: StateId, kind: Kind) -> Vec<Case> {
        let formula = self.expand(state, kind);
        let cases = self.disjunction(vec![Case::default()], &formula, kind);
        let depth = self.limits.proof_depth.min(2);
        cases
            .into_iter()
            .filter(|case| !self.case_is_empty(case, kind, depth))
            .collect()
    }

    /// Each of `bases` and `formula`, as a list of cases.
    pub(super) fn disjunction(
        &mut self,
        bases: Vec<Case>,
        formula: &Formula,
        kind: Kind,
    ) -> Vec<Case> {
        if !self.may_combine(1 + bases.len()) {
            return Vec::new();
        }
        match formula {
            Formula::True => bases,
            Formula::False => Vec::new(),
            Formula::Text(_) | Formula::Between(..) => bases,
            Formula::Atom(atom) => bases
                .into_iter()
                .filter_map(|mut case| self.with_atom(&mut case, atom).then_some(case))
                .collect(),
            Formula::Guarded(source, reason) => self.left_to_a_guard(bases, *source, reason),
            Formula::All(parts) => {
                // Single statements first: they decide which alternatives of the others are left.
                let mut bases = bases;
                let (plain, choices): (Vec<_>, Vec<_>) = parts
                    .iter()
                    .enumerate()
                    .partition(|(_, p)| !matches!(p, Formula::Any(..) | Formula::Unevaluated(..)));
                if bases.len() == 1 && choices.len() <= 1 {
                    for part in parts {
                        bases = self.disjunction(bases, part, kind);
                    }
                    return bases;
                }
                // The order of output is the author's, so the atoms are put back in order afterwards.
                let starts: Vec<Case> = bases;
                let mut all = Vec::new();
                for base in starts {
                    let mut partial: Vec<(Case, Vec<(usize, Case)>)> =
                        vec![(base.clone(), Vec::new())];
                    for (at, part) in plain.iter().chain(&choices) {
                        let mut next = Vec::new();
                        for (whole, pieces) in partial {
                            for grown in self.disjunction(vec![whole.clone()], part, kind) {
                                let added = Case {
                                    atoms: grown
                                        .atoms
                                        .get(whole.atoms.len()..)
                                        .unwrap_or_default()
                                        .to_vec(),
                                    guarded: grown.guarded,
                                };
                                let mut pieces = pieces.clone();
                                pieces.push((*at, added));
                                next.push((grown, pieces));
                            }
                        }
                        partial = next;
                        if partial.len() > 8 {
                            partial.retain(|(case, _)| !self.case_is_empty(case, kind, 2));
                        }
                        if partial.len() > self.limits.cases {
                            // Too many to write out: keep what is common and let a guard choose.
                            if let Formula::Any(source, _) | Formula::Unevaluated(source, ..) = part
                            {
                                self.need_guard(
                                    source.node,
                                    source.keyword,
                                    "too many combinations of alternatives",
                                );
                            }
                            let common = Case {
                                atoms: base.atoms.clone(),
                                guarded: true,
                            };
                            partial = vec![(common, Vec::new())];
                            for (at, part) in &plain {
                                if let Some((whole, mut pieces)) = partial.pop() {
                                    let grown = self.disjunction(vec![whole.clone()], part, kind);
                                    if let [one] = grown.as_slice() {
                                        let added = Case {
                                            atoms: one
                                                .atoms
                                                .get(whole.atoms.len()..)
                                                .unwrap_or_default()
                                                .to_vec(),
                                            guarded: one.guarded,
                                        };
                                        pieces.push((*at, added));
                                        partial.push((one.clone(), pieces));
                                    } else {
                                        partial.push((whole, pieces));
                                    }
                                }
                            }
                            break;
                        }
                    }
                    for (whole, mut pieces) in partial {
                        pieces.sort_by_key(|(at, _)| *at);
                        let mut atoms = base.atoms.clone();
                        atoms.extend(pieces.into_iter().flat_map(|(_, piece)| piece.atoms));
                        all.push(Case {
                            atoms,
                            guarded: whole.guarded,
                        });
                    }
                }
                all
            }
            Formula::Any(source, parts) => {
                let mut out = Vec::new();
                for part in parts {
                    out.extend(self.disjunction(bases.clone(), part, kind));
                    if out.len() > self.limits.cases {
                        return self.left_to_a_guard(bases, *source, "too many alternatives");
                    }
                }
                out
            }
            Formula::Unevaluated(source, inner, state) => {
                let mut out = Vec::new();
                let closed = self.closed(inner, *state, *source, kind);
                if bases.len().saturating_mul(closed.len()) > self.limits.cases {
                    return self.left_to_a_guard(bases, *source, "too many combinations");
                }
                for base in bases {
                    for case in &closed {
                        let mut whole = base.clone();
                        whole.guarded |= case.guarded;
                        if case
                            .atoms
                            .iter()
                            .all(|atom| self.with_atom(&mut whole, atom))
                        {
                            out.push(whole);
                        }
                    }
                }
                out
            }
        }
    }

    /// Takes `units` of the work for combining cases that is left; a problem is reported where there is less.
    pub(super) fn may_combine(&mut self, units: usize) -> bool {
        match self.case_work.checked_sub(units as u64) {
            Some(left) => self.case_work = left,
            None => {
                self.case_work = 0;
                let message = "too many combinations of alternatives".to_owned();
                self.problem_at(GrammarErrorKind::Limit, String::new(), "", message);
                return false;
            }
        }
        true
    }

    /// `cases` without what `source` says, which a guard has to judge.
    fn left_to_a_guard(&mut self, cases: Vec<Case>, source: Source, reason: &str) -> Vec<Case> {
        self.need_guard(source.node, source.keyword, reason);
        let guarded = |case| Case {
            guarded: true,
            ..case
        };
        cases.into_iter().map(guarded).collect()
    }

    /// Adds `atom` to `case`; false where the two plainly contradict each other.
    pub(super) fn with_atom(&mut self, case: &mut Case, atom: &Atom) -> bool {
        let clash = case.atoms.iter().any(|other| match (other, atom) {
            (Atom::Required(a), Atom::Forbidden(b)) | (Atom::Forbidden(a), Atom::Required(b)) => {
                a == b
            }
            (Atom::MinMembers(a), Atom::MaxMembers(b))
            | (Atom::MaxMembers(b), Atom::MinMembers(a))
            | (Atom::MinItems(a), Atom::MaxItems(b))
            | (Atom::MaxItems(b), Atom::MinItems(a)) => a > b,
            _ => false,
        });
        if clash {
            return false;
        }
        case.atoms.push(atom.clone());
        true
    }

    /// The merged form of an object case; `None` where it is plainly empty.
    pub(super) fn object_shape(&mut self, case: &Case) -> Option<ObjectShape> {
        let mut order: Vec<String> = Vec::new();
        let mut seen: HashSet<String> = HashSet::default();
        let mut required: HashSet<Rc<str>> = HashSet::default();
        let mut forbidden: HashSet<Rc<str>> = HashSet::default();
        let (mut min, mut max) = (0, None::<u64>);
        let mut members: Vec<Rc<Members>> = Vec::new();
        let mut name_rules: Vec<Rx> = Vec::new();
        let mut guarded = case.guarded;
        for atom in &case.atoms {
            match atom {
                Atom::Members(m) => {
                    for (name, _) in &m.named {
                        if seen.insert(name.clone()) {
                            order.push(name.clone());
                        }
                    }
                    members.push(m.clone());
                }
                Atom::Required(name) => {
                    required.insert(name.clone());
                }
                Atom::Forbidden(name) => {
                    forbidden.insert(name.clone());
                }
                Atom::MinMembers(n) => min = min.max(*n),
                Atom::MaxMembers(n) => max = Some(max.map_or(*n, |m| m.min(*n))),
                Atom::Names(state, source) => match self.names_language(*state, Bound::Written) {
                    Some(rx) => name_rules.push(rx),
                    None => {
                        self.need_guard(
                            source.node,
                            source.keyword,
                            "the names are not a regular language",
                        );
                        guarded = true;
                    }
                },
                _ => {}
            }
        }
        for atom in &case.atoms {
            if let Atom::Required(name) = atom
                && seen.insert(name.to_string())
            {
                order.push(name.to_string());
            }
        }
        let mut named = Vec::new();
        let mut taken: Vec<Rx> = Vec::new();
        for name in order {
            let allowed = !forbidden.contains(name.as_str())
                && name_rules
                    .iter()
                    .all(|rx| self.matches(rx, &name) != Some(false));
            let state = if allowed {
                self.member_state(&members, &name)
            } else {
                StateId::NEVER
            };
            let is_required = required.contains(name.as_str());
            taken.push(Rx::Lit(name.clone()));
            if state == StateId::NEVER {
                if is_required {
                    return None;
                }
                continue;
            }
            named.push(Named {
                name,
                state,
                required: is_required,
            });
        }
        let mut extra: Vec<&Rc<str>> = forbidden
            .iter()
            .filter(|name| !seen.contains(&***name))
            .collect();
        extra.sort();
        taken.extend(extra.into_iter().map(|name| Rx::Lit(name.to_string())));
        let wanted = named.iter().filter(|n| n.required).count() as u64;
        if max.is_some_and(|max| max < wanted || max < min) {
            return None;
        }
        let open = if max == Some(wanted) && named.iter().all(|n| n.required) {
            Vec::new()
        } else {
            self.open_classes(&members, &taken, &name_rules, &mut guarded)
        };
        if open.is_empty() && (named.len() as u64) < min {
            return None;
        }
        Some(ObjectShape {
            named,
            open,
            min,
            max,
            guarded,
            unordered: false,
        })
    }

    /// The strings of `state`, where they are exactly a regular language.
    pub(super) fn names_language(&mut self, state: StateId, bound: Bound) -> Option<Rx> {
        let formula = self.expand(state, Kind::String);
        let mut exact = true;
        let rx = self.language(&formula, &Rx::All, bound, &mut exact);
        exact.then_some(rx)
    }

    /// The texts of a number or string formula; `base` stands for "anything". Clears `exact` where it was widened.
    pub(super) fn language(
        &mut self,
        formula: &Formula,
        base: &Rx,
        bound: Bound,
        exact: &mut bool,
    ) -> Rx {
        match formula {
            Formula::True | Formula::Atom(_) | Formula::Unevaluated(..) => base.clone(),
            Formula::False => Rx::None,
            Formula::Text(rx) => Rx::clone(rx),
            Formula::Between(narrow, wide) => Rx::clone(match bound {
                Bound::Written => narrow,
                Bound::Valid => wide,
            }),
            Formula::All(parts) => {
                let parts: Vec<Rx> = parts
                    .iter()
                    .map(|p| self.language(p, base, bound, exact))
                    .collect();
                // "Anything" adds nothing to an intersection with something.
                let narrow: Vec<Rx> = parts.iter().filter(|p| *p != base).cloned().collect();
                if narrow.is_empty() {
                    base.clone()
                } else {
                    Rx::and(narrow)
                }
            }
            Formula::Any(_, parts) => {
                let parts: Vec<Rx> = parts
                    .iter()
                    .map(|p| self.language(p, base, bound, exact))
                    .collect();
                Rx::alt(parts)
            }
            Formula::Guarded(..) => {
                *exact = false;
                base.clone()
            }
        }
    }

    /// The merged form of an array case; `None` where it is plainly empty.
    pub(super) fn array_shape(&mut self, case: &Case) -> Option<ArrayShape> {
        let mut lists: Vec<Rc<Items>> = Vec::new();
        let (mut min, mut max) = (0, None::<u64>);
        let mut contains = None;
        let mut unique = false;
        let mut guarded = case.guarded;
        for atom in &case.atoms {
            match atom {
                Atom::Items(items) => lists.push(items.clone()),
                Atom::MinItems(n) => min = min.max(*n),
                Atom::MaxItems(n) => max = Some(max.map_or(*n, |m| m.min(*n))),
                Atom::Contains(state, low, high, source) => match contains {
                    None => contains = Some((*state, *low, *high)),
                    Some(other) if other == (*state, *low, *high) => {}
                    Some(_) => {
                        self.need_guard(source.node, source.keyword, "more than one is in force");
                        guarded = true;
                    }
                },
                Atom::Unique(source) => {
                    self.need_guard(
                        source.node,
                        source.keyword,
                        "items are compared with each other",
                    );
                    unique = true;
                }
                _ => {}
            }
        }
        let len = lists.iter().map(|l| l.prefix.len()).max().unwrap_or(0);
        let mut prefix = Vec::with_capacity(len);
        for i in 0..len {
            let at: Vec<StateId> = lists
                .iter()
                .filter_map(|l| l.prefix.get(i).copied().or(l.rest))
                .collect();
            prefix.push(self.meet(&at));
        }
        let rests: Vec<StateId> = lists.iter().filter_map(|l| l.rest).collect();
        let rest = self.meet(&rests);
        // An impossible position ends the array before it.
        if let Some(i) = prefix.iter().position(|s| *s == StateId::NEVER) {
            max = Some(max.map_or(i as u64, |m| m.min(i as u64)));
        }
        if rest == StateId::NEVER {
            max = Some(max.map_or(len as u64, |m| m.min(len as u64)));
        }
        // More items than there are values are never distinct. Where there are few, the grammar says so too.
        if unique && let Some(values) = self.distinct(rest) {
            let most = values.saturating_add(len as u64);
            if most < min {
                return None;
            }
            if most <= FEW_VALUES {
                max = Some(max.map_or(most, |m| m.min(most)));
            }
        }
        if let Some(m) = max {
            prefix.truncate(usize::try_from(m).unwrap_or(usize::MAX));
            if m < min {
                return None;
            }
        }
        if max.is_some_and(|m| m <= 1) {
            unique = false;
        }
        if let Some((_, low, high)) = contains
            && (high.is_some_and(|h| h < low) || max.is_some_and(|m| m < low))
        {
            return None;
        }
        Some(ArrayShape {
            prefix,
            rest,
            min,
            max,
            contains: contains.filter(|(_, low, high)| *low > 0 || high.is_some()),
            counted: Vec::new(),
            unique,
            guarded,
        })
    }
}
