//! The loop over a scripted program: what is run, what is kept, what ends an answer.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod ends;
mod stop_strings;

use std::sync::{Arc, Mutex};

use rushlight_engine::plan::{
    EngineVariant, KvCacheStrategy, KvOptions, PrefillOptions, PrefillSplit,
};
use rushlight_engine::sample::{SampleVocab, SamplingOptions};
use rushlight_engine::{
    CancelToken, Engine, EngineOptions, ErrorKind, GenerateOptions, Outcome, Sequence, Step,
    StopReason, TokenText,
};
use rushlight_testkit::scripted::ScriptedProgram;

const VOCAB: usize = 128;

/// The next token is a function of the whole history, so a history that is wrong anywhere shows.
fn next(history: &[u32]) -> u32 {
    let sum = history
        .iter()
        .enumerate()
        .map(|(i, t)| (i as u32 + 1) * (t + 1))
        .sum::<u32>();
    10 + sum % 100
}

fn program(context: usize) -> Arc<ScriptedProgram> {
    ScriptedProgram::choosing(VOCAB, context, next)
}

fn engine(program: &Arc<ScriptedProgram>, options: EngineOptions) -> Engine {
    let vocab = SampleVocab::new(VOCAB, VOCAB, &[]).unwrap();
    Engine::new(program.clone(), vocab, options).unwrap()
}

fn greedy(max_tokens: Option<usize>) -> GenerateOptions {
    GenerateOptions {
        max_tokens,
        sampling: SamplingOptions::greedy(),
        ..GenerateOptions::default()
    }
}

fn answer(
    engine: &Engine,
    sequence: &mut Sequence,
    prompt: &[u32],
    options: GenerateOptions,
) -> (Vec<u32>, Outcome) {
    let mut generation = engine.generate(sequence, prompt, options).unwrap();
    let steps: Vec<Step> = generation.by_ref().map(Result::unwrap).collect();
    let outcome = generation.outcome();
    let stops = steps.iter().filter(|step| step.stop.is_some()).count();
    assert_eq!(
        stops,
        usize::from(!steps.is_empty()),
        "only the last step has a reason"
    );
    (steps.iter().map(|step| step.token).collect(), outcome)
}

fn cold(prompt: &[u32], max: usize) -> Vec<u32> {
    let engine = engine(&program(512), EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    answer(&engine, &mut sequence, prompt, greedy(Some(max))).0
}

#[test]
fn eng_9_a_second_turn_reads_only_what_is_new() {
    let program = program(512);
    let engine = engine(&program, EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    let (first, _) = answer(&engine, &mut sequence, &[1, 2, 3], greedy(Some(3)));
    let history = [&[1, 2, 3], &first[..]].concat();
    // All six tokens match. The last was sampled and never run, and a prompt's last token is always
    // run, so five have states to keep.
    let (second, outcome) = answer(&engine, &mut sequence, &history, greedy(Some(2)));
    assert_eq!((outcome.reuse.matched, outcome.reuse.cached), (6, 5));
    assert_eq!(
        (
            outcome.usage.prompt,
            outcome.usage.cached,
            outcome.usage.completion
        ),
        (6, 5, 2)
    );
    assert_eq!(second, cold(&history, 2));
    assert_eq!(sequence.len(), 8);

    let longer = [&history[..], &second, &[77, 78, 79]].concat();
    let before = program.tokens_run().len();
    let (third, outcome) = answer(&engine, &mut sequence, &longer, greedy(Some(3)));
    assert_eq!((outcome.reuse.matched, outcome.reuse.cached), (8, 7));
    assert_eq!(outcome.reuse.diverged_at, None);
    assert_eq!(third, cold(&longer, 3));
    assert_eq!(sequence.len(), 14);
    // Four new prompt tokens, and the answer less its last.
    assert_eq!(program.tokens_run().len() - before, 4 + 2);
}

#[test]
fn eng_10_a_divergence_rewinds_and_equals_a_cold_run() {
    let engine = engine(&program(512), EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    answer(&engine, &mut sequence, &[1, 2, 3], greedy(Some(3)));
    let (tokens, outcome) = answer(&engine, &mut sequence, &[1, 2, 99, 100], greedy(Some(2)));
    assert_eq!(
        (outcome.reuse.cached, outcome.reuse.diverged_at),
        (2, Some(2))
    );
    assert_eq!(tokens, cold(&[1, 2, 99, 100], 2));
    assert_eq!(sequence.len(), 6);
}

#[test]
fn eng_11_the_history_counts_prompts_answers_and_rewinds() {
    let engine = engine(&program(512), EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    let prompt = [1, 2, 3, 4, 5];
    answer(&engine, &mut sequence, &prompt, greedy(Some(10)));
    assert_eq!(sequence.len(), 15);
    assert_eq!(sequence.rewind(5), 5);
    let (tokens, _) = answer(&engine, &mut sequence, &prompt, greedy(Some(7)));
    assert_eq!(sequence.len(), 12);
    assert_eq!(tokens, cold(&prompt, 7));
    assert_eq!(sequence.rewind(0), 0);
    assert!(sequence.is_empty() && sequence.held() == 0);
}

#[test]
fn eng_13_forced_tokens_come_out_exactly_each_with_its_logits() {
    let program = program(512);
    let engine = engine(&program, EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    let options = |forced: &[u32], max| GenerateOptions {
        forced: forced.to_vec(),
        logits: true,
        ..greedy(Some(max))
    };
    let generation = engine
        .generate(&mut sequence, &[1, 2, 3], options(&[7, 8, 9], 3))
        .unwrap();
    let steps: Vec<Step> = generation.map(Result::unwrap).collect();
    assert_eq!(steps.iter().map(|s| s.token).collect::<Vec<_>>(), [7, 8, 9]);
    let mut history = vec![1, 2, 3];
    for step in &steps {
        assert!(step.forced);
        let logits = step.logits.as_ref().unwrap();
        assert_eq!(
            logits[next(&history) as usize],
            10.0,
            "logits after {history:?}"
        );
        history.push(step.token);
    }
    // The prompt, then all forced tokens in one pass.
    assert_eq!(
        program
            .steps()
            .iter()
            .map(|s| s[0].tokens.len())
            .collect::<Vec<_>>(),
        [3, 3]
    );
    assert_eq!(sequence.tokens(), [1, 2, 3, 7, 8, 9]);

    let mut sequence = engine.sequence().unwrap();
    let (none, _) = answer(&engine, &mut sequence, &[1, 2, 3], options(&[], 0));
    assert!(none.is_empty());
}

#[test]
fn a_forced_beginning_is_one_pass_and_the_rest_is_sampled() {
    for (logits, variant) in [
        (false, EngineVariant::Sequential),
        (true, EngineVariant::Sequential),
        (false, EngineVariant::Pipelined),
        (true, EngineVariant::Pipelined),
    ] {
        let program = program(512);
        let engine = engine(
            &program,
            EngineOptions {
                variant,
                ..EngineOptions::default()
            },
        );
        let mut sequence = engine.sequence().unwrap();
        let options = GenerateOptions {
            forced: vec![7, 8, 9],
            logits,
            ..greedy(Some(5))
        };
        let (tokens, outcome) = answer(&engine, &mut sequence, &[1, 2, 3], options);
        let rest = cold(&[1, 2, 3, 7, 8, 9], 2);
        assert_eq!(tokens, [&[7, 8, 9], &rest[..]].concat());
        assert_eq!(outcome.usage.completion, 5);
        assert_eq!(program.steps()[1][0].tokens, [7, 8, 9]);
        assert_eq!(sequence.tokens().len(), 8);
    }
}

#[test]
fn eng_19_and_20_prefill_passes_and_progress() {
    for (len, chunk, split, passes) in [
        (25, 8, PrefillSplit::Balanced, vec![8, 16, 24, 25]),
        (25, 7, PrefillSplit::Balanced, vec![6, 12, 18, 24, 25]),
        (26, 8, PrefillSplit::Remainder, vec![8, 16, 24, 26]),
    ] {
        let program = program(512);
        let prefill = PrefillOptions {
            chunk,
            threshold: 0,
            split,
        };
        let engine = engine(
            &program,
            EngineOptions {
                prefill,
                ..EngineOptions::default()
            },
        );
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let options = GenerateOptions {
            progress: Some(Box::new(move |done, total| {
                told.lock().unwrap().push((done, total))
            })),
            ..greedy(Some(2))
        };
        let prompt: Vec<u32> = (0..len as u32).collect();
        let mut sequence = engine.sequence().unwrap();
        let (tokens, _) = answer(&engine, &mut sequence, &prompt, options);
        let expected: Vec<_> = passes.iter().map(|&done| (done, len)).collect();
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!(tokens, cold(&prompt, 2));
        // Only the last prompt pass asks for logits.
        let rows: Vec<_> = program.steps().iter().map(|step| step[0].logits).collect();
        assert_eq!(rows, [vec![0; passes.len() - 1], vec![1, 1]].concat());
    }
}

#[test]
fn a_batch_gives_what_each_request_gives_alone() {
    let program = program(512);
    let engine = engine(&program, EngineOptions::default());
    let prompts: [Vec<u32>; 3] = [vec![1, 2, 3], (0..40).collect(), vec![9]];
    let limits = [4, 2, 6];
    let mut sequences: Vec<Sequence> = (0..3).map(|_| engine.sequence().unwrap()).collect();
    let requests = sequences.iter_mut().zip(&prompts).zip(limits);
    let requests =
        requests.map(|((sequence, prompt), max)| (sequence, prompt.clone(), greedy(Some(max))));
    let mut answers = vec![Vec::new(); 3];
    let mut batch = engine.generate_batch(requests).unwrap();
    for (index, step) in batch.by_ref() {
        answers[index.unwrap()].push(step.unwrap().token);
    }
    for (i, max) in limits.into_iter().enumerate() {
        assert_eq!(answers[i], cold(&prompts[i], max), "request {i}");
        assert_eq!(batch.outcome(i).unwrap().stop, StopReason::MaxTokens);
    }
    assert!(batch.outcome(3).is_none());
    // One pass for the three prompts, and then one for all that are left.
    let lanes: Vec<_> = program.steps().iter().map(Vec::len).collect();
    assert_eq!(lanes, [3, 3, 2, 2, 1, 1]);
}

#[test]
fn requests_that_cannot_be_leave_the_sequence_as_it_was() {
    let engine = engine(&program(8), EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    answer(&engine, &mut sequence, &[1, 2, 3], greedy(Some(2)));
    let before = sequence.tokens().to_vec();
    let mut refused = |prompt: &[u32], options: GenerateOptions| {
        let error = engine
            .generate(&mut sequence, prompt, options)
            .err()
            .unwrap();
        assert_eq!(sequence.tokens(), before);
        error
    };
    assert_eq!(*refused(&[], greedy(None)).kind(), ErrorKind::EmptyPrompt);
    let overflow = ErrorKind::ContextOverflow {
        prompt: 9,
        context: 8,
    };
    assert_eq!(*refused(&[1; 9], greedy(None)).kind(), overflow);
    let range = ErrorKind::TokenOutOfRange {
        what: "the prompt",
        token: 128,
        vocab: 128,
        position: 1,
    };
    assert_eq!(*refused(&[1, 128], greedy(None)).kind(), range);
    let forced = GenerateOptions {
        forced: vec![u32::MAX],
        ..greedy(None)
    };
    assert!(matches!(
        refused(&[1], forced).kind(),
        ErrorKind::TokenOutOfRange { .. }
    ));
    let stops = GenerateOptions {
        stop_strings: vec!["x".to_owned()],
        ..greedy(None)
    };
    assert!(refused(&[1], stops).to_string().contains("stop_strings"));
    let mut options = greedy(None);
    options.sampling.top_p = Some(1.5);
    assert!(refused(&[1], options).to_string().contains("top_p"));
}

#[test]
fn engines_that_cannot_be_are_refused() {
    let refused = |options: EngineOptions| {
        let vocab = SampleVocab::new(VOCAB, VOCAB, &[]).unwrap();
        Engine::new(program(64), vocab, options).err().unwrap()
    };
    let static_shape = EngineOptions {
        variant: EngineVariant::StaticShape,
        ..EngineOptions::default()
    };
    assert!(matches!(
        refused(static_shape).kind(),
        ErrorKind::UnsupportedPlan { .. }
    ));
    for context in [0, 65] {
        let options = EngineOptions {
            context: Some(context),
            ..EngineOptions::default()
        };
        assert!(refused(options).to_string().contains("context"));
    }
    let kv_cache = KvOptions {
        initial_capacity: Some(65),
        ..KvOptions::default()
    };
    let options = EngineOptions {
        kv_cache,
        ..EngineOptions::default()
    };
    assert!(
        refused(options)
            .to_string()
            .contains("kv_cache_initial_capacity")
    );
    let vocab = SampleVocab::new(10, 10, &[]).unwrap();
    let error = Engine::new(program(64), vocab, EngineOptions::default())
        .err()
        .unwrap();
    assert!(matches!(
        error.kind(),
        ErrorKind::LogitsWidth {
            found: 10,
            expected: 128
        }
    ));
}

#[test]
fn a_fork_goes_its_own_way() {
    let engine = engine(&program(64), EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    answer(&engine, &mut sequence, &[1, 2, 3], greedy(Some(3)));
    let mut fork = sequence.fork().unwrap();
    let one = [sequence.tokens(), &[40]].concat();
    let two = [fork.tokens(), &[41]].concat();
    assert_eq!(
        answer(&engine, &mut sequence, &one, greedy(Some(3))).0,
        cold(&one, 3)
    );
    assert_eq!(
        answer(&engine, &mut fork, &two, greedy(Some(3))).0,
        cold(&two, 3)
    );
}

#[test]
fn scoring_shows_the_logits_behind_every_token_asked_for() {
    let program = program(512);
    let engine = engine(&program, EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    let tokens: Vec<u32> = (0..150).map(|t| t % 128).collect();
    let mut seen = Vec::new();
    engine
        .score(&mut sequence, &tokens, 100, |i, logits| {
            assert_eq!(
                logits[next(&tokens[..=i]) as usize],
                10.0,
                "after token {i}"
            );
            seen.push(i);
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, (50..150).collect::<Vec<_>>());
    assert_eq!(sequence.tokens(), tokens);
    let mut sequence = engine.sequence().unwrap();
    answer(&engine, &mut sequence, &[1, 2, 3], greedy(Some(2)));
    let history = [sequence.tokens(), &[50]].concat();
    engine
        .score(&mut sequence, &[50, 51], 2, |i, logits| {
            if i == 0 {
                assert_eq!(
                    logits[next(&history) as usize],
                    10.0,
                    "after the answer's last token"
                );
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(sequence.tokens(), [&history[..], &[51]].concat());
    let more = engine.score(&mut sequence, &[1; 510], 1, |_, _| Ok(()));
    assert!(matches!(
        more.unwrap_err().kind(),
        ErrorKind::ContextOverflow { .. }
    ));
}
