//! What every backend must do, as functions that panic with the case that failed.

use std::sync::Arc;

use rushlight_asset::Checkpoint;
use rushlight_asset::config::RopeFrequencies;
use rushlight_ir::arch;
use rushlight_ir::backend::{
    Backend, BackendErrorKind, Bounded, CompileOptions, KvDtype, Lane, Program, StateOptions,
    States,
};
use rushlight_testkit::goldens::{self, TOLERANCE};

use crate::Reference;
use crate::cases::{self, Case};

/// Every operation, in every block format where it reads a matrix, agrees with the reference.
pub fn operations(backend: &dyn Backend) {
    for case in cases::all() {
        let want = run_case(&Reference, &case, &case.tokens);
        let got = run_case(backend, &case, &case.tokens);
        let largest = want.iter().flatten().fold(0.0, |m: f32, x| m.max(x.abs()));
        assert!(largest > 0.0, "{}: the reference gives nothing", case.name);
        assert_close(&got, &want, case.tolerance * largest, &case.name);
    }
}

/// The golden checkpoints give the reference implementation's logits and greedy tokens, with f32 states.
pub fn goldens(backend: &dyn Backend) {
    for name in goldens::NAMES {
        let program = golden(
            backend,
            name,
            CompileOptions {
                kv_dtype: KvDtype::F32,
                ..options(1)
            },
        );
        for case in goldens::cases(name) {
            let place = format!("{} on {name}, {} tokens", backend.name(), case.prompt.len());
            let mut states = states(&*program);
            let rows = run(&*program, &mut *states, &case.prompt, case.prompt.len());
            for (position, row) in rows.iter().enumerate() {
                let sum: f32 = row.iter().sum();
                let off = (sum - case.logits_row_sums[position]).abs();
                assert!(
                    off < 0.05,
                    "{place}: row {position} sums to {sum}, off by {off}"
                );
                let (best, margin) = top(row);
                if margin > TOLERANCE {
                    assert_eq!(
                        best, case.argmax[position],
                        "{place}: argmax of row {position}"
                    );
                }
            }
            if let Some(last) = rows.last() {
                assert_close(
                    std::slice::from_ref(last),
                    std::slice::from_ref(&case.last_logits),
                    TOLERANCE,
                    &place,
                );
            }
            let mut row = rows.last().cloned().unwrap_or_default();
            for (i, (&token, &margin)) in case.greedy.iter().zip(&case.greedy_margins).enumerate() {
                if margin <= TOLERANCE {
                    break;
                }
                assert_eq!(top(&row).0, token, "{place}: greedy token {i}");
                row = run(&*program, &mut *states, &[token], 1).remove(0);
            }
        }
    }
}

/// Logits are equal bit for bit however the tokens come: at once, in chunks, one by one, after a
/// rewind, on a fork, beside other lanes, with one thread or two, with either type of states.
pub fn invariance(backend: &dyn Backend) {
    for name in goldens::NAMES {
        for kv_dtype in [KvDtype::F16, KvDtype::F32] {
            let program = golden(
                backend,
                name,
                CompileOptions {
                    kv_dtype,
                    ..options(1)
                },
            );
            let tokens = tokens_of(100);
            let mut whole_states = states(&*program);
            let whole = run(&*program, &mut *whole_states, &tokens, tokens.len());
            for chunk in [1, 7, 32, 33, 64] {
                let mut states = states(&*program);
                let mut rows = Vec::new();
                for part in tokens.chunks(chunk) {
                    rows.extend(run(&*program, &mut *states, part, part.len()));
                }
                assert_same(&rows, &whole, &format!("{name}: chunks of {chunk}"));
            }
            let mut rewound = whole_states.fork();
            let landed = rewound.rewind(41);
            assert!(landed <= 41, "{name}: rewound to {landed}");
            let rows = run(
                &*program,
                &mut *rewound,
                &tokens[landed..],
                tokens.len() - landed,
            );
            assert_same(
                &rows,
                &whole[landed..],
                &format!("{name}: after a rewind to {landed}"),
            );

            let threaded = golden(
                backend,
                name,
                CompileOptions {
                    kv_dtype,
                    ..options(2)
                },
            );
            let mut states_2 = states(&*threaded);
            let rows = run(&*threaded, &mut *states_2, &tokens, tokens.len());
            assert_same(&rows, &whole, &format!("{name}: two threads"));

            beside_others(&*program, &tokens, &whole, name);
        }
    }
}

fn beside_others(program: &dyn Program, tokens: &[u32], whole: &[Vec<f32>], name: &str) {
    let other: Vec<u32> = tokens.iter().rev().copied().collect();
    let (mut a, mut b, mut c) = (states(program), states(program), states(program));
    run(program, &mut *b, &other[..50], 0);
    let mut lanes = [
        lane(&mut *b, &other[50..51], 1),
        lane(&mut *a, &tokens[..60], 60),
        lane(&mut *c, &other[..9], 0),
    ];
    let logits = program.submit(&mut lanes).expect("three lanes");
    assert_eq!(logits.rows(), 61, "{name}: rows of three lanes");
    let mut rows: Vec<_> = (1..61).map(|row| logits.row(row).into_owned()).collect();
    for i in 60..tokens.len() {
        let mut lanes = [
            lane(&mut *a, &tokens[i..=i], 1),
            lane(&mut *c, &other[i..=i], 1),
        ];
        let logits = program.submit(&mut lanes).expect("two lanes");
        rows.push(logits.row(0).into_owned());
    }
    assert_same(&rows, whole, &format!("{name}: beside other lanes"));
}

/// Forks are independent of each other and of their origin; bounded states stay bounded, agree with
/// the reference, and rewind honestly.
pub fn memory(backend: &dyn Backend) {
    let name = "llama";
    let program = golden(backend, name, options(1));
    let tokens = tokens_of(90);
    let mut origin = states(&*program);
    run(&*program, &mut *origin, &tokens[..40], 0);
    let mut fork = origin.fork();
    let on_fork = run(&*program, &mut *fork, &tokens[50..80], 30);
    let on_origin = run(&*program, &mut *origin, &tokens[40..70], 30);
    let mut fresh = states(&*program);
    run(&*program, &mut *fresh, &tokens[..40], 0);
    let mut again = fresh.fork();
    assert_same(
        &run(&*program, &mut *fresh, &tokens[40..70], 30),
        &on_origin,
        "origin of a fork",
    );
    assert_same(
        &run(&*program, &mut *again, &tokens[50..80], 30),
        &on_fork,
        "fork",
    );

    let bounded = StateOptions {
        reserve: 0,
        bounded: Some(Bounded {
            sinks: 4,
            window: 16,
        }),
    };
    let long = tokens_of(300);
    let compile = |b: &dyn Backend| {
        golden(
            b,
            name,
            CompileOptions {
                kv_dtype: KvDtype::F32,
                ..options(1)
            },
        )
    };
    let (ours, theirs) = (compile(backend), compile(&Reference));
    let mut a = ours.states(&bounded).expect("bounded states");
    let mut b = theirs.states(&bounded).expect("bounded states");
    let mut most = 0;
    let mut rows = Vec::new();
    let mut want = Vec::new();
    for part in long.chunks(25) {
        rows.extend(run(&*ours, &mut *a, part, part.len()));
        want.extend(run(&*theirs, &mut *b, part, part.len()));
        most = most.max(a.bytes());
    }
    assert_close(&rows, &want, TOLERANCE, "bounded states");
    let mut unbounded = states(&*ours);
    run(&*ours, &mut *unbounded, &long, 0);
    if backend.name() != Reference.name() {
        assert!(
            most < unbounded.bytes() / 2,
            "bounded states took {most} bytes"
        );
    }
    for to in [295, 290, 100, 3] {
        let mut states = a.fork();
        let landed = states.rewind(to);
        assert!(landed <= to, "landed at {landed}, asked for {to}");
        assert_eq!(states.len(), landed);
        let end = (landed + 10).min(long.len());
        let got = run(&*ours, &mut *states, &long[landed..end], end - landed);
        assert_same(
            &got,
            &rows[landed..end],
            &format!("bounded states, rewound to {landed}"),
        );
    }
}

/// What cannot be is an error of the right kind, and leaves the states as they were.
pub fn refusals(backend: &dyn Backend) {
    let program = golden(backend, "llama", options(1));
    let other = golden(backend, "gemma3-text", options(1));
    let signature = program.signature().clone();
    let tokens = tokens_of(10);
    let mut mine = states(&*program);
    run(&*program, &mut *mine, &tokens, 0);
    let refused = |lanes: &mut [Lane<'_>], what: &str| {
        let error = program.submit(lanes).err();
        let kind = error.map(|e| e.kind());
        assert_eq!(kind, Some(BackendErrorKind::Input), "{what}");
    };
    refused(&mut [], "no lanes");
    refused(&mut [lane(&mut *mine, &[], 0)], "an empty lane");
    let vocab = u32::try_from(signature.vocab).expect("a small vocabulary");
    refused(
        &mut [lane(&mut *mine, &[1, vocab], 1)],
        "a token past the vocabulary",
    );
    refused(&mut [lane(&mut *mine, &[u32::MAX], 1)], "the largest token");
    refused(
        &mut [lane(&mut *mine, &[1, 2], 3)],
        "more logits than tokens",
    );
    let too_many = vec![1; signature.context];
    refused(
        &mut [lane(&mut *mine, &too_many, 1)],
        "more than the context",
    );
    let mut theirs = states(&*other);
    refused(
        &mut [lane(&mut *theirs, &[1], 1)],
        "states of another program",
    );
    let mut second = states(&*program);
    refused(
        &mut [lane(&mut *second, &[1], 1), lane(&mut *mine, &[vocab], 1)],
        "one bad lane of two",
    );
    assert_eq!((mine.len(), second.len()), (10, 0), "states after refusals");
    let mut fresh = states(&*program);
    run(&*program, &mut *fresh, &tokens, 0);
    let after = run(&*program, &mut *mine, &[5], 1);
    assert_same(
        &after,
        &run(&*program, &mut *fresh, &[5], 1),
        "after refusals",
    );

    let checkpoint = open("llama");
    let graph = arch::build(&checkpoint.config, &|name| {
        checkpoint.weights.find(name).is_some()
    })
    .expect("a graph");
    let zero = backend
        .compile(&graph, &checkpoint.weights, &options(0))
        .err();
    assert_eq!(
        zero.map(|e| e.kind()),
        Some(BackendErrorKind::Option),
        "zero threads"
    );
}

fn states(program: &dyn Program) -> Box<dyn States> {
    program.states(&StateOptions::default()).expect("states")
}

fn run_case(backend: &dyn Backend, case: &Case, tokens: &[u32]) -> Vec<Vec<f32>> {
    let checkpoint = case.checkpoint();
    let program = backend
        .compile(
            &case.graph,
            &checkpoint.weights,
            &CompileOptions {
                kv_dtype: KvDtype::F32,
                ..options(2)
            },
        )
        .unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let mut states = states(&*program);
    run(&*program, &mut *states, tokens, tokens.len())
}

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(&goldens::checkpoint(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn golden(backend: &dyn Backend, name: &str, options: CompileOptions<'_>) -> Arc<dyn Program> {
    let mut checkpoint = open(name);
    // The recipe casts the whole module to bf16 to save it, rotary buffers included, and computes on.
    checkpoint.config.rope_frequencies = RopeFrequencies::Bf16;
    let has = |name: &str| checkpoint.weights.find(name).is_some();
    let graph = arch::build(&checkpoint.config, &has).unwrap_or_else(|e| panic!("{name}: {e}"));
    backend
        .compile(&graph, &checkpoint.weights, &options)
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn options(threads: usize) -> CompileOptions<'static> {
    CompileOptions {
        threads: Some(threads),
        ..CompileOptions::default()
    }
}

fn lane<'a>(states: &'a mut dyn States, tokens: &'a [u32], logits: usize) -> Lane<'a> {
    Lane {
        states,
        tokens,
        logits,
    }
}

fn run(
    program: &dyn Program,
    states: &mut dyn States,
    tokens: &[u32],
    rows: usize,
) -> Vec<Vec<f32>> {
    let logits = program
        .submit(&mut [lane(states, tokens, rows)])
        .unwrap_or_else(|e| panic!("a lane of {} tokens: {e}", tokens.len()));
    assert_eq!(logits.rows(), rows);
    (0..rows).map(|row| logits.row(row).into_owned()).collect()
}

/// Tokens below the goldens' vocabulary of 320, without a short period.
fn tokens_of(len: u32) -> Vec<u32> {
    (0..len).map(|i| 3 + (i * i * 7 + i * 31) % 311).collect()
}

/// The likeliest token and how far it is ahead.
fn top(row: &[f32]) -> (u32, f32) {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = i;
        }
    }
    let second = row
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != best)
        .map(|(_, x)| *x);
    let second = second.fold(f32::NEG_INFINITY, f32::max);
    (best as u32, row[best] - second)
}

fn assert_close(got: &[Vec<f32>], want: &[Vec<f32>], tolerance: f32, place: &str) {
    assert_eq!(got.len(), want.len(), "{place}: rows");
    for (r, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.len(), want.len(), "{place}: columns of row {r}");
        for (c, (x, y)) in got.iter().zip(want).enumerate() {
            let off = (x - y).abs();
            assert!(
                off <= tolerance,
                "{place}: row {r}, column {c}: {x} where {y} is right"
            );
        }
    }
}

fn assert_same(got: &[Vec<f32>], want: &[Vec<f32>], place: &str) {
    assert_eq!(got.len(), want.len(), "{place}: rows");
    for (r, (got, want)) in got.iter().zip(want).enumerate() {
        let differs = got
            .iter()
            .zip(want)
            .position(|(x, y)| x.to_bits() != y.to_bits());
        assert_eq!(differs, None, "{place}: row {r} differs at this column");
    }
}
