//! Tests over whole tokenizers and templates, with real models where `RUSHLIGHT_TEST_MODELS` names their directory.

// A failed step of a test's preparation is a failed test, and a skipped test says so.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod attacks;
mod detokenize;
mod gguf_file;
mod hostile;
mod jinja;
mod models;
mod templates;
mod tokenizers;
