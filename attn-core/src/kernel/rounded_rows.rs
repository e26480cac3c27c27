//! Rows of numbers that are kept in bf16, for products that round them anyway.

use super::parallel::{for_each, rows_per_task};
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{halves, halves_mut};

/// Rows of numbers, each rounded to the nearest one in bf16, and to the even one of two; subnormal ones become 0. Two numbers have the memory of
/// one. It counts as [activations](crate::memory).
#[derive(Debug)]
pub struct RoundedRows<E: Pooled> {
    memory: Buffer<E>,
    rows: usize,
    width: usize,
}

impl<E: Pooled> RoundedRows<E> {
    /// Rows of arbitrary numbers.
    pub fn uninit(rows: usize, width: usize) -> Self {
        Self {
            memory: Buffer::counted((rows * width).div_ceil(2)),
            rows,
            width,
        }
    }

    /// Rounds rows, on all threads.
    pub fn of(x: Matrix<'_, E>) -> Self {
        let mut rounded = Self::uninit(x.rows(), x.cols());
        let some = rows_per_task(x.cols());
        let parts = x.row_chunks(some).zip(rounded.write().row_chunks(some));
        for_each(parts, |(x, to)| E::round_rows(x, to));
        rounded
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// `[rows, width]`
    pub fn read(&self) -> Matrix<'_, u16> {
        let numbers = &halves(&self.memory)[..self.rows * self.width];
        Matrix::new(numbers, self.rows, self.width)
    }

    /// [`read`](Self::read), to write.
    pub fn write(&mut self) -> MatrixMut<'_, u16> {
        let numbers = &mut halves_mut(&mut self.memory)[..self.rows * self.width];
        MatrixMut::new(numbers, self.rows, self.width)
    }
}

/// Rounds some rows, and writes them over those that are there, too.
///
/// # Panics
/// If the shapes differ.
#[track_caller]
pub fn round_in_place<E: Pooled>(x: MatrixMut<'_, E>, mut to: MatrixMut<'_, u16>) {
    E::round_rows(x.as_ref(), to.reborrow());
    E::widen_rows(to.as_ref(), x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{noise, on_every_isa, same_for_all_threads};
    use crate::simd::Bf16Rows as _;

    const SIZES: [[usize; 2]; 8] = [
        [0, 3],
        [3, 0],
        [1, 1],
        [5, 2],
        [7, 33],
        [2, 20_000],
        [700, 48],
        [701, 49],
    ];

    /// The upper half of the bits, with the lower half rounded to it.
    fn reference(x: f32) -> f32 {
        let below = f32::from_bits(x.to_bits() & 0xffff_0000);
        let above = f32::from_bits((x.to_bits() & 0xffff_0000) + 0x1_0000);
        let [to_below, to_above] = [x - below, above - x].map(f32::abs);
        let is_even = below.to_bits() & 0x1_0000 == 0;
        match to_below < to_above || to_below == to_above && is_even {
            true => below,
            false => above,
        }
    }

    #[test]
    fn rows_are_those_that_were_rounded() {
        on_every_isa(|isa| {
            for [rows, width] in SIZES {
                let numbers = noise::<f32>(rows * width, 1);
                let want: Vec<f32> = numbers.iter().copied().map(reference).collect();
                let kept = RoundedRows::of(Matrix::new(&numbers, rows, width));
                let mut got = vec![f32::NAN; rows * width];
                f32::widen_rows(kept.read(), MatrixMut::new(&mut got, rows, width));
                assert_eq!(got, want, "{rows} x {width} on {isa}");

                // In place, in chunks of other sizes.
                let mut kept = RoundedRows::<f32>::uninit(rows, width);
                let mut x = numbers.clone();
                let parts = MatrixMut::new(&mut x, rows, width).row_chunks(3);
                for (x, to) in parts.zip(kept.write().row_chunks(3)) {
                    round_in_place(x, to);
                }
                assert_eq!(x, want, "{rows} x {width} in place on {isa}");
                got.fill(f32::NAN);
                let parts = MatrixMut::new(&mut got, rows, width).row_chunks(2);
                for (x, to) in kept.read().row_chunks(2).zip(parts) {
                    f32::widen_rows(x, to);
                }
                assert_eq!(got, want, "{rows} x {width} in chunks on {isa}");
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x = noise::<f64>(701 * 49, 1);
        same_for_all_threads(|| {
            let mut to = vec![0.0; x.len()];
            let kept = RoundedRows::of(Matrix::new(&x, 701, 49));
            f64::widen_rows(kept.read(), MatrixMut::new(&mut to, 701, 49));
            to
        });
    }

    #[test]
    #[should_panic(expected = "(1 x 3) as (1 x 4)")]
    fn other_shapes_are_refused() {
        let kept = RoundedRows::<f32>::uninit(1, 3);
        f32::widen_rows(kept.read(), MatrixMut::new(&mut [0.0; 4], 1, 4));
    }
}
