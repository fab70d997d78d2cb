//! The subcommands, one file each, and what they share: `--json`, errors and exit codes.

mod bench;
mod chat;
mod grammar;
mod inspect;
mod logits;
mod models;
mod perplexity;
mod run;
mod template;
mod tokenize;

use std::env;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::failure::{Exit, Failure, guard};
use crate::output::Out;

/// Local language models, with answers you can rely on.
///
/// Models are .gguf files, checkpoint directories (config.json and safetensors), or names in the store
/// ($RUSHLIGHT_HOME/models, else rushlight/models in the user's data folder). Nothing is fetched.
///
/// Exit codes: 0 done, 1 the request cannot be met, 2 the command line is wrong, 3 the model's file is
/// missing or at fault, 4 rushlight is at fault, 130 Ctrl-C ended it.
#[derive(Debug, Parser)]
#[command(name = "rushlight", version, propagate_version = true)]
struct Cli {
    /// Give results as JSON on stdout, and errors as JSON on stderr
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer a prompt, or go on with a text
    Run(Box<run::RunArgs>),
    /// Hold a conversation
    Chat(Box<chat::ChatArgs>),
    /// Tell what a model is, without loading it
    Inspect(inspect::InspectArgs),
    /// Turn text into token ids
    Tokenize(tokenize::TokenizeArgs),
    /// Render a model's chat template
    Template(template::TemplateArgs),
    /// Give the logits that follow token ids
    Logits(logits::LogitsArgs),
    /// Look at a grammar: check texts, explain, show masks, measure
    Grammar(Box<grammar::GrammarArgs>),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::PerplexityArgs),
    /// Measure speed
    Bench(bench::BenchArgs),
    /// List the models of the store
    Models,
}

/// The whole program.
pub(crate) fn main() -> ExitCode {
    let end = guard(|| {
        let cli = match Cli::try_parse() {
            Ok(cli) => cli,
            Err(error) => return usage(&error),
        };
        let out = Out::new(cli.json);
        match &cli.command {
            Command::Run(args) => run::run(args, &out),
            Command::Chat(args) => chat::run(args, &out),
            Command::Inspect(args) => inspect::run(args, &out),
            Command::Tokenize(args) => tokenize::run(args, &out),
            Command::Template(args) => template::run(args, &out),
            Command::Logits(args) => logits::run(args),
            Command::Grammar(args) => grammar::run(args, &out),
            Command::Perplexity(args) => perplexity::run(args, &out),
            Command::Bench(args) => bench::run(args, &out),
            Command::Models => models::run(&out),
        }
    });
    let Err(mut failure) = end else {
        return ExitCode::SUCCESS;
    };
    // Asked of the arguments themselves, as a command line that is none has no fields.
    failure.tell(env::args_os().any(|argument| argument == "--json"));
    ExitCode::from(failure.exit() as u8)
}

/// Help and version were asked for, or the command line is wrong.
fn usage(error: &clap::Error) -> Result<(), Failure> {
    let text = error.to_string();
    if error.exit_code() == 0 {
        return Out::new(false).text(&text);
    }
    let message = match error.kind() {
        // What is told then is the help, and its first line no error.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("a subcommand is missing\n\n{}", text.trim_end())
        }
        _ => text
            .strip_prefix("error: ")
            .unwrap_or(&text)
            .trim_end()
            .to_owned(),
    };
    Err(Failure::new(Exit::Usage, message))
}
