//! Root-mean-square normalisation.
//!
//! `y[i] = x[i] / √(mean(x²) + eps) · (weight[i] + offset)` over rows of `weight.len()`. The sum
//! of squares has 32 partial sums, column `i` in partial sum `i % 32`, added in a fixed tree.

use crate::error::{KernelError, expect_len, expect_multiple};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd, padded};

/// What a normalisation multiplies by, the same for every row.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<'a> {
    /// One value a column; its length is the width of a row.
    pub weight: &'a [f32],
    /// Added to each weight (Gemma stores `weight − 1` and has 1 here; most have 0).
    pub offset: f32,
    /// Added to the mean square.
    pub eps: f32,
}

/// Normalises the rows of `x`, `[rows, width]`, into `out`.
///
/// # Errors
/// `x` is not whole rows, or `out` is not as long.
pub fn rms_norm(
    isa: Isa,
    norm: &RmsNorm<'_>,
    x: &[f32],
    out: &mut [f32],
) -> Result<(), KernelError> {
    expect_len("rms_norm", "out", x.len(), out.len())?;
    out.copy_from_slice(x);
    rms_norm_in_place(isa, norm, out)
}

/// Normalises the rows of `x`, `[rows, width]`, in place.
///
/// # Errors
/// `x` is not whole rows.
pub fn rms_norm_in_place(isa: Isa, norm: &RmsNorm<'_>, x: &mut [f32]) -> Result<(), KernelError> {
    if x.is_empty() {
        return Ok(());
    }
    expect_multiple("rms_norm", "x", norm.weight.len(), x.len())?;
    isa.run(Rows { norm, x });
    Ok(())
}

struct Rows<'a> {
    norm: &'a RmsNorm<'a>,
    x: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RmsNorm {
            weight,
            offset,
            eps,
        } = *self.norm;
        for row in self.x.chunks_exact_mut(weight.len()) {
            let mean = sum_of_squares(s, row) / row.len() as f32;
            let scale = s.splat(1.0 / (mean + eps).sqrt());
            let offset = s.splat(offset);
            let (xs, x_tail) = row.as_chunks_mut::<LANES>();
            let (ws, w_tail) = weight.as_chunks::<LANES>();
            for (x, w) in xs.iter_mut().zip(ws) {
                let w = s.add(s.load(w), offset);
                s.store(s.mul(s.mul(s.load(x), scale), w), x);
            }
            if !x_tail.is_empty() {
                let w = s.add(s.load(&padded(w_tail)), offset);
                let mut out = padded(x_tail);
                s.store(s.mul(s.mul(s.load(&out), scale), w), &mut out);
                x_tail.copy_from_slice(&out[..x_tail.len()]);
            }
        }
    }
}

#[inline(always)]
fn sum_of_squares<S: Simd>(s: S, row: &[f32]) -> f32 {
    const PARTS: usize = 4;
    let mut sums = [s.splat(0.0); PARTS];
    let (wide, tail) = row.as_chunks::<{ PARTS * LANES }>();
    for chunk in wide {
        for (sum, part) in sums.iter_mut().zip(chunk.as_chunks::<LANES>().0) {
            let v = s.load(part);
            *sum = s.fma(v, v, *sum);
        }
    }
    for (sum, part) in sums.iter_mut().zip(tail.chunks(LANES)) {
        let v = s.load(&padded(part));
        *sum = s.fma(v, v, *sum);
    }
    let [a, b, c, d] = sums;
    s.reduce_add(s.add(s.add(a, b), s.add(c, d)))
}
