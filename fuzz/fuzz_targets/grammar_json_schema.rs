//! JSON Schema: any JSON compiles or is refused, with guards and without, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::json_schema::{SchemaOptions, compile_schema};
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(schema) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let mut options = SchemaOptions::default();
    let _ = compile_schema(&schema, &options);
    options.guards = false;
    let _ = compile_schema(&schema, &options);
});
