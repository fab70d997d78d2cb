//! JSON Schema: any JSON compiles or is refused, with guards and without, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::json_schema::{SchemaOptions, compile_schema};
use serde_json::Value;

// A panic that the crate turns into an error is none here; libFuzzer's own hook would end the process first.
fn quiet() {
    drop(std::panic::take_hook());
}

fuzz_target!(init: quiet(), |bytes: &[u8]| {
    let Ok(schema) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let mut options = SchemaOptions::default();
    let _ = compile_schema(&schema, &options);
    options.guards = false;
    let _ = compile_schema(&schema, &options);
});
