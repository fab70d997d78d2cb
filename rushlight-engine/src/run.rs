//! One generation as a state machine: it says what to run next, and takes the logits.
//!
//! It knows no backend, thread or clock: [`step`](crate::step) runs what [`Run::next_pass`] asks for
//! and hands the rows to [`Run::absorb`], for one generation or for many beside each other.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use rushlight_ir::backend::Logits;

use crate::cache::Reuse;
use crate::constrain::{Accepted, ConstraintError, MaskStatus};
use crate::error::{EngineError, ErrorKind, Fault, Result};
use crate::guided::Guided;
use crate::metrics::{Timings, Usage};
use crate::plan::{PrefillOptions, PrefillPlan};
use crate::request::{GenerateOptions, Outcome, Step, StopReason};
use crate::sample::{Mask, SampleVocab, Sampled, Sampler, log_softmax_at, top_logprobs};
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
    /// Forced tokens not yet taken; the constraint has accepted them.
    forced: VecDeque<u32>,
    guided: Option<Guided>,
    /// Tokens that the caller forced: no refusal of the constraint goes back over them.
    pinned: usize,
    /// Steps of tokens that the constraint may still take back; their text is not made yet.
    held: VecDeque<Step>,
    /// Steps that wait to be given out.
    ready: VecDeque<Step>,
    /// Steps that were ever ready.
    shown: usize,
    /// Whether nothing is held back any more, the answer being over.
    flushed: bool,
    /// Text that was held back where no step carried the end.
    rest: String,
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
        check_ids("the prompt", prompt, setting.vocab)?;
        check_ids("the forced tokens", &options.forced, setting.vocab)?;
        check_ids("the stop tokens", &options.stop_tokens, setting.vocab)?;
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
        if options.constraint.is_some() && stop == Some(StopReason::Context) {
            return Err(ErrorKind::Unfinished { limit: "context" }.into());
        }
        let room = (context - prompt.len()).min(options.max_tokens.unwrap_or(usize::MAX));
        let guided = match options.constraint.take() {
            Some(constraint) => {
                let mut guided = Guided::new(constraint, setting.vocab.width())?;
                begin_guided(&mut guided, &options.forced, room)?;
                Some(guided)
            }
            None => None,
        };
        Ok(Run {
            pinned: options.forced.len(),
            forced: options.forced.drain(..).collect(),
            guided,
            held: VecDeque::new(),
            shown: 0,
            flushed: false,
            rest: String::new(),
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
        if self.options.cancel.is_cancelled() && self.stop.is_none() {
            self.end(StopReason::Cancelled);
            self.settle(sequence)?;
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
            if last {
                self.plan_forced(sequence)?;
                self.start_mask()?;
            }
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
        if tokens.len() > self.prefill.chunk.max(1) {
            // A long forced text is read like a prompt.
            tokens.truncate(self.prefill.chunk.max(1));
            return Ok(Some(Pass {
                tokens,
                logits: 0,
                prefill: false,
            }));
        }
        let mut logits = 1;
        if self.shows_rows() {
            // Forced tokens run together, and each is given out as the row that predicts it comes.
            let room = self.context.saturating_sub(sequence.len()).min(ROWS - 1);
            tokens.extend(self.forced.iter().take(room));
            logits = tokens.len() + 1 - sequence.unheld().len();
        }
        self.start_mask()?;
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
        if chosen.is_err() {
            self.stop = Some(StopReason::Error);
        }
        let settled = self.settle(sequence);
        // An answer that ended inside a forced run has states for tokens that were not given out.
        let len = sequence.len();
        if sequence.held() > len {
            sequence.rewind(len);
        }
        chosen.and(settled)
    }

    /// Ends the generation for an error, if nothing has ended it before; what it has is given out.
    pub(crate) fn fail(&mut self, sequence: &mut Sequence) {
        if self.stop.is_none() {
            self.end(StopReason::Error);
            // Text can be made of what is there whatever failed.
            let _ = self.settle(sequence);
        }
    }

    /// Ends the generation, if nothing has ended it before.
    fn end(&mut self, reason: StopReason) {
        self.stop.get_or_insert(reason);
    }

    /// How it went; before its end, as if it were cancelled now.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome {
            stop: self.stop.clone().unwrap_or(StopReason::Cancelled),
            usage: self.usage,
            reuse: self.reuse,
            timings: Timings {
                mask: self.guided.as_ref().map_or(Duration::ZERO, Guided::waited),
                ..self.timings
            },
            seed: self.sampler.seed(),
            constraint: self.guided.as_ref().map(Guided::counts),
            rest: self.rest.clone(),
        }
    }

    /// Leaves the sequence with the tokens that were given out.
    pub(crate) fn leave(&self, sequence: &mut Sequence) {
        let unseen = self.held.len() + self.ready.len();
        // Passes may also have run forced tokens that were not taken yet.
        sequence.rewind(sequence.len().saturating_sub(unseen));
    }

    /// Whether steps carry something of the row that their token was chosen from.
    fn shows_rows(&self) -> bool {
        self.options.logits || self.options.sampling.logprobs.is_some()
    }

    /// Takes the next token and, where no rows are shown, all tokens that are forced after it.
    fn choose(&mut self, sequence: &mut Sequence, row: &[f32]) -> Result<()> {
        if self.forced.is_empty() {
            let Some(sampled) = self.sample(sequence, row)? else {
                return Ok(());
            };
            let mut step = self.take(sequence, sampled.token, false);
            step.logprob = sampled.logprob;
            step.masked_logprob = sampled.masked_logprob;
            step.top = sampled.top;
            step.logits = self.options.logits.then(|| row.to_vec());
            self.held.push_back(step);
            self.plan_forced(sequence)?;
            if self.shows_rows() {
                return self.check_end();
            }
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
            self.held.push_back(step);
            if self.shows_rows() {
                break;
            }
        }
        self.check_end()
    }

    /// Draws until the constraint takes the token; `None` where it ended the answer or went back.
    fn sample(&mut self, sequence: &mut Sequence, row: &[f32]) -> Result<Option<Sampled>> {
        loop {
            let Some(guided) = &mut self.guided else {
                return Ok(Some(self.sampler.sample(row, None)?));
            };
            let mask = match guided.mask()? {
                MaskStatus::Terminated => {
                    self.end(StopReason::Grammar);
                    return Ok(None);
                }
                MaskStatus::Unconstrained => None,
                MaskStatus::Constrained => Some(Mask::new(guided.words())),
            };
            let sampled = self.sampler.sample(row, mask)?;
            match guided.accept(sampled.token)? {
                Accepted::Taken => return Ok(Some(sampled)),
                Accepted::Rewound { tokens: 0 } => {}
                Accepted::Rewound { tokens } => {
                    self.take_back(sequence, tokens)?;
                    self.plan_forced(sequence)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Queues the tokens that the constraint leaves no choice about.
    fn plan_forced(&mut self, sequence: &mut Sequence) -> Result<()> {
        if self.options.sample_forced || self.stop.is_some() {
            return Ok(());
        }
        while let Some(guided) = &mut self.guided {
            let tokens = guided.forced()?;
            if tokens.is_empty() {
                break;
            }
            for token in tokens {
                if is_banned(&self.options, token) {
                    // Another spelling may do.
                    return Ok(());
                }
                match guided.accept(token)? {
                    Accepted::Taken => self.forced.push_back(token),
                    // What is not forced after all is left to the sampler.
                    Accepted::Rewound { tokens } => return self.take_back(sequence, tokens),
                }
            }
        }
        Ok(())
    }

    /// Undoes the newest `tokens` tokens that the constraint had accepted.
    fn take_back(&mut self, sequence: &mut Sequence, tokens: usize) -> Result<()> {
        if self.usage.completion + self.forced.len() < self.pinned + tokens {
            let reason = "within what the constraint allows an answer to go on with";
            return Err(EngineError::invalid_option(
                "forced",
                "refused later on",
                reason,
            ));
        }
        let queued = tokens.min(self.forced.len());
        self.forced.truncate(self.forced.len() - queued);
        let taken = tokens - queued;
        if taken == 0 {
            return Ok(());
        }
        if taken > self.held.len() {
            let reason = "the constraint undid tokens that it had said to be firm";
            return Err(ConstraintError::new(Fault::Bug, reason).into());
        }
        self.held.truncate(self.held.len() - taken);
        self.usage.completion -= taken;
        sequence.take_back(taken);
        self.sampler.forget();
        self.sampler.observe(sequence.tokens());
        Ok(())
    }

    fn start_mask(&mut self) -> Result<()> {
        match &mut self.guided {
            Some(guided) if self.stop.is_none() => guided.start(),
            _ => Ok(()),
        }
    }

    /// Ends an answer whose text is whole, and refuses to end one that is not.
    fn check_end(&mut self) -> Result<()> {
        let Some(guided) = &mut self.guided else {
            return Ok(());
        };
        let limit = match &self.stop {
            None => None,
            Some(StopReason::MaxTokens) => Some("max_tokens"),
            Some(StopReason::Context) => Some("context"),
            Some(_) => return Ok(()),
        };
        // The constraint is ahead of the answer by what is queued.
        if self.forced.is_empty() {
            if guided.has_ended()? {
                self.stop = Some(StopReason::Grammar);
                return Ok(());
            }
            if limit.is_none() || guided.may_end()? {
                return Ok(());
            }
        }
        match limit {
            Some(limit) => Err(ErrorKind::Unfinished { limit }.into()),
            None => Ok(()),
        }
    }

    /// Appends a token to the answer and says what ends with it.
    fn take(&mut self, sequence: &mut Sequence, token: u32, forced: bool) -> Step {
        sequence.push(token);
        self.sampler.observe(&[token]);
        self.usage.completion += 1;
        if !forced && self.options.stop_tokens.contains(&token) {
            self.end(StopReason::Eos);
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
        Step {
            token,
            text: String::new(),
            forced,
            logprob: None,
            masked_logprob: None,
            top: Vec::new(),
            logits: None,
            stop: None,
        }
    }

    /// Makes the text of the steps that nothing takes back any more, and gives them out.
    fn settle(&mut self, sequence: &mut Sequence) -> Result<()> {
        let firm = match &mut self.guided {
            Some(guided) if self.stop.is_none() && !self.held.is_empty() => guided.firm()?,
            _ => usize::MAX,
        };
        while self.shown < firm
            && let Some(mut step) = self.held.pop_front()
        {
            let mut text = String::new();
            let is_end = self.stop == Some(StopReason::Eos) && self.held.is_empty();
            if !is_end && let Some(source) = &mut self.options.text {
                let piece = source.push(step.token);
                self.show(&piece, &mut text);
            }
            if matches!(self.stop, Some(StopReason::StopSequence(_))) {
                // Tokens that were taken before the text was made are no part of the answer.
                self.usage.completion -= self.held.len();
                sequence.rewind(sequence.len() - self.held.len());
                self.held.clear();
                self.forced.clear();
            }
            let ended = match self.stop {
                None | Some(StopReason::Cancelled | StopReason::Error) => false,
                Some(_) => self.held.is_empty(),
            };
            if ended {
                self.flush(&mut text);
                step.stop.clone_from(&self.stop);
            }
            step.text = text;
            self.shown += 1;
            self.ready.push_back(step);
        }
        // Where no step carries the end, what was held back is told with the outcome.
        if self.stop.is_some() && !self.flushed {
            let mut rest = String::new();
            self.flush(&mut rest);
            self.rest = rest;
        }
        Ok(())
    }

    fn show(&mut self, piece: &str, text: &mut String) {
        if let Some(matcher) = &mut self.matcher {
            let push = matcher.push(piece);
            text.push_str(&push.emit);
            if let Some(found) = push.matched
                && self.stop != Some(StopReason::Error)
            {
                // A text that ends the answer outranks a limit that ends with the same token.
                self.stop = Some(StopReason::StopSequence(found));
            }
        }
    }

    /// Releases what was held back as a possible beginning of a character or a stop string.
    fn flush(&mut self, text: &mut String) {
        self.flushed = true;
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

/// Whether the request's bias lets `token` never be said.
fn is_banned(options: &GenerateOptions, token: u32) -> bool {
    let bias = &options.sampling.logit_bias;
    bias.contains(&(token, f32::NEG_INFINITY))
}

/// Follows the tokens that the caller forces, and sees that the answer closes within `room` tokens.
fn begin_guided(guided: &mut Guided, forced: &[u32], room: usize) -> Result<()> {
    for &token in forced {
        let refused = || EngineError::invalid_option("forced", token, "what the constraint allows");
        match guided.accept(token) {
            Ok(Accepted::Taken) => {}
            Ok(Accepted::Rewound { .. }) => return Err(refused()),
            Err(error) => return Err(refused().with_source(error)),
        }
    }
    // Nothing but the prompt is read where there is no room.
    match room {
        0 => Ok(()),
        room => guided.budget(room.saturating_sub(forced.len())),
    }
}

pub(crate) fn check_ids(what: &'static str, tokens: &[u32], vocab: &SampleVocab) -> Result<()> {
    let bad = |&token: &u32| usize::try_from(token).map_or(true, |id| id >= vocab.width());
    match tokens.iter().position(bad) {
        None => Ok(()),
        Some(position) => Err(ErrorKind::TokenOutOfRange {
            token: tokens[position],
            vocab: vocab.width(),
            position,
            what,
        }
        .into()),
    }
}
