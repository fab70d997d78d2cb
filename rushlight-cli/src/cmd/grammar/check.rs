//! `rushlight grammar check`: which texts a grammar accepts.

use clap::Args;
use rushlight::engine::constrain::Accepted;
use rushlight::grammar::{GrammarErrorKind, GrammarReport, Matcher};
use rushlight::text::{Specials, Tokenizer};
use serde_json::{Value, json};

use super::{TokenizerArgs, compile, refused, source};
use crate::failure::Failure;
use crate::input;
use crate::output::Out;
use crate::report::piece;
use crate::source::SourceArgs;

/// Texts come on stdin. Exits with 0 whatever the verdicts are; a grammar that is refused exits with 1.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    tokenizer: TokenizerArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// Each line of stdin is a text, written as a JSON string; else stdin is one text, as it is
    #[arg(long)]
    lines: bool,
}

/// What a grammar says of a text.
struct Verdict {
    accepted: bool,
    /// The first byte of the token that is refused; the text's length where the end is, or where all is well.
    at: usize,
    /// The token that is refused, if it is one.
    token: Option<u32>,
}

pub(crate) fn run(args: &CheckArgs, out: &Out) -> Result<(), Failure> {
    let source = source(&args.source)?;
    let (tokenizer, compiler) = args.tokenizer.open()?;
    let grammar = compile(&compiler, &source)?;
    let stdin = input::stdin("the texts")?;
    if !args.lines {
        let verdict = walk(grammar.matcher(), &tokenizer, &stdin)?;
        return show(&verdict, &tokenizer, out);
    }
    for (number, line) in (1..).zip(stdin.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let text: String = serde_json::from_str(line).map_err(|error| {
            Failure::request(format!(
                "stdin, line {number}: each line must be a text as a JSON string: {error}"
            ))
        })?;
        show(
            &walk(grammar.matcher(), &tokenizer, &text)?,
            &tokenizer,
            out,
        )?;
    }
    Ok(())
}

fn show(verdict: &Verdict, tokenizer: &Tokenizer, out: &Out) -> Result<(), Failure> {
    let name = if verdict.accepted { "accept" } else { "reject" };
    let token = verdict.token.map(|id| piece(tokenizer, id));
    if out.is_json() || !out.is_terminal() {
        let object: Value = json!({"verdict": name, "at": verdict.at, "token": token});
        return out.line(object);
    }
    match (verdict.accepted, token) {
        (true, _) => out.line(name),
        (false, Some(token)) => {
            out.line(format_args!("{name} at byte {}: \"{token}\"", verdict.at))
        }
        (false, None) => out.line(format_args!("{name} at byte {}: the end", verdict.at)),
    }
}

/// Follows the tokens that the tokenizer makes of `text`.
fn walk(mut matcher: Matcher, tokenizer: &Tokenizer, text: &str) -> Result<Verdict, Failure> {
    let mut at = 0;
    for id in tokenizer.encode(text, Specials::AsText)? {
        match matcher.accept(id) {
            Ok(Accepted::Taken) => {}
            Err(error) if error.kind() != GrammarErrorKind::IllegalToken => {
                return Err(refused(GrammarReport::from(error)));
            }
            Ok(Accepted::Rewound { .. }) | Err(_) => {
                return Ok(Verdict {
                    accepted: false,
                    at,
                    token: Some(id),
                });
            }
        }
        at += tokenizer.token_bytes(id).map_or(0, <[u8]>::len);
    }
    let accepted = matcher
        .may_end()
        .map_err(GrammarReport::from)
        .map_err(refused)?;
    Ok(Verdict {
        accepted,
        at,
        token: None,
    })
}
