//! From plain text, free of added tokens, to ids.

use std::borrow::Cow;
use std::str::FromStr;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{
    Model, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential,
    OffsetType, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
};

use super::bytes::{META_SPACE, byte_level};
use super::pretokenize::Cuts;
use super::spm::SpmModel;
use crate::error::{Result, TextError, TextErrorKind};

/// The model of a vocabulary with what comes before it.
#[derive(Debug)]
pub(crate) enum Pieces {
    /// SentencePiece's BPE by scores.
    Spm {
        model: SpmModel,
        /// A piece that begins the text, or follows a control token, gets a space in front.
        add_space_prefix: bool,
    },
    /// Words cut by patterns, merged by rank.
    Bpe {
        normalize: Normalize,
        cuts: Cuts,
        byte_level: bool,
        model: Box<BPE>,
    },
    /// Whatever else a `tokenizer.json` puts together.
    Library(Box<Library>),
}

/// What happens to a text before it is cut.
#[derive(Debug)]
pub(crate) enum Normalize {
    Nothing,
    /// Spaces become `▁`.
    MetaSpaces,
    Library(Box<NormalizerWrapper>),
}

/// A pipeline of the `tokenizers` crate without its added tokens.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) normalizer: Option<NormalizerWrapper>,
    /// For the stretch that begins the text.
    pub(crate) first: Option<PreTokenizerWrapper>,
    /// For every other stretch: the same, without a `▁` that only the beginning of a text gets.
    pub(crate) rest: Option<PreTokenizerWrapper>,
    pub(crate) model: ModelWrapper,
}

impl Pieces {
    /// Appends the ids of a stretch. `at_start` says that it begins the text.
    pub(crate) fn encode(&self, text: &str, at_start: bool, ids: &mut Vec<u32>) -> Result<()> {
        match self {
            Pieces::Spm {
                model,
                add_space_prefix,
            } => {
                let mut spelled = String::with_capacity(text.len() + 3);
                if *add_space_prefix {
                    spelled.push(META_SPACE);
                }
                spelled.extend(text.chars().map(|c| if c == ' ' { META_SPACE } else { c }));
                model.encode(&spelled, ids)
            }
            Pieces::Bpe {
                normalize,
                cuts,
                byte_level: as_bytes,
                model,
            } => {
                let normalized = normalize.apply(text)?;
                for word in cuts.apply(&normalized)? {
                    if *as_bytes {
                        merge(model.as_ref(), &byte_level(word), ids)?;
                    } else {
                        merge(model.as_ref(), word, ids)?;
                    }
                }
                Ok(())
            }
            Pieces::Library(library) => library.encode(text, at_start, ids),
        }
    }
}

impl Normalize {
    fn apply<'t>(&self, text: &'t str) -> Result<Cow<'t, str>> {
        match self {
            Normalize::Nothing => Ok(Cow::Borrowed(text)),
            Normalize::MetaSpaces => Ok(Cow::Owned(text.replace(' ', "\u{2581}"))),
            Normalize::Library(normalizer) => {
                let mut normalized = NormalizedString::from(text);
                normalizer
                    .normalize(&mut normalized)
                    .map_err(|error| failed("the normaliser failed", error))?;
                Ok(Cow::Owned(normalized.get().to_owned()))
            }
        }
    }
}

impl Library {
    fn encode(&self, text: &str, at_start: bool, ids: &mut Vec<u32>) -> Result<()> {
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = &self.normalizer {
            normalizer
                .normalize(&mut normalized)
                .map_err(|error| failed("the normaliser failed", error))?;
        }
        let mut cut = PreTokenizedString::from(normalized);
        let pre_tokenizer = if at_start { &self.first } else { &self.rest };
        if let Some(pre_tokenizer) = pre_tokenizer {
            pre_tokenizer
                .pre_tokenize(&mut cut)
                .map_err(|error| failed("the pre-tokenizer failed", error))?;
        }
        for (word, _, _) in cut.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            merge(&self.model, word, ids)?;
        }
        Ok(())
    }
}

/// Appends a word's ids. A character that the model drops is an error, never a silent loss.
fn merge(model: &impl Model, word: &str, ids: &mut Vec<u32>) -> Result<()> {
    let tokens = model
        .tokenize(word)
        .map_err(|error| failed("the vocabulary's model failed", error))?;
    let covered = tokens.last().map_or(0, |token| token.offsets.1);
    if covered != word.len() {
        return Err(TextError::new(
            TextErrorKind::Unspellable,
            format!("the vocabulary cannot spell a character of {word:?}"),
        ));
    }
    ids.extend(tokens.iter().map(|token| token.id));
    Ok(())
}

fn failed(what: &str, error: tokenizers::Error) -> TextError {
    TextError::new(TextErrorKind::Unspellable, what).caused_by(error)
}

/// Everything that [`bpe`] needs.
pub(crate) struct BpeParts {
    pub(crate) vocab: Vec<(String, u32)>,
    pub(crate) merges: Vec<(String, String)>,
    pub(crate) unknown: Option<String>,
    pub(crate) fuse_unknown: bool,
    pub(crate) byte_fallback: bool,
    pub(crate) ignore_merges: bool,
}

/// A BPE model whose merges never end in a control token.
///
/// `is_control` tells the spellings that no text may become. They leave the model, and with them every merge that
/// makes one or needs one. The unknown token stays: it is what a character without a spelling becomes.
pub(crate) fn bpe(parts: BpeParts, is_control: impl Fn(&str) -> bool) -> Result<BPE> {
    let BpeParts {
        vocab,
        merges,
        unknown,
        fuse_unknown,
        byte_fallback,
        ignore_merges,
    } = parts;
    let mut removed = std::collections::HashSet::new();
    let mut kept = Vocab::default();
    kept.reserve(vocab.len());
    for (spelling, id) in vocab {
        if unknown.as_ref() != Some(&spelling) && is_control(&spelling) {
            removed.insert(spelling);
        } else {
            kept.insert(spelling, id);
        }
    }
    if let Some(unknown) = &unknown
        && !kept.contains_key(unknown)
    {
        return Err(TextError::malformed(format!(
            "the unknown token {unknown:?} is not in the vocabulary"
        )));
    }
    let mut usable = Vec::with_capacity(merges.len());
    let mut joined = String::new();
    for (left, right) in merges {
        joined.clear();
        joined.push_str(&left);
        joined.push_str(&right);
        let mut lost = false;
        for part in [&left, &right, &joined] {
            if removed.contains(part) || unknown.as_ref() == Some(part) {
                lost = true;
            } else if !kept.contains_key(part) {
                return Err(TextError::malformed(format!(
                    "the merge of {left:?} and {right:?} needs {part:?}, which is not in the vocabulary"
                )));
            }
        }
        if !lost {
            usable.push((left, right));
        }
    }
    let mut builder = BPE::builder()
        .vocab_and_merges(kept, usable)
        .fuse_unk(fuse_unknown)
        .byte_fallback(byte_fallback)
        .ignore_merges(ignore_merges);
    if let Some(unknown) = unknown {
        builder = builder.unk_token(unknown);
    }
    builder.build().map_err(|error| {
        TextError::malformed("the merges do not fit the vocabulary").caused_by(error)
    })
}

/// A merge as `"left right"`; a piece may begin with a space, never hold one elsewhere.
pub(crate) struct SpacedMerge(pub(crate) String, pub(crate) String);

impl FromStr for SpacedMerge {
    type Err = TextError;

    fn from_str(merge: &str) -> Result<Self> {
        merge
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == ' ')
            .and_then(|(at, _)| Some((merge.get(..at)?, merge.get(at + 1..)?)))
            .map(|(left, right)| Self(left.to_owned(), right.to_owned()))
            .ok_or_else(|| TextError::malformed(format!("{merge:?} is not a merge of two tokens")))
    }
}
