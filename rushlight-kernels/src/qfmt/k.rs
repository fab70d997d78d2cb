//! The K formats: 256 lanes with an f16 scale `d` (and `dmin`), and a small integer scale (and
//! minimum) for each 16 or 32 lanes.
//!
//! | format | bytes | `scales` | codes | `d` | `dmin` | value |
//! |---|---|---|---|---|---|---|
//! | Q2_K | 84 | 0..16 | `qs` 16..80 | 80 | 82 | `(d·sc)·q − dmin·m` per 16 |
//! | Q3_K | 110 | 96..108 | `hmask` 0..32, `qs` 32..96 | 108 | – | `(d·(sc − 32))·(q − 4)` per 16 |
//! | Q4_K | 144 | 4..16 | `qs` 16..144 | 0 | 2 | `(d·sc)·q − dmin·m` per 32 |
//! | Q5_K | 176 | 4..16 | `qh` 16..48, `qs` 48..176 | 0 | 2 | `(d·sc)·q − dmin·m` per 32 |
//! | Q6_K | 210 | 192..208 | `ql` 0..128, `qh` 128..192 | 208 | – | `(d·sc)·(q − 32)` per 16 |
//!
//! Let `b` be the index of 32 lanes, `l` a lane of them.
//! - Q2_K: scale byte of 16 lanes: `sc` low nibble, `m` high. Code: bits `2(b%4)` of `qs[32(b/4)+l]`.
//! - Q3_K: low code bits as Q2_K; the third bit is bit `b` of `hmask[l]`. The sixteen 6-bit scales:
//!   low nibbles are `scales[i%8]` (low half for `i < 8`), high two bits are bits `2(i/4)` of
//!   `scales[8 + i%4]`.
//! - Q4_K, Q5_K: `qs[32(b/2)+l]`, low nibble for even `b`; Q5_K's fifth bit is bit `b` of `qh[l]`.
//!   `sc` and `m` are 6 bits: for `b < 4` the low six of bytes `b` and `4+b`; else nibbles of byte
//!   `4+b` (`sc` low, `m` high) under the top two bits of bytes `b−4` and `b`.
//! - Q6_K: low nibbles `ql[64(b/4) + 32(b%2) + l]` (high half where `b%4 ≥ 2`), bits `2(b%4)` of
//!   `qh[32(b/4)+l]` above them; scales are i8.

use super::{BlockFormat, Format, SUB, SubBlock, half_to_f32, u16_at};

pub(crate) struct Q2K;
pub(crate) struct Q3K;
pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

/// `(d·scale)·(q − bias) − dmin·min`, each half under its own scale and minimum. A format without minima
/// subtracts 0, which changes no bit.
fn scaled<F: BlockFormat>(block: &[u8], index: usize, bias: i16, out: &mut [f32; SUB]) {
    let (d, dmin) = (half_to_f32(F::scale(block)), half_to_f32(F::min(block)));
    let sub = F::sub_block(block, index);
    for (i, lane) in out.iter_mut().enumerate() {
        let dl = d * f32::from(sub.scales[i / 16]);
        let ml = dmin * f32::from(sub.mins[i / 16]);
        *lane = dl * f32::from(i16::from(sub.codes[i]) - bias) - ml;
    }
}

/// Two bits of each of 32 bytes.
fn two_bits(bytes: &[u8], shift: usize) -> [u8; SUB] {
    let mut codes = [0; SUB];
    for (code, byte) in codes.iter_mut().zip(bytes) {
        *code = byte >> shift & 3;
    }
    codes
}

/// 32 nibbles: the low or high halves of 32 bytes.
fn nibbles(bytes: &[u8], high: bool) -> [u8; SUB] {
    let mut codes = [0; SUB];
    for (code, byte) in codes.iter_mut().zip(bytes) {
        *code = if high { byte >> 4 } else { byte & 15 };
    }
    codes
}

/// Scale and minimum `index` of the twelve bytes shared by Q4_K and Q5_K.
fn six_bit_pair(packed: &[u8], index: usize) -> (i8, u8) {
    let (scale, min) = if index < 4 {
        (packed[index] & 63, packed[index + 4] & 63)
    } else {
        let low = packed[index + 4];
        (
            low & 15 | packed[index - 4] >> 6 << 4,
            low >> 4 | packed[index] >> 6 << 4,
        )
    };
    (scale as i8, min)
}

impl BlockFormat for Q2K {
    const FORMAT: Format = Format::Q2_K;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 80)
    }
    fn min(block: &[u8]) -> u16 {
        u16_at(block, 82)
    }
    fn sub_block(block: &[u8], index: usize) -> SubBlock {
        let qs = &block[16 + 32 * (index / 4)..][..32];
        let (first, second) = (block[2 * index], block[2 * index + 1]);
        SubBlock {
            codes: two_bits(qs, 2 * (index % 4)),
            scales: [(first & 15) as i8, (second & 15) as i8],
            mins: [first >> 4, second >> 4],
        }
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        scaled::<Self>(block, index, 0, out);
    }
}

impl BlockFormat for Q3K {
    const FORMAT: Format = Format::Q3_K;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 108)
    }
    fn sub_block(block: &[u8], index: usize) -> SubBlock {
        let qs = &block[32 + 32 * (index / 4)..][..32];
        let mut codes = two_bits(qs, 2 * (index % 4));
        for (code, byte) in codes.iter_mut().zip(&block[..32]) {
            *code |= (byte >> index & 1) << 2;
        }
        let packed = &block[96..108];
        let six_bits = |i: usize| {
            let low = packed[i % 8] >> (4 * (i / 8)) & 15;
            let high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
            (low | high << 4) as i8 - 32
        };
        SubBlock {
            codes,
            scales: [six_bits(2 * index), six_bits(2 * index + 1)],
            mins: [0; 2],
        }
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        scaled::<Self>(block, index, 4, out);
    }
}

impl BlockFormat for Q4K {
    const FORMAT: Format = Format::Q4_K;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn min(block: &[u8]) -> u16 {
        u16_at(block, 2)
    }
    fn sub_block(block: &[u8], index: usize) -> SubBlock {
        let (scale, min) = six_bit_pair(&block[4..16], index);
        SubBlock {
            codes: nibbles(&block[16 + 32 * (index / 2)..][..32], index % 2 == 1),
            scales: [scale; 2],
            mins: [min; 2],
        }
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        scaled::<Self>(block, index, 0, out);
    }
}

impl BlockFormat for Q5K {
    const FORMAT: Format = Format::Q5_K;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 0)
    }
    fn min(block: &[u8]) -> u16 {
        u16_at(block, 2)
    }
    fn sub_block(block: &[u8], index: usize) -> SubBlock {
        let (scale, min) = six_bit_pair(&block[4..16], index);
        let mut codes = nibbles(&block[48 + 32 * (index / 2)..][..32], index % 2 == 1);
        for (code, byte) in codes.iter_mut().zip(&block[16..48]) {
            *code |= (byte >> index & 1) << 4;
        }
        SubBlock {
            codes,
            scales: [scale; 2],
            mins: [min; 2],
        }
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        scaled::<Self>(block, index, 0, out);
    }
}

impl BlockFormat for Q6K {
    const FORMAT: Format = Format::Q6_K;

    fn scale(block: &[u8]) -> u16 {
        u16_at(block, 208)
    }
    fn sub_block(block: &[u8], index: usize) -> SubBlock {
        let ql = &block[64 * (index / 4) + 32 * (index % 2)..][..32];
        let qh = &block[128 + 32 * (index / 4)..][..32];
        let mut codes = nibbles(ql, index % 4 >= 2);
        for (code, high) in codes.iter_mut().zip(two_bits(qh, 2 * (index % 4))) {
            *code |= high << 4;
        }
        SubBlock {
            codes,
            scales: [block[192 + 2 * index] as i8, block[193 + 2 * index] as i8],
            mins: [0; 2],
        }
    }
    fn decode(block: &[u8], index: usize, out: &mut [f32; SUB]) {
        scaled::<Self>(block, index, 32, out);
    }
}
