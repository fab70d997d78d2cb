//! Rotary position embedding, in halves.
//!
//! Of each head the first `rotary_dim` elements are rotated in pairs `(i, i + rotary_dim/2)` by the
//! angle of pair `i` at the token's position:
//! `y[i] = x[i]·cos − x[i+h]·sin`, `y[i+h] = x[i+h]·cos + x[i]·sin`. The rest is left alone.

use crate::error::{KernelError, expect_len, expect_multiple};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd, padded};

/// The shape of what is rotated, `[tokens, heads, head_dim]`.
#[derive(Clone, Copy, Debug)]
pub struct RopeShape {
    /// Heads of a token.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Leading elements of a head that are rotated; even, at most `head_dim`.
    pub rotary_dim: usize,
}

/// Rotates `x`, `[tokens, heads, head_dim]`, in place; `cos` and `sin` are
/// `[tokens, rotary_dim / 2]`, one row for each token's position.
///
/// # Errors
/// `x` is not whole tokens, the tables are not as long, or `rotary_dim` is odd or too large.
pub fn rope(
    isa: Isa,
    shape: RopeShape,
    cos: &[f32],
    sin: &[f32],
    x: &mut [f32],
) -> Result<(), KernelError> {
    if x.is_empty() {
        return Ok(());
    }
    let width = shape
        .heads
        .checked_mul(shape.head_dim)
        .ok_or_else(|| KernelError::too_large("rope", "a token"))?;
    expect_multiple("rope", "x", width, x.len())?;
    expect_multiple("rope", "rotary_dim", 2, shape.rotary_dim)?;
    let fitting = shape.rotary_dim.min(shape.head_dim);
    expect_len("rope", "rotary_dim", fitting, shape.rotary_dim)?;
    let half = shape.rotary_dim / 2;
    let angles = x.len() / width * half;
    expect_len("rope", "cos", angles, cos.len())?;
    expect_len("rope", "sin", angles, sin.len())?;
    isa.run(Rotate { shape, cos, sin, x });
    Ok(())
}

struct Rotate<'a> {
    shape: RopeShape,
    cos: &'a [f32],
    sin: &'a [f32],
    x: &'a mut [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let RopeShape {
            heads,
            head_dim,
            rotary_dim,
        } = self.shape;
        let half = rotary_dim / 2;
        let tables = self.cos.chunks_exact(half).zip(self.sin.chunks_exact(half));
        for (token, (cos, sin)) in self.x.chunks_exact_mut(heads * head_dim).zip(tables) {
            for head in token.chunks_exact_mut(head_dim) {
                let (first, second) = head[..rotary_dim].split_at_mut(half);
                rotate(s, (cos, sin), first, second);
            }
        }
    }
}

#[inline(always)]
fn rotate<S: Simd>(s: S, angles: (&[f32], &[f32]), first: &mut [f32], second: &mut [f32]) {
    let (cos, sin) = (angles.0.as_chunks::<LANES>(), angles.1.as_chunks::<LANES>());
    let (a, a_tail) = first.as_chunks_mut::<LANES>();
    let (b, b_tail) = second.as_chunks_mut::<LANES>();
    for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(cos.0.iter().zip(sin.0)) {
        rotate_lanes(s, (cos, sin), a, b);
    }
    if !a_tail.is_empty() {
        let (mut a, mut b) = (padded(a_tail), padded(b_tail));
        rotate_lanes(s, (&padded(cos.1), &padded(sin.1)), &mut a, &mut b);
        a_tail.copy_from_slice(&a[..a_tail.len()]);
        b_tail.copy_from_slice(&b[..b_tail.len()]);
    }
}

#[inline(always)]
fn rotate_lanes<S: Simd>(
    s: S,
    angles: (&[f32; LANES], &[f32; LANES]),
    a: &mut [f32; LANES],
    b: &mut [f32; LANES],
) {
    let (cos, sin) = (s.load(angles.0), s.load(angles.1));
    let (x, y) = (s.load(a), s.load(b));
    let minus_y = s.sub(s.splat(0.0), y);
    s.store(s.fma(x, cos, s.mul(minus_y, sin)), a);
    s.store(s.fma(y, cos, s.mul(x, sin)), b);
}
