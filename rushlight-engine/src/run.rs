//! One generation as a state machine: it says what to run next, and takes the logits.
//!
//! It knows no backend, thread or clock: [`step`](crate::step) runs what [`Run::next_pass`] asks for
//! and hands the rows to [`Run::absorb`], for one generation or for many beside each other.

use std::collections::VecDeque;
use std::ops::Range;

use rushlight_ir::backend::Logits;

use crate::cache::Reuse;
use crate::error::{EngineError, ErrorKind, Result};
use crate::metrics::{Timings, Usage};
use crate::plan::{PrefillOptions, PrefillPlan};
use crate::request::{GenerateOptions, Outcome, Step, StopReason};
use crate::sample::{SampleVocab, Sampler, log_softmax_at, top_logprobs};
use crate::sequence::Sequence;
use crate::stop::StopMatcher;

/// Rows of logits that a pass may ask for at once: at a vocabulary of 262,144 they take 64 MiB.
pub(crate) const ROWS: usize = 64;

/// What a generation wants run next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Tokens to run.
    pub(crate) tokens: Vec<u32>,
    /// How many of the last tokens' rows are wanted.
    pub(crate) logits: usize,
    /// Whether the tokens are the prompt's.
    pub(crate) prefill: bool,
}

/// What a generation is begun with, besides the request.
pub(crate) struct Setting<'a> {
    pub(crate) vocab: &'a SampleVocab,
    pub(crate) prefill: &'a PrefillOptions,
    pub(crate) context: usize,
}

/// A generation under way.
pub(crate) struct Run {
    options: GenerateOptions,
    sampler: Sampler,
    matcher: Option<StopMatcher>,
    context: usize,
    /// The whole prompt, until the first pass.
    unread: Option<Vec<u32>>,
    prefill: PrefillOptions,
    /// Prompt tokens not yet run, in the chunks they will be run in.
    prompt: VecDeque<Vec<u32>>,
    /// Forced tokens not yet given out.
    forced: VecDeque<u32>,
    /// Steps that wait to be given out.
    ready: VecDeque<Step>,
    usage: Usage,
    reuse: Reuse,
    pub(crate) timings: Timings,
    stop: Option<StopReason>,
}

impl Run {
    /// Checks everything that can be checked. The sequence is touched by the first pass, not before.
    pub(crate) fn begin(
        sequence: &Sequence,
        prompt: &[u32],
        mut options: GenerateOptions,
        setting: &Setting<'_>,
    ) -> Result<Run> {
        let context = setting.context;
        if prompt.is_empty() {
            return Err(ErrorKind::EmptyPrompt.into());
        }
        if prompt.len() > context {
            return Err(ErrorKind::ContextOverflow {
                prompt: prompt.len(),
                context,
            }
            .into());
        }
        check_ids(prompt, setting.vocab)?;
        check_ids(&options.forced, setting.vocab)?;
        check_ids(&options.stop_tokens, setting.vocab)?;
        let mut sampler = Sampler::new(&options.sampling, setting.vocab)?;
        if options.text.is_none() && !options.stop_strings.is_empty() {
            return Err(EngineError::invalid_option(
                "stop_strings",
                format!("{:?}", options.stop_strings),
                "empty where no text is made of the tokens",
            ));
        }
        let matcher = match options.text {
            Some(_) => Some(StopMatcher::new(std::mem::take(&mut options.stop_strings))?),
            None => None,
        };
        sequence.check_free()?;
        sampler.observe(prompt);
        let stop = if options.max_tokens == Some(0) {
            Some(StopReason::MaxTokens)
        } else {
            (prompt.len() == context).then_some(StopReason::Context)
        };
        Ok(Run {
            forced: options.forced.drain(..).collect(),
            sampler,
            matcher,
            context,
            unread: Some(prompt.to_vec()),
            prefill: *setting.prefill,
            prompt: VecDeque::new(),
            ready: VecDeque::new(),
            usage: Usage {
                prompt: prompt.len(),
                ..Usage::default()
            },
            reuse: Reuse::default(),
            timings: Timings::default(),
            stop,
            options,
        })
    }

    /// The next step that is ready to be given out.
    pub(crate) fn pop(&mut self) -> Option<Step> {
        self.ready.pop_front()
    }

    /// Whether a step waits to be given out.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What to run next; `None` when nothing is left to run.
    pub(crate) fn next_pass(&mut self, sequence: &mut Sequence) -> Result<Option<Pass>> {
        if self.options.cancel.is_cancelled() {
            self.end(StopReason::Cancelled);
        }
        // A prompt is read whole even where no token may follow it, so that it is there next time.
        let reads_on = match self.stop {
            None => true,
            Some(StopReason::MaxTokens | StopReason::Context) => self.usage.completion == 0,
            Some(_) => false,
        };
        if !reads_on {
            return Ok(None);
        }
        if let Some(prompt) = self.unread.take() {
            self.keep_prefix(sequence, &prompt)?;
        }
        if let Some(tokens) = self.prompt.pop_front() {
            let last = self.prompt.is_empty() && self.stop.is_none();
            return Ok(Some(Pass {
                tokens,
                logits: usize::from(last),
                prefill: true,
            }));
        }
        if self.stop.is_some() {
            return Ok(None);
        }
        let mut tokens = sequence.unheld().to_vec();
        let mut logits = 1;
        if self.shows_rows() {
            // Forced tokens run together, and each is given out as the row that predicts it comes.
            let room = self.context.saturating_sub(sequence.len()).min(ROWS - 1);
            tokens.extend(self.forced.iter().take(room));
            logits = tokens.len() + 1 - sequence.unheld().len();
        }
        Ok(Some(Pass {
            tokens,
            logits,
            prefill: false,
        }))
    }

    /// Rewinds the sequence to what it shares with the prompt, and cuts the rest into passes.
    fn keep_prefix(&mut self, sequence: &mut Sequence, prompt: &[u32]) -> Result<()> {
        let held = sequence.states()?.len();
        let mut reuse = Reuse::plan(sequence.tokens(), held, prompt);
        reuse.cached = sequence.rewind(reuse.cached);
        self.usage.cached = reuse.cached;
        self.reuse = reuse;
        let rest = &prompt[reuse.cached..];
        let passes = PrefillPlan::new(rest.len(), &self.prefill)?.passes();
        self.prompt = passes.map(|range| rest[range].to_vec()).collect();
        Ok(())
    }

    /// Takes what a pass gave: its tokens are in the states now, and `rows` are its logits.
    pub(crate) fn absorb(
        &mut self,
        sequence: &mut Sequence,
        pass: &Pass,
        logits: &dyn Logits,
        rows: Range<usize>,
    ) -> Result<()> {
        if pass.prefill {
            sequence.extend(&pass.tokens);
            self.timings.prefill_tokens += pass.tokens.len();
            if let Some(progress) = &mut self.options.progress {
                let total = self.usage.prompt - self.usage.cached;
                progress(self.timings.prefill_tokens, total);
            }
        } else {
            self.timings.decode_tokens += pass.tokens.len();
        }
        let mut chosen = Ok(());
        for row in rows {
            if self.stop.is_some() || chosen.is_err() {
                break;
            }
            chosen = self.choose(sequence, &logits.row(row));
        }
        // An answer that ended inside a forced run has states for tokens that were not given out.
        let len = sequence.len();
        if sequence.held() > len {
            sequence.rewind(len);
        }
        chosen
    }

    /// Ends the generation, if nothing has ended it before.
    pub(crate) fn end(&mut self, reason: StopReason) {
        self.stop.get_or_insert(reason);
    }

    /// How it went; before its end, as if it were cancelled now.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            stop: self.stop.clone().unwrap_or(StopReason::Cancelled),
            usage: self.usage,
            reuse: self.reuse,
            timings: self.timings,
            seed: self.sampler.seed(),
        }
    }

    /// Whether steps carry something of the row that their token was chosen from.
    fn shows_rows(&self) -> bool {
        self.options.logits || self.options.sampling.logprobs.is_some()
    }

    /// Takes the next token or, where no rows are shown, all forced tokens at once.
    fn choose(&mut self, sequence: &mut Sequence, row: &[f32]) -> Result<()> {
        if self.forced.is_empty() {
            let sampled = self.sampler.sample(row, None)?;
            let mut step = self.take(sequence, sampled.token, false);
            step.logprob = sampled.logprob;
            step.top = sampled.top;
            step.logits = self.options.logits.then(|| row.to_vec());
            self.ready.push_back(step);
            return Ok(());
        }
        while self.stop.is_none()
            && let Some(token) = self.forced.pop_front()
        {
            let mut step = self.take(sequence, token, true);
            if let Some(n) = self.options.sampling.logprobs {
                step.logprob = Some(log_softmax_at(row, token)? as f32);
                step.top = top_logprobs(row, n as usize)?;
            }
            step.logits = self.options.logits.then(|| row.to_vec());
            self.ready.push_back(step);
            if self.shows_rows() {
                break;
            }
        }
        Ok(())
    }

    /// Appends a token to the answer and says what ends with it.
    fn take(&mut self, sequence: &mut Sequence, token: u32, forced: bool) -> Step {
        sequence.push(token);
        self.sampler.observe(&[token]);
        self.usage.completion += 1;
        let mut text = String::new();
        if !forced && self.options.stop_tokens.contains(&token) {
            self.end(StopReason::Eos);
        } else if let Some(source) = &mut self.options.text {
            let piece = source.push(token);
            self.show(&piece, &mut text);
        }
        if self
            .options
            .max_tokens
            .is_some_and(|max| self.usage.completion >= max)
        {
            self.end(StopReason::MaxTokens);
        }
        if sequence.len() >= self.context {
            self.end(StopReason::Context);
        }
        if self.stop.is_some() {
            self.flush(&mut text);
        }
        Step {
            token,
            text,
            forced,
            logprob: None,
            top: Vec::new(),
            logits: None,
            stop: self.stop.clone(),
        }
    }

    fn show(&mut self, piece: &str, text: &mut String) {
        if let Some(matcher) = &mut self.matcher {
            let push = matcher.push(piece);
            text.push_str(&push.emit);
            if let Some(found) = push.matched {
                // A text that ends the answer outranks a limit that ends with the same token.
                self.stop = Some(StopReason::StopSequence(found));
            }
        }
    }

    /// Releases what was held back as a possible beginning of a character or a stop string.
    fn flush(&mut self, text: &mut String) {
        if matches!(self.stop, Some(StopReason::StopSequence(_))) {
            return;
        }
        if let Some(source) = &mut self.options.text {
            let piece = source.finish();
            self.show(&piece, text);
        }
        if let Some(matcher) = &mut self.matcher {
            text.push_str(&matcher.finish());
        }
    }
}

pub(crate) fn check_ids(tokens: &[u32], vocab: &SampleVocab) -> Result<()> {
    let bad = |&token: &u32| usize::try_from(token).map_or(true, |id| id >= vocab.width());
    match tokens.iter().position(bad) {
        None => Ok(()),
        Some(position) => Err(ErrorKind::TokenOutOfRange {
            token: tokens[position],
            vocab: vocab.width(),
            position,
        }
        .into()),
    }
}
