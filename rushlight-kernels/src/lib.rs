//! Block formats and CPU kernels, each with a naive twin.

pub mod pool;
pub mod qfmt;
