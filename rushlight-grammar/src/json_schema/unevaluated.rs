//! `unevaluatedProperties` and `unevaluatedItems`: what is left once the schemas beside them have been applied.
//!
//! What a value's members and items are evaluated by depends on which alternatives of an `anyOf` hold, all of them counted.
//! The more hold, the fewer members are left, so a list of cases that has every set of alternatives is exact without saying
//! of the others that they do not hold.

use std::rc::Rc;

use super::compiler::{Compiler, StateId};
use super::logic::{Atom, Case, Formula, Items, Kind, Members, Source, all};
use super::report::How;
use super::rx::Rx;

/// Alternatives of one `anyOf` that evaluate members, up to which every set of them is written out.
const TOGETHER: usize = 5;
/// Parts of all sets together; with nested `anyOf`s they multiply.
const PARTS: usize = 20_000;
/// Cases from which on those that contradict themselves are dropped early.
const PLENTY: usize = 8;

impl<'a> Compiler<'a> {
    /// The cases of `inner`, each with what an `unevaluated*` of `state` beside it says.
    pub(super) fn closed(
        &mut self,
        inner: &Formula,
        state: StateId,
        source: Source,
        kind: Kind,
    ) -> Vec<Case> {
        // Items are evaluated from the first on, so that of several alternatives the one that goes furthest counts alone.
        let mut left = PARTS;
        let sets = match kind {
            Kind::Object => together(inner, &mut left),
            _ => Some(inner.clone()),
        };
        if !self.may_combine(PARTS - left) {
            return Vec::new();
        }
        let few = sets.is_some();
        let sets = sets.unwrap_or_else(|| inner.clone());
        let mut cases = self.disjunction(vec![Case::default()], &sets, kind);
        if cases.len() > PLENTY {
            cases.retain(|case| !self.case_is_empty(case, kind, 2));
        }
        let mut out = Vec::with_capacity(cases.len());
        for mut case in cases {
            let closing = match few {
                true => self.closing(&case, state, source, kind),
                false => None,
            };
            match closing {
                Some(atom) => {
                    if self.with_atom(&mut case, &atom) {
                        out.push(case);
                    }
                }
                None => {
                    self.need_guard(
                        source.node,
                        source.keyword,
                        "what is evaluated depends on values",
                    );
                    case.guarded = true;
                    out.push(case);
                }
            }
        }
        out
    }

    /// What an `unevaluated*` of `state` says beside the statements of `case`; `None` where only a guard can tell.
    fn closing(&mut self, case: &Case, state: StateId, source: Source, kind: Kind) -> Option<Atom> {
        self.note(source.node, source.keyword, How::Rewriting);
        // What was widened may evaluate more than is seen here.
        if case.guarded {
            return None;
        }
        if kind == Kind::Array {
            let mut prefix = 0;
            for atom in &case.atoms {
                match atom {
                    Atom::Items(items) if items.evaluates => {
                        if items.rest.is_some() {
                            return Some(Atom::MinItems(0));
                        }
                        prefix = prefix.max(items.prefix.len());
                    }
                    Atom::Contains(..) => return None,
                    _ => {}
                }
            }
            return Some(Atom::Items(Rc::new(Items {
                prefix: vec![StateId::ANY; prefix],
                rest: Some(state),
                evaluates: true,
            })));
        }
        let mut named: Vec<(String, StateId)> = Vec::new();
        let mut patterns: Vec<(Rc<Rx>, StateId)> = Vec::new();
        for atom in &case.atoms {
            if let Atom::Members(members) = atom
                && members.evaluates
            {
                if members.rest.is_some() {
                    return Some(Atom::MinMembers(0));
                }
                named.extend(
                    members
                        .named
                        .iter()
                        .map(|(name, _)| (name.clone(), StateId::ANY)),
                );
                patterns.extend(
                    members
                        .patterns
                        .iter()
                        .map(|(rx, _)| (rx.clone(), StateId::ANY)),
                );
            }
        }
        Some(Atom::Members(Rc::new(Members {
            named,
            patterns,
            rest: Some(state),
            evaluates: true,
            source,
        })))
    }
}

/// `formula` with every set of alternatives that may hold at once; `None` where the sets have more than `left` parts.
fn together(formula: &Formula, left: &mut usize) -> Option<Formula> {
    let mut each = |parts: &[Formula]| {
        let parts = parts.iter().map(|part| together(part, left));
        parts.collect::<Option<Vec<_>>>()
    };
    Some(match formula {
        Formula::All(parts) => Formula::All(each(parts)?),
        // Those of a `oneOf` or an `if` exclude each other, and what a `not` leaves evaluates nothing.
        Formula::Any(source, parts) if source.keyword != "anyOf" => {
            Formula::Any(*source, each(parts)?)
        }
        Formula::Any(source, parts) => {
            let (evaluating, mut sets): (Vec<_>, Vec<_>) =
                each(parts)?.into_iter().partition(evaluates);
            if evaluating.len() > TOGETHER {
                return None;
            }
            // Each alternative is in every other set.
            let parts: usize = evaluating.iter().map(size).sum();
            *left = left.checked_sub(parts << evaluating.len() >> 1)?;
            for set in 1..1u32 << evaluating.len() {
                let members = evaluating.iter().enumerate();
                let held = members.filter(|(i, _)| set >> i & 1 == 1);
                sets.push(all(held.map(|(_, part)| part.clone()).collect()));
            }
            Formula::Any(*source, sets)
        }
        other => other.clone(),
    })
}

/// The number of parts that `formula` has.
fn size(formula: &Formula) -> usize {
    match formula {
        Formula::All(parts) | Formula::Any(_, parts) => {
            parts.iter().map(size).sum::<usize>().saturating_add(1)
        }
        Formula::Unevaluated(_, inner, _) => size(inner).saturating_add(1),
        _ => 1,
    }
}

/// Whether a value for which `formula` holds may have members that it evaluates.
fn evaluates(formula: &Formula) -> bool {
    match formula {
        Formula::All(parts) | Formula::Any(_, parts) => parts.iter().any(evaluates),
        Formula::Atom(Atom::Members(members)) => members.evaluates,
        Formula::Atom(Atom::Items(items)) => items.evaluates,
        Formula::Atom(Atom::Contains(..)) | Formula::Guarded(..) | Formula::Unevaluated(..) => true,
        Formula::Atom(_)
        | Formula::True
        | Formula::False
        | Formula::Text(_)
        | Formula::Between(..) => false,
    }
}

/// `formula`, counting nothing as evaluated: what stands under a `not` leaves no annotation.
pub(super) fn unevaluating(formula: Formula) -> Formula {
    let each = |parts: Vec<Formula>| parts.into_iter().map(unevaluating).collect();
    match formula {
        Formula::All(parts) => Formula::All(each(parts)),
        Formula::Any(source, parts) => Formula::Any(source, each(parts)),
        Formula::Atom(Atom::Members(members)) if members.evaluates => {
            Formula::Atom(Atom::Members(Rc::new(Members {
                evaluates: false,
                ..Members::clone(&members)
            })))
        }
        Formula::Atom(Atom::Items(items)) if items.evaluates => {
            Formula::Atom(Atom::Items(Rc::new(Items {
                evaluates: false,
                ..Items::clone(&items)
            })))
        }
        // What it leaves unevaluated follows from what is evaluated inside of it.
        Formula::Unevaluated(source, ..) => {
            Formula::Guarded(source, "what is evaluated under a complement".into())
        }
        other => other,
    }
}
