//! `rushlight run`: one answer, or the score of a given one.

use std::path::PathBuf;

use clap::Args;
use rushlight::engine::sample::{SequenceScore, top_logprobs};
use rushlight::engine::{GenerateOptions, Generation};
use rushlight::{CancelToken, LocalModel, Response, StopReason};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::interrupt::Stop;
use crate::load::LoadArgs;
use crate::npy::NpyRows;
use crate::output::{Out, note};
use crate::progress::Bar;
use crate::prompt::{Prompt, PromptArgs};
use crate::report;
use crate::sampling::SamplingArgs;
use crate::source::GuideArgs;

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    guide: GuideArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// What to tell of an answer besides its text.
#[derive(Args, Debug)]
#[command(next_help_heading = "Answer")]
struct ShowArgs {
    /// A text that the answer begins with, whatever the model prefers
    #[arg(long, value_name = "TEXT")]
    forced: Option<String>,
    /// Make no answer, but score this one: each token's log-probability, their sum, and the perplexity
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with_all = [
            "forced", "print_logits", "save_logits", "max_tokens", "temperature", "top_k", "top_p",
            "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "stop",
            "logit_bias", "SourceArgs", "grammar_after", "sample_forced",
        ],
    )]
    continuation: Option<String>,
    /// Print each token with its logit and log-probability, and the N likeliest in its place
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "5")]
    print_logits: Option<usize>,
    /// Save the logits that each token was chosen from: a NumPy array, f32 [tokens, width]
    #[arg(long, value_name = "FILE.npy")]
    save_logits: Option<PathBuf>,
}

pub(crate) fn run(args: &RunArgs, out: &Out) -> Result<(), Failure> {
    args.sampling.check()?;
    let guide = args.guide.read()?;
    let prompt = args.prompt.read()?;
    if let Some(continuation) = &args.show.continuation {
        let model = args.load.load()?;
        return score(&model, &prompt, continuation, out);
    }
    let mut rows = Rows {
        top: args.show.print_logits,
        file: args
            .show
            .save_logits
            .as_deref()
            .map(NpyRows::create)
            .transpose()?,
        shown: Vec::new(),
    };
    let stop = Stop::install()?;
    let model = args.load.load()?;
    let (tokens, forced) = match &args.show.forced {
        Some(forced) => prompt.with_tail(&model, forced)?,
        None => (prompt.tokens(&model)?, Vec::new()),
    };
    let bar = Bar::count("reading");
    let reading = bar.clone();
    let guided = guide.grammar.is_some();
    let cancel = CancelToken::new();
    let _armed = stop.arm(cancel.clone());
    let options = GenerateOptions {
        forced,
        logits: rows.wanted(),
        text: model.token_text(prompt.continues() || guided),
        progress: Some(Box::new(move |done, total| {
            reading.at(done as u64, total as u64)
        })),
        ..model.generate_options(&args.sampling.resolve(&model, guide), &cancel)?
    };
    let draws = options.sampling.temperature != 0.0;
    let mut sequence = model.engine().sequence()?;
    let generation = model.engine().generate(&mut sequence, &tokens, options)?;
    let response = stream(&model, generation, &mut rows, &bar, out)?;
    if let Some(file) = rows.file {
        file.finish()?;
    }
    let load_seconds = model.load_time().as_secs_f64();
    if out.is_json() {
        out.json(&object(&response, &rows.shown, rows.top, &model))?;
    } else {
        out.text("\n")?;
        for step in &rows.shown {
            out.line(step.line())?;
        }
        note(format_args!(
            "load {load_seconds:.2} s · {}",
            report::summary(&response, response.seed.filter(|_| draws))
        ));
    }
    match response.stop {
        StopReason::Cancelled => Err(Failure::interrupted()),
        _ => Ok(()),
    }
}

/// Runs the generation to its end, showing text as it comes.
fn stream(
    model: &LocalModel,
    mut generation: Generation<'_>,
    rows: &mut Rows,
    bar: &Bar,
    out: &Out,
) -> Result<Response, Failure> {
    let mut response = Response::new("", StopReason::Cancelled);
    // Without a tokenizer the answer is its ids.
    let spelled = model.tokenizer().is_ok();
    for step in generation.by_ref() {
        let step = step.inspect_err(|_| {
            // What came so far stands on a line of its own, apart from the error.
            if !out.is_json() && !response.tokens.is_empty() {
                let _ = out.text("\n");
            }
        })?;
        bar.clear();
        if !out.is_json() {
            match spelled {
                true => out.text(&step.text)?,
                false if response.tokens.is_empty() => out.text(&step.token.to_string())?,
                false => out.text(&format!(" {}", step.token))?,
            }
        }
        if let Some(logits) = &step.logits {
            rows.take(model, step.token, logits)?;
        }
        response.tokens.push(step.token);
        response.text.push_str(&step.text);
    }
    bar.clear();
    let outcome = generation.outcome();
    if !out.is_json() {
        out.text(&outcome.rest)?;
    }
    response.text.push_str(&outcome.rest);
    response.constraint = outcome.constraint;
    response.stop = outcome.stop;
    response.usage = outcome.usage;
    response.reuse = outcome.reuse;
    response.timings = outcome.timings;
    response.seed = Some(outcome.seed);
    Ok(response)
}

fn object(response: &Response, shown: &[Shown], top: Option<usize>, model: &LocalModel) -> Value {
    let mut object = report::answer(response);
    if let Some(Value::Object(seconds)) = object.get_mut("seconds") {
        seconds.insert("load".to_owned(), json!(model.load_time().as_secs_f64()));
    }
    if top.is_some() {
        let steps = shown.iter().map(Shown::json);
        object.insert("steps".to_owned(), steps.collect());
    }
    Value::Object(object)
}

/// What is wanted of the rows of logits.
struct Rows {
    top: Option<usize>,
    file: Option<NpyRows>,
    shown: Vec<Shown>,
}

impl Rows {
    fn wanted(&self) -> bool {
        self.top.is_some() || self.file.is_some()
    }

    fn take(&mut self, model: &LocalModel, token: u32, logits: &[f32]) -> Result<(), Failure> {
        if let Some(file) = &mut self.file {
            file.push(logits)?;
        }
        if let Some(top) = self.top {
            // The whole row is at hand, and the token is somewhere in it.
            let chosen = SequenceScore::default().add(logits, token)?;
            let top = top_logprobs(logits, top)?;
            let entry = |token: u32, logprob: f64| Entry::new(model, token, logprob, logits);
            self.shown.push(Shown {
                chosen: entry(token, chosen),
                top: top
                    .iter()
                    .map(|top| entry(top.token, f64::from(top.logprob)))
                    .collect(),
            });
        }
        Ok(())
    }
}

/// A token of the answer, and the likeliest ones in its place.
struct Shown {
    chosen: Entry,
    top: Vec<Entry>,
}

struct Entry {
    token: u32,
    /// `None` where the model has no tokenizer.
    piece: Option<String>,
    logit: Option<f32>,
    logprob: f64,
}

impl Entry {
    fn new(model: &LocalModel, token: u32, logprob: f64, row: &[f32]) -> Entry {
        Entry {
            token,
            piece: model
                .tokenizer()
                .ok()
                .map(|tokenizer| report::piece(tokenizer, token)),
            logit: row
                .get(token as usize)
                .copied()
                .filter(|logit| logit.is_finite()),
            logprob,
        }
    }

    fn json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        for (name, value) in [
            ("id", json!(self.token)),
            ("piece", json!(self.piece)),
            ("logit", json!(self.logit)),
            // Null for the logarithm of 0.
            ("logprob", json!(self.logprob)),
        ] {
            object.insert(name.to_owned(), value);
        }
        object
    }

    fn line(&self) -> String {
        let logit = self.logit.unwrap_or(f32::NEG_INFINITY);
        let (token, logprob) = (self.token, self.logprob);
        match &self.piece {
            Some(piece) => format!("\"{piece}\" ({token}) {logit:.3} {logprob:.4}"),
            None => format!("({token}) {logit:.3} {logprob:.4}"),
        }
    }
}

impl Shown {
    fn json(&self) -> Value {
        let mut object = self.chosen.json();
        let top = self.top.iter().map(|entry| Value::Object(entry.json()));
        object.insert("top".to_owned(), top.collect());
        Value::Object(object)
    }

    fn line(&self) -> String {
        let top: Vec<String> = self.top.iter().map(Entry::line).collect();
        format!("{}  |  {}", self.chosen.line(), top.join("  "))
    }
}

/// Scores `continuation` as what follows the prompt.
fn score(
    model: &LocalModel,
    prompt: &Prompt,
    continuation: &str,
    out: &Out,
) -> Result<(), Failure> {
    let (before, tail) = prompt.with_tail(model, continuation)?;
    if tail.is_empty() {
        return Err(Failure::request(
            "the continuation is empty; give it some text",
        ));
    }
    if before.is_empty() {
        return Err(Failure::request(
            "no token of the prompt is left before the continuation, which begins with the first; give \
             a longer prompt",
        ));
    }
    let tokens: Vec<u32> = before.iter().chain(&tail).copied().collect();
    let read = tokens.len() - 1;
    let mut sequence = model.engine().sequence()?;
    let mut score = SequenceScore::default();
    let mut logprobs = Vec::with_capacity(tail.len());
    model
        .engine()
        .score(&mut sequence, &tokens[..read], tail.len(), |at, logits| {
            logprobs.push(score.add(logits, tokens[at + 1])?);
            Ok(())
        })?;
    let tokenizer = model.tokenizer()?;
    let steps = || {
        tail.iter()
            .zip(&logprobs)
            .map(|(&id, &logprob)| (id, logprob))
    };
    if out.is_json() {
        let steps = steps().map(|(id, logprob)| {
            json!({"id": id, "piece": report::piece(tokenizer, id), "logprob": logprob})
        });
        return out.json(&json!({
            "continuation": continuation,
            "start": before.len(),
            "tokens": tail,
            "steps": steps.collect::<Vec<_>>(),
            "sum": score.sum(),
            "mean": score.mean(),
            "perplexity": score.perplexity(),
        }));
    }
    for (id, logprob) in steps() {
        out.line(format_args!(
            "{logprob:>10.4}  \"{}\" ({id})",
            report::piece(tokenizer, id)
        ))?;
    }
    out.line(format_args!(
        "sum {:.4}, mean {:.4}, perplexity {:.4} over {} tokens after {}",
        score.sum(),
        score.mean(),
        score.perplexity(),
        score.count(),
        before.len(),
    ))
}
