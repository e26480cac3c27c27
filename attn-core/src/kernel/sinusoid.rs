//! Sinusoidal positions: waves of many lengths, one number per position and column.
//!
//! Vaswani et al., "Attention is all you need" (2017), section 3.5: `sin` and `cos` of `s / 10000^(2 i / width)` in the columns
//! `2 i` and `2 i + 1`. The last column of an odd width is a `sin`.

use super::compiled::compiled;
use super::parallel::{for_each, rows_per_task};
use super::{Buffer, MatrixMut, Pooled};

/// The ratio of the longest to the shortest wavelength, approximately.
const BASE: f64 = 10_000.0;

/// The angle by which the wave of a column advances per position.
pub fn frequency(column: usize, width: usize) -> f64 {
    let pair = column / 2 * 2;
    BASE.powf(-(pair as f64) / width as f64)
}

compiled! {
    Sinusoid:

    /// The numbers of the positions `0, 1, ..`, one row each. Angles are computed in `f64`.
    pub fn forward<E>(to: MatrixMut<'_, E>) {
        at(|row| row, to);
    }

    /// The numbers of these positions, one row each.
    ///
    /// # Panics
    /// If there are fewer positions than rows.
    pub fn forward_at<E>(positions: &[usize], to: MatrixMut<'_, E>) {
        at(|row| positions[row], to);
    }
}

/// The numbers of the position of every row.
fn at<E: Pooled>(position: impl Fn(usize) -> usize + Send + Sync, to: MatrixMut<'_, E>) {
    let width = to.cols();
    // A token of a session asks the system for nothing.
    let mut frequencies = Buffer::<f64>::uninit(width);
    for (column, to) in frequencies.iter_mut().enumerate() {
        *to = frequency(column, width);
    }
    let chunk = rows_per_task(width);
    let parts = to.row_chunks(chunk).enumerate();
    for_each(parts, |(index, mut to)| {
        for i in 0..to.rows() {
            let position = position(index * chunk + i) as f64;
            let waves = to.row_mut(i).chunks_mut(2).zip(frequencies.chunks(2));
            for (pair, frequency) in waves {
                let (sin, cos) = (position * frequency[0]).sin_cos();
                for (to, wave) in pair.iter_mut().zip([sin, cos]) {
                    *to = E::of_f64(wave);
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_sines_and_cosines() {
        for width in [0, 1, 2, 5, 64] {
            let mut to = vec![f64::NAN; 700 * width];
            forward(MatrixMut::new(&mut to, 700, width));
            for (place, &found) in to.iter().enumerate() {
                let s = place / width;
                let column = place % width;
                let exponent = 2.0 * ((column / 2) as f64) / width as f64;
                let angle = s as f64 / 10_000_f64.powf(exponent);
                let want = if column.is_multiple_of(2) {
                    angle.sin()
                } else {
                    angle.cos()
                };
                // An angle up to 700 is rounded by 1e-13.
                assert!((found - want).abs() < 1e-12, "{place} of {width}");
            }
        }
    }
}
