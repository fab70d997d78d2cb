//! Walks public cases through the schema compiler and keeps every verdict from getting worse.
//!
//! `rushlight-grammar-ratchet maskbench|suite CASES.jsonl.gz TOKENIZER.json [options]`
//!
//! Each instance is written as compact JSON, tokenised by the model's tokenizer, and walked token by token: a token outside
//! the mask, or one that a guard refuses, rejects it; the end accepts it where the grammar and the guards may end. The same
//! cases go through the mask engine's own JSON Schema front end (`--bare`), for comparison in the same run.
//!
//! The expected category of every case is a committed file beside this program. A worse one fails the run; a better one is
//! reported, and written with `--record`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the report is the program's output")]

mod cases;
mod expected;
mod walk;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cases::{Case, Collection};
use walk::{Engine, Outcome, Verdict, Walker};

struct Options {
    collection: Collection,
    cases: PathBuf,
    tokenizer: PathBuf,
    sample: usize,
    threads: usize,
    repeat: usize,
    engines: Vec<Engine>,
    expected: Option<PathBuf>,
    record: bool,
    only: Option<String>,
    verbose: bool,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options, String> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &str| args.next().ok_or(format!("missing {what}"));
    let collection = match next("collection")?.as_str() {
        "maskbench" => Collection::MaskBench,
        "suite" => Collection::Suite,
        other => return Err(format!("'{other}' is neither 'maskbench' nor 'suite'")),
    };
    let mut options = Options {
        collection,
        cases: next("cases")?.into(),
        tokenizer: next("tokenizer")?.into(),
        sample: 1,
        threads: 1,
        repeat: 1,
        engines: vec![Engine::Ours { guards: true }],
        expected: None,
        record: false,
        only: None,
        verbose: false,
    };
    let mut args = std::env::args().skip(4);
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or(format!("missing value of {flag}"));
        let number = |text: String| text.parse::<usize>().map_err(|e| format!("{text}: {e}"));
        match flag.as_str() {
            "--sample" => options.sample = number(value()?)?.max(1),
            "--threads" => options.threads = number(value()?)?.max(1),
            "--repeat" => options.repeat = number(value()?)?,
            "--bare" => options.engines.push(Engine::Bare),
            "--only-bare" => options.engines = vec![Engine::Bare],
            "--no-guards" => options.engines = vec![Engine::Ours { guards: false }],
            "--expected" => options.expected = Some(value()?.into()),
            "--record" => options.record = true,
            "--only" => options.only = Some(value()?),
            "--verbose" => options.verbose = true,
            other => return Err(format!("unknown option '{other}'")),
        }
    }
    Ok(options)
}

/// Runs every engine over the cases; false where a verdict got worse.
fn run(options: &Options) -> Result<bool, String> {
    let mut cases = cases::load(&options.cases, options.collection)?;
    if let Some(only) = &options.only {
        cases.retain(|case| case.id.contains(only.as_str()));
    }
    let cases: Vec<Case> = cases.into_iter().step_by(options.sample).collect();
    let mut good = true;
    for engine in &options.engines {
        let outcomes = walk_all(options, *engine, &cases)?;
        summary(options, *engine, &cases, &outcomes);
        if let (Engine::Ours { guards: true }, Some(path)) = (engine, &options.expected) {
            good &= expected::compare(path, &cases, &outcomes, options.record)?;
        }
    }
    Ok(good)
}

fn walk_all(options: &Options, engine: Engine, cases: &[Case]) -> Result<Vec<Outcome>, String> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Outcome)>> = Mutex::new(Vec::with_capacity(cases.len()));
    let failed: Mutex<Option<String>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            let builder = std::thread::Builder::new().stack_size(64 << 20);
            let spawned = builder.spawn_scoped(scope, || {
                let walker = match Walker::new(&options.tokenizer, engine, options.repeat) {
                    Ok(walker) => walker,
                    Err(e) => {
                        if let Ok(mut slot) = failed.lock() {
                            *slot = Some(e);
                        }
                        return;
                    }
                };
                let mut walked = Vec::new();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(i) else { break };
                    walked.push((i, case, walker.walk(case, options.collection)));
                }
                for (i, case, mut outcome) in walked {
                    walker.reorder(case, options.collection, &mut outcome);
                    if options.verbose {
                        println!(
                            "{} {} {} {}",
                            case.id,
                            outcome.category(),
                            outcome.times(),
                            outcome.note
                        );
                    }
                    if let Ok(mut done) = done.lock() {
                        done.push((i, outcome));
                    }
                }
            });
            if let Err(e) = spawned
                && let Ok(mut slot) = failed.lock()
            {
                *slot = Some(e.to_string());
            }
        }
    });
    if let Some(e) = failed.into_inner().map_err(|e| e.to_string())? {
        return Err(e);
    }
    let mut done = done.into_inner().map_err(|e| e.to_string())?;
    done.sort_by_key(|(i, _)| *i);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

fn summary(options: &Options, engine: Engine, cases: &[Case], outcomes: &[Outcome]) {
    println!("== {engine}: {} cases", outcomes.len());
    let mut splits: Vec<(&str, [usize; 5])> = Vec::new();
    for (case, outcome) in cases.iter().zip(outcomes) {
        let at = splits
            .iter()
            .position(|(name, _)| *name == case.split)
            .unwrap_or_else(|| {
                splits.push((&case.split, [0; 5]));
                splits.len() - 1
            });
        if let Some((_, counts)) = splits.get_mut(at)
            && let Some(count) = counts.get_mut(outcome.category() as usize)
        {
            *count += 1;
        }
    }
    splits.sort();
    let mut total = [0; 5];
    println!(
        "{:32} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "split", "pass", "refuse", "reject", "accept!", "error"
    );
    for (name, counts) in &splits {
        for (sum, n) in total.iter_mut().zip(counts) {
            *sum += n;
        }
        let [pass, refuse, reject, accept, error] = counts;
        println!("{name:32} {pass:>7} {refuse:>7} {reject:>7} {accept:>7} {error:>7}");
    }
    let [pass, refuse, reject, accept, error] = total;
    println!(
        "{:32} {pass:>7} {refuse:>7} {reject:>7} {accept:>7} {error:>7}",
        "all"
    );
    if options.collection == Collection::Suite {
        for (title, optional) in [("required", false), ("optional", true)] {
            for draft in ["draft2020-12", "draft7"] {
                let (mut right, mut over, mut all, mut groups, mut compiled) = (0, 0, 0, 0, 0);
                for (case, outcome) in cases.iter().zip(outcomes) {
                    if case.optional != optional || !case.id.starts_with(draft) {
                        continue;
                    }
                    groups += 1;
                    compiled += usize::from(!outcome.verdicts.is_empty());
                    all += case.tests.len();
                    for (test, verdict) in case.tests.iter().zip(&outcome.verdicts) {
                        let accepted = *verdict == Verdict::Accept;
                        right += usize::from(accepted == test.valid);
                        over += usize::from(accepted && !test.valid);
                    }
                }
                println!(
                    "{draft} {title}: {compiled} of {groups} groups compile, {right} of {all} instances right, {over} over-accepted"
                );
            }
        }
    }
    let mut first: Vec<Duration> = outcomes.iter().filter_map(|o| o.first_mask).collect();
    let mut compile: Vec<Duration> = outcomes.iter().filter_map(|o| o.compile).collect();
    let steps = || outcomes.iter().flat_map(|o| &o.steps);
    let mut masks: Vec<Duration> = steps().map(|s| s.whole).collect();
    let mut alone: Vec<Duration> = steps().map(|s| s.mask).collect();
    quantiles("compile", &mut compile);
    quantiles("first mask", &mut first);
    quantiles("mask", &mut masks);
    quantiles("mask alone", &mut alone);
}

fn quantiles(title: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| {
        let last = times.len().saturating_sub(1);
        times
            .get(last * percent / 100)
            .copied()
            .unwrap_or_default()
            .as_micros()
    };
    let count = u32::try_from(times.len()).unwrap_or(u32::MAX).max(1);
    let mean = (times.iter().sum::<Duration>() / count).as_micros();
    println!(
        "{title:10} µs: mean {mean}, p50 {}, p90 {}, p99 {} ({} times)",
        at(50),
        at(90),
        at(99),
        times.len()
    );
}
