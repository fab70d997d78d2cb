//! GBNF: any text lowers or is refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::{Limits, ebnf};

// A panic that the crate turns into an error is none here; libFuzzer's own hook would end the process first.
fn quiet() {
    drop(std::panic::take_hook());
}

fuzz_target!(init: quiet(), |text: &str| {
    let limits = Limits::default();
    let _ = ebnf::inspect(text, &limits);
    let _ = ebnf::lower(text, None, &limits);
});
