//! Expressions in one spelling: the mask engine fails over alternatives of one text that are put together differently, as
//! `"a" "bcd" | "abcd"` are.

use llguidance::derivre::RegexAst;

/// `ast` with its literals joined where they meet, through choices that are none and repetitions of once.
pub(crate) fn normal(ast: RegexAst) -> RegexAst {
    match ast {
        RegexAst::Concat(parts) => {
            let mut out = Vec::with_capacity(parts.len());
            for part in parts {
                match normal(part) {
                    RegexAst::Concat(inner) => inner.into_iter().for_each(|p| push(&mut out, p)),
                    part => push(&mut out, part),
                }
            }
            match (out.pop(), out.is_empty()) {
                (None, _) => RegexAst::EmptyString,
                (Some(one), true) => one,
                (Some(last), false) => {
                    out.push(last);
                    RegexAst::Concat(out)
                }
            }
        }
        RegexAst::Or(ways) => {
            let mut ways: Vec<RegexAst> = ways.into_iter().map(normal).collect();
            match ways.split_first() {
                Some((first, others)) if others.iter().all(|way| is_same_text(first, way)) => {
                    ways.swap_remove(0)
                }
                _ => RegexAst::Or(ways),
            }
        }
        RegexAst::And(parts) => RegexAst::And(parts.into_iter().map(normal).collect()),
        RegexAst::Not(inner) => RegexAst::Not(Box::new(normal(*inner))),
        RegexAst::Repeat(_, _, 0) => RegexAst::EmptyString,
        RegexAst::Repeat(inner, 1, 1) => normal(*inner),
        RegexAst::Repeat(inner, min, max) => RegexAst::Repeat(Box::new(normal(*inner)), min, max),
        RegexAst::Literal(text) if text.is_empty() => RegexAst::EmptyString,
        other => other,
    }
}

fn push(out: &mut Vec<RegexAst>, part: RegexAst) {
    match (out.last_mut(), part) {
        (_, RegexAst::EmptyString) => {}
        (Some(RegexAst::Literal(before)), RegexAst::Literal(text)) => before.push_str(&text),
        (_, part) => out.push(part),
    }
}

fn is_same_text(one: &RegexAst, other: &RegexAst) -> bool {
    match (one, other) {
        (RegexAst::EmptyString, RegexAst::EmptyString) => true,
        (RegexAst::Literal(one), RegexAst::Literal(other)) => one == other,
        _ => false,
    }
}
