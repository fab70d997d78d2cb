//! `rushlight grammar bench`: what compiling and masks cost.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rushlight::GrammarSource;
use rushlight::engine::constrain::{Accepted, MaskStatus};
use rushlight::grammar::{CancelToken, Compiler, Matcher};
use rushlight::text::{Specials, Tokenizer};
use serde_json::{Value, json};

use super::TokenizerArgs;
use crate::failure::Failure;
use crate::input;
use crate::output::Out;
use crate::progress::Bar;
use crate::source;

/// Takes a directory of .json files, each a schema, or a file of lines of JSON, each a schema or an object
/// {"schema": …, "tests": [{"data": …}]} whose data is walked token by token, with a mask before each.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    tokenizer: TokenizerArgs,
    /// A directory of schemas, or a file with one a line
    #[arg(value_name = "DIR|JSONL")]
    path: PathBuf,
}

struct Case {
    // The file, and the line where there is more than one.
    name: String,
    schema: Result<Value, String>,
    instances: Vec<String>,
}

#[derive(Default)]
struct Times {
    compile: Vec<Duration>,
    first_mask: Vec<Duration>,
    mask: Vec<Duration>,
    // The names of the schemas that did not compile, and why.
    refused: Vec<(String, String)>,
}

pub(crate) fn run(args: &BenchArgs, out: &Out) -> Result<(), Failure> {
    let cases = read(&args.path)?;
    if cases.is_empty() {
        return Err(Failure::request(format!(
            "{}: no schema is there",
            args.path.display()
        )));
    }
    let (tokenizer, compiler) = args.tokenizer.open()?;
    let bar = Bar::count("schemas");
    let mut times = Times::default();
    for (done, case) in (1..).zip(&cases) {
        walk(case, &compiler, &tokenizer, &mut times)?;
        bar.at(done, cases.len() as u64);
    }
    bar.clear();
    let rows = [
        ("compile", &mut times.compile),
        ("first mask", &mut times.first_mask),
        ("mask", &mut times.mask),
    ];
    let rows: Vec<(&str, usize, [f64; 4])> = rows
        .into_iter()
        .map(|(name, times)| (name, times.len(), spread(times)))
        .collect();
    if out.is_json() {
        let rows = rows.iter().map(|(name, count, [mean, p50, p90, p99])| {
            json!({"what": name, "count": count, "mean_us": mean, "p50_us": p50, "p90_us": p90, "p99_us": p99})
        });
        return out.json(&json!({
            "schemas": cases.len(),
            "refused": times.refused.len(),
            "refusals": times.refused.iter().map(|(name, reason)| json!({"name": name, "reason": reason})).collect::<Vec<_>>(),
            "times": rows.collect::<Vec<_>>(),
        }));
    }
    for (name, reason) in &times.refused {
        out.line(format_args!("{name}: {reason}"))?;
    }
    out.line(format_args!(
        "{} schemas, {} refused",
        cases.len(),
        times.refused.len()
    ))?;
    out.line("µs               count       mean        p50        p90        p99")?;
    for (name, count, [mean, p50, p90, p99]) in rows {
        out.line(format_args!(
            "{name:<12} {count:>9} {mean:>10.1} {p50:>10.1} {p90:>10.1} {p99:>10.1}"
        ))?;
    }
    if cases.iter().all(|case| case.instances.is_empty()) {
        out.line("no data to make masks along: that takes lines of {\"schema\": …, \"tests\": [{\"data\": …}]}")?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Case>, Failure> {
    let parse = |name: String, text: &str| -> Case {
        let value = match source::read(text) {
            Ok(value) => value,
            Err(error) => {
                return Case {
                    name,
                    schema: Err(format!("no JSON: {error}")),
                    instances: Vec::new(),
                };
            }
        };
        match wrapped(&value) {
            Some(Ok((schema, data))) => Case {
                name,
                schema: Ok(schema.clone()),
                instances: data.into_iter().map(Value::to_string).collect(),
            },
            Some(Err(reason)) => Case {
                name,
                schema: Err(reason),
                instances: Vec::new(),
            },
            None => Case {
                name,
                schema: Ok(value),
                instances: Vec::new(),
            },
        }
    };
    if !path.is_dir() {
        let text = input::file(path)?;
        let lines = (1..)
            .zip(text.lines())
            .filter(|(_, line)| !line.trim().is_empty());
        return Ok(lines
            .map(|(number, line)| parse(format!("{}, line {number}", path.display()), line))
            .collect());
    }
    let entries = fs::read_dir(path).map_err(|error| Failure::file(path, "read", &error))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry
            .map_err(|error| Failure::file(path, "read", &error))?
            .path();
        if file
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(file);
        }
    }
    files.sort();
    files
        .iter()
        .map(|file| Ok(parse(file.display().to_string(), &input::file(file)?)))
        .collect()
}

/// The schema and the data of `{"schema": …, "tests": [{"data": …}]}`; `None` for another value, which is a schema itself.
fn wrapped(value: &Value) -> Option<Result<(&Value, Vec<&Value>), String>> {
    let map = value.as_object()?;
    let schema = map.get("schema")?;
    let Some(tests) = map.get("tests") else {
        // `schema` is no keyword of JSON Schema.
        return (schema.is_object() || schema.is_boolean()).then(|| Ok((schema, Vec::new())));
    };
    let tests = tests.as_array().map(Vec::as_slice);
    let data = tests.and_then(|tests| tests.iter().map(|test| test.get("data")).collect());
    Some(data.map(|data| (schema, data)).ok_or_else(|| {
        "\"tests\" must be a list of objects with \"data\", a text of the schema".to_owned()
    }))
}

fn walk(
    case: &Case,
    compiler: &Compiler,
    tokenizer: &Tokenizer,
    times: &mut Times,
) -> Result<(), Failure> {
    let schema = match &case.schema {
        Ok(schema) => schema.clone(),
        Err(reason) => {
            times.refused.push((case.name.clone(), reason.clone()));
            return Ok(());
        }
    };
    let source = GrammarSource::JsonSchema(schema);
    let start = Instant::now();
    let grammar = match compiler.compile(&source, &CancelToken::new()) {
        Ok(grammar) => grammar,
        Err(report) => {
            times.refused.push((case.name.clone(), report.to_string()));
            return Ok(());
        }
    };
    times.compile.push(start.elapsed());
    let mut mask = vec![0; grammar.vocabulary().logits().div_ceil(32)];
    let mut matcher = grammar.matcher();
    if matcher.mask(&mut mask).is_ok() {
        times.first_mask.push(start.elapsed());
    }
    drop(matcher);
    for text in &case.instances {
        let ids = tokenizer.encode(text, Specials::AsText)?;
        follow(grammar.matcher(), &ids, &mut mask, times);
    }
    Ok(())
}

/// Makes the mask before each token that the grammar accepts.
fn follow(mut matcher: Matcher, ids: &[u32], mask: &mut [u32], times: &mut Times) {
    for &id in ids {
        let start = Instant::now();
        let Ok(MaskStatus::Constrained) = matcher.mask(mask) else {
            return;
        };
        times.mask.push(start.elapsed());
        match matcher.accept(id) {
            Ok(Accepted::Taken) => {}
            Ok(Accepted::Rewound { .. }) | Err(_) => return,
        }
    }
}

/// Mean, and the times that 50, 90 and 99 of 100 do not pass, in µs.
fn spread(times: &mut [Duration]) -> [f64; 4] {
    times.sort_unstable();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let at = |share: usize| {
        times
            .get(times.len() * share / 100)
            .copied()
            .map_or(0.0, micros)
    };
    let sum: Duration = times.iter().sum();
    let mean = micros(sum) / times.len().max(1) as f64;
    [mean, at(50), at(90), at(99)]
}
