//! Attention of one query over contiguous keys and values.

use super::dot;

/// The arguments of [`attention`], beside the query.
#[derive(Clone, Copy, Debug)]
pub struct AttentionArgs<'a> {
    /// `[positions, head_dim]`.
    pub keys: &'a [f32],
    /// `[positions, head_dim]`.
    pub values: &'a [f32],
    /// Multiplies each score.
    pub scale: f32,
    /// `cap · tanh(score / cap)` where given.
    pub softcap: Option<f32>,
    /// Keys seen, counting the query's own; all up to it where `None`.
    pub window: Option<usize>,
    /// Leading keys seen besides the window.
    pub sinks: usize,
}

/// What `query` (`[head_dim]`) at `position` reads: the softmax-weighted mean of the values of keys
/// `0..=position` that are in the window or among the sinks.
pub fn attention(args: &AttentionArgs<'_>, query: &[f32], position: usize) -> Vec<f32> {
    let first = args
        .window
        .map_or(0, |window| (position + 1).saturating_sub(window));
    let seen = |key: usize| key >= first || key < args.sinks;
    let head_dim = query.len();
    let row = |rows: &'_ [f32], i: usize| rows[i * head_dim..(i + 1) * head_dim].to_vec();

    let mut scores = Vec::new();
    for key in (0..=position).filter(|key| seen(*key)) {
        let mut score = dot(query, &row(args.keys, key)) * f64::from(args.scale);
        if let Some(cap) = args.softcap.map(f64::from) {
            score = cap * (score / cap).tanh();
        }
        scores.push((key, score));
    }
    let largest = scores.iter().fold(f64::NEG_INFINITY, |m, (_, s)| m.max(*s));
    let sum: f64 = scores.iter().map(|(_, s)| (s - largest).exp()).sum();
    let mut out = vec![0.0; head_dim];
    for (key, score) in scores {
        let weight = (score - largest).exp() / sum;
        for (o, v) in out.iter_mut().zip(row(args.values, key)) {
            *o += weight * f64::from(v);
        }
    }
    out.into_iter().map(|v| v as f32).collect()
}
