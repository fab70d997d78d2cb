//! Four-bit codes into a table of sixteen unevenly spaced values.
//!
//! | format | lanes | bytes | `d` | scales | codes `qs` | value |
//! |---|---|---|---|---|---|---|
//! | IQ4_NL | 32 | 18 | 0 | – | 2..18 | `d·T[q]` |
//! | IQ4_XS | 256 | 136 | 0 | `high` 2..4, `low` 4..8 | 8..136 | `(d·(sc − 32))·T[q]` per 32 |
//!
//! `qs` holds 16 bytes for each 32 lanes: byte `i` is lane `i` (low) and lane `i + 16` (high).
//! IQ4_XS' scale `b` is 6 bits: nibble `b` of `low` under bits `2b` of the u16 `high`.

use super::{BlockFormat, Format, SUB, SubBlock, half_to_f32, split_nibbles, u16_at};

/// What a code stands for.
pub(crate) const TABLE: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

pub(crate) struct Iq4Nl;
pub(crate) struct Iq4Xs;

fn looked_up(dl: f32, codes: &[u8; SUB], out: &mut [f32; SUB]) {
    for (lane, code) in out.iter_mut().zip(codes) {
        *lane = dl * f32::from(TABLE[usize::from(code & 15)]);
    }
}

impl BlockFormat for Iq4Nl {
    const FORMAT: Format = Format::IQ4_NL;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn sub_block(block: &[u8], _index: usize) -> SubBlock {
        SubBlock::flat(split_nibbles(&block[2..18]))
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        let codes = Self::sub_block(block, index).codes;
        looked_up(half_to_f32(Self::scale(block)), &codes, out);
    }
}

impl BlockFormat for Iq4Xs {
    const FORMAT: Format = Format::IQ4_XS;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn sub_block(block: &[u8], index: usize) -> SubBlock {
        let low = block[4 + index / 2] >> (4 * (index % 2)) & 15;
        let high = (u16_at(block, 2) >> (2 * index) & 3) as u8;
        SubBlock {
            codes: split_nibbles(&block[8 + 16 * index..][..16]),
            scales: [(low | high << 4) as i8 - 32; 2],
            mins: [0; 2],
        }
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        let sub = Self::sub_block(block, index);
        let dl = half_to_f32(Self::scale(block)) * f32::from(sub.scales[0]);
        looked_up(dl, &sub.codes, out);
    }
}
