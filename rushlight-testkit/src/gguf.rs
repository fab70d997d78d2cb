//! Writes GGUF files for tests.
//!
//! A [`GgufBuilder`] lays metadata and tensors out as the
//! [GGUF specification](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) asks, and lets a
//! test break single rules: an unknown type, an offset of its own, raw bytes for a value.

use std::fs;
use std::io;
use std::path::Path;

/// A GGUF file in the making. Little-endian, version 3 and alignment 32 unless told otherwise.
///
/// ```
/// let bytes = rushlight_testkit::gguf::GgufBuilder::new()
///     .string("general.architecture", "llama")
///     .f32_tensor("output_norm.weight", &[4], &[1.0; 4])
///     .build();
/// assert_eq!(&bytes[..4], b"GGUF");
/// ```
#[derive(Clone, Debug)]
pub struct GgufBuilder {
    version: u32,
    alignment: usize,
    entries: Vec<(String, u32, Vec<u8>)>,
    tensors: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Row {
    name: String,
    shape: Vec<u64>,
    kind: u32,
    offset: Option<u64>,
    data: Vec<u8>,
}

impl Default for GgufBuilder {
    fn default() -> GgufBuilder {
        GgufBuilder::new()
    }
}

impl GgufBuilder {
    /// An empty file.
    pub fn new() -> GgufBuilder {
        GgufBuilder {
            version: 3,
            alignment: 32,
            entries: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// Writes that version number.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Aligns tensor data to that many bytes and says so in `general.alignment`.
    #[must_use]
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment as usize;
        self.u32("general.alignment", alignment)
    }

    /// A `u32`.
    #[must_use]
    pub fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    /// An `i32`.
    #[must_use]
    pub fn i32(self, key: &str, value: i32) -> Self {
        self.entry(key, 5, &value.to_le_bytes())
    }

    /// A `u16`.
    #[must_use]
    pub fn u16(self, key: &str, value: u16) -> Self {
        self.entry(key, 2, &value.to_le_bytes())
    }

    /// An `f32`.
    #[must_use]
    pub fn f32(self, key: &str, value: f32) -> Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    /// A boolean.
    #[must_use]
    pub fn bool(self, key: &str, value: bool) -> Self {
        self.entry(key, 7, &[u8::from(value)])
    }

    /// A string.
    #[must_use]
    pub fn string(self, key: &str, value: &str) -> Self {
        self.entry(key, 8, &text(value))
    }

    /// An array of strings.
    #[must_use]
    pub fn strings<S: AsRef<str>>(self, key: &str, values: &[S]) -> Self {
        let items = values.iter().flat_map(|value| text(value.as_ref()));
        self.entry(key, 9, &array(8, values.len(), items.collect()))
    }

    /// An array of `f32`.
    #[must_use]
    pub fn f32s(self, key: &str, values: &[f32]) -> Self {
        let items = values.iter().flat_map(|value| value.to_le_bytes());
        self.entry(key, 9, &array(6, values.len(), items.collect()))
    }

    /// An array of `i32`.
    #[must_use]
    pub fn i32s(self, key: &str, values: &[i32]) -> Self {
        let items = values.iter().flat_map(|value| value.to_le_bytes());
        self.entry(key, 9, &array(5, values.len(), items.collect()))
    }

    /// A value of any type number, well-formed or not, as raw bytes. An array's bytes are its
    /// element type (`u32`), its length (`u64`) and its elements.
    #[must_use]
    pub fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries.push((key.to_owned(), kind, value.to_vec()));
        self
    }

    /// Takes every entry of that key out again.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.entries.retain(|(name, _, _)| name != key);
        self
    }

    /// Takes every tensor of that name out again.
    #[must_use]
    pub fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|row| row.name != name);
        self
    }

    /// A tensor of a ggml type number; `shape` outermost first, `data` as stored.
    #[must_use]
    pub fn tensor(mut self, name: &str, shape: &[u64], kind: u32, data: &[u8]) -> Self {
        self.tensors.push(Row {
            name: name.to_owned(),
            shape: shape.to_vec(),
            kind,
            offset: None,
            data: data.to_vec(),
        });
        self
    }

    /// Like [`GgufBuilder::tensor`], with an offset of the test's choosing in the table. The data
    /// still follows that of the tensor before.
    #[must_use]
    pub fn misplaced_tensor(self, name: &str, shape: &[u64], offset: u64, data: &[f32]) -> Self {
        let mut builder = self.f32_tensor(name, shape, data);
        if let Some(row) = builder.tensors.last_mut() {
            row.offset = Some(offset);
        }
        builder
    }

    /// A tensor of 32-bit floats; `shape` outermost first.
    #[must_use]
    pub fn f32_tensor(self, name: &str, shape: &[u64], data: &[f32]) -> Self {
        let bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensor(name, shape, 0, &bytes)
    }

    /// Lays the file out, its end padded as llama.cpp does.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(b"GGUF");
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for (key, kind, value) in &self.entries {
            bytes.extend(text(key));
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(value);
        }
        let mut data = Vec::new();
        for row in &self.tensors {
            bytes.extend(text(&row.name));
            bytes.extend_from_slice(&(row.shape.len() as u32).to_le_bytes());
            for dimension in row.shape.iter().rev() {
                bytes.extend_from_slice(&dimension.to_le_bytes());
            }
            bytes.extend_from_slice(&row.kind.to_le_bytes());
            let offset = row.offset.unwrap_or(data.len() as u64);
            bytes.extend_from_slice(&offset.to_le_bytes());
            data.extend_from_slice(&row.data);
            pad(&mut data, self.alignment);
        }
        pad(&mut bytes, self.alignment);
        bytes.extend(data);
        bytes
    }

    /// Bytes before the padding that precedes tensor data: the whole header.
    pub fn header_len(&self) -> usize {
        let mut empty = self.clone();
        empty.alignment = 1;
        for row in &mut empty.tensors {
            row.data.clear();
        }
        empty.build().len()
    }

    /// [`GgufBuilder::build`], into a file.
    ///
    /// # Errors
    /// Whatever writing gives.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.build())
    }

    /// A whole Llama of 2 layers with random weights, made from a fixed seed: hidden size 32, 4
    /// query and 2 key/value heads of 8 elements, feed-forward width 64, context 256, tied head,
    /// all F32. Its tokenizer is byte-level BPE: one token for each byte, whose id is the byte, then
    /// `<|endoftext|>` (256, also BOS), `<|im_start|>` (257) and `<|im_end|>` (258, EOS), with a ChatML
    /// template. Byte 0xFF, which no UTF-8 has, gives its place to the one merge, of bytes 0 and 1.
    pub fn tiny_llama() -> GgufBuilder {
        const VOCAB: u64 = 259;
        const HIDDEN: u64 = 32;
        const WIDE: u64 = 64;
        const KV: u64 = 16;
        let mut tokens: Vec<String> = byte_alphabet().map(String::from).collect();
        let merge = format!("{} {}", tokens[0], tokens[1]);
        tokens[0xff] = merge.replace(' ', "");
        tokens.extend(["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned));
        let mut types = vec![1; 256];
        types.extend([3; 3]);
        let mut random = Random(0x5eed);
        let mut builder = GgufBuilder::new()
            .string("general.architecture", "llama")
            .string("general.name", "Tiny")
            .u32("llama.block_count", 2)
            .u32("llama.context_length", 256)
            .u32("llama.embedding_length", HIDDEN as u32)
            .u32("llama.feed_forward_length", WIDE as u32)
            .u32("llama.attention.head_count", 4)
            .u32("llama.attention.head_count_kv", 2)
            .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
            .f32("llama.rope.freq_base", 10_000.0)
            .string("tokenizer.ggml.model", "gpt2")
            .string("tokenizer.ggml.pre", "smollm")
            .strings("tokenizer.ggml.tokens", &tokens)
            .i32s("tokenizer.ggml.token_type", &types)
            .strings("tokenizer.ggml.merges", &[merge])
            .u32("tokenizer.ggml.bos_token_id", 256)
            .u32("tokenizer.ggml.eos_token_id", 258)
            .bool("tokenizer.ggml.add_bos_token", false)
            .string("tokenizer.chat_template", CHATML)
            .f32_tensor(
                "token_embd.weight",
                &[VOCAB, HIDDEN],
                &random.around(0.0, VOCAB * HIDDEN),
            )
            .f32_tensor("output_norm.weight", &[HIDDEN], &random.around(1.0, HIDDEN));
        for layer in 0..2 {
            for (name, shape) in [
                ("attn_q", [HIDDEN, HIDDEN]),
                ("attn_k", [KV, HIDDEN]),
                ("attn_v", [KV, HIDDEN]),
                ("attn_output", [HIDDEN, HIDDEN]),
                ("ffn_gate", [WIDE, HIDDEN]),
                ("ffn_up", [WIDE, HIDDEN]),
                ("ffn_down", [HIDDEN, WIDE]),
            ] {
                let data = random.around(0.0, shape[0] * shape[1]);
                builder = builder.f32_tensor(&format!("blk.{layer}.{name}.weight"), &shape, &data);
            }
            for name in ["attn_norm", "ffn_norm"] {
                let data = random.around(1.0, HIDDEN);
                builder =
                    builder.f32_tensor(&format!("blk.{layer}.{name}.weight"), &[HIDDEN], &data);
            }
        }
        builder
    }
}

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n\
                      {{ message['content'] }}<|im_end|>\n{% endfor %}\
                      {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The character that stands for each byte in byte-level BPE vocabularies: printable Latin-1 bytes
/// are themselves, the others are the characters from U+0100 on, in order.
fn byte_alphabet() -> impl Iterator<Item = char> {
    let mut moved = 0x100_u32;
    (0..=255_u8).map(move |byte| {
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            char::from(byte)
        } else {
            moved += 1;
            char::from_u32(moved - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    })
}

/// A 64-bit linear congruential generator (Knuth's MMIX constants): the same weights everywhere.
struct Random(u64);

impl Random {
    /// `count` values within 0.25 of `centre`.
    fn around(&mut self, centre: f32, count: u64) -> Vec<f32> {
        (0..count)
            .map(|_| {
                self.0 = self
                    .0
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let unit = (self.0 >> 40) as f32 / (1 << 24) as f32;
                centre + (unit - 0.5) * 0.5
            })
            .collect()
    }
}

fn text(value: &str) -> Vec<u8> {
    let mut bytes = (value.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(value.as_bytes());
    bytes
}

fn array(kind: u32, count: usize, items: Vec<u8>) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(count as u64).to_le_bytes());
    bytes.extend(items);
    bytes
}

fn pad(bytes: &mut Vec<u8>, alignment: usize) {
    let alignment = alignment.max(1);
    bytes.resize(bytes.len().next_multiple_of(alignment), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let builder = GgufBuilder::new()
            .u32("k", 7)
            .f32_tensor("t", &[2, 3], &[1.0; 6]);
        let bytes = builder.build();
        // Magic, version, two counts; key, type, value; name, 2 dimensions, type, offset.
        let header = 4 + 4 + 16 + (8 + 1 + 4 + 4) + (8 + 1 + 4 + 16 + 4 + 8);
        assert_eq!(builder.header_len(), header);
        assert_eq!(bytes.len(), header.next_multiple_of(32) + 32);
        // The file has the innermost dimension first.
        assert_eq!(bytes[header - 28..header - 20], 3_u64.to_le_bytes());
        assert_eq!(
            bytes[header.next_multiple_of(32)..][..4],
            1.0_f32.to_le_bytes()
        );
    }

    #[test]
    fn the_alphabet_has_one_character_a_byte() {
        let alphabet: Vec<char> = byte_alphabet().collect();
        assert_eq!(alphabet.len(), 256);
        assert_eq!((alphabet[32], alphabet[10], alphabet[65]), ('Ġ', 'Ċ', 'A'));
        let distinct: std::collections::HashSet<_> = alphabet.iter().collect();
        assert_eq!(distinct.len(), 256);
    }
}
