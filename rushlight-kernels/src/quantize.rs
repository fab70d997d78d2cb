//! Activations as 8-bit integers, for products with quantised weights.
//!
//! Each 32 columns of a row become codes `q = round(x · 127/max|x|)` in −127..=127 under one scale
//! `max|x| / 127`, ties to even. With them go the sums that formats with a minimum or an offset
//! need: of each 16 codes, and of all 32 times the scale.
//!
//! - Blocks whose largest magnitude is below 127·2⁻¹²⁶ (denormal scale) become zeros.
//! - A block that holds a NaN or an infinity gets the scale NaN: everything computed from that row
//!   is NaN, rather than a plausible number.

use crate::error::{KernelError, expect_len, expect_multiple};
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// Columns under one scale.
pub const BLOCK: usize = 32;

/// 32 quantised activations.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QuantizedBlock {
    /// Codes in −127..=127.
    pub codes: [i8; BLOCK],
    /// What a code of 1 stands for.
    pub scale: f32,
    /// `scale` times the sum of all codes.
    pub weighted_sum: f32,
    /// Sums of the first and of the last 16 codes.
    pub sums: [i16; 2],
}

impl QuantizedBlock {
    const ZERO: QuantizedBlock = QuantizedBlock {
        codes: [0; BLOCK],
        scale: 0.0,
        weighted_sum: 0.0,
        sums: [0; 2],
    };
}

/// Rows of quantised activations, `[rows, cols / 32]` blocks; keeps its memory between uses.
#[derive(Debug, Default)]
pub struct QuantizedRows {
    blocks: Vec<QuantizedBlock>,
    rows: usize,
    cols: usize,
}

impl QuantizedRows {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The blocks of one row.
    ///
    /// # Panics
    /// `row` is not less than [`QuantizedRows::rows`].
    pub fn row(&self, row: usize) -> &[QuantizedBlock] {
        let width = self.cols / BLOCK;
        &self.blocks[row * width..(row + 1) * width]
    }

    /// One row as f32: what products with it really see.
    ///
    /// # Errors
    /// `out` is not [`QuantizedRows::cols`] long.
    ///
    /// # Panics
    /// `row` is not less than [`QuantizedRows::rows`].
    pub fn dequantize(&self, row: usize, out: &mut [f32]) -> Result<(), KernelError> {
        expect_len("dequantize", "out", self.cols, out.len())?;
        let lanes = out.as_chunks_mut::<BLOCK>().0;
        for (block, lanes) in self.row(row).iter().zip(lanes) {
            for (lane, code) in lanes.iter_mut().zip(block.codes) {
                *lane = block.scale * f32::from(code);
            }
        }
        Ok(())
    }

    /// Makes room for `rows` rows of `cols` columns, with unspecified contents.
    ///
    /// # Errors
    /// `cols` is not a positive multiple of 32.
    pub fn reset(&mut self, rows: usize, cols: usize) -> Result<(), KernelError> {
        expect_multiple("quantize", "cols", BLOCK, cols)?;
        let blocks = rows
            .checked_mul(cols / BLOCK)
            .ok_or_else(|| KernelError::too_large("quantize", "rows × cols"))?;
        self.blocks.resize(blocks, QuantizedBlock::ZERO);
        (self.rows, self.cols) = (rows, cols);
        Ok(())
    }

    /// Disjoint runs of up to `rows` rows, in order, to be quantised by different threads.
    pub fn parts(&mut self, rows: usize) -> impl Iterator<Item = QuantizedPart<'_>> {
        let width = self.cols / BLOCK;
        self.blocks
            .chunks_mut((width * rows).max(1))
            .map(|blocks| QuantizedPart { blocks })
    }
}

/// Some rows of a [`QuantizedRows`].
pub struct QuantizedPart<'a> {
    blocks: &'a mut [QuantizedBlock],
}

impl QuantizedPart<'_> {
    /// Quantises `x`, the `[rows, cols]` of these rows.
    ///
    /// # Errors
    /// `x` is not as long as the rows.
    pub fn quantize(&mut self, isa: Isa, x: &[f32]) -> Result<(), KernelError> {
        expect_len("quantize", "x", self.blocks.len() * BLOCK, x.len())?;
        isa.run(Quantize {
            x,
            out: self.blocks,
        });
        Ok(())
    }
}

/// Quantises `x`, `[rows, cols]`, into `out`.
///
/// # Errors
/// `cols` is not a positive multiple of 32, or `x` is not whole rows.
pub fn quantize_rows(
    isa: Isa,
    x: &[f32],
    cols: usize,
    out: &mut QuantizedRows,
) -> Result<(), KernelError> {
    expect_multiple("quantize", "cols", BLOCK, cols)?;
    let rows = x.len() / cols;
    expect_len("quantize", "x", rows * cols, x.len())?;
    out.reset(rows, cols)?;
    isa.run(Quantize {
        x,
        out: &mut out.blocks,
    });
    Ok(())
}

struct Quantize<'a> {
    x: &'a [f32],
    out: &'a mut [QuantizedBlock],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, out) in self.x.as_chunks::<BLOCK>().0.iter().zip(self.out) {
            quantize_block(s, x, out);
        }
    }
}

#[inline(always)]
fn quantize_block<S: Simd>(s: S, x: &[f32; BLOCK], out: &mut QuantizedBlock) {
    let parts = x.as_chunks::<LANES>().0;
    let zero = s.splat(0.0);
    let (mut largest, mut finite) = (zero, zero);
    for part in parts {
        let v = s.load(part);
        largest = s.max(s.abs(v), largest);
        // 0·x is 0 for finite x and NaN otherwise.
        finite = s.fma(v, zero, finite);
    }
    if s.reduce_add(finite).is_nan() {
        *out = QuantizedBlock {
            scale: f32::NAN,
            weighted_sum: f32::NAN,
            ..QuantizedBlock::ZERO
        };
        return;
    }
    let largest = s.reduce_max(largest);
    if largest < 127.0 * f32::MIN_POSITIVE {
        *out = QuantizedBlock::ZERO;
        return;
    }
    let inverse = s.splat(127.0 / largest);
    for (part, codes) in parts.iter().zip(out.codes.as_chunks_mut::<LANES>().0) {
        s.store_i8(s.mul(s.load(part), inverse), codes);
    }
    let mut sums = [0i16; 2];
    for (sum, codes) in sums.iter_mut().zip(out.codes.as_chunks::<16>().0) {
        *sum = codes.iter().map(|q| i16::from(*q)).sum();
    }
    out.sums = sums;
    out.scale = largest / 127.0;
    out.weighted_sum = out.scale * f32::from(sums[0] + sums[1]);
}
