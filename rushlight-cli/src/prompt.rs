//! What a model is asked: a message for its chat template, raw text, or token ids.

use std::path::PathBuf;

use clap::Args;
use rushlight::text::Specials;
use rushlight::{Entry, LocalModel, Transcript};

use crate::failure::Failure;
use crate::input;

/// Where the prompt comes from; stdin where none of these says.
#[derive(Args, Debug)]
#[command(next_help_heading = "Prompt")]
pub(crate) struct PromptArgs {
    /// The prompt [default: stdin]
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["prompt_file", "raw_tokens"])]
    prompt: Option<String>,
    /// A file that holds the prompt; one line break at its end is no part of it (as with stdin)
    #[arg(long, value_name = "FILE", conflicts_with = "raw_tokens")]
    prompt_file: Option<PathBuf>,
    /// Token ids to go on with exactly, for example 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    raw_tokens: Option<Vec<u32>>,
    /// Instructions, put before the prompt as the chat template does
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["raw", "raw_tokens"])]
    system: Option<String>,
    /// Go on with the prompt as it is, without the chat template
    #[arg(long, conflicts_with = "raw_tokens")]
    raw: bool,
}

/// What a model is asked.
#[derive(Debug)]
pub(crate) enum Prompt {
    /// Messages for the chat template.
    Chat(Transcript),
    /// Text to go on with.
    Raw(String),
    /// Ids to go on with.
    Tokens(Vec<u32>),
}

impl PromptArgs {
    /// Reads the prompt. Needs no model, so that a prompt that is none is refused before one loads.
    pub(crate) fn read(&self) -> Result<Prompt, Failure> {
        if let Some(tokens) = &self.raw_tokens {
            return Ok(Prompt::Tokens(tokens.clone()));
        }
        let text = match (&self.prompt, &self.prompt_file) {
            (Some(text), _) => text.clone(),
            (None, Some(path)) => input::without_final_line_break(input::file(path)?),
            (None, None) => input::without_final_line_break(input::stdin("the prompt")?),
        };
        if text.is_empty() {
            return Err(Failure::request("the prompt is empty; give it some text"));
        }
        if self.raw {
            return Ok(Prompt::Raw(text));
        }
        let system = self.system.clone().map(Entry::instructions);
        let entries = system.into_iter().chain([Entry::prompt(text)]).collect();
        Ok(Prompt::Chat(Transcript::from_entries(entries)?))
    }
}

impl Prompt {
    /// The prompt's tokens.
    pub(crate) fn tokens(&self, model: &LocalModel) -> Result<Vec<u32>, Failure> {
        Ok(match self {
            Prompt::Chat(transcript) => model.chat_tokens(transcript)?,
            Prompt::Raw(text) => model.raw_tokens(text)?,
            Prompt::Tokens(tokens) => tokens.clone(),
        })
    }

    /// The tokens of the prompt and of `tail`, which follows it.
    ///
    /// Raw text and its tail are tokenised as one text, and the tail begins with the first token that
    /// the prompt alone does not have: that token may hold the end of the prompt, where the two merge.
    /// After a chat template or ids, whose tokens are settled, the tail's tokens are its own.
    pub(crate) fn with_tail(
        &self,
        model: &LocalModel,
        tail: &str,
    ) -> Result<(Vec<u32>, Vec<u32>), Failure> {
        let mut prompt = self.tokens(model)?;
        let tail = match self {
            Prompt::Raw(text) => {
                let whole = model.raw_tokens(&format!("{text}{tail}"))?;
                let alike = prompt.iter().zip(&whole).take_while(|(a, b)| a == b);
                let start = alike.count();
                prompt.truncate(start);
                whole.into_iter().skip(start).collect()
            }
            Prompt::Chat(_) | Prompt::Tokens(_) => {
                model.tokenizer()?.encode(tail, Specials::AsText)?
            }
        };
        Ok((prompt, tail))
    }

    /// Whether the answer goes on with a text, so that a space before its first word is part of it.
    pub(crate) fn continues(&self) -> bool {
        !matches!(self, Prompt::Chat(_))
    }
}
