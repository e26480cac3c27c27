//! Products with rounded weights against plain loops over the same rounded numbers.

use super::*;
use crate::kernel::bf16::nearest;
use crate::kernel::testing::{
    Absolute, LENGTHS, assert_close, noise, on_every_isa, same_for_all_threads, wide,
};
use crate::simd::{Isa, widened};

const FORMATS: [WeightFormat; 2] = [WeightFormat::Int8, WeightFormat::Bf16];

fn map(x: Matrix<'_, f32>, w: &QuantizedMatrix, bias: Option<&[f32]>, parts: usize) -> Vec<f32> {
    let width = w.extents()[0] / parts;
    let mut y = vec![vec![f32::NAN; x.rows() * width]; parts];
    let to = y.iter_mut().map(|y| MatrixMut::new(y, x.rows(), width));
    forward(x, w.into(), bias, to.collect());
    y.concat()
}

/// The weights in the format, row by row, by its definition.
fn rounded(w: &[f32], cols: usize, format: WeightFormat) -> Vec<f64> {
    let rows = w.chunks(cols.max(1));
    let rows = rows.flat_map(|row| match format {
        WeightFormat::Bf16 => row.iter().map(|w| widened(nearest(*w)).into()).collect(),
        WeightFormat::Int8 => {
            let largest = row.iter().fold(0.0, |a: f32, w| a.max(w.abs()));
            // 17 bits, rounded up.
            let scale = f64::from(largest / 127.0);
            let last = (scale.log2().floor() - 16.0).exp2();
            let scale = (scale / last).ceil() * last;
            let q = row.iter().map(|w| (f64::from(*w) / scale).round() * scale);
            q.collect::<Vec<f64>>()
        }
    });
    rows.collect()
}

/// A row of inputs as it is multiplied: in bf16, and for int8 in 16 bits, which are rounded in `f32`.
fn rounded_row(x: &[f32], format: WeightFormat) -> Vec<f64> {
    let scale = x.iter().fold(0.0, |a: f32, x| a.max(x.abs())) / 32639.0;
    let round = |x: &f32| match format {
        WeightFormat::Int8 if scale > 0.0 => {
            f64::from((x * (1.0 / scale)).round_ties_even()) * f64::from(scale)
        }
        WeightFormat::Int8 => f64::from(*x),
        WeightFormat::Bf16 => widened(nearest(*x)).into(),
    };
    x.iter().map(round).collect()
}

#[test]
fn products_are_those_of_the_rounded_numbers() {
    let mut outputs = LENGTHS.into_iter().cycle();
    for n in [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 33] {
        for width in LENGTHS {
            // Columns of wider matrices.
            let out = outputs.next().unwrap_or_default();
            let x = noise::<f32>(n * (width + 3), 1);
            let w = noise::<f32>(out * width, 2);
            let bias = noise::<f32>(out, 3);
            let x = Matrix::new(&x, n, width + 3).some_cols(2..width + 2);
            for format in FORMATS {
                let (quantized, _) = quantize(Matrix::new(&w, out, width), format);
                let exact = rounded(&w, width, format);
                let mut want = Vec::new();
                for i in 0..n {
                    let x = rounded_row(x.row(i), format);
                    for o in 0..out {
                        let w = &exact[o * width..][..width];
                        let dot: f64 = x.iter().zip(w).map(|(x, w)| x * w).sum();
                        want.push(dot + f64::from(bias[o]));
                    }
                }
                let got = map(x, &quantized, Some(&bias), 1);
                // Sums of up to 129 products of at most 1, rounded to 6e-8 of 25.
                let what = format!("{format:?}: {n} rows, {width} to {out}");
                assert_close(what, &got, &want, Absolute(1e-5));
            }
        }
    }
}

/// Whether sums have another order than on the other instruction sets: those of numbers in bf16 with tiles.
fn has_other_bits(format: WeightFormat, isa: Isa) -> bool {
    format == WeightFormat::Bf16 && isa == Isa::Amx
}

#[test]
fn results_have_the_same_bits_on_every_instruction_set_and_for_any_rows_beside() {
    let (width, out, all_rows) = (301, 200, 53);
    let x = noise::<f32>(all_rows * width, 1);
    let w = noise::<f32>(out * width, 2);
    let bias = noise::<f32>(out, 3);
    for format in FORMATS {
        let (w, _) = quantize(Matrix::new(&w, out, width), format);
        let of_all = || map(Matrix::new(&x, all_rows, width), &w, Some(&bias), 1);
        let of_scalar = Isa::Scalar.force(of_all);
        on_every_isa(|isa| {
            let all = match has_other_bits(format, isa) {
                true => of_all(),
                false => of_scalar.clone(),
            };
            for rows in [1, 2, 3, 5, 8, 17, 53] {
                for first in (0..=all_rows - rows).step_by(3) {
                    let x = Matrix::new(&x, all_rows, width).some_rows(first..first + rows);
                    let want = &all[first * out..][..rows * out];
                    let is_same = map(x, &w, Some(&bias), 1) == want;
                    assert!(is_same, "{format:?}, {rows} rows on {isa}");
                }
            }
        });
    }
}

/// Products of about 2^-124, whose sums are subnormal in the beginning: in bf16 these become 0.
#[test]
fn results_of_small_numbers_have_the_same_bits_on_every_instruction_set() {
    let (width, out, rows) = (70, 100, 9);
    let small = |len: usize, seed: u64| -> Vec<f32> {
        let numbers = noise::<f32>(len, seed).into_iter();
        numbers.map(|x| x * 2_f32.powi(-62)).collect()
    };
    let (x, w) = (small(rows * width, 1), small(out * width, 2));
    for format in FORMATS {
        let (w, _) = quantize(Matrix::new(&w, out, width), format);
        for rows in [1, rows] {
            let x = Matrix::new(&x[..rows * width], rows, width);
            let of_isa = |isa: Isa| isa.force(|| map(x, &w, None, 1));
            let want = of_isa(Isa::Scalar);
            assert!(want.iter().any(|y| *y != 0.0), "{format:?}");
            for isa in Isa::available().filter(|isa| !has_other_bits(format, *isa)) {
                assert_eq!(of_isa(isa), want, "{format:?}, {rows} rows on {isa}");
            }
        }
    }
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    for format in FORMATS {
        // Threads divide the columns, or the rows, of which they multiply some at a time.
        for (rows, out) in [(1, 2100), (3, 2100), (50, 2100), (75, 210), (431, 210)] {
            let width = 500;
            let (x, w) = (noise::<f32>(rows * width, 1), noise::<f32>(out * width, 2));
            let (w, _) = quantize(Matrix::new(&w, out, width), format);
            let x = Matrix::new(&x, rows, width);
            same_for_all_threads(|| (map(x, &w, None, 1), map(x, &w, None, 3)));
        }
    }
}

#[test]
fn parts_are_the_columns_of_the_whole() {
    on_every_isa(|isa| {
        for format in FORMATS {
            for (rows, each) in [(1, 1), (2, 33), (3, 64), (50, 70)] {
                let (x, w) = (noise::<f32>(rows * 50, 1), noise::<f32>(3 * each * 50, 2));
                let bias = noise::<f32>(3 * each, 3);
                let (w, _) = quantize(Matrix::new(&w, 3 * each, 50), format);
                let x = Matrix::new(&x, rows, 50);
                let whole = map(x, &w, Some(&bias), 1);
                let parts = map(x, &w, Some(&bias), 3);
                for (part, parts) in parts.chunks(rows * each).enumerate() {
                    for (whole, parts) in whole.chunks(3 * each).zip(parts.chunks(each)) {
                        assert_eq!(
                            parts,
                            &whole[part * each..][..each],
                            "{format:?} {rows} x {each} on {isa}"
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn some_rows_of_a_matrix_are_a_matrix() {
    on_every_isa(|isa| {
        for format in FORMATS {
            for rows in [3, 50] {
                let (x, w) = (noise::<f32>(rows * 50, 1), noise::<f32>(90 * 50, 2));
                let bias = noise::<f32>(90, 3);
                let (w, _) = quantize(Matrix::new(&w, 90, 50), format);
                let x = Matrix::new(&x, rows, 50);
                let whole = map(x, &w, Some(&bias), 1);
                for some in [0..90, 30..60, 7..8, 88..90, 5..5] {
                    let mut y = vec![f32::NAN; rows * some.len()];
                    let to = MatrixMut::new(&mut y, rows, some.len());
                    let to = [to].into_iter().collect();
                    forward(x, w.some_rows(some.clone()), Some(&bias[some.clone()]), to);
                    let want = whole.chunks(90).flat_map(|row| row[some.clone()].to_vec());
                    assert_eq!(y, want.collect::<Vec<_>>(), "{format:?} {some:?} on {isa}");
                }
            }
        }
    });
}

#[test]
fn rows_are_those_of_the_rounded_matrix_and_round_to_themselves() {
    for format in FORMATS {
        for (rows, cols) in [(1, 1), (17, 5), (40, 130)] {
            let w = noise::<f32>(rows * cols, 7);
            let (quantized, _) = quantize(Matrix::new(&w, rows, cols), format);
            let want = rounded(&w, cols, format);
            let ids: Vec<usize> = (0..2 * rows).map(|i| (7 * i + 3) % rows).collect();
            let mut got = vec![f32::NAN; ids.len() * cols];
            copy_rows(&quantized, &ids, MatrixMut::new(&mut got, ids.len(), cols));
            for (id, got) in ids.iter().zip(got.chunks(cols)) {
                assert_eq!(wide(got), &want[id * cols..][..cols], "{format:?}");
            }
            let (again, errors) = quantize(Matrix::new(&got, ids.len(), cols), format);
            assert!(errors.iter().all(|error| *error == 0.0), "{format:?}");
            let mut same = vec![f32::NAN; got.len()];
            let all: Vec<usize> = (0..ids.len()).collect();
            copy_rows(&again, &all, MatrixMut::new(&mut same, ids.len(), cols));
            assert_eq!(same, got, "{format:?}");
        }
    }
}

/// There is none in the memory of a whole panel either.
#[test]
fn a_row_that_there_is_not_is_refused() {
    for format in FORMATS {
        let (w, _) = quantize(Matrix::new(&[1.0_f32; 15], 5, 3), format);
        for (row, is_refused) in [(4, false), (5, true), (16, true)] {
            let mut to = [0.0_f32; 3];
            let copy = || copy_rows(&w, &[row], MatrixMut::new(&mut to, 1, 3));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(copy));
            assert_eq!(result.is_err(), is_refused, "{format:?}: {row}");
        }
    }
}

#[test]
fn numbers_of_another_shape_are_refused() {
    let of = |format, scales: usize, bytes: usize| {
        std::panic::catch_unwind(|| {
            QuantizedMatrix::of_bytes(format, [5, 3], vec![1.0; scales], vec![0; bytes])
        })
    };
    assert!(of(WeightFormat::Int8, 5, 15).is_ok());
    assert!(of(WeightFormat::Int8, 3, 9).is_err());
    assert!(of(WeightFormat::Int8, 5, 14).is_err());
    assert!(of(WeightFormat::Bf16, 0, 30).is_ok());
    assert!(of(WeightFormat::Bf16, 0, 31).is_err());
    assert!(of(WeightFormat::Bf16, 0, 28).is_err());
}

#[test]
fn what_is_not_finite_reaches_the_results_that_read_it_and_no_others() {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for format in FORMATS {
        for number in special {
            let (mut x, mut w) = (noise::<f32>(3 * 40, 1), noise::<f32>(50 * 40, 2));
            x[40 + 7] = number;
            w[20 * 40 + 3] = number;
            let (w, errors) = quantize(Matrix::new(&w, 50, 40), format);
            let y = map(Matrix::new(&x, 3, 40), &w, None, 1);
            for (i, y) in y.iter().enumerate() {
                let reads = i / 50 == 1 || i % 50 == 20;
                assert_eq!(y.is_finite(), !reads, "{format:?} {number}: {i}");
            }
            assert!(errors[20].is_nan() && errors[19] < 0.05);
        }
    }
}

#[test]
fn rows_without_numbers_are_mapped_to_the_bias() {
    let bias = [1.0, 2.0];
    for format in FORMATS {
        // A thread keeps the memory of its last product.
        let (w, _) = quantize(Matrix::new(&[1.0_f32; 6], 2, 3), format);
        map(Matrix::new(&[f32::NAN; 3], 1, 3), &w, Some(&bias), 1);
        let (w, _) = quantize(Matrix::<f32>::new(&[], 2, 0), format);
        let y = map(Matrix::new(&[], 1, 0), &w, Some(&bias), 1);
        assert_eq!(y, bias, "{format:?}");
    }
}

#[test]
fn zeros_and_numbers_of_any_size_are_mapped() {
    for scale in [0.0, 1e-40, 1e-30, 1e30] {
        let x: Vec<f32> = noise(2 * 30, 1);
        let x: Vec<f32> = x.iter().map(|x: &f32| x * scale).collect();
        let w = noise::<f32>(20 * 30, 2);
        for format in FORMATS {
            let (w, _) = quantize(Matrix::new(&w, 20, 30), format);
            let y = map(Matrix::new(&x, 2, 30), &w, None, 1);
            let most = y.iter().fold(0.0, |a: f32, y| a.max(y.abs()));
            assert!(
                most <= 30.0 * scale && y.iter().all(|y| y.is_finite()),
                "{format:?} {scale}"
            );
            assert!(scale < 1e-35 || most > scale, "{format:?} {scale}");
        }
    }
}

#[test]
fn the_error_of_a_row_is_large_where_one_number_is() {
    let mut w = noise::<f32>(3 * 1000, 5);
    w[1500] = 100.0;
    let (_, errors) = quantize(Matrix::new(&w, 3, 1000), WeightFormat::Int8);
    assert!(errors[0] < 0.01 && errors[2] < 0.01, "{errors:?}");
    // Noise of ±1 is a quarter of the row's norm of 102, and is rounded to multiples of 0.8.
    assert!(errors[1] > 0.05, "{errors:?}");
    let want = f64::from(100.0_f32 / 127.0);
    let missing: f64 = (0..1000)
        .map(|i| f64::from(w[1000 + i]) / want)
        .map(|x| (x - x.round()).powi(2))
        .sum();
    let all: f64 = (0..1000).map(|i| f64::from(w[1000 + i]).powi(2)).sum();
    let relative = missing.sqrt() * want / all.sqrt();
    assert!(
        (f64::from(errors[1]) / relative - 1.0).abs() < 1e-3,
        "{errors:?} {relative}"
    );
}

#[test]
fn weights_take_a_quarter_or_half_of_the_bytes() {
    let w = noise::<f32>(768 * 768, 5);
    let of = |format| quantize(Matrix::new(&w, 768, 768), format).0.bytes() as f64;
    let all = (4 * w.len()) as f64;
    assert!(of(WeightFormat::Int8) / all < 0.252);
    assert_eq!(of(WeightFormat::Bf16) / all, 0.5);
}
