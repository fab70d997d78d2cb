//! The loop under a constraint, over a scripted program and a constraint that is a rule about the text so far.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;

use rushlight_engine::constrain::{
    Accepted, Constraint, ConstraintCounts, ConstraintError, MaskStatus,
};
use rushlight_engine::plan::EngineVariant;
use rushlight_engine::sample::{SampleVocab, SamplingOptions};
use rushlight_engine::{
    CancelToken, Engine, EngineError, EngineOptions, ErrorKind, Fault, GenerateOptions, Outcome,
    Sequence, Step, StopReason, TokenText,
};
use rushlight_testkit::scripted::ScriptedProgram;

const VOCAB: usize = 64;
const END: u32 = 63;

/// What may follow a text.
enum Next {
    Only(Vec<u32>),
    Any,
    /// The end, or one of these.
    EndOr(Vec<u32>),
    End,
    Panic,
}

/// A constraint by rules over the accepted tokens.
#[derive(Clone)]
struct Rules {
    next: fn(&[u32]) -> Next,
    /// Tokens to undo where `token` may not follow after all.
    refuse: fn(&[u32], u32) -> Option<usize>,
    firm: fn(&[u32]) -> usize,
    tokens: Vec<u32>,
    excluded: Vec<(usize, u32)>,
    counts: ConstraintCounts,
    budget: Option<usize>,
}

fn rules(next: fn(&[u32]) -> Next) -> Rules {
    Rules {
        next,
        refuse: |_, _| None,
        firm: <[u32]>::len,
        tokens: Vec::new(),
        excluded: Vec::new(),
        counts: ConstraintCounts::default(),
        budget: None,
    }
}

impl Rules {
    fn legal(&self) -> Option<Vec<u32>> {
        let legal = match (self.next)(&self.tokens) {
            Next::Only(tokens) => tokens,
            Next::EndOr(mut tokens) => {
                tokens.push(END);
                tokens
            }
            Next::Any => return None,
            Next::End => Vec::new(),
            Next::Panic => panic!("the rule panics"),
        };
        let here = self.tokens.len();
        let free = |token: &u32| !self.excluded.contains(&(here, *token));
        Some(legal.into_iter().filter(free).collect())
    }
}

impl Constraint for Rules {
    fn vocab(&self) -> usize {
        VOCAB
    }

    fn mask(&mut self, mask: &mut [u32]) -> Result<MaskStatus, ConstraintError> {
        self.counts.masks += 1;
        if self.tokens.last() == Some(&END) {
            return Ok(MaskStatus::Terminated);
        }
        match self.legal() {
            None => Ok(MaskStatus::Unconstrained),
            Some(legal) if legal.is_empty() => Ok(MaskStatus::Terminated),
            Some(legal) => {
                mask.fill(0);
                for token in legal {
                    mask[token as usize / 32] |= 1 << (token % 32);
                }
                Ok(MaskStatus::Constrained)
            }
        }
    }

    fn accept(&mut self, token: u32) -> Result<Accepted, ConstraintError> {
        if self.legal().is_some_and(|legal| !legal.contains(&token)) {
            return Err(ConstraintError::new(Fault::Request, "not legal"));
        }
        if let Some(back) = (self.refuse)(&self.tokens, token) {
            self.counts.excluded += 1;
            self.counts.rewound += back as u64;
            let to = self.tokens.len() - back;
            let choice = self.tokens.get(to).copied().unwrap_or(token);
            self.tokens.truncate(to);
            self.excluded.push((to, choice));
            return Ok(Accepted::Rewound { tokens: back });
        }
        self.tokens.push(token);
        Ok(Accepted::Taken)
    }

    fn forced(&mut self) -> Result<Vec<u32>, ConstraintError> {
        let mut ahead = self.clone();
        let mut forced = Vec::new();
        while let Next::Only(tokens) = (ahead.next)(&ahead.tokens)
            && let [token] = tokens[..]
        {
            ahead.tokens.push(token);
            forced.push(token);
        }
        Ok(forced)
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        self.tokens.truncate(self.tokens.len() - tokens);
        Ok(())
    }

    fn fork(&self) -> Result<Box<dyn Constraint>, ConstraintError> {
        Ok(Box::new(self.clone()))
    }

    fn may_end(&mut self) -> Result<bool, ConstraintError> {
        let ended = self.tokens.last() == Some(&END);
        Ok(ended || matches!((self.next)(&self.tokens), Next::End | Next::EndOr(_)))
    }

    fn accepted(&self) -> usize {
        self.tokens.len()
    }

    fn firm(&self) -> usize {
        (self.firm)(&self.tokens)
    }

    fn budget(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        self.budget = Some(tokens);
        if tokens < 2 {
            return Err(ConstraintError::new(
                Fault::Request,
                "two tokens are needed",
            ));
        }
        Ok(())
    }

    fn counts(&self) -> ConstraintCounts {
        self.counts
    }
}

/// Prefers `sum of the history mod 50`, then lower ids.
fn program() -> Arc<ScriptedProgram> {
    ScriptedProgram::new(VOCAB, 512, |history| {
        let best = history.iter().sum::<u32>() % 50;
        (0..VOCAB as u32)
            .map(|id| {
                if id == best {
                    10.0
                } else {
                    -(id as f32) / 64.0
                }
            })
            .collect()
    })
}

fn engine(program: &Arc<ScriptedProgram>, variant: EngineVariant) -> Engine {
    let vocab = SampleVocab::new(VOCAB, VOCAB, &[]).unwrap();
    let options = EngineOptions {
        variant,
        ..EngineOptions::default()
    };
    Engine::new(program.clone(), vocab, options).unwrap()
}

fn under(rules: Rules, max: Option<usize>) -> GenerateOptions {
    GenerateOptions {
        max_tokens: max,
        sampling: SamplingOptions::greedy(),
        stop_tokens: vec![END],
        constraint: Some(Box::new(rules)),
        ..GenerateOptions::default()
    }
}

type Answer = (Vec<Step>, Option<EngineError>, Outcome);

fn answer(engine: &Engine, sequence: &mut Sequence, options: GenerateOptions) -> Answer {
    let mut generation = engine.generate(sequence, &[1, 2, 3], options).unwrap();
    let mut steps = Vec::new();
    let mut failed = None;
    for step in generation.by_ref() {
        match step {
            Ok(step) => steps.push(step),
            Err(error) => failed = Some(error),
        }
    }
    let outcome = generation.outcome();
    drop(generation);
    (steps, failed, outcome)
}

fn tokens(steps: &[Step]) -> Vec<u32> {
    steps.iter().map(|step| step.token).collect()
}

/// Two tokens of 20..30, then 40 41 42, then 50 or 51, then the end.
fn template(text: &[u32]) -> Next {
    match text.len() {
        0 | 1 => Next::Only((20..30).collect()),
        2..=4 => Next::Only(vec![38 + text.len() as u32]),
        5 => Next::Only(vec![50, 51]),
        _ => Next::End,
    }
}

#[test]
fn only_what_is_allowed_is_sampled_and_forced_tokens_share_a_pass() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let program = program();
        let engine = engine(&program, variant);
        let mut sequence = engine.sequence().unwrap();
        let (steps, failed, outcome) =
            answer(&engine, &mut sequence, under(rules(template), Some(20)));
        assert!(failed.is_none());
        // 1 + 2 + 3 = 6 is not allowed, so the lowest of 20..30 is taken; then 26, the best and allowed.
        assert_eq!(tokens(&steps), [20, 26, 40, 41, 42, 50]);
        assert_eq!(outcome.stop, StopReason::Grammar);
        assert_eq!(steps[5].stop, Some(StopReason::Grammar));
        let forced: Vec<bool> = steps.iter().map(|step| step.forced).collect();
        assert_eq!(forced, [false, false, true, true, true, false]);
        // The prompt; 20; 26 with what it forces.
        let lanes: Vec<Vec<u32>> = program
            .steps()
            .into_iter()
            .map(|step| step[0].tokens.clone())
            .collect();
        assert_eq!(lanes, [vec![1, 2, 3], vec![20], vec![26, 40, 41, 42]]);
        assert_eq!(sequence.tokens(), [1, 2, 3, 20, 26, 40, 41, 42, 50]);
        assert_eq!(outcome.constraint.unwrap().masks, 4);
    }
}

#[test]
fn sampling_what_is_forced_gives_the_same_tokens_one_a_pass() {
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let options = GenerateOptions {
        sample_forced: true,
        ..under(rules(template), None)
    };
    let (steps, _, outcome) = answer(&engine, &mut sequence, options);
    assert_eq!(tokens(&steps), [20, 26, 40, 41, 42, 50]);
    assert!(steps.iter().all(|step| !step.forced));
    assert_eq!(outcome.stop, StopReason::Grammar);
    assert_eq!(program.steps().len(), 6);
}

#[test]
fn rows_are_shown_for_forced_tokens_too() {
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let mut options = under(rules(template), None);
    options.logits = true;
    options.sampling.logprobs = Some(2);
    let (steps, _, _) = answer(&engine, &mut sequence, options);
    assert_eq!(tokens(&steps), [20, 26, 40, 41, 42, 50]);
    for (i, step) in steps.iter().enumerate() {
        let row = step.logits.as_ref().unwrap();
        let history: u32 = sequence.tokens()[..3 + i].iter().sum();
        let best = (0..VOCAB as u32).max_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize]));
        assert_eq!(best, Some(history % 50), "step {i}");
        assert!(step.logprob.unwrap().is_finite());
        assert_eq!(step.masked_logprob.is_some(), !step.forced, "step {i}");
    }
    // Among 20..30 with logits -id/64: the share of 20.
    let norm: f32 = (20..30).map(|id| (-(id as f32) / 64.0).exp()).sum();
    let expected = (-20.0 / 64.0) - norm.ln();
    assert!((steps[0].masked_logprob.unwrap() - expected).abs() < 1e-5);
    assert!(steps[0].logprob.unwrap() < -10.0);
}

#[test]
fn an_end_that_may_come_is_the_models_to_choose() {
    fn open(text: &[u32]) -> Next {
        match text.len() {
            0 => Next::Any,
            1 => Next::EndOr(vec![12]),
            _ => Next::EndOr(vec![]),
        }
    }
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    // 6 freely; then 12 is best and allowed; then only the end is.
    let (steps, _, outcome) = answer(&engine, &mut sequence, under(rules(open), Some(9)));
    assert_eq!(tokens(&steps), [6, 12, END]);
    assert_eq!(outcome.stop, StopReason::Eos);
    // A limit where the text may end is an ordinary end.
    let mut sequence = engine.sequence().unwrap();
    let (steps, failed, outcome) = answer(&engine, &mut sequence, under(rules(open), Some(2)));
    assert_eq!(tokens(&steps), [6, 12]);
    assert!(failed.is_none());
    assert_eq!(outcome.stop, StopReason::MaxTokens);
}

#[test]
fn a_limit_within_the_text_is_an_error_after_its_steps() {
    for (max, limit, context) in [(Some(4), "max_tokens", 512), (None, "context", 7)] {
        let program = ScriptedProgram::choosing(VOCAB, context, |_| 20);
        let engine = engine(&program, EngineVariant::Sequential);
        let mut sequence = engine.sequence().unwrap();
        let (steps, failed, outcome) = answer(&engine, &mut sequence, under(rules(template), max));
        assert_eq!(tokens(&steps), [20, 20, 40, 41]);
        let error = failed.unwrap();
        assert_eq!(error.kind(), &ErrorKind::Unfinished { limit });
        assert_eq!(error.fault(), Fault::Request);
        assert_eq!(outcome.stop, StopReason::Error);
        assert!(steps.iter().all(|step| step.stop.is_none()));
    }
    // The constraint is told of the room, and may refuse it before anything is run.
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let error = engine
        .generate(&mut sequence, &[1], under(rules(template), Some(1)))
        .unwrap_err();
    assert_eq!(
        error.kind(),
        &ErrorKind::Constraint {
            fault: Fault::Request
        }
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "two tokens are needed");
    assert!(program.steps().is_empty());
}

#[test]
fn a_refused_token_is_drawn_again_from_the_same_row() {
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let refusing = Rules {
        refuse: |text, token| (text.len() == 1 && token == 26).then_some(0),
        ..rules(template)
    };
    let (steps, _, outcome) = answer(&engine, &mut sequence, under(refusing, None));
    assert_eq!(tokens(&steps), [20, 20, 40, 41, 42, 50]);
    assert_eq!(outcome.constraint.unwrap().excluded, 1);
    assert_eq!(program.steps().len(), 3);
}

/// Spells a token as its number and a space.
struct Spelled;

impl TokenText for Spelled {
    fn push(&mut self, token: u32) -> String {
        format!("{token} ")
    }

    fn finish(&mut self) -> String {
        String::new()
    }
}

/// Refuses 50 where 26 stands second, and goes back to there.
fn going_back() -> Rules {
    Rules {
        refuse: |text, token| (token == 50 && text.get(1) == Some(&26)).then(|| text.len() - 1),
        // What comes after the first token is open until the end.
        firm: |text| {
            if text.len() == 6 {
                6
            } else {
                text.len().min(1)
            }
        },
        ..rules(template)
    }
}

#[test]
fn going_back_undoes_tokens_states_and_penalties_and_shows_nothing_of_it() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        for sample_forced in [false, true] {
            let program = program();
            let engine = engine(&program, variant);
            let mut sequence = engine.sequence().unwrap();
            let mut options = under(going_back(), Some(30));
            options.sample_forced = sample_forced;
            options.text = Some(Box::new(Spelled));
            options.sampling.frequency_penalty = 0.02;
            let (steps, failed, outcome) = answer(&engine, &mut sequence, options);
            assert!(failed.is_none(), "{failed:?}");
            // 26 is excluded behind 20, so the next best of 20..30 that was not seen yet is taken.
            assert_eq!(tokens(&steps), [20, 21, 40, 41, 42, 50]);
            let text: String = steps.iter().map(|step| step.text.as_str()).collect();
            assert_eq!(text, "20 21 40 41 42 50 ");
            assert_eq!(outcome.usage.completion, 6);
            let counts = outcome.constraint.unwrap();
            assert_eq!((counts.excluded, counts.rewound), (1, 4));
            assert_eq!(sequence.tokens(), [1, 2, 3, 20, 21, 40, 41, 42, 50]);
            // The states are those of the history: another turn over it is as from a cold start.
            let prompt = [1, 2, 3, 20, 21, 40, 41, 42, 50, 9];
            let plain = || GenerateOptions {
                max_tokens: Some(5),
                sampling: SamplingOptions::greedy(),
                ..GenerateOptions::default()
            };
            let mut warm = engine.generate(&mut sequence, &prompt, plain()).unwrap();
            let kept: Vec<u32> = warm.by_ref().map(|step| step.unwrap().token).collect();
            assert!(warm.outcome().usage.cached >= 8);
            drop(warm);
            let mut fresh = engine.sequence().unwrap();
            let cold = engine.generate(&mut fresh, &prompt, plain()).unwrap();
            let cold: Vec<u32> = cold.map(|step| step.unwrap().token).collect();
            assert_eq!(kept, cold);
        }
    }
}

#[test]
fn a_stop_string_ends_the_answer_where_its_text_is_shown() {
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let mut options = under(going_back(), Some(30));
    options.text = Some(Box::new(Spelled));
    options.stop_strings = vec!["41 4".to_owned()];
    let (steps, failed, outcome) = answer(&engine, &mut sequence, options);
    assert!(failed.is_none());
    let text: String = steps.iter().map(|step| step.text.as_str()).collect();
    assert_eq!(text, "20 20 40 ");
    assert_eq!(outcome.stop, StopReason::StopSequence("41 4".to_owned()));
    assert_eq!(outcome.usage.completion, 5);
    assert_eq!(sequence.tokens(), [1, 2, 3, 20, 20, 40, 41, 42]);
}

#[test]
fn lanes_beside_each_other_answer_as_they_do_alone() {
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let requests = || {
        [
            under(rules(template), None),
            under(going_back(), None),
            GenerateOptions {
                constraint: None,
                ..under(rules(template), Some(7))
            },
        ]
    };
    let alone: Vec<Vec<u32>> = requests()
        .into_iter()
        .map(|options| tokens(&answer(&engine, &mut engine.sequence().unwrap(), options).0))
        .collect();
    let mut sequences: Vec<Sequence> = (0..3).map(|_| engine.sequence().unwrap()).collect();
    let batch = sequences
        .iter_mut()
        .zip(requests())
        .map(|(sequence, options)| (sequence, vec![1, 2, 3], options));
    let mut beside = vec![Vec::new(); 3];
    for (index, step) in engine.generate_batch(batch).unwrap() {
        beside[index.unwrap()].push(step.unwrap().token);
    }
    assert_eq!(beside, alone);
}

#[test]
fn dropping_leaves_the_tokens_that_were_given_out() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let program = program();
        let engine = engine(&program, variant);
        let mut sequence = engine.sequence().unwrap();
        let mut generation = engine
            .generate(&mut sequence, &[1, 2, 3], under(rules(template), None))
            .unwrap();
        let given: Vec<u32> = (0..3)
            .map(|_| generation.next().unwrap().unwrap().token)
            .collect();
        drop(generation);
        assert_eq!(given, [20, 26, 40]);
        assert_eq!(sequence.tokens(), [1, 2, 3, 20, 26, 40]);
        assert!(sequence.held() <= 6);
    }
}

#[test]
fn cancelling_gives_out_what_was_held() {
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let cancel = CancelToken::new();
    let mut options = under(going_back(), None);
    options.sample_forced = true;
    options.cancel = cancel.clone();
    let mut generation = engine.generate(&mut sequence, &[1, 2, 3], options).unwrap();
    assert_eq!(generation.next().unwrap().unwrap().token, 20);
    cancel.cancel();
    assert!(generation.next().is_none());
    assert_eq!(generation.outcome().stop, StopReason::Cancelled);
    drop(generation);
    assert_eq!(sequence.tokens(), [1, 2, 3, 20]);
}

#[test]
fn forced_continuations_are_followed_or_refused() {
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let mut options = under(rules(template), None);
    options.forced = vec![25];
    let (steps, _, _) = answer(&engine, &mut sequence, options);
    assert_eq!(tokens(&steps), [25, 20, 40, 41, 42, 50]);
    let mut options = under(rules(template), None);
    options.forced = vec![5];
    let error = engine.generate(&mut sequence, &[1], options).unwrap_err();
    assert_eq!(error.fault(), Fault::Request);
}

#[test]
fn a_panicking_constraint_is_an_error_and_the_sequence_lives_on() {
    fn breaks(text: &[u32]) -> Next {
        match text.len() {
            0 => Next::Any,
            _ => Next::Panic,
        }
    }
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let mut options = under(rules(breaks), None);
    options.sample_forced = true;
    let (_, failed, outcome) = answer(&engine, &mut sequence, options);
    assert_eq!(failed.unwrap().fault(), Fault::Bug);
    assert_eq!(outcome.stop, StopReason::Error);
    let (steps, failed, _) = answer(&engine, &mut sequence, under(rules(template), None));
    assert!(failed.is_none());
    assert_eq!(tokens(&steps), [20, 26, 40, 41, 42, 50]);
}

#[test]
fn an_answer_that_must_be_empty_has_no_step() {
    let program = program();
    let engine = engine(&program, EngineVariant::Sequential);
    let mut sequence = engine.sequence().unwrap();
    let (steps, failed, outcome) =
        answer(&engine, &mut sequence, under(rules(|_| Next::End), None));
    assert!(steps.is_empty() && failed.is_none());
    assert_eq!(outcome.stop, StopReason::Grammar);
}

#[test]
fn a_mask_of_another_width_is_refused() {
    let program = ScriptedProgram::choosing(80, 16, |_| 1);
    let vocab = SampleVocab::new(80, 80, &[]).unwrap();
    let engine = Engine::new(program, vocab, EngineOptions::default()).unwrap();
    let mut sequence = engine.sequence().unwrap();
    let error = engine
        .generate(&mut sequence, &[1], under(rules(template), None))
        .unwrap_err();
    let expected = ErrorKind::MaskWidth {
        found: 64,
        expected: 80,
    };
    assert_eq!(error.kind(), &expected);
}
