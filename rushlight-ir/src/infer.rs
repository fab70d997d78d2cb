//! Shape inference: what an operation makes of its inputs, or why it cannot.

use crate::dim::{Dim, Shape};
use crate::graph::Graph;
use crate::op::{Op, ValueId, WeightId};

/// The output's shape, or a sentence that says what does not fit.
pub(crate) fn infer(graph: &Graph, op: &Op, inputs: &[ValueId]) -> Result<Shape, String> {
    let arity = match op {
        Op::Attention { .. } => 3,
        Op::Add => 2,
        Op::Embed { .. }
        | Op::RmsNorm { .. }
        | Op::MatMul { .. }
        | Op::Rope { .. }
        | Op::GluMlp { .. }
        | Op::SelectOutputs
        | Op::Softcap { .. } => 1,
    };
    if inputs.len() != arity {
        return Err(format!("{} inputs where it takes {arity}", inputs.len()));
    }
    let x = graph.shape(inputs[0]);
    match *op {
        Op::Embed { table, .. } => {
            let [rows, cols] = matrix(graph, table)?;
            if inputs[0].0 != 0 {
                return Err("reads a value that is not the token ids".to_owned());
            }
            same("table rows", rows, "vocabulary", graph.signature().vocab)?;
            Ok(Shape { rows: x.rows, cols })
        }
        Op::RmsNorm { weight, width, .. } => {
            vector(graph, weight, width)?;
            if width == 0 || !x.cols.is_multiple_of(width) {
                return Err(format!("{} columns are not runs of {width}", x.cols));
            }
            Ok(x)
        }
        Op::MatMul { weight, bias } => {
            let [rows, cols] = matrix(graph, weight)?;
            same("input columns", x.cols, "weight columns", cols)?;
            if let Some(bias) = bias {
                vector(graph, bias, rows)?;
            }
            Ok(Shape {
                rows: x.rows,
                cols: rows,
            })
        }
        Op::Rope {
            rope,
            heads,
            head_dim,
        } => {
            tokens(x)?;
            same(
                "input columns",
                x.cols,
                "heads × head_dim",
                heads * head_dim,
            )?;
            let dim = graph.rope(rope).dim();
            if dim > head_dim {
                return Err(format!("rotates {dim} of {head_dim} elements"));
            }
            Ok(x)
        }
        Op::Attention { state, heads, .. } => {
            let spec = graph.state(state);
            if spec.kv_heads == 0 || !heads.is_multiple_of(spec.kv_heads) {
                return Err(format!(
                    "{heads} query heads over {} key/value heads",
                    spec.kv_heads
                ));
            }
            tokens(x)?;
            same(
                "query columns",
                x.cols,
                "heads × head_dim",
                heads * spec.head_dim,
            )?;
            for (what, &input) in ["key columns", "value columns"].iter().zip(&inputs[1..]) {
                let kv = graph.shape(input);
                tokens(kv)?;
                same(
                    what,
                    kv.cols,
                    "kv_heads × head_dim",
                    spec.kv_heads * spec.head_dim,
                )?;
            }
            Ok(x)
        }
        Op::GluMlp { gate, up, down, .. } => {
            let [inner, hidden] = matrix(graph, gate)?;
            same("input columns", x.cols, "gate columns", hidden)?;
            if matrix(graph, up)? != [inner, hidden] {
                return Err("gate and up differ in shape".to_owned());
            }
            if matrix(graph, down)? != [hidden, inner] {
                return Err("down is not the transposed shape of gate".to_owned());
            }
            Ok(x)
        }
        Op::Add => {
            let y = graph.shape(inputs[1]);
            if x != y {
                return Err(format!("adds {x} and {y}"));
            }
            Ok(x)
        }
        Op::SelectOutputs => {
            tokens(x)?;
            Ok(Shape {
                rows: Dim::Outputs,
                cols: x.cols,
            })
        }
        Op::Softcap { .. } => Ok(x),
    }
}

fn matrix(graph: &Graph, weight: WeightId) -> Result<[usize; 2], String> {
    let spec = graph.weight(weight);
    match spec.shape[..] {
        [rows, cols] => Ok([rows, cols]),
        _ => Err(format!("{} {:?} is not a matrix", spec.name, spec.shape)),
    }
}

fn vector(graph: &Graph, weight: WeightId, len: usize) -> Result<(), String> {
    let spec = graph.weight(weight);
    if spec.shape != [len] {
        return Err(format!(
            "{} has shape {:?}, not [{len}]",
            spec.name, spec.shape
        ));
    }
    Ok(())
}

fn tokens(shape: Shape) -> Result<(), String> {
    match shape.rows {
        Dim::Tokens => Ok(()),
        _ => Err(format!("{shape} has no row for every token")),
    }
}

fn same(what: &str, got: usize, name: &str, want: usize) -> Result<(), String> {
    if got != want {
        return Err(format!("{what} {got}, {name} {want}"));
    }
    Ok(())
}
