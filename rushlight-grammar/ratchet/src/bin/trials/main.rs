//! Generation trials: real sampling under grammars, every answer judged by code that shares none with the compiler.
//!
//! ```text
//! trials real MODEL CASES.jsonl.gz [--schemas 50] [--each 20] [--max-tokens 256] [--out FILE]
//! trials random CHECKPOINT [--from 0] [--generations 20000] [--out FILE]
//! ```
//! `real` answers with a model at temperature 1 over schemas of a collection; `random` with a checkpoint of random weights (and a
//! vocabulary of bytes and a few words) at temperature 1.5 over every kind of source. An answer is valid, or its error is typed;
//! anything else fails the run. `--out` writes each answer with its schema as a line of JSON, for another validator.

#![expect(clippy::print_stdout, reason = "what it tells is its result")]

mod judge;
mod sources;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use rushlight::engine::sample::SamplingOptions;
use rushlight::engine::{GenerateOptions, StopReason, TokenText};
use rushlight::grammar::json_schema::SchemaOptions;
use rushlight::grammar::{
    CancelToken, CompiledGrammar, Compiler, GrammarSource, Limits, TokenEntry, TokenTable,
    Vocabulary,
};
use rushlight::{LoadOptions, LocalModel};
use serde_json::{Value, json};

use judge::Judge;
use sources::Source;

type Failure = Box<dyn std::error::Error>;

/// An answer that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("trials: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<bool, Failure> {
    let option = |name: &str| {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: usize| -> Result<usize, Failure> {
        Ok(option(name)
            .map(|n| n.parse())
            .transpose()?
            .unwrap_or(default))
    };
    let known: &[&str] = match arguments.first().map(String::as_str) {
        Some("real") => &["--out", "--each", "--max-tokens", "--schemas"],
        _ => &["--out", "--from", "--generations"],
    };
    if let Some(other) = arguments
        .iter()
        .find(|a| a.starts_with("--") && !known.contains(&a.as_str()))
    {
        return Err(format!("{other}: no such option").into());
    }
    let out = option("--out").map(File::create).transpose()?;
    match arguments {
        [mode, model, cases, ..] if mode == "real" => {
            let each = number("--each", 20)?;
            let max = number("--max-tokens", 256)?;
            let schemas = schemas(Path::new(cases), number("--schemas", 50)?)?;
            real(model, &schemas, (each, max), out)
        }
        [mode, checkpoint, ..] if mode == "random" => {
            let from = number("--from", 0)?;
            random(
                checkpoint,
                from..from + number("--generations", 20_000)?,
                out,
            )
        }
        _ => Err("usage: trials real MODEL CASES.jsonl.gz | trials random CHECKPOINT".into()),
    }
}

/// Every n-th schema of a collection, until `count` of them were taken.
fn schemas(path: &Path, count: usize) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for line in BufReader::new(GzDecoder::new(File::open(path)?)).lines() {
        let case: Value = serde_json::from_str(&line?)?;
        all.extend(case.get("schema").cloned());
    }
    let step = (all.len() / count.max(1)).max(1);
    Ok(all.into_iter().step_by(step).take(count).collect())
}

/// What became of the answers.
#[derive(Default)]
struct Tally {
    valid: usize,
    invalid: usize,
    errors: BTreeMap<String, usize>,
    stops: BTreeMap<String, usize>,
    slowest: (Duration, String),
    masks: u64,
    excluded: u64,
    rewound: u64,
    forced: u64,
}

impl Tally {
    fn tell(&self, bugs: usize) {
        println!(
            "valid {}  invalid {}  slowest {:.1} s ({})",
            self.valid,
            self.invalid,
            self.slowest.0.as_secs_f64(),
            self.slowest.1
        );
        println!("ended by {:?}", self.stops);
        for (error, count) in &self.errors {
            println!("typed error, {count} times: {error}");
        }
        println!(
            "masks {}  forced tokens {}  excluded tokens {}  rewound tokens {}",
            self.masks, self.forced, self.excluded, self.rewound
        );
        if bugs > 0 {
            println!("errors that are our own fault: {bugs}");
        }
    }
}

/// One answer to ask for.
struct Trial<'a> {
    name: &'a str,
    model: &'a LocalModel,
    prompt: &'a [u32],
    grammar: &'a Arc<CompiledGrammar>,
    text: Box<dyn TokenText>,
    sampling: SamplingOptions,
    max_tokens: usize,
    sample_forced: bool,
}

/// The answer's text; `Err` has the words of a typed error, and whether it is our own fault.
fn answer(trial: Trial<'_>, tally: &mut Tally) -> Result<String, (String, bool)> {
    let start = Instant::now();
    let told = |error: rushlight::engine::EngineError| {
        let cause =
            std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
        let words: String = format!("{error}{cause}")
            .chars()
            .filter(|c| !c.is_ascii_digit())
            .collect();
        (words, error.fault() != rushlight::Fault::Request)
    };
    let options = GenerateOptions {
        max_tokens: Some(trial.max_tokens),
        sampling: trial.sampling,
        stop_tokens: trial.grammar.vocabulary().stop_ids().to_vec(),
        text: Some(trial.text),
        constraint: Some(Box::new(trial.grammar.matcher())),
        sample_forced: trial.sample_forced,
        ..GenerateOptions::default()
    };
    let engine = trial.model.engine();
    let mut sequence = engine.sequence().map_err(told)?;
    let mut generation = engine
        .generate(&mut sequence, trial.prompt, options)
        .map_err(told)?;
    let mut text = String::new();
    let mut failed = None;
    for step in generation.by_ref() {
        match step {
            Ok(step) => text.push_str(&step.text),
            Err(error) => failed = Some(told(error)),
        }
        if start.elapsed() > STUCK {
            return Err(("stuck".to_owned(), true));
        }
    }
    let outcome = generation.outcome();
    if start.elapsed() > tally.slowest.0 {
        tally.slowest = (start.elapsed(), trial.name.to_owned());
    }
    if let Some(counts) = outcome.constraint {
        tally.masks += counts.masks;
        tally.excluded += counts.excluded;
        tally.rewound += counts.rewound;
        tally.forced += counts.forced;
    }
    if let Some(failed) = failed {
        return Err(failed);
    }
    *tally
        .stops
        .entry(outcome.stop.name().to_owned())
        .or_default() += 1;
    match outcome.stop {
        StopReason::Grammar | StopReason::Eos | StopReason::MaxTokens | StopReason::Context => {
            Ok(text)
        }
        other => Err((format!("ended by {}", other.name()), true)),
    }
}

/// Judges an answer, and writes it down.
fn count(
    answer: Result<String, (String, bool)>,
    judge: &Judge,
    (name, seed): (&str, usize),
    tally: &mut Tally,
    bugs: &mut usize,
    out: &mut Option<File>,
) -> Result<(), Failure> {
    match answer {
        Ok(text) => {
            match judge.judge(&text) {
                Ok(()) => tally.valid += 1,
                Err(reason) => {
                    tally.invalid += 1;
                    println!("INVALID {name} seed {seed}: {reason}: {text:?}");
                }
            }
            if let (Some(out), Some(schema)) = (out, judge.schema()) {
                writeln!(
                    out,
                    "{}",
                    json!({"name": name, "schema": schema, "text": text})
                )?;
            }
        }
        Err((words, ours)) => {
            *bugs += usize::from(ours);
            if ours {
                println!("OURS {name} seed {seed}: {words}");
            }
            *tally.errors.entry(format!("{name}: {words}")).or_default() += 1;
        }
    }
    Ok(())
}

fn real(
    model: &str,
    schemas: &[Value],
    (each, max_tokens): (usize, usize),
    mut out: Option<File>,
) -> Result<bool, Failure> {
    let model = rushlight::load_with(model, &LoadOptions::default(), None)?;
    let mut tally = Tally::default();
    let (mut bugs, mut refused) = (0, 0);
    for (index, schema) in schemas.iter().enumerate() {
        let name = format!("schema {index}");
        let grammar = match model.compile(
            &GrammarSource::JsonSchema(schema.clone()),
            &CancelToken::new(),
        ) {
            Ok(grammar) => grammar,
            Err(error) => {
                refused += 1;
                println!("refused {name}: {error}");
                continue;
            }
        };
        let judge = Judge::schema_of(schema)?;
        let about = schema.get("title").or_else(|| schema.get("description"));
        let about = about.and_then(Value::as_str).unwrap_or("anything");
        let prompt = model.raw_tokens(&format!("An example of {about}, as JSON:\n"))?;
        for seed in 0..each {
            let trial = Trial {
                name: &name,
                model: &model,
                prompt: &prompt,
                grammar: &grammar,
                text: model.token_text(true).ok_or("the model has no tokenizer")?,
                sampling: SamplingOptions {
                    temperature: 1.0,
                    seed: Some(seed as u64),
                    ..SamplingOptions::default()
                },
                // The schema of a long answer gets room for one.
                max_tokens: max_tokens.max(grammar.reserve() * 9 / 8),
                sample_forced: seed % 4 == 3,
            };
            let answer = answer(trial, &mut tally);
            count(
                answer,
                &judge,
                (&name, seed),
                &mut tally,
                &mut bugs,
                &mut out,
            )?;
        }
    }
    println!("{} schemas, {refused} refused", schemas.len());
    tally.tell(bugs);
    Ok(tally.invalid == 0 && bugs == 0)
}

fn random(checkpoint: &str, seeds: Range<usize>, mut out: Option<File>) -> Result<bool, Failure> {
    let model = rushlight::load_with(checkpoint, &LoadOptions::default(), None)?;
    let vocabulary = bytes_and_words(model.engine().vocab().width())?;
    let compiler = Compiler::new(
        vocabulary.clone(),
        Limits::default(),
        SchemaOptions::default(),
    );
    let mut compiled = Vec::new();
    for Source {
        name,
        source,
        judge,
    } in sources::all()?
    {
        let grammar = compiler
            .compile(&source, &CancelToken::new())
            .map_err(|report| format!("{name}: {report}"))?;
        compiled.push((name, grammar, judge));
    }
    let mut tally = Tally::default();
    let mut bugs = 0;
    for seed in seeds.clone() {
        let (name, grammar, judge) = &compiled[seed % compiled.len()];
        let round = seed / compiled.len();
        // A start of its own for each, and every option in turn.
        let prompt = [1, (seed % 300) as u32 + 3, (seed / 300 % 300) as u32 + 3];
        let trial = Trial {
            name,
            model: &model,
            prompt: &prompt,
            grammar,
            text: Box::new(Bytes::new(vocabulary.clone())),
            sampling: SamplingOptions {
                temperature: 1.5,
                seed: Some(seed as u64),
                top_p: (round % 3 == 1).then_some(0.9),
                min_p: (round % 5 == 2).then_some(0.02),
                repetition_penalty: if round % 4 == 3 { 1.2 } else { 1.0 },
                ..SamplingOptions::default()
            },
            max_tokens: [40, 120, 300][round % 3],
            sample_forced: round % 2 == 1,
        };
        let answer = answer(trial, &mut tally);
        count(answer, judge, (name, seed), &mut tally, &mut bugs, &mut out)?;
    }
    println!(
        "{} generations over {} sources",
        seeds.len(),
        compiled.len()
    );
    tally.tell(bugs);
    Ok(tally.invalid == 0 && bugs == 0)
}

/// A vocabulary for weights that have no tokenizer: three control tokens, every byte, and words up to `width` ids.
fn bytes_and_words(width: usize) -> Result<Arc<Vocabulary>, Failure> {
    const WORDS: [&str; 40] = [
        "{\"", "\":", "\": ", "\",\"", "\"}", "name", "na", "me", "true", "false", "null", "yes",
        " please", "the", " the", "ing", "12", "123", "00", "ab", "abc", "[]", "{}", "\"a", "é",
        "},{", "],", "\"]", "}}", "]}", "::", "tool", "<tool>", "</tool>", "end", "2024-", "-01",
        "T00:", "id", "value",
    ];
    let mut tokens: Vec<TokenEntry> = ["<pad>", "<s>", "</s>"]
        .map(|name| TokenEntry::Control(name.into()))
        .into();
    tokens.extend((0..=255u8).map(|byte| TokenEntry::Text(vec![byte])));
    tokens.extend(WORDS.map(|word| TokenEntry::Text(word.as_bytes().to_vec())));
    tokens.truncate(width);
    let words: Vec<(String, u32)> = WORDS
        .iter()
        .zip(259..)
        .map(|(word, id)| ((*word).to_owned(), id))
        .collect();
    let encode = move |text: &str| {
        let mut ids = Vec::new();
        let mut rest = text;
        while let Some(&byte) = rest.as_bytes().first() {
            let longest = words
                .iter()
                .filter(|(word, _)| rest.starts_with(word.as_str()))
                .max_by_key(|(word, _)| word.len());
            match longest {
                Some((word, id)) => {
                    ids.push(*id);
                    rest = &rest[word.len()..];
                }
                None => {
                    let length = rest.chars().next().map_or(1, char::len_utf8);
                    ids.push(u32::from(byte) + 3);
                    ids.extend(
                        rest.bytes()
                            .take(length)
                            .skip(1)
                            .map(|byte| u32::from(byte) + 3),
                    );
                    rest = &rest[length..];
                }
            }
        }
        ids
    };
    let table = TokenTable {
        identity: "bytes and words".to_owned(),
        tokens,
        stop_ids: vec![2],
        logits: width,
        encode: Some(Arc::new(encode)),
    };
    Ok(Vocabulary::new(table)?)
}

/// The text of byte tokens, as far as it is whole characters.
struct Bytes {
    vocabulary: Arc<Vocabulary>,
    held: Vec<u8>,
}

impl Bytes {
    fn new(vocabulary: Arc<Vocabulary>) -> Bytes {
        Bytes {
            vocabulary,
            held: Vec::new(),
        }
    }
}

impl TokenText for Bytes {
    fn push(&mut self, token: u32) -> String {
        self.held
            .extend_from_slice(self.vocabulary.token_bytes(token));
        let whole = match std::str::from_utf8(&self.held) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.held.split_off(whole);
        String::from_utf8(std::mem::replace(&mut self.held, rest)).unwrap_or_default()
    }

    fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}
