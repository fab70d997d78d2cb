//! Scaled dot-product attention over paged keys and values.
//!
//! # The algorithm
//! One call is one key/value head of one lane: some consecutive query positions, each with the
//! `group` query heads that read this head. Up to sixteen (position, head) rows form a tile. For
//! each page, in order of position:
//!
//! 1. scores `q·k` of the tile's rows and the page's visible keys, two rows by four keys at a time
//!    (the eight `fma` chains hide their latency, and every load is used more than once);
//! 2. scale, soft cap, then −∞ where a row may not see a key;
//! 3. per row the running maximum is raised, and what was summed so far is scaled down to it;
//! 4. weights `e^(score − maximum)` are summed, and the weighted values added.
//!
//! At the end each row is divided by its sum of weights. When a tile has enough rows, f16 pages
//! are widened once into scratch memory and shared by all rows.
//!
//! # Batch invariance
//! A row's arithmetic depends on its position and the page size alone. A score is a sum over
//! `head_dim` in eight partial sums; weights of a page are summed by their place in the page, values
//! in order of position, and pages in order. A page without visible keys is skipped, and a key that
//! a row may not see never meets that row's sums, so that not even a NaN leaks from it.

mod tile;

use std::ops::Range;

use half::f16;

use crate::error::{KernelError, KernelErrorKind, expect_len, expect_multiple};
use crate::isa::Isa;
use crate::output::Columns;
use tile::Attend;

/// What all calls of one layer share.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Elements of a head.
    pub head_dim: usize,
    /// Positions of a page.
    pub page_tokens: usize,
    /// Multiplies each score, usually `1/√head_dim`.
    pub scale: f32,
    /// `cap · tanh(score / cap)` after scaling, where given; positive.
    pub softcap: Option<f32>,
    /// Keys that a query sees, counting its own, at least 1; all up to it where `None`.
    pub window: Option<usize>,
    /// Leading keys of the sequence that are seen besides the window.
    pub sinks: usize,
}

/// Keys or values of one page and one head, `[page_tokens, head_dim]`.
#[derive(Clone, Copy, Debug)]
pub enum Elements<'a> {
    /// Four bytes each.
    F32(&'a [f32]),
    /// Two bytes each.
    F16(&'a [f16]),
}

impl Elements<'_> {
    fn len(&self) -> usize {
        match self {
            Elements::F32(v) => v.len(),
            Elements::F16(v) => v.len(),
        }
    }
}

/// One page of one key/value head. Rows past the last written position may hold anything.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// `[page_tokens, head_dim]`.
    pub keys: Elements<'a>,
    /// `[page_tokens, head_dim]`.
    pub values: Elements<'a>,
}

/// Query rows that read one key/value head.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// Head `g` of position `first_position + t` is at `t·stride + g·head_dim`.
    pub data: &'a [f32],
    /// Elements from one position to the next.
    pub stride: usize,
    /// Query heads of a position, one after another.
    pub group: usize,
    /// Position of the first query; it sees keys `0..=first_position`.
    pub first_position: usize,
    /// Positions.
    pub count: usize,
}

/// Memory that [`attention`] reuses between calls.
#[derive(Debug, Default)]
pub struct AttentionScratch {
    queries: Vec<f32>,
    sums: Vec<f32>,
    scores: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Writes what each query row reads to `out`: one row a position, columns `[group, head_dim]`.
///
/// `pages(i)` is the page of positions `i·page_tokens ..`, which may be absent where no query of
/// this call sees any of it.
///
/// # Errors
/// A dimension is zero, the queries or `out` do not fit their shape, or a visible page is absent
/// or not `[page_tokens, head_dim]`.
pub fn attention<'p>(
    isa: Isa,
    shape: &AttentionShape,
    queries: &Queries<'_>,
    pages: &dyn Fn(usize) -> Option<Page<'p>>,
    scratch: &mut AttentionScratch,
    out: &mut Columns<'_>,
) -> Result<(), KernelError> {
    check(shape, queries, out)?;
    if queries.count == 0 {
        return Ok(());
    }
    let rows = queries.count * queries.group;
    for page in 0..=(queries.first_position + queries.count - 1) / shape.page_tokens {
        if hull(shape, queries, 0..rows, page).is_empty() {
            continue;
        }
        let missing = KernelErrorKind::MissingPage { page };
        let given = pages(page).ok_or_else(|| KernelError::new("attention", missing))?;
        let expected = shape.page_tokens * shape.head_dim;
        expect_len("attention", "keys of a page", expected, given.keys.len())?;
        expect_len(
            "attention",
            "values of a page",
            expected,
            given.values.len(),
        )?;
    }
    isa.run(Attend {
        shape,
        queries,
        pages,
        scratch,
        out,
    });
    Ok(())
}

fn check(
    shape: &AttentionShape,
    queries: &Queries<'_>,
    out: &Columns<'_>,
) -> Result<(), KernelError> {
    const KERNEL: &str = "attention";
    expect_multiple(KERNEL, "head_dim", 1, shape.head_dim)?;
    expect_multiple(KERNEL, "page_tokens", 1, shape.page_tokens)?;
    expect_multiple(KERNEL, "group", 1, queries.group)?;
    expect_multiple(KERNEL, "window", 1, shape.window.unwrap_or(1))?;
    let overflow = || KernelError::too_large(KERNEL, "the queries");
    shape
        .page_tokens
        .checked_mul(shape.head_dim)
        .ok_or_else(overflow)?;
    queries
        .first_position
        .checked_add(queries.count)
        .ok_or_else(overflow)?;
    let width = queries
        .group
        .checked_mul(shape.head_dim)
        .ok_or_else(overflow)?;
    expect_len(KERNEL, "rows of out", queries.count, out.rows())?;
    expect_len(KERNEL, "columns of out", width, out.width())?;
    if queries.count == 0 {
        return Ok(());
    }
    expect_len(KERNEL, "stride", queries.stride.max(width), queries.stride)?;
    let needed = (queries.count - 1)
        .checked_mul(queries.stride)
        .and_then(|n| n.checked_add(width))
        .ok_or_else(overflow)?;
    let given = queries.data.len();
    expect_len(KERNEL, "queries", needed.max(given), given)
}

/// The keys of one page that a query at `position` sees, as places in the page: sinks, then window.
#[inline(always)]
fn visible(shape: &AttentionShape, position: usize, page: usize) -> [Range<usize>; 2] {
    let end = position + 1;
    let from = shape.window.map_or(0, |window| end.saturating_sub(window));
    let base = page * shape.page_tokens;
    let place = |at: usize| at.saturating_sub(base).min(shape.page_tokens);
    if shape.sinks >= from {
        return [0..0, 0..place(end)];
    }
    [0..place(shape.sinks), place(from)..place(end)]
}

/// The smallest range of places of a page that holds all keys seen by some of `rows`.
#[inline(always)]
fn hull(
    shape: &AttentionShape,
    queries: &Queries<'_>,
    rows: Range<usize>,
    page: usize,
) -> Range<usize> {
    // Windows of consecutive positions overlap or touch: together they are one range.
    let (first, last) = (queries.position(rows.start), queries.position(rows.end - 1));
    let from = shape
        .window
        .map_or(0, |window| (first + 1).saturating_sub(window));
    let base = page * shape.page_tokens;
    let place = |at: usize| at.saturating_sub(base).min(shape.page_tokens);
    let (sinks, end) = (place(shape.sinks.min(last + 1)), place(last + 1));
    match (sinks > 0, place(from) < end) {
        (false, false) => 0..0,
        (false, true) => place(from)..end,
        (true, false) => 0..sinks,
        (true, true) => 0..end,
    }
}

impl Queries<'_> {
    /// Position of row `row`, counting the heads of a position one after another.
    #[inline(always)]
    fn position(&self, row: usize) -> usize {
        self.first_position + row / self.group
    }
}
