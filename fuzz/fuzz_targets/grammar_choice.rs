//! Choices: any texts, one a line, lower or are refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::{Limits, choice};

// A panic that the crate turns into an error is none here; libFuzzer's own hook would end the process first.
fn quiet() {
    drop(std::panic::take_hook());
}

fuzz_target!(init: quiet(), |text: &str| {
    let texts: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let _ = choice::lower(&texts, &Limits::default());
});
