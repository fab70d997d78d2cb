//! Block formats and CPU kernels, each with a naive twin.
//!
//! # What this crate will not do
//! It holds no model, no graph and no files: slices go in, slices come out, and no kernel starts a
//! thread (callers share work out, for example on a [`pool`]). It does not
//! choose formats, schedule work, or fall back: arguments that do not fit are an error, before
//! anything is written. Sizes that a caller computed wrongly are not guessed.
//!
//! # What is here
//! - [`qfmt`]: how weights are stored, and their exact decoding. Start here to add a format.
//! - [`mod@matmul`]: weights packed in panels, and products with them; [`quantize`] makes the int8
//!   activations that block formats take; [`output`] lets threads fill one output.
//! - [`mod@attention`]: over paged keys and values.
//! - [`pool`]: threads that regions of a few microseconds can be shared out on.
//! - [`norm`], [`mod@rope`], [`act`], [`softmax`], [`elementwise`]: the rest of a transformer layer.
//! - [`naive`]: a plain twin of each, which is the definition.
//!
//! # Two promises
//! **Batch invariance.** The result for one row or token is the same to the last bit whatever else
//! is in the call, whichever tile or thread it falls to. Each kernel states its order of addition.
//!
//! **One arithmetic.** Kernels are written once over eight lanes and compiled for each instruction
//! set; all give the same bits. [`Isa::detect`] picks the fastest at run time, so one binary serves
//! every machine.
//!
//! ```
//! use rushlight_kernels::{Columns, Format, Input, Isa, PackedMatrix, QuantizedRows};
//! use rushlight_kernels::{matmul, quantize_rows};
//!
//! // Two rows of 32 weights: f16 scale 1, then codes. Row 0 is all ones, row 1 all minus ones.
//! let rows = [[0x00, 0x3c, 1], [0x00, 0x3c, 0xff]].map(|[a, b, code]| {
//!     let mut row = [code; 34];
//!     (row[0], row[1]) = (a, b);
//!     row
//! });
//! let weights = PackedMatrix::pack(Format::Q8_0, 2, 32, |i| &rows[i])?;
//!
//! let isa = Isa::detect();
//! let mut x = QuantizedRows::new();
//! quantize_rows(isa, &[0.5; 32], 32, &mut x)?;
//! let mut y = [0.0; 2];
//! matmul(isa, &weights, Input::Int8(&x), &mut Columns::new(&mut y, 2, 0..2)?)?;
//! assert_eq!(y, [16.0, -16.0]);
//! # Ok::<(), rushlight_kernels::KernelError>(())
//! ```

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
pub use qfmt::{Format, decode};
pub use quantize::{QuantizedRows, quantize_rows};
pub use rope::{RopeShape, rope};
