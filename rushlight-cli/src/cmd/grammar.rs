//! `rushlight grammar`: look at a grammar without a model's weights.

mod bench;
mod check;
mod explain;
mod mask;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use rushlight::GrammarSource;
use rushlight::engine::constrain::Accepted;
use rushlight::grammar::json_schema::{MemberOrder, SchemaOptions};
use rushlight::grammar::{
    CancelToken, CompiledGrammar, Compiler, GrammarError, GrammarErrorKind, GrammarReport, Limits,
    Matcher,
};
use rushlight::session::{SessionError, vocabulary};
use rushlight::text::{Specials, Tokenizer};

use crate::failure::{Exit, Failure};
use crate::load;
use crate::output::Out;
use crate::source::SourceArgs;

#[derive(Args, Debug)]
pub(crate) struct GrammarArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say of texts whether a grammar accepts them, walking a tokenizer's tokens
    Check(check::CheckArgs),
    /// Tell how each part of a grammar is enforced
    Explain(explain::ExplainArgs),
    /// Show what may come next
    Mask(mask::MaskArgs),
    /// Measure compiling and masks over many JSON Schemas
    Bench(bench::BenchArgs),
}

pub(crate) fn run(args: &GrammarArgs, out: &Out) -> Result<(), Failure> {
    match &args.command {
        Command::Check(args) => check::run(args, out),
        Command::Explain(args) => explain::run(args, out),
        Command::Mask(args) => mask::run(args, out),
        Command::Bench(args) => bench::run(args, out),
    }
}

/// Whose tokens a grammar is walked with.
#[derive(Args, Debug)]
struct TokenizerArgs {
    /// A .gguf file, a checkpoint directory, or the name of a model in the store
    #[arg(
        long,
        short,
        value_name = "MODEL",
        required_unless_present = "tokenizer"
    )]
    model: Option<String>,
    /// A tokenizer.json, or the directory that holds it, instead of a model
    #[arg(long, value_name = "PATH", conflicts_with = "model")]
    tokenizer: Option<PathBuf>,
    /// Refuse what no grammar can say, instead of judging values as they close
    #[arg(long)]
    no_guards: bool,
}

impl TokenizerArgs {
    fn open(&self) -> Result<(Tokenizer, Compiler), Failure> {
        let tokenizer = match (&self.tokenizer, &self.model) {
            (Some(path), _) => files(path)?,
            (None, Some(model)) => load::text(model)?.tokenizer().clone(),
            (None, None) => return Err(Failure::request("give a model or a tokenizer")),
        };
        let stop_ids: Vec<u32> = tokenizer.stop_ids().into_iter().collect();
        let vocabulary = vocabulary(&tokenizer, tokenizer.vocab_size(), &stop_ids)?;
        let compiler = Compiler::new(vocabulary, Limits::default(), options(self.no_guards));
        Ok((tokenizer, compiler))
    }

    /// The same compiler for texts that others wrote, whose members come in any order. Their order is a guard's to judge.
    fn in_any_order(&self, compiler: &Compiler) -> Option<Compiler> {
        let mut options = options(self.no_guards);
        options.member_order = MemberOrder::Any;
        let vocabulary = compiler.vocabulary().clone();
        (!self.no_guards).then(|| Compiler::new(vocabulary, Limits::default(), options))
    }
}

fn options(no_guards: bool) -> SchemaOptions {
    let mut options = SchemaOptions::default();
    options.guards = !no_guards;
    options
}

/// A tokenizer from its file, with the configuration that stands beside it.
fn files(path: &Path) -> Result<Tokenizer, Failure> {
    let path = if path.is_dir() {
        path.join("tokenizer.json")
    } else {
        path.to_owned()
    };
    let config = path.with_file_name("tokenizer_config.json");
    let config = config.is_file().then_some(config);
    Ok(Tokenizer::from_files(&path, config.as_deref())?)
}

/// The grammar that the arguments name; there must be one.
fn source(args: &SourceArgs) -> Result<GrammarSource, Failure> {
    let missing = "give a grammar: --json-schema, --json-object, --grammar, --lark, --regex, --choice or \
                   --structural-tag";
    args.read()?
        .ok_or_else(|| Failure::new(Exit::Usage, missing))
}

fn compile(compiler: &Compiler, source: &GrammarSource) -> Result<Arc<CompiledGrammar>, Failure> {
    let compiled = compiler.compile(source, &CancelToken::new());
    compiled.map_err(refused)
}

fn refused(report: GrammarReport) -> Failure {
    SessionError::from(report).into()
}

/// How far a text stays in a grammar.
struct Followed {
    /// Bytes of the tokens that were taken.
    at: usize,
    /// The token that is refused, where one is.
    refused: Option<u32>,
}

/// Walks the tokens that the tokenizer makes of `text`.
fn follow(matcher: &mut Matcher, tokenizer: &Tokenizer, text: &str) -> Result<Followed, Failure> {
    let mut at = 0;
    for id in tokenizer.encode(text, Specials::AsText)? {
        let refused = match matcher.accept(id) {
            Ok(accepted) => accepted != Accepted::Taken,
            Err(error) => match error.kind() {
                // In the latter case too the token was refused; that nothing else was found is no matter here.
                GrammarErrorKind::IllegalToken | GrammarErrorKind::GuardExhausted => true,
                _ => return Err(failed(error)),
            },
        };
        if refused {
            return Ok(Followed {
                at,
                refused: Some(id),
            });
        }
        at += tokenizer.token_bytes(id).map_or(0, <[u8]>::len);
    }
    Ok(Followed { at, refused: None })
}

fn failed(error: GrammarError) -> Failure {
    refused(GrammarReport::from(error))
}
