//! One of a list of texts, as a trie: where one text is the start of another, both its end and the rest stay open.

use std::collections::BTreeMap;

use llguidance::derivre::{ExprRef, RegexAst};

use crate::error::{GrammarError, GrammarErrorKind, Result};
use crate::limits::Limits;
use crate::lower::Lowered;
use crate::target::Target;

/// Lowers a choice among `texts`. Doubles count once; the empty text is a choice like any other.
///
/// # Errors
/// [`GrammarErrorKind::Unsatisfiable`] without texts, [`GrammarErrorKind::Limit`] with too many or too long ones.
pub fn lower(texts: &[String], limits: &Limits) -> Result<Lowered> {
    if texts.len() > limits.rules {
        return Err(GrammarError::new(
            GrammarErrorKind::Limit,
            format!("{} choices; the limit is {}", texts.len(), limits.rules),
        ));
    }
    limits.check_bytes(texts.iter().map(String::len).sum())?;
    let Some(shortest) = texts.iter().min_by_key(|t| t.len()) else {
        return Err(GrammarError::new(
            GrammarErrorKind::Unsatisfiable,
            "a choice needs at least one text",
        ));
    };
    let mut target = Target::new(limits)?;
    let trie = Trie::of(texts);
    // Children come after their parents, so the way back meets them first and nothing recurses.
    let mut made: Vec<Option<ExprRef>> = vec![None; trie.nodes.len()];
    for (id, node) in trie.nodes.iter().enumerate().rev() {
        let mut ways: Vec<RegexAst> = Vec::with_capacity(node.children.len() + 1);
        for (text, child) in node.children.values() {
            let edge = RegexAst::Literal(text.clone());
            ways.push(match made.get(*child).copied().flatten() {
                Some(rest) => RegexAst::Concat(vec![edge, RegexAst::ExprRef(rest)]),
                None => edge,
            });
        }
        if node.ends {
            ways.push(RegexAst::EmptyString);
        }
        let expression = target.expression(RegexAst::Or(ways))?;
        if let Some(slot) = made.get_mut(id) {
            *slot = Some(expression);
        }
    }
    let whole = made.first().copied().flatten();
    let first = target.lexeme(whole.map_or(RegexAst::NoMatch, RegexAst::ExprRef))?;
    Ok(Lowered {
        minimal: Some(shortest.clone()),
        ..Lowered::from(target.finish(first)?)
    })
}

/// A trie whose edges hold as many characters as have no fork in them.
struct Trie {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    // By the first character of the edge.
    children: BTreeMap<char, (String, usize)>,
    ends: bool,
}

impl Trie {
    fn of(texts: &[String]) -> Self {
        let mut sorted: Vec<&str> = texts.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut trie = Self {
            nodes: vec![Node::default()],
        };
        // Groups of texts that share all before `from`, still to be hung under `node`.
        let mut open = vec![(0usize, 0usize, sorted)];
        while let Some((node, from, group)) = open.pop() {
            let mut forks: BTreeMap<char, Vec<&str>> = BTreeMap::new();
            for text in group {
                match text.get(from..).and_then(|rest| rest.chars().next()) {
                    Some(first) => forks.entry(first).or_default().push(text),
                    None => {
                        if let Some(node) = trie.nodes.get_mut(node) {
                            node.ends = true;
                        }
                    }
                }
            }
            for (first, group) in forks {
                let shared = shared_after(&group, from);
                let child = trie.nodes.len();
                trie.nodes.push(Node::default());
                let edge = group
                    .first()
                    .and_then(|t| t.get(from..shared))
                    .unwrap_or("")
                    .to_owned();
                if let Some(node) = trie.nodes.get_mut(node) {
                    node.children.insert(first, (edge, child));
                }
                open.push((child, shared, group));
            }
        }
        trie
    }
}

/// The end of what all texts of a group share; they share more than `from` bytes.
fn shared_after(group: &[&str], from: usize) -> usize {
    let Some((first, rest)) = group.split_first() else {
        return from;
    };
    let mut end = first.len();
    for text in rest {
        let same = first
            .bytes()
            .zip(text.bytes())
            .take(end)
            .take_while(|(a, b)| a == b)
            .count();
        end = end.min(same);
    }
    while !first.is_char_boundary(end) {
        end -= 1;
    }
    end.max(from)
}
