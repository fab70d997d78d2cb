//! How the codes of 8 rows × 32 columns are stored in a panel, and come back as vectors.
//!
//! A block of codes is eight *groups* of four columns; a group is 32 codes, code `4·row + column`.
//! Codes of fewer than eight bits are split in bit planes, each plane packing the groups one above
//! the other in the same bytes, so that a group is a load, a shift and a mask:
//!
//! | bits | planes | bytes |
//! |---|---|---|
//! | 2 | 2 | 64 |
//! | 3 | 2, then 1 | 96 |
//! | 4 | 4 | 128 |
//! | 5 | 4, then 1 | 160 |
//! | 6 | 4, then 2 | 192 |
//! | 8 | 8 | 256 |
//!
//! Four-bit plane: vector `g/2`, low nibble for even `g`. Two-bit plane: vector `g/4`, bits
//! `2(g%4)`. One-bit plane: bit `g`.

use crate::qfmt::{SUB, iq4, mxfp4};
use crate::simd::Simd;

/// Groups of four columns in a block.
pub(super) const GROUPS: usize = 8;

/// Codes of one block of a panel.
pub(super) trait Codes {
    /// Bytes of a block.
    const BYTES: usize;
    /// Largest magnitude of a code as [`Codes::group`] gives it.
    const MAX: i32;
    /// Whether [`Codes::group`] gives signed codes.
    const SIGNED: bool;
    /// What unsigned codes have too much.
    const BIAS: i16;
    /// Groups whose products (each at most `2 · MAX · 127` a pair) can be summed in 16 bits.
    const STEPS: usize = {
        let mut steps = GROUPS;
        while Self::MAX * 254 * steps as i32 > i16::MAX as i32 {
            steps /= 2;
        }
        steps
    };

    /// Group `G` of a block.
    fn group<S: Simd, const G: usize>(s: S, block: &[u8]) -> S::B;
    /// Writes the codes of row `row`.
    fn pack(codes: &[u8; SUB], row: usize, block: &mut [u8]);
}

/// Unsigned codes of `BITS` bits that stand for `code − BIAS`.
pub(super) struct Bits<const BITS: usize, const BIAS: i16>;

impl<const BITS: usize, const BIAS: i16> Codes for Bits<BITS, BIAS> {
    const BYTES: usize = 32 * BITS;
    const MAX: i32 = (1 << BITS) - 1;
    const SIGNED: bool = false;
    const BIAS: i16 = BIAS;

    #[inline(always)]
    fn group<S: Simd, const G: usize>(s: S, block: &[u8]) -> S::B {
        match BITS {
            2 => two_bits::<S, G>(s, block, 0),
            3 => s.or_bytes(
                two_bits::<S, G>(s, block, 0),
                one_bit::<S, G>(s, &block[64..], 2),
            ),
            4 => four_bits::<S, G>(s, block),
            5 => s.or_bytes(
                four_bits::<S, G>(s, block),
                one_bit::<S, G>(s, &block[128..], 4),
            ),
            _ => s.or_bytes(
                four_bits::<S, G>(s, block),
                two_bits::<S, G>(s, &block[128..], 4),
            ),
        }
    }

    fn pack(codes: &[u8; SUB], row: usize, block: &mut [u8]) {
        match BITS {
            2 => put::<4>(codes, 0, row, block),
            3 => {
                put::<4>(codes, 0, row, block);
                put::<8>(codes, 2, row, &mut block[64..]);
            }
            4 => put::<2>(codes, 0, row, block),
            5 => {
                put::<2>(codes, 0, row, block);
                put::<8>(codes, 4, row, &mut block[128..]);
            }
            _ => {
                put::<2>(codes, 0, row, block);
                put::<4>(codes, 4, row, &mut block[128..]);
            }
        }
    }
}

/// Signed bytes.
pub(super) struct Int8;

impl Codes for Int8 {
    const BYTES: usize = 256;
    // −128 occurs in files, and |−128| is an unsigned byte.
    const MAX: i32 = 128;
    const SIGNED: bool = true;
    const BIAS: i16 = 0;

    #[inline(always)]
    fn group<S: Simd, const G: usize>(s: S, block: &[u8]) -> S::B {
        s.load_bytes(vector(block, G))
    }

    fn pack(codes: &[u8; SUB], row: usize, block: &mut [u8]) {
        put::<1>(codes, 0, row, block);
    }
}

/// Four-bit codes into the IQ4 table, which is too wide to be made unsigned.
pub(super) struct Iq4;

impl Codes for Iq4 {
    const BYTES: usize = 128;
    const MAX: i32 = 127;
    const SIGNED: bool = true;
    const BIAS: i16 = 0;

    #[inline(always)]
    fn group<S: Simd, const G: usize>(s: S, block: &[u8]) -> S::B {
        s.lookup(&iq4::TABLE, four_bits::<S, G>(s, block))
    }

    fn pack(codes: &[u8; SUB], row: usize, block: &mut [u8]) {
        Bits::<4, 0>::pack(codes, row, block);
    }
}

/// Four-bit floats as integers in 0..=24, twelve too high.
pub(super) struct Fp4;

impl Fp4 {
    const TABLE: [i8; 16] = {
        let mut table = mxfp4::DOUBLED;
        let mut i = 0;
        while i < table.len() {
            table[i] += Self::BIAS as i8;
            i += 1;
        }
        table
    };
}

impl Codes for Fp4 {
    const BYTES: usize = 128;
    const MAX: i32 = 24;
    const SIGNED: bool = false;
    const BIAS: i16 = 12;

    #[inline(always)]
    fn group<S: Simd, const G: usize>(s: S, block: &[u8]) -> S::B {
        s.lookup(&Self::TABLE, four_bits::<S, G>(s, block))
    }

    fn pack(codes: &[u8; SUB], row: usize, block: &mut [u8]) {
        Bits::<4, 0>::pack(codes, row, block);
    }
}

/// Writes bits `from ..` of a row's codes into a plane of `PER` groups a byte.
#[inline(always)]
fn put<const PER: usize>(codes: &[u8; SUB], from: u32, row: usize, plane: &mut [u8]) {
    let bits = 8 / PER;
    // The low `bits` bits of each of four bytes.
    let mask = u32::from_le_bytes([0xff >> (8 - bits); 4]);
    let groups = codes.as_chunks::<4>().0;
    for (vector, groups) in plane
        .as_chunks_mut::<32>()
        .0
        .iter_mut()
        .zip(groups.chunks(PER))
    {
        let mut word = 0;
        for (i, group) in groups.iter().enumerate() {
            // Bytes stay apart: what a shift brings in from a neighbour is masked off.
            word |= (u32::from_le_bytes(*group) >> from & mask) << (i * bits);
        }
        vector[4 * row..4 * row + 4].copy_from_slice(&word.to_le_bytes());
    }
}

#[inline(always)]
fn four_bits<S: Simd, const G: usize>(s: S, plane: &[u8]) -> S::B {
    s.bits(s.load_bytes(vector(plane, G / 2)), 4 * (G % 2) as i32, 15)
}

/// Two bits of group `G`, moved to bit `to`.
#[inline(always)]
fn two_bits<S: Simd, const G: usize>(s: S, plane: &[u8], to: i32) -> S::B {
    let shift = 2 * (G % 4) as i32 - to;
    s.bits(s.load_bytes(vector(plane, G / 4)), shift, 3 << to)
}

/// One bit of group `G`, moved to bit `to`.
#[inline(always)]
fn one_bit<S: Simd, const G: usize>(s: S, plane: &[u8], to: i32) -> S::B {
    s.bits(s.load_bytes(vector(plane, 0)), G as i32 - to, 1 << to)
}

/// Vector `index` of a block; blocks are cut to their length by the caller.
#[inline(always)]
fn vector(block: &[u8], index: usize) -> &[u8; 32] {
    &block.as_chunks::<32>().0[index]
}
