//! Finding added tokens in a text before the vocabulary's model sees it.
//!
//! A leftmost, longest match wins, as in the `tokenizers` crate. Spellings are matched on the text as it was given,
//! before any normaliser. `lstrip` and `rstrip` take the white space beside a match with it; `single_word` asks for
//! no letter, digit or underscore on either side.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};

use crate::error::{Result, TextError, TextErrorKind};

/// An added token and how it is matched.
#[derive(Clone, Debug)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) spelling: String,
    pub(crate) control: bool,
    pub(crate) single_word: bool,
    pub(crate) lstrip: bool,
    pub(crate) rstrip: bool,
}

/// A stretch of text: an added token's id, or plain text for the vocabulary's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stretch<'t> {
    Token(u32),
    Plain(&'t str),
}

/// All added tokens of a vocabulary, ready to be found.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    all: Matcher,
    /// Only those that message text may become.
    ordinary: Matcher,
}

#[derive(Debug)]
struct Matcher {
    automaton: Option<AhoCorasick>,
    tokens: Vec<AddedToken>,
}

impl AddedTokens {
    pub(crate) fn new(tokens: Vec<AddedToken>) -> Result<Self> {
        let ordinary = tokens.iter().filter(|t| !t.control).cloned().collect();
        Ok(Self {
            all: Matcher::new(tokens)?,
            ordinary: Matcher::new(ordinary)?,
        })
    }

    /// The spellings of all control tokens.
    pub(crate) fn control_spellings(&self) -> impl Iterator<Item = &str> {
        self.all
            .tokens
            .iter()
            .filter(|token| token.control)
            .map(|token| token.spelling.as_str())
    }

    /// Splits a text, recognising ordinary added tokens only.
    pub(crate) fn split_text<'t>(&self, text: &'t str) -> Vec<Stretch<'t>> {
        let mut splitter = Splitter::new(text);
        let mut at = 0;
        while let Some((range, token)) = self.ordinary.find(text, at) {
            splitter.token(range.clone(), token);
            at = range.end;
        }
        splitter.finish()
    }

    /// Splits a text, recognising every added token, except control tokens that touch a byte of `literal`.
    ///
    /// `literal` holds ascending ranges of `text` in bytes.
    pub(crate) fn split_marked<'t>(
        &self,
        text: &'t str,
        literal: &[Range<usize>],
    ) -> Vec<Stretch<'t>> {
        let mut splitter = Splitter::new(text);
        let mut at = 0;
        while let Some((range, token)) = self.all.find(text, at) {
            if !(token.control && touches(literal, &range)) {
                splitter.token(range.clone(), token);
                at = range.end;
                continue;
            }
            // The spelling is content. An ordinary token may still start at the same place; if none does, look on
            // from the next character, where a control token of the template may start.
            match self.ordinary.find_at(text, range.start) {
                Some((range, token)) => {
                    splitter.token(range.clone(), token);
                    at = range.end;
                }
                None => at = next_boundary(text, range.start),
            }
        }
        splitter.finish()
    }
}

impl Matcher {
    fn new(tokens: Vec<AddedToken>) -> Result<Self> {
        if tokens.is_empty() {
            return Ok(Self {
                automaton: None,
                tokens,
            });
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .start_kind(StartKind::Both)
            .build(tokens.iter().map(|token| &token.spelling))
            .map_err(|error| {
                TextError::new(TextErrorKind::TooLarge, "too many added tokens").caused_by(error)
            })?;
        Ok(Self {
            automaton: Some(automaton),
            tokens,
        })
    }

    /// The first match at or after `at`, passing over matches that are not whole words where they must be.
    fn find(&self, text: &str, mut at: usize) -> Option<(Range<usize>, &AddedToken)> {
        let automaton = self.automaton.as_ref()?;
        loop {
            let found = automaton.find(Input::new(text).range(at..))?;
            let token = self.tokens.get(found.pattern().as_usize())?;
            if !token.single_word || is_whole_word(text, &found.range()) {
                return Some((found.range(), token));
            }
            at = found.end();
        }
    }

    /// The match that starts exactly at `at`.
    fn find_at(&self, text: &str, at: usize) -> Option<(Range<usize>, &AddedToken)> {
        let automaton = self.automaton.as_ref()?;
        let found = automaton.find(Input::new(text).range(at..).anchored(Anchored::Yes))?;
        let token = self.tokens.get(found.pattern().as_usize())?;
        (!token.single_word || is_whole_word(text, &found.range()))
            .then_some((found.range(), token))
    }
}

/// Collects stretches, giving white space to the tokens that take it.
struct Splitter<'t> {
    text: &'t str,
    done: usize,
    stretches: Vec<Stretch<'t>>,
}

impl<'t> Splitter<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            done: 0,
            stretches: Vec::new(),
        }
    }

    fn token(&mut self, range: Range<usize>, token: &AddedToken) {
        let start = range.start.max(self.done);
        let before = self.text.get(self.done..start).unwrap_or_default();
        let before = if token.lstrip {
            before.trim_end()
        } else {
            before
        };
        if !before.is_empty() {
            self.stretches.push(Stretch::Plain(before));
        }
        self.stretches.push(Stretch::Token(token.id));
        self.done = range.end;
        if token.rstrip {
            let rest = self.text.get(self.done..).unwrap_or_default();
            self.done += rest.len() - rest.trim_start().len();
        }
    }

    fn finish(mut self) -> Vec<Stretch<'t>> {
        match self.text.get(self.done..) {
            None | Some("") => {}
            Some(rest) => self.stretches.push(Stretch::Plain(rest)),
        }
        self.stretches
    }
}

/// Whether a range shares a byte with one of the ascending ranges.
fn touches(ranges: &[Range<usize>], range: &Range<usize>) -> bool {
    let first = ranges.partition_point(|r| r.end <= range.start);
    ranges.get(first).is_some_and(|r| r.start < range.end)
}

fn next_boundary(text: &str, at: usize) -> usize {
    text.get(at..)
        .and_then(|rest| rest.chars().next())
        .map_or(text.len(), |c| at + c.len_utf8())
}

fn is_whole_word(text: &str, range: &Range<usize>) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.get(..range.start).and_then(|s| s.chars().next_back());
    let after = text.get(range.end..).and_then(|s| s.chars().next());
    !before.is_some_and(is_word) && !after.is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::Stretch::{Plain, Token};
    use super::*;

    fn token(id: u32, spelling: &str, control: bool) -> AddedToken {
        AddedToken {
            id,
            spelling: spelling.to_owned(),
            control,
            single_word: false,
            lstrip: false,
            rstrip: false,
        }
    }

    fn tokens() -> AddedTokens {
        AddedTokens::new(vec![
            token(1, "<|end|>", true),
            token(2, "<|", false),
            token(3, "\n\n", false),
            token(4, "\n", false),
            AddedToken {
                rstrip: true,
                lstrip: true,
                ..token(5, "[S]", true)
            },
            AddedToken {
                single_word: true,
                ..token(6, "word", false)
            },
        ])
        .unwrap()
    }

    #[test]
    fn the_longest_leftmost_match_wins() {
        assert_eq!(
            tokens().split_marked("a\n\n\nb<|end|>", &[]),
            [Plain("a"), Token(3), Token(4), Plain("b"), Token(1)]
        );
    }

    #[test]
    fn text_never_becomes_a_control_token() {
        assert_eq!(
            tokens().split_text("x<|end|> [S]"),
            [Plain("x"), Token(2), Plain("end|> [S]")]
        );
    }

    #[test]
    fn a_literal_byte_anywhere_in_a_control_spelling_makes_it_text() {
        let text = "<|end|><|end|>";
        let literal = |byte: usize| std::iter::once(byte..byte + 1).collect::<Vec<_>>();
        for byte in 0..7 {
            assert_eq!(
                tokens().split_marked(text, &literal(byte)),
                [Token(2), Plain("end|>"), Token(1)],
                "{byte}"
            );
        }
        assert_eq!(
            tokens().split_marked(text, &literal(7)),
            [Token(1), Token(2), Plain("end|>")]
        );
    }

    #[test]
    fn stripping_and_whole_words() {
        assert_eq!(
            tokens().split_marked("a  [S]  b", &[]),
            [Plain("a"), Token(5), Plain("b")]
        );
        assert_eq!(
            tokens().split_text("words word"),
            [Plain("words "), Token(6)]
        );
    }
}
