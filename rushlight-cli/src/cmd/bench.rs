//! `rushlight bench`: how fast a model reads and writes.
//!
//! A trial reads `-p` random tokens in each of `--lanes` fresh sequences, side by side, then makes `-g`
//! more in each. Prompt speed is all prompt tokens by the time until every lane has its first token;
//! generation speed is `-g` further tokens a lane by the time they take, sampling included. No token ends a
//! trial. One short trial that is not counted comes first, to have memory mapped and threads awake.

use std::fs;
use std::time::Instant;

use clap::Args;
use rushlight::LocalModel;
use rushlight::engine::sample::{Draws, SamplingOptions};
use rushlight::engine::{GenerateOptions, Sequence};
use serde_json::json;

use crate::failure::Failure;
use crate::load::{LoadArgs, all_threads};
use crate::output::{Out, counted, size};
use crate::progress::Bar;

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Prompt tokens a lane
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512)]
    prompt: usize,
    /// Tokens generated a lane; 0 measures the prompt alone
    #[arg(short = 'g', long, value_name = "N", default_value_t = 128)]
    generate: usize,
    /// Trials
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3)]
    trials: usize,
    /// Sequences that run side by side
    #[arg(long, value_name = "N", default_value_t = 1)]
    lanes: usize,
    /// Seeds the random prompts
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Above these a benchmark would only fill the memory.
const MOST_TRIALS: usize = 10_000;
const MOST_LANES: usize = 1_024;

pub(crate) fn run(args: &BenchArgs, out: &Out) -> Result<(), Failure> {
    for (name, value, most) in [
        ("prompt", args.prompt, usize::MAX),
        ("trials", args.trials, MOST_TRIALS),
        ("lanes", args.lanes, MOST_LANES),
    ] {
        if value == 0 || value > most {
            return Err(Failure::request(if most == usize::MAX {
                format!("{name} is {value}; it must be at least 1")
            } else {
                format!("{name} is {value}; it must be from 1 to {most}")
            }));
        }
    }
    let model = args.load.load()?;
    let context = model.engine().context();
    // The first generated token ends the prompt's time; `generate` more are timed.
    let needed = args.prompt.saturating_add(args.generate).saturating_add(1);
    if needed > context {
        return Err(Failure::request(format!(
            "{} prompt tokens and {} generated need {needed} positions; the context holds {context}",
            args.prompt, args.generate
        )));
    }
    let bar = Bar::count("trials");
    let warm_up = Load {
        prompt: args.prompt.min(16),
        generate: args.generate.min(2),
        lanes: args.lanes,
    };
    warm_up.measure(&model, &mut Draws::new(args.seed))?;
    let load = Load {
        prompt: args.prompt,
        generate: args.generate,
        lanes: args.lanes,
    };
    let mut random = Draws::new(args.seed);
    let mut prompt = Vec::with_capacity(args.trials);
    let mut generation = Vec::with_capacity(args.trials);
    for trial in 0..args.trials {
        bar.at(trial as u64, args.trials as u64);
        let speed = load.measure(&model, &mut random)?;
        prompt.push(speed.prompt);
        generation.extend(speed.generation);
    }
    bar.clear();
    tell(args, &model, &[prompt, generation], out)
}

fn tell(
    args: &BenchArgs,
    model: &LocalModel,
    [prompt, generation]: &[Vec<f64>; 2],
    out: &Out,
) -> Result<(), Failure> {
    let threads = args.load.engine.threads.unwrap_or_else(all_threads);
    let load_seconds = model.load_time().as_secs_f64();
    let model_bytes = model.summary().weight_bytes;
    if out.is_json() {
        let part = |tokens: usize, trials: &[f64]| {
            json!({
                "tokens": tokens,
                "tokens_per_second": trials,
                "mean": mean(trials),
                "standard_deviation": deviation(trials),
            })
        };
        return out.json(&json!({
            "model": model.summary().source.path,
            "threads": threads,
            "lanes": args.lanes,
            "seed": args.seed,
            "prompt": part(args.prompt, prompt),
            "generation": part(args.generate, generation),
            "load_seconds": load_seconds,
            "peak_rss_bytes": peak_rss(),
            "model_bytes": model_bytes,
        }));
    }
    for (name, tokens, trials) in [
        ("prompt", args.prompt, prompt),
        ("generation", args.generate, generation),
    ] {
        if let Some(mean) = mean(trials) {
            let deviation = deviation(trials).map_or_else(String::new, |d| format!(" ± {d:.1}"));
            let each: Vec<String> = trials.iter().map(|speed| format!("{speed:.1}")).collect();
            out.line(format_args!(
                "{}{mean:.1}{deviation} tokens/s  ({tokens} tokens × {}: {})",
                out.label(name),
                counted(args.lanes, "lane"),
                each.join(", "),
            ))?;
        }
    }
    let peak = peak_rss().map_or_else(|| "unknown".to_owned(), size);
    out.line(format_args!(
        "{}{load_seconds:.2} s to load {}; peak memory {peak}; {threads} threads",
        out.label("model"),
        size(model_bytes),
    ))
}

/// What one trial does.
struct Load {
    prompt: usize,
    generate: usize,
    lanes: usize,
}

/// Tokens a second, all lanes together.
struct Speed {
    prompt: f64,
    generation: Option<f64>,
}

impl Load {
    fn measure(&self, model: &LocalModel, random: &mut Draws) -> Result<Speed, Failure> {
        let engine = model.engine();
        let ids: Vec<u32> = (0..u32::try_from(engine.vocab().tokens()).unwrap_or(u32::MAX))
            .filter(|&id| engine.vocab().allows(id))
            .collect();
        let mut sequences = (0..self.lanes)
            .map(|_| engine.sequence())
            .collect::<Result<Vec<Sequence>, _>>()?;
        let requests: Vec<_> = sequences
            .iter_mut()
            .map(|sequence| {
                let prompt = (0..self.prompt)
                    .map(|_| pick(random, &ids))
                    .collect::<Vec<_>>();
                let options = GenerateOptions {
                    max_tokens: Some(self.generate + 1),
                    sampling: SamplingOptions::greedy(),
                    ..GenerateOptions::default()
                };
                (sequence, prompt, options)
            })
            .collect();
        let start = Instant::now();
        let mut first_tokens = 0;
        let mut prompt_seconds = 0.0;
        let mut seen = vec![false; self.lanes];
        for (lane, step) in engine.generate_batch(requests)? {
            step?;
            if let Some(seen) = lane.and_then(|lane| seen.get_mut(lane))
                && !std::mem::replace(seen, true)
            {
                first_tokens += 1;
                if first_tokens == self.lanes {
                    prompt_seconds = start.elapsed().as_secs_f64();
                }
            }
        }
        let generation_seconds = start.elapsed().as_secs_f64() - prompt_seconds;
        let speed = |tokens: usize, seconds: f64| (tokens * self.lanes) as f64 / seconds;
        Ok(Speed {
            prompt: speed(self.prompt, prompt_seconds),
            generation: (self.generate > 0).then(|| speed(self.generate, generation_seconds)),
        })
    }
}

/// One of `ids`, of which there is always one: a vocabulary has a legal token.
fn pick(draws: &mut Draws, ids: &[u32]) -> u32 {
    let index = draws.below(ids.len() as u64);
    ids.get(index as usize).copied().unwrap_or_default()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation; 0 of a single value.
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    // One trial has no deviation.
    let degrees = values.len().checked_sub(1).filter(|&degrees| degrees > 0)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / degrees as f64).sqrt())
}

/// The most memory that the process ever had resident, in bytes, where the system tells.
fn peak_rss() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_trials() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(deviation(&[5.0]), None);
        // Squares 4 + 1 + 9 over 2.
        assert_eq!(deviation(&[1.0, 2.0, 6.0]), Some(7f64.sqrt()));
    }
}
