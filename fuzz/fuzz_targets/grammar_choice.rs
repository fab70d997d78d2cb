//! Choices: any texts, one a line, lower or are refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::{Limits, choice};

fuzz_target!(|text: &str| {
    let texts: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let _ = choice::lower(&texts, &Limits::default());
});
