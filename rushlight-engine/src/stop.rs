//! Where generation stops: ids, sequences of ids, and strings in the text.
//!
//! [`StopTokens`] looks at the last ids of a sequence; [`StopMatcher`] stands in the stream of
//! text, lets through what is safely before a stop string and holds back no more than it must.

use std::collections::VecDeque;

use crate::error::{EngineError, Result};

/// Ids, and sequences of ids, after which generation stops.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopTokens {
    /// Sorted, each once.
    ids: Vec<u32>,
    sequences: Vec<Vec<u32>>,
}

impl StopTokens {
    /// Stops after any of `ids` and after any of `sequences` as a whole.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) for an empty sequence, which would match
    /// before the first token.
    pub fn new(
        ids: impl IntoIterator<Item = u32>,
        sequences: impl IntoIterator<Item = Vec<u32>>,
    ) -> Result<Self> {
        let mut stops = Self {
            ids: ids.into_iter().collect(),
            sequences: Vec::new(),
        };
        for sequence in sequences {
            match sequence.as_slice() {
                [] => {
                    return Err(EngineError::invalid_option(
                        "stop token sequence",
                        "empty",
                        "at least one token long",
                    ));
                }
                [id] => stops.ids.push(*id),
                _ => stops.sequences.push(sequence),
            }
        }
        stops.ids.sort_unstable();
        stops.ids.dedup();
        Ok(stops)
    }

    /// Whether `id` alone stops.
    pub fn contains(&self, id: u32) -> bool {
        self.ids.binary_search(&id).is_ok()
    }

    /// The ids that stop alone, ascending.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The length of the longest sequence: how much of the history
    /// [`matched_len`](Self::matched_len) looks at. 0 where nothing stops.
    pub fn max_len(&self) -> usize {
        let longest = self.sequences.iter().map(Vec::len).max();
        longest.unwrap_or(usize::from(!self.ids.is_empty()))
    }

    /// How many of the last tokens of `history` are a whole stop sequence, the longest that fits;
    /// `None` where none is.
    pub fn matched_len(&self, history: &[u32]) -> Option<usize> {
        let sequences = self.sequences.iter();
        let longest = sequences.filter(|sequence| history.ends_with(sequence));
        longest.map(Vec::len).max().or_else(|| {
            let &last = history.last()?;
            self.contains(last).then_some(1)
        })
    }
}

/// What became of a piece of text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopPush {
    /// Text that is now known to be before any stop string.
    pub emit: String,
    /// The stop string that this piece completed. Everything from its first character on, here and
    /// in later pieces, is discarded.
    pub matched: Option<String>,
}

/// Finds the first stop string in a text that arrives in pieces.
///
/// The first stop string *to be completed* wins, and of those completed by the same character the
/// longest: that is the moment at which a loop that looks at the whole text after every character
/// would stop, so the result does not depend on how the text is cut. With stops `ab` and `abc`, or
/// `abc` and `b`, the text `abc` stops at its `b`.
///
/// Held back is the longest end of the text that begins a stop string, and no more. Each byte costs
/// amortised constant time, whatever the number of stop strings (Aho and Corasick, 1975).
///
/// ```
/// # use rushlight_engine::stop::StopMatcher;
/// let mut stop = StopMatcher::new(["<end>"])?;
/// assert_eq!(stop.push("so it <e").emit, "so it ");
/// assert_eq!(stop.push("lse>").emit, "<else>");
/// assert_eq!(stop.push("bye<end>!").matched.as_deref(), Some("<end>"));
/// # Ok::<(), rushlight_engine::EngineError>(())
/// ```
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<String>,
    nodes: Vec<Node>,
    /// The node of the longest end of the text that begins a stop string.
    at: usize,
    /// That end of the text.
    held: String,
    matched: Option<usize>,
}

/// A beginning of one or more stop strings.
#[derive(Debug, Clone, Default)]
struct Node {
    next: Vec<(u8, usize)>,
    /// The longest proper end of this beginning that is itself a beginning.
    fallback: usize,
    /// Length in bytes.
    depth: usize,
    /// The longest stop string that ends here.
    stop: Option<usize>,
}

const ROOT: usize = 0;

impl StopMatcher {
    /// A matcher at the start of a text. With no stop strings all text passes.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption) for an empty stop string, which would
    /// match before the first character.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let mut matcher = Self {
            stops: Vec::new(),
            nodes: vec![Node::default()],
            at: ROOT,
            held: String::new(),
            matched: None,
        };
        for stop in stops {
            let stop = stop.into();
            if stop.is_empty() {
                return Err(EngineError::invalid_option(
                    "stop",
                    "an empty string",
                    "at least one character long",
                ));
            }
            matcher.insert(stop);
        }
        matcher.link();
        Ok(matcher)
    }

    /// Takes the next piece of text. After a match it takes nothing more: both fields are empty.
    pub fn push(&mut self, piece: &str) -> StopPush {
        if self.matched.is_some() {
            return StopPush::default();
        }
        let mut text = std::mem::take(&mut self.held);
        for (index, byte) in piece.bytes().enumerate() {
            self.at = self.step(self.at, byte);
            if let Some(stop) = self.nodes[self.at].stop {
                self.matched = Some(stop);
                let stop = self.stops[stop].clone();
                let end = text.len() + index + 1;
                text.push_str(piece);
                text.truncate(end - stop.len());
                return StopPush {
                    emit: text,
                    matched: Some(stop),
                };
            }
        }
        text.push_str(piece);
        // A stop string begins with a whole character, so this is a boundary of characters.
        self.held = text.split_off(text.len() - self.nodes[self.at].depth);
        StopPush {
            emit: text,
            matched: None,
        }
    }

    /// Ends the text: returns what was held back, since no stop string can follow it. Empty after a
    /// match.
    pub fn finish(&mut self) -> String {
        self.at = ROOT;
        std::mem::take(&mut self.held)
    }

    /// The stop string that was found.
    pub fn matched(&self) -> Option<&str> {
        self.matched.map(|stop| self.stops[stop].as_str())
    }

    /// The text that is held back: the beginning of a stop string, or nothing.
    pub fn held(&self) -> &str {
        &self.held
    }

    fn insert(&mut self, stop: String) {
        let mut at = ROOT;
        for (index, byte) in stop.bytes().enumerate() {
            at = match self.child(at, byte) {
                Some(node) => node,
                None => {
                    let node = self.nodes.len();
                    self.nodes.push(Node {
                        depth: index + 1,
                        ..Node::default()
                    });
                    self.nodes[at].next.push((byte, node));
                    node
                }
            };
        }
        self.nodes[at].stop = Some(self.stops.len());
        self.stops.push(stop);
    }

    /// Sets every fallback, shorter beginnings first.
    fn link(&mut self) {
        let mut queue = VecDeque::from([ROOT]);
        while let Some(at) = queue.pop_front() {
            for (byte, node) in self.nodes[at].next.clone() {
                if at != ROOT {
                    let fallback = self.step(self.nodes[at].fallback, byte);
                    self.nodes[node].fallback = fallback;
                    let shorter = self.nodes[fallback].stop;
                    let own = &mut self.nodes[node].stop;
                    *own = own.or(shorter);
                }
                queue.push_back(node);
            }
        }
    }

    fn step(&self, mut at: usize, byte: u8) -> usize {
        loop {
            match self.child(at, byte) {
                Some(node) => return node,
                None if at == ROOT => return ROOT,
                None => at = self.nodes[at].fallback,
            }
        }
    }

    fn child(&self, at: usize, byte: u8) -> Option<usize> {
        let mut next = self.nodes[at].next.iter();
        next.find(|(label, _)| *label == byte)
            .map(|&(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stp_1_a_sequence_matches_as_a_whole_suffix() {
        let stops = StopTokens::new([], [vec![1], vec![2, 3], (4..=8).collect()]).unwrap();
        assert_eq!(stops.max_len(), 5);
        assert_eq!(stops.matched_len(&[9, 1]), Some(1));
        assert_eq!(stops.matched_len(&[9, 2, 3]), Some(2));
        assert_eq!(stops.matched_len(&[4, 5, 6, 7]), None);
        let stops = StopTokens::new([], [vec![100, 200, 300]]).unwrap();
        assert_eq!(stops.matched_len(&[50, 100, 200, 300]), Some(3));
        assert_eq!(stops.matched_len(&[100, 200]), None);
        assert_eq!(stops.matched_len(&[200, 300]), None);
        assert_eq!(stops.matched_len(&[]), None);
    }

    #[test]
    fn stop_ids_are_a_set_and_an_empty_sequence_is_an_error() {
        let stops = StopTokens::new([7, 2, 7], [vec![5, 2]]).unwrap();
        assert_eq!(stops.ids(), [2, 7]);
        assert!(stops.contains(7) && !stops.contains(5));
        assert_eq!(stops.matched_len(&[5, 2]), Some(2), "the longest that fits");
        assert_eq!(StopTokens::default().max_len(), 0);
        assert!(StopTokens::new([], [vec![]]).is_err());
    }

    #[test]
    fn stp_2_a_stop_string_across_pieces() {
        let mut stop = StopMatcher::new(["<stop>"]).unwrap();
        let mut consumed = 0;
        let mut emitted = Vec::new();
        for piece in ["hel", "lo<", "stop", ">hidden", "tail"] {
            if stop.matched().is_none() {
                consumed += 1;
            }
            emitted.push(stop.push(piece).emit);
        }
        assert_eq!(emitted, ["hel", "lo", "", "", ""]);
        assert_eq!(stop.matched(), Some("<stop>"));
        assert_eq!(consumed, 4);
        assert_eq!(stop.finish(), "");
    }

    #[test]
    fn stp_5_only_a_beginning_of_a_stop_string_is_held_back() {
        for (piece, safe) in [
            ("hello<", 5),
            ("some text<thi", 9),
            ("<thin", 0),
            (">", 1),
            ("!", 1),
        ] {
            let mut stop = StopMatcher::new(["<think>"]).unwrap();
            let pushed = stop.push(piece);
            assert_eq!(pushed.emit.len(), safe, "{piece}");
            assert_eq!(stop.finish(), piece[safe..]);
        }
        let mut stop = StopMatcher::new(["X"]).unwrap();
        assert_eq!(stop.push("abc").emit, "abc");
        assert_eq!(stop.held(), "");
    }

    #[test]
    fn the_first_completed_stop_wins_and_then_the_longest() {
        let run = |stops: &[&str], text: &str| {
            let mut stop = StopMatcher::new(stops.iter().copied()).unwrap();
            let pushed = stop.push(text);
            (pushed.emit, pushed.matched)
        };
        let found = |emit: &str, stop: &str| (emit.to_owned(), Some(stop.to_owned()));
        assert_eq!(run(&["abc", "ab"], "xabc"), found("x", "ab"));
        assert_eq!(run(&["abc", "b"], "xabc"), found("xa", "b"));
        assert_eq!(run(&["bc", "abc", "c"], "xabc"), found("x", "abc"));
        assert_eq!(run(&["aab"], "aaab"), found("a", "aab"));
    }

    #[test]
    fn characters_are_never_split() {
        // The three share their first bytes: 東 E6 9D B1, 来 E6 9D A5, 松 E6 9D BE.
        let mut stop = StopMatcher::new(["東京", "来"]).unwrap();
        assert_eq!(stop.push("a東").emit, "a");
        assert_eq!(stop.push("東松").emit, "東東松");
        assert_eq!(stop.push("🦀来る").matched.as_deref(), Some("来"));
    }

    #[test]
    fn no_stops_pass_everything_and_an_empty_stop_is_an_error() {
        let mut none = StopMatcher::new(Vec::<String>::new()).unwrap();
        assert_eq!(none.push("all of it").emit, "all of it");
        let e = StopMatcher::new(["a", ""]).unwrap_err();
        assert!(e.to_string().starts_with("stop is an empty string"), "{e}");
    }

    #[test]
    fn a_long_text_of_near_misses_takes_linear_time() {
        let stop = "a".repeat(2000) + "b";
        let mut matcher = StopMatcher::new([stop]).unwrap();
        let piece = "a".repeat(1000);
        let mut out = 0;
        for _ in 0..2000 {
            out += matcher.push(&piece).emit.len();
        }
        assert_eq!(out + matcher.finish().len(), 2_000_000);
    }

    /// Looks at the whole text after every character.
    fn plain(stops: &[String], text: &str) -> (String, Option<String>) {
        for (at, c) in text.char_indices() {
            let seen = &text[..at + c.len_utf8()];
            let ended = stops.iter().filter(|stop| seen.ends_with(stop.as_str()));
            if let Some(stop) = ended.max_by_key(|stop| stop.len()) {
                return (
                    seen[..seen.len() - stop.len()].to_owned(),
                    Some(stop.clone()),
                );
            }
        }
        (text.to_owned(), None)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_cut_gives_what_the_whole_text_gives(
            stops in prop::collection::vec("[abé東]{1,4}", 0..4),
            pieces in prop::collection::vec("[abé東c]{0,5}", 0..12),
        ) {
            let text = pieces.concat();
            let (expected, matched) = plain(&stops, &text);
            let mut stop = StopMatcher::new(stops.clone()).unwrap();
            let mut emitted = String::new();
            let mut seen = String::new();
            for piece in &pieces {
                seen.push_str(piece);
                let pushed = stop.push(piece);
                emitted.push_str(&pushed.emit);
                prop_assert!(expected.starts_with(&emitted));
                if stop.matched().is_none() {
                    // Held back: exactly the longest end that begins a stop string.
                    let begins = |end: &str| stops.iter().any(|s| s.starts_with(end) && s != end);
                    let held = (0..=seen.len())
                        .filter(|&at| seen.is_char_boundary(at))
                        .map(|at| &seen[at..])
                        .find(|end| end.is_empty() || begins(end));
                    prop_assert_eq!(Some(stop.held()), held);
                }
            }
            prop_assert_eq!(stop.matched(), matched.as_deref());
            emitted.push_str(&stop.finish());
            prop_assert_eq!(emitted, expected);
        }
    }
}
