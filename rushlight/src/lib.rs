//! Local language models for Rust programs, with answers you can rely on.
