//! `rushlight grammar check`: which texts a grammar accepts.

use std::sync::Arc;

use clap::Args;
use rushlight::GrammarSource;
use rushlight::grammar::{CancelToken, CompiledGrammar, Compiler, Matcher};
use rushlight::text::Tokenizer;
use serde_json::{Value, json};

use super::{Followed, TokenizerArgs, compile, failed, follow, source};
use crate::failure::Failure;
use crate::input;
use crate::output::Out;
use crate::report::piece;
use crate::source::SourceArgs;

/// Texts come on stdin, JSON in the spelling that answers have: no blanks, no escape where the character will do. Answers
/// have the members of an object in the order in which the schema declares them; a text that is accepted only with them in
/// another order is told with "order": "any", one that could not be tried in another with "declared". Exits with 0 whatever
/// the verdicts are; a grammar that is refused exits with 1.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    tokenizer: TokenizerArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// Each line of stdin is a text, written as a JSON string; else stdin is one text, without one line break at its end
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
    /// Whether members stand in another order than the schema's.
    reordered: bool,
    /// Whether a guard would have to judge members in another order, and none can.
    declared: bool,
}

pub(crate) fn run(args: &CheckArgs, out: &Out) -> Result<(), Failure> {
    let source = source(&args.source)?;
    let (tokenizer, compiler) = args.tokenizer.open()?;
    let mut judges = Judges {
        declared: compile(&compiler, &source)?,
        any: None,
        source,
        compiler: args.tokenizer.in_any_order(&compiler),
        tokenizer,
    };
    let stdin = input::stdin("the texts")?;
    if !args.lines {
        let text = input::without_final_line_break(stdin);
        let verdict = judges.judge(&text)?;
        return show(&verdict, &judges.tokenizer, out);
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
        let verdict = judges.judge(&text)?;
        show(&verdict, &judges.tokenizer, out)?;
    }
    Ok(())
}

/// A grammar with its members as they are declared, and one with them in any order for what that rejects.
struct Judges {
    source: GrammarSource,
    tokenizer: Tokenizer,
    declared: Arc<CompiledGrammar>,
    /// Compiled when it is first wanted; `None` within where it cannot be.
    any: Option<Option<Arc<CompiledGrammar>>>,
    compiler: Option<Compiler>,
}

impl Judges {
    fn judge(&mut self, text: &str) -> Result<Verdict, Failure> {
        let verdict = walk(self.declared.matcher(), &self.tokenizer, text)?;
        let GrammarSource::JsonSchema(_) = &self.source else {
            return Ok(verdict);
        };
        if verdict.accepted {
            return Ok(verdict);
        }
        let compiled = || {
            let compiler = self.compiler.as_ref()?;
            compiler.compile(&self.source, &CancelToken::new()).ok()
        };
        let Some(any) = self.any.get_or_insert_with(compiled) else {
            return Ok(Verdict {
                declared: self.compiler.is_some(),
                ..verdict
            });
        };
        let other = walk(any.matcher(), &self.tokenizer, text)?;
        Ok(match other.accepted {
            true => Verdict {
                reordered: true,
                ..other
            },
            false => verdict,
        })
    }
}

fn show(verdict: &Verdict, tokenizer: &Tokenizer, out: &Out) -> Result<(), Failure> {
    let name = if verdict.accepted { "accept" } else { "reject" };
    let token = verdict.token.map(|id| piece(tokenizer, id));
    if out.is_json() || !out.is_terminal() {
        let mut object: Value = json!({"verdict": name, "at": verdict.at, "token": token});
        if verdict.reordered {
            object["order"] = json!("any");
        } else if verdict.declared {
            object["order"] = json!("declared");
        }
        return out.line(object);
    }
    match (verdict.accepted, token) {
        (true, _) if verdict.reordered => out.line("accept, with members in another order"),
        (true, _) => out.line(name),
        (false, Some(token)) => {
            out.line(format_args!("{name} at byte {}: \"{token}\"", verdict.at))
        }
        (false, None) => out.line(format_args!("{name} at byte {}: the end", verdict.at)),
    }?;
    match verdict.declared {
        true => out.line("no guard can judge this schema's members in another order"),
        false => Ok(()),
    }
}

fn walk(mut matcher: Matcher, tokenizer: &Tokenizer, text: &str) -> Result<Verdict, Failure> {
    let Followed { at, refused } = follow(&mut matcher, tokenizer, text)?;
    let accepted = refused.is_none() && matcher.may_end().map_err(failed)?;
    Ok(Verdict {
        accepted,
        at,
        token: refused,
        reordered: false,
        declared: false,
    })
}
