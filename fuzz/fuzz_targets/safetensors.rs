//! Safetensors headers: parsing ends without a panic, and what it accepts tiles the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_asset::import::huggingface::Header;

fuzz_target!(|file: &[u8]| {
    let Ok(header) = Header::parse(file) else {
        return;
    };
    let mut end = None;
    for tensor in &header.tensors {
        assert!(
            end.is_none_or(|end| end == tensor.offset),
            "no overlap and no gap"
        );
        end = Some(tensor.offset + tensor.len);
        let _ = tensor.format();
    }
    assert!(end.is_none_or(|end| end == file.len()));
});
