//! Every kernel against its naive twin, on every instruction set that the processor has, at every tail length.

mod attention;
mod decode;
mod matmul;
mod rows;
mod support;
