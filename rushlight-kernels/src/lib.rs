//! Block formats and CPU kernels, each with a naive twin.

pub mod act;
pub mod attention;
pub mod elementwise;
pub mod error;
pub mod isa;
mod math;
pub mod matmul;
pub mod naive;
pub mod norm;
pub mod output;
pub mod pool;
pub mod qfmt;
pub mod quantize;
pub mod rope;
mod simd;
pub mod softmax;

pub use act::{Activation, glu};
pub use attention::{AttentionScratch, AttentionShape, Elements, Page, Queries, attention};
pub use error::{KernelError, KernelErrorKind};
pub use isa::Isa;
pub use matmul::{Input, PackedMatrix, matmul};
pub use norm::{RmsNorm, rms_norm, rms_norm_in_place};
pub use output::{ColumnQueue, Columns};
pub use pool::Pool;
pub use qfmt::{Format, decode};
pub use quantize::{QuantizedRows, quantize_rows};
pub use rope::{RopeShape, rope};
