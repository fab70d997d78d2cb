//! Products of block formats with int8 activations.
//!
//! For one panel and up to four tokens, block after block of 32 columns:
//!
//! 1. `maddubs` multiplies a group (8 rows × 4 columns) of weight codes with four activations
//!    broadcast, and adds neighbours: 16 sums of two products in 16 bits. It wants one unsigned
//!    factor: formats with an offset keep their codes unsigned (the offset is taken off below);
//!    truly signed codes give their sign to the activation.
//! 2. Groups are added in 16 bits while no sum can overflow ([`Codes::STEPS`]), then `madd` adds
//!    neighbours again, to one 32-bit sum a row. Its other factor is 1, or, in formats with a scale
//!    for each 16 columns, that scale: exact, and free.
//! 3. The offset times the sum of the activation codes is subtracted, still in integers.
//! 4. `acc = fma(weight scale × activation scale, sum, acc)`; then the term of the minimum, where
//!    the format has one: `acc = fma(min, weighted sum, acc)`.
//!
//! Everything before step 4 is exact, so only the order of blocks matters to the result: it is the
//! order of the columns, for every tile.

use super::codes::{Codes, GROUPS};
use super::pack::{PANEL, PanelLayout};
use super::scales::{BlockScales, Min, Scales};
use super::{store_panel, tokens_per_run};
use crate::isa::{Isa, Kernel};
use crate::output::Columns;
use crate::quantize::{QuantizedBlock, QuantizedRows};
use crate::simd::Simd;

/// All panels of `out`, whose bytes are `panels`.
pub(super) fn run<L: PanelLayout>(
    isa: Isa,
    panels: &[u8],
    x: &QuantizedRows,
    out: &mut Columns<'_>,
) {
    isa.run(BlockMatmul::<L> {
        panels,
        x,
        out,
        layout: std::marker::PhantomData,
    });
}

struct BlockMatmul<'k, 'o, L> {
    panels: &'k [u8],
    x: &'k QuantizedRows,
    out: &'k mut Columns<'o>,
    layout: std::marker::PhantomData<L>,
}

impl<L: PanelLayout> Kernel for BlockMatmul<'_, '_, L> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let blocks = self.x.cols() / crate::quantize::BLOCK;
        let panel_bytes = blocks / L::Scales::BLOCKS * L::SUPERBLOCK;
        let step = tokens_per_run(blocks * size_of::<QuantizedBlock>());
        let tokens = self.x.rows();
        for start in (0..tokens).step_by(step) {
            let end = tokens.min(start + step);
            for (panel, bytes) in self.panels.chunks_exact(panel_bytes).enumerate() {
                let mut token = start;
                while token < end {
                    let at = (token, panel);
                    token += match end - token {
                        4.. if S::TILES => tile::<S, L, 4>(s, bytes, self.x, at, self.out),
                        2.. if S::TILES => tile::<S, L, 2>(s, bytes, self.x, at, self.out),
                        _ => tile::<S, L, 1>(s, bytes, self.x, at, self.out),
                    };
                }
            }
        }
    }
}

/// `T` tokens from `at.0`, one panel; returns `T`.
#[inline(always)]
fn tile<S: Simd, L: PanelLayout, const T: usize>(
    s: S,
    panel: &[u8],
    x: &QuantizedRows,
    at: (usize, usize),
    out: &mut Columns<'_>,
) -> usize {
    let mut rows: [&[QuantizedBlock]; T] = [&[]; T];
    for (t, row) in rows.iter_mut().enumerate() {
        *row = x.row(at.0 + t);
    }
    let mut acc = [s.splat(0.0); T];
    let mut column = 0;
    for superblock in panel.chunks_exact(L::SUPERBLOCK) {
        let (scales, codes) = superblock.split_at(L::Scales::BYTES);
        for (index, codes) in codes.chunks_exact(L::Codes::BYTES).enumerate() {
            let scales = L::Scales::load(s, scales, index);
            let mut blocks = [&rows[0][column]; T];
            for t in 1..T {
                blocks[t] = &rows[t][column];
            }
            accumulate::<S, L, T>(s, codes, &scales, &blocks, &mut acc);
            column += 1;
        }
    }
    for (t, acc) in acc.iter().enumerate() {
        let mut sums = [0.0; PANEL];
        s.store(*acc, &mut sums);
        store_panel(out, at.0 + t, at.1, &sums);
    }
    T
}

/// One block of 32 columns.
#[inline(always)]
fn accumulate<S: Simd, L: PanelLayout, const T: usize>(
    s: S,
    codes: &[u8],
    scales: &BlockScales<S>,
    x: &[&QuantizedBlock; T],
    acc: &mut [S::F; T],
) {
    let sums = dot::<S, L, T>(s, codes, scales, x);
    for t in 0..T {
        let x_scale = s.splat(x[t].scale);
        let scale = s.mul(scales.scale, x_scale);
        acc[t] = s.fma(scale, s.i32_to_f32(sums[t]), acc[t]);
        match L::Scales::MIN {
            Min::None => {}
            Min::Whole => acc[t] = s.fma(scales.min, s.splat(x[t].weighted_sum), acc[t]),
            Min::Halves => {
                let sum = s.mul_pairs_i16(s.splat_pair(&x[t].sums), scales.half_mins);
                acc[t] = s.fma(s.mul(scales.min, x_scale), s.i32_to_f32(sum), acc[t]);
            }
        }
    }
}

/// `Σ (code − BIAS) · x` of a block, under the integer scales of its halves where it has them.
#[inline(always)]
fn dot<S: Simd, L: PanelLayout, const T: usize>(
    s: S,
    codes: &[u8],
    scales: &BlockScales<S>,
    x: &[&QuantizedBlock; T],
) -> [S::W; T] {
    let halves = L::Scales::HALVES;
    let limit = if halves { GROUPS / 2 } else { GROUPS };
    let steps = L::Codes::STEPS.min(limit);
    let ones = s.splat_i16(1);
    let mut narrow = [s.splat_i16(0); T];
    let mut wide = [s.zero_i32(); T];
    // A macro, because the group must be a constant: it decides which shifts there are.
    macro_rules! group {
        ($($g:literal)*) => {$({
            let weights = L::Codes::group::<S, $g>(s, codes);
            let magnitude = if L::Codes::SIGNED { s.abs_bytes(weights) } else { weights };
            for t in 0..T {
                let four = s.splat4(&x[t].codes.as_chunks::<4>().0[$g]);
                let four = if L::Codes::SIGNED { s.sign_bytes(four, weights) } else { four };
                let products = s.mul_pairs_bytes(magnitude, four);
                narrow[t] = if $g % steps == 0 { products } else { s.add_i16(narrow[t], products) };
            }
            if $g % steps == steps - 1 {
                let by = match (halves, $g < GROUPS / 2) {
                    (false, _) => ones,
                    (true, true) => s.dup_first(scales.halves),
                    (true, false) => s.dup_second(scales.halves),
                };
                for t in 0..T {
                    wide[t] = s.add_i32(wide[t], s.mul_pairs_i16(narrow[t], by));
                }
            }
        })*};
    }
    group!(0 1 2 3 4 5 6 7);
    if L::Codes::BIAS != 0 {
        let bias = s.splat_i16(L::Codes::BIAS);
        let by = if halves {
            s.mul_i16(scales.halves, bias)
        } else {
            bias
        };
        for t in 0..T {
            let offset = s.mul_pairs_i16(s.splat_pair(&x[t].sums), by);
            wide[t] = s.sub_i32(wide[t], offset);
        }
    }
    wide
}
