//! Tokenizers: text to ids and ids to bytes, from a `tokenizer.json` or a GGUF file's metadata.

mod added;
mod bytes;
mod config;
mod gguf;
mod hub;
mod pieces;
mod pretokenize;
mod spm;
mod vocabulary;

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use added::{AddedToken, AddedTokens, Stretch};
use bytes::Spelling;
pub use config::{DeclaredToken, TokenizerConfig};
pub use gguf::GgufVocabulary;
use pieces::Pieces;
use vocabulary::{Entry, TokenKind, Vocabulary};

use crate::detokenize::{Detokenizer, DetokenizerOptions};
use crate::error::{Result, TextError, TextErrorKind};
use crate::markers;
use crate::template::{ChatTemplate, Rendered, TemplateSource, TemplateTokens};

/// Larger tokenizer files than this are refused, in bytes.
const MAX_FILE: u64 = 512 << 20;

/// Whether the spellings of control tokens in a text mean those tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Specials {
    /// The text is content: `<|im_end|>` in it is ten characters. No control id comes out, whatever the text.
    AsText,
    /// The text is a prompt of the program's own making: every added token's spelling means the token.
    Recognised,
}

/// A model's tokenizer. Cloning is cheap: clones share the vocabulary.
///
/// **Control tokens** are the added tokens marked special (in GGUF: of type control) and, whatever their mark, the
/// reasoning, tool and turn markers of chat protocols (see [`markers`]). Other added tokens, like Gemma's runs of
/// newlines, are ordinary text.
#[derive(Clone, Debug)]
pub struct Tokenizer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    vocabulary: Vocabulary,
    added: AddedTokens,
    pieces: Pieces,
    policy: Policy,
    roles: Roles,
    /// What the vocabulary's model makes of a character that it cannot spell.
    unknown: Option<u32>,
    extra_stops: BTreeSet<u32>,
    special: Vec<(String, String)>,
    template: Option<TemplateSource>,
}

/// What a source says about the ends of texts.
#[derive(Clone, Copy, Debug)]
struct Policy {
    add_bos: bool,
    add_eos: bool,
    /// The vocabulary puts a space before a text, so decoding takes one away.
    strip_leading_space: bool,
}

/// What a source is read into.
struct Parts {
    entries: Vec<Entry>,
    spelling: Spelling,
    added: Vec<AddedToken>,
    pieces: Pieces,
    /// The spelling of what the model makes of a character that it cannot spell.
    unknown: Option<String>,
    policy: Policy,
}

/// Ids by role.
#[derive(Clone, Copy, Debug, Default)]
struct Roles {
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    eom: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
}

impl Tokenizer {
    /// Reads a `tokenizer.json` and, if given, a `tokenizer_config.json`, and what lies beside the `tokenizer.json`.
    ///
    /// As in `transformers`, a `special_tokens_map.json` adds the special tokens that the configuration lacks; a
    /// `chat_template.jinja` is the chat template `default`, each `additional_chat_templates/NAME.jinja` one of that
    /// name, and with any of them the configuration's count no more. A `chat_template.json`, which `transformers`
    /// reads for processors, serves where neither has a template.
    ///
    /// # Errors
    /// [`TextErrorKind::Io`], [`TextErrorKind::TooLarge`] (512 MiB), [`TextErrorKind::Malformed`] with the line and
    /// column, or [`TextErrorKind::Unsupported`] naming the component and those that are known.
    pub fn from_files(tokenizer_json: &Path, tokenizer_config: Option<&Path>) -> Result<Self> {
        let mut config = match tokenizer_config {
            Some(path) => {
                TokenizerConfig::from_json(&read(path)?).map_err(|error| error.in_file(path))?
            }
            None => TokenizerConfig::default(),
        };
        let directory = tokenizer_json.parent().unwrap_or(Path::new(""));
        let map = directory.join("special_tokens_map.json");
        if map.is_file() {
            config
                .complete(&read(&map)?)
                .map_err(|error| error.in_file(&map))?;
        }
        if let Some(source) = template_files(directory)? {
            config.chat_template = Some(source);
        } else if config.chat_template.is_none() {
            config.chat_template = processor_template(&directory.join("chat_template.json"))?;
        }
        Self::from_json(&read(tokenizer_json)?, &config)
            .map_err(|error| error.in_file(tokenizer_json))
    }

    /// Makes a tokenizer from the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// As [`from_files`](Self::from_files), except that no file is read.
    pub fn from_json(tokenizer_json: &str, config: &TokenizerConfig) -> Result<Self> {
        let (parts, first_token) = hub::parts(tokenizer_json, config)?;
        Self::new(parts, config, |tokenizer| {
            let id = |role| tokenizer.id_of(config.special_token(role)?);
            Roles {
                bos: id("bos_token").or_else(|| tokenizer.id_of(first_token.as_deref()?)),
                eos: id("eos_token"),
                eot: id("eot_token"),
                eom: id("eom_token"),
                unk: id("unk_token"),
                pad: id("pad_token"),
            }
        })
    }

    /// Makes a tokenizer from a GGUF file's metadata.
    ///
    /// # Errors
    /// [`TextErrorKind::Malformed`] where lengths, ids or merges contradict each other;
    /// [`TextErrorKind::Unsupported`] for a model type or pre-tokenizer name that is not known, listing those that are.
    pub fn from_gguf(vocabulary: GgufVocabulary) -> Result<Self> {
        let parts = gguf::parts(&vocabulary)?;
        let roles = Roles {
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            eot: vocabulary.eot,
            eom: vocabulary.eom,
            unk: vocabulary.unk,
            pad: vocabulary.pad,
        };
        let spelled = |id: Option<u32>| vocabulary.tokens.get(id? as usize).cloned();
        let special = [
            ("bos_token", roles.bos),
            ("eos_token", roles.eos),
            ("unk_token", roles.unk),
            ("pad_token", roles.pad),
        ];
        let config = TokenizerConfig {
            special: special
                .into_iter()
                .filter_map(|(role, id)| Some((role.to_owned(), spelled(id)?)))
                .collect(),
            turn_ends: [spelled(roles.eot), spelled(roles.eom)]
                .into_iter()
                .flatten()
                .collect(),
            chat_template: vocabulary.chat_template.clone().map(TemplateSource::One),
            ..TokenizerConfig::default()
        };
        Self::new(parts, &config, |_| roles)
    }

    /// The ids of a text, without BOS or EOS.
    ///
    /// # Errors
    /// [`TextErrorKind::Unspellable`] if the vocabulary has no way to write a character of the text.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>> {
        let stretches = match specials {
            Specials::AsText => self.0.added.split_text(text),
            Specials::Recognised => self.0.added.split_marked(text, &[]),
        };
        self.encode_stretches(&stretches)
    }

    /// The ids of a rendered chat template, with exactly one BOS where the model has one.
    ///
    /// Control tokens are recognised except where they touch content ([`Rendered::literal`]); everything between two
    /// recognised tokens is encoded as one text, so that marking content changes no id of a prompt whose content
    /// spells no control token.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>> {
        let stretches = self.0.added.split_marked(&rendered.text, &rendered.literal);
        let ids = self.encode_stretches(&stretches)?;
        Ok(self.with_bos(ids))
    }

    /// The ids of a prompt that is no chat, with exactly one BOS where the model has one.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str, specials: Specials) -> Result<Vec<u32>> {
        Ok(self.with_bos(self.encode(text, specials)?))
    }

    /// Puts BOS first if the model wants it and it is not there already.
    pub fn with_bos(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let Some(bos) = self.bos().filter(|_| self.add_bos())
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// The text of ids; bytes that are no UTF-8 become U+FFFD.
    ///
    /// With `skip_control`, control tokens leave no text; otherwise they show as they are spelled.
    ///
    /// # Errors
    /// [`TextErrorKind::UnknownToken`].
    pub fn decode(&self, ids: &[u32], skip_control: bool) -> Result<String> {
        let mut detokenizer = self.detokenizer(DetokenizerOptions {
            show_control: !skip_control,
            continues: false,
        });
        let mut text = String::new();
        for &id in ids {
            text.push_str(&detokenizer.push(id)?);
        }
        text.push_str(&detokenizer.finish());
        Ok(text)
    }

    /// A streaming decoder.
    pub fn detokenizer(&self, options: DetokenizerOptions) -> Detokenizer {
        Detokenizer::new(self.clone(), options)
    }

    /// One more than the highest id; some ids below it may have no token.
    pub fn vocab_size(&self) -> usize {
        self.0.vocabulary.len()
    }

    /// The bytes that a token adds to the output: raw, possibly a part of a character. A control token's are its
    /// spelling. `None` if no token has this id.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.0.vocabulary.bytes(id)
    }

    /// The id of a token, as the vocabulary spells it (`Ġthe`, `▁the`, `<|im_end|>`).
    pub fn id_of(&self, spelling: &str) -> Option<u32> {
        self.0.vocabulary.id_of(spelling)
    }

    /// The id of a control token of this spelling.
    pub fn control_id(&self, spelling: &str) -> Option<u32> {
        self.id_of(spelling).filter(|id| self.is_control(*id))
    }

    /// Whether the token steers the model: such a token never comes out of [`Specials::AsText`] and is no text of an
    /// answer. Unused tokens count.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(
            self.0.vocabulary.kind(id),
            TokenKind::Control | TokenKind::Unused
        )
    }

    /// Whether the id has no meaning, as a reserved slot or a hole in the vocabulary: it must not be sampled.
    pub fn is_unused(&self, id: u32) -> bool {
        matches!(
            self.0.vocabulary.kind(id),
            TokenKind::Unused | TokenKind::Absent
        )
    }

    /// Begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.0.roles.bos
    }

    /// Ends a text, and in chat models a turn.
    pub fn eos(&self) -> Option<u32> {
        self.0.roles.eos
    }

    /// Ends a turn.
    pub fn eot(&self) -> Option<u32> {
        self.0.roles.eot
    }

    /// Ends a message within a turn (Llama 3's `<|eom_id|>`).
    pub fn eom(&self) -> Option<u32> {
        self.0.roles.eom
    }

    /// Stands for what the vocabulary cannot spell.
    pub fn unk(&self) -> Option<u32> {
        self.0.roles.unk
    }

    /// Fills batches.
    pub fn pad(&self) -> Option<u32> {
        self.0.roles.pad
    }

    /// Whether the model wants BOS before a prompt.
    pub fn add_bos(&self) -> bool {
        self.0.policy.add_bos
    }

    /// Whether the model wants EOS after an encoded text. For embedding models; a prompt to be continued has none.
    pub fn add_eos(&self) -> bool {
        self.0.policy.add_eos
    }

    /// Ids that end generation besides [`eos`](Self::eos): the turn ends that the configuration names, and control
    /// tokens known to end turns.
    pub fn extra_stop_ids(&self) -> &BTreeSet<u32> {
        &self.0.extra_stops
    }

    /// Every id that ends generation.
    pub fn stop_ids(&self) -> BTreeSet<u32> {
        self.0
            .extra_stops
            .iter()
            .copied()
            .chain(self.eos())
            .collect()
    }

    /// Special tokens by role, in the configuration's order, as a chat template sees them.
    pub fn special_tokens(&self) -> &[(String, String)] {
        &self.0.special
    }

    /// The spellings of all control tokens.
    pub fn control_spellings(&self) -> impl Iterator<Item = &str> {
        self.0.added.control_spellings()
    }

    /// The source of the model's chat template.
    pub fn chat_template_source(&self) -> Option<&TemplateSource> {
        self.0.template.as_ref()
    }

    /// The model's chat template, ready to render; `None` if it has none.
    ///
    /// # Errors
    /// [`TextErrorKind::TemplateSyntax`].
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        self.chat_template_source()
            .map(|source| ChatTemplate::new(source, self.template_tokens()))
            .transpose()
    }

    /// What a chat template needs to know of the vocabulary.
    pub fn template_tokens(&self) -> TemplateTokens {
        TemplateTokens {
            special: self.0.special.clone(),
            control: self.control_spellings().map(str::to_owned).collect(),
        }
    }

    pub(crate) fn strips_leading_space(&self) -> bool {
        self.0.policy.strip_leading_space
    }

    fn new(
        parts: Parts,
        config: &TokenizerConfig,
        roles: impl FnOnce(&Vocabulary) -> Roles,
    ) -> Result<Self> {
        let vocabulary = Vocabulary::new(parts.entries, parts.spelling)?;
        let added = AddedTokens::new(parts.added)?;
        let roles = roles(&vocabulary);
        let unknown = parts
            .unknown
            .and_then(|spelling| vocabulary.id_of(&spelling));
        let control_id = |spelling: &str| {
            vocabulary
                .id_of(spelling)
                .filter(|id| vocabulary.kind(*id) == TokenKind::Control)
        };
        let extra_stops = config
            .turn_ends
            .iter()
            .filter_map(|spelling| vocabulary.id_of(spelling))
            .chain(roles.eot)
            .chain(roles.eom)
            .chain(markers::turn_ends(control_id))
            .filter(|id| Some(*id) != roles.eos)
            .collect();
        Ok(Self(Arc::new(Inner {
            vocabulary,
            added,
            pieces: parts.pieces,
            policy: parts.policy,
            roles,
            unknown,
            extra_stops,
            special: config.special.clone(),
            template: config.chat_template.clone(),
        })))
    }

    fn encode_stretches(&self, stretches: &[Stretch<'_>]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for (index, stretch) in stretches.iter().enumerate() {
            match stretch {
                Stretch::Token(id) => ids.push(*id),
                Stretch::Plain(text) => {
                    let from = ids.len();
                    self.0.pieces.encode(text, index == 0, &mut ids)?;
                    self.check_plain(&ids, from..ids.len())?;
                }
            }
        }
        Ok(ids)
    }

    /// The last line of the promise that text cannot become a control token. The unknown token is no exception to
    /// it: it says that something could not be spelled, and steers nothing.
    fn check_plain(&self, ids: &[u32], range: Range<usize>) -> Result<()> {
        let found = ids
            .get(range)
            .into_iter()
            .flatten()
            .find(|id| self.is_control(**id) && Some(**id) != self.0.unknown);
        match found {
            None => Ok(()),
            Some(id) => Err(TextError::new(
                TextErrorKind::Unspellable,
                format!("the vocabulary's model made the control token {id} from plain text"),
            )),
        }
    }
}

fn read(path: &Path) -> Result<String> {
    let failed = |error: std::io::Error| {
        TextError::new(TextErrorKind::Io, format!("cannot be read: {error}"))
            .in_file(path)
            .caused_by(error)
    };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > MAX_FILE {
        return Err(TextError::new(
            TextErrorKind::TooLarge,
            format!("{size} bytes are more than the limit of {MAX_FILE}"),
        )
        .in_file(path));
    }
    fs::read_to_string(path).map_err(failed)
}

/// The chat templates that lie beside the tokenizer as files.
fn template_files(directory: &Path) -> Result<Option<TemplateSource>> {
    let main = directory.join("chat_template.jinja");
    let mut named = Vec::new();
    if main.is_file() {
        named.push(("default".to_owned(), read(&main)?));
    }
    if let Ok(entries) = fs::read_dir(directory.join("additional_chat_templates")) {
        for entry in entries {
            let path = entry
                .map_err(|error| {
                    TextError::new(TextErrorKind::Io, format!("cannot be read: {error}"))
                        .in_file(directory)
                        .caused_by(error)
                })?
                .path();
            if path
                .extension()
                .is_some_and(|extension| extension == "jinja")
                && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
            {
                named.push((name.to_owned(), read(&path)?));
            }
        }
    }
    Ok((!named.is_empty()).then_some(TemplateSource::Named(named)))
}

/// The template of a `chat_template.json`, an object with that one field.
fn processor_template(path: &Path) -> Result<Option<TemplateSource>> {
    if !path.is_file() {
        return Ok(None);
    }
    let malformed = |error: serde_json::Error| {
        TextError::malformed("not an object with a chat_template")
            .at("chat_template.json", Some((error.line(), error.column())))
            .caused_by(error)
    };
    let read = |json: String| {
        let mut object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&json).map_err(malformed)?;
        TemplateSource::from_json(object.remove("chat_template").unwrap_or_default())
    };
    read(self::read(path)?).map_err(|error| error.in_file(path))
}
