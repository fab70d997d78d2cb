//! Hostile safetensors headers, parsed from memory: each attack is refused, with its place.

use proptest::prelude::*;
use rushlight_asset::error::Item;
use rushlight_asset::import::huggingface::Header;
use rushlight_asset::{AssetError, ErrorKind, Format};

fn file(json: &str, data: usize) -> Vec<u8> {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes.resize(bytes.len() + data, 7);
    bytes
}

#[track_caller]
fn refused_for(bytes: &[u8], kind: ErrorKind, words: &str) -> AssetError {
    let error = Header::parse(bytes).expect_err("a refusal");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
    error
}

const SOUND: &str = r#"{"__metadata__":{"format":"pt"},
    "b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]},
    "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;

#[test]
fn a_sound_file() {
    let bytes = file(SOUND, 16);
    let header = Header::parse(&bytes).unwrap();
    assert_eq!(header.metadata["format"], "pt");
    let names: Vec<&str> = header.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "in the order of their data");
    let b = &header.tensors[1];
    assert_eq!(
        (b.dtype, b.shape.as_slice(), b.len),
        ("BF16", &[2, 2][..], 8)
    );
    assert_eq!(b.offset, 8 + SOUND.len() + 8);
    assert_eq!(b.format().unwrap(), Format::BF16);
    assert!(Header::parse(&file("{}", 0)).unwrap().tensors.is_empty());
    let scalar = r#"{"s":{"dtype":"F16","shape":[],"data_offsets":[0,2]}}"#;
    assert_eq!(Header::parse(&file(scalar, 2)).unwrap().tensors[0].len, 2);
}

#[test]
fn truncation_anywhere_is_refused() {
    let bytes = file(SOUND, 16);
    for len in 0..bytes.len() {
        let error = Header::parse(&bytes[..len]).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Malformed, "cut at {len}: {error}");
    }
}

#[test]
fn absurd_header_lengths_are_refused() {
    for len in [100_000_001_u64, 1 << 63, u64::MAX] {
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"{}");
        refused_for(
            &bytes,
            ErrorKind::Limit,
            &format!("a header of {len} bytes"),
        );
    }
    let mut bytes = 1_000_u64.to_le_bytes().to_vec();
    bytes.extend_from_slice(b"{}");
    refused_for(&bytes, ErrorKind::Malformed, "ends within its header");
}

#[test]
fn headers_that_are_no_table_of_tensors() {
    for json in [
        "",
        "[]",
        "null",
        "{",
        "{\"a\":1}",
        r#"{"a":{"dtype":"F32","shape":[1]}}"#,
        r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}}"#,
        r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}"#,
        r#"{"__metadata__":{"a":1}}"#,
        r#"{"__metadata__":{},"__metadata__":{}}"#,
        "{} trailing",
    ] {
        refused_for(
            &file(json, 4),
            ErrorKind::Malformed,
            "header is not as it should be",
        );
    }
    let deep = "[".repeat(100_000);
    refused_for(
        &file(&deep, 0),
        ErrorKind::Malformed,
        "header is not as it should be",
    );
    refused_for(
        &file("\u{1}", 0),
        ErrorKind::Malformed,
        "header is not as it should be",
    );
}

/// Two tensors of eight bytes, the second with this type, shape and range.
fn second(dtype: &str, shape: &str, range: &str) -> Vec<u8> {
    let json = format!(
        r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},
            "t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{range}}}}}"#
    );
    file(&json, 16)
}

#[test]
fn ranges_must_tile_the_data() {
    Header::parse(&second("F32", "[2]", "[8,16]")).unwrap();
    for (range, words) in [
        ("[4,16]", "overlaps"),
        ("[12,16]", "leaves a gap"),
        ("[8,12]", "takes 8 bytes"),
        ("[8,24]", "only 16 bytes follow"),
        ("[8,4]", "takes 8 bytes"),
        ("[8,18446744073709551615]", "only 16 bytes follow"),
        (
            "[18446744073709551608,18446744073709551615]",
            "leaves a gap",
        ),
    ] {
        let error = refused_for(&second("F32", "[2]", range), ErrorKind::Malformed, words);
        assert_eq!(error.item(), Some(&Item::Tensor("t".into())), "{error}");
    }
    refused_for(
        &second("F32", "[1]", "[8,12]"),
        ErrorKind::Malformed,
        "4 bytes follow",
    );
}

#[test]
fn shapes_and_types_must_fit_the_range() {
    let range = "[8,16]";
    for shape in ["[3]", "[2,2]", "[1]"] {
        refused_for(
            &second("F32", shape, range),
            ErrorKind::Malformed,
            "its range is 8..16",
        );
    }
    for shape in ["[0]", "[2,0]", "[4294967296,4294967296,4294967296]"] {
        refused_for(
            &second("F32", shape, range),
            ErrorKind::Malformed,
            "empty, overflows",
        );
    }
    refused_for(
        &second("F4", "[15]", range),
        ErrorKind::Malformed,
        "ends within a byte",
    );
    refused_for(
        &second("F32", "[1,1,1,1,1,1,1,1,2]", range),
        ErrorKind::Limit,
        "9 dimensions",
    );
    refused_for(
        &second("Q4", "[2]", range),
        ErrorKind::Malformed,
        "element type `Q4` is unknown",
    );
}

#[test]
fn repeated_and_endless_names_are_refused() {
    let json = r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                   "t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    refused_for(
        &file(json, 8),
        ErrorKind::Malformed,
        "a second tensor has this name",
    );
    let json = format!(
        r#"{{"{}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#,
        "n".repeat(2_000)
    );
    refused_for(&file(&json, 4), ErrorKind::Limit, "a name of 2000 bytes");
}

#[test]
fn integer_weights_are_refused_by_name() {
    let header = Header::parse(&second("I64", "[1]", "[8,16]")).unwrap();
    let error = header.tensors[1].format().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("I64"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever bytes change, parsing ends without a panic and accepts only ranges in the file.
    #[test]
    fn damage_never_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = file(SOUND, 16);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(header) = Header::parse(&bytes) {
            for tensor in header.tensors {
                prop_assert!(tensor.offset + tensor.len <= bytes.len());
            }
        }
    }
}
