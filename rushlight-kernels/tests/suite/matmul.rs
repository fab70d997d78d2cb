//! Packed products: against the definition, across instruction sets, tiles and thread splits.

use proptest::prelude::*;
use rushlight_kernels::matmul::{PANEL, pack_panel, panel_bytes};
use rushlight_kernels::{
    ColumnQueue, Columns, Format, Input, Isa, KernelErrorKind, PackedMatrix, QuantizedRows, matmul,
    naive, quantize_rows,
};

use crate::support::Random;

/// A random matrix in a format's own bytes.
struct Weights {
    format: Format,
    rows: usize,
    cols: usize,
    bytes: Vec<u8>,
}

impl Weights {
    fn new(format: Format, rows: usize, cols: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = rows * cols / format.block_len();
        let bytes = crate::support::random_blocks(format, count, &mut random);
        Self {
            format,
            rows,
            cols,
            bytes,
        }
    }

    fn row(&self, i: usize) -> &[u8] {
        let width = self.bytes.len() / self.rows;
        &self.bytes[i * width..(i + 1) * width]
    }

    fn packed(&self) -> PackedMatrix {
        PackedMatrix::pack(self.format, self.rows, self.cols, |i| self.row(i))
            .expect("whole blocks")
    }
}

/// Activations of the kind that `format` takes.
enum Activations {
    F32(Vec<f32>),
    Int8(QuantizedRows),
}

impl Activations {
    fn new(isa: Isa, format: Format, x: &[f32], cols: usize) -> Self {
        if format.is_float() {
            return Activations::F32(x.to_vec());
        }
        let mut rows = QuantizedRows::new();
        quantize_rows(isa, x, cols, &mut rows).expect("whole blocks");
        Activations::Int8(rows)
    }

    fn input(&self) -> Input<'_> {
        match self {
            Activations::F32(x) => Input::F32(x),
            Activations::Int8(x) => Input::Int8(x),
        }
    }

    /// What the product really sees.
    fn seen(&self, cols: usize) -> Vec<f32> {
        match self {
            Activations::F32(x) => x.clone(),
            Activations::Int8(x) => {
                let mut out = vec![0.0; x.rows() * cols];
                for (i, row) in out.chunks_mut(cols).enumerate() {
                    x.dequantize(i, row).expect("a whole row");
                }
                out
            }
        }
    }
}

fn product(isa: Isa, weights: &Weights, x: &[f32]) -> Vec<f32> {
    let activations = Activations::new(isa, weights.format, x, weights.cols);
    let tokens = x.len() / weights.cols;
    let mut y = vec![f32::NAN; tokens * weights.rows];
    let mut columns = Columns::new(&mut y, weights.rows, 0..weights.rows).expect("whole rows");
    matmul(isa, &weights.packed(), activations.input(), &mut columns).expect("fitting shapes");
    y
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

/// Columns to try: a few blocks, an odd number of them, and for plain floats any number.
fn widths(format: Format) -> &'static [usize] {
    match format.block_len() {
        1 => &[1, 7, 8, 33],
        32 => &[32, 96],
        _ => &[256, 768],
    }
}

#[test]
fn every_format_and_shape_is_close_to_the_definition() {
    let (rows, tokens) = if cfg!(miri) {
        (1..10, 1..3)
    } else {
        (1..18, 1..10)
    };
    for format in Format::ALL {
        for &cols in widths(format) {
            for rows in rows.clone() {
                let weights = Weights::new(format, rows, cols, (rows * cols) as u64);
                let mut random = Random::new(cols as u64);
                for tokens in tokens.clone() {
                    let x = random.floats(tokens * cols);
                    close_to_definition(&weights, &x);
                }
            }
        }
    }
}

/// All arithmetic before the f32 sum is exact, so the error is that of one rounding for each block
/// or column of the terms' magnitude.
fn close_to_definition(weights: &Weights, x: &[f32]) {
    let Weights {
        format, rows, cols, ..
    } = *weights;
    let seen = Activations::new(Isa::SCALAR, format, x, cols).seen(cols);
    let want = naive::matmul(format, &weights.bytes, rows, cols, &seen).expect("whole rows");
    let magnitudes = crate::support::magnitudes(format, &weights.bytes, cols, &seen);
    for isa in Isa::available() {
        let got = product(isa, weights, x);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let tolerance = 1e-6 * magnitudes[i] + f32::MIN_POSITIVE;
            assert!(
                (got - want).abs() <= tolerance,
                "{isa} {format} {rows}x{cols} output {i}: {got:e} for {want:e} ± {tolerance:e}"
            );
        }
    }
}

#[test]
fn the_extremes_of_every_code_do_not_overflow() {
    for format in Format::ALL {
        let cols = if format.block_len() == 1 {
            32
        } else {
            format.block_len()
        };
        for fill in [0x00, 0x7f, 0x80, 0xff, 0x88, 0x77, 0xf0] {
            let mut weights = Weights::new(format, 8, cols, 1);
            crate::support::fill_codes(format, &mut weights.bytes, fill);
            for x in [1.0f32, -1.0] {
                let alternating: Vec<f32> =
                    (0..cols).map(|i| if i % 3 == 0 { -x } else { x }).collect();
                close_to_definition(&weights, &vec![x; cols]);
                close_to_definition(&weights, &alternating);
            }
        }
    }
}

#[test]
fn a_row_that_is_not_finite_gives_nan() {
    for format in Format::ALL.into_iter().filter(|f| !f.is_float()) {
        let weights = Weights::new(format, 3, 256, 5);
        let mut x = Random::new(6).floats(2 * 256);
        x[300] = f32::INFINITY;
        for isa in Isa::available() {
            let y = product(isa, &weights, &x);
            assert!(
                y[..3].iter().all(|v| v.is_finite()),
                "{isa} {format}: {y:?}"
            );
            assert!(y[3..].iter().all(|v| v.is_nan()), "{isa} {format}: {y:?}");
        }
    }
}

#[test]
fn panels_packed_one_by_one_are_the_same_matrix() {
    for format in Format::ALL {
        let weights = Weights::new(format, 11, 256, 9);
        let bytes = panel_bytes(format, 256).expect("whole blocks");
        let mut data = vec![0xaa; 2 * bytes];
        for (panel, out) in data.chunks_mut(bytes).enumerate() {
            let rows: Vec<&[u8]> = (panel * PANEL..11.min(panel * PANEL + PANEL))
                .map(|i| weights.row(i))
                .collect();
            pack_panel(format, 256, &rows, out).expect("fitting panel");
        }
        let mapped = PackedMatrix::from_packed(format, 11, 256, &data[..]).expect("two panels");
        let x = Random::new(3).floats(256);
        let activations = Activations::new(Isa::detect(), format, &x, 256);
        let mut y = vec![0.0; 11];
        let mut columns = Columns::new(&mut y, 11, 0..11).expect("whole rows");
        matmul(Isa::detect(), &mapped, activations.input(), &mut columns).expect("fits");
        assert_eq!(
            bits(&y),
            bits(&product(Isa::detect(), &weights, &x)),
            "{format}"
        );
    }
}

#[test]
fn packed_formats_are_hardly_larger_than_their_source() {
    for format in Format::ALL {
        let packed = panel_bytes(format, 4096).expect("whole blocks") as f64;
        let source = 8.0 * format.row_bytes(4096).expect("whole blocks") as f64;
        assert!(packed <= 1.05 * source, "{format}: {packed} for {source}");
    }
}

#[test]
fn misuse_is_refused() {
    let isa = Isa::detect();
    let weights = Weights::new(Format::Q4_0, 20, 64, 1);
    let packed = weights.packed();
    let x = vec![1.0; 2 * 64];
    let mut int8 = QuantizedRows::new();
    quantize_rows(isa, &x, 64, &mut int8).expect("whole blocks");
    let mut y = vec![0.0; 2 * 20];
    let mut try_columns = |range, input: Input<'_>| {
        let mut columns = Columns::new(&mut y, 20, range).expect("inside");
        matmul(isa, &packed, input, &mut columns).map_err(|e| e.kind().clone())
    };
    assert_eq!(try_columns(0..20, Input::Int8(&int8)), Ok(()));
    assert!(matches!(
        try_columns(0..20, Input::F32(&x)),
        Err(KernelErrorKind::WrongInput { .. })
    ));
    // Ends neither at a panel nor at the last row.
    assert!(matches!(
        try_columns(0..12, Input::Int8(&int8)),
        Err(KernelErrorKind::NotMultiple { .. })
    ));
    let mut narrow = QuantizedRows::new();
    quantize_rows(isa, &x, 32, &mut narrow).expect("whole blocks");
    assert!(matches!(
        try_columns(0..20, Input::Int8(&narrow)),
        Err(KernelErrorKind::Length { .. })
    ));
    let short = PackedMatrix::from_packed(Format::Q4_0, 20, 64, vec![0u8; 5]);
    assert!(short.is_err());
    let odd = PackedMatrix::pack(Format::Q4_0, 1, 33, |_| &[]);
    assert!(matches!(
        odd.map_err(|e| e.kind().clone()),
        Err(KernelErrorKind::NotWholeBlocks { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]

    /// Scalar and vector code do the same arithmetic: equal to the last bit.
    #[test]
    fn instruction_sets_agree(
        format in 0..Format::ALL.len(), rows in 1usize..18, tokens in 1usize..10, blocks in 1usize..4,
        seed: u64,
    ) {
        let format = Format::ALL[format];
        let cols = blocks * format.block_len().max(13);
        let weights = Weights::new(format, rows, cols, seed);
        let x = Random::new(seed ^ 1).floats(tokens * cols);
        let want = bits(&product(Isa::SCALAR, &weights, &x));
        for isa in Isa::available() {
            prop_assert_eq!(&bits(&product(isa, &weights, &x)), &want, "{} {}", isa, format);
        }
    }

    /// A token's outputs do not depend on the tokens beside it, nor on how panels are shared out.
    #[test]
    fn batches_and_splits_change_nothing(
        format in 0..Format::ALL.len(), rows in 1usize..40, tokens in 1usize..20, chunk in 1usize..4,
        seed: u64,
    ) {
        let format = Format::ALL[format];
        let cols = format.block_len().max(24);
        let isa = Isa::detect();
        let weights = Weights::new(format, rows, cols, seed);
        let x = Random::new(seed ^ 1).floats(tokens * cols);
        let mut alone = Vec::new();
        for token in x.chunks(cols) {
            alone.extend(bits(&product(isa, &weights, token)));
        }
        let packed = weights.packed();
        let activations = Activations::new(isa, format, &x, cols);
        // The matrix is part of a wider output, as when several products share one buffer.
        let stride = rows + 5;
        let mut y = vec![-7.0; tokens * stride];
        let queue = ColumnQueue::new(
            Columns::new(&mut y, stride, 2..2 + rows).expect("inside"),
            chunk * PANEL,
        );
        while let Some(mut part) = queue.take() {
            matmul(isa, &packed, activations.input(), &mut part).expect("whole panels");
        }
        let mut shared = Vec::new();
        for row in y.chunks(stride) {
            prop_assert!(row[..2].iter().chain(&row[2 + rows..]).all(|v| *v == -7.0));
            shared.extend(bits(&row[2..2 + rows]));
        }
        prop_assert_eq!(shared, alone, "{}", format);
    }
}
