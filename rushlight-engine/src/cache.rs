//! Prefix reuse: how much of a sequence's history a prompt may keep.

/// What a prompt shares with a sequence's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Tokens that prompt and history begin with alike.
    pub matched: usize,
    /// Tokens whose states were kept: at most `matched`, at most one less than the prompt (its last
    /// token gives the first logits), and less where the states had to land lower.
    pub cached: usize,
    /// The first position at which prompt and history differ; `None` where one begins the other.
    pub diverged_at: Option<usize>,
}

impl Reuse {
    /// Compares a prompt with the history, of which states hold the first `held` tokens. `cached` is
    /// where to rewind to; the states say where they land.
    pub fn plan(history: &[u32], held: usize, prompt: &[u32]) -> Reuse {
        let matched = history
            .iter()
            .zip(prompt)
            .take_while(|(a, b)| a == b)
            .count();
        Reuse {
            matched,
            cached: matched.min(held).min(prompt.len().saturating_sub(1)),
            diverged_at: (matched < history.len().min(prompt.len())).then_some(matched),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eng_8_prefix_and_new_tokens() {
        let rows: &[(&[u32], &[u32], usize)] = &[
            (&[1, 2, 3], &[1, 2, 3, 4, 5], 3),
            (&[1, 2, 3], &[1, 2, 3], 3),
            (&[1, 2, 3], &[99, 98, 97], 0),
            (&[1, 2, 3], &[], 0),
            (&[1, 2, 3, 4, 5], &[1, 2, 99, 100], 2),
            (&[1, 2, 3, 4, 5], &[1, 2, 3], 3),
        ];
        for (history, prompt, matched) in rows {
            let reuse = Reuse::plan(history, history.len(), prompt);
            assert_eq!(reuse.matched, *matched, "{history:?} {prompt:?}");
            assert_eq!(reuse.cached, (*matched).min(prompt.len().saturating_sub(1)));
        }
    }

    #[test]
    fn a_miss_says_where_it_diverged() {
        let at = |history: &[u32], prompt: &[u32]| {
            Reuse::plan(history, history.len(), prompt).diverged_at
        };
        assert_eq!(at(&[1, 2, 3], &[1, 9, 3]), Some(1));
        assert_eq!(at(&[1, 2, 3], &[1, 2, 3, 4]), None);
        assert_eq!(at(&[1, 2, 3], &[1, 2]), None);
        assert_eq!(at(&[], &[1]), None);
    }

    #[test]
    fn tokens_without_states_are_matched_but_not_cached() {
        let reuse = Reuse::plan(&[1, 2, 3], 2, &[1, 2, 3, 4]);
        assert_eq!((reuse.matched, reuse.cached), (3, 2));
    }
}
