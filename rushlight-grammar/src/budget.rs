//! The token budget: the answer closes within it, or the request is refused before it begins.
//!
//! The reserve is the tokens of the shortest answer. A generation passes three zones:
//!
//! | zone | from | what holds |
//! |---|---|---|
//! | free | the start | the way to the end is looked at now and then: the more room it left the last time, the later |
//! | soft | max(3 × reserve, a quarter of the budget) tokens left, or where a way took more than half of what was left, or all but a few tokens of it | it is looked at after every token, but where the last looks found none |
//! | hard | 8 × reserve tokens left, never before the soft zone | and a token must not lose a known way |
//!
//! A token after which the way does not fit is refused, and one that is on a way taken instead. Where a long way takes all that
//! is left, only tokens on it are legal. So an answer that fits with room to spare is said as the model would say it, and one
//! that runs on is brought to its end. That holds where a way is known. Looking in vain is what takes longest, so after a look that found none
//! the next is some tokens later: ever more of them up to the hard zone, and a few within it, the first few times.

/// Times the reserve, where the soft zone starts at the latest.
pub const SOFT_RESERVES: usize = 3;
/// Part of the budget, where the soft zone starts at the latest.
pub const SOFT_PART: usize = 4;
/// Times the reserve, where the hard zone starts.
pub const HARD_RESERVES: usize = 8;
/// The reserve of a grammar whose shortest answer is not known, in tokens.
pub const DEFAULT_RESERVE: usize = 64;
/// Tokens between two looks at the way to the end in the free zone: at most, and which part of the room that the earlier one
/// found passes before the next, as the way may grow meanwhile. Where that would be fewer than the least, the soft zone begins.
const CHECKPOINT_MOST: usize = 128;
const CHECKPOINT_PART: usize = 4;
const CHECKPOINT_LEAST: usize = 8;
/// Tokens of a way that is followed without trying others first, where it takes all that is left: to try and to look again at
/// each token of a long one would take long.
const LONG_WAY: usize = 16;
/// Tokens between two looks that find none, at most; and in the hard zone, for so many of them.
const PATIENCE: usize = 32;
const HARD_PATIENCE: usize = 4;
const VAIN_LOOKS: usize = 8;

/// Which zone a position is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Far from the end.
    Free,
    /// Every token must leave a way to the end, where one is known.
    Soft,
    /// As in the soft zone, and a known way must not be lost.
    Hard,
}

/// A text that ends the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) text: Vec<u8>,
    /// The tokens that it takes.
    pub(crate) tokens: usize,
    /// It was found at an earlier position, so there may be a shorter one.
    pub(crate) is_old: bool,
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
    // The position of the next look in the free zone.
    checkpoint: usize,
    // The way to the end from the current position, where known.
    way: Option<Way>,
    // The newest position from which a way was known that was left since, and that way.
    earlier: Option<(usize, Way)>,
    // Where a token was undone that left the way: the next one keeps to it.
    strict_at: Option<usize>,
    // No look before this position; and the tokens to wait after the next failure.
    lost_until: usize,
    patience: usize,
    // Looks in vain in the hard zone, since one that was not.
    vain: usize,
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
            checkpoint: from.saturating_add(pause(tokens.saturating_sub(reserve))),
            way: None,
            earlier: None,
            strict_at: None,
            lost_until: 0,
            patience: 1,
            vain: 0,
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
        position >= self.checkpoint
    }

    /// Whether there are ways to the end with which only their tokens are legal at `position`.
    pub(crate) fn may_be_strict(&self, position: usize) -> bool {
        self.strict_at == Some(position) || self.zone(position) != Zone::Free
    }

    /// Whether only tokens on the way to the end, which has `needed` tokens, are legal at `position`.
    pub(crate) fn is_strict(&self, position: usize, needed: usize) -> bool {
        let left = self.left(position);
        // Where the next position is not looked at, no other token is known to keep a way.
        let blind = self.zone(position) == Zone::Hard && !self.looks(position.saturating_add(1));
        let full = needed >= left && needed > LONG_WAY;
        self.strict_at == Some(position) || self.zone(position) != Zone::Free && (blind || full)
    }

    /// Only tokens on the way to the end are legal at `position`: another one was undone.
    pub(crate) fn keep_to_the_way(&mut self, position: usize) {
        self.strict_at = Some(position);
    }

    /// The token before `position`, where `way` led to the end, does not end in time, and is undone.
    pub(crate) fn regret(&mut self, way: Way, position: usize) {
        self.earlier = Some((position.saturating_sub(1), way));
        self.way = None;
    }

    /// Notes that the way to the end from `position` has `needed` tokens.
    pub(crate) fn seen(&mut self, position: usize, needed: usize) {
        let room = self.left(position).saturating_sub(needed);
        let is_near = needed > room || room < CHECKPOINT_LEAST * CHECKPOINT_PART;
        if is_near && self.soft_from.is_none() {
            self.soft_from = Some(position);
        }
        self.checkpoint = position.saturating_add(pause(room));
    }

    /// The way to the end from here, where it is known.
    pub(crate) fn way(&self) -> Option<&Way> {
        self.way.as_ref()
    }

    /// The way to the end from an earlier position, which may be one from here.
    pub(crate) fn earlier(&self) -> Option<&Way> {
        self.earlier.as_ref().map(|(_, way)| way)
    }

    /// Whether the token before `position` left the way to the end that was known before it.
    pub(crate) fn has_left_the_way(&self, position: usize) -> bool {
        self.earlier
            .as_ref()
            .is_some_and(|&(from, _)| from + 1 == position)
    }

    /// Sets the way to the end from here.
    pub(crate) fn set_way(&mut self, way: Way) {
        self.patience = 1;
        self.vain = 0;
        self.lost_until = 0;
        self.earlier = None;
        self.way = Some(way);
    }

    /// Whether a look for the way to the end is worth its time at `position`.
    pub(crate) fn looks(&self, position: usize) -> bool {
        position >= self.lost_until
    }

    /// No way was found at `position`: the next look is later, and ever later, as looking in vain is what takes longest.
    pub(crate) fn lose_way(&mut self, position: usize) {
        let hard = self.end.saturating_sub(self.hard);
        let next = position.saturating_add(self.patience);
        self.lost_until = if position < hard {
            next.min(hard)
        } else if self.vain < VAIN_LOOKS {
            self.vain += 1;
            next.min(position.saturating_add(HARD_PATIENCE))
        } else {
            next
        };
        self.patience = self.patience.saturating_mul(2).min(PATIENCE);
    }

    /// A token of `bytes` was taken at `position`: the known way is shorter by it, or no longer known. `count` counts tokens.
    pub(crate) fn advance(
        &mut self,
        position: usize,
        bytes: &[u8],
        count: impl FnOnce(&[u8]) -> usize,
    ) {
        let Some(mut way) = self.way.take() else {
            return;
        };
        match way.text.strip_prefix(bytes).map(<[u8]>::to_vec) {
            Some(rest) if !bytes.is_empty() => {
                way.tokens = count(&rest);
                way.text = rest;
                self.way = Some(way);
            }
            _ => self.earlier = Some((position, way)),
        }
    }

    /// Tokens were undone, all but `kept`.
    pub(crate) fn rewind(&mut self, kept: usize) {
        let earlier = self.earlier.take().filter(|&(from, _)| from == kept);
        self.way = earlier.map(|(_, way)| way);
        self.checkpoint = self.checkpoint.min(kept.saturating_add(CHECKPOINT_LEAST));
        // A token that lost a way makes room for one on it: looks in vain stay rare.
        self.lost_until = self.lost_until.min(kept.saturating_add(HARD_PATIENCE));
        self.strict_at = self.strict_at.filter(|&at| at <= kept);
        self.soft_from = self.soft_from.filter(|&from| from <= kept);
    }
}

/// Tokens until the next look in the free zone, after one that found `room` tokens to spare.
fn pause(room: usize) -> usize {
    (room / CHECKPOINT_PART).clamp(CHECKPOINT_LEAST, CHECKPOINT_MOST)
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
        assert!((VAIN_LOOKS..VAIN_LOOKS + 6).contains(&hard), "{hard}");
        budget.rewind(500);
        assert!(budget.looks(500 + HARD_PATIENCE));
    }

    #[test]
    fn the_known_way_shrinks_along_itself_and_is_remembered_beside() {
        let way = |text: &str| Way {
            text: text.into(),
            tokens: text.len(),
            is_old: false,
        };
        let mut budget = Budget::new(0, 100, 1);
        budget.set_way(way("\"}"));
        budget.advance(7, b"\"", <[u8]>::len);
        assert_eq!(budget.way(), Some(&way("}")));
        budget.advance(8, b",", <[u8]>::len);
        assert_eq!(budget.way(), None);
        assert_eq!(budget.earlier(), Some(&way("}")));
        assert!(budget.has_left_the_way(9) && !budget.has_left_the_way(10));
        // The text is what it was.
        budget.rewind(8);
        assert_eq!(budget.way(), Some(&way("}")));
        budget.advance(8, b",", <[u8]>::len);
        budget.rewind(3);
        assert_eq!((budget.way(), budget.earlier()), (None, None));
    }

    #[test]
    fn tokens_beside_the_way_are_legal_while_there_is_room() {
        let mut budget = Budget::new(0, 30, 11);
        assert_eq!(budget.zone(0), Zone::Hard);
        assert!(!budget.is_strict(0, 29));
        assert!(budget.is_strict(0, 30));
        assert!(!budget.is_strict(19, 11));
        budget.keep_to_the_way(6);
        assert!(budget.is_strict(6, 1) && !budget.is_strict(7, 1));
        // What stands there after a rewind may be another text.
        budget.rewind(5);
        assert!(!budget.is_strict(6, 1));
        // Where the next look is later, the way is kept.
        budget.lose_way(8);
        budget.lose_way(9);
        assert!(budget.is_strict(9, 1) && !budget.is_strict(10, 1));
        // In the free zone, nothing is.
        assert!(!Budget::new(0, 400, 1).may_be_strict(0));
    }

    #[test]
    fn looks_in_the_free_zone_are_rare_while_there_is_room() {
        let mut budget = Budget::new(0, 2000, 1);
        let mut looks = Vec::new();
        for position in 1..2000 {
            if budget.zone(position) == Zone::Free && budget.is_checkpoint(position) {
                looks.push(position);
                budget.seen(position, 8);
            }
        }
        assert_eq!(looks.get(..3), Some([128, 256, 384].as_slice()));
        assert_eq!(looks.last(), Some(&1408));
    }

    #[test]
    fn no_room_is_lost_between_two_looks_while_the_way_does_not_grow() {
        for (tokens, needed) in [(80, 24), (40, 12), (300, 149), (4096, 2000)] {
            let mut budget = Budget::new(0, tokens, 2);
            for position in 1..tokens {
                if budget.zone(position) == Zone::Free && !budget.is_checkpoint(position) {
                    continue;
                }
                assert!(
                    needed <= budget.left(position),
                    "{tokens} {needed} {position}"
                );
                budget.seen(position, needed);
                if budget.zone(position) != Zone::Free {
                    break;
                }
            }
        }
    }
}
