//! The filters over a set of candidates.
//!
//! Each of top-k, top-p and min-p keeps the first so many tokens of one order, larger logits first
//! and lower ids among equals. So a filter only has to find the last [`Key`] it keeps. Candidates stay
//! in order of ids throughout: the order in which a draw walks them must not depend on how a
//! selection algorithm shuffles.

use super::row::{Key, LAST_BIN, Row, Scale, Tokens};

/// Below this many keys, sorting is cheaper than another partition.
const SORT_BELOW: usize = 32;

/// The tokens still in play: every legal token of the row until the first filter, then `tokens`.
#[derive(Debug, Clone)]
pub(crate) struct Candidates {
    tokens: Tokens,
    narrowed: bool,
    work: Vec<Key>,
    bins: Box<[u64; LAST_BIN + 1]>,
}

impl Default for Candidates {
    fn default() -> Self {
        Self {
            tokens: Tokens::default(),
            narrowed: false,
            work: Vec::new(),
            bins: Box::new([0; LAST_BIN + 1]),
        }
    }
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
        if k == 0 || k >= self.tokens.len() {
            return;
        }
        self.work.clear();
        self.work.extend(self.tokens.keys());
        let (_, &mut last, _) = self.work.select_nth_unstable(k - 1);
        self.tokens.retain(|key| key <= last);
    }

    /// Keeps those at least `ratio` times as likely as the likeliest.
    pub(crate) fn keep_min_p(&mut self, row: &Row, scale: Scale, ratio: f32) {
        if !self.narrowed {
            self.narrow(row, scale.floor_of(ratio));
        }
        self.tokens.retain(|key| scale.ratio(key.logit()) >= ratio);
    }

    /// Keeps the first whose probabilities reach `share` of the whole, the crossing one included.
    pub(crate) fn keep_top_p(&mut self, row: &Row, scale: Scale, share: f32) {
        let needed_of = |total: u64| ((total as f64 * f64::from(share)).ceil() as u64).max(1);
        let weight = |key: Key| scale.weight(key.logit());
        self.work.clear();
        let needed;
        if self.narrowed {
            needed = needed_of(self.tokens.total_weight(scale));
            self.work.extend(self.tokens.keys());
        } else {
            // Bins by distance from the best token follow the order, so the crossing token is in
            // the crossing bin, and only that bin's tokens have to be put in order.
            row.weigh_by_bin(scale, &mut self.bins);
            let mut left = needed_of(self.bins.iter().sum());
            let crossing = self.bins.iter().position(|&weight| {
                let reached = weight >= left;
                if !reached {
                    left -= weight;
                }
                reached
            });
            needed = left;
            let crossing = crossing.unwrap_or(LAST_BIN);
            self.narrow(row, scale.floor_of_bin(crossing));
            let keys = self.tokens.keys();
            self.work
                .extend(keys.filter(|key| scale.bin(key.logit()) == crossing));
        }
        if let Some(last) = first_reaching(&mut self.work, needed, weight) {
            self.tokens.retain(|key| key <= last);
        }
    }

    /// The sum of the candidates' weights.
    pub(crate) fn total_weight(&mut self, row: &mut Row, scale: Scale) -> u64 {
        if self.narrowed {
            self.tokens.total_weight(scale)
        } else {
            row.total_weight(scale)
        }
    }

    /// The token that owns place `at` of the candidates' weights laid end to end in order of ids.
    /// The weights are those of the last [`total_weight`](Self::total_weight).
    pub(crate) fn token_at(&self, row: &Row, at: u64, scale: Scale) -> Option<u32> {
        if self.narrowed {
            self.tokens.token_at(at, scale)
        } else {
            row.token_at(at, scale)
        }
    }

    /// The candidates in descending order; all of them must come from a filter.
    pub(crate) fn sorted(&mut self) -> &[Key] {
        self.work.clear();
        self.work.extend(self.tokens.keys());
        self.work.sort_unstable();
        &self.work
    }

    fn narrow(&mut self, row: &Row, floor: f32) {
        row.collect(floor, &mut self.tokens);
        self.narrowed = true;
    }
}

/// The first key, in order, at which the weights before it and its own reach `needed`. Takes linear
/// time: each round halves the range and weighs one half.
fn first_reaching(keys: &mut [Key], needed: u64, weight: impl Fn(Key) -> u64) -> Option<Key> {
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
