//! `y = x · Wᵀ` for weights packed in panels of eight rows.
//!
//! # The algorithm
//! A *panel* is eight rows of `W` (eight outputs), interleaved so that one 256-bit vector lane is
//! one row ([`PackedMatrix`]). A vector of weights then meets one activation, or four of them as
//! int8, broadcast to every lane; nothing is ever summed across lanes, and the eight results leave
//! as one store.
//!
//! - **Block formats** take activations as int8 ([`QuantizedRows`]). For each 32 columns, products
//!   are summed exactly in integers (16 bits for as many steps as cannot overflow, then 32), and
//!   enter the f32 sum by one `fma` with weight scale × activation scale. A minimum or an offset is
//!   a product with the sum of the codes, also exact. See `block.rs`.
//! - **Plain floats** take f32 activations: one `fma` a column. See `float.rs`.
//!
//! Weights are walked once for up to four tokens, whose sums stay in registers; tokens are taken
//! in runs that fit the second-level cache, so that a panel is read from memory once a run.
//!
//! # Batch invariance
//! One output is a chain of `fma`s over the columns in order, whatever the tile it is computed in:
//! it is bit-identical for any number of tokens, any split of the panels among threads, and any
//! instruction set.

mod block;
mod codes;
mod float;
mod pack;
mod scales;

pub use pack::{PANEL, PackedMatrix, pack_panel, panel_bytes};

use crate::error::{KernelError, KernelErrorKind, expect_len, expect_multiple};
use crate::isa::Isa;
use crate::output::Columns;
use crate::qfmt::Format;
use crate::quantize::QuantizedRows;
use pack::{
    Iq4NlPanel, Iq4XsPanel, Mxfp4Panel, Q2KPanel, Q3KPanel, Q4_0Panel, Q4_1Panel, Q4KPanel,
    Q5_0Panel, Q5_1Panel, Q5KPanel, Q6KPanel, Q8_0Panel,
};

/// Activations of a product, `[tokens, cols]`.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// For F32, F16 and BF16 weights.
    F32(&'a [f32]),
    /// For block formats.
    Int8(&'a QuantizedRows),
}

/// Writes `y[token][row] = Σ x[token][k] · w[row][k]` for the output columns held by `out`.
///
/// `out` covers rows [`Columns::first`]`..` of the weights; threads call this with disjoint parts
/// of one output. The number of tokens is `out.rows()`.
///
/// # Errors
/// The input is of the wrong kind for the weights' format, or is not `[tokens, cols]`; `out` does
/// not begin at a panel (a multiple of [`PANEL`] rows), or does not end at one or at the last row.
pub fn matmul<B: AsRef<[u8]>>(
    isa: Isa,
    weights: &PackedMatrix<B>,
    input: Input<'_>,
    out: &mut Columns<'_>,
) -> Result<(), KernelError> {
    let tokens = out.rows();
    let panels = check_columns(weights.rows(), out)?;
    if tokens == 0 || out.width() == 0 {
        return Ok(());
    }
    let bytes = weights.panels(panels);
    let (format, cols) = (weights.format(), weights.cols());
    match (input, format.is_float()) {
        (Input::F32(x), true) => {
            let expected = tokens
                .checked_mul(cols)
                .ok_or_else(|| KernelError::too_large("matmul", "x"))?;
            expect_len("matmul", "x", expected, x.len())?;
            float::run(isa, format, bytes, x, out);
        }
        (Input::Int8(x), false) => {
            expect_len("matmul", "rows of x", tokens, x.rows())?;
            expect_len("matmul", "columns of x", cols, x.cols())?;
            run_blocks(isa, format, bytes, x, out);
        }
        (Input::F32(_), false) => return Err(wrong_input(format, "int8")),
        (Input::Int8(_), true) => return Err(wrong_input(format, "f32")),
    }
    Ok(())
}

fn run_blocks(isa: Isa, format: Format, bytes: &[u8], x: &QuantizedRows, out: &mut Columns<'_>) {
    match format {
        Format::F32 | Format::F16 | Format::BF16 => {}
        Format::Q8_0 => block::run::<Q8_0Panel>(isa, bytes, x, out),
        Format::Q4_0 => block::run::<Q4_0Panel>(isa, bytes, x, out),
        Format::Q4_1 => block::run::<Q4_1Panel>(isa, bytes, x, out),
        Format::Q5_0 => block::run::<Q5_0Panel>(isa, bytes, x, out),
        Format::Q5_1 => block::run::<Q5_1Panel>(isa, bytes, x, out),
        Format::Q2_K => block::run::<Q2KPanel>(isa, bytes, x, out),
        Format::Q3_K => block::run::<Q3KPanel>(isa, bytes, x, out),
        Format::Q4_K => block::run::<Q4KPanel>(isa, bytes, x, out),
        Format::Q5_K => block::run::<Q5KPanel>(isa, bytes, x, out),
        Format::Q6_K => block::run::<Q6KPanel>(isa, bytes, x, out),
        Format::IQ4_NL => block::run::<Iq4NlPanel>(isa, bytes, x, out),
        Format::IQ4_XS => block::run::<Iq4XsPanel>(isa, bytes, x, out),
        Format::MXFP4 => block::run::<Mxfp4Panel>(isa, bytes, x, out),
    }
}

/// The panels that `out` covers.
fn check_columns(rows: usize, out: &Columns<'_>) -> Result<std::ops::Range<usize>, KernelError> {
    let (first, end) = (out.first(), out.first() + out.width());
    if first > 0 {
        expect_multiple("matmul", "the first column", PANEL, first)?;
    }
    if end > rows {
        return expect_len("matmul", "the end of the columns", rows, end).map(|()| 0..0);
    }
    if end < rows && out.width() > 0 {
        expect_multiple("matmul", "the end of the columns", PANEL, end)?;
    }
    Ok(first / PANEL..end.div_ceil(PANEL))
}

fn wrong_input(format: Format, wanted: &'static str) -> KernelError {
    KernelError::new("matmul", KernelErrorKind::WrongInput { format, wanted })
}

/// Tokens whose activations, `bytes` each, stay in the second-level cache beside a panel.
fn tokens_per_run(bytes: usize) -> usize {
    const CACHE: usize = 256 * 1024;
    (CACHE / bytes.max(1)).next_multiple_of(4).max(16)
}

/// Writes the eight results of a panel for one token; a tail panel has fewer columns.
#[inline(always)]
fn store_panel(out: &mut Columns<'_>, token: usize, panel: usize, sums: &[f32; PANEL]) {
    let row = &mut out.row_mut(token)[panel * PANEL..];
    match row.first_chunk_mut::<PANEL>() {
        Some(whole) => *whole = *sums,
        None => {
            for (y, sum) in row.iter_mut().zip(sums) {
                *y = *sum;
            }
        }
    }
}
