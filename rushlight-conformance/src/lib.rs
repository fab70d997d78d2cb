//! The reference interpreter, and the suite that every backend passes.
//!
//! **What this crate will not do:** run fast, or save memory. [`Reference`] decodes every weight to
//! f32 and computes every operation by its plain twin in `rushlight_kernels::naive`; it is the arbiter
//! of what an operation means.
//!
//! A backend's tests are one file that calls [`suite`] with the backend:
//!
//! ```no_run
//! use rushlight_conformance::{Reference, suite};
//!
//! let backend = Reference;
//! suite::operations(&backend);
//! suite::goldens(&backend);
//! suite::invariance(&backend);
//! suite::memory(&backend);
//! suite::refusals(&backend);
//! ```

#![forbid(unsafe_code)]

mod cases;
mod reference;
pub mod suite;

pub use reference::Reference;
