//! Kernels over rows: each against its naive twin, across instruction sets, and row by row.

use half::f16;
use proptest::prelude::*;
use rushlight_kernels::elementwise::{add, scale, softcap, to_f16};
use rushlight_kernels::softmax::softmax;
use rushlight_kernels::{
    Activation, Isa, QuantizedRows, RmsNorm, RopeShape, glu, naive, quantize_rows, rms_norm,
    rms_norm_in_place, rope,
};

use crate::support::Random;

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

/// Relative to the value, or to `floor` for smaller ones.
fn assert_close(got: &[f32], want: &[f32], relative: f32, floor: f32) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let tolerance = relative * want.abs().max(floor);
        assert!((got - want).abs() <= tolerance, "{i}: {got:e} for {want:e}");
    }
}

/// Runs `kernel` on every instruction set, asserts equal bits, and returns the result.
fn on_all(kernel: impl Fn(Isa) -> Vec<f32>) -> Vec<f32> {
    let want = kernel(Isa::SCALAR);
    for isa in Isa::available() {
        assert_eq!(bits(&kernel(isa)), bits(&want), "{isa}");
    }
    want
}

/// `kernel` of all rows equals `kernel` of each row alone.
fn assert_rowwise(x: &[f32], width: usize, kernel: impl Fn(&[f32]) -> Vec<f32>) {
    let alone: Vec<f32> = x.chunks(width).flat_map(&kernel).collect();
    assert_eq!(bits(&kernel(x)), bits(&alone));
}

fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn rms_norm_is_its_definition(
        width in 1usize..100, rows in 1usize..5, offset in 0.0f32..1.5, seed: u64,
    ) {
        let mut random = Random::new(seed);
        let (weight, x) = (random.floats(width), random.floats(rows * width));
        let norm = RmsNorm { weight: &weight, offset, eps: 1e-5 };
        let run = |isa: Isa, x: &[f32]| {
            let mut out = vec![f32::NAN; x.len()];
            rms_norm(isa, &norm, x, &mut out).expect("whole rows");
            out
        };
        let got = on_all(|isa| run(isa, &x));
        assert_close(&got, &naive::rms_norm(&norm, &x), 1e-6, 1e-6);
        assert_rowwise(&x, width, |x| run(Isa::detect(), x));
        let mut in_place = x.clone();
        rms_norm_in_place(Isa::detect(), &norm, &mut in_place).expect("whole rows");
        assert_eq!(bits(&in_place), bits(&got));
    }

    #[test]
    fn rope_is_its_definition(
        tokens in 1usize..4, heads in 1usize..4, half in 1usize..41, rest in 0usize..10, seed: u64,
    ) {
        let shape = RopeShape { heads, head_dim: 2 * half + rest, rotary_dim: 2 * half };
        let mut random = Random::new(seed);
        let x = random.floats(tokens * heads * shape.head_dim);
        let angles: Vec<f32> = random.floats(tokens * half);
        let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
        let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
        let got = on_all(|isa| {
            let mut y = x.clone();
            rope(isa, shape, &cos, &sin, &mut y).expect("fitting shapes");
            y
        });
        let mut want = x.clone();
        naive::rope(shape, &cos, &sin, &mut want);
        // Two products may cancel; the error is relative to them.
        assert_close(&got, &want, 1e-6, 4.0);
        let width = heads * shape.head_dim;
        for (t, token) in x.chunks(width).enumerate() {
            let mut alone = token.to_vec();
            let span = t * half..(t + 1) * half;
            rope(Isa::detect(), shape, &cos[span.clone()], &sin[span], &mut alone).expect("fits");
            prop_assert_eq!(bits(&alone), bits(&got[t * width..(t + 1) * width]));
        }
    }

    #[test]
    fn glu_is_its_definition(n in 0usize..70, size in 0.1f32..30.0, seed: u64) {
        let mut random = Random::new(seed);
        let gate: Vec<f32> = random.floats(n).iter().map(|v| v * size).collect();
        let up = random.floats(n);
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let got = on_all(|isa| {
                let mut y = gate.clone();
                glu(isa, activation, &mut y, &up).expect("equal lengths");
                y
            });
            // Where GELU vanishes its argument is large, and so is the error of its exponential.
            assert_close(&got, &naive::glu(activation, &gate, &up), 2e-6, 1e-3);
            for i in 0..n {
                let mut one = [gate[i]];
                glu(Isa::detect(), activation, &mut one, &up[i..=i]).expect("equal lengths");
                prop_assert_eq!(one[0].to_bits(), got[i].to_bits());
            }
        }
    }

    #[test]
    fn softmax_is_its_definition(width in 1usize..70, rows in 1usize..4, seed: u64) {
        let mut random = Random::new(seed);
        let mut x: Vec<f32> = random.floats(rows * width).iter().map(|v| v * 5.0).collect();
        if width > 2 {
            x[1] = f32::NEG_INFINITY;
        }
        let run = |isa: Isa, x: &[f32]| {
            let mut y = x.to_vec();
            softmax(isa, width, &mut y).expect("whole rows");
            y
        };
        let got = on_all(|isa| run(isa, &x));
        assert_close(&got, &naive::softmax(width, &x), 1e-6, 1e-6);
        prop_assert!(width <= 2 || got[1] == 0.0);
        assert_rowwise(&x, width, |x| run(Isa::detect(), x));
    }

    #[test]
    fn elementwise_kernels_are_their_definitions(n in 0usize..40, cap in 0.5f32..60.0, seed: u64) {
        let mut random = Random::new(seed);
        let (x, y) = (random.floats(n), random.floats(n));
        let sum = on_all(|isa| {
            let mut out = x.clone();
            add(isa, &mut out, &y).expect("equal lengths");
            out
        });
        prop_assert_eq!(bits(&sum), bits(&naive::add(&x, &y)));
        let scaled = on_all(|isa| {
            let mut out = x.clone();
            scale(isa, &mut out, cap);
            out
        });
        prop_assert!(scaled.iter().zip(&x).all(|(s, x)| *s == x * cap));
        let wide: Vec<f32> = x.iter().map(|v| v * 40.0).collect();
        let capped = on_all(|isa| {
            let mut out = wide.clone();
            softcap(isa, &mut out, cap);
            out
        });
        assert_close(&capped, &naive::softcap(&wide, cap), 1e-6, 1e-6);
        for isa in Isa::available() {
            let mut out = vec![f16::NAN; n];
            to_f16(isa, &wide, &mut out).expect("equal lengths");
            prop_assert!(out.iter().zip(&wide).all(|(h, v)| *h == f16::from_f32(*v)));
        }
    }

    #[test]
    fn quantised_rows_are_their_definition(
        rows in 1usize..4, blocks in 1usize..4, size in -20i32..20, seed: u64,
    ) {
        let cols = blocks * 32;
        let x: Vec<f32> = Random::new(seed).floats(rows * cols);
        let x: Vec<f32> = x.iter().map(|v| v * 2f32.powi(size)).collect();
        let run = |isa: Isa, x: &[f32]| {
            let mut out = QuantizedRows::new();
            quantize_rows(isa, x, cols, &mut out).expect("whole blocks");
            out
        };
        let scalar = run(Isa::SCALAR, &x);
        for (r, row) in x.chunks(cols).enumerate() {
            for (block, x) in scalar.row(r).iter().zip(row.chunks(32)) {
                let largest = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                prop_assert_eq!(block.scale, largest / 127.0);
                let inverse = 127.0 / largest;
                for (code, x) in block.codes.iter().zip(x) {
                    prop_assert_eq!(f32::from(*code), (x * inverse).round_ties_even());
                }
                let sum = |half: &[i8]| half.iter().map(|q| i16::from(*q)).sum::<i16>();
                prop_assert_eq!(block.sums, [sum(&block.codes[..16]), sum(&block.codes[16..])]);
                let total = f32::from(block.sums[0] + block.sums[1]);
                prop_assert_eq!(block.weighted_sum, block.scale * total);
            }
            let alone = run(Isa::detect(), row);
            prop_assert_eq!(format!("{:?}", alone.row(0)), format!("{:?}", scalar.row(r)));
        }
        let mut parts = QuantizedRows::new();
        parts.reset(rows, cols).expect("whole blocks");
        for (mut part, x) in parts.parts(2).zip(x.chunks(2 * cols)) {
            part.quantize(Isa::detect(), x).expect("its rows");
        }
        prop_assert_eq!(format!("{parts:?}"), format!("{scalar:?}"));
    }
}

#[test]
fn activations_keep_their_relative_precision() {
    // 6 ulp is 7.2e-7.
    let cases = [
        (Activation::Silu, -8.0, 7.2e-7),
        (Activation::GeluTanh, -3.0, 1.5e-6),
        (Activation::GeluTanh, -8.0, 1e-5),
    ];
    for (activation, from, relative) in cases {
        let gate: Vec<f32> = (0..=1600).map(|i| from + i as f32 * 0.01).collect();
        let up = vec![1.0; gate.len()];
        let mut y = gate.clone();
        glu(Isa::detect(), activation, &mut y, &up).expect("equal lengths");
        assert_close(&y, &naive::glu(activation, &gate, &up), relative, 1e-30);
    }
}

#[test]
fn blocks_that_cannot_be_quantised_say_so() {
    for isa in Isa::available() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 7, 31] {
                let mut x = vec![1.0; 64];
                x[at] = bad;
                let mut rows = QuantizedRows::new();
                quantize_rows(isa, &x, 64, &mut rows).expect("whole blocks");
                let [first, second] = rows.row(0) else {
                    panic!("two blocks");
                };
                assert!(first.scale.is_nan() && first.weighted_sum.is_nan());
                assert_eq!(first.codes, [0; 32]);
                assert_eq!(second.codes, [127; 32]);
            }
        }
        for tiny in [0.0, f32::from_bits(1), f32::MIN_POSITIVE] {
            let mut rows = QuantizedRows::new();
            quantize_rows(isa, &[tiny; 32], 32, &mut rows).expect("whole blocks");
            assert_eq!((rows.row(0)[0].scale, rows.row(0)[0].codes), (0.0, [0; 32]));
        }
    }
}

#[test]
fn misfits_are_refused() {
    let isa = Isa::detect();
    let mut x = vec![1.0f32; 12];
    let weight = [1.0; 5];
    let norm = RmsNorm {
        weight: &weight,
        offset: 0.0,
        eps: 0.0,
    };
    assert!(rms_norm_in_place(isa, &norm, &mut x).is_err());
    assert!(
        rms_norm_in_place(
            isa,
            &RmsNorm {
                weight: &[],
                ..norm
            },
            &mut x
        )
        .is_err()
    );
    assert!(rms_norm(isa, &norm, &x[..5], &mut [0.0; 4]).is_err());
    assert!(softmax(isa, 5, &mut x).is_err());
    assert!(softmax(isa, 0, &mut x).is_err());
    assert!(add(isa, &mut x, &[0.0]).is_err());
    assert!(glu(isa, Activation::Silu, &mut x, &[0.0]).is_err());
    let shape = RopeShape {
        heads: 1,
        head_dim: 6,
        rotary_dim: 4,
    };
    let angles = [0.0; 4];
    assert!(rope(isa, shape, &angles, &angles, &mut x).is_ok());
    assert!(rope(isa, shape, &angles[..3], &angles, &mut x).is_err());
    for (head_dim, rotary_dim) in [(6, 3), (6, 8), (6, 0), (0, 2), (5, 4)] {
        let shape = RopeShape {
            heads: 1,
            head_dim,
            rotary_dim,
        };
        assert!(rope(isa, shape, &angles, &angles, &mut x).is_err());
    }
    assert!(quantize_rows(isa, &x, 12, &mut QuantizedRows::new()).is_err());
    assert!(quantize_rows(isa, &x, 0, &mut QuantizedRows::new()).is_err());
    assert!(quantize_rows(isa, &x, 32, &mut QuantizedRows::new()).is_err());
}
