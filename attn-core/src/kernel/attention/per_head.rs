//! A linear map for every head, as in the bilinear score `qᵀ W k`.
//!
//! ```text
//! y[r, h] = x[r, h] W[h]        dx[r, h] = dy[r, h] W[h]ᵀ        dW[h] = Σ_r x[r, h]ᵀ dy[r, h]
//! ```
//!
//! The "general" score of Luong, Pham and Manning, "Effective approaches to attention-based neural machine translation"
//! (2015), equation 8, with a matrix per head. PyTorch: `torch.einsum("rhw,hwv->rhv", x, w)`.
//!
//! Heads are side by side in `x` and `y`, and one below the other in `W`.

use super::heads::parts;
use crate::kernel::compiled::compiled;
use crate::kernel::{Buffer, Pooled, parallel};
use crate::simd::transpose;
use crate::simd::{Matrix, MatrixMut, Threads, WriteMode, product};

compiled! {
    PerHead:

    /// `to[r, h] = x[r, h] w[h]`
    ///
    /// `x`: `[rows, heads * width]`, `w`: `[heads * width, out]`, `to`: `[rows, heads * out]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn per_head_linear<E>(
        heads: usize,
        x: Matrix<'_, E>,
        w: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
    ) {
        let maps = Maps::new(heads, x, w, (to.rows(), to.cols()));
        let tasks = maps.columns(to).enumerate();
        maps.for_each(tasks, |(head, to)| {
            let (x, w) = maps.head(head);
            product(to, WriteMode::Overwrite, E::ONE, x, w, Threads::One);
        });
    }

    /// The derivative of [`per_head_linear`], from `d`, the gradient of the result. It overwrites `d_x`, and adds to `d_w` if that is there.
    ///
    /// `d`: `[rows, heads * out]`; `d_x` and `d_w` as `x` and `w`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn per_head_linear_backward<E>(
        heads: usize,
        x: Matrix<'_, E>,
        w: Matrix<'_, E>,
        d: Matrix<'_, E>,
        d_x: MatrixMut<'_, E>,
        d_w: Option<MatrixMut<'_, E>>,
    ) {
        let maps = Maps::new(heads, x, w, (d.rows(), d.cols()));
        let is_of_w = |d_w: &MatrixMut<'_, E>| (d_w.rows(), d_w.cols()) == (w.rows(), w.cols());
        assert!(
            (d_x.rows(), d_x.cols()) == (x.rows(), x.cols()) && d_w.as_ref().is_none_or(is_of_w),
            "derivatives {d_x:?} of {x:?} and {d_w:?} of {w:?}"
        );
        let width = maps.width;
        let out = maps.out;
        let mut d_w = d_w.map(|d_w| maps.rows(d_w));
        let tasks = maps.columns(d_x);
        let tasks = tasks.map(|d_x| (d_x, d_w.as_mut().and_then(Iterator::next)));
        maps.for_each(tasks.enumerate(), |(head, (d_x, d_w))| {
            let (x, w) = maps.head(head);
            let d = d.some_cols(head * out..(head + 1) * out);
            // A product with a transposed copy is faster than one with a transposed view.
            let mut transposed = Buffer::uninit(out * width);
            transpose(w, MatrixMut::new(&mut transposed, out, width));
            let w = Matrix::new(&transposed, out, width);
            product(d_x, WriteMode::Overwrite, E::ONE, d, w, Threads::One);
            if let Some(d_w) = d_w {
                product(d_w, WriteMode::Add, E::ONE, x.transposed(), d, Threads::One);
            }
        });
    }
}

/// The maps of all heads, and their inputs.
struct Maps<'a, E> {
    x: Matrix<'a, E>,
    w: Matrix<'a, E>,
    heads: usize,
    width: usize,
    out: usize,
}

impl<'a, E: Pooled> Maps<'a, E> {
    fn new(heads: usize, x: Matrix<'a, E>, w: Matrix<'a, E>, y: (usize, usize)) -> Self {
        let width = x.cols() / heads.max(1);
        let out = w.cols();
        assert!(
            w.rows() == heads * width && x.cols() == heads * width && y == (x.rows(), heads * out),
            "{heads} heads of {w:?} map {x:?} to {y:?}"
        );
        Self {
            x,
            w,
            heads,
            width,
            out,
        }
    }

    /// The input and the map of a head.
    fn head(&self, head: usize) -> (Matrix<'a, E>, Matrix<'a, E>) {
        let some = head * self.width..(head + 1) * self.width;
        (self.x.some_cols(some.clone()), self.w.some_rows(some))
    }

    /// The heads of `matrix`, side by side.
    fn columns<'m>(&self, matrix: MatrixMut<'m, E>) -> impl Iterator<Item = MatrixMut<'m, E>> {
        parts(matrix, 1, self.heads)
    }

    /// The heads of `matrix`, one below the other.
    fn rows<'m>(&self, matrix: MatrixMut<'m, E>) -> impl Iterator<Item = MatrixMut<'m, E>> {
        parts(matrix, self.heads, 1)
    }

    /// `body(task)` for every head, on several threads if that pays.
    fn for_each<T: Send>(
        &self,
        tasks: impl IntoIterator<Item = T>,
        body: impl Fn(T) + Send + Sync,
    ) {
        if self.x.rows() * self.x.cols() * self.out <= parallel::FEW_MULTIPLICATIONS {
            tasks.into_iter().for_each(body);
        } else {
            parallel::for_each(tasks, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernels;
    use crate::kernel::testing::{
        Absolute, assert_close, noise, on_every_isa, same_for_all_threads, slopes, wide,
    };

    /// Heads, rows, width and output width.
    const SIZES: [[usize; 4]; 12] = [
        [0, 3, 0, 2],
        [2, 0, 3, 2],
        [2, 3, 0, 2],
        [2, 3, 2, 0],
        [1, 1, 1, 1],
        [1, 2, 3, 5],
        [2, 2, 2, 2],
        [3, 7, 9, 8],
        [2, 17, 33, 15],
        [4, 65, 16, 31],
        [3, 33, 64, 63],
        [1, 129, 7, 17],
    ];

    fn naive([heads, rows, width, out]: [usize; 4], x: &[f64], w: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; rows * heads * out];
        for (r, h) in (0..rows).flat_map(|r| (0..heads).map(move |h| (r, h))) {
            for (i, j) in (0..width).flat_map(|i| (0..out).map(move |j| (i, j))) {
                y[(r * heads + h) * out + j] +=
                    x[(r * heads + h) * width + i] * w[(h * width + i) * out + j];
            }
        }
        y
    }

    fn forward<E: Kernels>([heads, rows, width, out]: [usize; 4], x: &[E], w: &[E]) -> Vec<E> {
        let mut y = vec![E::NAN; rows * heads * out];
        per_head_linear(
            heads,
            Matrix::new(x, rows, heads * width),
            Matrix::new(w, heads * width, out),
            MatrixMut::new(&mut y, rows, heads * out),
        );
        y
    }

    /// The derivatives of `x` and `w`, the latter added to ones.
    fn backward<E: Kernels>(
        [heads, rows, width, out]: [usize; 4],
        x: &[E],
        w: &[E],
        d: &[E],
    ) -> (Vec<E>, Vec<E>) {
        let mut d_x = vec![E::NAN; x.len()];
        let mut d_w = vec![E::ONE; w.len()];
        per_head_linear_backward(
            heads,
            Matrix::new(x, rows, heads * width),
            Matrix::new(w, heads * width, out),
            Matrix::new(d, rows, heads * out),
            MatrixMut::new(&mut d_x, rows, heads * width),
            Some(MatrixMut::new(&mut d_w, heads * width, out)),
        );
        (d_x, d_w)
    }

    #[test]
    fn heads_have_their_own_matrices() {
        on_every_isa(|isa| {
            for sizes @ [heads, rows, width, out] in SIZES {
                let what = format!("{sizes:?} on {isa}");
                let x: Vec<f64> = noise(rows * heads * width, 1);
                let w: Vec<f64> = noise(heads * width * out, 2);
                // Sums of up to 64 products below 1.
                assert_close(
                    &what,
                    &forward(sizes, &x, &w),
                    &naive(sizes, &x, &w),
                    Absolute(1e-14),
                );
                let x: Vec<f32> = noise(x.len(), 3);
                let w: Vec<f32> = noise(w.len(), 4);
                let want = naive(sizes, &wide(&x), &wide(&w));
                assert_close(&what, &forward(sizes, &x, &w), &want, Absolute(1e-5));
            }
        });
    }

    #[test]
    fn gradients_agree_with_central_differences() {
        for sizes @ [heads, rows, width, out] in SIZES.into_iter().take(9) {
            let x: Vec<f64> = noise(rows * heads * width, 1);
            let w: Vec<f64> = noise(heads * width * out, 2);
            let d: Vec<f64> = noise(rows * heads * out, 3);
            let loss = |x: &[f64], w: &[f64]| -> f64 {
                naive(sizes, x, w).iter().zip(&d).map(|(y, d)| y * d).sum()
            };
            let (d_x, d_w) = backward(sizes, &x, &w, &d);
            let want_x = slopes(&x, |x| loss(x, &w));
            let want_w: Vec<f64> = slopes(&w, |w| loss(&x, w))
                .iter()
                .map(|d| 1.0 + d)
                .collect();
            // The loss is linear in each. It is rounded to 1e-14 and divided by a step of 1e-5.
            assert_close(format!("x of {sizes:?}"), &d_x, &want_x, Absolute(1e-8));
            assert_close(format!("w of {sizes:?}"), &d_w, &want_w, Absolute(1e-8));
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let sizes @ [heads, rows, width, out] = [5, 130, 64, 48];
        assert!(heads * rows * width * out > parallel::FEW_MULTIPLICATIONS);
        let x: Vec<f32> = noise(rows * heads * width, 1);
        let w: Vec<f32> = noise(heads * width * out, 2);
        let d: Vec<f32> = noise(rows * heads * out, 3);
        same_for_all_threads(|| (forward(sizes, &x, &w), backward(sizes, &x, &w, &d)));
    }

    #[test]
    #[should_panic(expected = "2 heads of")]
    fn widths_that_are_not_multiples_of_the_heads_are_refused() {
        let x = [1.0; 4];
        let mut to = [0.0; 2];
        let w = Matrix::new(&x[..3], 3, 1);
        let x = Matrix::new(&x, 1, 4);
        per_head_linear(2, x, w, MatrixMut::new(&mut to, 1, 2));
    }
}
