//! What the keywords for objects and arrays say, and what their complements say.

use std::rc::Rc;

use serde_json::Value;

use super::compiler::{Compiler, StateId};
use super::logic::{Atom, Formula, Items, Kind, Members, Source, all, any, truth};
use super::report::How;
use super::rx::Rx;
use super::schema::Test;

impl<'a> Compiler<'a> {
    pub(super) fn array_value(
        &mut self,
        items: &[Value],
        source: Source,
        positive: bool,
    ) -> Formula {
        let len = items.len() as u64;
        let prefix = items
            .iter()
            .map(|item| {
                let node = self.constant(item, source.node);
                self.state([(node, true)])
            })
            .collect::<Vec<_>>();
        if positive {
            return all(vec![
                Formula::Atom(Atom::Items(Rc::new(Items {
                    prefix,
                    rest: Some(StateId::NEVER),
                    evaluates: false,
                }))),
                Formula::Atom(Atom::MinItems(len)),
            ]);
        }
        let mut options = vec![Formula::Atom(Atom::MinItems(len + 1))];
        if let Some(shorter) = len.checked_sub(1) {
            options.push(Formula::Atom(Atom::MaxItems(shorter)));
        }
        for (i, state) in prefix.into_iter().enumerate() {
            options.push(self.item_outside(i, state, source));
        }
        any(source, options)
    }

    /// An item at position `i` exists and is outside of `state`.
    fn item_outside(&mut self, i: usize, state: StateId, source: Source) -> Formula {
        let Some(outside) = self.outside(state) else {
            return Formula::Guarded(source, "the complement of a conjunction".into());
        };
        let mut prefix = vec![StateId::ANY; i];
        prefix.push(outside);
        all(vec![
            Formula::Atom(Atom::Items(Rc::new(Items {
                prefix,
                rest: None,
                evaluates: false,
            }))),
            Formula::Atom(Atom::MinItems(i as u64 + 1)),
        ])
    }

    pub(super) fn object_value(
        &mut self,
        members: &serde_json::Map<String, Value>,
        source: Source,
        positive: bool,
    ) -> Formula {
        let mut named = Vec::new();
        for (name, value) in members {
            let node = self.constant(value, source.node);
            named.push((name.clone(), self.state([(node, true)])));
        }
        if positive {
            let mut parts: Vec<Formula> = members
                .keys()
                .map(|name| Formula::Atom(Atom::Required(name.as_str().into())))
                .collect();
            parts.insert(
                0,
                Formula::Atom(Atom::Members(Rc::new(Members {
                    named,
                    patterns: Vec::new(),
                    rest: Some(StateId::NEVER),
                    evaluates: false,
                    source,
                }))),
            );
            return all(parts);
        }
        let mut options = vec![Formula::Atom(Atom::MinMembers(members.len() as u64 + 1))];
        for (name, state) in named {
            options.push(Formula::Atom(Atom::Forbidden(name.as_str().into())));
            options.push(self.member_outside(&name, state, source));
        }
        any(source, options)
    }

    /// A member `name` exists and is outside of `state`.
    fn member_outside(&mut self, name: &str, state: StateId, source: Source) -> Formula {
        let Some(outside) = self.outside(state) else {
            return Formula::Guarded(source, "the complement of a conjunction".into());
        };
        if outside == StateId::NEVER {
            return Formula::False;
        }
        all(vec![
            Formula::Atom(Atom::Members(Rc::new(Members {
                named: vec![(name.to_owned(), outside)],
                patterns: Vec::new(),
                rest: None,
                evaluates: false,
                source,
            }))),
            Formula::Atom(Atom::Required(name.into())),
        ])
    }

    pub(super) fn object_rule(&mut self, test: &Test, source: Source, positive: bool) -> Formula {
        let atom = Formula::Atom;
        match test {
            Test::Properties {
                named,
                patterns,
                rest,
            } => {
                let named: Vec<(String, StateId)> = named
                    .iter()
                    .map(|(name, n)| (name.clone(), self.state([(*n, true)])))
                    .collect();
                let patterns: Vec<(Rc<Rx>, StateId)> = patterns
                    .iter()
                    .map(|(rx, n)| (rx.clone(), self.state([(*n, true)])))
                    .collect();
                let rest = rest.map(|n| self.state([(n, true)]));
                if positive {
                    return atom(Atom::Members(Rc::new(Members {
                        named,
                        patterns,
                        rest,
                        evaluates: true,
                        source,
                    })));
                }
                let mut options = Vec::new();
                for (name, state) in &named {
                    options.push(self.member_outside(name, *state, source));
                }
                if patterns.iter().any(|(_, s)| *s != StateId::ANY)
                    || rest.is_some_and(|s| s != StateId::ANY)
                {
                    options.push(Formula::Guarded(
                        source,
                        "some member without a name must be outside a schema".into(),
                    ));
                }
                any(source, options)
            }
            Test::Required(names) if positive => all(names
                .iter()
                .map(|n| atom(Atom::Required(n.as_str().into())))
                .collect()),
            Test::Required(names) => any(
                source,
                names
                    .iter()
                    .map(|n| atom(Atom::Forbidden(n.as_str().into())))
                    .collect(),
            ),
            Test::MinProperties(n) if positive => atom(Atom::MinMembers(*n)),
            Test::MinProperties(n) => n
                .checked_sub(1)
                .map_or(Formula::False, |n| atom(Atom::MaxMembers(n))),
            Test::MaxProperties(n) if positive => atom(Atom::MaxMembers(*n)),
            Test::MaxProperties(n) => atom(Atom::MinMembers(n.saturating_add(1))),
            Test::Names(node) => {
                let state = self.state([(*node, true)]);
                if positive {
                    atom(Atom::Names(state, source))
                } else {
                    Formula::Guarded(source, "some name must be outside a schema".into())
                }
            }
            Test::Needs(list) => {
                self.note(source.node, source.keyword, How::Rewriting);
                let parts = list
                    .iter()
                    .map(|(name, names)| {
                        let has = atom(Atom::Required(name.as_str().into()));
                        let lacks = atom(Atom::Forbidden(name.as_str().into()));
                        if positive {
                            let mut with = vec![has];
                            with.extend(
                                names
                                    .iter()
                                    .map(|n| atom(Atom::Required(n.as_str().into()))),
                            );
                            any(source, vec![lacks, all(with)])
                        } else {
                            let missing = names
                                .iter()
                                .map(|n| atom(Atom::Forbidden(n.as_str().into())))
                                .collect();
                            all(vec![has, any(source, missing)])
                        }
                    })
                    .collect();
                if positive {
                    all(parts)
                } else {
                    any(source, parts)
                }
            }
            Test::NeedsSchema(list) => {
                self.note(source.node, source.keyword, How::Rewriting);
                let mut parts = Vec::new();
                for (name, node) in list {
                    let has = atom(Atom::Required(name.as_str().into()));
                    let inner = self.formula(*node, positive, Kind::Object);
                    parts.push(if positive {
                        let lacks = atom(Atom::Forbidden(name.as_str().into()));
                        any(source, vec![lacks, all(vec![has, inner])])
                    } else {
                        all(vec![has, inner])
                    });
                }
                if positive {
                    all(parts)
                } else {
                    any(source, parts)
                }
            }
            _ => truth(positive),
        }
    }

    pub(super) fn array_rule(&mut self, test: &Test, source: Source, positive: bool) -> Formula {
        let atom = Formula::Atom;
        match test {
            Test::Items { prefix, rest } => {
                let prefix: Vec<StateId> =
                    prefix.iter().map(|n| self.state([(*n, true)])).collect();
                let rest = rest.map(|n| self.state([(n, true)]));
                if positive {
                    return atom(Atom::Items(Rc::new(Items {
                        prefix,
                        rest,
                        evaluates: true,
                    })));
                }
                let mut options = Vec::new();
                for (i, state) in prefix.iter().enumerate() {
                    if *state != StateId::ANY {
                        options.push(self.item_outside(i, *state, source));
                    }
                }
                match rest {
                    None | Some(StateId::ANY) => {}
                    Some(StateId::NEVER) => {
                        options.push(atom(Atom::MinItems(prefix.len() as u64 + 1)))
                    }
                    Some(state) => match self.outside(state) {
                        Some(outside) if prefix.is_empty() => {
                            options.push(atom(Atom::Contains(outside, 1, None, source)));
                        }
                        _ => options.push(Formula::Guarded(
                            source,
                            "some later item must be outside a schema".into(),
                        )),
                    },
                }
                any(source, options)
            }
            Test::MinItems(n) if positive => atom(Atom::MinItems(*n)),
            Test::MinItems(n) => n
                .checked_sub(1)
                .map_or(Formula::False, |n| atom(Atom::MaxItems(n))),
            Test::MaxItems(n) if positive => atom(Atom::MaxItems(*n)),
            Test::MaxItems(n) => atom(Atom::MinItems(n.saturating_add(1))),
            Test::Unique if positive => atom(Atom::Unique(source)),
            Test::Unique => Formula::Guarded(source, "two items must be equal".into()),
            Test::Contains { node, min, max } => {
                let state = self.state([(*node, true)]);
                if positive {
                    return atom(Atom::Contains(state, *min, *max, source));
                }
                let mut options = Vec::new();
                if let Some(fewer) = min.checked_sub(1) {
                    options.push(atom(Atom::Contains(state, 0, Some(fewer), source)));
                }
                if let Some(max) = max {
                    options.push(atom(Atom::Contains(
                        state,
                        max.saturating_add(1),
                        None,
                        source,
                    )));
                }
                any(source, options)
            }
            _ => truth(positive),
        }
    }
}
