//! The crate's error.

use std::fmt;

/// Why a graph could not be built or does not fit its checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IrErrorKind {
    /// No architecture of this name; the message lists the known ones.
    UnknownArchitecture,
    /// The configuration contradicts itself or asks for what the architecture cannot do.
    Config,
    /// A node's inputs do not fit its operation.
    Shape,
    /// The checkpoint lacks a tensor that the graph reads.
    MissingTensor,
    /// A tensor has another shape than the graph reads.
    TensorShape,
    /// A tensor's format cannot serve the operation that reads it.
    TensorFormat,
    /// The checkpoint holds a tensor that nothing in the graph reads.
    UnusedTensor,
}

/// A graph that cannot be built, or does not fit its checkpoint.
#[derive(Clone, Debug)]
pub struct IrError {
    kind: IrErrorKind,
    place: String,
    message: String,
}

impl IrError {
    pub(crate) fn new(
        kind: IrErrorKind,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> IrError {
        IrError {
            kind,
            place: place.into(),
            message: message.into(),
        }
    }

    /// What went wrong.
    pub fn kind(&self) -> &IrErrorKind {
        &self.kind
    }

    /// The function and node, the tensor or the configuration field at fault.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for IrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for IrError {}
