//! MXFP4: 32 lanes of 4-bit floats (E2M1) under one power of two (E8M0); 17 bytes.
//!
//! Byte 0 is the exponent `e`, bytes 1..17 the codes: byte `i` is lane `i` (low) and lane `i + 16`
//! (high). A lane is `2^(e − 127)` times ±{0, ½, 1, 1½, 2, 3, 4, 6}; we keep twice the element and
//! half the scale, so that elements are integers. OCP reserves `e = 255` for NaN; GGUF files use it
//! as any other exponent, and so do we.

use super::{BlockFormat, Format, SUB, SubBlock, split_nibbles};

/// Twice the value of each code.
pub(crate) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(crate) struct Mxfp4;

/// `2^(e − 128)`: half the scale; subnormal for `e < 2`.
pub(crate) fn half_scale(e: u8) -> f32 {
    let bits = if e < 2 {
        0x0020_0000 << e
    } else {
        (u32::from(e) - 1) << 23
    };
    f32::from_bits(bits)
}

impl BlockFormat for Mxfp4 {
    const FORMAT: Format = Format::MXFP4;

    fn scale(block: &[u8]) -> u16 {
        u16::from(block[0])
    }
    fn sub_block(block: &[u8], _index: usize) -> SubBlock {
        SubBlock::flat(split_nibbles(&block[1..17]))
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        let d = half_scale(block[0]);
        let codes = Self::sub_block(block, index).codes;
        for (lane, code) in out.iter_mut().zip(codes) {
            *lane = d * f32::from(DOUBLED[usize::from(code)]);
        }
    }
}
