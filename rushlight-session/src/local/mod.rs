//! A model on this machine.

mod answer;
mod guided;
mod load;
mod raw;
mod sampling;
mod summary;
mod text;

use std::sync::Arc;
use std::time::Duration;

use rushlight_engine::{CancelToken, Engine, GenerateOptions, TokenText};
use rushlight_grammar::{CompiledGrammar, Compiler, GrammarSource};
use rushlight_ir::backend::Memory;
use rushlight_text::{ChatTemplate, Tokenizer};

use crate::error::{SessionError, SessionErrorKind};
use crate::model::{Availability, Capabilities, Executor, LanguageModel};
use crate::options::{GenerationOptions, SamplingMode};
use crate::transcript::Transcript;
use answer::LocalExecutor;
use guided::Grammars;

pub use guided::vocabulary;
pub use load::LoadOptions;
pub use raw::Completion;
pub use summary::Summary;
pub use text::Text;

/// A loaded model: engine, tokenizer and template over one checkpoint, shared by any number of
/// sessions.
///
/// Sessions are the way to talk to it. Its parts are open to callers who need tokens, logits or raw
/// text: [`engine`](LocalModel::engine) runs them, and
/// [`generate_options`](LocalModel::generate_options) says what a session would ask of it.
#[derive(Debug)]
pub struct LocalModel {
    summary: Summary,
    engine: Engine,
    text: Option<Text>,
    stop_tokens: Vec<u32>,
    grammars: Grammars,
    load_time: Duration,
}

impl LocalModel {
    /// What the model is.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What runs it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Its tokenizer.
    ///
    /// # Errors
    /// [`SessionErrorKind::NoTokenizer`] where the checkpoint has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer, SessionError> {
        self.text().map(Text::tokenizer)
    }

    /// Its chat template.
    ///
    /// # Errors
    /// [`SessionErrorKind::NoTemplate`] where the checkpoint has none, as base models have none;
    /// raw text can be completed with [`Completion`].
    pub fn template(&self) -> Result<&ChatTemplate, SessionError> {
        self.text()?.template()
    }

    /// Ids that end an answer, sorted: those of the generation defaults and of the tokenizer.
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop_tokens
    }

    /// How the model's makers would have it sampled; what a request replaces that sets
    /// [`sampling`](GenerationOptions::sampling).
    pub fn default_sampling(&self) -> SamplingMode {
        sampling::default_mode(&self.summary.generation)
    }

    /// Bytes that the model holds, and that sequences take.
    pub fn memory(&self) -> Memory {
        self.engine.memory()
    }

    /// How long loading took, from opening the file to being able to answer.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }

    /// The tokens of a conversation as the model was taught to read it, up to where its answer
    /// begins. Content is tokenised as text and cannot become control tokens.
    ///
    /// # Errors
    /// [`SessionErrorKind::NoTokenizer`], [`SessionErrorKind::NoTemplate`],
    /// [`SessionErrorKind::InstructionsUnsupported`], or [`SessionErrorKind::Template`] in the
    /// template's own words.
    pub fn chat_tokens(&self, transcript: &Transcript) -> Result<Vec<u32>, SessionError> {
        self.text()?.chat_tokens(transcript)
    }

    /// The tokens of raw text, begun as the model wants texts begun (with BOS, where it has one).
    ///
    /// # Errors
    /// [`SessionErrorKind::NoTokenizer`]; [`SessionErrorKind::Unspellable`].
    pub fn raw_tokens(&self, text: &str) -> Result<Vec<u32>, SessionError> {
        self.text()?.raw_tokens(text)
    }

    /// Makes text of tokens as they come; `None` where the checkpoint has no tokenizer. A text that
    /// goes on (`continues`) keeps the space that SentencePiece puts before its first word; an answer
    /// does not begin with it.
    pub fn token_text(&self, continues: bool) -> Option<Box<dyn TokenText>> {
        self.text.as_ref().map(|text| text.token_text(continues))
    }

    /// The compiler of grammars for this model's tokenizer. It keeps what it compiled, for every
    /// session. The first call builds the tokenizer's tables: some tenths of a second.
    ///
    /// # Errors
    /// [`SessionErrorKind::NoTokenizer`]; [`SessionErrorKind::Grammar`] for a tokenizer that the
    /// tables have no room for.
    pub fn grammars(&self) -> Result<Compiler, SessionError> {
        let logits = self.engine.vocab().width();
        self.grammars
            .compiler(self.text()?, logits, &self.stop_tokens)
    }

    /// Compiles a grammar ahead of the request that needs it, or finds it compiled.
    ///
    /// # Errors
    /// [`SessionErrorKind::Grammar`] with every problem of the source, each with its place;
    /// [`SessionErrorKind::Cancelled`]; those of [`grammars`](LocalModel::grammars).
    pub fn compile(
        &self,
        source: &GrammarSource,
        cancel: &CancelToken,
    ) -> Result<Arc<CompiledGrammar>, SessionError> {
        Ok(self.grammars()?.compile(source, cancel)?)
    }

    /// What a session with these options asks of the engine: sampling with the model's defaults
    /// filled in, stop tokens and strings, the constraint of its grammar, and an answer's text made
    /// of the tokens. Without a tokenizer the answer is its ids, and has no text. `cancel` ends the
    /// generation, and the compiling of the grammar before it.
    ///
    /// # Errors
    /// [`SessionErrorKind::InvalidOption`] naming the field; [`SessionErrorKind::Grammar`],
    /// [`SessionErrorKind::Cancelled`], and [`SessionErrorKind::NoTokenizer`] where a grammar has none
    /// to go by.
    pub fn generate_options(
        &self,
        options: &GenerationOptions,
        cancel: &CancelToken,
    ) -> Result<GenerateOptions, SessionError> {
        if options.maximum_response_tokens == Some(0) {
            let field = "maximum_response_tokens";
            return Err(SessionError::new(
                SessionErrorKind::InvalidOption { field },
                format!("{field} is 0; it must be at least 1"),
            ));
        }
        let sampling = sampling::resolve(options, &self.summary.generation);
        sampling.check(self.engine.vocab())?;
        let mut stop_strings = self.summary.generation.stop_strings.clone();
        for text in &options.stop_strings {
            if !stop_strings.contains(text) {
                stop_strings.push(text.clone());
            }
        }
        Ok(GenerateOptions {
            max_tokens: options.maximum_response_tokens,
            sampling,
            stop_tokens: self.stop_tokens.clone(),
            stop_strings,
            // A grammar speaks of every space, a first one too.
            text: self.token_text(options.grammar.is_some()),
            constraint: guided::constraint(options, cancel, || self.grammars())?,
            sample_forced: options.sample_forced,
            cancel: cancel.clone(),
            ..GenerateOptions::default()
        })
    }

    fn text(&self) -> Result<&Text, SessionError> {
        self.text.as_ref().ok_or_else(|| {
            let path = self.summary.source.path.display();
            SessionError::new(
                SessionErrorKind::NoTokenizer,
                format!(
                    "{path}: the checkpoint has no tokenizer, so it can only be given token ids"
                ),
            )
        })
    }
}

impl LanguageModel for LocalModel {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            guided_generation: self.text.is_some(),
            ..Capabilities::default()
        }
    }

    /// Always [`Available`](Availability::Available): a model that is loaded needs nothing further.
    fn availability(&self) -> Availability {
        Availability::Available
    }

    fn executor(self: Arc<Self>) -> Result<Box<dyn Executor>, SessionError> {
        Ok(Box::new(LocalExecutor::new(self)?))
    }
}
