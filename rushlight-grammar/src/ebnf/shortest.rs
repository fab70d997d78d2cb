//! The shortest text of each rule, in one pass over a grammar of any shape: what is shortest is settled first, and cannot become
//! shorter (Knuth, "A generalization of Dijkstra's algorithm", 1977).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::node::{Node, Rule};

/// Characters of the shortest text of each rule, a token counting as one; none where the rule matches no text.
pub(super) fn shortest(rules: &[Rule]) -> Vec<Option<usize>> {
    let mut lengths = Lengths::default();
    for _ in rules {
        lengths.step(Made::Least, None);
    }
    for (id, rule) in rules.iter().enumerate() {
        lengths.add(&rule.body, id);
    }
    let mut known = lengths.settle();
    known.truncate(rules.len());
    known
}

/// How the length of a step is made of those that are told to it.
enum Made {
    Least,
    Sum { waits: usize, sum: usize },
    Times(usize),
}

struct Step {
    made: Made,
    // Steps to which this one tells its length, once for each place.
    users: Vec<usize>,
}

/// The parts of all bodies, the rules themselves first.
#[derive(Default)]
struct Lengths {
    steps: Vec<Step>,
    open: BinaryHeap<Reverse<(usize, usize)>>,
}

impl Lengths {
    fn step(&mut self, made: Made, user: Option<usize>) -> usize {
        let users = user.into_iter().collect();
        self.steps.push(Step { made, users });
        self.steps.len() - 1
    }

    /// Adds `node`, whose length `user` is told.
    fn add(&mut self, node: &Node, user: usize) {
        match node {
            Node::Text(text) => self.tell(user, text.chars().count()),
            Node::Token(_) => self.tell(user, 1),
            Node::Class(ranges) if ranges.is_empty() => {}
            Node::Class(_) => self.tell(user, 1),
            Node::Seq(parts) if parts.is_empty() => self.tell(user, 0),
            Node::Seq(parts) => {
                let waits = parts.len();
                let all = self.step(Made::Sum { waits, sum: 0 }, Some(user));
                parts.iter().for_each(|part| self.add(part, all));
            }
            Node::Alt(ways) => {
                let any = self.step(Made::Least, Some(user));
                ways.iter().for_each(|way| self.add(way, any));
            }
            Node::Repeat(_, 0, _) => self.tell(user, 0),
            Node::Repeat(inner, min, _) => {
                let times = self.step(Made::Times(*min), Some(user));
                self.add(inner, times);
            }
            Node::Rule(id) => {
                if let Some(rule) = self.steps.get_mut(*id) {
                    rule.users.push(user);
                }
            }
        }
    }

    fn tell(&mut self, step: usize, length: usize) {
        let Some(Step { made, .. }) = self.steps.get_mut(step) else {
            return;
        };
        let length = match made {
            Made::Least => length,
            Made::Times(times) => length.saturating_mul(*times),
            Made::Sum { waits, sum } => {
                *sum = sum.saturating_add(length);
                *waits -= 1;
                if *waits > 0 {
                    return;
                }
                *sum
            }
        };
        self.open.push(Reverse((length, step)));
    }

    fn settle(mut self) -> Vec<Option<usize>> {
        let mut known = vec![None; self.steps.len()];
        while let Some(Reverse((length, step))) = self.open.pop() {
            if let Some(slot @ None) = known.get_mut(step) {
                *slot = Some(length);
                let users = self
                    .steps
                    .get_mut(step)
                    .map(|step| std::mem::take(&mut step.users));
                for user in users.unwrap_or_default() {
                    self.tell(user, length);
                }
            }
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;
    use crate::limits::Limits;

    fn lengths(text: &str) -> Vec<Option<usize>> {
        shortest(&parse(text, &Limits::default()).unwrap().rules)
    }

    #[test]
    fn the_shortest_text_is_counted_in_characters() {
        for (text, expected) in [
            ("root ::= \"\"", Some(0)),
            ("root ::= \"äß\" [a-z]", Some(3)),
            ("root ::= \"abc\" | [0-9] [0-9]", Some(2)),
            ("root ::= \"ab\"* \"cd\"{3,5}", Some(6)),
            ("root ::= (\"a\" | \"\")+", Some(0)),
            ("root ::= \"(\" root \")\" | \"abcd\"", Some(4)),
            ("root ::= \"(\" root", None),
            ("root ::= (\"(\" root)?", Some(0)),
            ("root ::= \"a\" root{2} | \"bcdefg\"", Some(6)),
        ] {
            assert_eq!(lengths(text), [expected], "{text}");
        }
        // Through a cycle the long way round is the shorter.
        assert_eq!(
            lengths(
                "root ::= \"12345678\" | \"x\" b\nb ::= \"y\" c c | root\nc ::= \"z\" | root root"
            ),
            [Some(4), Some(3), Some(1)]
        );
        // Longer than can be counted.
        let doubled: String = (1..=70)
            .map(|i| format!("r{i} ::= r{0} r{0}\n", i - 1))
            .collect();
        let known = lengths(&format!("root ::= r70\n{doubled}r0 ::= \"a\""));
        assert_eq!(known.first(), Some(&Some(usize::MAX)));
        assert!(known.contains(&Some(1 << 40)));
    }
}
