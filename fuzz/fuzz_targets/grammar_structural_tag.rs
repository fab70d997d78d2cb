//! Structural tags: any JSON lowers or is refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::json_schema::SchemaOptions;
use rushlight_grammar::{Limits, structural_tag};

// A panic that the crate turns into an error is none here; libFuzzer's own hook would end the process first.
fn quiet() {
    drop(std::panic::take_hook());
}

fuzz_target!(init: quiet(), |bytes: &[u8]| {
    if let Ok(value) = serde_json::from_slice(bytes) {
        let _ = structural_tag::lower(&value, None, &Limits::default(), &SchemaOptions::default());
    }
});
