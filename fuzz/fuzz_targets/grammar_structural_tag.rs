//! Structural tags: any JSON lowers or is refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::json_schema::SchemaOptions;
use rushlight_grammar::{Limits, structural_tag};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(value) = serde_json::from_slice(bytes) {
        let _ = structural_tag::lower(&value, None, &Limits::default(), &SchemaOptions::default());
    }
});
