//! A tokenizer from a GGUF file's metadata (`tokenizer.ggml.*`, as llama.cpp reads them).

use std::collections::{HashMap, HashSet};

use super::added::AddedToken;
use super::bytes::{Spelling, fallback_byte};
use super::pieces::{BpeParts, Normalize, Pieces, SpacedMerge, bpe};
use super::pretokenize::Named;
use super::spm::{Piece, SpmModel};
use super::vocabulary::{Entry, MAX_ID, TokenKind};
use super::{Parts, Policy};
use crate::error::{Result, TextError};
use crate::markers;

/// The vocabulary of a GGUF file, key by key.
#[derive(Clone, Debug, Default)]
pub struct GgufVocabulary {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE), `llama` (SentencePiece), `gemma4`.
    pub model: String,
    /// `tokenizer.ggml.pre`: which pre-tokenizer a `gpt2` model has.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`, by id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: a `llama` model's merge scores (log-probabilities).
    pub scores: Option<Vec<f32>>,
    /// `tokenizer.ggml.token_type`: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Vec<i32>>,
    /// `tokenizer.ggml.merges`: `"left right"`, by rank.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`.
    pub eot: Option<u32>,
    /// `tokenizer.ggml.eom_token_id`.
    pub eom: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unk: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub pad: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

pub(crate) fn parts(vocabulary: &GgufVocabulary) -> Result<Parts> {
    check(vocabulary)?;
    match vocabulary.model.as_str() {
        "gpt2" => byte_level(vocabulary),
        "gemma4" => raw_bpe(vocabulary),
        "llama" => sentence_piece(vocabulary),
        other => Err(TextError::unsupported(format!(
            "the tokenizer model {other:?}; known are gpt2, llama and gemma4"
        ))),
    }
}

fn check(vocabulary: &GgufVocabulary) -> Result<()> {
    let len = vocabulary.tokens.len();
    if len == 0 || len > MAX_ID as usize {
        return Err(TextError::malformed(format!(
            "a vocabulary has between 1 and {MAX_ID} tokens, not {len}"
        )));
    }
    for (key, other) in [
        ("scores", vocabulary.scores.as_ref().map(Vec::len)),
        ("token_type", vocabulary.token_types.as_ref().map(Vec::len)),
    ] {
        if let Some(other) = other.filter(|other| *other != len) {
            return Err(TextError::malformed(format!(
                "tokenizer.ggml.{key} has {other} entries for {len} tokens"
            )));
        }
    }
    for (key, id) in [
        ("bos", vocabulary.bos),
        ("eos", vocabulary.eos),
        ("eot", vocabulary.eot),
        ("eom", vocabulary.eom),
        ("unknown", vocabulary.unk),
        ("padding", vocabulary.pad),
    ] {
        if let Some(id) = id.filter(|id| *id as usize >= len) {
            return Err(TextError::malformed(format!(
                "tokenizer.ggml.{key}_token_id is {id}, but there are {len} tokens"
            )));
        }
    }
    Ok(())
}

impl GgufVocabulary {
    fn type_of(&self, index: usize) -> i32 {
        self.token_types
            .as_ref()
            .and_then(|types| types.get(index))
            .copied()
            .unwrap_or(1)
    }

    /// Ids with spellings, in order.
    fn entries(&self) -> Vec<Entry> {
        let structural: HashSet<u32> = [self.bos, self.eos, self.eot, self.eom]
            .into_iter()
            .flatten()
            .collect();
        (0u32..)
            .zip(&self.tokens)
            .map(|(id, spelling)| {
                let marker = markers::is_protocol_marker(spelling);
                let kind = match self.type_of(id as usize) {
                    CONTROL | USER_DEFINED if markers::is_unused_spelling(spelling) => {
                        TokenKind::Unused
                    }
                    UNKNOWN | CONTROL => TokenKind::Control,
                    UNUSED => TokenKind::Unused,
                    USER_DEFINED if marker => TokenKind::Control,
                    _ if structural.contains(&id) => TokenKind::Control,
                    USER_DEFINED => TokenKind::Added,
                    _ => TokenKind::Normal,
                };
                Entry {
                    id,
                    spelling: spelling.clone(),
                    kind,
                }
            })
            .collect()
    }
}

/// The tokens that are looked for before the model runs; the first of two alike wins.
fn added(entries: &[Entry]) -> Vec<AddedToken> {
    let mut seen = HashSet::new();
    entries
        .iter()
        .filter(|entry| !matches!(entry.kind, TokenKind::Normal | TokenKind::Absent))
        .filter(|entry| !entry.spelling.is_empty() && seen.insert(entry.spelling.as_str()))
        .map(|entry| AddedToken {
            id: entry.id,
            spelling: entry.spelling.clone(),
            control: entry.kind != TokenKind::Added,
            single_word: false,
            lstrip: false,
            rstrip: false,
        })
        .collect()
}

fn bpe_model(
    vocabulary: &GgufVocabulary,
    entries: &[Entry],
    ignore_merges: bool,
    byte_fallback: bool,
) -> Result<tokenizers::models::bpe::BPE> {
    let control: HashSet<&str> = entries
        .iter()
        .filter(|entry| matches!(entry.kind, TokenKind::Control | TokenKind::Unused))
        .map(|entry| entry.spelling.as_str())
        .collect();
    let merges = vocabulary
        .merges
        .iter()
        .map(|merge| merge.parse().map(|SpacedMerge(left, right)| (left, right)))
        .collect::<Result<Vec<_>>>()?;
    if merges.is_empty() {
        return Err(TextError::malformed(
            "a BPE vocabulary without tokenizer.ggml.merges",
        ));
    }
    bpe(
        BpeParts {
            // Of two tokens spelled alike the later one would be looked up, as in llama.cpp.
            vocab: entries
                .iter()
                .map(|entry| (entry.spelling.clone(), entry.id))
                .collect(),
            merges,
            unknown: None,
            fuse_unknown: false,
            byte_fallback,
            ignore_merges,
        },
        |spelling| control.contains(spelling),
    )
}

fn byte_level(vocabulary: &GgufVocabulary) -> Result<Parts> {
    let named = Named::of(vocabulary.pre.as_deref().unwrap_or("default"))?;
    let entries = vocabulary.entries();
    let model = bpe_model(vocabulary, &entries, named.ignore_merges, !named.byte_level)?;
    let spelling = if named.byte_level {
        Spelling::ByteLevel
    } else {
        Spelling::MetaSpace {
            byte_fallback: true,
        }
    };
    let normalize = if named.byte_level {
        Normalize::Nothing
    } else {
        Normalize::MetaSpaces
    };
    Ok(Parts {
        added: added(&entries),
        entries,
        spelling,
        pieces: Pieces::Bpe {
            normalize,
            cuts: named.cuts()?,
            byte_level: named.byte_level,
            model: Box::new(model),
        },
        unknown: None,
        policy: Policy {
            add_bos: vocabulary.add_bos.unwrap_or(named.add_bos) && vocabulary.bos.is_some(),
            add_eos: vocabulary.add_eos.unwrap_or(false),
            strip_leading_space: false,
        },
    })
}

/// Gemma 4's model: BPE by rank over UTF-8 with `▁` for a space.
fn raw_bpe(vocabulary: &GgufVocabulary) -> Result<Parts> {
    let gemma = GgufVocabulary {
        pre: Some("gemma4".to_owned()),
        ..vocabulary.clone()
    };
    let mut parts = byte_level(&gemma)?;
    parts.policy.add_bos = vocabulary.add_bos.unwrap_or(true) && vocabulary.bos.is_some();
    Ok(parts)
}

fn sentence_piece(vocabulary: &GgufVocabulary) -> Result<Parts> {
    let scores = vocabulary.scores.as_ref().ok_or_else(|| {
        TextError::malformed("a SentencePiece vocabulary without tokenizer.ggml.scores")
    })?;
    if let Some(id) = scores.iter().position(|score| score.is_nan()) {
        return Err(TextError::malformed(format!(
            "the score of token {id} is NaN"
        )));
    }
    let entries = vocabulary.entries();
    let mut bytes = Box::new([None; 256]);
    let mut pieces: HashMap<Box<str>, Piece> = HashMap::with_capacity(entries.len());
    for (entry, score) in entries.iter().zip(scores) {
        let is_byte = vocabulary.type_of(entry.id as usize) == BYTE;
        if let Some(byte) = fallback_byte(&entry.spelling).filter(|_| is_byte) {
            bytes[usize::from(byte)] = Some(entry.id);
        } else if entry.kind != TokenKind::Control {
            pieces.insert(
                entry.spelling.as_str().into(),
                Piece {
                    id: entry.id,
                    score: *score,
                    unused: entry.kind == TokenKind::Unused,
                },
            );
        }
    }
    let add_space_prefix = vocabulary.add_space_prefix.unwrap_or(true);
    Ok(Parts {
        added: added(&entries),
        entries,
        spelling: Spelling::MetaSpace {
            byte_fallback: true,
        },
        pieces: Pieces::Spm {
            model: SpmModel::new(pieces, bytes, vocabulary.unk),
            add_space_prefix,
        },
        unknown: vocabulary
            .unk
            .and_then(|id| vocabulary.tokens.get(id as usize))
            .cloned(),
        policy: Policy {
            add_bos: vocabulary.add_bos.unwrap_or(true) && vocabulary.bos.is_some(),
            add_eos: vocabulary.add_eos.unwrap_or(false),
            strip_leading_space: add_space_prefix,
        },
    })
}
