//! What the steps of a number (`multipleOf`) cost the mask engine.

use foldhash::HashSet;

use super::rx::Rx;

/// States that the remainders by all steps of a number make, times what each is made of, up to which the grammar has the steps.
pub(super) const REMAINDERS: u64 = 20_000;

/// Steps of a number, each a coefficient and how many of its digits are decimals.
#[derive(Clone, Default)]
pub(super) struct Steps {
    /// Those that a number is a multiple of.
    all: HashSet<(u32, u32)>,
    /// Those of alternatives and complements.
    other: HashSet<(u32, u32)>,
}

impl Steps {
    pub(super) fn add(&mut self, part: &Rx) {
        part.collect_steps(match part {
            Rx::Cat(_) => &mut self.all,
            _ => &mut self.other,
        });
    }

    /// How many states the remainders by all steps make, or more, times what each is made of: of all steps, and of each
    /// alternative to each other. What a number is a multiple of has no more states than the least common multiple; alternatives
    /// are derived each in its own way.
    pub(super) fn cost(&self) -> u64 {
        let decimals = self.all.iter().map(|&(_, decimals)| decimals).max();
        let together = self.all.iter().fold(1, |all, &(coefficient, own)| {
            let scale = 10u64.saturating_pow(decimals.unwrap_or(0).saturating_sub(own));
            let step = u64::from(coefficient).saturating_mul(scale).max(1);
            (all / gcd(all, step)).saturating_mul(step)
        });
        let others = self.other.iter().map(|&(step, _)| u64::from(step));
        let states = others.fold(together, u64::saturating_mul);
        let parts = self.all.len() + self.other.len() * self.other.len();
        states.saturating_mul(u64::try_from(parts).unwrap_or(u64::MAX))
    }
}

/// Whether every text of `part`, of a language of numbers, is seen to be one.
pub(super) fn is_of_numbers(part: &Rx) -> bool {
    match part {
        Rx::Lit(_) | Rx::Plain(_) => true,
        Rx::Alt(parts) => parts.iter().all(is_of_numbers),
        Rx::And(parts) => parts.iter().any(is_of_numbers),
        _ => false,
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
