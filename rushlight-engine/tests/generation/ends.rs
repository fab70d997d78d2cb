//! What ends an answer: limits, stop tokens, cancelling, failures; and what stands then.

use super::*;

#[test]
fn eng_7_the_context_ends_an_answer() {
    for (context, max, tokens) in [(5, Some(100), 2), (6, None, 3), (3, None, 0)] {
        let engine = engine(&program(context), EngineOptions::default());
        let mut sequence = engine.sequence().unwrap();
        let (answer, outcome) = answer(&engine, &mut sequence, &[1, 2, 3], greedy(max));
        assert_eq!(answer.len(), tokens, "context {context}");
        assert_eq!(outcome.stop, StopReason::Context);
        assert_eq!(sequence.len(), 3 + tokens);
    }
}

#[test]
fn an_answer_that_ends_inside_a_forced_run_keeps_only_what_was_given_out() {
    let engine = engine(&program(512), EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    let options = GenerateOptions {
        forced: vec![7, 8, 9, 10],
        logits: true,
        ..greedy(Some(2))
    };
    let (tokens, _) = answer(&engine, &mut sequence, &[1, 2, 3], options);
    assert_eq!(tokens, [7, 8]);
    assert_eq!(sequence.tokens(), [1, 2, 3, 7, 8]);
    assert!(sequence.held() <= 5);
    let (tokens, _) = answer(&engine, &mut sequence, &[1, 2, 3, 7, 50], greedy(Some(2)));
    assert_eq!(tokens, cold(&[1, 2, 3, 7, 50], 2));
}

#[test]
fn eng_15_cancelling_stops_within_a_step_and_leaves_the_sequence_usable() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let engine = engine(
            &program(512),
            EngineOptions {
                variant,
                ..EngineOptions::default()
            },
        );
        let mut sequence = engine.sequence().unwrap();
        let cancel = CancelToken::new();
        let options = GenerateOptions {
            cancel: cancel.clone(),
            ..greedy(None)
        };
        let mut generation = engine.generate(&mut sequence, &[1, 2, 3], options).unwrap();
        let given: Vec<u32> = generation
            .by_ref()
            .take(4)
            .map(|step| step.unwrap().token)
            .collect();
        cancel.cancel();
        let late: Vec<_> = generation.by_ref().collect();
        // With a lookahead of 2 the pass under way may still give its token.
        assert!(
            late.len() <= usize::from(variant == EngineVariant::Pipelined),
            "{}",
            late.len()
        );
        assert_eq!(generation.outcome().stop, StopReason::Cancelled);
        drop(generation);
        assert_eq!(&sequence.tokens()[..7], [&[1, 2, 3], &given[..]].concat());
        let prompt = [&[1, 2, 3], &given[..2], &[60]].concat();
        let (tokens, outcome) = answer(&engine, &mut sequence, &prompt, greedy(Some(3)));
        assert_eq!(outcome.usage.cached, 5);
        assert_eq!(tokens, cold(&prompt, 3));
    }
}

#[test]
fn eng_15_a_generation_that_was_never_consumed_changes_nothing() {
    let program = program(512);
    let engine = engine(&program, EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    answer(&engine, &mut sequence, &[1, 2, 3], greedy(Some(3)));
    let (history, held, runs) = (
        sequence.tokens().to_vec(),
        sequence.held(),
        program.steps().len(),
    );
    drop(
        engine
            .generate(&mut sequence, &[1, 99], greedy(None))
            .unwrap(),
    );
    let cancelled = GenerateOptions::default();
    cancelled.cancel.cancel();
    assert!(
        engine
            .generate(&mut sequence, &[1, 99], cancelled)
            .unwrap()
            .next()
            .is_none()
    );
    assert_eq!((sequence.tokens(), sequence.held()), (&history[..], held));
    assert_eq!(program.steps().len(), runs);
    let (tokens, _) = answer(&engine, &mut sequence, &[4, 5], greedy(Some(2)));
    assert_eq!(tokens, cold(&[4, 5], 2));
}

#[test]
fn an_error_inside_a_forced_run_leaves_no_state_that_has_no_token() {
    let script = |history: &[u32]| match history.len() {
        4 => vec![f32::NAN; VOCAB],
        _ => {
            let mut row = vec![0.0; VOCAB];
            row[next(history) as usize] = 10.0;
            row
        }
    };
    let vocab = SampleVocab::new(VOCAB, VOCAB, &[]).unwrap();
    let program = ScriptedProgram::new(VOCAB, 64, script);
    let engine = Engine::new(program, vocab, EngineOptions::default()).unwrap();
    let mut sequence = engine.sequence().unwrap();
    let mut options = GenerateOptions {
        forced: vec![7, 8, 9],
        ..greedy(None)
    };
    options.sampling.logprobs = Some(0);
    let steps: Vec<_> = engine
        .generate(&mut sequence, &[1, 2, 3], options)
        .unwrap()
        .collect();
    assert!(steps.last().unwrap().is_err());
    assert!(sequence.held() <= sequence.len(), "{sequence:?}");
}

#[test]
fn dropping_in_the_middle_keeps_the_tokens_that_were_given_out() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let engine = engine(
            &program(512),
            EngineOptions {
                variant,
                ..EngineOptions::default()
            },
        );
        let mut sequence = engine.sequence().unwrap();
        let mut generation = engine
            .generate(&mut sequence, &[1, 2, 3], greedy(None))
            .unwrap();
        let given: Vec<u32> = generation
            .by_ref()
            .take(3)
            .map(|step| step.unwrap().token)
            .collect();
        drop(generation);
        assert_eq!(sequence.tokens(), [&[1, 2, 3], &given[..]].concat());
        let longer = [sequence.tokens(), &[9]].concat();
        let (tokens, _) = answer(&engine, &mut sequence, &longer, greedy(Some(4)));
        assert_eq!(tokens, cold(&longer, 4));
    }
}

#[test]
fn eng_16_a_stop_token_outranks_the_limit_it_meets() {
    let stop = cold(&[1, 2, 3], 3)[2];
    let engine = engine(&program(512), EngineOptions::default());
    let mut sequence = engine.sequence().unwrap();
    let options = GenerateOptions {
        stop_tokens: vec![stop],
        ..greedy(Some(3))
    };
    let (tokens, outcome) = answer(&engine, &mut sequence, &[1, 2, 3], options);
    assert_eq!(tokens.last(), Some(&stop));
    assert_eq!(outcome.stop, StopReason::Eos);
}

#[test]
fn a_failed_pass_is_an_error_and_nothing_is_lost() {
    for variant in [EngineVariant::Sequential, EngineVariant::Pipelined] {
        let program = program(512);
        program.fail_at(2);
        let engine = engine(
            &program,
            EngineOptions {
                variant,
                ..EngineOptions::default()
            },
        );
        let mut sequence = engine.sequence().unwrap();
        let mut generation = engine
            .generate(&mut sequence, &[1, 2, 3], greedy(None))
            .unwrap();
        let steps: Vec<_> = generation.by_ref().collect();
        assert_eq!(steps.len(), 3, "two steps and the error");
        assert!(matches!(
            steps[2].as_ref().unwrap_err().kind(),
            ErrorKind::Backend { .. }
        ));
        assert_eq!(generation.outcome().stop, StopReason::Error);
        drop(generation);
        assert_eq!(sequence.len(), 5);
        let prompt = [sequence.tokens(), &[8]].concat();
        let (tokens, _) = answer(&engine, &mut sequence, &prompt, greedy(Some(2)));
        assert_eq!(tokens, cold(&prompt, 2));
    }
}

#[test]
fn a_fixed_cache_ends_where_it_ends() {
    let kv_cache = KvOptions {
        strategy: KvCacheStrategy::FixedSize,
        initial_capacity: Some(6),
        ..KvOptions::default()
    };
    let engine = engine(
        &program(64),
        EngineOptions {
            kv_cache,
            ..EngineOptions::default()
        },
    );
    let mut sequence = engine.sequence().unwrap();
    let (tokens, outcome) = answer(&engine, &mut sequence, &[1, 2, 3], greedy(None));
    assert_eq!((tokens.len(), outcome.stop), (3, StopReason::Context));
}

#[test]
fn logits_that_are_no_numbers_end_the_answer_with_an_error() {
    let program = ScriptedProgram::new(4, 64, |history| {
        if history.len() < 3 {
            vec![0.0, 1.0, 0.0, 0.0]
        } else {
            vec![f32::NAN; 4]
        }
    });
    let vocab = SampleVocab::new(4, 4, &[]).unwrap();
    let engine = Engine::new(program, vocab, EngineOptions::default()).unwrap();
    let mut sequence = engine.sequence().unwrap();
    let steps: Vec<_> = engine
        .generate(&mut sequence, &[0], greedy(None))
        .unwrap()
        .collect();
    assert_eq!(steps.len(), 3);
    assert!(matches!(
        steps[2].as_ref().unwrap_err().kind(),
        ErrorKind::NanLogits { .. }
    ));
}
