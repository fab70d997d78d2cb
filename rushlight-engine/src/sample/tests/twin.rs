//! The same sampler written the obvious way (sort everything, use `f64`, filter by prefix), and the two side by side.

use super::*;

fn distribution(
    options: &SamplingOptions,
    history: &[u32],
    logits: &[f32],
    mask: Option<&[bool]>,
) -> Vec<f64> {
    let mut row: Vec<(usize, f64)> = Vec::new();
    for (id, &logit) in logits.iter().enumerate() {
        let mut logit = f64::from(logit);
        let count = history.iter().filter(|&&t| t as usize == id).count();
        if count > 0 {
            let penalty = f64::from(options.repetition_penalty);
            logit = if logit > 0.0 {
                logit / penalty
            } else {
                logit * penalty
            };
            logit -= f64::from(options.presence_penalty);
            logit -= f64::from(options.frequency_penalty) * count as f64;
        }
        for &(biased, bias) in &options.logit_bias {
            if biased as usize == id {
                logit += f64::from(bias);
            }
        }
        if mask.is_none_or(|mask| mask[id]) && logit > f64::NEG_INFINITY {
            // The sampler's row is f32: so that ties are the same ties.
            row.push((id, f64::from(logit as f32)));
        }
    }
    row.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let best = row[0].1;
    let mut temperature = 1.0;
    for stage in options.order.stages() {
        let odds: Vec<f64> = row
            .iter()
            .map(|&(_, l)| ((l - best) / temperature).exp())
            .collect();
        let total: f64 = odds.iter().sum();
        let keep = match stage {
            Stage::Temperature => {
                temperature = f64::from(options.temperature);
                row.len()
            }
            Stage::TopK => options.top_k.map_or(row.len(), |k| k as usize),
            Stage::MinP => options.min_p.map_or(row.len(), |p| {
                odds.iter().filter(|&&o| o >= f64::from(p)).count()
            }),
            Stage::TopP => options.top_p.filter(|&p| p < 1.0).map_or(row.len(), |p| {
                let mut sum = 0.0;
                let crossing = odds.iter().position(|o| {
                    sum += o;
                    sum >= f64::from(p) * total
                });
                crossing.map_or(row.len(), |at| at + 1)
            }),
        };
        row.truncate(keep);
    }
    let odds = |l: f64| ((l - best) / temperature).exp();
    let total: f64 = row.iter().map(|&(_, l)| odds(l)).sum();
    let mut result = vec![0.0; logits.len()];
    for (id, l) in row {
        result[id] = odds(l) / total;
    }
    result
}

/// The sampler's exact distribution, read from its weights instead of estimated from draws.
fn exact(sampler: &mut Sampler, logits: &[f32], mask: Option<Mask<'_>>) -> Vec<f64> {
    sampler.sample(logits, mask).unwrap();
    let scale = Scale {
        max: sampler.row.max(),
        temperature: sampler.options.temperature,
    };
    let total = sampler.candidates.total_weight(&mut sampler.row, scale);
    let mut result = vec![0.0; logits.len()];
    let mut at = 0;
    while at < total {
        let id = sampler
            .candidates
            .token_at(&sampler.row, at, scale)
            .unwrap();
        let weight = scale.weight(sampler.row.logits()[id as usize]);
        result[id as usize] += weight as f64 / total as f64;
        at += weight;
    }
    result
}

#[test]
fn a_cut_among_thousands_of_nearly_equal_tokens_is_exact() {
    // All within one bin of the filter's histogram, in a scattered order.
    let logits: Vec<f32> = (0..5000)
        .map(|i| ((i * 1847) % 5000) as f32 * 1e-5)
        .collect();
    for share in [0.013, 0.5, 0.9137] {
        let options = SamplingOptions {
            top_p: Some(share),
            ..seeded(6)
        };
        let kept = |distribution: &[f64]| distribution.iter().filter(|&&p| p > 0.0).count();
        let expected = distribution(&options, &[], &logits, None);
        let found = exact(&mut sampler(options, logits.len()), &logits, None);
        assert_eq!(kept(&found), kept(&expected));
        close(&found, &expected, 1e-8);
    }
}

fn any_options() -> impl Strategy<Value = SamplingOptions> {
    let orders = vec![
        SamplerOrder::DEFAULT,
        SamplerOrder::TRANSFORMERS,
        SamplerOrder::LLAMA_CPP,
        "top_p,temperature,top_k,min_p".parse().unwrap(),
    ];
    let filters = (
        prop::sample::select(vec![0.3f32, 0.7, 1.0, 2.5]),
        prop::option::of(1u32..300),
        prop::option::of(prop::sample::select(vec![
            0.013f32, 0.33, 0.9137, 0.99, 1.0,
        ])),
        prop::option::of(prop::sample::select(vec![0.0f32, 0.0123, 0.31, 1.0])),
        prop::sample::select(orders),
    );
    let penalties = (
        prop::sample::select(vec![1.0f32, 1.3, 0.7]),
        prop::sample::select(vec![0.0f32, 0.4, -0.3]),
        prop::sample::select(vec![0.0f32, 0.25]),
        prop::collection::btree_map(
            0u32..40,
            prop::sample::select(vec![1.5f32, -2.0, f32::NEG_INFINITY]),
            0..4,
        ),
    );
    (filters, penalties, any::<u64>()).prop_map(|(filters, penalties, seed)| {
        let (temperature, top_k, top_p, min_p, order) = filters;
        let (repetition_penalty, presence_penalty, frequency_penalty, bias) = penalties;
        SamplingOptions {
            temperature,
            top_k,
            top_p,
            min_p,
            order,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            logit_bias: bias.into_iter().collect(),
            seed: Some(seed),
            ..SamplingOptions::default()
        }
    })
}

/// Rows with many ties, −∞ and, every so often, thousands of tokens.
fn any_logits() -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![
        8 => (-60i32..60).prop_map(|l| l as f32 * 0.25),
        4 => -15.0f32..15.0,
        1 => Just(f32::NEG_INFINITY),
    ];
    prop_oneof![
        4 => prop::collection::vec(value.clone(), 45..200),
        1 => prop::collection::vec(value, 2000..4000),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_distribution_equals_the_plain_twins(
        options in any_options(),
        logits in any_logits(),
        history in prop::collection::vec(0u32..60, 0..20),
        mask in prop::option::of(prop::collection::vec(any::<bool>(), 45)),
    ) {
        // Tokens past 45 follow the first ones' pattern; token 44 is always legal and finite.
        let mask = mask.map(|mask| -> Vec<bool> {
            (0..logits.len()).map(|id| id == 44 || mask[id % 45]).collect()
        });
        let mut logits = logits;
        if logits[44] == f32::NEG_INFINITY {
            logits[44] = -3.0;
        }
        let words: Option<Vec<u32>> = mask.as_ref().map(|mask| {
            let word = |bits: &[bool]| (0..).zip(bits).map(|(i, &b)| u32::from(b) << i).sum();
            mask.chunks(32).map(word).collect()
        });
        let mut sampler = sampler(options.clone(), logits.len());
        sampler.observe(&history);
        let before = logits.clone();
        let found = exact(&mut sampler, &logits, words.as_deref().map(Mask::new));
        let expected = distribution(&options, &history, &logits, mask.as_deref());
        prop_assert_eq!(&logits, &before);
        for (id, (found, expected)) in found.iter().zip(&expected).enumerate() {
            prop_assert!((found - expected).abs() < 1e-5, "token {}: {} for {}", id, found, expected);
            if *found > 0.0 {
                prop_assert!(mask.as_ref().is_none_or(|mask| mask[id]));
            }
        }
    }

    #[test]
    fn greedy_equals_a_plain_argmax(logits in any_logits()) {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        prop_assume!(best > f32::NEG_INFINITY);
        let first = logits.iter().position(|&l| l == best).unwrap();
        prop_assert_eq!(greedy(&logits).unwrap() as usize, first);
    }

    #[test]
    fn permuted_logits_give_the_permuted_distribution(
        options in any_options(),
        logits in prop::collection::hash_set(-4000i32..4000, 45..90),
        turn in 1usize..44,
    ) {
        // Without ties, and with nothing that names ids, a token's number must not matter.
        let options = SamplingOptions { logit_bias: Vec::new(), ..options };
        let logits: Vec<f32> = logits.into_iter().map(|l| l as f32 * 0.003).collect();
        let mut turned = logits.clone();
        turned.rotate_left(turn);
        let mut found = exact(&mut sampler(options.clone(), logits.len()), &logits, None);
        found.rotate_left(turn);
        let permuted = exact(&mut sampler(options, logits.len()), &turned, None);
        prop_assert_eq!(found, permuted);
    }

    #[test]
    fn top_logprobs_equal_a_full_sort(logits in any_logits(), n in 0usize..50) {
        prop_assume!(logits.iter().any(|&l| l > f32::NEG_INFINITY));
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&(logits[a])).then(a.cmp(&b)));
        order.retain(|&id| logits[id] > f32::NEG_INFINITY);
        order.truncate(n);
        let top = top_logprobs(&logits, n).unwrap();
        let ids: Vec<usize> = top.iter().map(|t| t.token as usize).collect();
        prop_assert_eq!(ids, order);
        for entry in top {
            let exact = log_softmax_at(&logits, entry.token).unwrap();
            prop_assert!((f64::from(entry.logprob) - exact).abs() < 1e-5);
        }
    }
}
