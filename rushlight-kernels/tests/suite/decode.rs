//! Every block format against values decoded by the format's reference implementation.

use rushlight_kernels::KernelErrorKind;
use rushlight_kernels::qfmt::{Format, decode};

#[test]
fn every_lane_of_every_block_is_exact() {
    let blocks = crate::support::golden_blocks();
    for format in Format::ALL {
        let Some(golden) = blocks.iter().find(|b| b.format == format) else {
            assert_eq!(format, Format::F32, "no golden blocks of {format}");
            continue;
        };
        let mut got = vec![f32::NAN; golden.values.len()];
        decode(format, &golden.raw, &mut got).expect("golden blocks decode");
        for (lane, (got, want)) in got.iter().zip(&golden.values).enumerate() {
            assert_eq!(
                got.to_bits(),
                want.to_bits(),
                "{format} lane {lane}: {got:e} for {want:e}"
            );
        }
    }
}

#[test]
fn f32_is_a_copy() {
    let values = [0.0f32, -1.5, f32::MIN_POSITIVE, f32::INFINITY];
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut got = [9.0; 4];
    decode(Format::F32, &bytes, &mut got).expect("whole elements");
    assert_eq!(got, values);
}

#[test]
fn wrong_lengths_are_refused() {
    for format in Format::ALL {
        let lanes = 2 * format.block_len();
        let bytes = vec![0; 2 * format.block_bytes()];
        let mut out = vec![0.0; lanes];
        decode(format, &bytes, &mut out).expect("two whole blocks");
        for short in [&bytes[1..], &[][..]] {
            let error = decode(format, short, &mut out).expect_err("short input");
            assert!(matches!(error.kind(), KernelErrorKind::Length { .. }));
        }
        if format.block_len() > 1 {
            let error = decode(format, &bytes, &mut out[1..]).expect_err("not whole blocks");
            assert!(matches!(
                error.kind(),
                KernelErrorKind::NotWholeBlocks { .. }
            ));
        }
    }
}
