//! The token budget: the answer closes within it, or the request is refused before it begins.
//!
//! The reserve is the tokens of the shortest answer. A generation passes three zones:
//!
//! | zone | from | what holds |
//! |---|---|---|
//! | free | the start | nothing is looked at, but every 32nd token that a way to the end still fits |
//! | soft | max(3 × reserve, a quarter of the budget) tokens left | a token after which no way to the end fits is refused, and another drawn |
//! | hard | 8 × reserve tokens left, never before the soft zone | only tokens on the way to the end are legal |
//!
//! That holds where a way is known. Looking in vain is what takes longest, so after a look that found none the next is some
//! tokens later: ever more of them up to the hard zone, and a few within it.

/// Times the reserve, where the soft zone starts at the latest.
pub const SOFT_RESERVES: usize = 3;
/// Part of the budget, where the soft zone starts at the latest.
pub const SOFT_PART: usize = 4;
/// Times the reserve, where the hard zone starts.
pub const HARD_RESERVES: usize = 8;
/// The reserve of a grammar whose shortest answer is not known, in tokens.
pub const DEFAULT_RESERVE: usize = 64;
/// Tokens between two looks at the way to the end in the free zone.
const CHECKPOINT: usize = 32;
/// Tokens between two looks that find none, at most: in the hard zone.
const HARD_PATIENCE: usize = 4;

/// Which zone a position is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Far from the end.
    Free,
    /// Every token must leave a way to the end, where one is known.
    Soft,
    /// Every token must be on the way to the end, where one is known.
    Hard,
}

/// One sequence's budget.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    // Position (in accepted tokens) at which the budget is spent.
    end: usize,
    soft: usize,
    hard: usize,
    // Set once a checkpoint found the way to the end to be long.
    soft_from: Option<usize>,
    // The way to the end from the current position, where known.
    way: Option<Vec<u8>>,
    // No look before this position; and the tokens to wait after the next failure.
    lost_until: usize,
    patience: usize,
}

impl Budget {
    /// A budget of `tokens` tokens from position `from` on, for a grammar whose shortest answer has `reserve` tokens.
    pub(crate) fn new(from: usize, tokens: usize, reserve: usize) -> Self {
        let (soft, hard) = zones(tokens, reserve);
        Self {
            end: from.saturating_add(tokens),
            soft,
            hard,
            soft_from: None,
            way: None,
            lost_until: 0,
            patience: 1,
        }
    }

    /// Tokens left at `position`.
    pub(crate) fn left(&self, position: usize) -> usize {
        self.end.saturating_sub(position)
    }

    /// The zone of `position`.
    pub(crate) fn zone(&self, position: usize) -> Zone {
        let left = self.left(position);
        if left <= self.hard {
            Zone::Hard
        } else if left <= self.soft || self.soft_from.is_some_and(|from| position >= from) {
            Zone::Soft
        } else {
            Zone::Free
        }
    }

    /// Whether the way to the end is looked at here although the zone does not ask for it.
    pub(crate) fn is_checkpoint(&self, position: usize) -> bool {
        self.left(position).is_multiple_of(CHECKPOINT)
    }

    /// Notes that the way to the end from `position` has `needed` tokens.
    pub(crate) fn seen(&mut self, position: usize, needed: usize) {
        if needed.saturating_mul(2) > self.left(position) && self.soft_from.is_none() {
            self.soft_from = Some(position);
        }
    }

    /// The way to the end from here, where it is known.
    pub(crate) fn way(&self) -> Option<&[u8]> {
        self.way.as_deref()
    }

    /// Sets the way to the end from here.
    pub(crate) fn set_way(&mut self, way: Vec<u8>) {
        self.patience = 1;
        self.way = Some(way);
    }

    /// Whether a look for the way to the end is worth its time at `position`.
    pub(crate) fn looks(&self, position: usize) -> bool {
        position >= self.lost_until
    }

    /// No way was found at `position`: the next look is later, and ever later, as looking in vain is what takes longest.
    pub(crate) fn lose_way(&mut self, position: usize) {
        let next = position.saturating_add(self.patience);
        let hard = self.end.saturating_sub(self.hard);
        if position < hard {
            self.lost_until = next.min(hard);
            self.patience = self.patience.saturating_mul(2).min(CHECKPOINT);
        } else {
            self.lost_until = next.min(position.saturating_add(HARD_PATIENCE));
        }
    }

    /// A token of `bytes` was taken: the known way is shorter by it, or no longer known.
    pub(crate) fn advance(&mut self, bytes: &[u8]) {
        self.way = self
            .way
            .take()
            .and_then(|way| way.strip_prefix(bytes).map(<[u8]>::to_vec))
            .filter(|_| !bytes.is_empty());
    }

    /// Tokens were undone.
    pub(crate) fn rewind(&mut self) {
        self.way = None;
        self.lost_until = 0;
    }
}

/// Tokens left where the soft and the hard zone of a budget start.
pub(crate) fn zones(tokens: usize, reserve: usize) -> (usize, usize) {
    let soft = reserve
        .saturating_mul(SOFT_RESERVES)
        .max(tokens / SOFT_PART);
    let hard = reserve.saturating_mul(HARD_RESERVES).min(soft);
    (soft, hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_follow_the_reserve_and_the_budget() {
        // (budget, reserve) -> (soft, hard)
        for (given, expected) in [
            ((4096, 2), (1024, 16)),
            ((256, 11), (64, 64)),
            ((100, 50), (150, 150)),
            ((1000, 20), (250, 160)),
        ] {
            assert_eq!(zones(given.0, given.1), expected, "{given:?}");
        }
        let budget = Budget::new(10, 100, 2);
        assert_eq!(budget.zone(10), Zone::Free);
        assert_eq!(budget.zone(84), Zone::Free);
        assert_eq!(budget.zone(85), Zone::Soft);
        assert_eq!(budget.zone(94), Zone::Hard);
        assert_eq!(budget.left(110), 0);
        assert_eq!(budget.left(500), 0);
    }

    #[test]
    fn a_long_way_to_the_end_starts_the_soft_zone_early() {
        let mut budget = Budget::new(0, 100, 1);
        budget.seen(4, 48);
        assert_eq!(budget.zone(4), Zone::Free);
        budget.seen(36, 40);
        assert_eq!(budget.zone(36), Zone::Soft);
        assert_eq!(budget.zone(35), Zone::Free);
    }

    #[test]
    fn looks_in_vain_grow_rare_but_not_in_the_hard_zone() {
        let mut budget = Budget::new(0, 1000, 20);
        let mut looks = Vec::new();
        for position in 0..1000 {
            if budget.looks(position) {
                budget.lose_way(position);
                looks.push(position);
            }
        }
        let gaps: Vec<usize> = looks.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(gaps.get(..6), Some([1, 2, 4, 8, 16, 32].as_slice()));
        assert!(looks.contains(&840), "the hard zone begins with a look");
        let hard = looks.iter().filter(|&&position| position >= 840).count();
        assert_eq!(hard, 160 / HARD_PATIENCE);
        budget.rewind();
        assert!(budget.looks(500));
    }

    #[test]
    fn the_known_way_shrinks_along_itself_and_is_forgotten_beside() {
        let mut budget = Budget::new(0, 100, 1);
        budget.set_way(b"\"}".to_vec());
        budget.advance(b"\"");
        assert_eq!(budget.way(), Some(b"}".as_slice()));
        budget.advance(b",");
        assert_eq!(budget.way(), None);
    }
}
