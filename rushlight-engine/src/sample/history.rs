//! How often each token has been seen, kept up to date one token at a time.

use std::collections::VecDeque;

/// Counts of the tokens in a sequence's history, or in its last `context` tokens.
///
/// Adding a token is O(1) and reading is O(distinct tokens), however long the history. Ids outside
/// the vocabulary are not counted, but take their place in the context.
#[derive(Debug, Clone)]
pub struct TokenCounts {
    /// For each id, one more than its place in `distinct`, or 0.
    places: Vec<u32>,
    distinct: Vec<(u32, u32)>,
    /// The last tokens, oldest first; unused while the whole history counts.
    recent: VecDeque<u32>,
    context: Option<usize>,
}

impl TokenCounts {
    /// No history yet. `vocab` ids are counted, over the last `context` tokens or, for `None`, over
    /// all of them.
    pub fn new(vocab: usize, context: Option<usize>) -> Self {
        Self {
            places: vec![0; vocab],
            distinct: Vec::new(),
            recent: VecDeque::new(),
            context,
        }
    }

    /// Appends `token` to the history.
    pub fn push(&mut self, token: u32) {
        if let Some(context) = self.context {
            self.recent.push_back(token);
            if self.recent.len() > context
                && let Some(oldest) = self.recent.pop_front()
            {
                self.add(token);
                self.remove(oldest);
                return;
            }
        }
        self.add(token);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for (token, _) in self.distinct.drain(..) {
            if let Some(place) = self.places.get_mut(token as usize) {
                *place = 0;
            }
        }
        self.recent.clear();
    }

    /// How often `token` is in the history.
    pub fn count(&self, token: u32) -> u32 {
        self.place(token).map_or(0, |place| self.distinct[place].1)
    }

    /// The tokens in the history and how often each is there, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.distinct.iter().copied()
    }

    fn place(&self, token: u32) -> Option<usize> {
        let place = *self.places.get(token as usize)?;
        (place as usize).checked_sub(1)
    }

    fn add(&mut self, token: u32) {
        if let Some(place) = self.place(token) {
            let count = &mut self.distinct[place].1;
            *count = count.saturating_add(1);
        } else if let Some(place) = self.places.get_mut(token as usize) {
            self.distinct.push((token, 1));
            // There are at most as many distinct tokens as ids, and an id is 32 bits.
            *place = self.distinct.len() as u32;
        }
    }

    fn remove(&mut self, token: u32) {
        let Some(place) = self.place(token) else {
            return;
        };
        let count = &mut self.distinct[place].1;
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.distinct.swap_remove(place);
        if let Some(&(moved, _)) = self.distinct.get(place) {
            self.places[moved as usize] = place as u32 + 1;
        }
        self.places[token as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_equal_a_recount(
            tokens in prop::collection::vec(0u32..12, 0..60),
            context in prop::option::of(1usize..8),
        ) {
            let mut counts = TokenCounts::new(10, context);
            for (end, &token) in tokens.iter().enumerate() {
                counts.push(token);
                let seen = &tokens[..=end];
                let seen = &seen[seen.len().saturating_sub(context.unwrap_or(usize::MAX))..];
                for id in 0..12 {
                    let expected = seen.iter().filter(|&&t| t == id && id < 10).count();
                    prop_assert_eq!(counts.count(id) as usize, expected);
                }
                let total: u32 = counts.iter().map(|(_, n)| n).sum();
                prop_assert_eq!(total as usize, seen.iter().filter(|&&t| t < 10).count());
            }
            counts.clear();
            prop_assert_eq!(counts.iter().count(), 0);
            prop_assert!((0..12).all(|id| counts.count(id) == 0));
        }
    }
}
