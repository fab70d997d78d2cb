//! The plain floats: F32 (4 bytes), F16 and BF16 (2 bytes), little-endian, one lane a block.

use half::{bf16, f16};

pub(crate) fn decode_f32(bytes: &[u8], out: &mut [f32]) {
    for (lane, raw) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *lane = f32::from_le_bytes(*raw);
    }
}

pub(crate) fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    for (lane, raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *lane = f16::from_le_bytes(*raw).to_f32();
    }
}

pub(crate) fn decode_bf16(bytes: &[u8], out: &mut [f32]) {
    for (lane, raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *lane = bf16::from_le_bytes(*raw).to_f32();
    }
}
