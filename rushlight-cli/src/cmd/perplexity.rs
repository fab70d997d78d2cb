//! `rushlight perplexity`: how well a model predicts a text, by llama.cpp's protocol.
//!
//! The whole text is tokenised once, with BOS where the model has one, and cut into chunks of `context`
//! tokens; what does not fill a chunk is left out. In each chunk the first token is replaced by BOS, where
//! the model has one. The first half of a chunk is there to be read; positions `context / 2` to
//! `context - 2` each predict the token after them. Perplexity is `exp` of the mean negative
//! log-likelihood, and its error the standard error of that mean, times the perplexity.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rushlight::LocalModel;
use rushlight::engine::sample::log_softmax_at;
use serde_json::json;

use crate::failure::Failure;
use crate::input;
use crate::load::{EngineArgs, LoadArgs};
use crate::output::{Out, counted, thousands};
use crate::progress::Bar;

#[derive(Args, Debug)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// A text file
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

/// Tokens of a chunk where `--context` does not say.
const CONTEXT: usize = 512;

pub(crate) fn run(args: &PerplexityArgs, out: &Out) -> Result<(), Failure> {
    if let Some(context) = args.load.engine.context {
        check_chunk(context)?;
    }
    let text = input::file(&args.file)?;
    if text.is_empty() {
        let message = format!("{}: the file is empty", args.file.display());
        return Err(Failure::request(message));
    }
    let model = args.load.load()?;
    let context = chunk_size(&args.load.engine, &model)?;
    let tokens = model.raw_tokens(&text)?;
    let chunks = tokens.len() / context;
    if chunks == 0 {
        return Err(Failure::request(format!(
            "{}: its {} tokens do not fill one chunk of {context}; give a longer text or a smaller \
             --context",
            args.file.display(),
            tokens.len(),
        )));
    }
    let start = Instant::now();
    let bar = Bar::count("scoring");
    bar.at(0, chunks as u64);
    let mut score = Score::default();
    let mut running = Vec::with_capacity(chunks);
    let mut sequence = model.engine().sequence()?;
    for chunk in tokens.chunks_exact(context) {
        sequence.rewind(0);
        score.add(&model, &mut sequence, chunk)?;
        running.push(score.perplexity());
        bar.at(running.len() as u64, chunks as u64);
        bar.say(format!("perplexity {:.4}", score.perplexity()));
    }
    bar.clear();
    let seconds = start.elapsed().as_secs_f64();
    if out.is_json() {
        return out.json(&json!({
            "perplexity": score.perplexity(),
            "standard_error": score.standard_error(),
            "mean_nll": score.mean(),
            "context": context,
            "chunks": chunks,
            "tokens": tokens.len(),
            "scored": score.count,
            "running": running,
            "seconds": seconds,
        }));
    }
    out.line(format_args!(
        "perplexity {:.4} ± {:.4}  ({} of {context} tokens, {} scored, {} at the end left over, {seconds:.1} s)",
        score.perplexity(),
        score.standard_error(),
        counted(chunks, "chunk"),
        thousands(score.count as u64),
        tokens.len() % context,
    ))
}

fn chunk_size(engine: &EngineArgs, model: &LocalModel) -> Result<usize, Failure> {
    let context = engine
        .context
        .unwrap_or(CONTEXT.min(model.engine().context()));
    check_chunk(context)?;
    Ok(context)
}

/// In a shorter chunk no position both has a half before it and predicts one of the chunk.
fn check_chunk(context: usize) -> Result<(), Failure> {
    if context < 4 {
        return Err(Failure::request(format!(
            "context is {context}; it must be at least 4"
        )));
    }
    Ok(())
}

/// The sum of negative log-likelihoods so far, and of their squares.
#[derive(Debug, Default)]
struct Score {
    sum: f64,
    squares: f64,
    count: usize,
}

impl Score {
    fn add(
        &mut self,
        model: &LocalModel,
        sequence: &mut rushlight::engine::Sequence,
        chunk: &[u32],
    ) -> Result<(), Failure> {
        let mut chunk = chunk.to_vec();
        let tokenizer = model.tokenizer()?;
        let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
        if let (Some(first), Some(bos)) = (chunk.first_mut(), bos) {
            *first = bos;
        }
        let last = chunk.len() - 1;
        let rows = last - chunk.len() / 2;
        model
            .engine()
            .score(sequence, &chunk[..last], rows, |at, logits| {
                let nll = -log_softmax_at(logits, chunk[at + 1])?;
                self.sum += nll;
                self.squares += nll * nll;
                self.count += 1;
                Ok(())
            })?;
        Ok(())
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Of the perplexity: that of the mean, carried through the exponential.
    fn standard_error(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let variance = self.squares / self.count as f64 - self.mean() * self.mean();
        let of_mean = (variance.max(0.0) / (self.count - 1) as f64).sqrt();
        of_mean * self.perplexity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: nll 1, 2, 3 has mean 2, variance 2/3, standard error √(2/3 / 2) = 0.57735.
    #[test]
    fn error_and_mean() {
        let score = Score {
            sum: 6.0,
            squares: 14.0,
            count: 3,
        };
        assert!((score.perplexity() - 2f64.exp()).abs() < 1e-12);
        let expected = (1f64 / 3.0).sqrt() * 2f64.exp();
        assert!((score.standard_error() - expected).abs() < 1e-12);
    }
}
