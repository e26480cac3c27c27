//! A sum of outer products of the rows of two matrices: the gradient of weights.
//!
//! ```text
//! to += aᵀ b = Σ_r a_rᵀ b_r
//! ```
//!
//! There are many rows, and the result is small. So the result is cut into tiles that stay in the second-level cache of a core.
//! Each tile reads all rows, a block at a time. The rows of `a` are transposed just before the product reads them. Only the
//! result is written to memory.

use std::mem;

use super::fold::add_column_sums;
use super::multiply::add_product;
use super::panel::Panel;
use super::parallel::{FEW_MULTIPLICATIONS, for_each, threads};
use super::transpose::transpose;
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Threads, WriteMode, call::sum};

/// The number of rows of `a` and `b` in a block.
const DEPTH: usize = 128;
/// The numbers in a tile and in its transposed block. With the block of `b` they fit a second-level cache of a megabyte in `f32`.
const TILE: usize = 5 << 15;
/// The maximum number of columns of a tile.
const WIDTH: usize = 512;
/// The minimum number of tiles per thread, unless they would have fewer than [`MIN_ROWS`].
const PER_THREAD: usize = 2;
/// The minimum number of rows of a tile. With smaller tiles, the rows that all tiles read would be read too often.
const MIN_ROWS: usize = 32;
/// The side of the squares that are transposed: several whole cache lines per row.
const SQUARE: usize = 64;

/// `to += aᵀ b`, and adds the sum of every column of `a` to its element of `sums`, if there are any.
///
/// `a`: `[depth, rows]`, `b`: `[depth, cols]`, `to`: `[rows, cols]`, `sums`: `[rows]`. The rows of `a` and `b` are contiguous.
/// The order in which an element is summed depends on the depth only.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub(super) fn add_outer_products<E: Pooled>(
    to: MatrixMut<'_, E>,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    sums: &mut [E],
) {
    let rows = to.rows();
    let depth = a.rows();
    let cols = to.cols();
    assert!(
        a.cols() == rows && b.rows() == depth && b.cols() == cols,
        "({depth} x {}) and ({} x {}) into ({rows} x {cols})",
        a.cols(),
        b.rows(),
        b.cols()
    );
    assert!(
        sums.is_empty() || sums.len() == rows,
        "{} sums of {rows} columns",
        sums.len()
    );
    if rows == 0 {
        return;
    }
    if cols == 0 {
        // There is no product, but there are sums.
        return add_sums(a, sums);
    }
    let [height, width] = tile(rows, depth, cols);
    let mut sums = sums.chunks_mut(height);
    let tiles = to.row_chunks(height).enumerate().flat_map(|(i, to)| {
        let a = a.some_cols(i * height..i * height + to.rows());
        let mut sums = sums.next().unwrap_or_default();
        let columns = to.col_chunks(width).enumerate();
        columns.map(move |(j, to)| Tile {
            a,
            b: b.some_cols(j * width..j * width + to.cols()),
            // The first tile of a row of tiles computes the sums.
            sums: mem::take(&mut sums),
            to,
        })
    });
    for_each(tiles, Tile::add);
}

/// The sums of [`add_outer_products`] alone, with the same bits.
pub(super) fn add_sums<E: Pooled>(a: Matrix<'_, E>, sums: &mut [E]) {
    let height = sums.len().div_ceil(threads()).max(MIN_ROWS);
    let parts = sums.chunks_mut(height).enumerate();
    for_each(parts, |(i, sums)| {
        let rows = sums.len();
        Tile {
            a: a.some_cols(i * height..i * height + rows),
            b: Matrix::new(&[], a.rows(), 0),
            to: MatrixMut::new(&mut [], rows, 0),
            sums,
        }
        .add();
    });
}

/// The rows and columns of a tile. The bits of the result do not depend on them: no tile has a single row of several, for which
/// [`product`] has another order of summation.
///
/// [`product`]: crate::simd::product
fn tile(rows: usize, depth: usize, cols: usize) -> [usize; 2] {
    let (width, at_once) = if rows * depth * cols <= FEW_MULTIPLICATIONS {
        (cols, 1)
    } else {
        (cols.div_ceil(cols.div_ceil(WIDTH)), PER_THREAD * threads())
    };
    let most = (TILE / (width + DEPTH)).max(MIN_ROWS);
    let pieces = rows.div_ceil(most).next_multiple_of(at_once);
    let mut height = rows.div_ceil(pieces).max(MIN_ROWS);
    while rows > 1 && rows % height == 1 {
        height += 1;
    }
    [height, width]
}

/// A part of the result, with its columns of both sides.
struct Tile<'a, E> {
    a: Matrix<'a, E>,
    b: Matrix<'a, E>,
    to: MatrixMut<'a, E>,
    sums: &'a mut [E],
}

impl<E: Pooled> Tile<'_, E> {
    fn add(self) {
        let Self { a, b, mut to, sums } = self;
        let rows = to.rows();
        let depth = a.rows();
        let mut columns = Panel::new(rows, DEPTH.min(depth));
        // The sums of each block of rows.
        let mut partial = Buffer::uninit(depth.div_ceil(DEPTH) * sums.len());
        let mut partials = partial.chunks_mut(rows);
        for first in (0..depth).step_by(DEPTH) {
            let some = first..depth.min(first + DEPTH);
            let a = a.some_rows(some.clone());
            let b = b.some_rows(some);
            let squares = columns.reshape(rows, a.rows()).row_chunks(SQUARE);
            for (i, to) in squares.enumerate() {
                transpose(a.some_cols(i * SQUARE..i * SQUARE + to.rows()), to);
            }
            let columns = columns.read();
            for (i, to) in partials.next().into_iter().flatten().enumerate() {
                *to = sum(columns.row(i));
            }
            if b.cols() > 0 {
                add_product(to.reborrow(), WriteMode::Add, columns, b, Threads::One);
            }
        }
        if !sums.is_empty() {
            add_column_sums(Matrix::new(&partial, depth.div_ceil(DEPTH), rows), sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{
        Absolute, assert_close, noise, on_every_isa, same_for_all_threads,
    };

    /// Sizes around those of vectors, squares, tiles and blocks of rows, and results of several tiles.
    const SHAPES: [[usize; 3]; 14] = [
        [0, 3, 2],
        [3, 0, 2],
        [3, 2, 0],
        [1, 1, 1],
        [2, 47, 63],
        [127, 49, 65],
        [128, 48, 64],
        [129, 65, 16],
        [257, 130, 31],
        [700, 66, 33],
        [1000, 1, 1],
        [300, 5, 1030],
        [40, 600, 513],
        [5, 2050, 3],
    ];

    fn naive(to: f64, a: Matrix<'_, f32>, b: Matrix<'_, f32>) -> Vec<f64> {
        let cols = b.cols();
        let mut sums = vec![to; a.cols() * cols];
        for r in 0..a.rows() {
            for (i, &a) in a.row(r).iter().enumerate() {
                for (j, &b) in b.row(r).iter().enumerate() {
                    sums[i * cols + j] += f64::from(a) * f64::from(b);
                }
            }
        }
        sums
    }

    #[test]
    fn outer_products_are_summed_over_all_rows() {
        on_every_isa(|isa| {
            for [depth, rows, cols] in SHAPES {
                let what = format!("{depth} rows of {rows} and {cols} on {isa}");
                // Views of columns of wider matrices.
                let a = noise(depth * (rows + 2), 1);
                let b = noise(depth * (cols + 1), 2);
                let a = Matrix::new(&a, depth, rows + 2).some_cols(1..rows + 1);
                let b = Matrix::new(&b, depth, cols + 1).some_cols(1..cols + 1);
                let mut to = vec![2.0; rows * (cols + 1)];
                let mut sums = vec![3.0; rows];
                let result = MatrixMut::strided(&mut to, rows, cols, cols + 1);
                add_outer_products(result, a, b, &mut sums);
                let result: Vec<f32> = to
                    .chunks(cols + 1)
                    .flat_map(|row| &row[..cols])
                    .copied()
                    .collect();
                // Partial sums of so much noise stay below 2 √depth, and each is rounded by at most 6e-8 of it.
                let tolerance = 6e-8 * (depth as f64 + 2.0) * (2.0 * (depth as f64).sqrt() + 3.0);
                assert_close(&what, &result, &naive(2.0, a, b), Absolute(tolerance));
                assert!(to.chunks(cols + 1).all(|row| row[cols] == 2.0), "{what}");
                let ones = vec![1.0; depth];
                let want = naive(3.0, a, Matrix::new(&ones, depth, 1));
                assert_close(&what, &sums, &want, Absolute(tolerance));
            }
        });
    }

    #[test]
    fn sums_of_many_rows_are_accurate() {
        // Sequential addition has an error of 4%.
        let depth = 1 << 20;
        let a = vec![0.1_f32; depth];
        let mut product = [0.0];
        let mut sums = [0.0];
        let column = Matrix::new(&a, depth, 1);
        add_outer_products(
            MatrixMut::new(&mut product, 1, 1),
            column,
            column,
            &mut sums,
        );
        let want = depth as f64 * f64::from(0.1_f32);
        assert!((f64::from(sums[0]) / want - 1.0).abs() < 1e-5, "{sums:?}");
    }

    /// Numbers of rows that give one, two, three and four tiles, with last tiles of any size.
    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        fn check<E: Pooled>(rows: usize) {
            let [depth, cols] = [129, 128];
            let a = noise::<E>(depth * rows, 1);
            let b = noise::<E>(depth * cols, 2);
            let a = Matrix::new(&a, depth, rows);
            let b = Matrix::new(&b, depth, cols);
            same_for_all_threads(|| {
                let mut to = vec![E::ONE; rows * cols];
                let mut sums = vec![E::ONE; rows];
                add_outer_products(MatrixMut::new(&mut to, rows, cols), a, b, &mut sums);
                (to, sums)
            });
        }
        for rows in (1..=130).chain([700, 1_288]) {
            check::<f32>(rows);
            check::<f64>(rows);
        }
    }

    #[test]
    fn all_threads_have_tiles() {
        for (threads, height) in [(1, 350), (2, 175), (8, 44)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let tile = pool.expect("a pool").install(|| tile(700, 300, 600));
            assert_eq!(tile, [height, 300], "{threads} threads");
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_tile_size() {
        let [depth, rows, cols] = [300, 700, 600];
        let a = noise::<f32>(depth * rows, 1);
        let b = noise::<f32>(depth * cols, 2);
        let a = Matrix::new(&a, depth, rows);
        let b = Matrix::new(&b, depth, cols);
        let mut whole = vec![0.0; rows * cols];
        add_outer_products(MatrixMut::new(&mut whole, rows, cols), a, b, &mut []);
        let mut column = vec![0.0; rows];
        for j in [0, 299, 300, 599] {
            column.fill(0.0);
            let to = MatrixMut::new(&mut column, rows, 1);
            add_outer_products(to, a, b.some_cols(j..j + 1), &mut []);
            let same = column
                .iter()
                .enumerate()
                .all(|(i, x)| x.to_bits() == whole[i * cols + j].to_bits());
            assert!(same, "column {j}");
        }
    }

    #[test]
    #[should_panic(expected = "3 sums of 2 columns")]
    fn the_number_of_sums_is_checked() {
        let a = Matrix::new(&[0.0; 6], 3, 2);
        let b = Matrix::new(&[0.0; 15], 3, 5);
        add_outer_products(MatrixMut::new(&mut [0.0; 10], 2, 5), a, b, &mut [0.0; 3]);
    }

    #[test]
    #[should_panic(expected = "(3 x 2) and (4 x 5) into (2 x 5)")]
    fn mismatched_shapes_are_refused() {
        let a = Matrix::new(&[0.0; 6], 3, 2);
        let b = Matrix::new(&[0.0; 20], 4, 5);
        add_outer_products(MatrixMut::new(&mut [0.0; 10], 2, 5), a, b, &mut []);
    }
}
