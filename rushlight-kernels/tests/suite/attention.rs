//! Paged attention: against the definition, across instruction sets, tiles and page types.

use half::f16;
use proptest::prelude::*;
use rushlight_kernels::naive::{self, AttentionArgs};
use rushlight_kernels::{
    AttentionScratch, AttentionShape, Columns, Elements, Isa, KernelErrorKind, Page, Queries,
    attention,
};

use crate::support::Random;

/// One head's keys and values, contiguous and in pages of both element types.
struct Cache {
    shape: AttentionShape,
    /// `[positions, head_dim]`, representable in f16.
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Whole pages; unwritten rows hold NaN.
    paged: [Vec<f32>; 2],
    paged_f16: [Vec<f16>; 2],
}

impl Cache {
    fn new(shape: AttentionShape, positions: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut rows = || -> Vec<f32> {
            let values = random.floats(positions * shape.head_dim);
            values.iter().map(|v| f16::from_f32(*v).to_f32()).collect()
        };
        let (keys, values) = (rows(), rows());
        let page = shape.page_tokens * shape.head_dim;
        let paged = [&keys, &values].map(|rows| {
            let mut pages = rows.clone();
            pages.resize(rows.len().next_multiple_of(page), f32::NAN);
            pages
        });
        let halves = |pages: &Vec<f32>| pages.iter().map(|v| f16::from_f32(*v)).collect();
        Self {
            shape,
            keys,
            values,
            paged_f16: [halves(&paged[0]), halves(&paged[1])],
            paged,
        }
    }

    /// Rows of queries for `count` positions of `group` heads, at `stride`.
    fn read(&self, isa: Isa, halves: bool, queries: &Queries<'_>) -> Vec<f32> {
        let page = self.shape.page_tokens * self.shape.head_dim;
        let pages = |i: usize| {
            let span = i * page..(i + 1) * page;
            Some(if halves {
                Page {
                    keys: Elements::F16(self.paged_f16[0].get(span.clone())?),
                    values: Elements::F16(self.paged_f16[1].get(span)?),
                }
            } else {
                Page {
                    keys: Elements::F32(self.paged[0].get(span.clone())?),
                    values: Elements::F32(self.paged[1].get(span)?),
                }
            })
        };
        let width = queries.group * self.shape.head_dim;
        let mut out = vec![f32::NAN; queries.count * width];
        let mut columns = Columns::new(&mut out, width, 0..width).expect("whole rows");
        let mut scratch = AttentionScratch::default();
        attention(
            isa,
            &self.shape,
            queries,
            &pages,
            &mut scratch,
            &mut columns,
        )
        .expect("fitting shapes");
        out
    }

    fn naive(&self, queries: &Queries<'_>) -> Vec<f32> {
        let AttentionShape {
            head_dim,
            scale,
            softcap,
            window,
            sinks,
            ..
        } = self.shape;
        let args = AttentionArgs {
            keys: &self.keys,
            values: &self.values,
            scale,
            softcap,
            window,
            sinks,
        };
        let mut out = Vec::new();
        for t in 0..queries.count {
            for g in 0..queries.group {
                let at = t * queries.stride + g * head_dim;
                let query = &queries.data[at..at + head_dim];
                out.extend(naive::attention(&args, query, queries.first_position + t));
            }
        }
        out
    }
}

fn shape(head_dim: usize, page_tokens: usize) -> AttentionShape {
    AttentionShape {
        head_dim,
        page_tokens,
        scale: 1.0 / (head_dim as f32).sqrt(),
        softcap: None,
        window: None,
        sinks: 0,
    }
}

fn queries(data: &[f32], group: usize, first: usize, count: usize) -> Queries<'_> {
    Queries {
        data,
        stride: data.len() / count,
        group,
        first_position: first,
        count,
    }
}

/// Weights sum to 1, so the error is relative to the largest value, here about 4.
fn assert_close(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(
            (got - want).abs() <= 4e-6,
            "{what} element {i}: {got} for {want}"
        );
    }
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_head_dim_and_tile_is_close_to_the_definition() {
    let dims: &[usize] = if cfg!(miri) {
        &[8, 12]
    } else {
        &[8, 16, 20, 33, 40, 64, 80, 128]
    };
    for &head_dim in dims {
        for (first, count) in [(0, 1), (0, 9), (13, 1), (13, 2), (13, 5), (30, 17)] {
            let cache = Cache::new(shape(head_dim, 16), first + count, head_dim as u64);
            for group in [1, 2, 3] {
                let mut random = Random::new(7);
                // A wider row than the heads read: the other heads of a real model.
                let data = random.floats(count * (group * head_dim + 3));
                let queries = queries(&data, group, first, count);
                let want = cache.naive(&queries);
                for isa in Isa::available() {
                    for halves in [false, true] {
                        let got = cache.read(isa, halves, &queries);
                        let what =
                            format!("{isa} f16 {halves} dim {head_dim} {first}+{count}x{group}");
                        assert_close(&got, &want, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn absent_pages_are_refused_only_where_something_sees_them() {
    let mut shape = shape(8, 4);
    shape.window = Some(5);
    shape.sinks = 1;
    let data = vec![1.0; 8];
    let rows = vec![0.5f32; 32];
    let given = Page {
        keys: Elements::F32(&rows),
        values: Elements::F32(&rows),
    };
    let mut out = vec![0.0; 8];
    let mut read = |present: &[usize], first_position| {
        let queries = Queries {
            first_position,
            ..queries(&data, 1, 0, 1)
        };
        let pages = |i: usize| present.contains(&i).then_some(given);
        let mut columns = Columns::new(&mut out, 8, 0..8).expect("whole rows");
        let mut scratch = AttentionScratch::default();
        let isa = Isa::detect();
        attention(isa, &shape, &queries, &pages, &mut scratch, &mut columns)
            .map_err(|e| e.kind().clone())
    };
    // Position 13 sees 9..=13 and 0: pages 0, 2 and 3.
    assert_eq!(read(&[0, 2, 3], 13), Ok(()));
    for missing in [0, 2, 3] {
        let present: Vec<usize> = [0, 2, 3].into_iter().filter(|p| *p != missing).collect();
        let refused = Err(KernelErrorKind::MissingPage { page: missing });
        assert_eq!(read(&present, 13), refused);
    }
}

#[test]
fn misfits_are_refused() {
    let data = vec![0.0; 16];
    let mut out = vec![0.0; 16];
    let rows = vec![0.0f32; 32];
    let mut read = |shape: AttentionShape, queries: &Queries<'_>, width: usize| {
        let mut columns = Columns::new(&mut out, 8, 0..width).expect("whole rows");
        let page = Page {
            keys: Elements::F32(&rows),
            values: Elements::F32(&rows),
        };
        let mut scratch = AttentionScratch::default();
        let isa = Isa::detect();
        attention(
            isa,
            &shape,
            queries,
            &|_| Some(page),
            &mut scratch,
            &mut columns,
        )
        .is_err()
    };
    let fitting = queries(&data, 1, 0, 2);
    assert!(!read(shape(8, 4), &fitting, 8));
    assert!(read(shape(8, 4), &fitting, 7), "narrow output");
    assert!(read(shape(8, 3), &fitting, 8), "pages of another size");
    assert!(read(shape(0, 4), &fitting, 8), "no elements");
    let window = AttentionShape {
        window: Some(0),
        ..shape(8, 4)
    };
    assert!(read(window, &fitting, 8), "a window of nothing");
    let far = Queries {
        first_position: usize::MAX,
        ..fitting
    };
    assert!(read(shape(8, 4), &far, 8), "position overflow");
    let wide = Queries {
        stride: 9,
        ..fitting
    };
    assert!(read(shape(8, 4), &wide, 8), "queries past the data");
}

/// Shapes with every option.
fn options() -> impl Strategy<Value = AttentionShape> {
    let dims = if cfg!(miri) { 8..13usize } else { 8..81 };
    let softcap = prop::option::of(1.0f32..50.0);
    let window = prop::option::of(1usize..40);
    (dims, 1usize..20, softcap, window, 0usize..12).prop_map(
        |(head_dim, page_tokens, softcap, window, sinks)| AttentionShape {
            softcap,
            window,
            sinks,
            ..shape(head_dim, page_tokens)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    /// Every option is close to the definition, and equal across instruction sets and page types.
    #[test]
    fn options_are_honoured(
        shape in options(), group in 1usize..4, first in 0usize..50, count in 1usize..20, seed: u64,
    ) {
        let cache = Cache::new(shape, first + count, seed);
        let data = Random::new(seed ^ 1).floats(count * group * shape.head_dim);
        let queries = queries(&data, group, first, count);
        let got = cache.read(Isa::SCALAR, false, &queries);
        assert_close(&got, &cache.naive(&queries), "scalar");
        for isa in Isa::available() {
            for halves in [false, true] {
                let same = cache.read(isa, halves, &queries);
                prop_assert_eq!(bits(&same), bits(&got), "{} f16 {}", isa, halves);
            }
        }
    }

    /// A query's result does not depend on the queries beside it, even where a key or value that
    /// it may not see is not a number.
    #[test]
    fn neighbours_change_nothing(
        shape in options(), group in 1usize..4, first in 0usize..50, count in 2usize..20, seed: u64,
        bad in 0usize..70,
    ) {
        let mut cache = Cache::new(shape, first + count, seed);
        let at = (bad % (first + count)) * shape.head_dim;
        for (rows, halves) in cache.paged.iter_mut().zip(&mut cache.paged_f16) {
            rows[at] = f32::NAN;
            halves[at] = f16::INFINITY;
        }
        let data = Random::new(seed ^ 1).floats(count * group * shape.head_dim);
        let width = group * shape.head_dim;
        for halves in [false, true] {
            let isa = Isa::detect();
            let together = cache.read(isa, halves, &queries(&data, group, first, count));
            for (t, query) in data.chunks(width).enumerate() {
                let alone = cache.read(isa, halves, &queries(query, group, first + t, 1));
                let shared = &together[t * width..(t + 1) * width];
                for (a, b) in alone.iter().zip(shared) {
                    prop_assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()));
                }
            }
        }
    }
}
