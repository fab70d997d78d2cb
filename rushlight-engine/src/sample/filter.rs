//! The filters over a set of candidates.
//!
//! Each of top-k, top-p and min-p keeps the first so many tokens of one order, larger logits first
//! and lower ids among equals. So a filter only has to find the last [`Key`] it keeps. Candidates stay
//! in order of ids throughout: the order in which a draw walks them must not depend on how a
//! selection algorithm shuffles.

use super::row::{Key, Row, Scale, ratio_of_weight};

/// Below this many keys, sorting is cheaper than another partition.
const SORT_BELOW: usize = 32;

/// The tokens still in play: every legal token of the row until the first filter, then `keys`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Candidates {
    keys: Vec<Key>,
    work: Vec<Key>,
    narrowed: bool,
}

impl Candidates {
    /// All legal tokens of a row.
    pub(crate) fn reset(&mut self) {
        self.narrowed = false;
    }

    /// Keeps the first `k`.
    pub(crate) fn keep_top_k(&mut self, row: &mut Row, k: usize) {
        if !self.narrowed {
            let floor = row.floor_of_top(k);
            self.narrow(row, floor);
        }
        if k == 0 || k >= self.keys.len() {
            return;
        }
        self.work.clear();
        self.work.extend_from_slice(&self.keys);
        let (_, &mut last, _) = self.work.select_nth_unstable(k - 1);
        self.keys.retain(|&key| key <= last);
    }

    /// Keeps those at least `ratio` times as likely as the likeliest.
    pub(crate) fn keep_min_p(&mut self, row: &Row, scale: Scale, ratio: f32) {
        if !self.narrowed {
            self.narrow(row, scale.floor_of(f64::from(ratio)));
        }
        self.keys.retain(|key| scale.ratio(key.logit()) >= ratio);
    }

    /// Keeps the first whose probabilities reach `share` of the whole, the crossing one included.
    pub(crate) fn keep_top_p(&mut self, row: &mut Row, scale: Scale, share: f32) {
        let weight = |key: Key| scale.weight(key.logit());
        let needed_of = |total: u64| ((total as f64 * f64::from(share)).ceil() as u64).max(1);
        let needed;
        if self.narrowed {
            needed = needed_of(self.keys.iter().map(|&key| weight(key)).sum());
        } else {
            // Tokens lighter than an even share of what may be dropped can all be dropped at once:
            // together they weigh no more than that, so the crossing token comes before them.
            let total = row.total_weight(scale);
            needed = needed_of(total);
            let light = total.saturating_sub(needed) / row.width() as u64;
            self.narrow(row, scale.floor_of(ratio_of_weight(light.max(1))));
        }
        self.work.clear();
        self.work.extend_from_slice(&self.keys);
        if let Some(last) = crossing(&mut self.work, needed, weight) {
            self.keys.retain(|&key| key <= last);
        }
    }

    /// The sum of the candidates' weights.
    pub(crate) fn total_weight(&self, row: &mut Row, scale: Scale) -> u64 {
        if self.narrowed {
            let weights = self.keys.iter().map(|key| scale.weight(key.logit()));
            weights.sum()
        } else {
            row.total_weight(scale)
        }
    }

    /// The token that owns place `at` of the candidates' weights laid end to end in order of ids.
    pub(crate) fn token_at(&self, row: &Row, mut at: u64, scale: Scale) -> Option<u32> {
        if !self.narrowed {
            return row.token_at(at, scale);
        }
        let owner = self.keys.iter().find(|key| {
            let weight = scale.weight(key.logit());
            let inside = at < weight;
            if !inside {
                at -= weight;
            }
            inside
        });
        owner.map(|key| key.id())
    }

    /// The candidates in descending order.
    pub(crate) fn sorted(&mut self) -> &[Key] {
        self.keys.sort_unstable();
        &self.keys
    }

    fn narrow(&mut self, row: &Row, floor: f32) {
        row.collect(floor, &mut self.keys);
        self.narrowed = true;
    }
}

/// The first key, in order, at which the weights before it and its own reach `needed`. Takes linear
/// time: each round halves the range and weighs one half.
fn crossing(keys: &mut [Key], needed: u64, weight: impl Fn(Key) -> u64) -> Option<Key> {
    let mut range = keys;
    let mut needed = needed;
    while range.len() > SORT_BELOW {
        let middle = range.len() / 2;
        let (before, &mut pivot, after) = range.select_nth_unstable(middle);
        let mass: u64 = before.iter().map(|&key| weight(key)).sum();
        if mass >= needed {
            range = before;
            continue;
        }
        needed -= mass;
        let own = weight(pivot);
        if own >= needed {
            return Some(pivot);
        }
        needed -= own;
        range = after;
    }
    range.sort_unstable();
    let reached = range.iter().find(|&&key| {
        let own = weight(key);
        let reached = own >= needed;
        needed = needed.saturating_sub(own);
        reached
    });
    reached.copied()
}
