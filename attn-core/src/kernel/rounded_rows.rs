//! Rows of numbers that are kept in bf16, for products that round them anyway.

use super::compiled::compiled;
use super::parallel::{for_each, rows_per_task};
use super::{Buffer, Matrix, MatrixMut, Pooled, Real};
use crate::simd::{Kernel, Pair, PairSums as _, Vector, run};

/// Rows of numbers, each rounded to the nearest one in bf16, and to the even one of two; subnormal ones become 0. Two numbers of a row have the
/// memory of one. It counts as [activations](crate::memory).
#[derive(Debug)]
pub struct RoundedRows<E: Pooled> {
    memory: Buffer<E>,
    rows: usize,
    width: usize,
}

/// Some of the rows.
#[derive(Debug)]
pub struct SomeRounded<'a> {
    /// `[rows, ⌈width / 2⌉]`
    pairs: &'a [Pair],
    width: usize,
}

/// Some of the rows, to write.
#[derive(Debug)]
pub struct SomeRoundedMut<'a> {
    pairs: &'a mut [Pair],
    width: usize,
}

impl<E: Pooled> RoundedRows<E> {
    /// Rows of arbitrary numbers.
    pub fn uninit(rows: usize, width: usize) -> Self {
        Self {
            memory: Buffer::counted(rows * width.div_ceil(2)),
            rows,
            width,
        }
    }

    /// Rounds rows, on all threads.
    pub fn of(x: Matrix<'_, E>) -> Self
    where
        E: RoundRows<E>,
    {
        let mut rounded = Self::uninit(x.rows(), x.cols());
        let some = rows_per_task(x.cols());
        let parts = rounded.chunks_mut(some).enumerate();
        for_each(parts, |(index, to): (usize, SomeRoundedMut<'_>)| {
            let first = index * some;
            round_some(x.some_rows(first..x.rows().min(first + some)), to);
        });
        rounded
    }

    /// Writes the numbers, on all threads.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn expand(&self, to: MatrixMut<'_, E>)
    where
        E: RoundRows<E>,
    {
        assert!(
            to.rows() == self.rows && to.cols() == self.width,
            "({} x {}) in {to:?}",
            self.rows,
            self.width
        );
        let some = rows_per_task(self.width);
        let parts = self.chunks(some).zip(to.row_chunks(some));
        for_each(parts, |(x, to)| expand_some(x, to));
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The rows in chunks of so many. Rows without numbers have none.
    pub fn chunks(&self, rows: usize) -> impl Iterator<Item = SomeRounded<'_>> {
        let width = self.width;
        let pairs = Pair::in_memory(&self.memory).chunks((rows * width.div_ceil(2)).max(1));
        pairs.map(move |pairs| SomeRounded { pairs, width })
    }

    /// [`chunks`](Self::chunks), to write.
    pub fn chunks_mut(&mut self, rows: usize) -> impl Iterator<Item = SomeRoundedMut<'_>> {
        let width = self.width;
        let pairs = Pair::in_memory_of(&mut self.memory);
        let pairs = pairs.chunks_mut((rows * width.div_ceil(2)).max(1));
        pairs.map(move |pairs| SomeRoundedMut { pairs, width })
    }
}

compiled! {
    RoundRows:

    /// Rounds some rows, on the calling thread.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn round_some<E>(x: Matrix<'_, E>, to: SomeRoundedMut<'_>) {
        to.as_ref().assert_shape(x.rows(), x.cols());
        let pairs = to.width.div_ceil(2);
        E::pair_columns(x, MatrixMut::new(to.pairs, x.rows(), pairs));
    }

    /// Rounds some rows, and writes them over those that are there, too.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn round_in_place<E>(x: MatrixMut<'_, E>, to: SomeRoundedMut<'_>) {
        let SomeRoundedMut { pairs, width } = to;
        round_some(x.as_ref(), SomeRoundedMut { pairs: &mut *pairs, width });
        expand_some(SomeRounded { pairs, width }, x);
    }

    /// The numbers of some rows, on the calling thread.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn expand_some<E>(x: SomeRounded<'_>, to: MatrixMut<'_, E>) {
        x.assert_shape(to.rows(), to.cols());
        run(Expand { x, to });
    }
}

impl SomeRoundedMut<'_> {
    fn as_ref(&self) -> SomeRounded<'_> {
        SomeRounded {
            pairs: self.pairs,
            width: self.width,
        }
    }
}

impl SomeRounded<'_> {
    #[track_caller]
    fn assert_shape(&self, rows: usize, width: usize) {
        let fits = width == self.width && rows * width.div_ceil(2) == self.pairs.len();
        assert!(
            fits,
            "{} pairs of rows of {} are not ({rows} x {width})",
            self.pairs.len(),
            self.width
        );
    }
}

/// The numbers of a row, in plain loops, which the compiler vectorises.
#[inline(always)]
fn expand_row<E: Real>(row: &[Pair], to: &mut [E]) {
    let (numbers, rest) = to.as_chunks_mut::<2>();
    for (to, pair) in numbers.iter_mut().zip(row) {
        *to = pair.numbers().map(E::of_f32);
    }
    if let ([last], Some(pair)) = (rest, row.last()) {
        *last = E::of_f32(pair.numbers()[0]);
    }
}

struct Expand<'a, E> {
    x: SomeRounded<'a>,
    to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Expand<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let pairs = self.x.width.div_ceil(2).max(1);
        for (row, from) in self.x.pairs.chunks_exact(pairs).enumerate() {
            expand_row(from, self.to.row_mut(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{noise, on_every_isa, same_for_all_threads};

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
                kept.expand(MatrixMut::new(&mut got, rows, width));
                assert_eq!(got, want, "{rows} x {width} on {isa}");

                // In place, in chunks of other sizes.
                let mut kept = RoundedRows::<f32>::uninit(rows, width);
                let mut x = numbers.clone();
                let parts = MatrixMut::new(&mut x, rows, width).row_chunks(3);
                for (x, to) in parts.zip(kept.chunks_mut(3)) {
                    round_in_place(x, to);
                }
                assert_eq!(x, want, "{rows} x {width} in place on {isa}");
                got.fill(f32::NAN);
                let parts = MatrixMut::new(&mut got, rows, width).row_chunks(2);
                for (x, to) in kept.chunks(2).zip(parts) {
                    expand_some(x, to);
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
            kept.expand(MatrixMut::new(&mut to, 701, 49));
            to
        });
    }

    #[test]
    #[should_panic(expected = "2 pairs of rows of 3")]
    fn other_shapes_are_refused() {
        let kept = RoundedRows::<f32>::uninit(1, 3);
        let mut to = [0.0; 4];
        for some in kept.chunks(1) {
            expand_some(some, MatrixMut::new(&mut to, 1, 4));
        }
    }
}
