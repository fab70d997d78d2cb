//! GGUF headers: parsing ends without a panic, and what it accepts lies within the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_asset::import::gguf::Header;

fuzz_target!(|file: &[u8]| {
    let Ok(header) = Header::parse(file) else {
        return;
    };
    let mut end = 0;
    for tensor in &header.tensors {
        assert!(
            tensor.offset >= end,
            "tensors are in order and do not overlap"
        );
        end = tensor.offset + tensor.len;
        assert!(end <= file.len());
        let cols = tensor.shape.last().copied().unwrap_or(1);
        let rows: usize = tensor.shape.iter().rev().skip(1).product();
        assert_eq!(
            tensor.format.row_bytes(cols).map(|row| row * rows),
            Some(tensor.len)
        );
    }
    // What `inspect` shows.
    let _ = header.metadata.to_json();
});
