//! Rules as patterns, and how often their parts may be repeated.

use super::analyse::{Facts, is};
use super::node::{Node, Rule};
use super::write::unrolled;
use crate::error::Result;
use crate::limits::Limits;

/// Bytes of a pattern, the rules in it written out. A larger one stays a grammar.
const PATTERN: usize = 16 << 10;
/// Bytes of the patterns of all rules.
const PATTERNS: usize = 1 << 20;

/// Refuses repetitions in each other, through the rules that are used, that go on too long together.
///
/// # Errors
/// [`GrammarErrorKind::Limit`](crate::GrammarErrorKind::Limit), with the rule.
pub(super) fn check_times(rules: &[Rule], facts: &Facts, limits: &Limits) -> Result<()> {
    // A rule of a cycle is once where it is used before it is looked at.
    let mut known = vec![1; rules.len()];
    for &id in &facts.order {
        let (Some(rule), Some(times)) =
            (rules.get(id), rules.get(id).map(|r| times(&r.body, &known)))
        else {
            continue;
        };
        let checked = limits.check_times(times);
        checked.map_err(|e| e.with_place(rule.at.place(&rule.name)))?;
        if let Some(slot) = known.get_mut(id) {
            *slot = times;
        }
    }
    Ok(())
}

/// How often the most repeated part of `node` may stand in a text, where its repetitions have an end.
fn times(node: &Node, known: &[usize]) -> usize {
    match node {
        Node::Text(_) | Node::Class(_) | Node::Token(_) => 1,
        Node::Seq(parts) | Node::Alt(parts) => parts
            .iter()
            .map(|part| times(part, known))
            .max()
            .unwrap_or(1),
        Node::Repeat(inner, min, max) => {
            times(inner, known).saturating_mul(max.unwrap_or(*min).max(1))
        }
        Node::Rule(id) => known.get(*id).copied().unwrap_or(1),
    }
}

/// The texts of rule `root` as a pattern of the `regex` crate, where they are regular and it is small.
pub(super) fn pattern(rules: &[Rule], root: usize, facts: &Facts) -> Option<String> {
    let mut patterns: Vec<Option<String>> = vec![None; rules.len()];
    let mut left = PATTERNS;
    for &id in &facts.order {
        let Some(rule) = rules.get(id).filter(|_| is(&facts.reached, id)) else {
            continue;
        };
        let mut out = String::new();
        let written = match is(&facts.cyclic, id) {
            true => unrolled(&rule.body, id).and_then(|body| write(&body, &patterns, &mut out)),
            false => write(&rule.body, &patterns, &mut out),
        };
        left = left.checked_sub(out.len())?;
        if let (Some(()), Some(slot)) = (written, patterns.get_mut(id)) {
            *slot = Some(out);
        }
    }
    patterns.get_mut(root)?.take()
}

/// Appends `node`, of rules whose patterns are `known`; `None` where it is not regular or the whole is too large.
fn write(node: &Node, known: &[Option<String>], out: &mut String) -> Option<()> {
    match node {
        Node::Text(text) => out.push_str(&regex_syntax::escape(text)),
        Node::Class(ranges) if ranges.is_empty() => return None,
        Node::Class(ranges) => {
            out.push('[');
            for (low, high) in ranges {
                out.push_str(&format!("\\u{{{low:x}}}-\\u{{{high:x}}}"));
            }
            out.push(']');
        }
        Node::Seq(parts) => parts.iter().try_for_each(|part| write(part, known, out))?,
        Node::Alt(ways) => {
            out.push_str("(?:");
            for (n, way) in ways.iter().enumerate() {
                if n > 0 {
                    out.push('|');
                }
                write(way, known, out)?;
            }
            out.push(')');
        }
        Node::Repeat(inner, min, max) => {
            out.push_str("(?:");
            write(inner, known, out)?;
            out.push_str(&match max {
                Some(max) => format!("){{{min},{max}}}"),
                None => format!("){{{min},}}"),
            });
        }
        Node::Rule(id) => {
            out.push_str("(?:");
            out.push_str(known.get(*id)?.as_deref()?);
            out.push(')');
        }
        Node::Token(_) => return None,
    }
    (out.len() <= PATTERN).then_some(())
}
