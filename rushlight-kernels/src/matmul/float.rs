//! Products of F32, F16 and BF16 weights with f32 activations.
//!
//! `acc = fma(w[k], x[k], acc)` over the columns `k` in order, eight rows a vector; 16-bit weights
//! are widened in registers, which is exact. A tile is four tokens by two panels: eight chains, which
//! hide their latency, and fewer loads than products.

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
        let (tokens, cols) = (self.out.rows(), self.cols);
        if cols == 0 {
            for token in 0..tokens {
                self.out.row_mut(token).fill(0.0);
            }
            return;
        }
        let panel_bytes = cols * E::BYTES;
        let panels = self.panels.len() / panel_bytes;
        let step = tokens_per_run(cols * size_of::<f32>());
        for start in (0..tokens).step_by(step) {
            let end = tokens.min(start + step);
            let mut panel = 0;
            while panel < panels {
                // Eight chains of `fma`, or four for a lone token, hide the latency of one.
                let four = S::TILES && panel + 4 <= panels;
                let bytes = &self.panels[panel * panel_bytes..];
                let mut token = start;
                while token < end {
                    let x = &self.x[token * cols..end * cols];
                    let at = (token, panel);
                    token += match (end - token >= 4, four) {
                        (true, true) => {
                            tile::<S, E, 4, 2>(s, cols, bytes, x, (at, self.out));
                            let (at, bytes) = ((token, panel + 2), &bytes[2 * panel_bytes..]);
                            tile::<S, E, 4, 2>(s, cols, bytes, x, (at, self.out))
                        }
                        (true, false) if S::TILES => {
                            tile::<S, E, 4, 1>(s, cols, bytes, x, (at, self.out))
                        }
                        (false, true) => tile::<S, E, 1, 4>(s, cols, bytes, x, (at, self.out)),
                        _ => tile::<S, E, 1, 1>(s, cols, bytes, x, (at, self.out)),
                    };
                }
                panel += if four { 4 } else { 1 };
            }
        }
    }
}

/// Columns taken together, so that a bounds check serves several.
const UNROLL: usize = 8;

/// The first `T` rows of `x` with the first `P` panels; returns `T`.
#[inline(always)]
fn tile<S: Simd, E: Element, const T: usize, const P: usize>(
    s: S,
    cols: usize,
    panels: &[u8],
    x: &[f32],
    (at, out): ((usize, usize), &mut Columns<'_>),
) -> usize {
    let mut rows: [(&[[f32; UNROLL]], &[f32]); T] = [(&[], &[]); T];
    for (row, x) in rows.iter_mut().zip(x.chunks_exact(cols)) {
        *row = x.as_chunks();
    }
    let mut acc = [[s.splat(0.0); T]; P];
    let mut weights: [&[u8]; P] = [&[]; P];
    for (w, panel) in weights.iter_mut().zip(panels.chunks_exact(cols * E::BYTES)) {
        *w = panel;
    }
    for block in 0..cols / UNROLL {
        let mut xs = [&[0.0; UNROLL]; T];
        for t in 0..T {
            xs[t] = &rows[t].0[block];
        }
        let mut ws: [&[u8]; P] = [&[]; P];
        for p in 0..P {
            ws[p] = &weights[p][block * UNROLL * E::BYTES..][..UNROLL * E::BYTES];
        }
        for k in 0..UNROLL {
            for p in 0..P {
                let column = E::load(s, &ws[p][k * E::BYTES..]);
                for t in 0..T {
                    acc[p][t] = s.fma(column, s.splat(xs[t][k]), acc[p][t]);
                }
            }
        }
    }
    for k in cols / UNROLL * UNROLL..cols {
        for p in 0..P {
            let column = E::load(s, &weights[p][k * E::BYTES..]);
            for t in 0..T {
                acc[p][t] = s.fma(column, s.splat(rows[t].1[k % UNROLL]), acc[p][t]);
            }
        }
    }
    for (p, acc) in acc.iter().enumerate() {
        for (t, acc) in acc.iter().enumerate() {
            let mut sums = [0.0; PANEL];
            s.store(*acc, &mut sums);
            store_panel(out, at.0 + t, at.1 + p, &sums);
        }
    }
    T
}
