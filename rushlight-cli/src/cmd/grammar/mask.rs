//! `rushlight grammar mask`: what may come next.

use clap::Args;
use rushlight::engine::constrain::MaskStatus;
use rushlight::text::Tokenizer;
use serde_json::{Value, json};

use super::{TokenizerArgs, compile, failed, follow, source};
use crate::failure::Failure;
use crate::output::{Out, counted};
use crate::report::piece;
use crate::source::SourceArgs;

/// Characters of forced text that are shown at most.
const FORCED_CHARS: usize = 400;

#[derive(Args, Debug)]
pub(crate) struct MaskArgs {
    #[command(flatten)]
    tokenizer: TokenizerArgs,
    #[command(flatten)]
    source: SourceArgs,
    /// The text so far
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        allow_hyphen_values = true
    )]
    prefix: String,
    /// Tokens to show at most
    #[arg(long, value_name = "N", default_value_t = 40)]
    show: usize,
}

pub(crate) fn run(args: &MaskArgs, out: &Out) -> Result<(), Failure> {
    let source = source(&args.source)?;
    let (tokenizer, compiler) = args.tokenizer.open()?;
    let grammar = compile(&compiler, &source)?;
    let mut matcher = grammar.matcher();
    let prefix = follow(&mut matcher, &tokenizer, &args.prefix)?;
    if let Some(id) = prefix.refused {
        return Err(Failure::request(format!(
            "the prefix leaves the grammar at byte {}: \"{}\"",
            prefix.at,
            piece(&tokenizer, id)
        )));
    }
    let mut mask = vec![0; grammar.vocabulary().logits().div_ceil(32)];
    let status = matcher.mask(&mut mask).map_err(failed)?;
    let may_end = matcher.may_end().map_err(failed)?;
    let stop_ids = grammar.vocabulary().stop_ids();
    let allowed: Vec<u32> = (0..grammar.vocabulary().len() as u32)
        .filter(|id| {
            status == MaskStatus::Constrained && mask[*id as usize / 32] >> (id % 32) & 1 == 1
        })
        .filter(|id| !stop_ids.contains(id))
        .collect();
    let forced = match status {
        MaskStatus::Terminated => Vec::new(),
        _ => matcher.forced().map_err(failed)?,
    };
    let forced = spelled(&tokenizer, &forced);
    let guards: Vec<String> = grammar.guards().iter().map(|g| g.describe()).collect();
    if out.is_json() {
        let shown = allowed.iter().take(args.show);
        let shown: Vec<Value> = shown
            .map(|&id| json!({"id": id, "piece": piece(&tokenizer, id)}))
            .collect();
        return out.json(&json!({
            "may_end": may_end,
            "allowed": allowed.len(),
            "tokens": shown,
            "forced": forced,
            "guards": guards,
        }));
    }
    for guard in &guards {
        out.line(format_args!(
            "guard, which may refuse a token below: {guard}"
        ))?;
    }
    if may_end {
        out.line("the text may end here")?;
    }
    if !forced.is_empty() {
        let more = forced.chars().nth(FORCED_CHARS).map_or("", |_| " …");
        let shown: String = forced.chars().take(FORCED_CHARS).collect();
        out.line(format_args!("forced: \"{shown}\"{more}"))?;
    }
    out.line(format_args!(
        "{} may follow",
        counted(allowed.len(), "token")
    ))?;
    for id in allowed.iter().take(args.show) {
        out.line(format_args!("{id:>8}  \"{}\"", piece(&tokenizer, *id)))?;
    }
    if allowed.len() > args.show {
        out.line(format_args!(
            "          … (--show {} tells all)",
            allowed.len()
        ))?;
    }
    Ok(())
}

fn spelled(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    ids.iter().map(|&id| piece(tokenizer, id)).collect()
}
