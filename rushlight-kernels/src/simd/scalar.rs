//! Portable lanes: arrays and loops, which compilers turn into whatever the target has.
//!
//! No operation is inlined: thirteen formats, three tiles and 32-byte arrays, unrolled into each other,
//! take a compiler minutes. One call an operation of 8 to 32 lanes is what portable code pays instead.

use half::f16;

use super::fma::fma;
use super::{LANES, Simd};

/// No instruction set at all.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// `out[i] = expression` over an array.
macro_rules! lanes {
    ($n:expr, $zero:expr, $i:ident => $value:expr) => {{
        let mut out = [$zero; $n];
        for ($i, lane) in out.iter_mut().enumerate() {
            *lane = $value;
        }
        out
    }};
}

impl Simd for Scalar {
    const TILES: bool = false;

    type F = [f32; LANES];
    type M = [bool; LANES];
    type B = [u8; 32];
    type H = [i16; 16];
    type W = [i32; LANES];

    #[inline(never)]
    fn load_bytes(self, v: &[u8; 32]) -> Self::B {
        *v
    }
    #[inline(never)]
    fn splat4(self, v: &[i8; 4]) -> Self::B {
        lanes!(32, 0, i => v[i % 4] as u8)
    }
    #[inline(never)]
    fn bits(self, v: Self::B, shift: i32, mask: u8) -> Self::B {
        if shift >= 0 {
            lanes!(32, 0, i => (v[i] >> shift) & mask)
        } else {
            lanes!(32, 0, i => (v[i] << -shift) & mask)
        }
    }
    #[inline(never)]
    fn or_bytes(self, a: Self::B, b: Self::B) -> Self::B {
        lanes!(32, 0, i => a[i] | b[i])
    }
    #[inline(never)]
    fn lookup(self, table: &[i8; 16], v: Self::B) -> Self::B {
        lanes!(32, 0, i => table[usize::from(v[i] & 15)] as u8)
    }
    #[inline(never)]
    fn abs_bytes(self, v: Self::B) -> Self::B {
        lanes!(32, 0, i => (v[i] as i8).unsigned_abs())
    }
    #[inline(never)]
    fn sign_bytes(self, v: Self::B, by: Self::B) -> Self::B {
        lanes!(32, 0, i => (v[i] as i8).wrapping_mul((by[i] as i8).signum()) as u8)
    }
    #[inline(never)]
    fn mul_pairs_bytes(self, u: Self::B, v: Self::B) -> Self::H {
        lanes!(16, 0, i => {
            let first = i16::from(u[2 * i]).wrapping_mul(i16::from(v[2 * i] as i8));
            let second = i16::from(u[2 * i + 1]).wrapping_mul(i16::from(v[2 * i + 1] as i8));
            first.saturating_add(second)
        })
    }

    #[inline(never)]
    fn splat_i16(self, v: i16) -> Self::H {
        [v; 16]
    }
    #[inline(never)]
    fn splat_pair(self, v: &[i16; 2]) -> Self::H {
        lanes!(16, 0, i => v[i % 2])
    }
    #[inline(never)]
    fn load_i8_as_i16(self, v: &[u8; 16]) -> Self::H {
        lanes!(16, 0, i => i16::from(v[i] as i8))
    }
    #[inline(never)]
    fn load_low_nibbles_as_i16(self, v: &[u8; 16]) -> Self::H {
        lanes!(16, 0, i => i16::from(v[i] & 15))
    }
    #[inline(never)]
    fn load_high_nibbles_as_i16(self, v: &[u8; 16]) -> Self::H {
        lanes!(16, 0, i => i16::from(v[i] >> 4))
    }
    #[inline(never)]
    fn add_i16(self, a: Self::H, b: Self::H) -> Self::H {
        lanes!(16, 0, i => a[i].wrapping_add(b[i]))
    }
    #[inline(never)]
    fn mul_i16(self, a: Self::H, b: Self::H) -> Self::H {
        lanes!(16, 0, i => a[i].wrapping_mul(b[i]))
    }
    #[inline(never)]
    fn dup_first(self, v: Self::H) -> Self::H {
        lanes!(16, 0, i => v[i & !1])
    }
    #[inline(never)]
    fn dup_second(self, v: Self::H) -> Self::H {
        lanes!(16, 0, i => v[i | 1])
    }
    #[inline(never)]
    fn mul_pairs_i16(self, a: Self::H, b: Self::H) -> Self::W {
        lanes!(LANES, 0, i => {
            let first = i32::from(a[2 * i]) * i32::from(b[2 * i]);
            first.wrapping_add(i32::from(a[2 * i + 1]) * i32::from(b[2 * i + 1]))
        })
    }

    #[inline(never)]
    fn zero_i32(self) -> Self::W {
        [0; LANES]
    }
    #[inline(never)]
    fn add_i32(self, a: Self::W, b: Self::W) -> Self::W {
        lanes!(LANES, 0, i => a[i].wrapping_add(b[i]))
    }
    #[inline(never)]
    fn sub_i32(self, a: Self::W, b: Self::W) -> Self::W {
        lanes!(LANES, 0, i => a[i].wrapping_sub(b[i]))
    }
    #[inline(never)]
    fn i32_to_f32(self, v: Self::W) -> Self::F {
        lanes!(LANES, 0.0, i => v[i] as f32)
    }

    #[inline(never)]
    fn splat(self, v: f32) -> Self::F {
        [v; LANES]
    }
    #[inline(never)]
    fn load(self, v: &[f32; LANES]) -> Self::F {
        *v
    }
    #[inline(never)]
    fn load_f32_bytes(self, v: &[u8; 32]) -> Self::F {
        lanes!(LANES, 0.0, i => {
            f32::from_le_bytes([v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]])
        })
    }
    #[inline(never)]
    fn load_f16(self, v: &[f16; LANES]) -> Self::F {
        lanes!(LANES, 0.0, i => v[i].to_f32())
    }
    #[inline(never)]
    fn load_f16_bytes(self, v: &[u8; 16]) -> Self::F {
        lanes!(LANES, 0.0, i => f16::from_le_bytes([v[2 * i], v[2 * i + 1]]).to_f32())
    }
    #[inline(never)]
    fn load_bf16_bytes(self, v: &[u8; 16]) -> Self::F {
        lanes!(LANES, 0.0, i => {
            f32::from_bits(u32::from(u16::from_le_bytes([v[2 * i], v[2 * i + 1]])) << 16)
        })
    }
    #[inline(never)]
    fn load_u8(self, v: &[u8; LANES]) -> Self::F {
        lanes!(LANES, 0.0, i => f32::from(v[i]))
    }
    #[inline(never)]
    fn load_i8(self, v: &[u8; LANES]) -> Self::F {
        lanes!(LANES, 0.0, i => f32::from(v[i] as i8))
    }
    #[inline(never)]
    fn load_e8m0_half(self, v: &[u8; LANES]) -> Self::F {
        lanes!(LANES, 0.0, i => crate::qfmt::mxfp4::half_scale(v[i]))
    }

    #[inline(never)]
    fn store(self, v: Self::F, out: &mut [f32; LANES]) {
        *out = v;
    }
    #[inline(never)]
    fn store_f16(self, v: Self::F, out: &mut [f16; LANES]) {
        *out = lanes!(LANES, f16::ZERO, i => f16::from_f32(v[i]));
    }
    #[inline(never)]
    fn store_i8(self, v: Self::F, out: &mut [i8; LANES]) {
        let rounded = self.round(v);
        *out = lanes!(LANES, 0, i => rounded[i] as i8);
    }

    #[inline(never)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => a[i] + b[i])
    }
    #[inline(never)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => a[i] - b[i])
    }
    #[inline(never)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => a[i] * b[i])
    }
    #[inline(never)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => a[i] / b[i])
    }
    #[inline(never)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => fma(a[i], b[i], c[i]))
    }
    #[inline(never)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(never)]
    fn abs(self, v: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => v[i].abs())
    }
    #[inline(never)]
    fn copysign(self, v: Self::F, sign: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => v[i].copysign(sign[i]))
    }
    #[inline(never)]
    fn round(self, v: Self::F) -> Self::F {
        // 1.5·2²³: adding it leaves no bits for a fraction.
        const SHIFT: f32 = 12_582_912.0;
        lanes!(LANES, 0.0, i => (v[i] + SHIFT) - SHIFT)
    }
    #[inline(never)]
    fn exp2_int(self, v: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => f32::from_bits(((v[i] as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(never)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        lanes!(LANES, false, i => a[i] < b[i])
    }
    #[inline(never)]
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        lanes!(LANES, 0.0, i => if m[i] { a[i] } else { b[i] })
    }

    #[inline(never)]
    fn reduce_add(self, v: Self::F) -> f32 {
        ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))
    }
    #[inline(never)]
    fn reduce_max(self, v: Self::F) -> f32 {
        let halves = lanes!(4, 0.0, i => if v[i] > v[i + 4] { v[i] } else { v[i + 4] });
        let pairs = lanes!(2, 0.0, i => {
            if halves[i] > halves[i + 2] { halves[i] } else { halves[i + 2] }
        });
        if pairs[0] > pairs[1] {
            pairs[0]
        } else {
            pairs[1]
        }
    }
    #[inline(never)]
    fn reduce_add4(self, v: [Self::F; 4]) -> [f32; 4] {
        lanes!(4, 0.0, i => self.reduce_add(v[i]))
    }
}
