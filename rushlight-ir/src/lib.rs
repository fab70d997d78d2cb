//! LLM-sized operations, graphs, architectures and the backend traits.
//!
//! **What this crate will not do:** it runs nothing, holds no weights, and is no general tensor
//! compiler. There is no fusion pass, because the operations are already the ones kernels are
//! written for; there is no file format for graphs, because a graph is rebuilt from a
//! [`Config`](rushlight_asset::Config) and checked at load.
//!
//! ```text
//!   Config ──arch::build──► Graph ──verify──► Backend::compile ──► Program ◄── Lane (states + tokens)
//! ```
//!
//! * [`op::Op`] is the closed set of operations; a new one is a compile error in every backend
//!   until it is handled.
//! * [`graph::GraphBuilder`] infers every shape as a node is added, so that a graph which exists is
//!   well formed; [`verify::verify`] then holds it against a checkpoint's tensors.
//! * [`arch`] has one short file a family: configuration in, graph out.
//! * [`backend`] has the traits that the CPU backend and the reference interpreter implement.
//!
//! ```
//! use rushlight_ir::arch;
//! assert_eq!(arch::known().collect::<Vec<_>>(), ["gemma3", "llama"]);
//! ```

#![forbid(unsafe_code)]

pub mod arch;
pub mod backend;
pub mod dim;
mod error;
pub mod graph;
mod infer;
pub mod op;
mod print;
pub mod rope;
pub mod verify;

pub use error::{IrError, IrErrorKind};
pub use graph::{Graph, GraphBuilder, Signature};
pub use op::Op;
