//! From a state and a JSON type to alternatives: what its schemas say of values of that type.
//!
//! Numbers and strings have a complement in the regular languages, so their formulas are evaluated outright. Objects and
//! arrays become a disjunction of conjunctions of atoms. Where an exact form does not exist or would be too large, the
//! alternative is widened and marked: a widened alternative needs a guard, which makes it exact again.

use std::rc::Rc;

use serde_json::Value;

use super::compiler::{Compiler, Literal, StateId};
use super::number::Decimal;
use super::report::How;
use super::rx::Rx;
use super::schema::{NodeId, Rule, Test, types};
use super::unevaluated::unevaluating;
use crate::GrammarErrorKind;

/// Overlapping pairs of string alternatives up to which `oneOf` is written out: each pair multiplies the states of two
/// patterns.
const EXCLUSIVE_PAIRS: usize = 3;

/// The kinds of value that are expanded apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Null,
    True,
    False,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::Null,
        Kind::True,
        Kind::False,
        Kind::Number,
        Kind::String,
        Kind::Array,
        Kind::Object,
    ];

    fn bits(self) -> u8 {
        match self {
            Kind::Null => types::NULL,
            Kind::True | Kind::False => types::BOOLEAN,
            Kind::Number => types::NUMBER,
            Kind::String => types::STRING,
            Kind::Array => types::ARRAY,
            Kind::Object => types::OBJECT,
        }
    }

    fn holds(self, value: &Value) -> bool {
        match value {
            Value::Null => self == Kind::Null,
            Value::Bool(true) => self == Kind::True,
            Value::Bool(false) => self == Kind::False,
            Value::Number(_) => self == Kind::Number,
            Value::String(_) => self == Kind::String,
            Value::Array(_) => self == Kind::Array,
            Value::Object(_) => self == Kind::Object,
        }
    }
}

/// A keyword of a schema, to name in a note.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) node: NodeId,
    pub(super) keyword: &'static str,
}

/// What schemas say of values of one kind, without negations.
#[derive(Clone, Debug)]
pub(super) enum Formula {
    True,
    False,
    All(Vec<Formula>),
    Any(Source, Vec<Formula>),
    /// A language of number or string texts.
    Text(Rc<Rx>),
    /// A language of strings between two that are known: what is written comes from the first, what is proven holds for
    /// the second.
    Between(Rc<Rx>, Rc<Rx>),
    Atom(Atom),
    /// True or false, which only a guard can tell.
    Guarded(Source, Rc<str>),
    /// The first, and what it leaves unevaluated is in the state.
    Unevaluated(Source, Box<Formula>, StateId),
}

/// One statement about an object or an array.
#[derive(Clone, Debug)]
pub(super) enum Atom {
    Members(Rc<Members>),
    Required(Rc<str>),
    Forbidden(Rc<str>),
    MinMembers(u64),
    MaxMembers(u64),
    Names(StateId, Source),
    Items(Rc<Items>),
    MinItems(u64),
    MaxItems(u64),
    Contains(StateId, u64, Option<u64>, Source),
    Unique(Source),
}

/// `properties`, `patternProperties` and `additionalProperties` of one schema.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) named: Vec<(String, StateId)>,
    pub(super) patterns: Vec<(Rc<Rx>, StateId)>,
    pub(super) rest: Option<StateId>,
    /// Whether it counts as evaluating the members it speaks of.
    pub(super) evaluates: bool,
    pub(super) source: Source,
}

/// `prefixItems` and `items` of one schema.
#[derive(Clone, Debug)]
pub(super) struct Items {
    pub(super) prefix: Vec<StateId>,
    pub(super) rest: Option<StateId>,
    pub(super) evaluates: bool,
}

/// A conjunction of atoms.
#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    pub(super) atoms: Vec<Atom>,
    /// It was widened: a guard has to judge the value.
    pub(super) guarded: bool,
}

/// Proofs of disjointness inside each other; the innermost say "not proven".
const NESTED_PROOFS: u32 = 16;
/// Levels of schemas inside each other that take as much stack as a proof does.
const PROOF_LEVELS: usize = 8;

impl<'a> Compiler<'a> {
    /// What `state` says of values of `kind`.
    pub(super) fn expand(&mut self, state: StateId, kind: Kind) -> Formula {
        let literals = self.literals(state);
        self.all_of(&literals, kind)
    }

    fn all_of(&mut self, literals: &[Literal], kind: Kind) -> Formula {
        let outer = std::mem::take(&mut self.visiting);
        let parts = literals
            .iter()
            .map(|(node, positive)| self.formula(*node, *positive, kind))
            .collect();
        self.visiting = outer;
        all(parts)
    }

    pub(super) fn formula(&mut self, node: NodeId, positive: bool, kind: Kind) -> Formula {
        match node {
            NodeId::TRUE => return truth(positive),
            NodeId::FALSE => return truth(!positive),
            _ => {}
        }
        if self.visiting.contains(&node) {
            self.problem(
                node,
                "$ref",
                "the reference reaches itself without consuming anything".to_owned(),
            );
            return Formula::False;
        }
        let deepest = self.limits.depth.saturating_mul(2);
        if self.budget == 0 || self.visiting.len() > self.limits.depth || self.nesting > deepest {
            self.too_much(node);
            return Formula::False;
        }
        self.budget -= 1;
        self.visiting.push(node);
        self.nesting += 1;
        let formula = self.formula_here(node, positive, kind);
        self.nesting -= 1;
        self.visiting.pop();
        formula
    }

    fn too_much(&mut self, node: NodeId) {
        let pointer = self.pointer(node);
        let message = format!(
            "more than {} expansions or {} levels",
            self.limits.expansions, self.limits.depth
        );
        self.problem_at(GrammarErrorKind::Limit, pointer, "", message);
    }

    fn formula_here(&mut self, node: NodeId, positive: bool, kind: Kind) -> Formula {
        let rules = self.rules(node);
        let other_type =
            |rule: &Rule| matches!(rule.test, Test::Types(mask) if mask & kind.bits() == 0);
        if positive && rules.iter().any(other_type) {
            return Formula::False;
        }
        let mut parts = Vec::with_capacity(rules.len());
        let mut unevaluated = Vec::new();
        for rule in rules.iter() {
            let source = Source {
                node,
                keyword: rule.keyword,
            };
            match (&rule.test, kind) {
                (Test::UnevaluatedProperties(inner), Kind::Object)
                | (Test::UnevaluatedItems(inner), Kind::Array) => {
                    unevaluated.push((source, *inner));
                }
                _ => parts.push(self.rule_formula(rule, source, positive, kind)),
            }
        }
        if unevaluated.is_empty() {
            return if positive {
                all(parts)
            } else {
                any(
                    Source {
                        node,
                        keyword: "not",
                    },
                    parts,
                )
            };
        }
        if !positive {
            let (source, _) = unevaluated.swap_remove(0);
            return Formula::Guarded(source, "the complement of what is left unevaluated".into());
        }
        let mut formula = all(parts);
        for (source, inner) in unevaluated {
            let state = self.state([(inner, true)]);
            formula = Formula::Unevaluated(source, Box::new(formula), state);
        }
        formula
    }

    fn rule_formula(&mut self, rule: &Rule, source: Source, positive: bool, kind: Kind) -> Formula {
        match &rule.test {
            Test::Types(mask) => self.types(*mask, positive, kind),
            Test::Values(values) => self.values(values, source, positive, kind),
            Test::All(nodes) => {
                let parts = nodes
                    .iter()
                    .map(|n| self.formula(*n, positive, kind))
                    .collect();
                if positive {
                    all(parts)
                } else {
                    any(source, parts)
                }
            }
            Test::Any(nodes) => {
                let parts = nodes
                    .iter()
                    .map(|n| self.formula(*n, positive, kind))
                    .collect();
                match (positive, kind) {
                    // An alternative that adds nothing to the others may still evaluate something.
                    (true, Kind::Object | Kind::Array) if self.document.counts_evaluated() => {
                        alternatives(source, parts)
                    }
                    (true, _) => any(source, parts),
                    (false, _) => all(parts),
                }
            }
            Test::One(nodes) => self.one_of(nodes, source, positive, kind),
            Test::Not(node) => {
                self.note(source.node, "not", How::Rewriting);
                unevaluating(self.formula(*node, !positive, kind))
            }
            Test::If(test, then, otherwise) => {
                self.note(source.node, "if", How::Rewriting);
                // (if and then) or (not if and else); its complement has the same shape.
                let yes = [
                    self.formula(*test, true, kind),
                    self.formula(*then, positive, kind),
                ];
                let no = [
                    unevaluating(self.formula(*test, false, kind)),
                    self.formula(*otherwise, positive, kind),
                ];
                any(source, vec![all(yes.into()), all(no.into())])
            }
            Test::Ref(node) => self.formula(*node, positive, kind),
            Test::Opaque(mask, reason) if mask & kind.bits() != 0 => {
                Formula::Guarded(source, reason.as_str().into())
            }
            Test::Compare(..) | Test::Multiple(_) if kind == Kind::Number => {
                self.number(&rule.test, source, positive)
            }
            Test::Text(rx) if kind == Kind::String => {
                let rx = if positive {
                    rx.clone()
                } else {
                    Rc::new(Rx::clone(rx).complement())
                };
                Formula::Text(rx)
            }
            Test::Between(narrow, wide) if kind == Kind::String => {
                if positive {
                    return Formula::Between(narrow.clone(), wide.clone());
                }
                let outside = |rx: &Rc<Rx>| Rc::new(Rx::clone(rx).complement());
                self.left_out(
                    source.node,
                    source.keyword,
                    "of its complement, texts are left out that may be of the format",
                );
                Formula::Between(outside(wide), outside(narrow))
            }
            test if kind == Kind::Object => self.object_rule(test, source, positive),
            test if kind == Kind::Array => self.array_rule(test, source, positive),
            _ => truth(positive),
        }
    }

    fn types(&mut self, mask: u8, positive: bool, kind: Kind) -> Formula {
        let mask = if positive { mask } else { types::ALL & !mask };
        match mask & kind.bits() {
            0 => Formula::False,
            hit if hit == kind.bits() => Formula::True,
            types::INTEGER => Formula::Text(Rc::new(self.numbers.integer())),
            _ => Formula::Text(Rc::new(self.numbers.fractional())),
        }
    }

    fn number(&mut self, test: &Test, source: Source, positive: bool) -> Formula {
        let rx = match test {
            Test::Compare(compare, bound) => {
                let compare = if positive {
                    *compare
                } else {
                    compare.negated()
                };
                Some(self.numbers.compared(compare, bound))
            }
            Test::Multiple(step) if positive => self.numbers.multiple(step),
            Test::Multiple(step) => self.numbers.not_multiple(step),
            _ => None,
        };
        match rx {
            Some(rx) => Formula::Text(Rc::new(rx)),
            None => Formula::Guarded(source, "numbers that are no multiple of a fraction".into()),
        }
    }

    fn values(&mut self, values: &[Value], source: Source, positive: bool, kind: Kind) -> Formula {
        let mut texts = Vec::new();
        let mut parts = Vec::new();
        for value in values.iter().filter(|v| kind.holds(v)) {
            if let Value::Number(number) = value
                && let Some(named) = Decimal::parse(&number.to_string())
                && let Some(reason) = self.numbers.shortened(&named)
            {
                self.left_out(
                    source.node,
                    source.keyword,
                    &format!("{reason}, beside other keywords"),
                );
            }
            match value {
                Value::Null | Value::Bool(_) => return truth(positive),
                Value::String(text) => texts.push(Rx::Lit(text.clone())),
                Value::Number(number) => match Decimal::parse(&number.to_string()) {
                    // Written as the schema's author did, or as an integer.
                    Some(d) if positive && d.is_integer() => {
                        let written = number.to_string();
                        let point = written.ends_with(".0").then_some(written);
                        texts.extend(point.into_iter().chain([d.text()]).map(Rx::Lit));
                    }
                    Some(d) => texts.push(self.numbers.equal(&d)),
                    None => {
                        return Formula::Guarded(source, "a number of more than 400 digits".into());
                    }
                },
                Value::Array(items) => parts.push(self.array_value(items, source, positive)),
                Value::Object(members) => parts.push(self.object_value(members, source, positive)),
            }
        }
        if matches!(kind, Kind::Number | Kind::String) {
            let rx = Rx::alt(texts);
            return match (positive, kind) {
                (true, _) => Formula::Text(Rc::new(rx)),
                (false, Kind::String) => Formula::Text(Rc::new(rx.complement())),
                (false, _) => {
                    Formula::Text(Rc::new(Rx::and([self.numbers.decimal(), rx.complement()])))
                }
            };
        }
        if positive {
            any(source, parts)
        } else {
            all(parts)
        }
    }

    /// Exactly one: each alternative without the others that it is not proven disjoint from.
    fn one_of(&mut self, nodes: &[NodeId], source: Source, positive: bool, kind: Kind) -> Formula {
        if !positive {
            // None of them, or two at once.
            let none = nodes
                .iter()
                .map(|n| self.formula(*n, false, kind))
                .collect();
            let mut options = vec![all(none)];
            for (i, a) in nodes.iter().enumerate() {
                for b in nodes.iter().skip(i + 1) {
                    if !self.disjoint(*a, *b, kind) {
                        options.push(all(vec![
                            self.formula(*a, true, kind),
                            self.formula(*b, true, kind),
                        ]));
                    }
                }
            }
            return any(source, options);
        }
        let here: Vec<Formula> = nodes.iter().map(|n| self.formula(*n, true, kind)).collect();
        if kind == Kind::String && self.overlapping(nodes, &here, kind) > EXCLUSIVE_PAIRS {
            let guarded = Formula::Guarded(source, "too many overlapping patterns".into());
            return all(vec![any(source, here), guarded]);
        }
        let possible: Vec<bool> = here.iter().map(|f| !matches!(f, Formula::False)).collect();
        let mut options = Vec::new();
        for (i, (node, formula)) in nodes.iter().zip(here).enumerate() {
            if matches!(formula, Formula::False) {
                continue;
            }
            let mut parts = vec![formula];
            for (j, other) in nodes.iter().enumerate() {
                if i != j && possible.get(j) == Some(&true) && !self.disjoint(*node, *other, kind) {
                    self.note(source.node, "oneOf", How::Rewriting);
                    parts.push(unevaluating(self.formula(*other, false, kind)));
                }
            }
            options.push(all(parts));
        }
        any(source, options)
    }

    /// How many pairs of possible alternatives are not proven disjoint.
    fn overlapping(&mut self, nodes: &[NodeId], here: &[Formula], kind: Kind) -> usize {
        let possible: Vec<NodeId> = nodes
            .iter()
            .zip(here)
            .filter(|(_, f)| !matches!(f, Formula::False))
            .map(|(n, _)| *n)
            .collect();
        let mut pairs = 0;
        for (i, a) in possible.iter().enumerate() {
            for b in possible.iter().skip(i + 1) {
                pairs += usize::from(!self.disjoint(*a, *b, kind));
            }
        }
        pairs
    }

    /// Whether no value of `kind` satisfies both; a proof, never a guess.
    fn disjoint(&mut self, a: NodeId, b: NodeId, kind: Kind) -> bool {
        let both = if a < b {
            [(a, true), (b, true)]
        } else {
            [(b, true), (a, true)]
        };
        if a == b {
            return false;
        }
        let key = (both[0].0, both[1].0, kind);
        if let Some(known) = self.disjoint.get(&key) {
            return *known;
        }
        if self.proofs == NESTED_PROOFS {
            return false;
        }
        // Met again inside its own proof, the pair counts as not disjoint.
        self.disjoint.insert(key, false);
        self.proofs += 1;
        self.nesting += PROOF_LEVELS;
        let formula = self.all_of(&both, kind);
        let proven = self.is_false(&formula, kind, self.limits.proof_depth);
        self.nesting -= PROOF_LEVELS;
        self.proofs -= 1;
        self.disjoint.insert(key, proven);
        proven
    }
}

/// A formula of a Boolean.
pub(super) fn truth(value: bool) -> Formula {
    if value { Formula::True } else { Formula::False }
}

/// All of `parts`.
pub(super) fn all(parts: Vec<Formula>) -> Formula {
    let mut out = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Formula::True => {}
            Formula::False => return Formula::False,
            Formula::All(inner) => out.extend(inner),
            other => out.push(other),
        }
    }
    match out.len() {
        0 => Formula::True,
        1 => out.swap_remove(0),
        _ => Formula::All(out),
    }
}

/// Any of `parts`.
pub(super) fn any(source: Source, parts: Vec<Formula>) -> Formula {
    if parts.iter().any(|part| matches!(part, Formula::True)) {
        return Formula::True;
    }
    alternatives(source, parts)
}

/// Any of `parts`, each of them kept for what it evaluates.
fn alternatives(source: Source, mut parts: Vec<Formula>) -> Formula {
    parts.retain(|part| !matches!(part, Formula::False));
    match parts.len() {
        0 => Formula::False,
        1 => parts.swap_remove(0),
        _ => Formula::Any(source, parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_fold() {
        let source = Source {
            node: NodeId::TRUE,
            keyword: "anyOf",
        };
        assert!(matches!(
            all(vec![Formula::True, Formula::False]),
            Formula::False
        ));
        assert!(matches!(all(vec![]), Formula::True));
        assert!(matches!(any(source, vec![]), Formula::False));
        assert!(matches!(
            any(source, vec![Formula::True, Formula::False]),
            Formula::True
        ));
    }
}
