//! The sampler against the behaviours it must have (`SMP`, `LP`) and against a plain twin.

mod twin;

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;

fn sampler(options: SamplingOptions, width: usize) -> Sampler {
    let vocab = SampleVocab::new(width, width, &[]).unwrap();
    Sampler::new(&options, &vocab).unwrap()
}

fn greedy(logits: &[f32]) -> Result<u32> {
    let mut sampler = sampler(SamplingOptions::greedy(), logits.len());
    Ok(sampler.sample(logits, None)?.token)
}

fn seeded(seed: u64) -> SamplingOptions {
    SamplingOptions {
        seed: Some(seed),
        ..SamplingOptions::default()
    }
}

/// How often each token comes in `n` draws.
fn frequencies(options: SamplingOptions, logits: &[f32], n: usize) -> Vec<f64> {
    let mut sampler = sampler(options, logits.len());
    let mut counts = vec![0.0; logits.len()];
    for _ in 0..n {
        counts[sampler.sample(logits, None).unwrap().token as usize] += 1.0;
    }
    counts.iter().map(|count| count / n as f64).collect()
}

/// The tokens that ever come.
fn support(options: SamplingOptions, logits: &[f32]) -> Vec<usize> {
    let seen = frequencies(options, logits, 4000);
    (0..seen.len()).filter(|&id| seen[id] > 0.0).collect()
}

/// The row after penalties, bias and mask, as the filters see it.
fn penalised(options: SamplingOptions, history: &[u32], logits: &[f32]) -> Vec<f32> {
    let mut sampler = sampler(options, logits.len());
    sampler.observe(history);
    sampler.sample(logits, None).unwrap();
    sampler.row.logits()[..logits.len()].to_vec()
}

fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!(
            (a - b).abs() < tolerance,
            "{a} is not {b} within {tolerance}"
        );
    }
}

fn logs(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

#[test]
fn smp_1_greedy_takes_the_first_largest() {
    assert_eq!(greedy(&[0.1, -0.5, 3.2, 1.7, 0.0, 2.9]).unwrap(), 2);
    assert_eq!(greedy(&[1.0, 3.0, 3.0, 3.0, 2.0]).unwrap(), 1);
    assert_eq!(greedy(&[0.3]).unwrap(), 0);
    // The reference answers token 0 for an empty row and for one of −∞. Here a state with no legal
    // token is an error, never token 0, and a vocabulary of no ids cannot be made.
    let e = greedy(&[f32::NEG_INFINITY; 3]).unwrap_err();
    assert_eq!(e.kind(), &ErrorKind::NoLegalToken);
    assert!(SampleVocab::new(0, 0, &[]).is_err());
}

#[test]
fn smp_2_top_k_keeps_k_tokens() {
    let top_k = |k| SamplingOptions {
        top_k: Some(k),
        ..seeded(1)
    };
    assert_eq!(support(top_k(2), &[0.1, 0.5, 0.2, 0.9, 0.3]), [1, 3]);
    let ramp: Vec<f32> = (0..100).map(|i| i as f32).collect();
    let flat = SamplingOptions {
        temperature: 10.0,
        ..top_k(5)
    };
    assert_eq!(support(flat, &ramp), [95, 96, 97, 98, 99]);
    // Ties: the first ones.
    assert_eq!(
        support(top_k(3), &[1.0, 2.0, 1.0, 2.0, 1.0, 1.0]),
        [0, 1, 3]
    );
}

#[test]
fn smp_4_min_p_keeps_what_is_likely_enough() {
    let min_p = |p| SamplingOptions {
        min_p: Some(p),
        ..seeded(3)
    };
    assert_eq!(support(min_p(0.1), &[10.0, 9.5, 2.0]), [0, 1]);
    assert_eq!(support(min_p(1.0), &[9.5, 10.0, 9.9]), [1]);
}

#[test]
fn smp_5_filtered_draws_have_the_renormalised_frequencies() {
    let logits = logs(&[0.0, 0.5, 0.4, 0.1]);
    let top_p = |p| SamplingOptions {
        top_p: Some(p),
        ..seeded(5)
    };
    let seen = frequencies(top_p(0.6), &logits, 40_000);
    close(&seen, &[0.0, 0.5556, 0.4444, 0.0], 0.01);
    let seen = frequencies(top_p(0.95), &logits, 40_000);
    close(&seen, &[0.0, 0.5, 0.4, 0.1], 0.01);
    let top_k = SamplingOptions {
        top_k: Some(2),
        ..seeded(5)
    };
    let seen = frequencies(top_k, &logs(&[0.6, 0.0, 0.1, 0.3]), 40_000);
    close(&seen, &[0.6667, 0.0, 0.0, 0.3333], 0.01);
}

#[test]
fn smp_6_repetition_penalty_pushes_down_on_both_sides_of_zero() {
    let penalty = |p| SamplingOptions {
        repetition_penalty: p,
        ..SamplingOptions::greedy()
    };
    let logits = [2.0, -2.0, 0.0, 1.0, 5.0];
    let once = penalised(penalty(2.0), &[0, 1, 2], &logits);
    assert_eq!(once, [1.0, -4.0, 0.0, 1.0, 5.0]);
    assert_eq!(penalised(penalty(1.0), &[0, 1, 2], &logits), logits);
    assert_eq!(
        penalised(penalty(2.0), &[0, 0, 0], &logits),
        penalised(penalty(2.0), &[0], &logits)
    );
    // Ids have no sign here: −1 arrives as its 32 bits.
    assert_eq!(
        penalised(penalty(2.0), &[u32::MAX, 5, 100], &logits),
        logits
    );
}

#[test]
fn smp_7_penalties_change_the_greedy_choice() {
    let options = SamplingOptions {
        repetition_penalty: 2.0,
        ..SamplingOptions::greedy()
    };
    let mut sampler = sampler(options, 3);
    sampler.observe(&[0]);
    assert_eq!(sampler.sample(&[3.0, 2.0, 1.0], None).unwrap().token, 1);
    sampler.forget();
    assert_eq!(sampler.sample(&[3.0, 2.0, 1.0], None).unwrap().token, 0);
}

#[test]
fn smp_10_presence_counts_once_and_frequency_each_time() {
    let logits = [1.0, 2.0, 3.0, 4.0];
    let presence = SamplingOptions {
        presence_penalty: 0.5,
        ..SamplingOptions::greedy()
    };
    assert_eq!(
        penalised(presence, &[1, 1, 3], &logits),
        [1.0, 1.5, 3.0, 3.5]
    );
    let frequency = SamplingOptions {
        frequency_penalty: 0.5,
        ..SamplingOptions::greedy()
    };
    assert_eq!(
        penalised(frequency.clone(), &[1, 1, 3], &logits),
        [1.0, 1.0, 3.0, 3.5]
    );
    let last_two = SamplingOptions {
        penalty_context: Some(2),
        ..frequency
    };
    assert_eq!(
        penalised(last_two, &[1, 1, 3], &logits),
        [1.0, 1.5, 3.0, 3.5]
    );
}

#[test]
fn smp_12_the_callers_logits_are_not_changed() {
    let rows: Vec<f32> = (0..20).map(|i| i as f32).collect();
    let before = rows.clone();
    let presence = SamplingOptions {
        presence_penalty: 0.5,
        ..SamplingOptions::greedy()
    };
    let result = penalised(presence, &[1, 3], &rows[10..14]);
    assert_eq!(result, [10.0, 10.5, 12.0, 12.5]);
    assert_eq!(rows, before);
}

#[test]
fn smp_13_a_seed_fixes_the_draws() {
    let logits: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin()).collect();
    let draws = |seed| {
        let mut sampler = sampler(
            SamplingOptions {
                seed,
                ..SamplingOptions::default()
            },
            logits.len(),
        );
        let draw = |_| sampler.sample(&logits, None).unwrap().token;
        let tokens: Vec<u32> = (0..24).map(draw).collect();
        (tokens, sampler.seed())
    };
    assert_eq!(draws(Some(1)), draws(Some(1)));
    assert_ne!(draws(Some(1)).0, draws(Some(2)).0);
    let (tokens, seed) = draws(None);
    assert!(tokens.iter().all(|&t| t < 50));
    assert_eq!(
        draws(Some(seed)).0,
        tokens,
        "the reported seed repeats the run"
    );
}

#[test]
fn smp_14_precedence() {
    let logits = [0.0, 1.0, 3.0, 2.0];
    // Temperature 0 is greedy whatever the filters say.
    for order in [SamplerOrder::DEFAULT, SamplerOrder::LLAMA_CPP] {
        let options = SamplingOptions {
            top_k: Some(40),
            top_p: Some(0.9),
            min_p: Some(0.01),
            order,
            ..SamplingOptions::greedy()
        };
        assert_eq!(support(options, &logits), [2]);
    }
    // top-k 1 samples from one token; a drawn seed is still reported.
    let one = SamplingOptions {
        top_k: Some(1),
        ..seeded(9)
    };
    assert_eq!(support(one.clone(), &logits), [2]);
    assert!(!sampler(one, 4).is_greedy());
    let nucleus = |p| SamplingOptions {
        top_p: Some(p),
        temperature: 2.0,
        ..seeded(9)
    };
    assert_eq!(support(nucleus(1.0), &logits), [0, 1, 2, 3]);
    // Just below 1 the filter is on: what weighs less than 1 − p beside the rest is cut.
    let tail = [0.0, -8.0, -30.0];
    let almost = SamplingOptions {
        temperature: 1.0,
        ..nucleus(0.999_999_9)
    };
    let mut filtered = sampler(almost, 3);
    filtered.sample(&tail, None).unwrap();
    assert_eq!(filtered.candidates.sorted().len(), 2);
    // The reference reads top-k 0 or −5 as "off" and a nucleus of 0, −0.5 or 100 as greedy or off.
    // Here a value outside its range is an error that names the field.
    let vocab = SampleVocab::new(4, 4, &[]).unwrap();
    let top_k_0 = SamplingOptions {
        top_k: Some(0),
        ..SamplingOptions::default()
    };
    assert!(Sampler::new(&top_k_0, &vocab).is_err());
    for p in [0.0, -0.5, 100.0] {
        let e = Sampler::new(&nucleus(p), &vocab).unwrap_err();
        assert!(e.to_string().starts_with("top_p is"), "{e}");
    }
}

#[test]
fn lp_1_log_probabilities_of_known_rows() {
    let uniform = log_softmax_at(&[0.0; 4], 2).unwrap();
    assert!((uniform + 4f64.ln()).abs() < 1e-6);
    let mut score = SequenceScore::default();
    assert_eq!(
        (score.sum(), score.mean(), score.perplexity()),
        (0.0, 0.0, 1.0)
    );
    for token in 0..20 {
        score.add(&[1.5; 100], token).unwrap();
    }
    assert!((score.perplexity() - 100.0).abs() < 0.01);
    assert!(log_softmax_at(&[100.0, 0.0, 0.0], 1).unwrap() < -90.0);
    assert_eq!(log_softmax_at(&[7.25], 0).unwrap(), 0.0);
    let banned = log_softmax_at(&[f32::NEG_INFINITY, 0.0], 0).unwrap();
    assert_eq!(banned, f64::NEG_INFINITY);
}

#[test]
fn lp_3_the_likeliest_tokens_in_descending_order() {
    let ids = |logits: &[f32]| -> Vec<u32> {
        let top = top_logprobs(logits, 3).unwrap();
        assert!(top.windows(2).all(|w| w[0].logprob >= w[1].logprob));
        top.iter().map(|t| t.token).collect()
    };
    assert_eq!(ids(&[5.0, 3.0, 1.0, 10.0, 0.0]), [3, 0, 1]);
    assert_eq!(ids(&[0.1, 0.9, 0.3, 0.5, 0.2]), [1, 3, 2]);
    assert_eq!(ids(&[2.0, 2.0]), [0, 1]);
}

#[test]
fn lp_5_sums_over_a_uniform_vocabulary() {
    let mut score = SequenceScore::default();
    for token in [1, 4, 9] {
        score.add(&[0.0; 10], token).unwrap();
    }
    assert!((score.sum() - 3.0 * 0.1f64.ln()).abs() < 1e-5);
    assert!((score.perplexity() - 10.0).abs() < 1e-4);
    // The reference counts ids 100 and −1 as log-probability 0, which makes a broken text look
    // certain. Here they are errors, and the sum is untouched.
    let before = score;
    for token in [100, u32::MAX] {
        let e = score.add(&[0.0; 10], token).unwrap_err();
        let expected = ErrorKind::TokenOutOfRange {
            what: "what is scored",
            token,
            vocab: 10,
            position: 3,
        };
        assert_eq!(e.kind(), &expected);
    }
    assert_eq!(score, before);
}

#[test]
fn logprobs_are_the_models_own_whatever_the_options_do() {
    let logits = [1.0, 3.0, 2.0, f32::NEG_INFINITY];
    let options = SamplingOptions {
        logprobs: Some(4),
        logit_bias: vec![(1, f32::NEG_INFINITY)],
        repetition_penalty: 5.0,
        ..SamplingOptions::greedy()
    };
    let mut sampler = sampler(options, 4);
    sampler.observe(&[0, 1, 2]);
    let mask = [0b0001];
    let sampled = sampler.sample(&logits, Some(Mask::new(&mask))).unwrap();
    assert_eq!(sampled.token, 0);
    let expected = log_softmax_at(&logits, 0).unwrap() as f32;
    assert_eq!(sampled.logprob, Some(expected));
    assert_eq!(sampled.top, top_logprobs(&logits, 3).unwrap());
    let total: f32 = sampled.top.iter().map(|t| t.logprob.exp()).sum();
    assert!((total - 1.0).abs() < 1e-6);
}

#[test]
fn nan_and_infinite_logits_are_errors_even_where_masked() {
    for (bad, kind) in [
        (f32::NAN, ErrorKind::NanLogits { token: 37 }),
        (f32::INFINITY, ErrorKind::InfiniteLogits { token: 37 }),
    ] {
        let mut logits = vec![0.5; 100];
        logits[37] = bad;
        let mut sampler = sampler(seeded(1), 100);
        let masks = [None, Some(Mask::new(&[1, 0, 0, 0]))];
        for mask in masks {
            assert_eq!(sampler.sample(&logits, mask).unwrap_err().kind(), &kind);
        }
        logits[37] = 0.0;
        sampler.sample(&logits, None).unwrap();
    }
}

#[test]
fn an_empty_mask_is_an_error_for_every_mode() {
    for options in [SamplingOptions::greedy(), seeded(1)] {
        let mut sampler = sampler(options, 40);
        let e = sampler
            .sample(&[1.0; 40], Some(Mask::new(&[0, 0])))
            .unwrap_err();
        assert_eq!(e.kind(), &ErrorKind::NoLegalToken);
        // The only bit lies past the vocabulary.
        let e = sampler
            .sample(&[1.0; 40], Some(Mask::new(&[0, 1 << 20])))
            .unwrap_err();
        assert_eq!(e.kind(), &ErrorKind::NoLegalToken);
        let e = sampler
            .sample(&[1.0; 40], Some(Mask::new(&[1])))
            .unwrap_err();
        assert!(matches!(
            e.kind(),
            ErrorKind::MaskWidth {
                found: 32,
                expected: 40
            }
        ));
        let e = sampler.sample(&[1.0; 39], None).unwrap_err();
        assert!(matches!(
            e.kind(),
            ErrorKind::LogitsWidth {
                found: 39,
                expected: 40
            }
        ));
    }
}

#[test]
fn padding_and_unused_ids_are_never_sampled() {
    let vocab = SampleVocab::new(50, 64, &[3, 7]).unwrap();
    let mut logits = vec![0.0; 64];
    for id in [3, 7, 50, 63] {
        logits[id] = 100.0;
    }
    let options = SamplingOptions {
        logprobs: Some(5),
        ..seeded(2)
    };
    let mut sampler = Sampler::new(&options, &vocab).unwrap();
    for _ in 0..500 {
        let sampled = sampler.sample(&logits, None).unwrap();
        assert!(vocab.allows(sampled.token), "{}", sampled.token);
        assert!(sampled.top.iter().all(|t| vocab.allows(t.token)));
    }
}

#[test]
fn huge_and_tiny_values_stay_in_order() {
    // Spreads that overflow when subtracted or divided, penalties that overflow when added.
    for temperature in [1e-45, 1e-30, 1.0, f32::MAX] {
        let options = SamplingOptions {
            temperature,
            top_p: Some(0.9),
            min_p: Some(1e-30),
            repetition_penalty: 1e-30,
            presence_penalty: f32::MAX,
            frequency_penalty: -f32::MAX,
            logit_bias: vec![(0, f32::MAX), (2, f32::MIN)],
            ..seeded(4)
        };
        let mut sampler = sampler(options, 4);
        sampler.observe(&[0, 0, 0, 1]);
        for logits in [[f32::MAX, f32::MIN, 0.0, -0.0], [f32::MIN; 4]] {
            let token = sampler.sample(&logits, None).unwrap().token;
            assert!(token < 4);
        }
    }
    let cold = SamplingOptions {
        temperature: 1e-45,
        ..seeded(4)
    };
    assert_eq!(support(cold, &[1.0, 1.000_001, 0.5]), [1]);
}

#[test]
fn first_draws_are_fixed() {
    // Any change here changes the text of every stored seed.
    let logits: Vec<f32> = (0..1000)
        .map(|i| ((i * 7919) % 1000) as f32 * 0.01)
        .collect();
    let options = SamplingOptions {
        temperature: 0.8,
        top_p: Some(0.95),
        ..seeded(42)
    };
    let mut sampler = sampler(options, 1000);
    let tokens: Vec<u32> = (0..8)
        .map(|_| sampler.sample(&logits, None).unwrap().token)
        .collect();
    assert_eq!(tokens, FIRST_DRAWS);
}

/// From an independent computation of PCG XSL RR 128/64 and the filters in double precision.
const FIRST_DRAWS: [u32; 8] = [792, 988, 25, 631, 62, 630, 889, 420];
