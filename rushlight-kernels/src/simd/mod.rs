//! Eight f32 lanes (or 32 bytes) and the operations that the kernels are written in.
//!
//! A kernel is generic over [`Simd`] and is compiled once for every instruction set, so all of
//! them do the same operations in the same order. Integer operations are exact and float
//! operations are the IEEE ones (`fma` rounds once everywhere), hence **results are bit-identical
//! on every instruction set**; the tests assert it. A new instruction set is one file beside
//! `avx2.rs` and one arm in `isa.rs`.
//!
//! Each method is `#[inline(always)]`: the operations must become part of the function that
//! carries the target features. Kernels use loops rather than closures for the same reason.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod fma;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::run_avx2;
use half::f16;
pub(crate) use scalar::Scalar;

/// Lanes of an f32 vector.
pub(crate) const LANES: usize = 8;

/// The operations of one instruction set; a value proves that it is there.
///
/// `F` is 8 × f32, `M` a mask over them, `B` 32 bytes, `H` 16 × i16, `W` 8 × i32.
#[rustfmt::skip]
pub(crate) trait Simd: Copy {
    /// Whether there are registers enough for several tokens at once; where not, kernels take
    /// one at a time, which changes no result.
    const TILES: bool;

    type F: Copy;
    type M: Copy;
    type B: Copy;
    type H: Copy;
    type W: Copy;

    // Bytes.
    fn load_bytes(self, v: &[u8; 32]) -> Self::B;
    /// Four bytes, eight times.
    fn splat4(self, v: &[i8; 4]) -> Self::B;
    /// Each byte shifted (right by `shift`, or left by `-shift`), then masked. `mask` must not
    /// keep a bit that came from a neighbouring byte: hardware shifts wider lanes.
    fn bits(self, v: Self::B, shift: i32, mask: u8) -> Self::B;
    fn or_bytes(self, a: Self::B, b: Self::B) -> Self::B;
    /// `table[v]` for each byte of `v`, which must be 0..16.
    fn lookup(self, table: &[i8; 16], v: Self::B) -> Self::B;
    /// |v| as unsigned bytes (−128 gives 128).
    fn abs_bytes(self, v: Self::B) -> Self::B;
    /// Each signed byte of `v` times the sign of that of `by` (−1, 0, 1). `v` may not be −128.
    fn sign_bytes(self, v: Self::B, by: Self::B) -> Self::B;
    /// `u[2i]·v[2i] + u[2i+1]·v[2i+1]`, `u` unsigned, `v` signed. The sum must fit i16.
    fn mul_pairs_bytes(self, u: Self::B, v: Self::B) -> Self::H;

    // 16-bit integers.
    fn splat_i16(self, v: i16) -> Self::H;
    /// Two values, eight times.
    fn splat_pair(self, v: &[i16; 2]) -> Self::H;
    fn load_i8_as_i16(self, v: &[u8; 16]) -> Self::H;
    fn load_low_nibbles_as_i16(self, v: &[u8; 16]) -> Self::H;
    fn load_high_nibbles_as_i16(self, v: &[u8; 16]) -> Self::H;
    fn add_i16(self, a: Self::H, b: Self::H) -> Self::H;
    /// Low half of the products; they must fit i16.
    fn mul_i16(self, a: Self::H, b: Self::H) -> Self::H;
    /// The first of each pair, twice.
    fn dup_first(self, v: Self::H) -> Self::H;
    /// The second of each pair, twice.
    fn dup_second(self, v: Self::H) -> Self::H;
    /// `a[2i]·b[2i] + a[2i+1]·b[2i+1]`, widened.
    fn mul_pairs_i16(self, a: Self::H, b: Self::H) -> Self::W;

    // 32-bit integers.
    fn zero_i32(self) -> Self::W;
    fn add_i32(self, a: Self::W, b: Self::W) -> Self::W;
    fn sub_i32(self, a: Self::W, b: Self::W) -> Self::W;
    fn i32_to_f32(self, v: Self::W) -> Self::F;

    // f32, in.
    fn splat(self, v: f32) -> Self::F;
    fn load(self, v: &[f32; LANES]) -> Self::F;
    /// Little-endian f32.
    fn load_f32_bytes(self, v: &[u8; 32]) -> Self::F;
    fn load_f16(self, v: &[f16; LANES]) -> Self::F;
    /// Little-endian f16.
    fn load_f16_bytes(self, v: &[u8; 16]) -> Self::F;
    /// Little-endian bf16.
    fn load_bf16_bytes(self, v: &[u8; 16]) -> Self::F;
    fn load_u8(self, v: &[u8; LANES]) -> Self::F;
    fn load_i8(self, v: &[u8; LANES]) -> Self::F;
    /// `2^(v − 128)`: half of what an E8M0 exponent says (see `qfmt::mxfp4`).
    fn load_e8m0_half(self, v: &[u8; LANES]) -> Self::F;

    // f32, out.
    fn store(self, v: Self::F, out: &mut [f32; LANES]);
    /// Rounded to nearest even.
    fn store_f16(self, v: Self::F, out: &mut [f16; LANES]);
    /// Rounded to nearest even; lanes must be within ±127.
    fn store_i8(self, v: Self::F, out: &mut [i8; LANES]);

    // f32, lane by lane.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a·b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`: `b` where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, v: Self::F) -> Self::F;
    /// The magnitude of `v` with the sign of `sign`.
    fn copysign(self, v: Self::F, sign: Self::F) -> Self::F;
    /// To the nearest integer, ties to even; |v| < 2²².
    fn round(self, v: Self::F) -> Self::F;
    /// 2^v for an integral v in −126..=127.
    fn exp2_int(self, v: Self::F) -> Self::F;
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `m ? a : b`.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;

    // f32, across lanes.
    /// `((0+1)+(2+3)) + ((4+5)+(6+7))`.
    fn reduce_add(self, v: Self::F) -> f32;
    /// The largest lane; any lane where one is NaN.
    fn reduce_max(self, v: Self::F) -> f32;
    /// [`Simd::reduce_add`] of each.
    fn reduce_add4(self, v: [Self::F; 4]) -> [f32; 4];
}

/// The first `LANES` of `v` as an array, zero-filled; for tails.
#[inline(always)]
pub(crate) fn padded(v: &[f32]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for (o, x) in out.iter_mut().zip(v) {
        *o = *x;
    }
    out
}
