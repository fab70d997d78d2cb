//! `rushlight template`: messages through a model's chat template. Loads no weights.

use std::path::{Path, PathBuf};

use clap::Args;
use rushlight::text::RenderRequest;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::input;
use crate::load;
use crate::output::Out;

#[derive(Args, Debug)]
pub(crate) struct TemplateArgs {
    /// A .gguf file, a checkpoint directory, or the name of a model in the store
    #[arg(long, short, value_name = "MODEL")]
    model: String,
    /// A JSON file with the list of messages [default: stdin]
    #[arg(value_name = "MESSAGES")]
    messages: Option<PathBuf>,
    /// A JSON file with a list of tool definitions
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Do not begin the assistant's turn
    #[arg(long)]
    no_generation_prompt: bool,
    /// A variable for the template, its value in JSON, for example enable_thinking=false; may be given
    /// several times
    #[arg(long, value_name = "K=JSON", value_parser = variable)]
    kwarg: Vec<(String, Value)>,
    /// The template to use, where the model has several
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

pub(crate) fn run(args: &TemplateArgs, out: &Out) -> Result<(), Failure> {
    let messages = match &args.messages {
        Some(path) => parse(&input::file(path)?, &path.display().to_string())?,
        None => parse(&input::stdin("messages (JSON)")?, "stdin")?,
    };
    let tools = args.tools.as_deref().map(read).transpose()?;
    let model = load::text(&args.model)?;
    let mut request = RenderRequest::new(&messages);
    request.tools = tools.as_ref();
    request.add_generation_prompt = !args.no_generation_prompt;
    request.variables = variables(&args.kwarg)?;
    request.template = args.name.as_deref();
    let template = model.template()?;
    let rendered = template.render(&request)?;
    if request.tools.take().is_some() {
        let without = template.render(&request);
        if without.is_ok_and(|without| without.text == rendered.text) {
            return Err(Failure::request(
                "the model's chat template has no place for tools, and leaves them out",
            ));
        }
    }
    if out.is_json() {
        let tokens = model.tokenizer().encode_rendered(&rendered)?;
        return out.json(&json!({"text": rendered.text, "tokens": tokens}));
    }
    out.text(&rendered.text)
}

fn read(path: &Path) -> Result<Value, Failure> {
    parse(&input::file(path)?, &path.display().to_string())
}

fn parse(json: &str, source: &str) -> Result<Value, Failure> {
    serde_json::from_str(json)
        .map_err(|error| Failure::request(format!("{source}: this is not JSON: {error}")))
}

fn variables(entries: &[(String, Value)]) -> Result<Map<String, Value>, Failure> {
    let mut variables = Map::new();
    for (name, value) in entries {
        if variables.insert(name.clone(), value.clone()).is_some() {
            return Err(Failure::request(format!("--kwarg {name} is given twice")));
        }
    }
    Ok(variables)
}

fn variable(entry: &str) -> Result<(String, Value), String> {
    let (name, value) = entry
        .split_once('=')
        .ok_or("a name and a value in JSON are wanted, as in enable_thinking=false")?;
    let value = serde_json::from_str(value)
        .map_err(|error| format!("the value is not JSON ({error}); a text needs quotes"))?;
    Ok((name.to_owned(), value))
}
