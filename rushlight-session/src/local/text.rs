//! A model's text side: tokenizer and chat template, made of what the checkpoint carries.

use rushlight_asset::{GgufTokenizer, TokenizerSource};
use rushlight_engine::TokenText;
use rushlight_engine::sample::SampleVocab;
use rushlight_text::{
    ChatTemplate, Detokenizer, DetokenizerOptions, GgufVocabulary, RenderRequest, Specials,
    TemplateSource, Tokenizer,
};
use serde_json::{Value, json};

use crate::error::{SessionError, SessionErrorKind};
use crate::transcript::{Entry, Transcript};

/// Tokenizer and chat template of one model, which need no weights.
#[derive(Debug)]
pub struct Text {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    /// Whether instructions reach the prompt.
    takes_instructions: bool,
    /// Whether the template shows content only where it comes as a list of parts.
    wants_parts: bool,
}

impl Text {
    /// Builds both from what a checkpoint carries; `None` where it has no tokenizer.
    ///
    /// # Errors
    /// [`SessionErrorKind::Tokenizer`] and [`SessionErrorKind::Template`], as loading would meet them.
    pub fn open(source: &TokenizerSource) -> Result<Option<Text>, SessionError> {
        let tokenizer = match source {
            TokenizerSource::None => return Ok(None),
            TokenizerSource::Files {
                tokenizer_json,
                tokenizer_config,
            } => Tokenizer::from_files(tokenizer_json, tokenizer_config.as_deref()),
            TokenizerSource::Gguf(gguf) => Tokenizer::from_gguf(vocabulary(gguf)?),
        }
        .map_err(SessionError::tokenizer)?;
        let template = match source {
            TokenizerSource::Gguf(gguf) => templates(gguf)
                .map(|source| ChatTemplate::new(&source, tokenizer.template_tokens()))
                .transpose(),
            _ => tokenizer.chat_template(),
        }
        .map_err(SessionError::template)?;
        let can = template
            .as_ref()
            .map(ChatTemplate::capabilities)
            .unwrap_or_default();
        Ok(Some(Text {
            takes_instructions: can.system,
            wants_parts: can.content_parts && !can.string_content,
            tokenizer,
            template,
        }))
    }

    /// What may be sampled of a row of `width` logits, over an embedding table of `rows` rows.
    ///
    /// A tokenizer may know fewer ids than the table has rows (padding, which is never sampled), and
    /// control tokens without a row, which text cannot contain. An ordinary token without a row
    /// means that tokenizer and weights are not of one model.
    pub(super) fn sample_vocab(
        &self,
        rows: usize,
        width: usize,
    ) -> Result<SampleVocab, SessionError> {
        let size = self.tokenizer.vocab_size();
        // Tokenizers keep their ids below 2^24.
        let ids = |from: usize| from as u32..size as u32;
        if ids(rows).any(|id| !self.tokenizer.is_control(id) && !self.tokenizer.is_unused(id)) {
            return Err(SessionError::new(
                SessionErrorKind::VocabularyMismatch {
                    tokenizer: size,
                    rows,
                },
                format!(
                    "the tokenizer has {size} ids and the embedding table {rows} rows; \
                     they are not of one model"
                ),
            ));
        }
        let unused: Vec<u32> = ids(0).filter(|&id| self.tokenizer.is_unused(id)).collect();
        Ok(SampleVocab::new(size, width, &unused)?)
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template.
    ///
    /// # Errors
    /// [`SessionErrorKind::NoTemplate`] where the checkpoint has none.
    pub fn template(&self) -> Result<&ChatTemplate, SessionError> {
        self.template.as_ref().ok_or_else(|| {
            SessionError::new(
                SessionErrorKind::NoTemplate,
                "the model has no chat template, so it cannot take messages; \
                 it can go on with raw text (`rushlight run --raw`; in Rust, `Completion`)",
            )
        })
    }

    pub(super) fn stop_tokens(&self) -> impl Iterator<Item = u32> + use<> {
        self.tokenizer.stop_ids().into_iter()
    }

    pub(super) fn chat_tokens(&self, transcript: &Transcript) -> Result<Vec<u32>, SessionError> {
        let messages = messages(transcript, self.wants_parts);
        let rendered = self
            .template()?
            .render(&RenderRequest::new(&messages))
            .map_err(SessionError::template)?;
        if transcript.instructions().is_some() && !self.takes_instructions {
            return Err(SessionError::new(
                SessionErrorKind::InstructionsUnsupported,
                "the model's chat template leaves instructions out; put them into the prompt",
            ));
        }
        self.tokenizer
            .encode_rendered(&rendered)
            .map_err(SessionError::template)
    }

    pub(super) fn raw_tokens(&self, text: &str) -> Result<Vec<u32>, SessionError> {
        self.tokenizer
            .encode_prompt(text, Specials::AsText)
            .map_err(SessionError::template)
    }

    /// Makes text of an answer's tokens. `continues` keeps the space before the first word, which
    /// belongs to a text that goes on and not to an answer.
    pub(super) fn token_text(&self, continues: bool) -> Box<dyn TokenText> {
        Box::new(Words(self.tokenizer.detokenizer(DetokenizerOptions {
            show_control: false,
            continues,
        })))
    }
}

struct Words(Detokenizer);

impl TokenText for Words {
    fn push(&mut self, token: u32) -> String {
        // An id that the tokenizer does not know is never sampled; forced, it has no text.
        self.0.push(token).unwrap_or_default()
    }

    fn finish(&mut self) -> String {
        self.0.finish()
    }
}

/// A transcript as chat templates take it: instructions, prompts and responses are the messages of
/// `system`, `user` and `assistant`, each with its content as one string or as one part in a list.
fn messages(transcript: &Transcript, parts: bool) -> Value {
    let messages = transcript.entries().iter().map(|entry| {
        let role = match entry {
            Entry::Instructions { .. } => "system",
            Entry::Prompt { .. } => "user",
            Entry::Response { .. } => "assistant",
        };
        let text = entry.text();
        let content = if parts {
            json!([{"type": "text", "text": text}])
        } else {
            Value::String(text)
        };
        json!({"role": role, "content": content})
    });
    Value::Array(messages.collect())
}

/// A GGUF file's tokenizer as the text crate takes it.
fn vocabulary(gguf: &GgufTokenizer) -> Result<GgufVocabulary, SessionError> {
    // Both belong to unigram models; a model that reads text without them reads other text.
    let unhonoured = [
        (
            "precompiled_charsmap",
            gguf.precompiled_charsmap
                .as_ref()
                .is_some_and(|map| !map.is_empty()),
        ),
        (
            "remove_extra_whitespaces",
            gguf.remove_extra_whitespaces == Some(true),
        ),
    ];
    if let Some((key, _)) = unhonoured.iter().find(|(_, there)| *there) {
        return Err(SessionError::new(
            SessionErrorKind::Tokenizer,
            format!("`tokenizer.ggml.{key}` asks for a text normaliser that is not implemented"),
        ));
    }
    Ok(GgufVocabulary {
        model: gguf.model.clone(),
        pre: gguf.pre.clone(),
        tokens: gguf.tokens.clone(),
        scores: gguf.scores.clone(),
        token_types: gguf.token_types.clone(),
        merges: gguf.merges.clone(),
        bos: gguf.bos,
        eos: gguf.eos,
        eot: gguf.eot,
        eom: gguf.eom,
        unk: gguf.unk,
        pad: gguf.pad,
        add_bos: gguf.add_bos,
        add_eos: gguf.add_eos,
        add_space_prefix: gguf.add_space_prefix,
        chat_template: gguf.chat_template.clone(),
    })
}

/// A GGUF file's templates, the default one and those with names of their own.
fn templates(gguf: &GgufTokenizer) -> Option<TemplateSource> {
    let default = gguf
        .chat_template
        .iter()
        .map(|source| ("default".to_owned(), source.clone()));
    let named: Vec<_> = default
        .chain(gguf.named_chat_templates.iter().cloned())
        .collect();
    (!named.is_empty()).then_some(TemplateSource::Named(named))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::Segment;

    /// FM-1: instructions, prompt and response become system, user and assistant.
    #[test]
    fn entries_become_messages() {
        let transcript = Transcript::from_entries(vec![
            Entry::instructions("Be brief."),
            Entry::Prompt {
                segments: vec![Segment::text("Hello"), Segment::text("world")],
            },
            Entry::response("Hi"),
        ])
        .unwrap();
        let expected = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello\nworld"},
            {"role": "assistant", "content": "Hi"},
        ]);
        assert_eq!(messages(&transcript, false), expected);
        assert_eq!(messages(&Transcript::new(), false), json!([]));
    }

    /// A vocabulary of the first `count` letters, whose ids are their places in the alphabet.
    fn words(count: usize) -> GgufTokenizer {
        GgufTokenizer {
            model: "llama".to_owned(),
            tokens: ('a'..='z').take(count).map(String::from).collect(),
            token_types: Some(vec![1; count]),
            scores: Some(vec![0.0; count]),
            add_space_prefix: Some(false),
            add_bos: Some(false),
            ..GgufTokenizer::default()
        }
    }

    fn open(gguf: GgufTokenizer) -> Result<Text, SessionError> {
        Text::open(&TokenizerSource::Gguf(Box::new(gguf))).map(Option::unwrap)
    }

    #[test]
    fn an_ordinary_token_without_an_embedding_is_a_mismatch_and_a_control_token_is_not() {
        let text = open(words(5)).unwrap();
        let error = text.sample_vocab(4, 4).unwrap_err();
        let expected = SessionErrorKind::VocabularyMismatch {
            tokenizer: 5,
            rows: 4,
        };
        assert_eq!(error.kind(), &expected);
        let message = error.to_string();
        assert!(
            message.contains("5 ids") && message.contains("4 rows"),
            "{message}"
        );
        // Gemma 3's text checkpoints: the image token has an id and no row.
        let mut gguf = words(5);
        gguf.tokens[4] = "<image>".to_owned();
        gguf.token_types = Some(vec![1, 1, 1, 1, 3]);
        let vocab = open(gguf).unwrap().sample_vocab(4, 4).unwrap();
        assert!(vocab.allows(3) && !vocab.allows(4));
    }

    #[test]
    fn padding_rows_and_unused_ids_are_never_sampled() {
        let mut gguf = words(5);
        gguf.token_types = Some(vec![1, 1, 5, 1, 1]);
        let vocab = open(gguf).unwrap().sample_vocab(8, 8).unwrap();
        let legal: Vec<u32> = (0..8).filter(|&id| vocab.allows(id)).collect();
        assert_eq!(legal, [0, 1, 3, 4]);
    }

    #[test]
    fn a_normaliser_that_is_not_there_is_refused_by_name() {
        let mut gguf = words(3);
        gguf.precompiled_charsmap = Some(vec![1]);
        let error = open(gguf).unwrap_err();
        assert!(
            error.to_string().contains("precompiled_charsmap"),
            "{error}"
        );
    }

    #[test]
    fn a_model_without_a_template_says_what_to_do() {
        let text = open(words(3)).unwrap();
        let transcript = Transcript::from_entries(vec![Entry::prompt("abc")]).unwrap();
        let error = text.chat_tokens(&transcript).unwrap_err();
        assert_eq!(error.kind(), &SessionErrorKind::NoTemplate);
        assert!(error.to_string().contains("raw text"), "{error}");
        assert_eq!(text.raw_tokens("cab").unwrap(), [2, 0, 1]);
    }

    #[test]
    fn a_template_that_reads_parts_gets_parts() {
        let mut gguf = words(26);
        let parts =
            "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
        gguf.chat_template = Some(parts.to_owned());
        let transcript = Transcript::from_entries(vec![Entry::prompt("hi")]).unwrap();
        let tokens = open(gguf).unwrap().chat_tokens(&transcript).unwrap();
        assert_eq!(tokens, [7, 8]);
    }

    #[test]
    fn instructions_are_refused_where_the_template_drops_them() {
        let mut gguf = words(26);
        let user_only = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
        gguf.chat_template = Some(user_only.to_owned());
        let text = open(gguf.clone()).unwrap();
        let hello = |instructions: bool| {
            let system = instructions.then(|| Entry::instructions("be"));
            let entries = system.into_iter().chain([Entry::prompt("hello")]);
            Transcript::from_entries(entries.collect()).unwrap()
        };
        assert_eq!(text.chat_tokens(&hello(false)).unwrap().len(), 5);
        let error = text.chat_tokens(&hello(true)).unwrap_err();
        assert_eq!(error.kind(), &SessionErrorKind::InstructionsUnsupported);
        // A template that refuses them does so in its own words.
        let raising = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}x";
        gguf.chat_template = Some(raising.to_owned());
        let error = open(gguf).unwrap().chat_tokens(&hello(true)).unwrap_err();
        assert_eq!(error.kind(), &SessionErrorKind::Template);
        assert!(error.to_string().contains("no system here"), "{error}");
        assert_eq!(error.fault(), rushlight_engine::Fault::Request);
    }
}
