//! How the scales of eight rows are stored in a panel, and come back as vectors.
//!
//! Scales come first in a superblock (32 or 256 columns), all of them before the codes, in the
//! precision of the format; `[8]` is one value a row.
//!
//! | layout | contents | bytes |
//! |---|---|---|
//! | [`Half`] | `d: [f16; 8]` | 16 |
//! | [`HalfMin`] | `d: [f16; 8]`, `m: [f16; 8]` | 32 |
//! | [`Exponent`] | `e: [u8; 8]` | 8 |
//! | [`Sub32`] | `d: [f16; 8]`, then `sc: [i8; 8]` × 8 | 80 |
//! | [`Sub32Min`] | `d`, `dmin: [f16; 8]`, then (`sc: [u8; 8]`, `m: [u8; 8]`) × 8 | 160 |
//! | [`Sub16`] | `d: [f16; 8]`, then `sc: [[i8; 2]; 8]` × 8 | 144 |
//! | [`Sub16Min`] | `d`, `dmin: [f16; 8]`, then `[[u8; 2]; 8]` × 8, `sc` low nibble, `m` high | 160 |

use crate::qfmt::{BlockFormat, SubBlock};
use crate::simd::Simd;

/// How a block of 32 columns turns its integer sum into f32.
pub(super) struct BlockScales<S: Simd> {
    /// Multiplies the integer sum (with the activations' scale).
    pub(super) scale: S::F,
    /// Multiplies the activations' weighted sum, or the integer sum of minima; see [`Min`].
    pub(super) min: S::F,
    /// Integer scales of the halves, as pairs a row ([`Scales::HALVES`]).
    pub(super) halves: S::H,
    /// Integer minima of the halves, as pairs a row ([`Min::Halves`]).
    pub(super) half_mins: S::H,
}

/// What is added besides scale × codes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Min {
    /// Nothing.
    None,
    /// `min` × the weighted sum of the activations.
    Whole,
    /// `min` × the activations' scale × the sums of the halves under their integer minima.
    Halves,
}

/// Scales of one superblock of a panel.
pub(super) trait Scales {
    /// Blocks of 32 columns in a superblock.
    const BLOCKS: usize;
    /// Bytes of a superblock's scales.
    const BYTES: usize;
    /// Whether the two halves of a block have their own integer scales.
    const HALVES: bool;
    /// The term besides scale × codes.
    const MIN: Min;

    /// The scales of block `index` of a superblock.
    fn load<S: Simd>(s: S, bytes: &[u8], index: usize) -> BlockScales<S>;
    /// Writes the block's own scales of row `row`.
    fn pack<F: BlockFormat>(block: &[u8], row: usize, bytes: &mut [u8]);
    /// Writes the integer scales of row `row` for 32 columns, where there are any.
    fn pack_sub(_sub: &SubBlock, _index: usize, _row: usize, _bytes: &mut [u8]) {}
}

/// One f16 scale.
pub(super) struct Half;
/// One f16 scale and one f16 minimum.
pub(super) struct HalfMin;
/// One power of two.
pub(super) struct Exponent;
/// An integer scale a block.
pub(super) struct Sub32;
/// An integer scale and minimum a block.
pub(super) struct Sub32Min;
/// An integer scale a half block.
pub(super) struct Sub16;
/// An integer scale and minimum a half block.
pub(super) struct Sub16Min;

#[inline(always)]
fn only<S: Simd>(s: S, scale: S::F) -> BlockScales<S> {
    BlockScales {
        scale,
        min: s.splat(0.0),
        halves: s.splat_i16(0),
        half_mins: s.splat_i16(0),
    }
}

/// `N` bytes at `offset`; superblocks are cut to their length by the caller.
#[inline(always)]
fn at<const N: usize>(bytes: &[u8], offset: usize) -> &[u8; N] {
    &bytes[offset..].as_chunks::<N>().0[0]
}

fn put_u16(value: u16, row: usize, bytes: &mut [u8]) {
    bytes[2 * row..2 * row + 2].copy_from_slice(&value.to_le_bytes());
}

impl Scales for Half {
    const BLOCKS: usize = 1;
    const BYTES: usize = 16;
    const HALVES: bool = false;
    const MIN: Min = Min::None;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8], _index: usize) -> BlockScales<S> {
        only(s, s.load_f16_bytes(at(bytes, 0)))
    }
    fn pack<F: BlockFormat>(block: &[u8], row: usize, bytes: &mut [u8]) {
        put_u16(F::scale(block), row, bytes);
    }
}

impl Scales for HalfMin {
    const BLOCKS: usize = 1;
    const BYTES: usize = 32;
    const HALVES: bool = false;
    const MIN: Min = Min::Whole;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8], _index: usize) -> BlockScales<S> {
        BlockScales {
            min: s.load_f16_bytes(at(bytes, 16)),
            ..only(s, s.load_f16_bytes(at(bytes, 0)))
        }
    }
    fn pack<F: BlockFormat>(block: &[u8], row: usize, bytes: &mut [u8]) {
        put_u16(F::scale(block), row, bytes);
        put_u16(F::min(block), row, &mut bytes[16..]);
    }
}

impl Scales for Exponent {
    const BLOCKS: usize = 1;
    const BYTES: usize = 8;
    const HALVES: bool = false;
    const MIN: Min = Min::None;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8], _index: usize) -> BlockScales<S> {
        only(s, s.load_e8m0_half(at(bytes, 0)))
    }
    fn pack<F: BlockFormat>(block: &[u8], row: usize, bytes: &mut [u8]) {
        bytes[row] = F::scale(block).to_le_bytes()[0];
    }
}

impl Scales for Sub32 {
    const BLOCKS: usize = 8;
    const BYTES: usize = 80;
    const HALVES: bool = false;
    const MIN: Min = Min::None;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8], index: usize) -> BlockScales<S> {
        let d = s.load_f16_bytes(at(bytes, 0));
        only(s, s.mul(d, s.load_i8(at(bytes, 16 + 8 * index))))
    }
    fn pack<F: BlockFormat>(block: &[u8], row: usize, bytes: &mut [u8]) {
        put_u16(F::scale(block), row, bytes);
    }
    fn pack_sub(sub: &SubBlock, index: usize, row: usize, bytes: &mut [u8]) {
        bytes[16 + 8 * index + row] = sub.scales[0] as u8;
    }
}

impl Scales for Sub32Min {
    const BLOCKS: usize = 8;
    const BYTES: usize = 160;
    const HALVES: bool = false;
    const MIN: Min = Min::Whole;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8], index: usize) -> BlockScales<S> {
        let d = s.load_f16_bytes(at(bytes, 0));
        let minus_dmin = s.sub(s.splat(0.0), s.load_f16_bytes(at(bytes, 16)));
        BlockScales {
            min: s.mul(minus_dmin, s.load_u8(at(bytes, 40 + 16 * index))),
            ..only(s, s.mul(d, s.load_u8(at(bytes, 32 + 16 * index))))
        }
    }
    fn pack<F: BlockFormat>(block: &[u8], row: usize, bytes: &mut [u8]) {
        put_u16(F::scale(block), row, bytes);
        put_u16(F::min(block), row, &mut bytes[16..]);
    }
    fn pack_sub(sub: &SubBlock, index: usize, row: usize, bytes: &mut [u8]) {
        bytes[32 + 16 * index + row] = sub.scales[0] as u8;
        bytes[40 + 16 * index + row] = sub.mins[0];
    }
}

impl Scales for Sub16 {
    const BLOCKS: usize = 8;
    const BYTES: usize = 144;
    const HALVES: bool = true;
    const MIN: Min = Min::None;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8], index: usize) -> BlockScales<S> {
        BlockScales {
            halves: s.load_i8_as_i16(at(bytes, 16 + 16 * index)),
            ..only(s, s.load_f16_bytes(at(bytes, 0)))
        }
    }
    fn pack<F: BlockFormat>(block: &[u8], row: usize, bytes: &mut [u8]) {
        put_u16(F::scale(block), row, bytes);
    }
    fn pack_sub(sub: &SubBlock, index: usize, row: usize, bytes: &mut [u8]) {
        bytes[16 + 16 * index + 2 * row] = sub.scales[0] as u8;
        bytes[17 + 16 * index + 2 * row] = sub.scales[1] as u8;
    }
}

impl Scales for Sub16Min {
    const BLOCKS: usize = 8;
    const BYTES: usize = 160;
    const HALVES: bool = true;
    const MIN: Min = Min::Halves;

    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8], index: usize) -> BlockScales<S> {
        let pairs = at(bytes, 32 + 16 * index);
        BlockScales {
            scale: s.load_f16_bytes(at(bytes, 0)),
            min: s.sub(s.splat(0.0), s.load_f16_bytes(at(bytes, 16))),
            halves: s.load_low_nibbles_as_i16(pairs),
            half_mins: s.load_high_nibbles_as_i16(pairs),
        }
    }
    fn pack<F: BlockFormat>(block: &[u8], row: usize, bytes: &mut [u8]) {
        put_u16(F::scale(block), row, bytes);
        put_u16(F::min(block), row, &mut bytes[16..]);
    }
    fn pack_sub(sub: &SubBlock, index: usize, row: usize, bytes: &mut [u8]) {
        for half in 0..2 {
            let packed = sub.scales[half] as u8 | sub.mins[half] << 4;
            bytes[32 + 16 * index + 2 * row + half] = packed;
        }
    }
}
