//! 256-bit lanes of x86-64: AVX2, FMA and F16C.

use std::arch::x86_64::*;

use half::f16;

use super::{LANES, Simd};
use crate::isa::Kernel;

/// Runs `kernel` with AVX2, FMA and F16C enabled.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2::new())
}

/// Proof that AVX2, FMA and F16C are there.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    // The attribute makes the compiler refuse a call from where the features are not known.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn new() -> Self {
        Avx2(())
    }
}

/// An expression of intrinsics that touches no memory.
macro_rules! register {
    ($e:expr) => {
        // SAFETY: an `Avx2` can be made only where avx2, fma and f16c are enabled.
        unsafe { $e }
    };
}

/// An expression of intrinsics that reads or writes exactly the array behind a reference.
macro_rules! memory {
    ($e:expr) => {
        // SAFETY: as for `register`; the unaligned access spans exactly the referenced array.
        unsafe { $e }
    };
}

impl Simd for Avx2 {
    const TILES: bool = true;

    type F = __m256;
    type M = __m256;
    type B = __m256i;
    type H = __m256i;
    type W = __m256i;

    #[inline(always)]
    fn load_bytes(self, v: &[u8; 32]) -> Self::B {
        memory!(_mm256_loadu_si256(v.as_ptr().cast()))
    }
    #[inline(always)]
    fn splat4(self, v: &[i8; 4]) -> Self::B {
        let [a, b, c, d] = *v;
        let word = i32::from_le_bytes([a as u8, b as u8, c as u8, d as u8]);
        register!(_mm256_set1_epi32(word))
    }
    #[inline(always)]
    fn bits(self, v: Self::B, shift: i32, mask: u8) -> Self::B {
        register!({
            // The counts are constants after inlining, and become immediates.
            let shifted = if shift > 0 {
                _mm256_srl_epi16(v, _mm_cvtsi32_si128(shift))
            } else if shift < 0 {
                _mm256_sll_epi16(v, _mm_cvtsi32_si128(-shift))
            } else {
                v
            };
            _mm256_and_si256(shifted, _mm256_set1_epi8(mask as i8))
        })
    }
    #[inline(always)]
    fn or_bytes(self, a: Self::B, b: Self::B) -> Self::B {
        register!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn lookup(self, table: &[i8; 16], v: Self::B) -> Self::B {
        memory!({
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v)
        })
    }
    #[inline(always)]
    fn abs_bytes(self, v: Self::B) -> Self::B {
        register!(_mm256_abs_epi8(v))
    }
    #[inline(always)]
    fn sign_bytes(self, v: Self::B, by: Self::B) -> Self::B {
        register!(_mm256_sign_epi8(v, by))
    }
    #[inline(always)]
    fn mul_pairs_bytes(self, u: Self::B, v: Self::B) -> Self::H {
        register!(_mm256_maddubs_epi16(u, v))
    }

    #[inline(always)]
    fn splat_i16(self, v: i16) -> Self::H {
        register!(_mm256_set1_epi16(v))
    }
    #[inline(always)]
    fn splat_pair(self, v: &[i16; 2]) -> Self::H {
        let word = i32::from(v[1]) << 16 | i32::from(v[0]) & 0xffff;
        register!(_mm256_set1_epi32(word))
    }
    #[inline(always)]
    fn load_i8_as_i16(self, v: &[u8; 16]) -> Self::H {
        memory!(_mm256_cvtepi8_epi16(_mm_loadu_si128(v.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_low_nibbles_as_i16(self, v: &[u8; 16]) -> Self::H {
        memory!({
            let words = _mm256_cvtepu8_epi16(_mm_loadu_si128(v.as_ptr().cast()));
            _mm256_and_si256(words, _mm256_set1_epi16(15))
        })
    }
    #[inline(always)]
    fn load_high_nibbles_as_i16(self, v: &[u8; 16]) -> Self::H {
        memory!({
            let words = _mm256_cvtepu8_epi16(_mm_loadu_si128(v.as_ptr().cast()));
            _mm256_srli_epi16::<4>(words)
        })
    }
    #[inline(always)]
    fn add_i16(self, a: Self::H, b: Self::H) -> Self::H {
        register!(_mm256_add_epi16(a, b))
    }
    #[inline(always)]
    fn mul_i16(self, a: Self::H, b: Self::H) -> Self::H {
        register!(_mm256_mullo_epi16(a, b))
    }
    #[inline(always)]
    fn dup_first(self, v: Self::H) -> Self::H {
        register!(_mm256_blend_epi16::<0xaa>(v, _mm256_slli_epi32::<16>(v)))
    }
    #[inline(always)]
    fn dup_second(self, v: Self::H) -> Self::H {
        register!(_mm256_blend_epi16::<0x55>(v, _mm256_srli_epi32::<16>(v)))
    }
    #[inline(always)]
    fn mul_pairs_i16(self, a: Self::H, b: Self::H) -> Self::W {
        register!(_mm256_madd_epi16(a, b))
    }

    #[inline(always)]
    fn zero_i32(self) -> Self::W {
        register!(_mm256_setzero_si256())
    }
    #[inline(always)]
    fn add_i32(self, a: Self::W, b: Self::W) -> Self::W {
        register!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_i32(self, a: Self::W, b: Self::W) -> Self::W {
        register!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn i32_to_f32(self, v: Self::W) -> Self::F {
        register!(_mm256_cvtepi32_ps(v))
    }

    #[inline(always)]
    fn splat(self, v: f32) -> Self::F {
        register!(_mm256_set1_ps(v))
    }
    #[inline(always)]
    fn load(self, v: &[f32; LANES]) -> Self::F {
        memory!(_mm256_loadu_ps(v.as_ptr()))
    }
    #[inline(always)]
    fn load_f32_bytes(self, v: &[u8; 32]) -> Self::F {
        memory!(_mm256_loadu_ps(v.as_ptr().cast()))
    }
    #[inline(always)]
    fn load_f16(self, v: &[f16; LANES]) -> Self::F {
        memory!(_mm256_cvtph_ps(_mm_loadu_si128(v.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_f16_bytes(self, v: &[u8; 16]) -> Self::F {
        memory!(_mm256_cvtph_ps(_mm_loadu_si128(v.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_bf16_bytes(self, v: &[u8; 16]) -> Self::F {
        memory!({
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(v.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        })
    }
    #[inline(always)]
    fn load_u8(self, v: &[u8; LANES]) -> Self::F {
        register!({
            let bytes = _mm_cvtsi64_si128(i64::from_le_bytes(*v));
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))
        })
    }
    #[inline(always)]
    fn load_i8(self, v: &[u8; LANES]) -> Self::F {
        register!({
            let bytes = _mm_cvtsi64_si128(i64::from_le_bytes(*v));
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))
        })
    }
    #[inline(always)]
    fn load_e8m0_half(self, v: &[u8; LANES]) -> Self::F {
        register!({
            let e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*v)));
            let one = _mm256_set1_epi32(1);
            let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, one));
            let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
            let is_normal = _mm256_cmpgt_epi32(e, one);
            _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal))
        })
    }

    #[inline(always)]
    fn store(self, v: Self::F, out: &mut [f32; LANES]) {
        memory!(_mm256_storeu_ps(out.as_mut_ptr(), v))
    }
    #[inline(always)]
    fn store_f16(self, v: Self::F, out: &mut [f16; LANES]) {
        memory!({
            let halves = _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v);
            _mm_storeu_si128(out.as_mut_ptr().cast(), halves)
        })
    }
    #[inline(always)]
    fn store_i8(self, v: Self::F, out: &mut [i8; LANES]) {
        memory!({
            let words = _mm256_cvtps_epi32(v);
            let halves = _mm_packs_epi32(
                _mm256_castsi256_si128(words),
                _mm256_extracti128_si256::<1>(words),
            );
            _mm_storel_epi64(out.as_mut_ptr().cast(), _mm_packs_epi16(halves, halves))
        })
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        register!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        register!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        register!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        register!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        register!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        register!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn abs(self, v: Self::F) -> Self::F {
        register!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), v))
    }
    #[inline(always)]
    fn copysign(self, v: Self::F, sign: Self::F) -> Self::F {
        register!({
            let bit = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(bit, v), _mm256_and_ps(bit, sign))
        })
    }
    #[inline(always)]
    fn round(self, v: Self::F) -> Self::F {
        register!(_mm256_round_ps::<
            { _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC },
        >(v))
    }
    #[inline(always)]
    fn exp2_int(self, v: Self::F) -> Self::F {
        register!({
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        })
    }
    #[inline(always)]
    fn lt(self, a: Self::F, b: Self::F) -> Self::M {
        register!(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        register!(_mm256_blendv_ps(b, a, m))
    }

    #[inline(always)]
    fn reduce_add(self, v: Self::F) -> f32 {
        register!({
            let pairs = _mm256_hadd_ps(v, v);
            let quads = _mm256_hadd_ps(pairs, pairs);
            _mm_cvtss_f32(_mm_add_ss(
                _mm256_castps256_ps128(quads),
                _mm256_extractf128_ps::<1>(quads),
            ))
        })
    }
    #[inline(always)]
    fn reduce_max(self, v: Self::F) -> f32 {
        register!({
            let halves = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let pairs = _mm_max_ps(halves, _mm_movehl_ps(halves, halves));
            _mm_cvtss_f32(_mm_max_ss(pairs, _mm_movehdup_ps(pairs)))
        })
    }
    #[inline(always)]
    fn reduce_add4(self, v: [Self::F; 4]) -> [f32; 4] {
        let mut out = [0.0; 4];
        memory!({
            let pairs = _mm256_hadd_ps(v[0], v[1]);
            let quads = _mm256_hadd_ps(pairs, _mm256_hadd_ps(v[2], v[3]));
            let sums = _mm_add_ps(
                _mm256_castps256_ps128(quads),
                _mm256_extractf128_ps::<1>(quads),
            );
            _mm_storeu_ps(out.as_mut_ptr(), sums)
        });
        out
    }
}
