//! What the rules are to each other: which are nullable, which are in a cycle, which can never end or never be reached.

use std::collections::BTreeSet;

use super::node::{Node, Parsed, Rule};
use super::shortest::shortest;
use crate::error::{GrammarError, GrammarErrorKind};

/// Characters that the shortest text of a rule may have. A grammar may be small and its shortest text without end, for whoever
/// spells it out.
const SHORTEST: usize = 1_000_000;

/// Facts about every rule, by its number.
pub(crate) struct Facts {
    /// Whether the rule matches the empty text.
    pub(crate) nullable: Vec<bool>,
    /// Rules in an order in which each comes after those that it uses, cycles apart.
    pub(crate) order: Vec<usize>,
    /// Whether the rule is part of a cycle.
    pub(crate) cyclic: Vec<bool>,
    /// Whether the start rule reaches it.
    pub(crate) reached: Vec<bool>,
    /// What is worth saying and harms nothing.
    pub(crate) notes: Vec<GrammarError>,
}

/// Finds the facts of `parsed`, whose start is rule `root`.
///
/// # Errors
/// Every left-recursive rule and every rule that matches no text.
pub(crate) fn facts(parsed: &Parsed, root: usize) -> Result<Facts, Vec<GrammarError>> {
    let rules = &parsed.rules;
    let uses: Vec<Vec<usize>> = rules
        .iter()
        .map(|r| r.uses.iter().map(|u| u.0).collect())
        .collect();
    let components = components(&uses);
    let mut cyclic = vec![false; rules.len()];
    for component in &components {
        let itself =
            |&id: &usize| rule(rules, id).is_some_and(|r| r.uses.iter().any(|u| u.0 == id));
        if component.len() > 1 || component.first().is_some_and(itself) {
            for &id in component {
                mark(&mut cyclic, id);
            }
        }
    }
    let shortest = shortest(rules);
    let nullable: Vec<bool> = shortest.iter().map(|&length| length == Some(0)).collect();
    let reached = reached(rules, root);

    let mut problems = Vec::new();
    let mut notes = Vec::new();
    for (id, rule) in rules.iter().enumerate() {
        if !is(&reached, id) {
            notes.push(note(
                GrammarErrorKind::Unreachable,
                rule,
                "the start rule never reaches this rule",
            ));
        } else if shortest.get(id).is_some_and(Option::is_none) {
            problems.push(note(
                GrammarErrorKind::Unsatisfiable,
                rule,
                "this rule matches no text: it never ends, or holds an empty class",
            ));
        }
        if is(&reached, id) && loops_on_nothing(&rule.body, &nullable) {
            notes.push(note(
                GrammarErrorKind::Ambiguous,
                rule,
                "a repetition here repeats what may be empty, so one text matches in many ways",
            ));
        }
        if is(&reached, id) && has_twin_ways(&rule.body) {
            notes.push(note(
                GrammarErrorKind::Ambiguous,
                rule,
                "two alternatives here are the same",
            ));
        }
    }
    problems.extend(left_recursion(rules, &nullable));
    if problems.is_empty() {
        let length = |id: usize| shortest.get(id).copied().flatten();
        let long = components
            .iter()
            .flatten()
            .find(|&&id| is(&reached, id) && length(id) > Some(SHORTEST));
        problems.extend(long.and_then(|&id| rule(rules, id)).map(|rule| {
            let message =
                format!("the shortest text of this rule has more than {SHORTEST} characters");
            note(GrammarErrorKind::Limit, rule, &message)
        }));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let order = components.into_iter().flatten().collect();
    Ok(Facts {
        nullable,
        order,
        cyclic,
        reached,
        notes,
    })
}

/// Whether `node` matches the empty text, given which rules do.
pub(crate) fn nullable(node: &Node, rules: &[bool]) -> bool {
    match node {
        Node::Text(text) => text.is_empty(),
        Node::Class(_) | Node::Token(_) => false,
        Node::Seq(parts) => parts.iter().all(|part| nullable(part, rules)),
        Node::Alt(ways) => ways.iter().any(|way| nullable(way, rules)),
        Node::Repeat(inner, min, _) => *min == 0 || nullable(inner, rules),
        Node::Rule(id) => is(rules, *id),
    }
}

fn loops_on_nothing(node: &Node, rules: &[bool]) -> bool {
    match node {
        Node::Repeat(inner, _, max) => {
            (max.is_none_or(|max| max > 1) && nullable(inner, rules))
                || loops_on_nothing(inner, rules)
        }
        Node::Seq(parts) | Node::Alt(parts) => parts.iter().any(|p| loops_on_nothing(p, rules)),
        _ => false,
    }
}

fn has_twin_ways(node: &Node) -> bool {
    match node {
        // Pairs: long lists are data, and looked at no further.
        Node::Alt(ways) if ways.len() <= 64 => {
            let twins = ways
                .iter()
                .enumerate()
                .any(|(at, way)| ways.iter().take(at).any(|before| before == way));
            twins || ways.iter().any(has_twin_ways)
        }
        Node::Seq(parts) => parts.iter().any(has_twin_ways),
        Node::Repeat(inner, _, _) => has_twin_ways(inner),
        _ => false,
    }
}

fn reached(rules: &[Rule], root: usize) -> Vec<bool> {
    let mut reached = vec![false; rules.len()];
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        if is(&reached, id) {
            continue;
        }
        mark(&mut reached, id);
        if let Some(rule) = rule(rules, id) {
            open.extend(rule.uses.iter().map(|u| u.0));
        }
    }
    reached
}

/// Rules that reach themselves before anything is consumed, each where its body first does so.
fn left_recursion(rules: &[Rule], nullable: &[bool]) -> Vec<GrammarError> {
    let lefts: Vec<Vec<usize>> = rules
        .iter()
        .map(|rule| {
            let mut left = BTreeSet::new();
            collect_left(&rule.body, nullable, &mut left);
            left.into_iter().collect()
        })
        .collect();
    let mut problems = Vec::new();
    for component in components(&lefts) {
        let members: BTreeSet<usize> = component.iter().copied().collect();
        for &id in &component {
            let (Some(rule), Some(left)) = (rule(rules, id), lefts.get(id)) else {
                continue;
            };
            if component.len() == 1 && !left.contains(&id) {
                continue;
            }
            let at = rule
                .uses
                .iter()
                .find(|(used, _)| members.contains(used) && left.contains(used))
                .map_or(rule.at, |&(_, at)| at);
            problems.push(
                GrammarError::new(
                    GrammarErrorKind::LeftRecursion,
                    "left recursion: this rule starts with itself",
                )
                .with_place(at.place(&rule.name)),
            );
        }
    }
    problems
}

/// The rules with which a match of `node` may start.
fn collect_left(node: &Node, nullables: &[bool], left: &mut BTreeSet<usize>) {
    match node {
        Node::Text(_) | Node::Class(_) | Node::Token(_) => {}
        Node::Seq(parts) => {
            for part in parts {
                collect_left(part, nullables, left);
                if !nullable(part, nullables) {
                    break;
                }
            }
        }
        Node::Alt(ways) => ways
            .iter()
            .for_each(|way| collect_left(way, nullables, left)),
        Node::Repeat(inner, _, max) => {
            if *max != Some(0) {
                collect_left(inner, nullables, left);
            }
        }
        Node::Rule(id) => {
            left.insert(*id);
        }
    }
}

/// Tarjan's strongly connected components, those that are used first. Without recursion: rules are a stranger's data.
fn components(uses: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut index = vec![UNSEEN; uses.len()];
    let mut low = vec![0usize; uses.len()];
    let mut on_stack = vec![false; uses.len()];
    let mut stack = Vec::new();
    let mut found = Vec::new();
    let mut clock = 0usize;
    for root in 0..uses.len() {
        if at(&index, root) != UNSEEN {
            continue;
        }
        let mut work = vec![(root, 0usize)];
        while let Some((id, next)) = work.pop() {
            if next == 0 {
                put(&mut index, id, clock);
                put(&mut low, id, clock);
                clock += 1;
                stack.push(id);
                mark(&mut on_stack, id);
            }
            match uses.get(id).and_then(|used| used.get(next)) {
                Some(&used) => {
                    work.push((id, next + 1));
                    if at(&index, used) == UNSEEN {
                        work.push((used, 0));
                    } else if is(&on_stack, used) {
                        let lowest = at(&low, id).min(at(&index, used));
                        put(&mut low, id, lowest);
                    }
                }
                None => {
                    if at(&low, id) == at(&index, id) {
                        let mut component = Vec::new();
                        while let Some(member) = stack.pop() {
                            if let Some(slot) = on_stack.get_mut(member) {
                                *slot = false;
                            }
                            component.push(member);
                            if member == id {
                                break;
                            }
                        }
                        component.reverse();
                        found.push(component);
                    }
                    if let Some(&(parent, _)) = work.last() {
                        let lowest = at(&low, parent).min(at(&low, id));
                        put(&mut low, parent, lowest);
                    }
                }
            }
        }
    }
    found
}

fn note(kind: GrammarErrorKind, rule: &Rule, message: &str) -> GrammarError {
    GrammarError::new(kind, message).with_place(rule.at.place(&rule.name))
}

fn rule(rules: &[Rule], id: usize) -> Option<&Rule> {
    rules.get(id)
}

pub(crate) fn is(flags: &[bool], id: usize) -> bool {
    flags.get(id).copied().unwrap_or(false)
}

fn mark(flags: &mut [bool], id: usize) {
    if let Some(flag) = flags.get_mut(id) {
        *flag = true;
    }
}

fn at(values: &[usize], id: usize) -> usize {
    values.get(id).copied().unwrap_or(0)
}

fn put(values: &mut [usize], id: usize, value: usize) {
    if let Some(slot) = values.get_mut(id) {
        *slot = value;
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;
    use crate::limits::Limits;

    fn check(text: &str) -> Result<Facts, Vec<GrammarError>> {
        let parsed = parse(text, &Limits::default()).unwrap();
        let root = parsed.root.unwrap();
        facts(&parsed, root)
    }

    fn problems(text: &str) -> Vec<String> {
        match check(text) {
            Ok(_) => panic!("{text} has no problem"),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn left_recursion_is_found_where_it_is() {
        for (text, at) in [
            ("root ::= root \"a\" | \"b\"", "1:10 in rule 'root'"),
            (
                "root ::= \"x\"? a\na ::= b \"y\" | \"z\"\nb ::= \"\" a",
                "2:7 in rule 'a'",
            ),
            ("root ::= (\"a\"* root)? \"b\"", "1:16 in rule 'root'"),
        ] {
            let said = problems(text);
            assert!(
                said.iter()
                    .any(|s| s.starts_with(at) && s.contains("left recursion")),
                "{said:?}"
            );
        }
        assert!(check("root ::= \"a\" root | \"b\"").is_ok());
        assert!(check("root ::= \"(\" root \")\" | \"\"").is_ok());
    }

    #[test]
    fn rules_that_never_end_are_refused() {
        assert_eq!(
            problems("root ::= \"a\" b | \"c\"\nb ::= \"x\" b"),
            ["2:1 in rule 'b': this rule matches no text: it never ends, or holds an empty class"]
        );
        assert!(
            problems("root ::= []")
                .iter()
                .any(|s| s.contains("matches no text"))
        );
    }

    #[test]
    fn what_has_no_short_text_is_refused_where_it_grows() {
        let mut text = String::from("root ::= r0\n");
        for level in 0..40 {
            text.push_str(&format!("r{level} ::= r{} r{}\n", level + 1, level + 1));
        }
        let said = problems(&format!("{text}r40 ::= \"z\""));
        assert_eq!(
            said,
            ["22:1 in rule 'r20': the shortest text of this rule has more than 1000000 characters"]
        );
        assert!(check(&format!("{text}r40 ::= \"z\"?")).is_ok());
        // A short way out is enough.
        assert!(check("root ::= \"(\" (a{1000} | \"x\") \")\"\na ::= root{1000}").is_ok());
    }

    #[test]
    fn unreachable_and_ambiguous_rules_are_notes() {
        let facts = check("root ::= (a*)+\na ::= \"x\" | \"x\" | \"\"\nlost ::= \"y\"").unwrap();
        let said: Vec<String> = facts.notes.iter().map(ToString::to_string).collect();
        assert!(
            said.iter().any(|s| s.starts_with("3:1 in rule 'lost'")),
            "{said:?}"
        );
        assert!(
            said.iter()
                .any(|s| s.starts_with("1:1 in rule 'root'") && s.contains("repetition")),
            "{said:?}"
        );
        assert!(
            said.iter()
                .any(|s| s.starts_with("2:1 in rule 'a'") && s.contains("the same")),
            "{said:?}"
        );
    }

    #[test]
    fn components_come_used_first() {
        let facts = check(
            "root ::= a b\na ::= \"(\" b \")\" | \"x\"\nb ::= \"[\" a \"]\" | c\nc ::= \"y\"",
        )
        .unwrap();
        let place = |id| facts.order.iter().position(|&o| o == id).unwrap();
        assert!(place(3) < place(1) && place(3) < place(2) && place(0) == 3);
        assert_eq!(facts.cyclic, [false, true, true, false]);
    }
}
