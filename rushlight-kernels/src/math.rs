//! exp and tanh over eight lanes.
//!
//! Both split the argument until a short polynomial suffices (coefficients: S. Moshier's Cephes,
//! `expf.c` and `tanhf.c`). Errors against the exact value, asserted by the tests: [`exp`] ≤ 2 ulp
//! in −87.3..=88.3, [`tanh`] ≤ 3 ulp everywhere.

use crate::simd::Simd;

/// e^v. Below −87.33 (where the result would be subnormal) 0; above 88.37 infinity.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, v: S::F) -> S::F {
    const LOWEST: f32 = -87.33;
    const HIGHEST: f32 = 88.37;
    // ln 2 in two parts, the first with few enough bits that n·LN2_HIGH is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;

    // v = n·ln 2 + r with |r| ≤ ln 2 / 2.
    let n = s.round(s.mul(v, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-LN2_HIGH), v);
    let r = s.fma(n, s.splat(-LN2_LOW), r);
    // e^r = 1 + r + r²·p(r).
    let mut p = s.splat(1.987_569_1e-4);
    for coefficient in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.500_000_1,
    ] {
        p = s.fma(p, r, s.splat(coefficient));
    }
    let p = s.fma(s.mul(r, r), p, s.add(r, s.splat(1.0)));
    let result = s.mul(p, s.exp2_int(n));
    let result = s.select(s.lt(v, s.splat(LOWEST)), s.splat(0.0), result);
    let infinity = s.splat(f32::INFINITY);
    s.select(s.lt(s.splat(HIGHEST), v), infinity, result)
}

/// 1 / (1 + e^−v).
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, v: S::F) -> S::F {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.splat(0.0), v))))
}

/// Hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, v: S::F) -> S::F {
    let magnitude = s.abs(v);
    // 1 − 2/(e^2|v| + 1) loses the digits of small results; there, v + v³·p(v²).
    let square = s.mul(v, v);
    let mut p = s.splat(-5.704_988_7e-3);
    for coefficient in [2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1] {
        p = s.fma(p, square, s.splat(coefficient));
    }
    let small = s.fma(s.mul(square, v), p, v);
    let grown = exp(s, s.add(magnitude, magnitude));
    let one = s.splat(1.0);
    let large = s.sub(one, s.div(s.splat(2.0), s.add(grown, one)));
    let large = s.copysign(large, v);
    s.select(s.lt(magnitude, s.splat(0.625)), small, large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Isa, Kernel};
    use crate::simd::LANES;

    #[derive(Clone, Copy)]
    enum Function {
        Exp,
        Tanh,
    }

    struct Apply(Function, [f32; LANES]);

    impl Kernel for Apply {
        type Output = [f32; LANES];
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let v = s.load(&self.1);
            let result = match self.0 {
                Function::Exp => exp(s, v),
                Function::Tanh => tanh(s, v),
            };
            let mut out = [0.0; LANES];
            s.store(result, &mut out);
            out
        }
    }

    /// Distance from the exact value in units of the last place of an f32 near it.
    fn ulps(got: f32, exact: f64) -> f64 {
        let near = exact as f32;
        let ulp = f64::from(f32::from_bits(near.to_bits() + 1)) - f64::from(near);
        (f64::from(got) - exact).abs() / ulp.abs()
    }

    fn worst(function: Function, from: f32, to: f32, exact: fn(f64) -> f64) -> f64 {
        let steps = if cfg!(miri) { 64 } else { 200_000 };
        let mut worst = 0.0f64;
        for step in 0..steps {
            let at = |i: usize| {
                from + (to - from) * ((step * LANES + i) as f32 / (steps * LANES) as f32)
            };
            let input: [f32; LANES] = std::array::from_fn(at);
            let want = Isa::SCALAR.run(Apply(function, input));
            for isa in Isa::available() {
                let got = isa.run(Apply(function, input));
                assert_eq!(got.map(f32::to_bits), want.map(f32::to_bits), "{isa}");
            }
            for (x, y) in input.iter().zip(want) {
                worst = worst.max(ulps(y, exact(f64::from(*x))));
            }
        }
        worst
    }

    #[test]
    fn exp_is_within_2_ulp() {
        for (from, to) in [(-87.3, 88.3), (-1.0, 1.0), (-1e-4, 1e-4)] {
            let worst = worst(Function::Exp, from, to, f64::exp);
            assert!(worst <= 2.0, "{from}..{to}: {worst} ulp");
        }
    }

    #[test]
    fn tanh_is_within_3_ulp() {
        for (from, to) in [(-12.0, 12.0), (-0.7, 0.7), (-1e-5, 1e-5)] {
            let worst = worst(Function::Tanh, from, to, f64::tanh);
            assert!(worst <= 3.0, "{from}..{to}: {worst} ulp");
        }
    }

    #[test]
    fn the_ends_of_the_range_are_plain() {
        let input = [
            f32::NEG_INFINITY,
            -1e30,
            -104.0,
            89.0,
            1e30,
            f32::INFINITY,
            f32::NAN,
            0.0,
        ];
        for isa in Isa::available() {
            let e = isa.run(Apply(Function::Exp, input));
            assert_eq!(
                e[..6],
                [0.0, 0.0, 0.0, f32::INFINITY, f32::INFINITY, f32::INFINITY]
            );
            assert!(e[6].is_nan() && e[7] == 1.0, "{isa}: {e:?}");
            let t = isa.run(Apply(Function::Tanh, input));
            assert_eq!(t[..6], [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0]);
            assert!(t[6].is_nan() && t[7] == 0.0, "{isa}: {t:?}");
        }
    }
}
