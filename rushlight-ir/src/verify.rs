//! Holds a graph against a checkpoint: every weight there, of the right shape and a usable format,
//! and no tensor left over.

use std::collections::{HashMap, HashSet};

use rushlight_asset::Weights;

use crate::error::{IrError, IrErrorKind};
use crate::graph::Graph;
use crate::op::Op;

/// Checks that `weights` holds exactly what `graph` reads.
///
/// # Errors
/// The first mismatch, naming function and tensor: [`IrErrorKind::MissingTensor`],
/// [`IrErrorKind::TensorShape`], [`IrErrorKind::TensorFormat`] (norms and biases must be plain
/// floats) or [`IrErrorKind::UnusedTensor`].
pub fn verify(graph: &Graph, weights: &Weights) -> Result<(), IrError> {
    let function = &graph.signature().function;
    let place = |tensor: &str| format!("{function}: tensor {}", weights.called(tensor));
    let readers = readers(graph);
    for spec in graph.weights() {
        let Some(tensor) = weights.find(&spec.name) else {
            return Err(IrError::new(
                IrErrorKind::MissingTensor,
                place(&spec.name),
                format!(
                    "the checkpoint has no such tensor (shape {:?} wanted by {})",
                    spec.shape,
                    readers.get(spec.name.as_str()).unwrap_or(&"the graph")
                ),
            ));
        };
        if tensor.shape() != spec.shape {
            return Err(IrError::new(
                IrErrorKind::TensorShape,
                place(&spec.name),
                format!(
                    "has shape {:?} where the configuration makes it {:?}",
                    tensor.shape(),
                    spec.shape
                ),
            ));
        }
        if spec.shape.len() == 1 && !tensor.format().is_float() {
            return Err(IrError::new(
                IrErrorKind::TensorFormat,
                place(&spec.name),
                format!(
                    "is a vector in {}; vectors are F32, F16 or BF16",
                    tensor.format()
                ),
            ));
        }
    }
    let read: HashSet<&str> = graph.weights().iter().map(|w| w.name.as_str()).collect();
    let left: Vec<&str> = weights
        .iter()
        .map(|tensor| tensor.name())
        .filter(|name| !read.contains(name))
        .collect();
    if let Some(first) = left.first() {
        return Err(IrError::new(
            IrErrorKind::UnusedTensor,
            place(first),
            format!(
                "the architecture reads no such tensor ({} unread in all); running without it would \
                 give another model's answers",
                left.len()
            ),
        ));
    }
    Ok(())
}

/// Which operation reads each weight first, for messages.
fn readers(graph: &Graph) -> HashMap<&str, &'static str> {
    let mut readers = HashMap::new();
    for node in graph.nodes() {
        for weight in Op::weights(&node.op) {
            readers
                .entry(graph.weight(weight).name.as_str())
                .or_insert(node.op.name());
        }
    }
    readers
}
