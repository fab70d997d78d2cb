//! Hostile GGUF headers, parsed from memory: each attack is refused, with its place.

use proptest::prelude::*;
use rushlight_asset::error::Item;
use rushlight_asset::import::gguf::{Array, Header, Value};
use rushlight_asset::{AssetError, ErrorKind, Format};
use rushlight_testkit::gguf::GgufBuilder;

fn refused(file: &[u8]) -> AssetError {
    match Header::parse(file) {
        Ok(header) => panic!("accepted: {header:?}"),
        Err(error) => error,
    }
}

/// Refuses `file` for this kind of reason, in words that contain `words`.
#[track_caller]
fn refused_for(file: &[u8], kind: ErrorKind, words: &str) -> AssetError {
    let error = refused(file);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    error
}

fn small() -> GgufBuilder {
    GgufBuilder::new()
        .string("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .strings("tokenizer.ggml.tokens", &["a", "b"])
        .f32s("tokenizer.ggml.scores", &[0.0, -1.0])
        .f32_tensor("token_embd.weight", &[2, 8], &[0.5; 16])
        .f32_tensor("output_norm.weight", &[8], &[1.0; 8])
}

#[test]
fn a_sound_file_in_both_versions() {
    for version in [2, 3] {
        let bytes = small().version(version).build();
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(header.version, version);
        assert_eq!(header.tensors.len(), 2);
        let embed = &header.tensors[0];
        assert_eq!(
            (embed.shape.as_slice(), embed.format),
            (&[2, 8][..], Format::F32)
        );
        assert_eq!(bytes[embed.offset..][..4], 0.5_f32.to_le_bytes());
        assert_eq!(header.tensors[1].offset, embed.offset + 64);
    }
}

#[test]
fn every_value_type_is_read() {
    let nested = [
        &9_u32.to_le_bytes()[..],
        &1_u64.to_le_bytes(),
        &0_u32.to_le_bytes(),
        &2_u64.to_le_bytes(),
        &[7, 8],
    ]
    .concat();
    let bytes = GgufBuilder::new()
        .entry("0", 0, &[200])
        .entry("1", 1, &[0xff])
        .entry("2", 2, &40_000_u16.to_le_bytes())
        .entry("3", 3, &(-3_i16).to_le_bytes())
        .u32("4", u32::MAX)
        .i32("5", i32::MIN)
        .f32("6", 0.25)
        .bool("7", true)
        .string("8", "é")
        .entry("9", 9, &nested)
        .entry("10", 10, &u64::MAX.to_le_bytes())
        .entry("11", 11, &i64::MIN.to_le_bytes())
        .entry("12", 12, &0.125_f64.to_le_bytes())
        .build();
    let metadata = Header::parse(&bytes).unwrap().metadata;
    let values: Vec<Value> = metadata.iter().map(|(_, value)| value.clone()).collect();
    let expected = [
        Value::U8(200),
        Value::I8(-1),
        Value::U16(40_000),
        Value::I16(-3),
        Value::U32(u32::MAX),
        Value::I32(i32::MIN),
        Value::F32(0.25),
        Value::Bool(true),
        Value::String("é".into()),
        Value::Array(Array::Array(vec![Array::U8(vec![7, 8])])),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F64(0.125),
    ];
    assert_eq!(values, expected);
}

#[test]
fn arrays_of_every_element_type_are_read() {
    for (kind, width) in [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 4),
        (5, 4),
        (6, 4),
        (7, 1),
        (10, 8),
        (11, 8),
        (12, 8),
    ] {
        let mut value = u32::to_le_bytes(kind).to_vec();
        value.extend(20_u64.to_le_bytes());
        value.extend(vec![0; 20 * width]);
        let bytes = GgufBuilder::new()
            .entry("k", 9, &value)
            .u32("after", 5)
            .build();
        let metadata = Header::parse(&bytes).unwrap().metadata;
        assert_eq!(metadata.find("after"), Some(&Value::U32(5)), "type {kind}");
        let shown = &metadata.to_json()[0].1;
        assert!(shown.as_str().unwrap().starts_with("20 "), "{shown}");
    }
}

#[test]
fn tensors_may_be_listed_in_any_order() {
    let bytes = GgufBuilder::new()
        .misplaced_tensor("second", &[8], 32, &[1.0; 8])
        .misplaced_tensor("first", &[8], 0, &[2.0; 8])
        .build();
    let names: Vec<String> = Header::parse(&bytes)
        .unwrap()
        .tensors
        .into_iter()
        .map(|tensor| tensor.name)
        .collect();
    assert_eq!(names, ["first", "second"]);
}

#[test]
fn the_end_of_the_last_tensor_need_not_be_padded() {
    let bytes = GgufBuilder::new().f32_tensor("t", &[3], &[1.0; 3]).build();
    let exact = &bytes[..bytes.len() - 20];
    assert_eq!(Header::parse(exact).unwrap().tensors[0].len, 12);
}

#[test]
fn wrong_magic_names_what_the_file_may_be() {
    refused_for(b"", ErrorKind::Malformed, "truncated");
    refused_for(b"GG", ErrorKind::Malformed, "truncated");
    refused_for(b"PK\x03\x04....", ErrorKind::Malformed, "zip archive");
    refused_for(b"<!DOCTYPE html>", ErrorKind::Malformed, "web page");
    refused_for(
        b"version https://git-lfs",
        ErrorKind::Malformed,
        "Git LFS pointer",
    );
    refused_for(
        b"tjgg\x01\x00\x00\x00",
        ErrorKind::Malformed,
        "predecessors",
    );
    refused_for(&[0; 64], ErrorKind::Malformed, "`\\x00\\x00\\x00\\x00`");
}

#[test]
fn other_versions_are_named() {
    refused_for(
        &small().version(1).build(),
        ErrorKind::Unsupported,
        "version 1",
    );
    refused_for(
        &small().version(4).build(),
        ErrorKind::Unsupported,
        "version 4",
    );
    refused_for(
        &small().version(3_u32.swap_bytes()).build(),
        ErrorKind::Unsupported,
        "big-endian GGUF version 3",
    );
}

#[test]
fn truncation_anywhere_is_refused() {
    let builder = small();
    let bytes = builder.build();
    let last = Header::parse(&bytes).unwrap().tensors.pop().unwrap();
    for len in 0..last.offset + last.len {
        let error = refused(&bytes[..len]);
        assert_eq!(error.kind(), ErrorKind::Malformed, "cut at {len}: {error}");
    }
}

#[test]
fn absurd_counts_are_refused_before_allocating() {
    for count in [1_u64 << 20, 1 << 40, u64::MAX] {
        let mut bytes = small().build();
        bytes[16..24].copy_from_slice(&count.to_le_bytes());
        let error = refused_for(&bytes, ErrorKind::Limit, "metadata entries");
        assert_eq!(error.offset(), Some(16));
        let mut bytes = small().build();
        bytes[8..16].copy_from_slice(&count.to_le_bytes());
        let error = refused(&bytes);
        assert_eq!(error.offset(), Some(8), "{error}");
    }
    let mut bytes = small().build();
    bytes[16..24].copy_from_slice(&60_000_u64.to_le_bytes());
    refused_for(&bytes, ErrorKind::Malformed, "60000 metadata entries");
}

#[test]
fn absurd_string_lengths_are_refused() {
    for len in [1_u64 << 63, u64::MAX, 1 << 32] {
        let bytes = GgufBuilder::new().entry("k", 8, &len.to_le_bytes()).build();
        let error = refused_for(&bytes, ErrorKind::Limit, &format!("{len} bytes of text"));
        assert_eq!(error.item(), Some(&Item::Key("k".into())));
    }
    let mut long = 1_000_u64.to_le_bytes().to_vec();
    long.extend([b'x'; 10]);
    let bytes = GgufBuilder::new().entry("k", 8, &long).build();
    refused_for(&bytes, ErrorKind::Malformed, "1000 bytes of text");
}

#[test]
fn absurd_arrays_are_refused() {
    let array = |kind: u32, count: u64| [&kind.to_le_bytes()[..], &count.to_le_bytes()].concat();
    for kind in 0..13 {
        let bytes = GgufBuilder::new()
            .entry("k", 9, &array(kind, u64::MAX))
            .build();
        refused_for(&bytes, ErrorKind::Limit, "array elements");
        let bytes = GgufBuilder::new()
            .entry("k", 9, &array(kind, 1 << 20))
            .build();
        refused_for(&bytes, ErrorKind::Malformed, "1048576 array elements");
    }
}

#[test]
fn arrays_nest_only_so_deep() {
    let mut bomb = Vec::new();
    for _ in 0..100_000 {
        bomb.extend(9_u32.to_le_bytes());
        bomb.extend(1_u64.to_le_bytes());
    }
    let bytes = GgufBuilder::new().entry("bomb", 9, &bomb).build();
    refused_for(&bytes, ErrorKind::Limit, "nest deeper than 4");
}

#[test]
fn unknown_value_types_are_named() {
    let bytes = GgufBuilder::new().entry("k", 13, &[0; 8]).build();
    let error = refused_for(&bytes, ErrorKind::Malformed, "metadata type 13 is unknown");
    assert_eq!(error.item(), Some(&Item::Key("k".into())));
    let element = [&77_u32.to_le_bytes()[..], &1_u64.to_le_bytes(), &[0; 8]].concat();
    let bytes = GgufBuilder::new().entry("k", 9, &element).build();
    refused_for(&bytes, ErrorKind::Malformed, "metadata type 77 is unknown");
}

#[test]
fn booleans_are_zero_or_one() {
    let bytes = GgufBuilder::new().entry("k", 7, &[2]).build();
    refused_for(&bytes, ErrorKind::Malformed, "this byte is 2");
}

#[test]
fn text_is_utf8() {
    let mut value = 3_u64.to_le_bytes().to_vec();
    value.extend(b"a\xff\xfe");
    let bytes = GgufBuilder::new().entry("k", 8, &value).build();
    let error = refused_for(&bytes, ErrorKind::Malformed, "not UTF-8");
    // Magic to counts, key, type, length, and the one good byte.
    assert_eq!(error.offset(), Some(24 + 9 + 4 + 8 + 1));
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn repeated_names_are_refused() {
    let bytes = small().u32("llama.block_count", 2).build();
    refused_for(&bytes, ErrorKind::Malformed, "`llama.block_count`");
    let bytes = small()
        .f32_tensor("output_norm.weight", &[8], &[1.0; 8])
        .build();
    refused_for(&bytes, ErrorKind::Malformed, "tensor `output_norm.weight`");
}

#[test]
fn tensors_may_not_overlap_or_leave_gaps() {
    for (offset, how) in [
        (0, "overlaps"),
        (96, "leaves a gap"),
        (u64::MAX - 31, "leaves a gap"),
    ] {
        let bytes = small()
            .misplaced_tensor("t", &[8], offset, &[0.0; 8])
            .build();
        // Two tensors of 64 and 32 bytes stand before; 96 is where the next belongs.
        if offset == 96 {
            Header::parse(&bytes).unwrap();
            continue;
        }
        let error = refused_for(&bytes, ErrorKind::Malformed, how);
        assert!(matches!(error.item(), Some(Item::Tensor(_))), "{error}");
    }
    let bytes = GgufBuilder::new()
        .misplaced_tensor("t", &[8], 32, &[0.0; 8])
        .build();
    refused_for(&bytes, ErrorKind::Malformed, "leaves a gap");
    let bytes = GgufBuilder::new()
        .misplaced_tensor("t", &[8], 4, &[0.0; 8])
        .build();
    refused_for(&bytes, ErrorKind::Malformed, "no multiple of the alignment");
}

#[test]
fn bytes_after_the_last_tensor_are_refused() {
    let mut bytes = small().build();
    bytes.extend([0; 4]);
    refused_for(
        &bytes,
        ErrorKind::Malformed,
        "4 bytes follow the last tensor",
    );
}

#[test]
fn shapes_must_be_sound() {
    let shape = |dims: &[u64]| GgufBuilder::new().tensor("t", dims, 0, &[0; 32]).build();
    refused_for(&shape(&[]), ErrorKind::Malformed, "0 dimensions");
    refused_for(
        &shape(&[1, 1, 1, 1, 1]),
        ErrorKind::Malformed,
        "5 dimensions",
    );
    refused_for(&shape(&[0]), ErrorKind::Malformed, "empty or overflows");
    refused_for(&shape(&[8, 0]), ErrorKind::Malformed, "empty or overflows");
    refused_for(
        &shape(&[1 << 40, 1 << 40]),
        ErrorKind::Malformed,
        "empty or overflows",
    );
    refused_for(
        &shape(&[1 << 62]),
        ErrorKind::Malformed,
        "size in bytes overflows",
    );
    refused_for(
        &shape(&[1 << 30, 8]),
        ErrorKind::Malformed,
        "run past the end",
    );
    // 4294967295 dimensions must not be 4294967295 reads.
    let mut bytes = shape(&[8]);
    let at = 24 + 8 + 1;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    refused_for(&bytes, ErrorKind::Malformed, "4294967295 dimensions");
}

#[test]
fn rows_are_whole_blocks() {
    let bytes = GgufBuilder::new()
        .tensor("t", &[2, 48], 2, &[0; 64])
        .build();
    refused_for(&bytes, ErrorKind::Malformed, "not whole Q4_0 blocks of 32");
}

#[test]
fn other_block_formats_are_named_with_the_supported_ones() {
    let kind = |kind| {
        GgufBuilder::new()
            .tensor("t", &[256], kind, &[0; 256])
            .build()
    };
    let error = refused_for(&kind(16), ErrorKind::Unsupported, "16 (IQ2_XXS)");
    for format in Format::ALL {
        assert!(error.to_string().contains(format.name()), "{error}");
    }
    refused_for(&kind(9), ErrorKind::Unsupported, "9 (Q8_1)");
    refused_for(
        &kind(4_000),
        ErrorKind::Unsupported,
        "block format 4000 is unknown",
    );
}

#[test]
fn alignment_is_a_power_of_two() {
    let bytes = GgufBuilder::new()
        .alignment(64)
        .f32_tensor("t", &[1], &[1.0])
        .build();
    assert_eq!(Header::parse(&bytes).unwrap().tensors[0].offset % 64, 0);
    for alignment in [0, 24, 1 << 30] {
        let bytes = small().u32("general.alignment", alignment).build();
        refused_for(&bytes, ErrorKind::Malformed, "`general.alignment`");
    }
    let bytes = small().string("general.alignment", "32").build();
    refused_for(
        &bytes,
        ErrorKind::Malformed,
        "should be a non-negative integer, is string",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever bytes change, parsing ends without a panic and accepts only ranges in the file.
    #[test]
    fn damage_never_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = small().build();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(header) = Header::parse(&bytes) {
            for tensor in header.tensors {
                prop_assert!(tensor.offset + tensor.len <= bytes.len());
            }
        }
    }

    #[test]
    fn noise_after_the_magic_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(noise);
        let _ = Header::parse(&bytes);
    }
}
