//! The CPU backend of rushlight.
//!
//! **What this crate will not do:** it knows no file format, no architecture and no sampling; it holds
//! no `unsafe` code (kernels and the thread pool are in `rushlight-kernels`); and it never trades
//! determinism for speed.
//!
//! ```text
//!   Graph ──lower──► instructions over buffers ┐
//!   Weights ──prepack──► panels, f32 vectors   ├─► program ◄── submit(lanes)   run
//!                        paged states  memory  ┘
//! ```
//!
//! Every promise of [`rushlight_ir::backend`] is kept bit for bit: a lane's logits depend on its own
//! history alone, whatever the chunks, the neighbours, the threads.

#![forbid(unsafe_code)]

mod backend;
mod lower;
mod memory;
mod prepack;
mod run;

pub use backend::CpuBackend;
