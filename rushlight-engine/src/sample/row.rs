//! A row of logits made ready for sampling, and questions that one pass over it answers.
//!
//! The row is a copy, padded with −∞ to whole blocks of 64, in which every illegal token is −∞.
//! Beside it stands the largest logit of each block. Two facts make wide vocabularies cheap:
//!
//! - The `k`-th largest block maximum is a floor under the `k`-th largest logit, since `k` blocks
//!   hold a logit at least that large. Finding the top `k` is then a selection among `width / 64`
//!   maxima and a look into the few blocks that reach the floor.
//! - Whoever wants logits above a floor can skip every block whose maximum is below it.
//!
//! A token's place in the descending order (larger logit first, lower id among equals) is one
//! integer, its [`Key`]; a set of candidates is a vector of keys.

use super::exp::{FULL_WEIGHT, exp_of_negative, weight_of};
use super::vocab::{Mask, WORD_BITS};
use crate::error::{ErrorKind, Result};

const BLOCK: usize = 64;

/// A token and its logit, ordered as sampling orders them: larger logits first, then lower ids.
///
/// The high half is the logit's order-preserving image, inverted; the low half is the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn new(logit: f32, id: u32) -> Self {
        // Adding zero makes −0 into +0: they are equal logits and must tie.
        let bits = (logit + 0.0).to_bits();
        let negative = bits >> 31 == 1;
        let ascending = if negative { !bits } else { bits | 1 << 31 };
        Self(u64::from(!ascending) << 32 | u64::from(id))
    }

    pub(crate) fn id(self) -> u32 {
        // The low half, by construction.
        self.0 as u32
    }

    pub(crate) fn logit(self) -> f32 {
        let ascending = !((self.0 >> 32) as u32);
        let positive = ascending >> 31 == 1;
        f32::from_bits(if positive {
            ascending & !(1 << 31)
        } else {
            !ascending
        })
    }
}

/// How far below the best token a logit lies, as a weight: temperature and the best logit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) max: f32,
    pub(crate) temperature: f32,
}

impl Scale {
    /// `exp((logit − max) / temperature)`: 1 for the best token.
    pub(crate) fn ratio(self, logit: f32) -> f32 {
        exp_of_negative((logit - self.max) / self.temperature)
    }

    /// The same as a whole number of 2⁻⁴⁰ths, so that sums are exact in any order.
    pub(crate) fn weight(self, logit: f32) -> u64 {
        weight_of(self.ratio(logit))
    }

    /// A logit surely below every logit whose ratio is `ratio` or more.
    ///
    /// The slack covers the error of the exponential (under 10⁻⁶) and of the subtraction.
    pub(crate) fn floor_of(self, ratio: f64) -> f32 {
        let max = f64::from(self.max);
        let floor = max + f64::from(self.temperature) * (ratio.ln() - 0.01) - max.abs() * 1e-6;
        (floor as f32).next_down()
    }
}

/// The working copy of a row. All buffers are kept from token to token.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    width: usize,
    logits: Vec<f32>,
    block_max: Vec<f32>,
    /// Scratch for selecting among the block maxima.
    order: Vec<f32>,
    /// The weight of each block, as the last `total_weight` summed them.
    weights: Vec<u64>,
    max: f32,
}

impl Row {
    pub(crate) fn new(width: usize) -> Self {
        let blocks = width.div_ceil(BLOCK);
        Self {
            width,
            logits: vec![f32::NEG_INFINITY; blocks * BLOCK],
            block_max: vec![f32::NEG_INFINITY; blocks],
            order: Vec::with_capacity(blocks),
            weights: Vec::with_capacity(blocks),
            max: f32::NEG_INFINITY,
        }
    }

    /// Copies `logits`, with −∞ for every token that `legal` or `mask` leaves out.
    ///
    /// Logits of illegal tokens are checked too: a NaN anywhere means that the pass went wrong.
    pub(crate) fn load(
        &mut self,
        logits: &[f32],
        legal: &[u32],
        mask: Option<Mask<'_>>,
    ) -> Result<()> {
        if logits.len() != self.width {
            return Err(ErrorKind::LogitsWidth {
                found: logits.len(),
                expected: self.width,
            }
            .into());
        }
        let mut all_valid = true;
        let words = legal.iter().enumerate();
        let rows = logits
            .chunks(WORD_BITS)
            .zip(self.logits.chunks_mut(WORD_BITS));
        for ((from, to), (index, &legal)) in rows.zip(words) {
            let word = mask.map_or(legal, |mask| {
                legal & mask.words().get(index).copied().unwrap_or(0)
            });
            all_valid &= copy_legal(from, to, word);
        }
        if all_valid { Ok(()) } else { check(logits) }
    }

    /// Changes the logit of a legal token; what overflows stays the largest finite value, so that
    /// no penalty makes a token certain or impossible. In `f64`, where sums of `f32` cannot overflow.
    pub(crate) fn change(&mut self, id: u32, change: impl FnOnce(f64) -> f64) {
        if let Some(logit) = self.logits.get_mut(id as usize)
            && *logit > f32::NEG_INFINITY
        {
            let changed = change(f64::from(*logit));
            *logit = (changed as f32).clamp(f32::MIN, f32::MAX);
        }
    }

    /// Brings the block maxima up to date. Fails where no token is legal.
    pub(crate) fn index(&mut self) -> Result<()> {
        let (blocks, _) = self.logits.as_chunks::<BLOCK>();
        for (max, block) in self.block_max.iter_mut().zip(blocks) {
            *max = max_of(block);
        }
        self.max = self
            .block_max
            .iter()
            .fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
        if self.max == f32::NEG_INFINITY {
            return Err(ErrorKind::NoLegalToken.into());
        }
        Ok(())
    }

    /// Values in the row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The logits of legal tokens; −∞ for the others and for the padding.
    #[cfg(test)]
    pub(crate) fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The largest logit.
    pub(crate) fn max(&self) -> f32 {
        self.max
    }

    /// The first token with the largest logit.
    pub(crate) fn argmax(&self) -> Option<u32> {
        let block = self.block_max.iter().position(|&max| max == self.max)?;
        let start = block * BLOCK;
        let lanes = self.logits.get(start..)?;
        let lane = lanes.iter().position(|&logit| logit == self.max)?;
        u32::try_from(start + lane).ok()
    }

    /// Puts into `keys`, in order of ids, every legal token whose logit is at least `floor`.
    pub(crate) fn collect(&self, floor: f32, keys: &mut Vec<Key>) {
        keys.clear();
        let (blocks, _) = self.logits.as_chunks::<BLOCK>();
        for (index, (block, &max)) in blocks.iter().zip(&self.block_max).enumerate() {
            if max < floor || max == f32::NEG_INFINITY {
                continue;
            }
            let first = (index * BLOCK) as u32;
            for (id, &logit) in (first..).zip(block) {
                if logit >= floor && logit > f32::NEG_INFINITY {
                    keys.push(Key::new(logit, id));
                }
            }
        }
    }

    /// A logit that the `k` largest reach, and few others.
    pub(crate) fn floor_of_top(&mut self, k: usize) -> f32 {
        self.order.clear();
        self.order.extend_from_slice(&self.block_max);
        if k == 0 || k > self.order.len() {
            return f32::NEG_INFINITY;
        }
        let (_, floor, _) = self
            .order
            .select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
        *floor
    }

    /// The sum of all weights.
    pub(crate) fn total_weight(&mut self, scale: Scale) -> u64 {
        self.weights.clear();
        let (blocks, _) = self.logits.as_chunks::<BLOCK>();
        let blocks = blocks.iter().zip(&self.block_max);
        self.weights.extend(blocks.map(|(block, &max)| {
            if max == f32::NEG_INFINITY {
                0
            } else {
                weight_of_block(block, scale)
            }
        }));
        self.weights.iter().sum()
    }

    /// The token that owns place `at` of the weights laid end to end in order of ids. The sums are
    /// those of the last [`total_weight`](Self::total_weight), whose result bounds `at`.
    pub(crate) fn token_at(&self, mut at: u64, scale: Scale) -> Option<u32> {
        let block = self.weights.iter().position(|&weight| {
            let inside = at < weight;
            if !inside {
                at -= weight;
            }
            inside
        })?;
        let start = block * BLOCK;
        let lanes = self.logits.get(start..)?;
        let lane = lanes.iter().position(|&logit| {
            let weight = scale.weight(logit);
            let inside = at < weight;
            if !inside {
                at -= weight;
            }
            inside
        })?;
        u32::try_from(start + lane).ok()
    }
}

/// The weight that every token below `weight` misses, as a ratio for [`Scale::floor_of`].
pub(crate) fn ratio_of_weight(weight: u64) -> f64 {
    // Rounding to whole weights lifts a ratio by at most half of one.
    (weight as f64 - 0.5) / FULL_WEIGHT as f64
}

/// Fails on the first logit that is NaN or +∞.
pub(crate) fn check(logits: &[f32]) -> Result<()> {
    for (token, logit) in (0u32..).zip(logits) {
        if logit.is_nan() {
            return Err(ErrorKind::NanLogits { token }.into());
        }
        if *logit == f32::INFINITY {
            return Err(ErrorKind::InfiniteLogits { token }.into());
        }
    }
    Ok(())
}

/// Copies up to 32 logits, −∞ where `word` has no bit; whether all were finite or −∞.
fn copy_legal(from: &[f32], to: &mut [f32], word: u32) -> bool {
    // Written without branches so that it compiles to vector code.
    let mut valid = true;
    for &logit in from {
        valid &= logit < f32::INFINITY;
    }
    match word {
        0 => to.fill(f32::NEG_INFINITY),
        u32::MAX if from.len() == to.len() => to.copy_from_slice(from),
        _ => {
            for (lane, (to, &logit)) in to.iter_mut().zip(from).enumerate() {
                let legal = word & (1 << lane) != 0;
                *to = if legal { logit } else { f32::NEG_INFINITY };
            }
        }
    }
    valid
}

fn max_of(block: &[f32; BLOCK]) -> f32 {
    let (parts, _) = block.as_chunks::<8>();
    let mut lanes = [f32::NEG_INFINITY; 8];
    for part in parts {
        for (max, &logit) in lanes.iter_mut().zip(part) {
            *max = if logit > *max { logit } else { *max };
        }
    }
    lanes
        .iter()
        .fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

fn weight_of_block(block: &[f32; BLOCK], scale: Scale) -> u64 {
    let mut ratios = [0.0f32; BLOCK];
    for (ratio, &logit) in ratios.iter_mut().zip(block) {
        *ratio = scale.ratio(logit);
    }
    ratios.iter().map(|&ratio| weight_of(ratio)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_sort_by_logit_then_id_and_give_both_back() {
        let logits = [
            f32::MAX,
            3.5,
            1e-40,
            0.0,
            -0.0,
            -1e-40,
            -2.0,
            f32::MIN,
            f32::NEG_INFINITY,
        ];
        let keys: Vec<Key> = (10..).zip(logits).map(|(id, l)| Key::new(l, id)).collect();
        assert!(keys.is_sorted());
        assert!(
            Key::new(0.0, 4) > Key::new(-0.0, 3),
            "zeros tie, so the lower id is first"
        );
        for (key, (id, logit)) in keys.iter().zip((10..).zip(logits)) {
            assert_eq!(key.id(), id);
            assert_eq!(key.logit(), logit);
        }
    }

    proptest! {
        #[test]
        fn the_floor_lies_under_the_kth_largest(
            logits in prop::collection::vec(-8i32..8, 1..400),
            k in 1usize..20,
        ) {
            let logits: Vec<f32> = logits.into_iter().map(|l| l as f32).collect();
            let mut row = Row::new(logits.len());
            row.load(&logits, &vec![u32::MAX; logits.len().div_ceil(32)], None).unwrap();
            row.index().unwrap();
            let floor = row.floor_of_top(k);
            let mut sorted = logits.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            if let Some(&kth) = sorted.get(k - 1) {
                prop_assert!(floor <= kth);
            }
            let mut keys = Vec::new();
            row.collect(floor, &mut keys);
            prop_assert!(keys.len() >= k.min(logits.len()));
            prop_assert!(keys.windows(2).all(|w| w[0].id() < w[1].id()));
            prop_assert_eq!(keys.len(), logits.iter().filter(|&&l| l >= floor).count());
        }

        #[test]
        fn the_floor_of_a_ratio_loses_no_token_that_reaches_it(
            max in -1e4f32..1e4,
            below in 0f32..60.0,
            temperature in prop::sample::select(vec![1e-3f32, 0.1, 0.7, 1.0, 3.0, 50.0]),
            ratio in prop::sample::select(vec![1e-9f32, 1e-4, 0.05, 0.5, 1.0]),
        ) {
            let scale = Scale { max, temperature };
            let logit = max - below * temperature;
            if scale.ratio(logit) >= ratio {
                prop_assert!(logit >= scale.floor_of(f64::from(ratio)));
            }
            let weight = scale.weight(logit);
            if weight > 0 {
                prop_assert!(logit >= scale.floor_of(ratio_of_weight(weight)));
            }
        }
    }
}
