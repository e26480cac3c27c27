//! The linear map of [`linear`] whose outputs are in several matrices of one width, and matrices side by side.

use smallvec::SmallVec;

use super::compiled::compiled;
use super::linear::{self, FEW_ROWS, blocks};
use super::multiply::Start;
use super::parallel::for_each;
use super::{Dtype, Matrix, MatrixMut};
use crate::simd::dots_of_rows;

/// The matrices of a few parts.
pub type Parts<'a, E> = SmallVec<[MatrixMut<'a, E>; 4]>;

compiled! {
    LinearParts:

    /// `y = x Wᵀ + b`, for `x [n, in]`, `w [outputs, in]`, `bias [outputs]` and parts of `y`, each of them `[n, outputs / parts]`. The bits are
    /// those of [`linear::forward`] with the weights of each part.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward<E>(
        x: Matrix<'_, E>,
        w: Matrix<'_, E>,
        bias: Option<&[E]>,
        y: Parts<'_, E>,
        dtype: Dtype,
    ) {
        let width = w.rows() / y.len().max(1);
        let fits = |y: &MatrixMut<'_, E>| y.rows() == x.rows() && y.cols() == width;
        assert!(
            x.cols() == w.cols()
                && w.rows() == width * y.len()
                && y.iter().all(fits)
                && bias.is_none_or(|bias| bias.len() == w.rows()),
            "weights ({} x {}) map ({} x {}) to {y:?}",
            w.rows(),
            w.cols(),
            x.rows(),
            x.cols()
        );
        let parts = y.into_iter().enumerate().map(|(part, y)| (part * width, y));
        if x.rows() >= FEW_ROWS || dtype == Dtype::Bf16 {
            return parts.for_each(|(first, y)| {
                let outputs = first..first + y.cols();
                let bias = bias.map(|bias| &bias[outputs.clone()]);
                linear::forward(x, w.some_rows(outputs), bias, y, dtype);
            });
        }
        // Every thread has a block of each part.
        let each = width.div_ceil(blocks(x, w)).max(1);
        let blocks = parts.flat_map(|(first, y)| {
            let blocks = y.col_chunks(each).enumerate();
            blocks.map(move |(index, y)| (first + index * each, y))
        });
        for_each(blocks, |(first, mut y): (usize, MatrixMut<'_, E>)| {
            let outputs = first..first + y.cols();
            let start = Start::bias(bias).of_cols(outputs.clone());
            let into = start.write(y.reborrow());
            dots_of_rows(y, into, x, w.some_rows(outputs));
        });
    }
}

/// Copies matrices of one width to the columns of one. A part that is not there is 0.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn join_columns<E: super::Real, const N: usize>(
    parts: [Option<Matrix<'_, E>>; N],
    mut to: MatrixMut<'_, E>,
) {
    let width = to.cols() / N;
    let fits = |part: &Matrix<'_, E>| part.rows() == to.rows() && part.cols() == width;
    assert!(
        to.cols() == width * N && parts.iter().flatten().all(fits),
        "{N} matrices of one width beside each other are {to:?}"
    );
    for row in 0..to.rows() {
        for (part, to) in parts.iter().zip(to.row_mut(row).chunks_mut(width.max(1))) {
            match part {
                Some(part) => to.copy_from_slice(part.row(row)),
                None => to.fill(E::ZERO),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{noise, on_every_isa, same_for_all_threads};

    /// Three parts, one behind the other.
    fn in_parts(
        x: Matrix<'_, f32>,
        w: Matrix<'_, f32>,
        bias: Option<&[f32]>,
        dtype: Dtype,
    ) -> Vec<f32> {
        let [rows, width] = [x.rows(), w.rows() / 3];
        let mut y = [(); 3].map(|()| vec![f32::NAN; rows * width]);
        let parts = y.iter_mut().map(|y| MatrixMut::new(y, rows, width));
        forward(x, w, bias, parts.collect(), dtype);
        y.concat()
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        for rows in [8, 60] {
            let (x, w) = (noise::<f32>(rows * 300, 1), noise::<f32>(3 * 130 * 300, 2));
            let [x, w] = [Matrix::new(&x, rows, 300), Matrix::new(&w, 390, 300)];
            for dtype in [Dtype::Model, Dtype::Bf16] {
                same_for_all_threads(|| in_parts(x, w, None, dtype));
            }
        }
    }

    #[test]
    fn parts_are_the_columns_of_the_whole() {
        on_every_isa(|_| {
            for [rows, input, width] in [[0, 3, 2], [3, 5, 7], [8, 64, 96], [60, 33, 17], [4, 9, 0]]
            {
                let [x, w, bias] = [(rows * input, 1), (3 * width * input, 2), (3 * width, 3)]
                    .map(|(len, seed)| noise::<f32>(len, seed));
                let x = Matrix::new(&x, rows, input);
                let w = Matrix::new(&w, 3 * width, input);
                for (bias, dtype) in [
                    (None, Dtype::Model),
                    (Some(&bias[..]), Dtype::Model),
                    (Some(&bias[..]), Dtype::Bf16),
                ] {
                    let mut want = vec![f32::NAN; 3 * rows * width];
                    for (part, want) in want.chunks_mut((rows * width).max(1)).enumerate() {
                        let outputs = part * width..(part + 1) * width;
                        let bias = bias.map(|bias| &bias[outputs.clone()]);
                        let want = MatrixMut::new(want, rows, width);
                        linear::forward(x, w.some_rows(outputs), bias, want, dtype);
                    }
                    let got = in_parts(x, w, bias, dtype);
                    assert_eq!(got, want, "{rows} rows of {input} to 3 x {width}");
                    let columns = |part: usize| {
                        let each = rows * width;
                        Some(Matrix::new(&got[part * each..][..each], rows, width))
                    };
                    let mut joined = vec![f32::NAN; 3 * rows * width];
                    let to = MatrixMut::new(&mut joined, rows, 3 * width);
                    join_columns([columns(0), None, columns(2)], to);
                    let joined = Matrix::new(&joined, rows, 3 * width);
                    for row in 0..rows {
                        let row_of = |part: usize| &got[(part * rows + row) * width..][..width];
                        let zeros = vec![0.0; width];
                        assert_eq!(joined.row(row), [row_of(0), &zeros, row_of(2)].concat());
                    }
                }
            }
        });
    }

    #[test]
    #[should_panic(expected = "weights (4 x 2) map (1 x 2) to")]
    fn mismatched_shapes_are_refused() {
        let x = Matrix::new(&[0.0; 2], 1, 2);
        let w = Matrix::new(&[0.0; 8], 4, 2);
        let (mut a, mut b) = ([0.0; 2], [0.0; 1]);
        let y = [MatrixMut::new(&mut a, 1, 2), MatrixMut::new(&mut b, 1, 1)];
        forward(x, w, None, y.into_iter().collect(), Dtype::Model);
    }
}
