//! Products of F32, F16 and BF16 weights with f32 activations.
//!
//! `acc = fma(w[k], x[k], acc)` over the columns `k` in order, eight rows a vector; 16-bit weights
//! are widened in registers, which is exact. Up to eight tokens share a load of weights, which
//! also hides the latency of the `fma` chain.

use super::pack::PANEL;
use super::{store_panel, tokens_per_run};
use crate::isa::{Isa, Kernel};
use crate::output::Columns;
use crate::qfmt::Format;
use crate::simd::Simd;

/// All panels of `out`, whose bytes are `panels`; `x` is `[out.rows(), cols]`, not empty.
pub(super) fn run(isa: Isa, format: Format, panels: &[u8], x: &[f32], out: &mut Columns<'_>) {
    match format {
        Format::F16 => isa.run(FloatMatmul::<F16>::new(panels, x, out)),
        Format::BF16 => isa.run(FloatMatmul::<BF16>::new(panels, x, out)),
        _ => isa.run(FloatMatmul::<F32>::new(panels, x, out)),
    }
}

/// A stored float.
trait Element {
    /// Bytes of eight of them.
    const BYTES: usize;
    fn load<S: Simd>(s: S, column: &[u8]) -> S::F;
}

struct F32;
struct F16;
struct BF16;

impl Element for F32 {
    const BYTES: usize = 32;
    #[inline(always)]
    fn load<S: Simd>(s: S, column: &[u8]) -> S::F {
        s.load_f32_bytes(&column.as_chunks::<32>().0[0])
    }
}

impl Element for F16 {
    const BYTES: usize = 16;
    #[inline(always)]
    fn load<S: Simd>(s: S, column: &[u8]) -> S::F {
        s.load_f16_bytes(&column.as_chunks::<16>().0[0])
    }
}

impl Element for BF16 {
    const BYTES: usize = 16;
    #[inline(always)]
    fn load<S: Simd>(s: S, column: &[u8]) -> S::F {
        s.load_bf16_bytes(&column.as_chunks::<16>().0[0])
    }
}

struct FloatMatmul<'k, 'o, E> {
    panels: &'k [u8],
    x: &'k [f32],
    cols: usize,
    out: &'k mut Columns<'o>,
    element: std::marker::PhantomData<E>,
}

impl<'k, 'o, E> FloatMatmul<'k, 'o, E> {
    fn new(panels: &'k [u8], x: &'k [f32], out: &'k mut Columns<'o>) -> Self {
        Self {
            panels,
            x,
            cols: x.len() / out.rows(),
            out,
            element: std::marker::PhantomData,
        }
    }
}

impl<E: Element> Kernel for FloatMatmul<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let tokens = self.out.rows();
        if self.cols == 0 {
            for token in 0..tokens {
                self.out.row_mut(token).fill(0.0);
            }
            return;
        }
        let step = tokens_per_run(self.cols * size_of::<f32>());
        for start in (0..tokens).step_by(step) {
            let end = tokens.min(start + step);
            let panels = self.panels.chunks_exact(self.cols * E::BYTES);
            for (panel, bytes) in panels.enumerate() {
                let mut token = start;
                while token < end {
                    let x = &self.x[token * self.cols..end * self.cols];
                    let at = (token, panel);
                    token += match end - token {
                        8.. if S::TILES => tile::<S, E, 8>(s, bytes, x, at, self.out),
                        4.. if S::TILES => tile::<S, E, 4>(s, bytes, x, at, self.out),
                        2.. if S::TILES => tile::<S, E, 2>(s, bytes, x, at, self.out),
                        _ => tile::<S, E, 1>(s, bytes, x, at, self.out),
                    };
                }
            }
        }
    }
}

/// The first `T` rows of `x` with one panel; returns `T`.
#[inline(always)]
fn tile<S: Simd, E: Element, const T: usize>(
    s: S,
    panel: &[u8],
    x: &[f32],
    at: (usize, usize),
    out: &mut Columns<'_>,
) -> usize {
    let cols = panel.len() / E::BYTES;
    let mut rows: [&[f32]; T] = [&[]; T];
    for (row, x) in rows.iter_mut().zip(x.chunks_exact(cols)) {
        *row = x;
    }
    let mut acc = [s.splat(0.0); T];
    for (k, column) in panel.chunks_exact(E::BYTES).enumerate() {
        let weights = E::load(s, column);
        for t in 0..T {
            acc[t] = s.fma(weights, s.splat(rows[t][k]), acc[t]);
        }
    }
    for (t, acc) in acc.iter().enumerate() {
        let mut sums = [0.0; PANEL];
        s.store(*acc, &mut sums);
        store_panel(out, at.0 + t, at.1, &sums);
    }
    T
}
