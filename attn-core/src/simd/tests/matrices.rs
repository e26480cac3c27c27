//! Views and products.

use crate::simd::{Isa, Matrix, MatrixMut, Threads, WriteMode, pack_rows, product, transpose};

fn numbers(len: usize) -> Vec<f64> {
    (0..len)
        .map(|i| ((i * 37 + 11) % 101) as f64 / 50.0 - 1.0)
        .collect()
}

#[test]
fn a_part_of_a_part_is_a_part() {
    let data = numbers(7 * 11);
    let whole = Matrix::new(&data, 7, 11);
    for rows in [0..7, 2..5, 6..7, 3..3] {
        for cols in [0..11, 4..9, 10..11, 5..5] {
            let part = whole.part(rows.clone(), cols.clone());
            assert_eq!((part.rows(), part.cols()), (rows.len(), cols.len()));
            for (i, row) in rows.clone().enumerate() {
                assert_eq!(part.row(i), &data[row * 11..][cols.clone()]);
                for (j, col) in cols.clone().enumerate() {
                    assert_eq!(part.get(i, j), data[row * 11 + col]);
                    assert_eq!(part.transposed().get(j, i), data[row * 11 + col]);
                }
            }
        }
    }
}

#[test]
fn mutable_parts_cover_the_matrix_without_overlap() {
    for (rows, cols, stride) in [(7, 11, 11), (7, 11, 13), (1, 5, 5), (0, 3, 3), (3, 0, 0)] {
        for (row_chunk, col_chunk) in [(1, 1), (2, 3), (7, 11), (100, 100)] {
            let mut data = vec![0.0; rows * stride];
            let whole = MatrixMut::strided(&mut data, rows, cols, stride);
            let parts = whole
                .row_chunks(row_chunk)
                .flat_map(|part| part.col_chunks(col_chunk));
            std::thread::scope(|scope| {
                for mut part in parts {
                    scope.spawn(move || {
                        for row in 0..part.rows() {
                            part.row_mut(row).iter_mut().for_each(|x| *x += 1.0);
                        }
                    });
                }
            });
            for (i, x) in data.iter().enumerate() {
                let inside = i % stride.max(1) < cols;
                assert_eq!(*x, if inside { 1.0 } else { 0.0 }, "{rows} x {cols} at {i}");
            }
        }
    }
}

#[test]
fn written_numbers_are_read_back() {
    let mut data = vec![0.0; 6];
    let mut matrix = MatrixMut::new(&mut data, 2, 3);
    matrix.row_mut(1).copy_from_slice(&[1.0, 2.0, 3.0]);
    matrix.reborrow().row_mut(0)[2] = 4.0;
    assert_eq!(matrix.row(1), [1.0, 2.0, 3.0]);
    assert_eq!(matrix.as_ref().transposed().get(2, 0), 4.0);
    assert_eq!(matrix.as_mut_slice(), [0.0, 0.0, 4.0, 1.0, 2.0, 3.0]);
    assert!(
        MatrixMut::strided(&mut data, 0, 3, 4)
            .as_mut_slice()
            .is_empty()
    );
    assert!(
        MatrixMut::strided(&mut data, 2, 0, 0)
            .as_mut_slice()
            .is_empty()
    );
    assert_eq!(
        MatrixMut::strided(&mut data, 1, 3, 5).as_mut_slice().len(),
        3
    );
}

#[test]
#[should_panic(expected = "a matrix beyond its data")]
fn a_matrix_ends_with_its_data() {
    Matrix::strided(&numbers(10), 3, 3, 4, 1);
}

#[test]
#[should_panic(expected = "a matrix beyond its data")]
fn a_mutable_matrix_ends_with_its_data() {
    MatrixMut::strided(&mut numbers(10), 3, 3, 4);
}

/// 2^40 rows of 2^24 columns have 2^64 elements, which would wrap around to 0.
#[test]
fn sizes_that_overflow_are_refused() {
    let [rows, cols] = [1 << 40, 1 << 24];
    let fails = |f: fn(usize, usize)| assert!(std::panic::catch_unwind(|| f(rows, cols)).is_err());
    fails(|rows, cols| _ = Matrix::<f64>::new(&[], rows, cols));
    fails(|rows, cols| _ = Matrix::<f64>::strided(&[], rows, cols, 1 << 24, 1));
    fails(|rows, cols| _ = MatrixMut::<f64>::new(&mut [], rows, cols));
    fails(|rows, cols| _ = MatrixMut::<f64>::strided(&mut [], rows, cols, cols));
}

#[test]
#[should_panic(expected = "rows that overlap")]
fn mutable_rows_do_not_overlap() {
    MatrixMut::strided(&mut numbers(10), 3, 3, 2);
}

#[test]
#[should_panic(expected = "take it row by row")]
fn numbers_between_the_rows_are_not_read() {
    let mut data = numbers(10);
    MatrixMut::strided(&mut data, 2, 3, 5).as_ref();
}

#[test]
#[should_panic(expected = "3..5 of 4")]
fn parts_beyond_the_matrix_are_refused() {
    let _ = Matrix::new(&numbers(16), 4, 4).some_rows(3..5);
}

const SIZES: [usize; 6] = [0, 1, 2, 7, 33, 130];

/// Every size, every layout of the operands, into rows with and without gaps.
#[test]
fn products_agree_with_a_naive_loop() {
    for m in SIZES {
        for n in SIZES {
            for k in SIZES {
                for layout in 0..4 {
                    check_product(m, n, k, layout, WriteMode::Overwrite, Threads::One);
                }
                check_product(m, n, k, 0, WriteMode::Add, Threads::All);
            }
        }
    }
}

fn check_product(m: usize, n: usize, k: usize, layout: usize, into: WriteMode, threads: Threads) {
    let a = numbers(m * k);
    let b = numbers(k * n);
    let a = if layout & 1 == 0 {
        Matrix::new(&a, m, k)
    } else {
        Matrix::new(&a, k, m).transposed()
    };
    let b = if layout & 2 == 0 {
        Matrix::new(&b, k, n)
    } else {
        Matrix::new(&b, n, k).transposed()
    };
    let stride = n + layout;
    let before = numbers(m * stride);
    let mut to = before.clone();
    if into == WriteMode::Overwrite {
        // Old numbers that are overwritten are never read.
        (0..m).for_each(|i| to[i * stride..][..n].fill(f64::NAN));
    }
    let view = MatrixMut::strided(&mut to, m, n, stride.max(1));
    product(view, into, 0.5, a, b, threads);
    for i in 0..m {
        for j in 0..stride {
            let found = to[i * stride + j];
            let old = before[i * stride + j];
            if j >= n {
                assert_eq!(found, old, "between the rows");
                continue;
            }
            let sum: f64 = (0..k).map(|l| a.get(i, l) * b.get(l, j)).sum();
            let expected = 0.5 * sum + if into == WriteMode::Add { old } else { 0.0 };
            // At most 131 roundings of sums below 100.
            assert!(
                (found - expected).abs() < 1e-12,
                "{m} {n} {k}: {found} {expected}"
            );
        }
    }
}

#[test]
#[should_panic(expected = "(2 x 3) times (4 x 5) into (2 x 5)")]
fn mismatched_factors_are_refused() {
    let a = numbers(6);
    let b = numbers(20);
    let mut to = numbers(10);
    let to = MatrixMut::new(&mut to, 2, 5);
    let a = Matrix::new(&a, 2, 3);
    let b = Matrix::new(&b, 4, 5);
    product(to, WriteMode::Overwrite, 1.0, a, b, Threads::One);
}

/// An element depends only on its row and its column: not on the number of threads, and not on other elements.
#[test]
fn products_have_the_same_bits_for_any_number_of_threads() {
    let [m, n, k] = [300, 257, 190];
    let a = numbers(m * k);
    let b = numbers(k * n);
    let run = |threads| {
        let mut to = vec![0.0; m * n];
        let a = Matrix::new(&a, m, k);
        let b = Matrix::new(&b, k, n);
        let view = MatrixMut::new(&mut to, m, n);
        product(view, WriteMode::Overwrite, 1.0, a, b, threads);
        to
    };
    let one = run(Threads::One);
    for threads in [1, 2, 3, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let all = pool.unwrap().install(|| run(Threads::All));
        assert!(one == all, "{threads} threads");
    }
}

#[test]
fn rows_become_columns() {
    let lengths = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129];
    for isa in Isa::available() {
        for rows in lengths {
            for cols in lengths {
                let wide: Vec<f64> = (0..rows * (cols + 3)).map(|i| i as f64).collect();
                let x = Matrix::strided(&wide, rows, cols, cols + 3, 1);
                let mut to = vec![-1.0; cols * (rows + 2)];
                let view = MatrixMut::strided(&mut to, cols, rows, rows + 2);
                isa.force(|| transpose(x, view));
                for j in 0..cols {
                    for i in 0..rows {
                        let got = to[j * (rows + 2) + i];
                        assert_eq!(got, x.get(i, j), "{rows} x {cols} on {isa}");
                    }
                    assert_eq!(to[j * (rows + 2) + rows..][..2], [-1.0; 2]);
                }
            }
        }
    }
}

#[test]
fn transposing_twice_is_the_identity() {
    let rows = 300;
    let cols = 500;
    let x: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
    let mut once = vec![0.0; rows * cols];
    let mut twice = vec![0.0; rows * cols];
    transpose(
        Matrix::new(&x, rows, cols),
        MatrixMut::new(&mut once, cols, rows),
    );
    transpose(
        Matrix::new(&once, cols, rows),
        MatrixMut::new(&mut twice, rows, cols),
    );
    assert_eq!(once[1], x[cols]);
    assert_eq!(twice, x);
}

#[test]
fn panels_have_the_columns_of_a_matrix_and_zeros_behind_them() {
    for [rows, cols, stride] in [
        [0, 3, 3],
        [3, 0, 0],
        [1, 1, 1],
        [7, 16, 16],
        [9, 63, 70],
        [12, 64, 64],
        [5, 65, 80],
        [20, 200, 201],
    ] {
        let data = numbers(rows * stride);
        let x = Matrix::strided(&data, rows, cols, stride, 1);
        for width in [1, 8, 16, 24, 64, 128] {
            let count = cols.div_ceil(width);
            for isa in Isa::available() {
                let mut panels = vec![f64::NAN; count * width * rows];
                isa.force(|| pack_rows(x, width, &mut panels));
                for (index, panel) in panels.chunks((width * rows).max(1)).enumerate() {
                    for (row, numbers) in panel.chunks(width).enumerate() {
                        for (at, number) in numbers.iter().enumerate() {
                            let col = index * width + at;
                            let want = if col < cols { x.get(row, col) } else { 0.0 };
                            assert_eq!(
                                *number, want,
                                "({rows} x {cols}) in {width} on {isa}: {row}, {col}"
                            );
                        }
                    }
                }
            }
        }
    }
}
