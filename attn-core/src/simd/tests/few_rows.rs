//! Products of few rows.

use crate::simd::{Isa, Matrix, MatrixMut, Real, WriteMode, dots_of_rows};

fn numbers<E: Real>(len: usize, step: usize) -> Vec<E> {
    let number = |i: usize| E::of_f64(((i * step + 11) % 101) as f64 / 50.0 - 1.0);
    (0..len).map(number).collect()
}

/// Rows around those of tiles, columns around those of tiles and blocks, and depths around vectors.
fn check<E: Real + Into<f64>>(tolerance: f64) {
    for isa in Isa::available() {
        for m in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13] {
            for k in [0, 1, 3, 8, 15, 16, 17, 32, 70] {
                for n in [0, 1, 2, 5, 6, 8, 17, 31] {
                    isa.force(|| check_shape::<E>(m, k, n, tolerance));
                }
            }
        }
        isa.force(|| check_shape::<E>(5, 3000, 50, 40.0 * tolerance));
    }
}

/// Both modes, on columns of wider matrices, into rows with gaps.
fn check_shape<E: Real + Into<f64>>(m: usize, k: usize, n: usize, tolerance: f64) {
    let a = numbers::<E>(m * (k + 3), 37);
    let b = numbers::<E>(n * (k + 1), 59);
    let a = Matrix::new(&a, m, k + 3).some_cols(2..k + 2);
    let b = Matrix::new(&b, n, k + 1).some_cols(1..k + 1);
    for (into, before) in [(WriteMode::Overwrite, E::NAN), (WriteMode::Add, E::TWO)] {
        let mut to = vec![before; m * (n + 1)];
        dots_of_rows(MatrixMut::strided(&mut to, m, n, n + 1), into, a, b);
        for i in 0..m {
            let product = |j, l| -> f64 {
                let (a, b): (f64, f64) = (a.get(i, l).into(), b.get(j, l).into());
                a * b
            };
            for j in 0..n {
                let old = if into == WriteMode::Add { 2.0 } else { 0.0 };
                let want: f64 = old + (0..k).map(|l| product(j, l)).sum::<f64>();
                let found = to[i * (n + 1) + j];
                let error = (Into::<f64>::into(found) - want).abs();
                assert!(error <= tolerance, "{m} {k} {n}: {found:?} for {want}");
                // The others do not matter.
                let mut alone = [before];
                let place = MatrixMut::new(&mut alone, 1, 1);
                dots_of_rows(place, into, a.some_rows(i..i + 1), b.some_rows(j..j + 1));
                assert!(alone[0] == found, "{m} {k} {n}: {found:?} at {i}, {j}");
            }
            let margin: f64 = to[i * (n + 1) + n].into();
            let untouched: f64 = before.into();
            assert_eq!(margin.to_bits(), untouched.to_bits(), "between the rows");
        }
    }
}

/// Up to 70 products of at most 1, each sum rounded to 6e-8 of at most 70.
#[test]
fn dots_of_rows_are_sums_of_products() {
    check::<f32>(70.0 * 70.0 * 6e-8);
}

/// The same, rounded to 1.2e-16.
#[test]
fn dots_of_rows_are_sums_of_products_in_f64() {
    check::<f64>(70.0 * 70.0 * 1.2e-16);
}

#[test]
#[should_panic(expected = "the dots of (2 x 3) and (5 x 4) into (2 x 5)")]
fn rows_of_different_lengths_are_refused() {
    let [a, b] = [6, 20].map(|len| numbers::<f64>(len, 1));
    let mut to = [0.0; 10];
    let to = MatrixMut::new(&mut to, 2, 5);
    let [a, b] = [Matrix::new(&a, 2, 3), Matrix::new(&b, 5, 4)];
    dots_of_rows(to, WriteMode::Add, a, b);
}

#[test]
#[should_panic(expected = "no such row")]
fn rows_with_gaps_are_refused() {
    let [a, b] = [6, 15].map(|len| numbers::<f64>(len, 1));
    let mut to = [0.0; 10];
    let to = MatrixMut::new(&mut to, 2, 5);
    let (a, b) = (Matrix::new(&a, 3, 2).transposed(), Matrix::new(&b, 5, 3));
    dots_of_rows(to, WriteMode::Add, a, b);
}
