//! Softmax over rows, the row's maximum subtracted first.
//!
//! The sum has eight partial sums, column `i` in partial sum `i % 8`, added in a fixed tree.

use crate::error::{KernelError, expect_multiple};
use crate::isa::{Isa, Kernel};
use crate::math::exp;
use crate::simd::{LANES, Simd};

/// Replaces each row of `x`, `[rows, width]`, by its softmax. Lanes of −∞ become 0.
///
/// # Errors
/// `x` is not whole rows.
pub fn softmax(isa: Isa, width: usize, x: &mut [f32]) -> Result<(), KernelError> {
    if x.is_empty() {
        return Ok(());
    }
    expect_multiple("softmax", "x", width, x.len())?;
    isa.run(Rows { width, x });
    Ok(())
}

struct Rows<'a> {
    width: usize,
    x: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in self.x.chunks_exact_mut(self.width) {
            let largest = max(s, row);
            let sum = s.splat(exp_and_sum(s, row, largest));
            let (lanes, tail) = row.as_chunks_mut::<LANES>();
            for x in lanes {
                s.store(s.div(s.load(x), sum), x);
            }
            let mut out = [0.0; LANES];
            s.store(s.div(s.load(&negative_padded(tail)), sum), &mut out);
            tail.copy_from_slice(&out[..tail.len()]);
        }
    }
}

/// The largest element of a row, −∞ for none.
#[inline(always)]
pub(crate) fn max<S: Simd>(s: S, row: &[f32]) -> f32 {
    let (lanes, tail) = row.as_chunks::<LANES>();
    let mut largest = s.load(&negative_padded(tail));
    for x in lanes {
        largest = s.max(s.load(x), largest);
    }
    s.reduce_max(largest)
}

/// Replaces each `x` by `e^(x − largest)` and returns their sum.
#[inline(always)]
pub(crate) fn exp_and_sum<S: Simd>(s: S, row: &mut [f32], largest: f32) -> f32 {
    let largest = s.splat(largest);
    let mut sum = s.splat(0.0);
    let (lanes, tail) = row.as_chunks_mut::<LANES>();
    for x in lanes {
        let e = exp(s, s.sub(s.load(x), largest));
        sum = s.add(sum, e);
        s.store(e, x);
    }
    let mut out = negative_padded(tail);
    let e = exp(s, s.sub(s.load(&out), largest));
    sum = s.add(sum, e);
    s.store(e, &mut out);
    tail.copy_from_slice(&out[..tail.len()]);
    s.reduce_add(sum)
}

/// A tail filled with −∞, which counts for nothing.
#[inline(always)]
fn negative_padded(tail: &[f32]) -> [f32; LANES] {
    let mut out = [f32::NEG_INFINITY; LANES];
    for (o, x) in out.iter_mut().zip(tail) {
        *o = *x;
    }
    out
}
