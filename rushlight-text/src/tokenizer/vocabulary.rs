//! What every id of a vocabulary is: its kind and its bytes, in one flat table.

use std::collections::HashMap;

use super::bytes::Spelling;
use crate::error::{Result, TextError};

/// Ids at or past this are refused, so that a file with one absurd id cannot make the tables large.
pub(crate) const MAX_ID: u32 = 1 << 24;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// No token has this id.
    Absent,
    /// Text.
    Normal,
    /// Text that is looked for before the model of the vocabulary runs (Gemma's newline runs, HTML tags).
    Added,
    /// Steers the model; never made from message text.
    Control,
    /// A slot without a meaning; never made from message text, never sampled.
    Unused,
}

/// Kinds and bytes by id, ids by spelling.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    kinds: Vec<TokenKind>,
    /// All tokens' bytes, one after another.
    data: Vec<u8>,
    /// `data` range of id `i`: `starts[i]..starts[i + 1]`.
    starts: Vec<usize>,
    ids: HashMap<Box<str>, u32>,
}

/// One token on its way into a [`Vocabulary`].
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u32,
    pub(crate) spelling: String,
    pub(crate) kind: TokenKind,
}

impl Vocabulary {
    /// Builds the tables. Later entries of an id replace earlier ones, so that added tokens follow the model's own.
    pub(crate) fn new(entries: Vec<Entry>, spelling: Spelling) -> Result<Self> {
        let len = match entries.iter().map(|entry| entry.id).max() {
            None => 0,
            Some(max) if max < MAX_ID => max as usize + 1,
            Some(max) => {
                return Err(TextError::malformed(format!(
                    "token id {max} is past the limit of {MAX_ID}"
                )));
            }
        };
        let mut slots: Vec<Option<Entry>> = vec![None; len];
        for entry in entries {
            let slot = entry.id as usize;
            slots[slot] = Some(entry);
        }
        let mut kinds = Vec::with_capacity(len);
        let mut data = Vec::new();
        let mut starts = Vec::with_capacity(len + 1);
        let mut ids = HashMap::with_capacity(len);
        for slot in slots {
            starts.push(data.len());
            let Some(entry) = slot else {
                kinds.push(TokenKind::Absent);
                continue;
            };
            kinds.push(entry.kind);
            match entry.kind {
                TokenKind::Control | TokenKind::Unused => {
                    data.extend_from_slice(entry.spelling.as_bytes());
                }
                _ => data.extend(spelling.bytes_of(&entry.spelling)),
            }
            ids.entry(entry.spelling.into_boxed_str())
                .or_insert(entry.id);
        }
        starts.push(data.len());
        Ok(Self {
            kinds,
            data,
            starts,
            ids,
        })
    }

    /// One more than the highest id.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn kind(&self, id: u32) -> TokenKind {
        self.kinds
            .get(id as usize)
            .copied()
            .unwrap_or(TokenKind::Absent)
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let index = id as usize;
        if self.kind(id) == TokenKind::Absent {
            return None;
        }
        self.data
            .get(*self.starts.get(index)?..*self.starts.get(index + 1)?)
    }

    pub(crate) fn id_of(&self, spelling: &str) -> Option<u32> {
        self.ids.get(spelling).copied()
    }
}
