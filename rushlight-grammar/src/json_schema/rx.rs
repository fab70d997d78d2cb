//! Regular languages over decoded text: the form that patterns, formats, lengths, enums and numbers meet in.
//!
//! A language is a tree with intersection and complement, handed to the mask engine's derivative engine as it is; no
//! automaton is built here. [`Rx::Not`] is complement within all text, so it is only sound on strings (every text is a
//! string) and on numbers where the caller intersects with the set of number texts.

use foldhash::HashSet;
use llguidance::derivre::{ExprRef, Regex, RegexAst, RegexBuilder};

/// Work units for one check; the derivative engine counts about 14 of them a microsecond.
const CHECK_FUEL: u64 = 30_000;
/// Work units that a check takes at least; and what building a language takes, which is more than what the engine counts.
const CHECK_COST: u64 = 1_000;
const BUILD_COST: u64 = 2;
/// The pattern of one character.
const ANY_CHARACTER: &str = "(?s:.)";

/// A language of texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rx {
    /// The empty text only.
    Empty,
    /// No text.
    None,
    /// Every text.
    All,
    /// One text.
    Lit(String),
    /// A pattern in the `regex` crate's syntax, anchored at both ends and without look-around.
    Plain(String),
    /// One after another.
    Cat(Vec<Rx>),
    /// Any of them.
    Alt(Vec<Rx>),
    /// At least `.1`, at most `.2` times (`None`: no bound).
    Rep(Box<Rx>, u32, Option<u32>),
    /// All of them.
    And(Vec<Rx>),
    /// Every other text.
    Not(Box<Rx>),
    /// Unsigned decimal digits whose value is a multiple of `.0 * 10^-.1`.
    MultipleOf(u32, u32),
}

impl Rx {
    /// All of `parts`, flattened; lengths become one.
    pub(super) fn and(parts: impl IntoIterator<Item = Rx>) -> Rx {
        let mut out: Vec<Rx> = Vec::new();
        let mut length: Option<(u32, Option<u32>)> = None;
        let mut add = |out: &mut Vec<Rx>, part: Rx| match (part.as_length(), &mut length) {
            // The mask engine has masks in store for one repetition, and none for an intersection of two.
            (Some((low, high)), Some((min, max))) => {
                *min = low.max(*min);
                *max = match (high, *max) {
                    (Some(high), Some(max)) => Some(high.min(max)),
                    (high, max) => high.or(max),
                };
            }
            (Some(bounds), none) => *none = Some(bounds),
            (None, _) if out.contains(&part) => {}
            (None, _) => out.push(part),
        };
        for part in parts {
            match part {
                Rx::All => {}
                Rx::None => return Rx::None,
                Rx::And(inner) => inner.into_iter().for_each(|part| add(&mut out, part)),
                other => add(&mut out, other),
            }
        }
        if let Some((min, max)) = length {
            match Rx::length(min, max) {
                Rx::All => {}
                Rx::None => return Rx::None,
                other => out.push(other),
            }
        }
        match out.len() {
            0 => Rx::All,
            1 => out.swap_remove(0),
            _ => Rx::And(out),
        }
    }

    /// Any of `parts`, flattened.
    pub(super) fn alt(parts: impl IntoIterator<Item = Rx>) -> Rx {
        let mut out: Vec<Rx> = Vec::new();
        for part in parts {
            match part {
                Rx::None => {}
                Rx::All => return Rx::All,
                Rx::Alt(inner) => out.extend(inner),
                other => out.push(other),
            }
        }
        match out.len() {
            0 => Rx::None,
            1 => out.swap_remove(0),
            _ => Rx::Alt(out),
        }
    }

    /// `parts` in sequence, flattened.
    pub(super) fn cat(parts: impl IntoIterator<Item = Rx>) -> Rx {
        let mut out: Vec<Rx> = Vec::new();
        for part in parts {
            match part {
                Rx::Empty => {}
                Rx::None => return Rx::None,
                Rx::Cat(inner) => out.extend(inner),
                Rx::All if out.last() == Some(&Rx::All) => {}
                other => out.push(other),
            }
        }
        match out.len() {
            0 => Rx::Empty,
            1 => out.swap_remove(0),
            _ => Rx::Cat(out),
        }
    }

    /// Every text that this language does not hold.
    pub(super) fn complement(self) -> Rx {
        match self {
            Rx::All => Rx::None,
            Rx::None => Rx::All,
            Rx::Not(inner) => *inner,
            other => Rx::Not(Box::new(other)),
        }
    }

    /// Texts of `min..=max` characters.
    pub(super) fn length(min: u32, max: Option<u32>) -> Rx {
        match (min, max) {
            (0, None) => Rx::All,
            (min, Some(max)) if min > max => Rx::None,
            (min, max) => Rx::Rep(Box::new(Rx::Plain(ANY_CHARACTER.to_owned())), min, max),
        }
    }

    /// The bounds, where it is a language of [`Rx::length`].
    pub(super) fn as_length(&self) -> Option<(u32, Option<u32>)> {
        match self {
            Rx::Rep(inner, min, max) => match &**inner {
                Rx::Plain(pattern) if pattern == ANY_CHARACTER => Some((*min, *max)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The texts of this language, where it is a short list.
    pub(super) fn literals(&self) -> Option<Vec<&str>> {
        match self {
            Rx::Lit(text) => Some(vec![text]),
            Rx::Empty => Some(vec![""]),
            Rx::None => Some(Vec::new()),
            Rx::Alt(parts) => {
                let mut out = Vec::new();
                for part in parts {
                    out.extend(part.literals()?);
                }
                Some(out)
            }
            _ => None,
        }
    }

    /// The same language in the mask engine's form.
    pub(super) fn to_ast(&self) -> RegexAst {
        self.to_ast_with(&mut |pattern| RegexAst::Regex(pattern.to_owned()))
    }

    /// As [`Rx::to_ast`]; `parsed` makes the form of a pattern, so that one which is met often need not be parsed each time.
    pub(super) fn to_ast_with(&self, parsed: &mut dyn FnMut(&str) -> RegexAst) -> RegexAst {
        let mut all = |parts: &[Rx]| parts.iter().map(|part| part.to_ast_with(parsed)).collect();
        match self {
            Rx::Empty => RegexAst::EmptyString,
            Rx::None => RegexAst::NoMatch,
            Rx::All => parsed("(?s:.*)"),
            Rx::Lit(text) => RegexAst::Literal(text.clone()),
            Rx::Plain(pattern) => parsed(pattern),
            Rx::Cat(parts) => RegexAst::Concat(all(parts)),
            Rx::Alt(parts) => RegexAst::Or(all(parts)),
            Rx::Rep(inner, min, max) => RegexAst::Repeat(
                Box::new(inner.to_ast_with(parsed)),
                *min,
                max.unwrap_or(u32::MAX),
            ),
            Rx::And(parts) => RegexAst::And(all(parts)),
            // Within all text: quoting maps a bare complement to one among all bytes, raw controls and quotes included.
            Rx::Not(inner) => RegexAst::And(vec![
                Rx::All.to_ast_with(parsed),
                RegexAst::Not(Box::new(inner.to_ast_with(parsed))),
            ]),
            Rx::MultipleOf(coefficient, exponent) => RegexAst::MultipleOf(*coefficient, *exponent),
        }
    }

    /// Adds the steps of all multiples in it.
    pub(super) fn collect_steps(&self, steps: &mut HashSet<(u32, u32)>) {
        match self {
            Rx::MultipleOf(coefficient, exponent) => {
                steps.insert((*coefficient, *exponent));
            }
            Rx::Cat(parts) | Rx::Alt(parts) | Rx::And(parts) => {
                parts.iter().for_each(|part| part.collect_steps(steps));
            }
            Rx::Rep(inner, ..) | Rx::Not(inner) => inner.collect_steps(steps),
            Rx::Empty | Rx::None | Rx::All | Rx::Lit(_) | Rx::Plain(_) => {}
        }
    }

    /// Whether the language is surely not empty, by its shape alone.
    fn plainly_inhabited(&self) -> bool {
        match self {
            Rx::Empty | Rx::All | Rx::Lit(_) | Rx::Plain(_) | Rx::MultipleOf(..) => true,
            // Some text is not in a list.
            Rx::Not(inner) => inner.literals().is_some(),
            Rx::None | Rx::And(_) => false,
            Rx::Cat(parts) => parts.iter().all(Rx::plainly_inhabited),
            Rx::Alt(parts) => parts.iter().any(Rx::plainly_inhabited),
            Rx::Rep(inner, min, _) => *min == 0 || inner.plainly_inhabited(),
        }
    }

    /// Whether no text is in the language; `None` where the check took too many of the units `work`, which it counts down.
    pub(super) fn is_empty(&self, work: &mut u64) -> Option<bool> {
        match self {
            Rx::None => return Some(true),
            rx if rx.plainly_inhabited() => return Some(false),
            _ => {}
        }
        if let Rx::And(parts) = self
            && let Some(verdict) = Self::literal_intersection(parts)
        {
            return Some(verdict);
        }
        let (builder, expr) = self.build(work)?;
        if builder.exprset().is_positive(expr) {
            return Some(false);
        }
        Some(into_regex(builder, expr, work)?.always_empty())
    }

    /// The language in the derivative engine, where `work` is left.
    fn build(&self, work: &mut u64) -> Option<(RegexBuilder, ExprRef)> {
        if *work == 0 {
            return None;
        }
        let mut builder = RegexBuilder::new();
        let expr = builder.mk(&self.to_ast()).ok();
        let cost = builder.exprset().cost().saturating_mul(BUILD_COST);
        *work = work.saturating_sub(cost.saturating_add(CHECK_COST));
        Some((builder, expr?))
    }

    /// Emptiness of an intersection in which one part is a list of texts and the rest are lists or their complements.
    fn literal_intersection(parts: &[Rx]) -> Option<bool> {
        let at = parts.iter().position(|p| p.literals().is_some())?;
        let mut left = parts.get(at)?.literals()?;
        for (i, part) in parts.iter().enumerate() {
            if i == at {
                continue;
            }
            match part {
                Rx::Not(inner) => {
                    let out = inner.literals()?;
                    left.retain(|text| !out.contains(text));
                }
                other => {
                    let keep = other.literals()?;
                    left.retain(|text| keep.contains(text));
                }
            }
        }
        Some(left.is_empty())
    }

    /// Whether `text` is in the language; `None` where the check took too many of the units `work`, which it counts down.
    pub(super) fn matches(&self, text: &str, work: &mut u64) -> Option<bool> {
        Some(match self {
            Rx::All => true,
            Rx::None => false,
            Rx::Empty => text.is_empty(),
            Rx::Lit(other) => other == text,
            Rx::Not(inner) => !inner.matches(text, work)?,
            Rx::And(parts) => {
                for part in parts {
                    if !part.matches(text, work)? {
                        return Some(false);
                    }
                }
                true
            }
            Rx::Alt(parts) => {
                for part in parts {
                    if part.matches(text, work)? {
                        return Some(true);
                    }
                }
                false
            }
            other => {
                let (builder, expr) = other.build(work)?;
                into_regex(builder, expr, work)?.is_match(text)
            }
        })
    }
}

/// The regex of `expr`, as far as `work` allows.
fn into_regex(builder: RegexBuilder, expr: ExprRef, work: &mut u64) -> Option<Regex> {
    let fuel = CHECK_FUEL.min(*work);
    let before = builder.exprset().cost();
    let made = builder.into_regex_limited(expr, fuel).ok();
    let spent = made
        .as_ref()
        .map_or(fuel, |regex| regex.cost().saturating_sub(before).min(fuel));
    *work -= spent;
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: u64 = 1_000_000;

    #[test]
    fn emptiness_sees_through_complements() {
        let a = Rx::Plain("a+".into());
        let b = Rx::Plain("[ab]+".into());
        assert_eq!(
            Rx::and([a.clone(), b.clone().complement()]).is_empty(&mut WORK.clone()),
            Some(true)
        );
        assert_eq!(
            Rx::and([b, a.complement()]).is_empty(&mut WORK.clone()),
            Some(false)
        );
        let one = Rx::alt([Rx::Lit("x".into()), Rx::Lit("y".into())]);
        assert_eq!(
            Rx::and([one.clone(), Rx::Lit("y".into()).complement()]).is_empty(&mut WORK.clone()),
            Some(false)
        );
        assert_eq!(
            Rx::and([one, Rx::Lit("z".into())]).is_empty(&mut WORK.clone()),
            Some(true)
        );
    }

    #[test]
    fn lengths_meet_in_one_repetition() {
        let word = Rx::Plain("[a-z]*".into());
        let both = Rx::and([Rx::length(2, None), word.clone(), Rx::length(0, Some(5))]);
        assert_eq!(both, Rx::and([word, Rx::length(2, Some(5))]));
        let one = Rx::and([Rx::length(2, None), Rx::length(3, Some(9))]);
        assert_eq!(one, Rx::length(3, Some(9)));
        let none = Rx::and([Rx::length(4, None), Rx::length(0, Some(3))]);
        assert_eq!(none, Rx::None);
    }

    #[test]
    fn lengths_count_characters() {
        let rx = Rx::length(2, Some(3));
        assert_eq!(rx.matches("éü", &mut WORK.clone()), Some(true));
        assert_eq!(rx.matches("é", &mut WORK.clone()), Some(false));
        assert_eq!(rx.matches("a\nb\n", &mut WORK.clone()), Some(false));
    }
}
