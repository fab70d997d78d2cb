//! Which schemas the member of a name is under: of each declared name, and of each class of all others.

use std::rc::Rc;

use super::cases::Class;
use super::compiler::{Compiler, StateId};
use super::logic::Members;
use super::rx::Rx;

impl<'a> Compiler<'a> {
    /// The state of the member `name` under all of `members`.
    pub(super) fn member_state(&mut self, members: &[Rc<Members>], name: &str) -> StateId {
        let mut states = Vec::new();
        for m in members {
            let mut covered = false;
            if let Some((_, state)) = m.named.iter().find(|(n, _)| n == name) {
                states.push(*state);
                covered = true;
            }
            for (rx, state) in &m.patterns {
                match self.matches(rx, name) {
                    Some(true) => {
                        states.push(*state);
                        covered = true;
                    }
                    Some(false) => {}
                    // Too costly to match: keep the member out rather than guess.
                    None => return StateId::NEVER,
                }
            }
            if !covered && let Some(rest) = m.rest {
                states.push(rest);
            }
        }
        self.meet(&states)
    }

    /// The names that no member is declared under, divided by which patterns they match.
    pub(super) fn open_classes(
        &mut self,
        members: &[Rc<Members>],
        taken: &[Rx],
        name_rules: &[Rx],
        guarded: &mut bool,
    ) -> Vec<Class> {
        let mut patterns: Vec<Rc<Rx>> = Vec::new();
        for m in members {
            for (rx, _) in &m.patterns {
                if !patterns.contains(rx) {
                    patterns.push(rx.clone());
                }
            }
        }
        let free = match Rx::alt(taken.to_vec()) {
            Rx::None => Rx::All,
            taken => taken.complement(),
        };
        let mut base = vec![free];
        base.extend(name_rules.iter().cloned());
        let subsets = self.pattern_subsets(&patterns);
        let Some(subsets) = subsets else {
            if let Some(m) = members.first() {
                self.need_guard(
                    m.source.node,
                    "patternProperties",
                    "too many overlapping patterns",
                );
            }
            *guarded = true;
            return vec![Class {
                names: Rx::and(base),
                state: StateId::ANY,
            }];
        };
        let mut out = Vec::new();
        for subset in subsets {
            let mut states = Vec::new();
            for m in members {
                let mut covered = false;
                for (rx, state) in &m.patterns {
                    if patterns.iter().zip(&subset).any(|(p, hit)| *hit && p == rx) {
                        states.push(*state);
                        covered = true;
                    }
                }
                if !covered && let Some(rest) = m.rest {
                    states.push(rest);
                }
            }
            let state = self.meet(&states);
            if state == StateId::NEVER {
                continue;
            }
            let mut names = base.clone();
            for (rx, hit) in patterns.iter().zip(&subset) {
                names.push(if *hit {
                    Rx::clone(rx)
                } else {
                    Rx::clone(rx).complement()
                });
            }
            let names = Rx::and(names);
            if self.is_empty(&names) != Some(true) {
                out.push(Class { names, state });
            }
        }
        out
    }

    /// Which sets of patterns can match one name together; `None` where there are too many to list.
    fn pattern_subsets(&mut self, patterns: &[Rc<Rx>]) -> Option<Vec<Vec<bool>>> {
        let n = patterns.len();
        let disjoint = patterns.iter().enumerate().all(|(i, a)| {
            patterns
                .iter()
                .skip(i + 1)
                .all(|b| self.is_empty(&Rx::and([Rx::clone(a), Rx::clone(b)])) == Some(true))
        });
        if disjoint {
            let mut out: Vec<Vec<bool>> =
                (0..n).map(|i| (0..n).map(|j| i == j).collect()).collect();
            out.push(vec![false; n]);
            return Some(out);
        }
        if n > 6 {
            return None;
        }
        Some(
            (0..1u32 << n)
                .rev()
                .map(|bits| (0..n).map(|i| bits >> i & 1 == 1).collect())
                .collect(),
        )
    }
}
