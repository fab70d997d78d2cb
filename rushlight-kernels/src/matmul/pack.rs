//! Weights rearranged into panels of eight rows, without loss.
//!
//! A panel is a run of superblocks (32 or 256 columns, as the format's blocks), each the scales of
//! its eight rows (`scales.rs`) followed by their codes, 32 columns after 32 columns (`codes.rs`).
//! Plain floats are interleaved element by element: `[cols, 8]` in the format's own width. Rows
//! that the last panel lacks are zero bytes.
//!
//! Packed bytes per 256 columns of 8 rows, beside the format's own: Q4_K 1184 (1152), Q6_K 1680
//! (1680), Q3_K 912 (880), Q2_K 672 (672), IQ4_XS 1104 (1088); the 32-column formats are equal.

use std::ops::Range;

use super::codes::{Bits, Codes, Fp4, Int8, Iq4};
use super::scales::{Exponent, Half, HalfMin, Scales, Sub16, Sub16Min, Sub32, Sub32Min};
use crate::error::{KernelError, expect_len};
use crate::qfmt::{BlockFormat, Format, checked_row_bytes, iq4, k, legacy, mxfp4};

/// Rows of a panel.
pub const PANEL: usize = 8;

/// A block format's layout in a panel.
pub(super) trait PanelLayout {
    type Source: BlockFormat;
    type Codes: Codes;
    type Scales: Scales;

    /// Bytes of a superblock.
    const SUPERBLOCK: usize = Self::Scales::BYTES + Self::Scales::BLOCKS * Self::Codes::BYTES;
}

macro_rules! panel_layouts {
    ($($name:ident: $source:ty, $codes:ty, $scales:ty;)*) => {$(
        pub(super) struct $name;
        impl PanelLayout for $name {
            type Source = $source;
            type Codes = $codes;
            type Scales = $scales;
        }
    )*};
}

panel_layouts! {
    Q8_0Panel: legacy::Q8_0, Int8, Half;
    Q4_0Panel: legacy::Q4_0, Bits<4, 8>, Half;
    Q4_1Panel: legacy::Q4_1, Bits<4, 0>, HalfMin;
    Q5_0Panel: legacy::Q5_0, Bits<5, 16>, Half;
    Q5_1Panel: legacy::Q5_1, Bits<5, 0>, HalfMin;
    Q2KPanel: k::Q2K, Bits<2, 0>, Sub16Min;
    Q3KPanel: k::Q3K, Bits<3, 4>, Sub16;
    Q4KPanel: k::Q4K, Bits<4, 0>, Sub32Min;
    Q5KPanel: k::Q5K, Bits<5, 0>, Sub32Min;
    Q6KPanel: k::Q6K, Bits<6, 32>, Sub16;
    Iq4NlPanel: iq4::Iq4Nl, Iq4, Half;
    Iq4XsPanel: iq4::Iq4Xs, Iq4, Sub32;
    Mxfp4Panel: mxfp4::Mxfp4, Fp4, Exponent;
}

/// A weight matrix `[rows, cols]` in panels; `B` holds the bytes (owned, shared or mapped).
#[derive(Clone, Debug)]
pub struct PackedMatrix<B = Vec<u8>> {
    format: Format,
    rows: usize,
    cols: usize,
    panel_bytes: usize,
    data: B,
}

impl PackedMatrix {
    /// Packs `rows` rows of `cols` elements; `row(i)` gives the bytes of output row `i`, so a
    /// caller may permute rows. To pack on several threads, call [`pack_panel`] on chunks of
    /// [`panel_bytes`] and then [`PackedMatrix::from_packed`].
    ///
    /// # Errors
    /// `cols` is not whole blocks, a row's bytes are not [`Format::row_bytes`] of it, or the matrix
    /// is too large to address.
    pub fn pack<'a>(
        format: Format,
        rows: usize,
        cols: usize,
        row: impl Fn(usize) -> &'a [u8],
    ) -> Result<Self, KernelError> {
        let panel_bytes = panel_bytes(format, cols)?;
        let mut data = vec![0; matrix_bytes(rows, panel_bytes)?];
        for (panel, out) in data.chunks_exact_mut(panel_bytes.max(1)).enumerate() {
            let first = panel * PANEL;
            let count = PANEL.min(rows - first);
            let mut sources: [&[u8]; PANEL] = [&[]; PANEL];
            for (i, source) in sources.iter_mut().enumerate().take(count) {
                *source = row(first + i);
            }
            pack_panel(format, cols, &sources[..count], out)?;
        }
        Self::from_packed(format, rows, cols, data)
    }
}

impl<B: AsRef<[u8]>> PackedMatrix<B> {
    /// Takes panels that [`pack_panel`] wrote: `rows.div_ceil(8)` of [`panel_bytes`].
    ///
    /// # Errors
    /// `data` is not of that length, or `cols` is not whole blocks.
    pub fn from_packed(
        format: Format,
        rows: usize,
        cols: usize,
        data: B,
    ) -> Result<Self, KernelError> {
        let panel_bytes = panel_bytes(format, cols)?;
        let expected = matrix_bytes(rows, panel_bytes)?;
        expect_len("pack", "data", expected, data.as_ref().len())?;
        Ok(Self {
            format,
            rows,
            cols,
            panel_bytes,
            data,
        })
    }

    /// The format of the elements.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Output rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.data.as_ref().len()
    }

    pub(super) fn panels(&self, panels: Range<usize>) -> &[u8] {
        &self.data.as_ref()[panels.start * self.panel_bytes..panels.end * self.panel_bytes]
    }
}

/// Bytes of one panel of `cols` columns.
///
/// # Errors
/// `cols` is not whole blocks, or the panel is too large to address.
pub fn panel_bytes(format: Format, cols: usize) -> Result<usize, KernelError> {
    fn of<L: PanelLayout>() -> usize {
        L::SUPERBLOCK
    }
    let row_bytes = checked_row_bytes("pack", format, cols)?;
    let unit = match format {
        Format::F32 | Format::F16 | Format::BF16 => PANEL * format.block_bytes(),
        Format::Q8_0 => of::<Q8_0Panel>(),
        Format::Q4_0 => of::<Q4_0Panel>(),
        Format::Q4_1 => of::<Q4_1Panel>(),
        Format::Q5_0 => of::<Q5_0Panel>(),
        Format::Q5_1 => of::<Q5_1Panel>(),
        Format::Q2_K => of::<Q2KPanel>(),
        Format::Q3_K => of::<Q3KPanel>(),
        Format::Q4_K => of::<Q4KPanel>(),
        Format::Q5_K => of::<Q5KPanel>(),
        Format::Q6_K => of::<Q6KPanel>(),
        Format::IQ4_NL => of::<Iq4NlPanel>(),
        Format::IQ4_XS => of::<Iq4XsPanel>(),
        Format::MXFP4 => of::<Mxfp4Panel>(),
    };
    (row_bytes / format.block_bytes())
        .checked_mul(unit)
        .ok_or_else(|| KernelError::too_large("pack", "a panel"))
}

/// Packs one panel: up to eight rows of `cols` elements of `format`, into [`panel_bytes`].
///
/// # Errors
/// More than eight rows, `cols` not whole blocks, a row or `out` of the wrong length.
pub fn pack_panel(
    format: Format,
    cols: usize,
    rows: &[&[u8]],
    out: &mut [u8],
) -> Result<(), KernelError> {
    expect_len("pack", "out", panel_bytes(format, cols)?, out.len())?;
    expect_len("pack", "rows", rows.len().min(PANEL), rows.len())?;
    let row_bytes = checked_row_bytes("pack", format, cols)?;
    for row in rows {
        expect_len("pack", "a row", row_bytes, row.len())?;
    }
    if rows.len() < PANEL {
        out.fill(0);
    }
    match format {
        Format::F32 => interleave::<4>(rows, out),
        Format::F16 | Format::BF16 => interleave::<2>(rows, out),
        Format::Q8_0 => pack_blocks::<Q8_0Panel>(rows, out),
        Format::Q4_0 => pack_blocks::<Q4_0Panel>(rows, out),
        Format::Q4_1 => pack_blocks::<Q4_1Panel>(rows, out),
        Format::Q5_0 => pack_blocks::<Q5_0Panel>(rows, out),
        Format::Q5_1 => pack_blocks::<Q5_1Panel>(rows, out),
        Format::Q2_K => pack_blocks::<Q2KPanel>(rows, out),
        Format::Q3_K => pack_blocks::<Q3KPanel>(rows, out),
        Format::Q4_K => pack_blocks::<Q4KPanel>(rows, out),
        Format::Q5_K => pack_blocks::<Q5KPanel>(rows, out),
        Format::Q6_K => pack_blocks::<Q6KPanel>(rows, out),
        Format::IQ4_NL => pack_blocks::<Iq4NlPanel>(rows, out),
        Format::IQ4_XS => pack_blocks::<Iq4XsPanel>(rows, out),
        Format::MXFP4 => pack_blocks::<Mxfp4Panel>(rows, out),
    }
    Ok(())
}

fn matrix_bytes(rows: usize, panel_bytes: usize) -> Result<usize, KernelError> {
    rows.div_ceil(PANEL)
        .checked_mul(panel_bytes)
        .ok_or_else(|| KernelError::too_large("pack", "a matrix"))
}

fn interleave<const N: usize>(rows: &[&[u8]], out: &mut [u8]) {
    for (r, row) in rows.iter().enumerate() {
        let lanes = out.as_chunks_mut::<N>().0.iter_mut().skip(r).step_by(PANEL);
        for (lane, element) in lanes.zip(row.as_chunks::<N>().0) {
            *lane = *element;
        }
    }
}

fn pack_blocks<L: PanelLayout>(rows: &[&[u8]], out: &mut [u8]) {
    let block_bytes = L::Source::FORMAT.block_bytes();
    for (r, row) in rows.iter().enumerate() {
        let superblocks = out.chunks_exact_mut(L::SUPERBLOCK);
        for (superblock, source) in superblocks.zip(row.chunks_exact(block_bytes)) {
            let (scales, codes) = superblock.split_at_mut(L::Scales::BYTES);
            L::Scales::pack::<L::Source>(source, r, scales);
            for (index, block) in codes.chunks_exact_mut(L::Codes::BYTES).enumerate() {
                let sub = L::Source::sub_block(source, index);
                L::Scales::pack_sub(&sub, index, r, scales);
                L::Codes::pack(&sub.codes, r, block);
            }
        }
    }
}
