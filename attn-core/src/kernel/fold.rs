//! Rows of a matrix, folded into one row: sums, maxima and others.

use std::marker::PhantomData;

use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::{Buffer, Matrix, Pooled, Real};
use crate::simd::slice::{self, Itself, Join, Sum, Term, load_any, store_any};
use crate::simd::{Kernel, Vector, run};

/// The number of rows of `width` that are folded one after another: enough to make the sums small beside the rows, and few enough
/// to keep rounding errors small.
pub(super) fn rows_per_sum(width: usize) -> usize {
    rows_per_task(width).clamp(64, 512)
}

/// `to += Σ rows of x`: a gradient of a vector that was added to every row, or multiplied with it. PyTorch: `to += x.sum(0)`.
///
/// # Panics
/// If `to` has not the width of `x`, or the elements of a row are not contiguous.
#[track_caller]
pub(super) fn add_column_sums<E: Pooled>(x: Matrix<'_, E>, to: &mut [E]) {
    fold_columns::<Sum, Itself, E>(x, None, to);
}

/// Folds the terms of each column of `x` into its number in `to`. The origin of a column is 0, if there are no `origins`.
///
/// Chunks of rows are folded first, then chunks of those results, and so on. The order depends on the shape only. The error of a sum grows
/// with the logarithm of the number of chunks.
///
/// # Panics
/// If `to` or `origins` have not the width of `x`, or the elements of a row are not contiguous.
#[track_caller]
pub(super) fn fold_columns<J: Join<E>, T: Term<E>, E: Pooled>(
    x: Matrix<'_, E>,
    origins: Option<&[E]>,
    to: &mut [E],
) {
    let width = x.cols();
    assert_eq!(to.len(), width, "a number for each of {width} columns");
    let chunk = rows_per_sum(width);
    if x.rows() <= chunk || width == 0 {
        return run(Columns::<J, T, E>::new(x, origins, to));
    }
    let chunks = x.rows().div_ceil(chunk);
    let mut partial = Buffer::uninit(chunks * width);
    let parts = partial.chunks_mut(width).enumerate();
    for_each(parts, |(index, to): (usize, &mut [E])| {
        let rows = index * chunk..x.rows().min((index + 1) * chunk);
        to.fill(J::start());
        run(Columns::<J, T, E>::new(x.some_rows(rows), origins, to));
    });
    fold_columns::<J, Itself, E>(Matrix::new(&partial, chunks, width), None, to);
}

/// [`fold_columns`] of a row-major matrix with the width of `to`.
///
/// # Panics
/// If `origins` have not that width.
#[track_caller]
pub(super) fn fold_rows<J: Join<E>, T: Term<E>, E: Pooled>(
    x: &[E],
    origins: Option<&[E]>,
    to: &mut [E],
) {
    match to {
        // With a width of 1 the vectors are along the only column.
        [to] => run(Column::<J, T, E> {
            x,
            origin: origins.map_or(E::ZERO, |origins| origins[0]),
            to,
            fold: PhantomData,
        }),
        _ => fold_columns::<J, T, E>(Matrix::new(x, x.len() / to.len(), to.len()), origins, to),
    }
}

struct Columns<'a, J, T, E> {
    x: Matrix<'a, E>,
    origins: Option<&'a [E]>,
    to: &'a mut [E],
    fold: PhantomData<(J, T)>,
}

impl<'a, J, T, E> Columns<'a, J, T, E> {
    fn new(x: Matrix<'a, E>, origins: Option<&'a [E]>, to: &'a mut [E]) -> Self {
        Self {
            x,
            origins,
            to,
            fold: PhantomData,
        }
    }
}

impl<J: Join<E>, T: Term<E>, E: Real> Kernel for Columns<'_, J, T, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let to = self.to;
        for row in 0..self.x.rows() {
            let x = self.x.row(row);
            match self.origins {
                None => for_lanes!(V, x.len(), [x], [to], {
                    let term = T::of(load_any::<V>(x), V::zero());
                    store_any(J::join(load_any(to), term), to);
                }),
                Some(origins) => for_lanes!(V, x.len(), [x, origins], [to], {
                    let term = T::of(load_any::<V>(x), load_any(origins));
                    store_any(J::join(load_any(to), term), to);
                }),
            }
        }
    }
}

struct Column<'a, J, T, E> {
    x: &'a [E],
    origin: E,
    to: &'a mut E,
    fold: PhantomData<(J, T)>,
}

impl<J: Join<E>, T: Term<E>, E: Real> Kernel for Column<'_, J, T, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let folded = slice::fold::<V, J, T>(self.x, V::splat(self.origin));
        let joined = J::join(V::splat(*self.to), V::splat(folded));
        joined.store_partial(std::slice::from_mut(self.to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{
        Absolute, LENGTHS, assert_close, noise, on_every_isa, same_for_all_threads,
    };

    #[test]
    fn rows_are_added_to_the_current_sums() {
        on_every_isa(|isa| {
            for width in LENGTHS {
                for rows in [0, 1, 2, 63, 64, 65, 1025, 1100] {
                    let wide: Vec<f32> = noise(rows * (width + 1), 1);
                    let x = Matrix::strided(&wide, rows, width, width + 1, 1);
                    let start: Vec<f32> = noise(width, 2);
                    let mut got = start.clone();
                    add_column_sums(x, &mut got);
                    let want: Vec<f64> = (0..width)
                        .map(|j| {
                            let column = (0..rows).map(|i| f64::from(x.get(i, j)));
                            f64::from(start[j]) + column.sum::<f64>()
                        })
                        .collect();
                    // A walk of 1100 roundings of sums of about 20.
                    assert_close(
                        format!("{rows} x {width} on {isa}"),
                        &got,
                        &want,
                        Absolute(1e-4),
                    );
                }
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x: Vec<f32> = noise(5000 * 33, 1);
        same_for_all_threads(|| {
            let mut sums = vec![0.5; 33];
            add_column_sums(Matrix::new(&x, 5000, 33), &mut sums);
            sums
        });
    }

    #[test]
    fn sums_of_many_rows_are_accurate() {
        // Sequential addition has an error of 4%.
        let rows = 1 << 20;
        let x = vec![0.1_f32; rows];
        let mut sum = [0.0];
        add_column_sums(Matrix::new(&x, rows, 1), &mut sum);
        let want = rows as f64 * f64::from(0.1_f32);
        assert!((f64::from(sum[0]) / want - 1.0).abs() < 1e-5, "{sum:?}");
    }
}
