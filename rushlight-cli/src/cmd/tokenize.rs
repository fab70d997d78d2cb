//! `rushlight tokenize`: text to token ids. Loads no weights.

use std::path::PathBuf;

use clap::Args;
use rushlight::text::Specials;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::input;
use crate::load;
use crate::output::Out;
use crate::report::piece;

#[derive(Args, Debug)]
pub(crate) struct TokenizeArgs {
    /// A .gguf file, a checkpoint directory, or the name of a model in the store
    #[arg(long, short, value_name = "MODEL")]
    model: String,
    /// The text [default: stdin]
    #[arg(conflicts_with = "file", allow_hyphen_values = true)]
    text: Option<String>,
    /// A file that holds the text, every byte of it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Take the spellings of control tokens for the tokens, instead of for text
    #[arg(long)]
    special: bool,
    /// Put no BOS first, also where the model has one
    #[arg(long)]
    no_bos: bool,
}

pub(crate) fn run(args: &TokenizeArgs, out: &Out) -> Result<(), Failure> {
    let text = match (&args.text, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => input::file(path)?,
        (None, None) => input::stdin("the text")?,
    };
    let model = load::text(&args.model)?;
    let tokenizer = model.tokenizer();
    let specials = if args.special {
        Specials::Recognised
    } else {
        Specials::AsText
    };
    let ids = if args.no_bos {
        tokenizer.encode(&text, specials)?
    } else {
        tokenizer.encode_prompt(&text, specials)?
    };
    if out.is_json() {
        let pieces = ids.iter().map(|&id| {
            json!({
                "id": id,
                "piece": piece(tokenizer, id),
                "control": tokenizer.is_control(id),
            })
        });
        return out.json(&json!({
            "tokens": ids,
            "count": ids.len(),
            "pieces": pieces.collect::<Vec<Value>>(),
        }));
    }
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    out.line(ids.join(" "))
}
