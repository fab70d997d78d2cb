//! Tests over whole tokenizers and templates, with real models where `RUSHLIGHT_TEST_MODELS` names their directory.

mod attacks;
mod detokenize;
mod gguf_file;
mod hostile;
mod jinja;
mod models;
mod templates;
mod tokenizers;
