//! GBNF: any text lowers or is refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rushlight_grammar::{Limits, ebnf};

fuzz_target!(|text: &str| {
    let limits = Limits::default();
    let _ = ebnf::inspect(text, &limits);
    let _ = ebnf::lower(text, None, &limits);
});
