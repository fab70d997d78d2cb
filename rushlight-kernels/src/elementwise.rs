//! Element by element: add, scale, soft cap, and conversion to f16.

use half::f16;

use crate::error::{KernelError, expect_len};
use crate::isa::{Isa, Kernel};
use crate::math::tanh;
use crate::simd::{LANES, Simd, padded};

/// `x[i] += y[i]`.
///
/// # Errors
/// The two are not equally long.
pub fn add(isa: Isa, x: &mut [f32], y: &[f32]) -> Result<(), KernelError> {
    expect_len("add", "y", x.len(), y.len())?;
    over_pairs(isa, Add, x, y);
    Ok(())
}

/// `x[i] *= factor`.
pub fn scale(isa: Isa, x: &mut [f32], factor: f32) {
    isa.run(Each(Scale(factor), x));
}

/// `x[i] = cap · tanh(x[i] / cap)`, for a positive `cap`.
pub fn softcap(isa: Isa, x: &mut [f32], cap: f32) {
    isa.run(Each(Softcap(cap), x));
}

/// `out[i] = x[i]` as f16, rounded to nearest even; beyond 65504 infinite.
///
/// # Errors
/// The two are not equally long.
pub fn to_f16(isa: Isa, x: &[f32], out: &mut [f16]) -> Result<(), KernelError> {
    expect_len("to_f16", "out", x.len(), out.len())?;
    isa.run(ToF16 { x, out });
    Ok(())
}

/// A function of one lane.
pub(crate) trait Single {
    fn apply<S: Simd>(&self, s: S, v: S::F) -> S::F;
}

/// A function of two lanes.
pub(crate) trait Pair {
    fn apply<S: Simd>(&self, s: S, x: S::F, y: S::F) -> S::F;
}

/// `x[i] = f(x[i], y[i])`; the slices are equally long.
pub(crate) fn over_pairs<P: Pair>(isa: Isa, f: P, x: &mut [f32], y: &[f32]) {
    isa.run(EachPair(f, x, y));
}

struct Add;

impl Pair for Add {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, x: S::F, y: S::F) -> S::F {
        s.add(x, y)
    }
}

struct Scale(f32);

impl Single for Scale {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, v: S::F) -> S::F {
        s.mul(v, s.splat(self.0))
    }
}

/// `cap · tanh(v / cap)`.
pub(crate) struct Softcap(pub(crate) f32);

impl Single for Softcap {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, v: S::F) -> S::F {
        let cap = s.splat(self.0);
        s.mul(cap, tanh(s, s.div(v, cap)))
    }
}

struct Each<'a, F>(F, &'a mut [f32]);

impl<F: Single> Kernel for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (lanes, tail) = self.1.as_chunks_mut::<LANES>();
        for x in lanes {
            s.store(self.0.apply(s, s.load(x)), x);
        }
        if !tail.is_empty() {
            let mut out = padded(tail);
            s.store(self.0.apply(s, s.load(&out)), &mut out);
            tail.copy_from_slice(&out[..tail.len()]);
        }
    }
}

struct EachPair<'a, F>(F, &'a mut [f32], &'a [f32]);

impl<F: Pair> Kernel for EachPair<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (lanes, tail) = self.1.as_chunks_mut::<LANES>();
        let (others, other_tail) = self.2.as_chunks::<LANES>();
        for (x, y) in lanes.iter_mut().zip(others) {
            s.store(self.0.apply(s, s.load(x), s.load(y)), x);
        }
        if !tail.is_empty() {
            let mut out = padded(tail);
            let y = s.load(&padded(other_tail));
            s.store(self.0.apply(s, s.load(&out), y), &mut out);
            tail.copy_from_slice(&out[..tail.len()]);
        }
    }
}

struct ToF16<'a> {
    x: &'a [f32],
    out: &'a mut [f16],
}

impl Kernel for ToF16<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (lanes, tail) = self.x.as_chunks::<LANES>();
        let (outs, out_tail) = self.out.as_chunks_mut::<LANES>();
        for (x, out) in lanes.iter().zip(outs) {
            s.store_f16(s.load(x), out);
        }
        if !tail.is_empty() {
            let mut out = [f16::ZERO; LANES];
            s.store_f16(s.load(&padded(tail)), &mut out);
            out_tail.copy_from_slice(&out[..tail.len()]);
        }
    }
}
