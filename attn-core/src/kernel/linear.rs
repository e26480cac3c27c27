//! The linear map `y = x Wᵀ + b` on the rows of a matrix, and its derivative.
//!
//! The weights are stored as `[out, in]`, as in PyTorch: this is `torch.nn.functional.linear(x, w, b)`. The gradients, from the
//! gradient `dy` of the output, are
//!
//! ```text
//! dx = dy W        dW = dyᵀ x        db = Σ rows of dy
//! ```
//!
//! The matrices may be columns of wider ones: a row must be contiguous, and rows may have any stride.
//!
//! With [`Dtype::Bf16`], both operands of each of the three products are rounded. `b` and `db` are not.

use super::compiled::compiled;
use super::multiply::{Start, multiply};
use super::outer_products::{column_sums, outer_products};
use super::packed::{Transposed, multiply_packed};
use super::parallel::{SMALL, for_each, threads};
use super::rounded::multiply_rounded;
use super::{Dtype, Matrix, MatrixMut, Pooled};
use crate::simd::{Initial, WriteMode, dots_of_rows};

/// With fewer rows than this, the weights are read where they stand. For more rows, copying them costs less than it saves. Measured on a Zen 5 with AVX-512, for weights from 256 x 768 to 1024 x 4096: with 8 rows the copy takes 2 to
/// 4 times as long, with 48 rows 1.1 to 1.3 times, with 64 rows 1.1 times.
pub(super) const FEW_ROWS: usize = 48;

/// The multiplications that are worth a thread: about three microseconds.
const SHARE: usize = 16 * SMALL;

/// Reading a number of the weights takes as long as multiplying it with so many rows.
const ROWS_PER_READ: usize = 4;

compiled! {
    Linear:

    /// `y = x Wᵀ + b`, for `x [n, in]`, `w [out, in]`, `bias [out]` and `y [n, out]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward<E>(
        x: Matrix<'_, E>,
        w: Matrix<'_, E>,
        bias: Option<&[E]>,
        y: MatrixMut<'_, E>,
        dtype: Dtype,
    ) {
        assert!(
            x.rows() == y.rows() && x.cols() == w.cols() && w.rows() == y.cols(),
            "weights ({} x {}) map ({} x {}) to ({} x {})",
            w.rows(),
            w.cols(),
            x.rows(),
            x.cols(),
            y.rows(),
            y.cols()
        );
        assert!(
            bias.is_none_or(|bias| bias.len() == y.cols()),
            "one bias per output"
        );
        let initial = bias.map_or(Initial::Zero, Initial::OfColumns);
        match dtype {
            Dtype::Bf16 => multiply_rounded([y], initial, x, &Transposed(w), &mut []),
            Dtype::Model if x.rows() < FEW_ROWS => multiply_rows(x, w, Start::bias(bias), y),
            Dtype::Model => multiply_packed([y], initial, x, &Transposed(w)),
        }
    }

    /// `dx = dy W`, or `dx += dy W`, for `d_y [n, out]`, `w [out, in]` and `d_x [n, in]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn input_gradient<E>(
        d_y: Matrix<'_, E>,
        w: Matrix<'_, E>,
        into: WriteMode,
        d_x: MatrixMut<'_, E>,
        dtype: Dtype,
    ) {
        match dtype {
            Dtype::Model => multiply(d_x, into.into(), d_y, w),
            Dtype::Bf16 => {
                assert!(
                    d_y.cols() == w.rows() && w.cols() == d_x.cols(),
                    "weights ({} x {}) map gradients of {} numbers to {}",
                    w.rows(),
                    w.cols(),
                    d_y.cols(),
                    d_x.cols()
                );
                multiply_rounded([d_x], into.into(), d_y, &w, &mut []);
            }
        }
    }

    /// `dW = dyᵀ x` and `db = Σ rows of dy`, or `dW += ..` and `db += ..`, those of the two that are there, for `d_y [n, out]`, `x [n, in]`,
    /// `d_w [out, in]` and `d_b [out]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn parameter_gradients<E>(
        d_y: Matrix<'_, E>,
        x: Matrix<'_, E>,
        into: WriteMode,
        d_w: Option<MatrixMut<'_, E>>,
        d_b: Option<&mut [E]>,
        dtype: Dtype,
    ) {
        match (d_w, d_b) {
            (Some(d_w), d_b) => outer_products(d_w, into, d_y, x, d_b.unwrap_or_default(), dtype),
            (None, Some(d_b)) => column_sums(into, d_y, d_b),
            (None, None) => {}
        }
    }
}

/// How many threads share the product of few rows.
pub(super) fn blocks<E>(x: Matrix<'_, E>, w: Matrix<'_, E>) -> usize {
    let work = w.rows() * w.cols() * x.rows().max(ROWS_PER_READ);
    (work / SHARE).clamp(1, threads())
}

/// `start + x Wᵀ` for few rows, with blocks of outputs for the threads. The rows of both are contiguous.
pub(super) fn multiply_rows<E: Pooled>(
    x: Matrix<'_, E>,
    w: Matrix<'_, E>,
    start: Start<'_, E>,
    y: MatrixMut<'_, E>,
) {
    // No sum depends on the division.
    let outputs = w.rows().div_ceil(blocks(x, w)).max(1);
    let blocks = y.col_chunks(outputs).enumerate();
    for_each(blocks, |(index, mut y): (usize, MatrixMut<'_, E>)| {
        let block = index * outputs..index * outputs + y.cols();
        let into = start.of_cols(block.clone()).write(y.reborrow());
        dots_of_rows(y, into, x, w.some_rows(block));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{
        Absolute, LENGTHS, assert_close, noise, same_for_all_threads, slopes, wide,
    };
    use crate::simd::Pair;

    #[test]
    fn all_three_products_round_both_operands() {
        let bf16 = |x: f32| Pair::new(x, 0.0).numbers()[0];
        for n in [1, FEW_ROWS - 1, 100] {
            let [width, outputs] = [33, 70];
            // Integers with more digits than bf16 has, whose sums of products are exact in f32.
            let numbers = |len: usize, seed: u64| -> Vec<f32> {
                noise::<f32>(len, seed)
                    .iter()
                    .map(|x| (x * 511.0).round())
                    .collect()
            };
            let all = [n * width, outputs * width, n * outputs];
            let [x, w, d_y] = [0, 1, 2].map(|i| numbers(all[i], i as u64));
            let rounded = [&x, &w, &d_y].map(|of| of.iter().map(|x| bf16(*x)).collect::<Vec<_>>());
            assert!(rounded.iter().zip([&x, &w, &d_y]).all(|(a, b)| a != b));
            let of = |x: &[f32], w: &[f32], d_y: &[f32], dtype: Dtype| {
                let x = Matrix::new(x, n, width);
                let w = Matrix::new(w, outputs, width);
                let d_y = Matrix::new(d_y, n, outputs);
                let (mut y, mut d_x) = (vec![f32::NAN; n * outputs], vec![f32::NAN; n * width]);
                let mut d_w = vec![f32::NAN; outputs * width];
                forward(x, w, None, MatrixMut::new(&mut y, n, outputs), dtype);
                let to = MatrixMut::new(&mut d_x, n, width);
                input_gradient(d_y, w, WriteMode::Overwrite, to, dtype);
                let to = MatrixMut::new(&mut d_w, outputs, width);
                parameter_gradients(d_y, x, WriteMode::Overwrite, Some(to), None, dtype);
                [y, d_x, d_w]
            };
            let [rx, rw, rd] = &rounded;
            assert_eq!(
                of(&x, &w, &d_y, Dtype::Bf16),
                of(rx, rw, rd, Dtype::Model),
                "{n} rows"
            );
        }
    }

    /// Every number of rows with every width, and with every number of outputs.
    fn shapes() -> impl Iterator<Item = [usize; 3]> {
        LENGTHS.into_iter().enumerate().flat_map(|(i, n)| {
            let outputs = LENGTHS.into_iter().cycle().skip(i);
            LENGTHS
                .into_iter()
                .zip(outputs)
                .map(move |(width, outputs)| [n, width, outputs])
        })
    }

    fn naive(x: Matrix<'_, f64>, w: Matrix<'_, f64>, bias: Option<&[f64]>) -> Vec<f64> {
        let mut y = Vec::new();
        for i in 0..x.rows() {
            for o in 0..w.rows() {
                let dot: f64 = (0..x.cols()).map(|k| x.get(i, k) * w.get(o, k)).sum();
                y.push(dot + bias.map_or(0.0, |bias| bias[o]));
            }
        }
        y
    }

    #[test]
    fn forward_is_the_product_with_the_transpose_plus_the_bias() {
        for [n, width, outputs] in shapes() {
            // Columns 1.. of wider matrices.
            let x = noise::<f32>(n * (width + 2), 1);
            let w = noise::<f32>(outputs * (width + 1), 2);
            let bias = noise::<f32>(outputs, 3);
            let x64 = wide(&x);
            let w64 = wide(&w);
            let bias64 = wide(&bias);
            let x = Matrix::new(&x, n, width + 2).some_cols(1..width + 1);
            let w = Matrix::new(&w, outputs, width + 1).some_cols(1..width + 1);
            let x64 = Matrix::new(&x64, n, width + 2).some_cols(1..width + 1);
            let w64 = Matrix::new(&w64, outputs, width + 1).some_cols(1..width + 1);
            for biased in [false, true] {
                let mut y = vec![f32::NAN; n * outputs];
                let bias = biased.then_some(&bias[..]);
                forward(x, w, bias, MatrixMut::new(&mut y, n, outputs), Dtype::Model);
                let want = naive(x64, w64, biased.then_some(&bias64[..]));
                // 129 products of at most 1, each rounded to 6e-8.
                let what = format!("{n} rows, {width} to {outputs}");
                assert_close(&what, &y, &want, Absolute(8e-6));
            }
        }
    }

    #[test]
    fn gradients_are_products_with_the_gradient_of_the_output() {
        for [n, width, outputs] in shapes() {
            let x = noise::<f64>(n * width, 1);
            let w = noise::<f64>(outputs * width, 2);
            let d_y = noise::<f64>(n * outputs, 4);
            let x = Matrix::new(&x, n, width);
            let w = Matrix::new(&w, outputs, width);
            let d = Matrix::new(&d_y, n, outputs);
            let what = format!("{n} rows, {width} to {outputs}");
            // 129 products of at most 1, each rounded to 1e-16.
            let near = |got: &[f64], want: &dyn Fn(usize, usize) -> f64, columns: usize| {
                let want: Vec<f64> = (0..got.len())
                    .map(|i| want(i / columns, i % columns))
                    .collect();
                assert_close(&what, got, &want, Absolute(1e-13));
            };
            let mut d_x = vec![f64::NAN; n * width];
            input_gradient(
                d,
                w,
                WriteMode::Overwrite,
                MatrixMut::new(&mut d_x, n, width),
                Dtype::Model,
            );
            let term = |i, k| (0..outputs).map(|o| d.get(i, o) * w.get(o, k)).sum();
            near(&d_x, &term, width);

            let mut d_w = vec![1.0; outputs * width];
            let mut d_b = vec![1.0; outputs];
            let to = MatrixMut::new(&mut d_w, outputs, width);
            parameter_gradients(d, x, WriteMode::Add, Some(to), Some(&mut d_b), Dtype::Model);
            let term = |o, k| 1.0 + (0..n).map(|i| d.get(i, o) * x.get(i, k)).sum::<f64>();
            near(&d_w, &term, width);
            let term = |o, _| 1.0 + (0..n).map(|i| d.get(i, o)).sum::<f64>();
            near(&d_b, &term, 1);
        }
    }

    #[test]
    fn gradients_agree_with_central_differences() {
        for [n, width, outputs] in [[1, 1, 1], [2, 3, 4], [5, 9, 2], [17, 2, 3]] {
            let x = noise::<f64>(n * width, 1);
            let w = noise::<f64>(outputs * width, 2);
            let bias = noise::<f64>(outputs, 3);
            let d_y = noise::<f64>(n * outputs, 4);
            let loss = |x: &[f64], w: &[f64], bias: &[f64]| {
                let x = Matrix::new(x, n, width);
                let w = Matrix::new(w, outputs, width);
                let y = naive(x, w, Some(bias));
                y.iter().zip(&d_y).map(|(y, d)| y * d).sum::<f64>()
            };
            let d = Matrix::new(&d_y, n, outputs);

            let mut d_x = vec![f64::NAN; n * width];
            let matrix = Matrix::new(&w, outputs, width);
            let to = MatrixMut::new(&mut d_x, n, width);
            input_gradient(d, matrix, WriteMode::Overwrite, to, Dtype::Model);
            let want = slopes(&x, |x| loss(x, &w, &bias));
            assert_close("input", &d_x, &want, Absolute(1e-8));
            let to = MatrixMut::new(&mut d_x, n, width);
            input_gradient(d, matrix, WriteMode::Add, to, Dtype::Model);
            let twice: Vec<f64> = want.iter().map(|x| 2.0 * x).collect();
            assert_close("input, added", &d_x, &twice, Absolute(1e-8));

            let mut d_w = vec![1.0; outputs * width];
            let to = MatrixMut::new(&mut d_w, outputs, width);
            let mut d_b = vec![1.0; outputs];
            let rows = Matrix::new(&x, n, width);
            parameter_gradients(
                d,
                rows,
                WriteMode::Add,
                Some(to),
                Some(&mut d_b),
                Dtype::Model,
            );
            let want = slopes(&w, |w| loss(&x, w, &bias));
            let want: Vec<f64> = want.iter().map(|x| 1.0 + x).collect();
            assert_close("weights", &d_w, &want, Absolute(1e-8));

            let want = slopes(&bias, |bias| loss(&x, &w, bias));
            let want: Vec<f64> = want.iter().map(|x| 1.0 + x).collect();
            assert_close("bias", &d_b, &want, Absolute(1e-8));
        }
    }

    #[test]
    fn weights_larger_than_a_block_are_supported() {
        let width = 8;
        let outputs = SMALL + 5;
        let w: Vec<f32> = (0..outputs * width)
            .map(|i| (i / width % 97) as f32)
            .collect();
        let bias: Vec<f32> = (0..outputs).map(|o| (o % 89) as f32).collect();
        for n in [2, FEW_ROWS] {
            let x = vec![1.0; n * width];
            let mut y = vec![0.0; n * outputs];
            forward(
                Matrix::new(&x, n, width),
                Matrix::new(&w, outputs, width),
                Some(&bias),
                MatrixMut::new(&mut y, n, outputs),
                Dtype::Model,
            );
            for (i, y) in y.iter().enumerate() {
                let o = i % outputs;
                assert_eq!(*y, (width * (o % 97) + o % 89) as f32, "{n} rows: {i}");
            }
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        for n in [1, 3, FEW_ROWS - 1, 150] {
            let width = 300;
            let outputs = 500;
            let x = noise::<f32>(n * width, 1);
            let w = noise::<f32>(outputs * width, 2);
            let bias = noise::<f32>(outputs, 3);
            let d_y = noise::<f32>(n * outputs, 4);
            let x = Matrix::new(&x, n, width);
            let w = Matrix::new(&w, outputs, width);
            let d_y = Matrix::new(&d_y, n, outputs);
            same_for_all_threads(|| {
                let mut y = vec![0.0; n * outputs];
                forward(
                    x,
                    w,
                    Some(&bias),
                    MatrixMut::new(&mut y, n, outputs),
                    Dtype::Model,
                );
                let mut d_x = vec![0.0; n * width];
                input_gradient(
                    d_y,
                    w,
                    WriteMode::Overwrite,
                    MatrixMut::new(&mut d_x, n, width),
                    Dtype::Model,
                );
                let mut d_w = vec![0.0; outputs * width];
                let mut d_b = vec![0.0; outputs];
                let to = MatrixMut::new(&mut d_w, outputs, width);
                parameter_gradients(
                    d_y,
                    x,
                    WriteMode::Add,
                    Some(to),
                    Some(&mut d_b),
                    Dtype::Model,
                );
                (y, d_x, d_w, d_b)
            });
        }
    }
}
