//! The crate's one error: which kernel refused which argument, and why.

use std::fmt;

use crate::qfmt::Format;

/// A kernel refused its arguments. Nothing was written to the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelError {
    kernel: &'static str,
    kind: KernelErrorKind,
}

/// Why a kernel refused its arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelErrorKind {
    /// A slice or dimension is not of the length that the other arguments imply.
    #[error("{what} must be {expected}, got {got}")]
    Length {
        /// The argument, for example `out` (in the unit that the kernel documents).
        what: &'static str,
        /// The length implied by the other arguments.
        expected: usize,
        /// The length given.
        got: usize,
    },
    /// A dimension is not a whole number of units, or is zero where it may not be.
    #[error("{what} must be a positive multiple of {unit}, got {got}")]
    NotMultiple {
        /// The argument.
        what: &'static str,
        /// The unit it is counted in.
        unit: usize,
        /// The value given.
        got: usize,
    },
    /// A row of a block format is not whole blocks.
    #[error("{cols} columns are not whole {format} blocks")]
    NotWholeBlocks {
        /// The format of the row.
        format: Format,
        /// The columns asked for.
        cols: usize,
    },
    /// A byte or element count does not fit in memory.
    #[error("{what} is too large to address")]
    TooLarge {
        /// The quantity that overflows.
        what: &'static str,
    },
    /// Quantised weights need quantised activations, float weights need float activations.
    #[error("{format} weights take {wanted} activations")]
    WrongInput {
        /// The weights' format.
        format: Format,
        /// `f32` or `int8`.
        wanted: &'static str,
    },
    /// A page holding a visible key was not given.
    #[error("page {page} holds visible keys but is absent")]
    MissingPage {
        /// Index of the page, in pages from position 0.
        page: usize,
    },
}

impl KernelError {
    /// The kernel that refused, for example `matmul`.
    pub fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// What was wrong.
    pub fn kind(&self) -> &KernelErrorKind {
        &self.kind
    }

    pub(crate) fn new(kernel: &'static str, kind: KernelErrorKind) -> Self {
        Self { kernel, kind }
    }

    pub(crate) fn length(
        kernel: &'static str,
        what: &'static str,
        expected: usize,
        got: usize,
    ) -> Self {
        let kind = KernelErrorKind::Length {
            what,
            expected,
            got,
        };
        Self::new(kernel, kind)
    }

    pub(crate) fn too_large(kernel: &'static str, what: &'static str) -> Self {
        Self::new(kernel, KernelErrorKind::TooLarge { what })
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kernel, self.kind)
    }
}

impl std::error::Error for KernelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.kind)
    }
}

/// Refuses unless `got == expected`.
pub(crate) fn expect_len(
    kernel: &'static str,
    what: &'static str,
    expected: usize,
    got: usize,
) -> Result<(), KernelError> {
    if expected == got {
        return Ok(());
    }
    Err(KernelError::length(kernel, what, expected, got))
}

/// Refuses unless `got` is a positive multiple of `unit`.
pub(crate) fn expect_multiple(
    kernel: &'static str,
    what: &'static str,
    unit: usize,
    got: usize,
) -> Result<(), KernelError> {
    if got > 0 && got.is_multiple_of(unit) {
        return Ok(());
    }
    Err(KernelError::new(
        kernel,
        KernelErrorKind::NotMultiple { what, unit, got },
    ))
}
