//! A fused multiply-add that rounds once, on machines with and without the instruction.
//!
//! Without it, `f32::mul_add` is a call into a software routine. Here instead: the product of two
//! f32 is exact in f64; the sum with `c` is taken in f64 and rounded *to odd* (its last bit is set
//! where the exact sum was not representable). An f64 has more than twice the bits of an f32 plus
//! two, so rounding that to f32 gives what a single rounding would have given.

/// `a·b + c`, rounded once.
#[inline(always)]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        a.mul_add(b, c)
    } else {
        fma_by_f64(a, b, c)
    }
}

#[inline(always)]
fn fma_by_f64(a: f32, b: f32, c: f32) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = product + c;
    // Knuth's two-sum: the exact error of `product + c`.
    let back = sum - product;
    let error = (product - (sum - back)) + (c - back);
    let bits = sum.to_bits();
    // The comparison is false for the NaN that infinities leave in `error`.
    let inexact_and_even = error.abs() > 0.0 && bits & 1 == 0;
    let outward = (error > 0.0) == (sum > 0.0);
    let odd = if outward {
        bits.wrapping_add(1)
    } else {
        bits.wrapping_sub(1)
    };
    f64::from_bits(if inexact_and_even { odd } else { bits }) as f32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fma_by_f64;

    fn same(a: f32, b: f32, c: f32) -> bool {
        let (got, want) = (fma_by_f64(a, b, c), a.mul_add(b, c));
        got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan())
    }

    #[test]
    fn hard_cases_round_once() {
        let tiny = f32::from_bits(1);
        let odd = 1.0 + f32::EPSILON;
        for (a, b, c) in [
            (odd, odd, 0.0),
            // Rounding to f64 first and f32 second would tie the wrong way here.
            (odd, 1.0 - f32::EPSILON, -1.0),
            (1.0, 1.0, f32::EPSILON / 2.0),
            (odd, 1.0, f32::EPSILON / 2.0 + tiny),
            (odd, 1.0, f32::EPSILON / 2.0),
            (tiny, 0.5, tiny),
            (tiny, 0.5, 0.0),
            (f32::MAX, 2.0, f32::NEG_INFINITY),
            (f32::INFINITY, 0.0, 1.0),
            (f32::MAX, f32::MAX, -f32::MAX),
            (-1.0, 1.0, 1.0),
            (0.0, -1.0, 0.0),
            (0.0, -1.0, -0.0),
        ] {
            assert!(same(a, b, c), "{a:e} * {b:e} + {c:e}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 16 } else { 4096 }))]
        #[test]
        fn equals_mul_add(a: u32, b: u32, c: u32) {
            let (a, b, c) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            prop_assert!(same(a, b, c), "{a:e} * {b:e} + {c:e}");
        }

        #[test]
        fn equals_mul_add_near_cancellation(a in 1.0f32..2.0, b in 1.0f32..2.0, ulps in -40i32..40) {
            let c = -f32::from_bits((a * b).to_bits().wrapping_add_signed(ulps));
            prop_assert!(same(a, b, c), "{a:e} * {b:e} + {c:e}");
            prop_assert!(same(a, b, c * f32::EPSILON * 0.5), "{a:e} * {b:e} + tiny {c:e}");
        }
    }
}
