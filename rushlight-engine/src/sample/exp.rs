//! The exponential that turns logits into weights.
//!
//! The platform's own `exp` differs in the last bit between C libraries, and one bit can move a draw
//! to another token. This one uses only additions, multiplications and shifts of IEEE numbers, so
//! it gives the same bits everywhere, and it has no branch, so that it compiles to vector code.
//!
//! `exp(x) = 2ⁿ · exp(r)` with `n` the nearest whole number to `x / ln 2` and `|r| ≤ ln 2 / 2`; there
//! seven terms of the Taylor series are within 10⁻⁸ of the value, below the rounding of `f32`.

/// The weight of the best token: weights are whole numbers of 2⁻⁴⁰ths of it.
pub(crate) const FULL_WEIGHT: u64 = 1 << 40;

/// `exp(x)` for `x ≤ 0`, within 2 ULP, and exactly 1 for 0. Below −87, where the result would leave
/// the normal numbers, it is `exp(−87)`.
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    // Adding 1.5 · 2²³ leaves the nearest whole number in the low mantissa bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has few enough bits for `n · LN2_HIGH` to be exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    let mut sum = 1.0 / 5040.0;
    for term in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * r + term;
    }
    // The low nine bits of `shifted` are `n`: moved into the exponent, they multiply by 2ⁿ.
    f32::from_bits(sum.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// `ratio` of [`FULL_WEIGHT`], to the nearest whole number, for `ratio` in 0 to 1.
pub(crate) fn weight_of(ratio: f32) -> u64 {
    // Adding 2⁵² leaves the nearest whole number in the mantissa; no conversion instruction.
    const ROUND: f64 = (1u64 << 52) as f64;
    let shifted = f64::from(ratio) * FULL_WEIGHT as f64 + ROUND;
    shifted.to_bits() & ((1 << 52) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_within_two_ulp() {
        assert_eq!(exp_of_negative(0.0), 1.0);
        assert_eq!(exp_of_negative(-0.0), 1.0);
        for step in 0..1_000_000 {
            let x = -87.0 * step as f32 / 1_000_000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_of_negative(x)) - exact).abs() / exact;
            assert!(error <= 2.0 * f64::from(f32::EPSILON), "{x}: {error}");
        }
        for x in [-87.0, -100.0, -1e30, f32::NEG_INFINITY] {
            assert_eq!(weight_of(exp_of_negative(x)), 0);
        }
    }

    #[test]
    fn weights_round_to_the_nearest() {
        assert_eq!(weight_of(1.0), FULL_WEIGHT);
        assert_eq!(weight_of(0.5), FULL_WEIGHT / 2);
        assert_eq!(weight_of(0.0), 0);
        let one = 1.0 / FULL_WEIGHT as f32;
        assert_eq!(
            [0.4, 0.6, 1.4, 3.0].map(|n| weight_of(n * one)),
            [0, 1, 1, 3]
        );
    }
}
