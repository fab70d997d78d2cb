//! Patterns: any text lowers or is refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::{Limits, regex};

// A panic that the crate turns into an error is none here; libFuzzer's own hook would end the process first.
fn quiet() {
    drop(std::panic::take_hook());
}

fuzz_target!(init: quiet(), |pattern: &str| {
    let _ = regex::lower(pattern, &Limits::default());
});
