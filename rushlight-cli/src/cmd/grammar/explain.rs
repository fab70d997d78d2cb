//! `rushlight grammar explain`: how each part of a grammar is enforced.

use clap::Args;
use rushlight::GrammarSource;
use rushlight::grammar::json_schema::compile_schema;
use rushlight::grammar::{Limits, lower};
use serde_json::{Value, json};

use super::{options, refused, source};
use crate::failure::Failure;
use crate::output::Out;
use crate::source::{self, SourceArgs};

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// A JSON Schema: a file, or the schema itself where it begins with {
    #[arg(value_name = "FILE|JSON", conflicts_with = "SourceArgs")]
    schema: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
    /// Refuse what no grammar can say, instead of judging values as they close
    #[arg(long)]
    no_guards: bool,
}

pub(crate) fn run(args: &ExplainArgs, out: &Out) -> Result<(), Failure> {
    let source = match &args.schema {
        Some(schema) => GrammarSource::JsonSchema(source::json("the schema", schema)?),
        None => source(&args.source)?,
    };
    let options = options(args.no_guards);
    let GrammarSource::JsonSchema(schema) = &source else {
        return parts(&source, args, out);
    };
    let compiled = compile_schema(schema, &options).map_err(refused)?;
    if out.is_json() {
        let keyword = |part: &rushlight::grammar::json_schema::Explained| {
            json!({
                "pointer": part.pointer,
                "keyword": part.keyword,
                "how": part.how.to_string(),
                "reason": part.reason,
            })
        };
        let keywords: Vec<Value> = compiled.explained.iter().map(keyword).collect();
        return out.json(&json!({"source": source.name(), "keywords": keywords}));
    }
    for part in &compiled.explained {
        let place = format!("{}/{}", part.pointer, part.keyword);
        let reason = match part.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        out.line(format_args!("{place:<40} {}{reason}", part.how))?;
    }
    Ok(())
}

/// Of other sources: the grammar enforces all, but what guards do.
fn parts(source: &GrammarSource, args: &ExplainArgs, out: &Out) -> Result<(), Failure> {
    let lowered =
        lower(source, None, &Limits::default(), &options(args.no_guards)).map_err(refused)?;
    let guards: Vec<String> = lowered
        .guards
        .iter()
        .map(|guard| guard.describe())
        .collect();
    if out.is_json() {
        return out.json(&json!({"source": source.name(), "guards": guards}));
    }
    let but = match guards.is_empty() {
        true => "",
        false => ", but for what a guard judges as a value closes",
    };
    out.line(format_args!(
        "{}: the grammar enforces it in every mask{but}",
        source.name()
    ))?;
    for guard in guards {
        out.line(format_args!("guard: {guard}"))?;
    }
    Ok(())
}
