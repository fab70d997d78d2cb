//! The arbiter against transformers' logits, and against its own promises.

use rushlight_conformance::{Reference, suite};

#[test]
fn goldens() {
    suite::goldens(&Reference);
}

#[test]
fn memory() {
    suite::memory(&Reference);
}

#[test]
fn refusals() {
    suite::refusals(&Reference);
}
