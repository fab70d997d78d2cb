//! What the integration tests share: golden blocks and deterministic inputs.

use rushlight_kernels::qfmt::Format;

/// Blocks of one format and the values they decode to.
pub(crate) struct GoldenBlocks {
    pub(crate) format: Format,
    pub(crate) raw: Vec<u8>,
    pub(crate) values: Vec<f32>,
}

/// The golden blocks of every format that has kernels.
pub(crate) fn golden_blocks() -> Vec<GoldenBlocks> {
    let text = include_str!("../../../rushlight-testkit/data/gguf-quant-blocks.json");
    let all: serde_json::Value = serde_json::from_str(text).expect("golden blocks are JSON");
    let mut blocks = Vec::new();
    for format in Format::ALL {
        let Some(entry) = all.get(format.name()) else {
            continue;
        };
        assert_eq!(entry["block"], format.block_len(), "{format}");
        assert_eq!(entry["bytes"], format.block_bytes(), "{format}");
        let values = entry["values"].as_array().expect("values");
        blocks.push(GoldenBlocks {
            format,
            raw: base64(entry["raw"].as_str().expect("raw")),
            values: values
                .iter()
                .map(|v| v.as_f64().expect("number") as f32)
                .collect(),
        });
    }
    blocks
}

fn base64(text: &str) -> Vec<u8> {
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for byte in text.bytes().filter(|b| *b != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

/// A small reproducible generator (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// Uniform in −1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
    /// Roughly normal: a sum of uniforms, which has the tails that quantisation meets.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.unit()).sum::<f32>() * 0.7
    }
    pub(crate) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.normal()).collect()
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
}

/// `count` blocks of random codes under scales of ordinary size.
pub(crate) fn random_blocks(format: Format, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let start = bytes.len();
        if format.is_float() {
            let value = random.normal();
            match format {
                Format::F32 => bytes.extend(value.to_le_bytes()),
                Format::F16 => bytes.extend(half::f16::from_f32(value).to_le_bytes()),
                _ => bytes.extend(half::bf16::from_f32(value).to_le_bytes()),
            }
            continue;
        }
        bytes.extend((0..format.block_bytes()).map(|_| random.bits() as u8));
        for offset in half_offsets(format) {
            let scale = half::f16::from_f32(random.unit() * 0.1).to_le_bytes();
            bytes[start + offset..start + offset + 2].copy_from_slice(&scale);
        }
        if format == Format::MXFP4 {
            bytes[start] = 118 + random.below(8) as u8;
        }
    }
    bytes
}

/// Sets every byte of every block but its f16 scales (and MXFP4's exponent).
pub(crate) fn fill_codes(format: Format, blocks: &mut [u8], fill: u8) {
    if format.is_float() {
        return;
    }
    for block in blocks.chunks_mut(format.block_bytes()) {
        let kept: Vec<(usize, [u8; 2])> = half_offsets(format)
            .iter()
            .map(|at| (*at, [block[*at], block[at + 1]]))
            .collect();
        let exponent = block[0];
        block.fill(fill);
        for (at, scale) in kept {
            block[at..at + 2].copy_from_slice(&scale);
        }
        if format == Format::MXFP4 {
            block[0] = exponent;
        }
    }
}

/// Where a block's f16 fields are.
fn half_offsets(format: Format) -> &'static [usize] {
    match format {
        Format::Q8_0 | Format::Q4_0 | Format::Q5_0 | Format::IQ4_NL | Format::IQ4_XS => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q6_K => &[208],
        Format::F32 | Format::F16 | Format::BF16 | Format::MXFP4 => &[],
    }
}

/// For each output of a product, an upper bound of the terms' absolute sum. A format with a
/// minimum adds terms larger than the weights they make, so each weight counts as the largest of
/// its row.
pub(crate) fn magnitudes(format: Format, weights: &[u8], cols: usize, x: &[f32]) -> Vec<f32> {
    let count = weights.len() / format.block_bytes() * format.block_len();
    let mut values = vec![0.0; count];
    rushlight_kernels::decode(format, weights, &mut values).expect("whole blocks");
    let mut out = Vec::new();
    for token in x.chunks(cols) {
        let total: f32 = token.iter().map(|x| x.abs()).sum();
        for row in values.chunks(cols) {
            out.push(total * row.iter().fold(0.0f32, |m, v| m.max(v.abs())));
        }
    }
    out
}
