//! Reading `tokenizer.json`.
//!
//! The file's normaliser, pre-tokenizer and model are used as they are. Its added tokens are matched here instead of
//! by the `tokenizers` crate, which cannot keep a control token out of message text and could not be told which
//! spellings of a prompt are content. Byte-level BPE behind plain patterns, nearly every model's form, is cut here
//! too: the crate's cutter silently stops at a pattern's backtracking limit.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper};

use super::added::AddedToken;
use super::bytes::Spelling;
use super::config::{DeclaredToken, TokenizerConfig};
use super::pieces::{BpeParts, Library, Normalize, Pieces, SpacedMerge, bpe};
use super::pretokenize::{Cuts, GPT2};
use super::vocabulary::{Entry, MAX_ID, TokenKind};
use super::{Parts, Policy};
use crate::error::{Result, TextError};
use crate::markers;

/// The parts of a `tokenizer.json` that text needs; padding and truncation are the caller's business.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<FileToken>,
    #[serde(default)]
    normalizer: Option<Value>,
    #[serde(default)]
    pre_tokenizer: Option<Value>,
    #[serde(default)]
    post_processor: Option<Value>,
    #[serde(default)]
    decoder: Option<Value>,
    model: Box<RawValue>,
}

#[derive(Deserialize)]
struct FileToken {
    id: u32,
    #[serde(flatten)]
    token: DeclaredToken,
}

/// Makes a tokenizer's parts from the text of a `tokenizer.json` and what its configuration says.
///
/// The second value is the token that the file's post-processor puts before a text, if it puts one.
pub(crate) fn parts(json: &str, config: &TokenizerConfig) -> Result<(Parts, Option<String>)> {
    let file: File = serde_json::from_str(json).map_err(malformed)?;
    let added = merge_added(&file.added_tokens, config)?;
    let control: HashSet<&str> = added
        .iter()
        .filter(|token| token.control)
        .map(|token| token.spelling.as_str())
        .collect();

    let model = parse_model(&file.model)?;
    let decoder = decoder_of(file.decoder.as_ref())?;
    let mut entries = model.entries();
    entries.extend(added.iter().map(|token| Entry {
        id: token.id,
        spelling: token.spelling.clone(),
        kind: if markers::is_unused_spelling(&token.spelling) {
            TokenKind::Unused
        } else if token.control {
            TokenKind::Control
        } else {
            TokenKind::Added
        },
    }));
    let unknown = model.unknown();
    let pieces = pieces(&file, model, &control)?;
    let template_bos = first_special(file.post_processor.as_ref());
    let bos = config
        .special_token("bos_token")
        .map(str::to_owned)
        .or_else(|| template_bos.clone());
    let policy = Policy {
        add_bos: config
            .add_bos
            .unwrap_or(bos.is_some() && template_bos == bos),
        add_eos: config.add_eos.unwrap_or(false),
        strip_leading_space: decoder.strip_leading_space,
    };
    let parts = Parts {
        entries,
        spelling: decoder.spelling,
        added,
        pieces,
        unknown,
        policy,
    };
    Ok((parts, template_bos))
}

fn malformed(error: serde_json::Error) -> TextError {
    let place = (error.line(), error.column());
    TextError::malformed("not a tokenizer.json that this version reads")
        .at("tokenizer.json", Some(place))
        .caused_by(error)
}

/// The added tokens of the file, with those of the configuration that the file lacks.
fn merge_added(file: &[FileToken], config: &TokenizerConfig) -> Result<Vec<AddedToken>> {
    let special: HashSet<&str> = config
        .special
        .iter()
        .map(|(_, spelling)| spelling)
        .chain(&config.additional_special)
        .chain(&config.turn_ends)
        .map(String::as_str)
        .collect();
    let mut seen = HashSet::new();
    let mut added = Vec::new();
    let declared = file
        .iter()
        .map(|token| (token.id, &token.token))
        .chain(config.added.iter().map(|(id, token)| (*id, token)));
    for (id, token) in declared {
        if id >= MAX_ID {
            return Err(TextError::malformed(format!(
                "token id {id} is past the limit of {MAX_ID}"
            )));
        }
        if token.content.is_empty() || !seen.insert(token.content.as_str()) {
            continue;
        }
        let declared_special = config.added.get(&id).is_some_and(|other| other.special);
        added.push(AddedToken {
            id,
            spelling: token.content.clone(),
            control: token.special
                || declared_special
                || special.contains(token.content.as_str())
                || markers::is_protocol_marker(&token.content),
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
        });
    }
    Ok(added)
}

/// How ids become text again.
struct DecoderRules {
    spelling: Spelling,
    strip_leading_space: bool,
}

fn decoder_of(decoder: Option<&Value>) -> Result<DecoderRules> {
    let Some(decoder) = decoder.filter(|decoder| !decoder.is_null()) else {
        return Err(TextError::unsupported("a tokenizer.json without a decoder"));
    };
    let mut rules = DecoderRules {
        spelling: Spelling::MetaSpace {
            byte_fallback: false,
        },
        strip_leading_space: false,
    };
    let steps = match kind_of(decoder) {
        "Sequence" => decoder
            .get("decoders")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice),
        _ => std::slice::from_ref(decoder),
    };
    for step in steps {
        match kind_of(step) {
            "ByteLevel" => rules.spelling = Spelling::ByteLevel,
            "ByteFallback" => {
                rules.spelling = Spelling::MetaSpace {
                    byte_fallback: true,
                };
            }
            "Fuse" => {}
            "Replace" if is_meta_space_replacement(step) => {}
            "Metaspace" if step.get("replacement").is_none_or(|r| r == "▁") => {
                rules.strip_leading_space = step.get("prepend_scheme").is_none_or(|s| s != "never")
                    && step.get("add_prefix_space").is_none_or(|a| a != false);
            }
            "Strip"
                if step.get("content").is_some_and(|c| c == " ")
                    && step.get("start").is_some_and(|n| n == 1)
                    && step.get("stop").is_some_and(|n| n == 0) =>
            {
                rules.strip_leading_space = true;
            }
            other => {
                return Err(TextError::unsupported(format!(
                    "the decoder {other:?} with these options; known are ByteLevel, Metaspace, Replace (▁ by a space), ByteFallback, Fuse, Strip (one leading space)"
                )));
            }
        }
    }
    Ok(rules)
}

fn kind_of(component: &Value) -> &str {
    component
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("untyped")
}

fn is_meta_space_replacement(step: &Value) -> bool {
    step.pointer("/pattern/String").is_some_and(|p| p == "▁")
        && step.get("content").is_some_and(|c| c == " ")
}

/// The special token that a post-processor puts before a text, if it puts one.
fn first_special(post_processor: Option<&Value>) -> Option<String> {
    let processor = post_processor?;
    match kind_of(processor) {
        "TemplateProcessing" => processor
            .pointer("/single/0/SpecialToken/id")?
            .as_str()
            .map(str::to_owned),
        "Sequence" => processor
            .get("processors")?
            .as_array()?
            .iter()
            .find_map(|inner| first_special(Some(inner))),
        _ => None,
    }
}

/// A model before it is built.
enum FileModel {
    Bpe(BpeFile),
    Unigram { value: Value, vocab: Vec<String> },
}

impl FileModel {
    fn unknown(&self) -> Option<String> {
        match self {
            FileModel::Bpe(file) => file.unk_token.clone(),
            FileModel::Unigram { value, vocab } => {
                let id = value.get("unk_id")?.as_u64()?;
                vocab.get(usize::try_from(id).ok()?).cloned()
            }
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |spelling: &String, id: u32| Entry {
            id,
            spelling: spelling.clone(),
            kind: TokenKind::Normal,
        };
        match self {
            FileModel::Bpe(file) => file
                .vocab
                .0
                .iter()
                .map(|(spelling, id)| entry(spelling, *id))
                .collect(),
            FileModel::Unigram { vocab, .. } => {
                (0u32..).zip(vocab).map(|(id, s)| entry(s, id)).collect()
            }
        }
    }
}

fn parse_model(raw: &RawValue) -> Result<FileModel> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: Option<String>,
    }
    let kind: Kind = serde_json::from_str(raw.get()).map_err(malformed)?;
    match kind.kind.as_deref() {
        // Files from before types were written hold BPE.
        None | Some("BPE") => {
            let file: BpeFile = serde_json::from_str(raw.get()).map_err(malformed)?;
            for (option, value) in [
                ("continuing_subword_prefix", &file.continuing_subword_prefix),
                ("end_of_word_suffix", &file.end_of_word_suffix),
            ] {
                if value.as_ref().is_some_and(|value| !value.is_empty()) {
                    return Err(TextError::unsupported(format!("BPE with {option}")));
                }
            }
            Ok(FileModel::Bpe(file))
        }
        Some("Unigram") => {
            let value: Value = serde_json::from_str(raw.get()).map_err(malformed)?;
            let vocab = value
                .get("vocab")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|piece| piece.get(0)?.as_str().map(str::to_owned))
                .collect::<Option<Vec<String>>>()
                .ok_or_else(|| {
                    TextError::malformed("Unigram pieces are pairs of text and score")
                })?;
            Ok(FileModel::Unigram { value, vocab })
        }
        Some(other) => Err(TextError::unsupported(format!(
            "the model type {other:?}; known are BPE and Unigram"
        ))),
    }
}

#[derive(Deserialize)]
struct BpeFile {
    vocab: VocabFile,
    merges: Vec<MergeFile>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// A vocabulary in the file's order, without the cost of a map.
struct VocabFile(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for VocabFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = VocabFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from token to id")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabFile, A::Error> {
                let mut entries = Vec::new();
                while let Some((token, id)) = map.next_entry::<String, u32>()? {
                    if id >= MAX_ID {
                        return Err(A::Error::custom(format!(
                            "token id {id} is past the limit of {MAX_ID}"
                        )));
                    }
                    entries.push((token, id));
                }
                Ok(VocabFile(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// A merge as `"left right"` or `["left", "right"]`.
struct MergeFile(String, String);

impl<'de> Deserialize<'de> for MergeFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Merge;
        impl<'de> Visitor<'de> for Merge {
            type Value = MergeFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge of two tokens")
            }

            fn visit_str<E: serde::de::Error>(self, merge: &str) -> Result<MergeFile, E> {
                let SpacedMerge(left, right) = merge.parse().map_err(E::custom)?;
                Ok(MergeFile(left, right))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MergeFile, A::Error> {
                let missing = || A::Error::custom("a merge has two tokens");
                let left = seq.next_element()?.ok_or_else(missing)?;
                let right = seq.next_element()?.ok_or_else(missing)?;
                match seq.next_element::<String>()? {
                    None => Ok(MergeFile(left, right)),
                    Some(_) => Err(missing()),
                }
            }
        }
        deserializer.deserialize_any(Merge)
    }
}

/// Puts normaliser, pre-tokenizer and model together.
fn pieces(file: &File, model: FileModel, control: &HashSet<&str>) -> Result<Pieces> {
    let normalizer = component::<NormalizerWrapper>("normalizer", file.normalizer.as_ref())?;
    let is_control = |spelling: &str| control.contains(spelling);
    match model {
        FileModel::Bpe(bpe_file) => {
            let model = bpe(
                BpeParts {
                    vocab: bpe_file.vocab.0,
                    merges: bpe_file.merges.into_iter().map(|m| (m.0, m.1)).collect(),
                    unknown: bpe_file.unk_token,
                    fuse_unknown: bpe_file.fuse_unk,
                    byte_fallback: bpe_file.byte_fallback,
                    ignore_merges: bpe_file.ignore_merges,
                },
                is_control,
            )?;
            match byte_level_patterns(file.pre_tokenizer.as_ref()) {
                Some(patterns) => Ok(Pieces::Bpe {
                    normalize: normalizer
                        .map_or(Normalize::Nothing, |n| Normalize::Library(Box::new(n))),
                    cuts: Cuts::new(&patterns)?,
                    byte_level: true,
                    model: Box::new(model),
                }),
                None => library(file, normalizer, ModelWrapper::BPE(model)),
            }
        }
        FileModel::Unigram { mut value, .. } => {
            hide_control_pieces(&mut value, is_control);
            // The library's reader borrows strings, which only text can lend.
            let model = serde_json::from_str(&value.to_string())
                .map_err(|error| TextError::malformed("the Unigram model").caused_by(error))?;
            library(file, normalizer, ModelWrapper::Unigram(model))
        }
    }
}

/// Gives control pieces spellings that no text has, so that no text becomes one.
fn hide_control_pieces(model: &mut Value, is_control: impl Fn(&str) -> bool) {
    let pieces = model.get_mut("vocab").and_then(Value::as_array_mut);
    for (index, piece) in pieces.into_iter().flatten().enumerate() {
        if let Some(spelling) = piece.get_mut(0)
            && spelling.as_str().is_some_and(&is_control)
        {
            *spelling = Value::String(format!("\u{FDD0}\u{FDEF}{index}\u{FDEF}\u{FDD0}"));
        }
    }
}

fn library(
    file: &File,
    normalizer: Option<NormalizerWrapper>,
    model: ModelWrapper,
) -> Result<Pieces> {
    let first = component::<PreTokenizerWrapper>("pre_tokenizer", file.pre_tokenizer.as_ref())?;
    let mut later = file.pre_tokenizer.clone();
    if let Some(value) = &mut later {
        never_prepend(value);
    }
    let rest = component::<PreTokenizerWrapper>("pre_tokenizer", later.as_ref())?;
    Ok(Pieces::Library(Box::new(Library {
        normalizer,
        first,
        rest,
        model,
    })))
}

fn component<T: serde::de::DeserializeOwned>(
    name: &str,
    value: Option<&Value>,
) -> Result<Option<T>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => serde_json::from_value(value.clone())
            .map(Some)
            .map_err(|error| {
                TextError::unsupported(format!("{name} of type {:?}", kind_of(value)))
                    .caused_by(error)
            }),
    }
}

/// Turns a space that only the first piece of a text gets into one that no piece gets.
fn never_prepend(pre_tokenizer: &mut Value) {
    match pre_tokenizer {
        Value::Object(object) => {
            if let Some(scheme) = object.get_mut("prepend_scheme")
                && *scheme == "first"
            {
                *scheme = Value::from("never");
                object.remove("add_prefix_space");
            }
            object.values_mut().for_each(never_prepend);
        }
        Value::Array(items) => items.iter_mut().for_each(never_prepend),
        _ => {}
    }
}

/// The patterns of a pre-tokenizer that only cuts by patterns and then turns words into byte-level characters.
fn byte_level_patterns(pre_tokenizer: Option<&Value>) -> Option<Vec<String>> {
    let pre_tokenizer = pre_tokenizer?;
    let steps = match kind_of(pre_tokenizer) {
        "Sequence" => pre_tokenizer.get("pretokenizers")?.as_array()?.as_slice(),
        _ => std::slice::from_ref(pre_tokenizer),
    };
    let (last, before) = steps.split_last()?;
    let flag = |step: &Value, key: &str, default: bool| {
        step.get(key).and_then(Value::as_bool).unwrap_or(default)
    };
    let mut patterns = Vec::new();
    for step in before {
        match kind_of(step) {
            "Split" if step.get("behavior")? == "Isolated" && !flag(step, "invert", false) => {
                patterns.push(step.pointer("/pattern/Regex")?.as_str()?.to_owned());
            }
            "Digits" if flag(step, "individual_digits", false) => {
                patterns.push(r"\p{N}".to_owned());
            }
            "Digits" => patterns.push(r"\p{N}+".to_owned()),
            _ => return None,
        }
    }
    if kind_of(last) != "ByteLevel" || flag(last, "add_prefix_space", true) {
        return None;
    }
    if flag(last, "use_regex", true) {
        patterns.push(GPT2.to_owned());
    }
    Some(patterns)
}
