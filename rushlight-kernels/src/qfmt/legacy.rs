//! The 32-lane formats with one f16 scale `d` (and minimum `m`) a block.
//!
//! | format | bytes | `d` | `m` | high bits `qh` | codes `qs` | value |
//! |---|---|---|---|---|---|---|
//! | Q4_0 | 18 | 0 | – | – | 2..18 | `d·(q − 8)` |
//! | Q4_1 | 20 | 0 | 2 | – | 4..20 | `d·q + m` |
//! | Q5_0 | 22 | 0 | – | 2..6 | 6..22 | `d·(q − 16)` |
//! | Q5_1 | 24 | 0 | 2 | 4..8 | 8..24 | `d·q + m` |
//! | Q8_0 | 34 | 0 | – | – | 2..34 | `d·q`, `q` an i8 |
//!
//! `qs` of the 4- and 5-bit formats is 16 bytes of nibbles: byte `i` holds lane `i` (low) and lane
//! `i + 16` (high). Bit `i` of the u32 `qh` is the fifth bit of lane `i`.

use super::{BlockFormat, Format, SUB, SubBlock, half_to_f32, split_nibbles, u16_at};

pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;
pub(crate) struct Q5_1;
pub(crate) struct Q8_0;

fn five_bits(high: &[u8], low: &[u8]) -> [u8; SUB] {
    let mut codes = split_nibbles(low);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= (high[i / 8] >> (i % 8) & 1) << 4;
    }
    codes
}

/// `d·(q − bias)`.
fn centred(d: u16, codes: &[u8; SUB], bias: i16, out: &mut [f32; SUB]) {
    let d = half_to_f32(d);
    for (lane, code) in out.iter_mut().zip(codes) {
        *lane = d * f32::from(i16::from(*code) - bias);
    }
}

/// `d·q + m`, rounded twice as the definition does.
fn affine(d: u16, m: u16, codes: &[u8; SUB], out: &mut [f32; SUB]) {
    let (d, m) = (half_to_f32(d), half_to_f32(m));
    for (lane, code) in out.iter_mut().zip(codes) {
        *lane = d * f32::from(*code) + m;
    }
}

impl BlockFormat for Q4_0 {
    const FORMAT: Format = Format::Q4_0;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn sub_block(block: &[u8], _index: usize) -> SubBlock {
        SubBlock::flat(split_nibbles(&block[2..18]))
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        let codes = Self::sub_block(block, index).codes;
        centred(Self::scale(block), &codes, 8, out);
    }
}

impl BlockFormat for Q4_1 {
    const FORMAT: Format = Format::Q4_1;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn min(block: &[u8]) -> u16 {
        u16_at(block, 2)
    }
    fn sub_block(block: &[u8], _index: usize) -> SubBlock {
        SubBlock::flat(split_nibbles(&block[4..20]))
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        let codes = Self::sub_block(block, index).codes;
        affine(Self::scale(block), Self::min(block), &codes, out);
    }
}

impl BlockFormat for Q5_0 {
    const FORMAT: Format = Format::Q5_0;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn sub_block(block: &[u8], _index: usize) -> SubBlock {
        SubBlock::flat(five_bits(&block[2..6], &block[6..22]))
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        let codes = Self::sub_block(block, index).codes;
        centred(Self::scale(block), &codes, 16, out);
    }
}

impl BlockFormat for Q5_1 {
    const FORMAT: Format = Format::Q5_1;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn min(block: &[u8]) -> u16 {
        u16_at(block, 2)
    }
    fn sub_block(block: &[u8], _index: usize) -> SubBlock {
        SubBlock::flat(five_bits(&block[4..8], &block[8..24]))
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        let codes = Self::sub_block(block, index).codes;
        affine(Self::scale(block), Self::min(block), &codes, out);
    }
}

impl BlockFormat for Q8_0 {
    const FORMAT: Format = Format::Q8_0;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn sub_block(block: &[u8], _index: usize) -> SubBlock {
        let mut codes = [0; SUB];
        codes.copy_from_slice(&block[2..34]);
        SubBlock::flat(codes)
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        let d = half_to_f32(Self::scale(block));
        let codes = Self::sub_block(block, index).codes;
        for (lane, code) in out.iter_mut().zip(codes) {
            *lane = d * f32::from(code as i8);
        }
    }
}
