//! The linear map of [`linear`](super::linear) and its derivative, with weights that are packed once for many products of few rows, as the
//! steps of a scan have.
//!
//! Sums are in the order of the depth. So a row of a result has the same bits whichever rows are multiplied with it.

use std::ops::Range;

use super::compiled::compiled;
use super::packed::{Pieces, STRIP, strips};
use super::parallel::{FEW_MULTIPLICATIONS, for_each, threads};
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::transpose;
use crate::simd::{Initial, Panels, TILE_ROWS, multiply_panels, tile_columns};

/// The right side of a product as panels.
#[derive(Debug)]
pub struct PackedWeights<E: Pooled> {
    numbers: Buffer<E>,
    depth: usize,
    columns: usize,
    /// The columns of a panel.
    width: usize,
}

impl<E: Pooled + PackedLinear<E>> PackedWeights<E> {
    /// The right side `Wᵀ` of `x Wᵀ`, for `w [out, in]`.
    pub fn transposed(w: Matrix<'_, E>) -> Self {
        let mut weights = Self::uninit(w.cols(), w.rows());
        pack_transposed(w, weights.width, &mut weights.numbers);
        weights
    }

    /// The right side `W` of `dy W`, for `w [out, in]`.
    pub fn new(w: Matrix<'_, E>) -> Self {
        let mut weights = Self::uninit(w.rows(), w.cols());
        pack(w, weights.width, &mut weights.numbers);
        weights
    }

    fn uninit(depth: usize, columns: usize) -> Self {
        let width = tile_columns::<E>();
        Self {
            numbers: Buffer::uninit(columns.div_ceil(width) * width * depth),
            depth,
            columns,
            width,
        }
    }

    /// The columns of the result of a product with it.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// `to = initial + x w`, where `to` is in pieces side by side.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn multiply(&self, x: Matrix<'_, E>, initial: Initial<'_, E>, to: Pieces<'_, E>) {
        let columns = to.iter().map(MatrixMut::cols).sum::<usize>();
        assert!(
            x.cols() == self.depth && columns == self.columns,
            "packed weights ({} x {}) map ({} x {}) to {to:?}",
            self.depth,
            self.columns,
            x.rows(),
            x.cols()
        );
        let panels = Panels::new(&self.numbers, self.depth, self.width);
        multiply(x, panels, initial, to);
    }
}

compiled! {
    PackedLinear:

    /// Copies `Wᵀ` to panels of so many columns, for `w [out, in]`.
    fn pack_transposed<E>(w: Matrix<'_, E>, width: usize, panels: &mut [E]) {
        copy_to_panels([w.cols(), w.rows()], width, panels, |first, to: MatrixMut<'_, E>| {
            transpose(w.some_rows(first..first + to.cols()), to);
        });
    }

    /// Copies `W` to panels of so many columns.
    fn pack<E>(w: Matrix<'_, E>, width: usize, panels: &mut [E]) {
        copy_to_panels([w.rows(), w.cols()], width, panels, |first, mut to: MatrixMut<'_, E>| {
            to.copy_from(w.some_cols(first..first + to.cols()));
        });
    }

    /// `to = initial + x w`, with strips of panels: at least one for each thread. With many rows, a strip stays in a cache while all are multiplied
    /// with it.
    #[track_caller]
    fn multiply<E>(
        x: Matrix<'_, E>,
        w: Panels<'_, E>,
        initial: Initial<'_, E>,
        to: Pieces<'_, E>,
    ) {
        let width = w.width();
        let columns = to.iter().map(MatrixMut::cols).sum::<usize>();
        let panels = columns.div_ceil(width);
        let threads = match x.rows() * x.cols() * columns <= FEW_MULTIPLICATIONS {
            true => 1,
            false => threads(),
        };
        let most = match x.rows() <= TILE_ROWS {
            true => panels,
            false => STRIP / (width * x.cols().max(1) * size_of::<E>()),
        };
        let count = panels.div_ceil(most.max(1)).next_multiple_of(threads);
        if count <= 1 {
            let mut to = to;
            return multiply_panels(&mut to, initial, x, w);
        }
        let strips = strips(to, columns, width, count.min(panels).max(1));
        for_each(strips, |(columns, mut to): (Range<usize>, Pieces<'_, E>)| {
            let some = w.behind(columns.start / width);
            let initial = initial.part(0..x.rows(), columns);
            multiply_panels(&mut to, initial, x, some);
        });
    }
}

/// Copies columns to panels. `copy` writes those from the first one of a panel on.
fn copy_to_panels<E: Pooled>(
    [depth, columns]: [usize; 2],
    width: usize,
    panels: &mut [E],
    copy: impl Fn(usize, MatrixMut<'_, E>) + Sync + Send,
) {
    let panels = panels.chunks_mut((width * depth).max(1)).enumerate();
    for_each(panels, |(index, panel): (usize, &mut [E])| {
        let first = index * width;
        let panel = MatrixMut::new(panel, depth, width);
        let (to, mut rest) = panel.split_cols(width.min(columns - first));
        // Any number behind the last column may be subnormal, which is slow.
        rest.fill(E::ZERO);
        copy(first, to);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{
        Absolute, assert_close, noise, on_every_isa, same_for_all_threads, wide,
    };

    /// `x Wᵀ + b` in two pieces, one behind the other, and `old + dy W`.
    fn both<E: Pooled + PackedLinear<E>>(
        [x, d_y]: [Matrix<'_, E>; 2],
        w: Matrix<'_, E>,
        bias: &[E],
    ) -> [Vec<E>; 2] {
        let at = w.rows() / 3;
        let mut y = [at, w.rows() - at].map(|width| vec![E::ZERO; x.rows() * width]);
        let mut d_x = vec![E::of_f64(1.0); d_y.rows() * w.cols()];
        let pieces = y.iter_mut().zip([at, w.rows() - at]);
        let pieces = pieces.map(|(y, width)| MatrixMut::new(y, x.rows(), width));
        let packed = PackedWeights::transposed(w);
        packed.multiply(x, Initial::OfColumns(bias), pieces.collect());
        let to = MatrixMut::new(&mut d_x, d_y.rows(), w.cols());
        let packed = PackedWeights::new(w);
        packed.multiply(d_y, Initial::Old, [to].into_iter().collect());
        [y.concat(), d_x]
    }

    /// Rows, inputs and outputs: around tiles, vectors and panels.
    const SHAPES: [[usize; 3]; 9] = [
        [0, 3, 2],
        [1, 1, 1],
        [2, 64, 130],
        [3, 17, 63],
        [4, 65, 64],
        [5, 0, 4],
        [7, 33, 200],
        [8, 256, 768],
        [64, 200, 300],
    ];

    #[test]
    fn products_are_those_of_the_weights() {
        on_every_isa(|_| {
            for [rows, input, outputs] in SHAPES {
                let [x, d_y, w, bias] = [
                    (rows * input, 1),
                    (rows * outputs, 2),
                    (outputs * input, 3),
                    (outputs, 4),
                ]
                .map(|(len, seed)| noise::<f32>(len, seed));
                let matrices = [
                    Matrix::new(&x, rows, input),
                    Matrix::new(&d_y, rows, outputs),
                ];
                let weights = Matrix::new(&w, outputs, input);
                let [y, d_x] = both(matrices, weights, &bias);
                let [x, d_y, w, bias] = [&x, &d_y, &w, &bias].map(|numbers| wide(numbers));
                let dot = |i: usize, o: usize| {
                    let terms = (0..input).map(|k| x[i * input + k] * w[o * input + k]);
                    bias[o] + terms.sum::<f64>()
                };
                let at = outputs / 3;
                let pieces = [0..at, at..outputs].into_iter();
                let want = pieces.flat_map(|columns| {
                    (0..rows).flat_map(move |i| columns.clone().map(move |o| (i, o)))
                });
                let want: Vec<_> = want.map(|(i, o)| dot(i, o)).collect();
                // Up to 768 products of at most 1, each rounded to 6e-8.
                assert_close("outputs", &y, &want, Absolute(5e-5));
                let want = (0..rows * input).map(|at| {
                    let (i, k) = (at / input, at % input);
                    let terms = (0..outputs).map(|o| d_y[i * outputs + o] * w[o * input + k]);
                    1.0 + terms.sum::<f64>()
                });
                assert_close("inputs", &d_x, &want.collect::<Vec<_>>(), Absolute(5e-5));
            }
        });
    }

    #[test]
    fn a_row_has_the_same_bits_alone_and_among_others() {
        on_every_isa(|_| {
            let [rows, input, outputs] = [9, 100, 150];
            let [x, d_y] =
                [(rows * input, 1), (rows * outputs, 2)].map(|(len, seed)| noise::<f32>(len, seed));
            let (w, bias) = (noise::<f32>(outputs * input, 3), noise::<f32>(outputs, 4));
            let w = Matrix::new(&w, outputs, input);
            let of = |rows: Range<usize>| {
                let x = &x[rows.start * input..rows.end * input];
                let d_y = &d_y[rows.start * outputs..rows.end * outputs];
                let matrices = [
                    Matrix::new(x, rows.len(), input),
                    Matrix::new(d_y, rows.len(), outputs),
                ];
                both(matrices, w, &bias)
            };
            let [_, all] = of(0..rows);
            for some in [0..1, 1..3, 3..6, 4..8, 2..9] {
                let [_, d_x] = of(some.clone());
                assert_eq!(d_x, all[some.start * input..some.end * input], "{some:?}");
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        for [rows, input, outputs] in [[8, 300, 390], [60, 130, 500]] {
            let [x, d_y] =
                [(rows * input, 1), (rows * outputs, 2)].map(|(len, seed)| noise::<f32>(len, seed));
            let (w, bias) = (noise::<f32>(outputs * input, 3), noise::<f32>(outputs, 4));
            let matrices = [
                Matrix::new(&x, rows, input),
                Matrix::new(&d_y, rows, outputs),
            ];
            let w = Matrix::new(&w, outputs, input);
            same_for_all_threads(|| both(matrices, w, &bias));
        }
    }

    #[test]
    #[should_panic(expected = "packed weights (2 x 4) map (1 x 2) to")]
    fn mismatched_shapes_are_refused() {
        let w = PackedWeights::transposed(Matrix::new(&[0.0; 8], 4, 2));
        let mut y = [0.0; 3];
        let y = [MatrixMut::new(&mut y, 1, 3)].into_iter().collect();
        w.multiply(Matrix::new(&[0.0; 2], 1, 2), Initial::Zero, y);
    }
}
