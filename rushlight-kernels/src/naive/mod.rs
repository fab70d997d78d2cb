//! Every kernel once more, as its definition reads.
//!
//! Plain loops over f32 slices, sums in f64, no vectors, no packing, no paging: slow, and the
//! arbiter. Shapes are arguments and mismatches panic, since only tests and the reference
//! interpreter (which has checked its graph) call these.

mod attention;

pub use attention::{AttentionArgs, attention};

use crate::act::Activation;
use crate::error::KernelError;
use crate::norm::RmsNorm;
use crate::qfmt::{Format, decode};
use crate::rope::RopeShape;

/// `y[t][r] = Σ x[t][k]·w[r][k]`: `w` is `rows` rows of `cols` elements of `format`, `x` is
/// `[tokens, cols]`; the result is `[tokens, rows]`.
///
/// # Errors
/// `w` is not whole rows of `format`.
pub fn matmul(
    format: Format,
    w: &[u8],
    rows: usize,
    cols: usize,
    x: &[f32],
) -> Result<Vec<f32>, KernelError> {
    let mut weights = vec![0.0; rows * cols];
    decode(format, w, &mut weights)?;
    let mut y = Vec::new();
    for token in x.chunks(cols) {
        for row in weights.chunks(cols) {
            y.push(dot(token, row) as f32);
        }
    }
    Ok(y)
}

/// Row `index` of an embedding table of `cols` columns.
///
/// # Errors
/// The table has no such row, or `cols` is not whole blocks.
pub fn embed_row(
    format: Format,
    table: &[u8],
    cols: usize,
    index: usize,
) -> Result<Vec<f32>, KernelError> {
    let bytes = crate::qfmt::checked_row_bytes("embed", format, cols)?;
    let end = index.checked_add(1).and_then(|n| n.checked_mul(bytes));
    let end = end.ok_or_else(|| KernelError::too_large("embed", "the table"))?;
    let row = table
        .get(end - bytes..end)
        .ok_or_else(|| KernelError::length("embed", "table", end, table.len()))?;
    let mut out = vec![0.0; cols];
    decode(format, row, &mut out)?;
    Ok(out)
}

/// See [`crate::norm::rms_norm`].
pub fn rms_norm(norm: &RmsNorm<'_>, x: &[f32]) -> Vec<f32> {
    let mut y = Vec::new();
    for row in x.chunks(norm.weight.len()) {
        let mean = dot(row, row) / row.len() as f64;
        let scale = 1.0 / (mean + f64::from(norm.eps)).sqrt();
        for (x, w) in row.iter().zip(norm.weight) {
            y.push((f64::from(*x) * scale * f64::from(w + norm.offset)) as f32);
        }
    }
    y
}

/// See [`crate::rope::rope`].
pub fn rope(shape: RopeShape, cos: &[f32], sin: &[f32], x: &mut [f32]) {
    let half = shape.rotary_dim / 2;
    for (t, token) in x.chunks_mut(shape.heads * shape.head_dim).enumerate() {
        for head in token.chunks_mut(shape.head_dim) {
            for i in 0..half {
                let (cos, sin) = (cos[t * half + i], sin[t * half + i]);
                let (a, b) = (head[i], head[i + half]);
                head[i] = a * cos - b * sin;
                head[i + half] = b * cos + a * sin;
            }
        }
    }
}

/// `activation(gate) · up`.
pub fn glu(activation: Activation, gate: &[f32], up: &[f32]) -> Vec<f32> {
    let pairs = gate.iter().zip(up);
    pairs
        .map(|(g, u)| (activate(activation, f64::from(*g)) * f64::from(*u)) as f32)
        .collect()
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            // x/2·(1 + tanh u), written so that nothing cancels.
            x / (1.0 + (-2.0 * u).exp())
        }
    }
}

/// Softmax of each row of `width`.
pub fn softmax(width: usize, x: &[f32]) -> Vec<f32> {
    let mut y = Vec::new();
    for row in x.chunks(width) {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exps = row
            .iter()
            .map(|x| (f64::from(*x) - f64::from(largest)).exp());
        let sum: f64 = exps.clone().sum();
        y.extend(exps.map(|e| (e / sum) as f32));
    }
    y
}

/// `x + y`.
pub fn add(x: &[f32], y: &[f32]) -> Vec<f32> {
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

/// `cap · tanh(x / cap)`.
pub fn softcap(x: &[f32], cap: f32) -> Vec<f32> {
    let cap = f64::from(cap);
    x.iter()
        .map(|x| (cap * (f64::from(*x) / cap).tanh()) as f32)
        .collect()
}

/// `Σ a[i]·b[i]`.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
    products.sum()
}
