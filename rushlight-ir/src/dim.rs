//! Sizes of values: numbers, and the two sizes that only a step knows.

use std::fmt;

/// One dimension of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// The same in every step.
    Fixed(usize),
    /// New tokens of all lanes of the step, lane after lane.
    Tokens,
    /// Rows whose logits were asked for, lane after lane.
    Outputs,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(n) => write!(f, "{n}"),
            Dim::Tokens => f.write_str("T"),
            Dim::Outputs => f.write_str("O"),
        }
    }
}

/// A matrix-shaped value: `rows × cols`, row-major, f32 (token ids: `T × 1`, u32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows: [`Dim::Tokens`] or [`Dim::Outputs`].
    pub rows: Dim,
    /// Elements of a row.
    pub cols: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.rows, self.cols)
    }
}
