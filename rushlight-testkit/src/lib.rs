//! Fakes, goldens and table runners for rushlight's tests. Never a dependency of anything shipped.
//!
//! It will not import, run or check a model: it makes inputs and stands in for the layer below the
//! one under test.
//!
//! - [`gguf`] writes GGUF files, well-formed or broken on purpose, and a tiny model.
//! - [`goldens`] finds tiny checkpoints and the logits that the reference computed from them.
//! - [`scripted`] is a program whose logits are a function of the history.
//! - [`scratch`] makes a directory for one test.
//! - `data/` holds goldens with the scripts that made them.
#![forbid(unsafe_code)]

pub mod gguf;
pub mod goldens;
pub mod scratch;
pub mod scripted;
