//! Patterns: any text lowers or is refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::{Limits, regex};

fuzz_target!(|pattern: &str| {
    let _ = regex::lower(pattern, &Limits::default());
});
