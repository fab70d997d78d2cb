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
//! integer, its [`Key`].

use super::exp::{exp_of_negative, weight_of};
use super::vocab::{Mask, WORD_BITS};
use crate::error::{ErrorKind, Result};

pub(crate) const BLOCK: usize = 64;
/// The last bin of [`Scale::bin`]: 32 natural logarithms away, where every weight is 0.
pub(crate) const LAST_BIN: usize = 511;
const BINS_PER_NAT: f32 = 16.0;

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

    /// The logit's distance from the best in 16ths of a natural logarithm, at most
    /// [`LAST_BIN`]. Never falls as the logit does: the arithmetic rounds monotonically.
    pub(crate) fn bin(self, logit: f32) -> usize {
        // Adding 2²³ leaves the nearest whole number in the low mantissa bits.
        const ROUND: f32 = 8_388_608.0;
        let distance = (logit - self.max) / self.temperature * -BINS_PER_NAT;
        let bounded = if distance < LAST_BIN as f32 {
            distance
        } else {
            LAST_BIN as f32
        };
        (bounded + ROUND).to_bits() as usize & LAST_BIN
    }

    /// A logit surely below every logit whose ratio is `ratio` or more.
    pub(crate) fn floor_of(self, ratio: f32) -> f32 {
        self.floor_at(-f64::from(ratio).ln())
    }

    /// A logit surely below every logit in `bin`.
    pub(crate) fn floor_of_bin(self, bin: usize) -> f32 {
        self.floor_at((bin as f64 + 0.5) / f64::from(BINS_PER_NAT))
    }

    /// The slack covers the error of the exponential and of the subtraction.
    fn floor_at(self, distance: f64) -> f32 {
        let max = f64::from(self.max);
        let floor = max - f64::from(self.temperature) * (distance + 0.01) - max.abs() * 1e-6;
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
        let mut valid = true;
        let mut words = legal.iter().enumerate().map(|(index, &legal)| {
            mask.map_or(legal, |mask| {
                legal & mask.words().get(index).copied().unwrap_or(0)
            })
        });
        let (from, from_rest) = logits.as_chunks::<WORD_BITS>();
        let (to, to_rest) = self.logits.as_chunks_mut::<WORD_BITS>();
        // The row is whole blocks of 64, so its words never leave a rest.
        debug_assert!(to_rest.is_empty());
        let mut to = to.iter_mut();
        for ((from, to), word) in from.iter().zip(&mut to).zip(&mut words) {
            valid &= copy_legal(from, to, word);
        }
        if let (Some(to), Some(word)) = (to.next(), words.next()) {
            let mut padded = [f32::NEG_INFINITY; WORD_BITS];
            if let Some(padded) = padded.get_mut(..from_rest.len()) {
                padded.copy_from_slice(from_rest);
            }
            valid &= copy_legal(&padded, to, word);
        }
        if valid { Ok(()) } else { check_logits(logits) }
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

    /// The logits of legal tokens; −∞ for the others and for the padding.
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

    /// Puts into `tokens`, in order of ids, every legal token whose logit is at least `floor`.
    pub(crate) fn collect(&self, floor: f32, tokens: &mut Tokens) {
        tokens.clear();
        for (index, block) in self.blocks() {
            if self.block_max[index] < floor {
                continue;
            }
            let first = (index * BLOCK) as u32;
            let mut ids = [0; BLOCK];
            let mut logits = [0.0; BLOCK];
            let mut kept = 0;
            for (id, &logit) in (first..).zip(block) {
                // Written always, counted only if kept: no branch to mispredict.
                ids[kept] = id;
                logits[kept] = logit;
                kept += usize::from(logit >= floor && logit > f32::NEG_INFINITY);
            }
            tokens.ids.extend_from_slice(&ids[..kept]);
            tokens.logits.extend_from_slice(&logits[..kept]);
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

    /// Adds the weight of every token to its [bin](Scale::bin) of `bins`.
    pub(crate) fn weigh_by_bin(&self, scale: Scale, bins: &mut [u64; LAST_BIN + 1]) {
        bins.fill(0);
        for (_, block) in self.weighty_blocks(scale) {
            let ratios = block.map(|logit| scale.ratio(logit));
            let places = block.map(|logit| scale.bin(logit));
            for (ratio, place) in ratios.into_iter().zip(places) {
                bins[place] += weight_of(ratio);
            }
        }
    }

    /// The sum of all weights.
    pub(crate) fn total_weight(&mut self, scale: Scale) -> u64 {
        let mut sums = std::mem::take(&mut self.weights);
        sums.clear();
        sums.resize(self.block_max.len(), 0);
        for (index, block) in self.weighty_blocks(scale) {
            sums[index] = weight_of_block(block, scale);
        }
        self.weights = sums;
        self.weights.iter().sum()
    }

    /// The token that owns place `at` of the weights laid end to end in order of ids. The sums are
    /// those of the last [`total_weight`](Self::total_weight), whose result bounds `at`.
    pub(crate) fn token_at(&self, at: u64, scale: Scale) -> Option<u32> {
        let index = owner(&self.logits, &self.weights, at, scale)?;
        u32::try_from(index).ok()
    }

    /// The blocks that weigh anything: in a peaked distribution or under a mask, few.
    fn weighty_blocks(&self, scale: Scale) -> impl Iterator<Item = (usize, &[f32; BLOCK])> {
        let weighs = move |max| scale.weight(max) > 0;
        self.blocks()
            .filter(move |&(index, _)| weighs(self.block_max[index]))
    }

    /// The blocks with a legal token, and their places.
    fn blocks(&self) -> impl Iterator<Item = (usize, &[f32; BLOCK])> {
        let (blocks, _) = self.logits.as_chunks::<BLOCK>();
        let legal = blocks.iter().zip(&self.block_max).enumerate();
        legal.filter_map(|(index, (block, &max))| {
            (max > f32::NEG_INFINITY).then_some((index, block))
        })
    }
}

/// Tokens and their logits, in order of ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    ids: Vec<u32>,
    logits: Vec<f32>,
    /// The weight of each block of 64, as the last `total_weight` summed them.
    weights: Vec<u64>,
}

impl Tokens {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let tokens = self.ids.iter().zip(&self.logits);
        tokens.map(|(&id, &logit)| Key::new(logit, id))
    }

    /// Keeps the tokens for which `keep` holds.
    pub(crate) fn retain(&mut self, keep: impl Fn(Key) -> bool) {
        let mut kept = 0;
        for index in 0..self.ids.len() {
            let (id, logit) = (self.ids[index], self.logits[index]);
            self.ids[kept] = id;
            self.logits[kept] = logit;
            kept += usize::from(keep(Key::new(logit, id)));
        }
        self.ids.truncate(kept);
        self.logits.truncate(kept);
    }

    /// The sum of all weights.
    pub(crate) fn total_weight(&mut self, scale: Scale) -> u64 {
        let (blocks, rest) = self.logits.as_chunks::<BLOCK>();
        self.weights.clear();
        let blocks = blocks.iter().map(|block| weight_of_block(block, scale));
        self.weights.extend(blocks);
        let rest = rest.iter().map(|&logit| scale.weight(logit));
        self.weights.push(rest.sum());
        self.weights.iter().sum()
    }

    /// As [`Row::token_at`].
    pub(crate) fn token_at(&self, at: u64, scale: Scale) -> Option<u32> {
        let index = owner(&self.logits, &self.weights, at, scale)?;
        self.ids.get(index).copied()
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.logits.clear();
    }
}

/// The index of the logit whose weight covers place `at` of all weights laid end to end; `sums` are
/// the weights of the blocks.
fn owner(logits: &[f32], sums: &[u64], mut at: u64, scale: Scale) -> Option<usize> {
    let mut covers = |weight: u64| {
        let covers = at < weight;
        if !covers {
            at -= weight;
        }
        covers
    };
    let block = sums.iter().position(|&weight| covers(weight))?;
    let start = block * BLOCK;
    let lanes = logits.get(start..)?;
    let lane = lanes
        .iter()
        .position(|&logit| covers(scale.weight(logit)))?;
    Some(start + lane)
}

/// Fails on the first logit of a row that is NaN or +∞, as sampling and scoring do.
///
/// # Errors
/// [`NanLogits`](ErrorKind::NanLogits) and [`InfiniteLogits`](ErrorKind::InfiniteLogits).
pub fn check_logits(logits: &[f32]) -> Result<()> {
    if logits.chunks(BLOCK).all(all_valid) {
        return Ok(());
    }
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

/// Copies 32 logits, −∞ where `word` has no bit; whether all were finite or −∞.
fn copy_legal(from: &[f32; WORD_BITS], to: &mut [f32; WORD_BITS], word: u32) -> bool {
    match word {
        0 => *to = [f32::NEG_INFINITY; WORD_BITS],
        u32::MAX => *to = *from,
        // Without branches, so that it compiles to vector code.
        _ => {
            for (lane, (to, &logit)) in to.iter_mut().zip(from).enumerate() {
                let legal = word & (1 << lane) != 0;
                *to = if legal { logit } else { f32::NEG_INFINITY };
            }
        }
    }
    all_valid(from)
}

/// Whether all are finite or −∞.
fn all_valid(logits: &[f32]) -> bool {
    // NaN fails every comparison.
    logits
        .iter()
        .fold(true, |valid, &l| valid & (l < f32::INFINITY))
}

pub(crate) fn max_of(block: &[f32; BLOCK]) -> f32 {
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
            let mut tokens = Tokens::default();
            row.collect(floor, &mut tokens);
            prop_assert!(tokens.len() >= k.min(logits.len()));
            prop_assert!(tokens.ids.is_sorted_by(|a, b| a < b));
            prop_assert_eq!(tokens.len(), logits.iter().filter(|&&l| l >= floor).count());
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
                prop_assert!(logit >= scale.floor_of(ratio));
            }
            let bin = scale.bin(logit);
            prop_assert!(logit >= scale.floor_of_bin(bin) || bin == LAST_BIN);
            prop_assert!(scale.bin(logit.next_down()) >= bin);
            prop_assert!(bin < LAST_BIN || scale.weight(logit) == 0);
        }
    }
}
