//! Block formats: how a run of weights is laid out in bytes.
//!
//! A *block* is the smallest run of lanes that can be decoded alone; a tensor's rows are whole
//! blocks. The layouts are those of GGUF files; each family's file states its byte offsets.
//!
//! Every block format is read through one integer view, 32 lanes at a time: codes, the sub-scales
//! of those lanes, and the block's own scales. [`decode`] turns that view into f32,
//! [`matmul`](mod@crate::matmul) repacks it without loss.

pub(crate) mod iq4;
pub(crate) mod k;
pub(crate) mod legacy;
pub(crate) mod mxfp4;
pub(crate) mod plain;

use std::fmt;

use crate::error::{KernelError, KernelErrorKind, expect_len};

/// Decodes a row of whole blocks to f32, with the rounding of the format's definition.
///
/// `bytes` holds `out.len()` elements of `format`.
///
/// # Errors
/// `out` is not whole blocks, or `bytes` is not [`Format::row_bytes`] of it.
pub fn decode(format: Format, bytes: &[u8], out: &mut [f32]) -> Result<(), KernelError> {
    let expected = checked_row_bytes("decode", format, out.len())?;
    expect_len("decode", "bytes", expected, bytes.len())?;
    match format {
        Format::F32 => plain::decode_f32(bytes, out),
        Format::F16 => plain::decode_f16(bytes, out),
        Format::BF16 => plain::decode_bf16(bytes, out),
        Format::Q8_0 => decode_blocks::<legacy::Q8_0>(bytes, out),
        Format::Q4_0 => decode_blocks::<legacy::Q4_0>(bytes, out),
        Format::Q4_1 => decode_blocks::<legacy::Q4_1>(bytes, out),
        Format::Q5_0 => decode_blocks::<legacy::Q5_0>(bytes, out),
        Format::Q5_1 => decode_blocks::<legacy::Q5_1>(bytes, out),
        Format::Q2_K => decode_blocks::<k::Q2K>(bytes, out),
        Format::Q3_K => decode_blocks::<k::Q3K>(bytes, out),
        Format::Q4_K => decode_blocks::<k::Q4K>(bytes, out),
        Format::Q5_K => decode_blocks::<k::Q5K>(bytes, out),
        Format::Q6_K => decode_blocks::<k::Q6K>(bytes, out),
        Format::IQ4_NL => decode_blocks::<iq4::Iq4Nl>(bytes, out),
        Format::IQ4_XS => decode_blocks::<iq4::Iq4Xs>(bytes, out),
        Format::MXFP4 => decode_blocks::<mxfp4::Mxfp4>(bytes, out),
    }
    Ok(())
}

/// [`Format::row_bytes`], saying which of its two reasons for `None` it was.
pub(crate) fn checked_row_bytes(
    kernel: &'static str,
    format: Format,
    cols: usize,
) -> Result<usize, KernelError> {
    if !cols.is_multiple_of(format.block_len()) {
        let kind = KernelErrorKind::NotWholeBlocks { format, cols };
        return Err(KernelError::new(kernel, kind));
    }
    format
        .row_bytes(cols)
        .ok_or_else(|| KernelError::too_large(kernel, "a row"))
}

/// Lanes of the integer view: all scales are constant over 32 lanes or over each 16 of them.
pub(crate) const SUB: usize = 32;

/// 32 lanes of a block as integers.
pub(crate) struct SubBlock {
    /// Unsigned codes as stored (Q8_0: the bits of an i8).
    pub(crate) codes: [u8; SUB],
    /// Scale of each half, 1 where the format has none below the block.
    pub(crate) scales: [i8; 2],
    /// Minimum of each half, 0 where the format has none below the block.
    pub(crate) mins: [u8; 2],
}

impl SubBlock {
    /// Codes of a format whose blocks have no sub-scales.
    fn flat(codes: [u8; SUB]) -> Self {
        Self {
            codes,
            scales: [1; 2],
            mins: [0; 2],
        }
    }
}

/// One block format: where its fields are, and what a code means.
pub(crate) trait BlockFormat {
    /// Its name.
    const FORMAT: Format;

    /// The block's scale as stored: f16 bits, or an E8M0 exponent.
    fn scale(block: &[u8]) -> u16;
    /// The block's minimum as stored (f16 bits), 0 where it has none.
    fn min(_block: &[u8]) -> u16 {
        0
    }
    /// Lanes `32·index ..` of the block.
    fn sub_block(block: &[u8], index: usize) -> SubBlock;
    /// Lanes `32·index ..` as f32.
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]);
}

fn decode_blocks<F: BlockFormat>(bytes: &[u8], out: &mut [f32]) {
    let blocks = bytes.chunks_exact(F::FORMAT.block_bytes());
    let outs = out.chunks_exact_mut(F::FORMAT.block_len());
    for (block, lanes) in blocks.zip(outs) {
        for (index, sub) in lanes.as_chunks_mut::<SUB>().0.iter_mut().enumerate() {
            F::decode(block, index, sub);
        }
    }
}

/// The f16 whose bits are `bits`, widened.
fn half_to_f32(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32()
}

/// The little-endian u16 at `offset` of a block.
fn u16_at(block: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([block[offset], block[offset + 1]])
}

/// Sixteen bytes of nibbles: low halves are lanes 0..16, high halves lanes 16..32.
fn split_nibbles(bytes: &[u8]) -> [u8; SUB] {
    let mut codes = [0; SUB];
    for (i, byte) in bytes.iter().enumerate().take(SUB / 2) {
        codes[i] = byte & 15;
        codes[i + SUB / 2] = byte >> 4;
    }
    codes
}

/// How a tensor's elements are stored.
///
/// The closed set of formats that kernels exist for. `GGUF` type numbers are in
/// [`Format::from_ggml`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, non_camel_case_types)]
pub enum Format {
    F32,
    F16,
    BF16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
}

impl Format {
    /// Every format, in the order of their declaration.
    pub const ALL: [Format; 16] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q2_K,
        Format::Q3_K,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
        Format::IQ4_NL,
        Format::IQ4_XS,
        Format::MXFP4,
    ];

    /// The format behind a GGUF tensor type number, where there are kernels for it.
    pub const fn from_ggml(id: u32) -> Option<Format> {
        Some(match id {
            0 => Format::F32,
            1 => Format::F16,
            2 => Format::Q4_0,
            3 => Format::Q4_1,
            6 => Format::Q5_0,
            7 => Format::Q5_1,
            8 => Format::Q8_0,
            10 => Format::Q2_K,
            11 => Format::Q3_K,
            12 => Format::Q4_K,
            13 => Format::Q5_K,
            14 => Format::Q6_K,
            20 => Format::IQ4_NL,
            23 => Format::IQ4_XS,
            30 => Format::BF16,
            39 => Format::MXFP4,
            _ => return None,
        })
    }

    /// Elements in one block (1 for the plain floats).
    pub const fn block_len(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::BF16 => 1,
            Format::Q8_0
            | Format::Q4_0
            | Format::Q4_1
            | Format::Q5_0
            | Format::Q5_1
            | Format::IQ4_NL
            | Format::MXFP4 => 32,
            Format::Q2_K
            | Format::Q3_K
            | Format::Q4_K
            | Format::Q5_K
            | Format::Q6_K
            | Format::IQ4_XS => 256,
        }
    }

    /// Bytes in one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::BF16 => 2,
            Format::Q8_0 => 34,
            Format::Q4_0 | Format::IQ4_NL => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::MXFP4 => 17,
            Format::Q2_K => 84,
            Format::Q3_K => 110,
            Format::Q4_K => 144,
            Format::Q5_K => 176,
            Format::Q6_K => 210,
            Format::IQ4_XS => 136,
        }
    }

    /// Bytes of a row of `cols` elements, or `None` when `cols` is not whole blocks or overflows.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_len()) {
            return None;
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Whether elements are plain floats rather than blocks.
    pub const fn is_float(self) -> bool {
        matches!(self, Format::F32 | Format::F16 | Format::BF16)
    }

    /// The name as GGUF tools spell it, for example `Q4_K`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::BF16 => "BF16",
            Format::Q8_0 => "Q8_0",
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q2_K => "Q2_K",
            Format::Q3_K => "Q3_K",
            Format::Q4_K => "Q4_K",
            Format::Q5_K => "Q5_K",
            Format::Q6_K => "Q6_K",
            Format::IQ4_NL => "IQ4_NL",
            Format::IQ4_XS => "IQ4_XS",
            Format::MXFP4 => "MXFP4",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
