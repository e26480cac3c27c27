//! Operations one after the other on a strip of rows, which stays in the cache meanwhile.
//!
//! ```text
//! m = mean(x * x)          of each row
//! r = sqrt(m + epsilon)
//! y = x / r * gain
//! ```
//!
//! A task has some strips. The threads share the tasks, which depend on the shape only. What others read behind the pass is in memory. What
//! they do not is scratch: one strip has the memory of the strip before it.

use std::ops::Range;

use smallvec::SmallVec;

use super::compiled::compiled;
use super::fold::{add_column_sums, rows_per_sum};
use super::loops::{Repeated, repeated, split_off};
use super::parallel::{SMALL, for_each, rows_per_task};
use super::{Buffer, Matrix, Pooled};

/// The elements of a strip: those of a few arrays fit the second cache, and are enough for a call of each operation to pay.
const STRIP: usize = SMALL;

/// Memory of a pass.
#[derive(Debug)]
pub enum Slot<'a, E> {
    /// Rows of this width.
    Rows(&'a mut [E], usize),
    /// Rows of this width, which nobody reads behind the pass.
    Scratch(usize),
    /// Sums over all rows, which are added to. In a strip it is the sums of some rows.
    Sums(&'a mut [E]),
}

impl<E> Slot<'_, E> {
    fn assert_rows(&self, rows: usize) {
        if let Slot::Rows(numbers, width) = self {
            assert_eq!(numbers.len(), rows * width, "{rows} rows of {width}");
        }
    }

    /// The width of sums.
    fn sums(&self) -> usize {
        match self {
            Slot::Sums(to) => to.len(),
            Slot::Rows(..) | Slot::Scratch(_) => 0,
        }
    }
}

/// Some rows.
#[derive(Clone, Copy, Debug)]
pub struct Strip {
    /// The index of the first one.
    pub first: usize,
    /// The number of rows.
    pub rows: usize,
}

impl Strip {
    /// These rows of a matrix of this width.
    pub fn of<E>(self, x: &[E], width: usize) -> &[E] {
        &x[self.range(width)]
    }

    /// The same elements of numbers that are [`repeated`] to a shape whose rows have this width.
    pub fn repeated<'a, E>(
        self,
        numbers: &'a [E],
        from: &[usize],
        to: &[usize],
        width: usize,
    ) -> Repeated<'a, E> {
        repeated(numbers, from, to).some(self.first * width, self.rows * width)
    }

    fn range(self, width: usize) -> Range<usize> {
        self.first * width..(self.first + self.rows) * width
    }
}

/// The rows of a strip in a slot.
#[derive(Debug)]
pub struct Local<'a, E>(&'a mut [E]);

impl<E> Local<'_, E> {
    /// The numbers.
    pub fn as_slice(&self) -> &[E] {
        self.0
    }

    /// The same, to write.
    pub fn as_mut_slice(&mut self) -> &mut [E] {
        self.0
    }
}

/// Calls `body` for strips of rows of this width, with what they have of the slots.
///
/// # Panics
/// If a slot has not so many rows.
#[track_caller]
pub fn strips<E: Strips<E>, const N: usize>(
    rows: usize,
    width: usize,
    mut slots: [Slot<'_, E>; N],
    body: impl Fn(Strip, [Local<'_, E>; N]) + Sync,
) {
    in_strips(rows, width, &mut slots, &|strip, mut parts| {
        body(
            strip,
            std::array::from_fn(|i| Local(std::mem::take(&mut parts[i]))),
        );
    });
}

/// The operations on a strip. It is no type parameter: what shares work between threads is compiled once.
type Body<'a, E> = dyn Fn(Strip, Parts<'_, E>) + Sync + 'a;

/// A part of each slot.
type Parts<'a, E> = SmallVec<[&'a mut [E]; 8]>;

compiled! {
    Strips:

    #[track_caller]
    fn in_strips<E>(rows: usize, width: usize, slots: &mut [Slot<'_, E>], body: &Body<'_, E>) {
        slots.iter().for_each(|slot| slot.assert_rows(rows));
        let widths: usize = slots.iter().map(Slot::sums).sum();
        let strip = (STRIP / width.max(1)).clamp(1, rows.max(1));
        let task = match widths {
            0 => rows_per_task(width),
            _ => rows_per_sum(width),
        };
        let task = task.next_multiple_of(strip);
        let count = rows.div_ceil(task);
        // The sums of each task.
        let mut sums = Buffer::zeros(count * widths);
        let mut sums_left = &mut sums[..];
        let tasks = (0..count).map(|index| {
            let first = index * task;
            let rows = Strip { first, rows: task.min(rows - first) };
            let parts = slots.iter_mut().map(|slot| match slot {
                Slot::Rows(numbers, width) => {
                    Part::Rows(split_off(numbers, rows.rows * *width), *width)
                }
                Slot::Scratch(width) => Part::Scratch(*width),
                Slot::Sums(to) => Part::Sums(split_off(&mut sums_left, to.len())),
            });
            (rows, parts.collect::<SmallVec<[_; 8]>>())
        });
        for_each(tasks, |(rows, parts)| run_task(rows, parts, strip, body));
        let mut first = 0;
        for slot in slots {
            if let Slot::Sums(to) = slot {
                let sums = Matrix::new(&sums, count, widths);
                add_column_sums(sums.some_cols(first..first + to.len()), to);
                first += to.len();
            }
        }
    }
}

/// The part of a slot that a task has.
enum Part<'a, E> {
    Rows(&'a mut [E], usize),
    Scratch(usize),
    Sums(&'a mut [E]),
}

/// The rows of a task, so many at a time.
fn run_task<E: Pooled>(
    rows: Strip,
    mut parts: SmallVec<[Part<'_, E>; 8]>,
    strip: usize,
    body: &Body<'_, E>,
) {
    let widths = parts.iter().map(|part| match part {
        Part::Scratch(width) => *width,
        Part::Rows(..) | Part::Sums(_) => 0,
    });
    let mut scratch = Buffer::uninit(strip * widths.sum::<usize>());
    let end = rows.first + rows.rows;
    for first in (rows.first..end).step_by(strip) {
        let strip = Strip {
            first,
            rows: strip.min(end - first),
        };
        let mut scratch = &mut scratch[..];
        let parts = parts.iter_mut().map(|part| match part {
            Part::Rows(numbers, width) => split_off(numbers, strip.rows * *width),
            Part::Scratch(width) => split_off(&mut scratch, strip.rows * *width),
            Part::Sums(to) => &mut **to,
        });
        body(strip, parts.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::loops::{column_sums, compute_here, known, read, row_sums};
    use crate::kernel::testing::*;
    use crate::simd::WriteMode;

    /// Sizes of one strip and of several, of rows that are a strip each, and empty ones.
    const SIZES: [[usize; 2]; 8] = [
        [1, 1],
        [5, 7],
        [300, 33],
        [700, 384],
        [3, 5000],
        [0, 3],
        [3, 0],
        [2, 20_000],
    ];

    /// `scaled = x * factor[row]`, the sum of each row, and that of each column of the product with it.
    fn example(x: &[f32], [rows, width]: [usize; 2], factor: &[f32]) -> [Vec<f32>; 3] {
        let mut scaled = vec![f32::NAN; rows * width];
        let mut of_rows = vec![f32::NAN; rows];
        let mut of_columns = vec![0.5; width];
        let slots = [
            Slot::Rows(&mut scaled, width),
            Slot::Scratch(width),
            Slot::Rows(&mut of_rows, 1),
            Slot::Sums(&mut of_columns),
        ];
        strips(
            rows,
            width,
            slots,
            |strip, [mut scaled, mut square, mut of_rows, mut of_columns]| {
                let x = strip.of(x, width);
                let factor = strip.of(factor, 1);
                let factor = repeated(factor, &[strip.rows, 1], &[strip.rows, width]);
                let to = [scaled.as_mut_slice().into()];
                compute_here(&known::Mul, [read(x), read(factor)], to);
                let to = [square.as_mut_slice().into()];
                compute_here(&known::Mul, [read(scaled.as_slice()), read(x)], to);
                let to = [row_sums(
                    of_rows.as_mut_slice(),
                    WriteMode::Overwrite,
                    width,
                )];
                compute_here(&known::Copy, [read(scaled.as_slice())], to);
                let to = [column_sums(of_columns.as_mut_slice(), strip.rows)];
                compute_here(&known::Copy, [read(square.as_slice())], to);
            },
        );
        [scaled, of_rows, of_columns]
    }

    #[test]
    fn strips_are_all_rows_and_their_sums() {
        on_every_isa(|isa| {
            for [rows, width] in SIZES {
                let x = noise::<f32>(rows * width, 1);
                let factor = noise::<f32>(rows, 2);
                let [scaled, of_rows, of_columns] = example(&x, [rows, width], &factor);
                let what = format!("{rows} x {width} on {isa}");
                let at = |r: usize, c: usize| f64::from(x[r * width + c]) * f64::from(factor[r]);
                let want: Vec<f64> = (0..rows)
                    .flat_map(|r| (0..width).map(move |c| (r, c)))
                    .map(|(r, c)| at(r, c))
                    .collect();
                // A rounding of a number below 1.
                assert_close(&what, &scaled, &want, Absolute(6e-8));
                let want: Vec<f64> = (0..rows)
                    .map(|r| (0..width).map(|c| at(r, c)).sum())
                    .collect();
                // Sums of 20,000 numbers below 1, in vectors: some tens of roundings of 100.
                assert_close(&what, &of_rows, &want, Absolute(1e-3));
                let column = |c: usize| {
                    let terms = (0..rows).map(|r| at(r, c) * f64::from(x[r * width + c]));
                    0.5 + terms.sum::<f64>()
                };
                let want: Vec<f64> = (0..width).map(column).collect();
                assert_close(&what, &of_columns, &want, Absolute(1e-4));
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x = noise::<f32>(700 * 384, 1);
        let factor = noise::<f32>(700, 2);
        same_for_all_threads(|| example(&x, [700, 384], &factor));
    }

    #[test]
    #[should_panic(expected = "3 rows of 4")]
    fn slots_of_other_rows_are_refused() {
        strips(3, 4, [Slot::Rows(&mut [0.0; 8], 4)], |_, _| {});
    }
}
