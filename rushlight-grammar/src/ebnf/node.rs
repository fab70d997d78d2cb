//! What a grammar's text means: rules, and the expressions that are their bodies.

use crate::error::Place;

/// An inclusive range of code points.
pub(crate) type Range = (u32, u32);

/// Where something stands: line and column from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl At {
    /// The same place as part of an error about `rule`.
    pub(crate) fn place(self, rule: &str) -> Place {
        Place::Text {
            rule: Some(rule.to_owned()),
            line: self.line,
            column: self.column,
        }
    }
}

/// An expression of a rule's body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// Characters in a row; empty matches the empty text.
    Text(String),
    /// One character of these ranges, sorted and apart; none matches nothing.
    Class(Vec<Range>),
    /// All in order.
    Seq(Vec<Node>),
    /// Any one.
    Alt(Vec<Node>),
    /// `min` to `max` times.
    Repeat(Box<Node>, usize, Option<usize>),
    /// The rule of this number.
    Rule(usize),
    /// One token.
    Token(Token),
}

/// A token that a grammar names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// The control token of this name, `<` and `>` included.
    Named(String),
    /// The token of this id.
    Id(u32),
    /// Any token but that of this id.
    NotId(u32),
}

/// A rule: a name, where it is defined, and its body.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) at: At,
    pub(crate) body: Node,
    // Every use of a rule in the body, in order.
    pub(crate) uses: Vec<(usize, At)>,
    // Every token in the body, in order.
    pub(crate) tokens: Vec<(Token, At)>,
}

/// Rules by number; those without a body are used but defined nowhere.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) rules: Vec<Rule>,
    pub(crate) root: Option<usize>,
}

impl Parsed {
    /// Every text that a rule spells out, in order.
    pub(crate) fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        let mut open: Vec<&Node> = self.rules.iter().rev().map(|rule| &rule.body).collect();
        while let Some(node) = open.pop() {
            match node {
                Node::Text(text) => texts.push(text.clone()),
                Node::Seq(parts) | Node::Alt(parts) => open.extend(parts.iter().rev()),
                Node::Repeat(inner, _, _) => open.push(inner),
                Node::Class(_) | Node::Rule(_) | Node::Token(_) => {}
            }
        }
        texts
    }
}

/// A repetition, folded where another directly inside says the same: `(a*)*` is `a*`.
pub(super) fn repeat(node: Node, min: usize, max: Option<usize>) -> Node {
    match (&node, min, max) {
        (Node::Repeat(inner, low, None), 0 | 1, None) if *low <= 1 => {
            let low = (*low).min(min);
            Node::Repeat(inner.clone(), low, None)
        }
        (_, 1, Some(1)) => node,
        _ => Node::Repeat(Box::new(node), min, max),
    }
}

/// Sorts and joins ranges, leaves out what is no character, and turns them round where `negated`.
pub(super) fn normal(mut ranges: Vec<Range>, negated: bool) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::new();
    for (low, high) in ranges {
        match joined.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    if negated {
        let mut rest = Vec::new();
        let mut from = 0u32;
        for (low, high) in joined {
            if low > from {
                rest.push((from, low - 1));
            }
            from = high.saturating_add(1);
        }
        if from <= 0x10_ffff {
            rest.push((from, 0x10_ffff));
        }
        joined = rest;
    }
    // Surrogates are no characters.
    joined
        .into_iter()
        .flat_map(|(low, high)| [(low, high.min(0xd7ff)), (low.max(0xe000), high)])
        .filter(|(low, high)| low <= high)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_sorted_joined_and_turned_round() {
        assert_eq!(normal(vec![(5, 9), (1, 3), (4, 6)], false), [(1, 9)]);
        assert_eq!(
            normal(vec![(0, 9)], true),
            [(10, 0xd7ff), (0xe000, 0x10_ffff)]
        );
        assert_eq!(normal(vec![], false), []);
    }
}
