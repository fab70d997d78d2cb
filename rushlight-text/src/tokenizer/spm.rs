//! SentencePiece's BPE: the best-scored pair of neighbours merges first.
//!
//! The text starts as characters. A pair may merge if the two together spell a piece; among all pairs the one whose
//! piece scores highest merges first, the leftmost of equals. What is left and spells no piece becomes byte pieces.
//! A queue of candidate pairs, checked for staleness when taken, keeps this at O(n log n).

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use crate::error::{Result, TextError, TextErrorKind};

/// Pieces with scores. Control pieces are not in it, so no text can become one.
#[derive(Debug)]
pub(crate) struct SpmModel {
    pieces: HashMap<Box<str>, Piece>,
    /// The id of each byte's piece.
    bytes: Box<[Option<u32>; 256]>,
    unknown: Option<u32>,
    /// Bytes of the longest piece: a longer pair is not looked up.
    longest: usize,
}

/// What a spelling merges into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) id: u32,
    pub(crate) score: f32,
    /// An unused piece merges, but is taken apart again at the end.
    pub(crate) unused: bool,
}

impl SpmModel {
    pub(crate) fn new(
        pieces: HashMap<Box<str>, Piece>,
        bytes: Box<[Option<u32>; 256]>,
        unknown: Option<u32>,
    ) -> Self {
        let longest = pieces.keys().map(|piece| piece.len()).max().unwrap_or(0);
        Self {
            pieces,
            bytes,
            unknown,
            longest,
        }
    }

    /// Appends the ids of `text`, in which spaces are already `▁`.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut merging = Merging::new(self, text);
        merging.run();
        let Merging {
            symbols, halves, ..
        } = merging;
        for symbol in symbols.iter().filter(|s| !s.range.is_empty()) {
            match self.pieces.get(&text[symbol.range.clone()]) {
                Some(piece) if !piece.unused => ids.push(piece.id),
                _ => self.emit(text, symbol.range.clone(), &halves, ids)?,
            }
        }
        Ok(())
    }

    /// Appends the ids of one merged symbol, taking unused pieces apart.
    fn emit(
        &self,
        text: &str,
        range: Range<usize>,
        halves: &HashMap<(usize, usize), usize>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut open = vec![range];
        while let Some(range) = open.pop() {
            let spelling = text.get(range.clone()).unwrap_or_default();
            match self.pieces.get(spelling) {
                Some(piece) if !piece.unused => {
                    ids.push(piece.id);
                    continue;
                }
                _ => {}
            }
            if let Some(&middle) = halves.get(&(range.start, range.end)) {
                open.push(middle..range.end);
                open.push(range.start..middle);
                continue;
            }
            let bytes: Option<Vec<u32>> = spelling
                .bytes()
                .map(|byte| self.bytes[usize::from(byte)])
                .collect();
            match (bytes, self.unknown) {
                (Some(bytes), _) => ids.extend(bytes),
                (None, Some(unknown)) => ids.push(unknown),
                (None, None) => {
                    return Err(TextError::new(
                        TextErrorKind::Unspellable,
                        format!(
                            "the vocabulary has no piece for {spelling:?}, no byte pieces and no unknown piece"
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// A stretch of the text and its neighbours; an empty range means that it was merged into its left neighbour.
struct Symbol {
    range: Range<usize>,
    left: usize,
    right: usize,
}

const NONE: usize = usize::MAX;

/// Two neighbours that spell a piece.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of both together when found: another length later means that one of them has changed.
    len: usize,
    unused: bool,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then_with(|| Reverse(self.left).cmp(&Reverse(other.left)))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

struct Merging<'a> {
    model: &'a SpmModel,
    text: &'a str,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Pair>,
    /// Where each unused piece was joined: (start, end) → middle, in bytes.
    halves: HashMap<(usize, usize), usize>,
}

impl<'a> Merging<'a> {
    fn new(model: &'a SpmModel, text: &'a str) -> Self {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(index, (start, c))| Symbol {
                range: start..start + c.len_utf8(),
                left: index.checked_sub(1).unwrap_or(NONE),
                right: index + 1,
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.right = NONE;
        }
        Self {
            model,
            text,
            symbols,
            queue: BinaryHeap::new(),
            halves: HashMap::new(),
        }
    }

    fn run(&mut self) {
        for right in 1..self.symbols.len() {
            self.consider(right - 1, right);
        }
        while let Some(pair) = self.queue.pop() {
            let left = self.symbols[pair.left].range.clone();
            let right = self.symbols[pair.right].range.clone();
            if left.is_empty() || right.is_empty() || left.len() + right.len() != pair.len {
                continue;
            }
            if pair.unused {
                self.halves.insert((left.start, right.end), left.end);
            }
            let after = self.symbols[pair.right].right;
            self.symbols[pair.left].range = left.start..right.end;
            self.symbols[pair.left].right = after;
            self.symbols[pair.right].range = right.end..right.end;
            if after != NONE {
                self.symbols[after].left = pair.left;
            }
            let before = self.symbols[pair.left].left;
            if before != NONE {
                self.consider(before, pair.left);
            }
            if after != NONE {
                self.consider(pair.left, after);
            }
        }
    }

    /// Queues two neighbours if they spell a piece.
    fn consider(&mut self, left: usize, right: usize) {
        let start = self.symbols[left].range.start;
        let end = self.symbols[right].range.end;
        if end - start > self.model.longest {
            return;
        }
        let Some(piece) = self
            .text
            .get(start..end)
            .and_then(|spelling| self.model.pieces.get(spelling))
        else {
            return;
        };
        self.queue.push(Pair {
            score: piece.score,
            left,
            right,
            len: end - start,
            unused: piece.unused,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(pieces: &[(&str, f32, bool)]) -> SpmModel {
        let pieces = pieces
            .iter()
            .enumerate()
            .map(|(id, (spelling, score, unused))| {
                let piece = Piece {
                    id: id as u32,
                    score: *score,
                    unused: *unused,
                };
                (Box::from(*spelling), piece)
            })
            .collect();
        let mut bytes = Box::new([None; 256]);
        for byte in 0..=255u8 {
            bytes[usize::from(byte)] = Some(1000 + u32::from(byte));
        }
        SpmModel::new(pieces, bytes, None)
    }

    fn encode(model: &SpmModel, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        model.encode(text, &mut ids).unwrap();
        ids
    }

    #[test]
    fn the_best_score_merges_first_and_the_leftmost_of_equals() {
        let m = model(&[
            ("a", 0.0, false),
            ("b", 0.0, false),
            ("ab", -1.0, false),
            ("ba", -0.5, false),
            ("aa", -2.0, false),
        ]);
        assert_eq!(encode(&m, "aba"), [0, 3]);
        assert_eq!(encode(&m, "aaa"), [4, 0]);
        assert_eq!(encode(&m, ""), [] as [u32; 0]);
    }

    #[test]
    fn a_character_without_a_piece_becomes_its_bytes() {
        let m = model(&[("a", 0.0, false)]);
        assert_eq!(encode(&m, "aé"), [0, 1000 + 0xC3, 1000 + 0xA9]);
    }

    #[test]
    fn an_unused_piece_is_taken_apart_again() {
        let m = model(&[
            ("a", 0.0, false),
            ("b", 0.0, false),
            ("ab", -1.0, true),
            ("abab", -2.0, true),
        ]);
        assert_eq!(encode(&m, "abab"), [0, 1, 0, 1]);
    }

    #[test]
    fn no_piece_no_bytes_no_unknown_is_an_error() {
        let m = SpmModel::new(HashMap::new(), Box::new([None; 256]), None);
        let error = m.encode("a", &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), TextErrorKind::Unspellable);
    }

    /// Merges by scanning the whole text for the best pair each time.
    fn naive(model: &SpmModel, text: &str) -> Vec<String> {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let mut best: Option<(f32, usize)> = None;
            for i in 1..parts.len() {
                let joined = format!("{}{}", parts[i - 1], parts[i]);
                if let Some(piece) = model.pieces.get(joined.as_str())
                    && best.is_none_or(|(score, _)| piece.score > score)
                {
                    best = Some((piece.score, i));
                }
            }
            let Some((_, i)) = best else { return parts };
            let right = parts.remove(i);
            parts[i - 1].push_str(&right);
        }
    }

    proptest::proptest! {
        #[test]
        fn merges_as_the_plain_algorithm_does(text in "[abc]{0,40}") {
            let m = model(&[
                ("a", 0.0, false), ("b", 0.0, false), ("c", 0.0, false),
                ("ab", -1.0, false), ("bc", -1.0, false), ("ca", -3.0, false),
                ("abc", -2.0, false), ("aa", -4.0, false), ("aaaa", -1.5, false),
                ("cab", -0.5, false), ("bcab", -0.1, false),
            ]);
            let expected: Vec<u32> = naive(&m, &text)
                .iter()
                .map(|part| m.pieces[part.as_str()].id)
                .collect();
            proptest::prop_assert_eq!(encode(&m, &text), expected);
        }
    }
}
