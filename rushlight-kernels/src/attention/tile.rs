//! The walk of a tile of query rows through the pages; see the module above for the algorithm.

use std::ops::Range;

use half::f16;

use super::{AttentionScratch, AttentionShape, Elements, Page, Queries, hull, visible};
use crate::elementwise::{Single, Softcap};
use crate::isa::Kernel;
use crate::math::exp;
use crate::output::Columns;
use crate::simd::{LANES, Simd};
use crate::softmax;

/// Rows of a tile.
const TILE: usize = 16;
/// Rows from which widening an f16 page once is cheaper than widening it for each pair of rows.
const WIDEN_FROM: usize = 4;

/// An element type of pages.
trait Element: Copy {
    fn load<S: Simd>(s: S, v: &[Self; LANES]) -> S::F;
}

impl Element for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, v: &[Self; LANES]) -> S::F {
        s.load(v)
    }
}

impl Element for f16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, v: &[Self; LANES]) -> S::F {
        s.load_f16(v)
    }
}

pub(super) struct Attend<'k, 'o, 'p> {
    pub(super) shape: &'k AttentionShape,
    pub(super) queries: &'k Queries<'k>,
    pub(super) pages: &'k dyn Fn(usize) -> Option<Page<'p>>,
    pub(super) scratch: &'k mut AttentionScratch,
    pub(super) out: &'k mut Columns<'o>,
}

impl Kernel for Attend<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Attend {
            shape,
            queries,
            pages,
            scratch,
            out,
        } = self;
        let rows = queries.count * queries.group;
        for start in (0..rows).step_by(TILE) {
            let rows = start..rows.min(start + TILE);
            let mut tile = Tile::begin(shape, queries, rows.clone(), scratch);
            for page in 0..=queries.position(rows.end - 1) / shape.page_tokens {
                let hull = hull(shape, queries, rows.clone(), page);
                if hull.is_empty() {
                    continue;
                }
                if let Some(given) = pages(page) {
                    read_page(s, &mut tile, page, hull, &given);
                }
            }
            tile.finish(s, out);
        }
    }
}

/// Widens the page if that pays, or if its rows are not whole vectors, and reads it.
#[inline(always)]
fn read_page<S: Simd>(
    s: S,
    tile: &mut Tile<'_>,
    page: usize,
    hull: Range<usize>,
    given: &Page<'_>,
) {
    let whole = tile.shape.head_dim == tile.padded_dim;
    let few = tile.rows.len() < WIDEN_FROM;
    if let (Elements::F16(keys), Elements::F16(values), true, true) =
        (given.keys, given.values, whole, few)
    {
        return read_rows(s, tile, page, hull, (keys, values));
    }
    let (mut wide_keys, mut wide_values) = (std::mem::take(tile.keys), std::mem::take(tile.values));
    let keys = wide(s, tile, given.keys, &hull, &mut wide_keys);
    let values = wide(s, tile, given.values, &hull, &mut wide_values);
    read_rows(s, tile, page, hull, (keys, values));
    (*tile.keys, *tile.values) = (wide_keys, wide_values);
}

/// The rows `hull` of a page as f32 rows of whole vectors, at their places: the page itself, or a
/// copy in `memory`.
#[inline(always)]
fn wide<'v, S: Simd>(
    s: S,
    tile: &Tile<'_>,
    from: Elements<'v>,
    hull: &Range<usize>,
    memory: &'v mut Vec<f32>,
) -> &'v [f32] {
    let (head_dim, padded_dim) = (tile.shape.head_dim, tile.padded_dim);
    if let (Elements::F32(from), true) = (from, head_dim == padded_dim) {
        return from;
    }
    memory.resize(tile.shape.page_tokens * padded_dim, 0.0);
    for place in hull.clone() {
        let row = &mut memory[place * padded_dim..][..padded_dim];
        let span = place * head_dim..(place + 1) * head_dim;
        row[head_dim..].fill(0.0);
        match from {
            Elements::F32(from) => row[..head_dim].copy_from_slice(&from[span]),
            Elements::F16(from) => {
                let (whole, rest) = from[span].as_chunks::<LANES>();
                for (lanes, v) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(whole) {
                    s.store(s.load_f16(v), lanes);
                }
                let at = whole.len() * LANES;
                for (lane, v) in row[at..].iter_mut().zip(rest) {
                    *lane = v.to_f32();
                }
            }
        }
    }
    memory
}

/// Up to [`TILE`] query rows on their way through the pages.
struct Tile<'a> {
    shape: &'a AttentionShape,
    queries: &'a Queries<'a>,
    /// Which rows of the call these are.
    rows: Range<usize>,
    /// `head_dim` rounded up to whole vectors.
    padded_dim: usize,
    /// `page_tokens` rounded up to whole vectors.
    padded_page: usize,
    /// `[rows, padded_dim]`, zero past `head_dim`.
    q: &'a mut [f32],
    /// `[rows, padded_dim]`: weighted values so far.
    sums: &'a mut [f32],
    /// `[rows, padded_page]`: scores, then weights, of one page.
    scores: &'a mut [f32],
    /// Widened pages.
    keys: &'a mut Vec<f32>,
    values: &'a mut Vec<f32>,
    /// Largest score so far.
    largest: [f32; TILE],
    /// Sum of weights so far.
    weight: [f32; TILE],
}

impl<'a> Tile<'a> {
    fn begin(
        shape: &'a AttentionShape,
        queries: &'a Queries<'a>,
        rows: Range<usize>,
        scratch: &'a mut AttentionScratch,
    ) -> Self {
        let padded_dim = shape.head_dim.next_multiple_of(LANES);
        let padded_page = shape.page_tokens.next_multiple_of(LANES);
        for buffer in [&mut scratch.queries, &mut scratch.sums] {
            buffer.clear();
            buffer.resize(rows.len() * padded_dim, 0.0);
        }
        scratch.scores.clear();
        scratch.scores.resize(rows.len() * padded_page, 0.0);
        let padded = scratch.queries.chunks_exact_mut(padded_dim);
        for (row, q) in rows.clone().zip(padded) {
            let at = row / queries.group * queries.stride + row % queries.group * shape.head_dim;
            q[..shape.head_dim].copy_from_slice(&queries.data[at..at + shape.head_dim]);
        }
        Self {
            shape,
            queries,
            rows,
            padded_dim,
            padded_page,
            q: &mut scratch.queries,
            sums: &mut scratch.sums,
            scores: &mut scratch.scores,
            keys: &mut scratch.keys,
            values: &mut scratch.values,
            largest: [f32::NEG_INFINITY; TILE],
            weight: [0.0; TILE],
        }
    }

    /// Divides by the sums of weights.
    #[inline(always)]
    fn finish<S: Simd>(self, s: S, out: &mut Columns<'_>) {
        let (group, head_dim) = (self.queries.group, self.shape.head_dim);
        for (r, row) in self.rows.clone().enumerate() {
            let sums = &mut self.sums[r * self.padded_dim..][..self.padded_dim];
            let weight = s.splat(self.weight[r]);
            for lanes in sums.as_chunks_mut::<LANES>().0 {
                s.store(s.div(s.load(lanes), weight), lanes);
            }
            let head = row % group;
            let out = &mut out.row_mut(row / group)[head * head_dim..][..head_dim];
            out.copy_from_slice(&sums[..head_dim]);
        }
    }
}

/// Steps 1 to 4 for one page, whose places `hull` are seen by some row.
#[inline(always)]
fn read_rows<S: Simd, E: Element>(
    s: S,
    tile: &mut Tile<'_>,
    page: usize,
    hull: Range<usize>,
    (keys, values): (&[E], &[E]),
) {
    let count = tile.rows.len();
    let mut row = 0;
    while row + 2 <= count {
        score::<S, E, 2>(s, tile, row, hull.clone(), keys);
        row += 2;
    }
    if row < count {
        score::<S, E, 1>(s, tile, row, hull, keys);
    }

    let mut seen: [[Range<usize>; 2]; TILE] = std::array::from_fn(|_| [0..0, 0..0]);
    let mut shrink = [1.0; TILE];
    for r in 0..count {
        seen[r] = visible(tile.shape, tile.queries.position(tile.rows.start + r), page);
        if !(seen[r][0].is_empty() && seen[r][1].is_empty()) {
            shrink[r] = weigh(s, tile, r, &seen[r]);
        }
    }

    let mut row = 0;
    while row < count {
        let [sinks, window] = seen[row].clone();
        let four = row + 4 <= count
            && seen[row + 1..row + 4]
                .iter()
                .all(|other| other[0] == sinks && other[1].start == window.start);
        if !four {
            let places = [sinks, window];
            add_values::<S, E, 1, 8>(s, tile, (row, &places), shrink[row..].first_chunk(), values);
            row += 1;
            continue;
        }
        // Ends grow with the position: what the first row sees, all do; then each its own rest.
        let (start, end) = (window.start, window.end);
        let shared = [sinks, start..end];
        add_values::<S, E, 4, 2>(s, tile, (row, &shared), shrink[row..].first_chunk(), values);
        for (after, other) in seen[row + 1..row + 4].iter().enumerate() {
            let rest = [0..0, end..other[1].end];
            if !rest[1].is_empty() {
                let row = row + 1 + after;
                add_values::<S, E, 1, 8>(s, tile, (row, &rest), None, values);
            }
        }
        row += 4;
    }
}

/// Scores of `R` rows with the keys at `places`.
#[inline(always)]
fn score<S: Simd, E: Element, const R: usize>(
    s: S,
    tile: &mut Tile<'_>,
    row: usize,
    places: Range<usize>,
    keys: &[E],
) {
    const KEYS: usize = 4;
    let padded_dim = tile.padded_dim;
    let mut q: [&[f32]; R] = [&[]; R];
    for (r, q) in q.iter_mut().enumerate() {
        *q = &tile.q[(row + r) * padded_dim..][..padded_dim];
    }
    for place in places.clone().step_by(KEYS) {
        // Past the end the last key is scored again; its score is not kept.
        let mut k: [&[E]; KEYS] = [&[]; KEYS];
        for (i, k) in k.iter_mut().enumerate() {
            let at = (place + i).min(places.end - 1);
            *k = &keys[at * padded_dim..][..padded_dim];
        }
        let mut dots = [[s.splat(0.0); KEYS]; R];
        for chunk in 0..padded_dim / LANES {
            let mut lanes = [s.splat(0.0); KEYS];
            for i in 0..KEYS {
                lanes[i] = E::load(s, &k[i].as_chunks::<LANES>().0[chunk]);
            }
            for r in 0..R {
                let query = s.load(&q[r].as_chunks::<LANES>().0[chunk]);
                for i in 0..KEYS {
                    dots[r][i] = s.fma(query, lanes[i], dots[r][i]);
                }
            }
        }
        for (r, dots) in dots.into_iter().enumerate() {
            let scores = &mut tile.scores[(row + r) * tile.padded_page..][..places.end];
            let dots = s.reduce_add4(dots);
            match scores[place..].first_chunk_mut::<KEYS>() {
                Some(whole) => *whole = dots,
                None => {
                    for (score, dot) in scores[place..].iter_mut().zip(dots) {
                        *score = dot;
                    }
                }
            }
        }
    }
}

/// Turns a row's scores into weights, and returns what its earlier sums must be multiplied by.
#[inline(always)]
fn weigh<S: Simd>(s: S, tile: &mut Tile<'_>, row: usize, seen: &[Range<usize>; 2]) -> f32 {
    let scores = &mut tile.scores[row * tile.padded_page..][..tile.padded_page];
    let scale = s.splat(tile.shape.scale);
    for lanes in scores.as_chunks_mut::<LANES>().0 {
        let mut v = s.mul(s.load(lanes), scale);
        if let Some(cap) = tile.shape.softcap {
            v = Softcap(cap).apply(s, v);
        }
        s.store(v, lanes);
    }
    let [sinks, window] = seen;
    scores[sinks.end..window.start].fill(f32::NEG_INFINITY);
    scores[window.end..].fill(f32::NEG_INFINITY);

    let before = tile.largest[row];
    let largest = softmax::max(s, scores);
    let largest = if largest > before || largest.is_nan() {
        largest
    } else {
        before
    };
    let mut shrink = [0.0; LANES];
    s.store(exp(s, s.splat(before - largest)), &mut shrink);
    let sum = softmax::exp_and_sum(s, scores, largest);
    tile.largest[row] = largest;
    tile.weight[row] = tile.weight[row] * shrink[0] + sum;
    shrink[0]
}

/// Shrinks the sums of `R` rows, then adds the weighted values of the places in `segments`, all of
/// which each row sees; `V` vectors at a time, together enough chains of `fma` to hide the latency
/// of one.
#[inline(always)]
fn add_values<S: Simd, E: Element, const R: usize, const V: usize>(
    s: S,
    tile: &mut Tile<'_>,
    rows: (usize, &[Range<usize>; 2]),
    shrink: Option<&[f32; R]>,
    values: &[E],
) {
    let vectors = tile.padded_dim / LANES;
    let shrink = shrink.unwrap_or(&[1.0; R]);
    let mut at = 0;
    while at + V <= vectors {
        add_vectors::<S, E, R, V>(s, tile, (rows, at), shrink, values);
        at += V;
    }
    while at < vectors {
        add_vectors::<S, E, R, 1>(s, tile, (rows, at), shrink, values);
        at += 1;
    }
}

/// Vectors `at .. at + V` of the values.
#[inline(always)]
fn add_vectors<S: Simd, E: Element, const R: usize, const V: usize>(
    s: S,
    tile: &mut Tile<'_>,
    ((row, segments), at): ((usize, &[Range<usize>; 2]), usize),
    shrink: &[f32; R],
    values: &[E],
) {
    let padded_dim = tile.padded_dim;
    let mut acc = [[s.splat(0.0); V]; R];
    for r in 0..R {
        let sums = &tile.sums[(row + r) * padded_dim..][..padded_dim];
        let sums = &sums.as_chunks::<LANES>().0[at..at + V];
        for v in 0..V {
            acc[r][v] = s.mul(s.load(&sums[v]), s.splat(shrink[r]));
        }
    }
    for segment in segments {
        let mut weights: [&[f32]; R] = [&[]; R];
        for (r, weights) in weights.iter_mut().enumerate() {
            *weights = &tile.scores[(row + r) * tile.padded_page..][segment.clone()];
        }
        let values = &values[segment.start * padded_dim..segment.end * padded_dim];
        for (place, value) in values.chunks_exact(padded_dim).enumerate() {
            let value = &value.as_chunks::<LANES>().0[at..at + V];
            let mut lanes = [s.splat(0.0); V];
            for v in 0..V {
                lanes[v] = E::load(s, &value[v]);
            }
            for r in 0..R {
                let weight = s.splat(weights[r][place]);
                for v in 0..V {
                    acc[r][v] = s.fma(weight, lanes[v], acc[r][v]);
                }
            }
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        let sums = &mut tile.sums[(row + r) * padded_dim..][..padded_dim];
        let sums = &mut sums.as_chunks_mut::<LANES>().0[at..at + V];
        for (sum, acc) in sums.iter_mut().zip(acc) {
            s.store(*acc, sum);
        }
    }
}
