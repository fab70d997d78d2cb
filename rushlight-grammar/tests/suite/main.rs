//! Every kind of source through the compiler and its matchers, over a toy vocabulary and, where `RUSHLIGHT_TEST_MODELS` names
//! their directory, those of real tokenizers.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod budget;
mod compiling;
mod ebnf;
mod hostile;
mod json_schema_keywords;
mod matcher;
mod real_vocabulary;
mod structural_tag;
mod structural_tag_ends;
mod structural_tag_guards;
mod vocab;
