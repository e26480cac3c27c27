//! Sums along an axis up to each place, and their derivative, which are sums from each place on.
//!
//! ```text
//! y[o, l, i]   = Σ x[o, m, i] over m <= l
//! dx[o, l, i] += Σ dy[o, m, i] over m >= l
//! ```
//!
//! The sums are those of `f64`, rounded once. PyTorch: `torch.cumsum(x, 1)`.

use super::axis::{Axis, for_each_part, for_some_columns};
use super::compiled::compiled;
use super::{Matrix, MatrixMut, Real};
use crate::simd::WriteMode;

compiled! {
    Cumsum:

    /// `y` are the sums of `x` up to each place of an axis, or from it on, or these are added to `y`.
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn cumsum<E>(x: &[E], axis: Axis, from_the_end: bool, y: &mut [E], into: WriteMode) {
        axis.assert_equal_lengths(&[x.len(), y.len()]);
        for_each_part(axis, axis.len * axis.inner, y, |o, y| {
            let x = Matrix::new(&x[axis.block(o)], axis.len, axis.inner);
            for_some_columns(MatrixMut::new(y, axis.len, axis.inner), |cols, y| {
                columns(x.some_cols(cols), from_the_end, y, into);
            });
        });
    }
}

fn columns<E: Real>(
    x: Matrix<'_, E>,
    from_the_end: bool,
    mut y: MatrixMut<'_, E>,
    into: WriteMode,
) {
    let mut sums = vec![0.0_f64; x.cols()];
    for step in 0..x.rows() {
        let l = match from_the_end {
            true => x.rows() - 1 - step,
            false => step,
        };
        let row = x.row(l).iter().zip(y.row_mut(l)).zip(&mut sums);
        for ((x, y), sum) in row {
            *sum += (*x).into();
            let of_y = match into {
                WriteMode::Overwrite => E::ZERO,
                WriteMode::Add => *y,
            };
            *y = of_y + E::of_f64(*sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    #[test]
    fn sums_are_those_up_to_a_place_or_from_it_on() {
        let sizes = [
            [1, 1, 1],
            [3, 5, 7],
            [1, 700, 1],
            [2, 130, 65],
            [0, 3, 2],
            [3, 0, 2],
        ];
        for [outer, len, inner] in sizes {
            let axis = Axis { outer, len, inner };
            let x = noise::<f32>(axis.elements(), 1);
            for from_the_end in [false, true] {
                let at = |place: usize| {
                    let (o, l, i) = (place / inner / len, place / inner % len, place % inner);
                    let places = if from_the_end { l..len } else { 0..l + 1 };
                    let x = places.map(|m| f64::from(x[(o * len + m) * inner + i]));
                    x.sum::<f64>()
                };
                let want: Vec<f64> = (0..x.len()).map(at).collect();
                let mut y = vec![f32::NAN; x.len()];
                cumsum(&x, axis, from_the_end, &mut y, WriteMode::Overwrite);
                // One rounding of numbers up to 30.
                assert_close(format!("{axis:?}"), &y, &want, Absolute(2e-6));
                let before = y.clone();
                cumsum(&x, axis, from_the_end, &mut y, WriteMode::Add);
                assert!(y.iter().zip(&before).all(|(y, before)| *y == 2.0 * before));
            }
        }
    }
}
