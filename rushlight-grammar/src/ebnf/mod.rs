//! Grammars as llama.cpp spells them (GBNF).
//!
//! ```text
//! root  ::= "yes" | "no" reason? | list   # texts, alternatives, optional
//! reason ::= " because " [^\n]{1,80}      # classes, counts
//! list  ::= "[" (item ("," item)*)? "]"   # groups; rules may use each other in cycles
//! item  ::= [a-z]+ | list
//! ```
//!
//! A rule is `name ::= alternatives`; `root` is where a text starts. A rule ends with its line, but inside groups, after `|` and
//! before a `|` that starts a line. There are texts `"…"`, classes `[a-z]` and `[^a-z]`, `.` for any character, groups, `* + ?`,
//! `{m}`, `{m,}`, `{m,n}`, tokens `<name>`, `<[id]>` and `!<[id]>`, comments from `#`, and the escapes `\n \r \t \\ \" \[ \] \xNN
//! \uNNNN \UNNNNNNNN`.
//!
//! Refused, with rule, line and column: left recursion, rules that are used and defined nowhere, rules defined twice, rules that
//! match no text. Reported by [`inspect`] and harmless: rules that are never reached, and shapes that match one text in two
//! ways.
//!
//! # How it is lowered
//! The mask engine reads lexemes, each as long as it can be, before it parses. A grammar of characters has no lexemes, so this
//! module finds them: rules outside every cycle are regular and become patterns, runs of regular parts are joined. Reading the
//! longest would lose texts where a lexeme could as well stop earlier; wherever that may be so (one lexeme's
//! continuation meets what may follow another) the rules concerned are lowered a character at a time, which is exact.

mod analyse;
mod lexemes;
mod node;
mod parse;
mod regular;
mod shortest;
mod write;

use llguidance::earley::SymIdx;

use crate::error::{GrammarError, GrammarErrorKind, GrammarReport, Result};
use crate::limits::Limits;
use crate::lower::Lowered;
use crate::target::Target;
use crate::vocabulary::Vocabulary;

/// Lowers a grammar; tokens that it names are those of `vocabulary`.
///
/// # Errors
/// A report of every problem found.
pub fn lower(
    text: &str,
    vocabulary: Option<&Vocabulary>,
    limits: &Limits,
) -> Result<Lowered, GrammarReport> {
    let mut target = Target::new(limits)?;
    let (parsed, root, facts) = analysed(text, limits)?;
    let first = write::build(&parsed.rules, root, &facts, vocabulary, &mut target)?;
    Ok(Lowered {
        closers: parsed.texts(),
        ..Lowered::from(target.finish(first)?)
    })
}

/// What is worth saying about a grammar that compiles: rules never reached, ambiguous shapes.
///
/// # Errors
/// Those of [`lower`].
pub fn inspect(text: &str, limits: &Limits) -> Result<Vec<GrammarError>, GrammarReport> {
    let (_, _, facts) = analysed(text, limits)?;
    Ok(facts.notes)
}

/// A grammar that is a part of another.
pub(crate) enum Part {
    /// The same as a pattern.
    Pattern(String),
    /// What it is in the target.
    Built(SymIdx),
}

/// Builds the grammar in `target`, unless it is a pattern; with it, the texts that it spells out.
pub(crate) fn build(
    text: &str,
    vocabulary: Option<&Vocabulary>,
    limits: &Limits,
    target: &mut Target,
) -> Result<(Part, Vec<String>), GrammarReport> {
    let (parsed, root, facts) = analysed(text, limits)?;
    let part = match regular::pattern(&parsed.rules, root, &facts) {
        Some(pattern) => Part::Pattern(pattern),
        None => Part::Built(write::build(
            &parsed.rules,
            root,
            &facts,
            vocabulary,
            target,
        )?),
    };
    Ok((part, parsed.texts()))
}

fn analysed(
    text: &str,
    limits: &Limits,
) -> Result<(node::Parsed, usize, analyse::Facts), GrammarReport> {
    let parsed = parse::parse(text, limits).map_err(report)?;
    let Some(root) = parsed.root else {
        return Err(report(Vec::new()));
    };
    let facts = analyse::facts(&parsed, root).map_err(report)?;
    regular::check_times(&parsed.rules, &facts, limits)?;
    Ok((parsed, root, facts))
}

fn report(problems: Vec<GrammarError>) -> GrammarReport {
    GrammarReport::from_problems(problems).unwrap_or_else(|| {
        GrammarError::new(
            GrammarErrorKind::Internal,
            "a grammar was refused without a reason",
        )
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_unknown_is_told_where_it_stands() {
        for (text, at) in [
            ("root ::= \"a\" <[99999]>", "1:14 in rule 'root'"),
            ("root ::= <nosuch>", "1:10 in rule 'root'"),
            ("root ::= b\nb ::= \"x\"\n | !<[7]>", "3:5 in rule 'b'"),
        ] {
            let e = lower(text, None, &Limits::default()).unwrap_err();
            assert!(e.to_string().starts_with(&format!("{at}: ")), "{text}: {e}");
        }
    }

    #[test]
    fn rules_that_double_stay_rules() {
        let mut text = String::from("root ::= r0\n");
        for level in 0..40 {
            text.push_str(&format!("r{level} ::= r{} r{}\n", level + 1, level + 1));
        }
        assert!(lower(&format!("{text}r40 ::= \"z\"?"), None, &Limits::default()).is_ok());
    }
}
