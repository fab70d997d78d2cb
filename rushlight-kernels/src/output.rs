//! A row-major output that several threads fill at once, each its own columns.
//!
//! `&mut [f32]` cannot be cut into column ranges, since their elements interleave. [`Columns`] is
//! that cut: a value owns `width` columns of every row, can be split like a slice, and gives each
//! row's part as an ordinary `&mut [f32]`. [`ColumnQueue`] hands disjoint ranges to whichever
//! thread asks next, without allocating.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{KernelError, expect_len};

/// Exclusive access to a range of columns of a row-major f32 matrix.
pub struct Columns<'a> {
    base: *mut f32,
    rows: usize,
    stride: usize,
    /// First column in the matrix.
    start: usize,
    /// Columns between the start of the range first given and `start`.
    first: usize,
    width: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `Columns` is a `&mut` to its elements, which no other value may touch for `'a`.
unsafe impl Send for Columns<'_> {}

impl<'a> Columns<'a> {
    /// Columns `range` of `data`, a matrix of `data.len() / stride` rows.
    ///
    /// # Errors
    /// `data` is not whole rows of `stride`, or `range` is not within a row.
    pub fn new(
        data: &'a mut [f32],
        stride: usize,
        range: Range<usize>,
    ) -> Result<Self, KernelError> {
        let rows = data.len().checked_div(stride).unwrap_or(0);
        expect_len("columns", "data", rows * stride, data.len())?;
        if range.start > range.end || range.end > stride {
            let what = "the end of the columns";
            return Err(KernelError::length("columns", what, stride, range.end));
        }
        Ok(Self {
            base: data.as_mut_ptr(),
            rows,
            stride,
            start: range.start,
            first: 0,
            width: range.end - range.start,
            borrow: PhantomData,
        })
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns held.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Columns between the range given to [`Columns::new`] and those held: for a matmul, the first
    /// output row of the weights.
    pub fn first(&self) -> usize {
        self.first
    }

    /// The first `at` columns and the others; `at` beyond the width is the width.
    pub fn split_at(self, at: usize) -> (Columns<'a>, Columns<'a>) {
        let at = at.min(self.width);
        // Both halves are cut from `self`, which is consumed here.
        (self.sub(0, at), self.sub(at, self.width - at))
    }

    /// A shorter borrow of the same columns.
    pub fn reborrow(&mut self) -> Columns<'_> {
        self.sub(0, self.width)
    }

    /// The columns held, of one row.
    ///
    /// # Panics
    /// `row` is not less than [`Columns::rows`].
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: `row < rows` and `start + width <= stride`, so this is inside the borrowed slice;
        // only `self` may touch these columns, and it is borrowed mutably.
        unsafe {
            let first = self.base.add(row * self.stride + self.start);
            std::slice::from_raw_parts_mut(first, self.width)
        }
    }

    /// Columns `offset .. offset + width` of these. Callers must not keep two overlapping ones.
    fn sub<'b>(&self, offset: usize, width: usize) -> Columns<'b> {
        Columns {
            base: self.base,
            rows: self.rows,
            stride: self.stride,
            start: self.start + offset,
            first: self.first + offset,
            width,
            borrow: PhantomData,
        }
    }
}

/// Columns that threads take turn by turn, each range once.
///
/// Which thread computes a range changes no result, so the fastest take the most.
pub struct ColumnQueue<'a> {
    all: Columns<'a>,
    chunk: usize,
    next: AtomicUsize,
}

// SAFETY: `take` gives every column to at most one caller, and nothing else reads `all`'s elements.
unsafe impl Sync for ColumnQueue<'_> {}

impl<'a> ColumnQueue<'a> {
    /// Hands out `all` in ranges of `chunk` columns (at least 1); the last may be narrower.
    pub fn new(all: Columns<'a>, chunk: usize) -> Self {
        Self {
            all,
            chunk: chunk.max(1),
            next: AtomicUsize::new(0),
        }
    }

    /// The next range, or `None` when all are taken.
    pub fn take(&self) -> Option<Columns<'_>> {
        let width = self.all.width;
        let advance = |at: usize| (at < width).then(|| at.saturating_add(self.chunk).min(width));
        // Relaxed: the counter orders nothing but itself; joining the threads publishes the data.
        let at = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance)
            .ok()?;
        Some(self.all.sub(at, self.chunk.min(width - at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_columns_are_written_by_two_threads() {
        let mut data = vec![0.0f32; 3 * 7];
        let all = Columns::new(&mut data, 7, 1..6).expect("inside");
        let (mut left, mut right) = all.split_at(2);
        assert_eq!((left.width(), right.width(), right.first()), (2, 3, 2));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|row| left.row_mut(row).fill(1.0)));
            scope.spawn(|| (0..3).for_each(|row| right.row_mut(row).fill(2.0)));
        });
        for row in data.chunks(7) {
            assert_eq!(row, [0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.0]);
        }
    }

    #[test]
    fn a_queue_gives_every_column_once() {
        let mut data = vec![0.0f32; 2 * 19];
        let queue = ColumnQueue::new(Columns::new(&mut data, 19, 0..19).expect("inside"), 4);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(mut part) = queue.take() {
                        let first = part.first();
                        for row in 0..2 {
                            for (i, v) in part.row_mut(row).iter_mut().enumerate() {
                                *v += (first + i + 1) as f32;
                            }
                        }
                    }
                });
            }
        });
        assert!(queue.take().is_none());
        for row in data.chunks(19) {
            assert!(row.iter().enumerate().all(|(i, v)| *v == (i + 1) as f32));
        }
    }

    #[test]
    fn ranges_outside_a_row_are_refused() {
        let mut data = vec![0.0f32; 8];
        assert!(Columns::new(&mut data, 4, 0..5).is_err());
        assert!(Columns::new(&mut data, 3, 0..2).is_err());
        assert!(Columns::new(&mut data, 0, 0..0).is_err());
        assert!(Columns::new(&mut [], 0, 0..0).is_ok());
    }
}
