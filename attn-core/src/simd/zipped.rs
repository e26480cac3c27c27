//! Slices side by side: some are read, some are written, and the first of these may be read as well.

use std::marker::PhantomData;
use std::slice;

use super::slice::{load_any, store_any};
use super::{Real, Vector, WriteMode};

/// Rows of `N` slices to read and of `M` slices to write.
///
/// In place, one slice is read and written. References cannot say that, and a check of every slice at every vector would cost more than the
/// arithmetic of a sum. So the lengths are compared once.
pub struct Zipped<'a, E, const N: usize, const M: usize> {
    rows: usize,
    width: usize,
    read: [ReadFrom<E>; N],
    write: [WriteTo<E>; M],
    slices: PhantomData<([&'a [E]; N], [&'a mut [E]; M])>,
}

/// An operand of the loop.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a, E> {
    /// The elements of row `i` are those from `i * step` on.
    Elements {
        /// A slice.
        numbers: &'a [E],
        /// From one row to the next.
        step: usize,
    },
    /// All elements of row `i` are the number at `i * step`.
    Number {
        /// A slice.
        numbers: &'a [E],
        /// From one row to the next.
        step: usize,
    },
    /// The first slice that is written.
    First,
}

/// A result of the loop.
#[derive(Debug)]
pub enum Target<'a, E> {
    /// The elements of row `i` are those from `i * step` on.
    Elements {
        /// A slice.
        numbers: &'a mut [E],
        /// From one row to the next.
        step: usize,
        /// Whether the numbers there are replaced or added to.
        mode: WriteMode,
    },
    /// The sum of the values of row `i` is added to the number at `i * step`.
    Sum {
        /// A slice.
        numbers: &'a mut [E],
        /// From one row to the next.
        step: usize,
    },
}

/// Functions of `N` numbers with `M` values.
pub trait Values<E, const N: usize, const M: usize> {
    /// The operands that are one [`Number`](Source::Number) in each row, a bit for each: what depends on these only is computed once in a row.
    /// Where the slices say otherwise, it is computed for every element.
    const NUMBERS: u32;

    /// The values. Mark it `#[inline(always)]`.
    fn values<V: Vector<Element = E>>(&self, x: [V; N]) -> [V; M];
}

/// A slice to read.
#[derive(Clone, Copy)]
struct ReadFrom<E> {
    numbers: *const E,
    step: usize,
    is_number: bool,
}

/// A slice to write.
#[derive(Clone, Copy)]
struct WriteTo<E> {
    numbers: *mut E,
    step: usize,
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Overwrite,
    Add,
    Sum,
}

/// One number, in as many lanes as a vector may have.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Constant<E>([E; 16]);

impl<'a, E: Real, const N: usize, const M: usize> Zipped<'a, E, N, M> {
    /// So many rows of this width.
    ///
    /// # Panics
    /// If a slice has fewer, or if the first slice to write is read and there is none.
    #[inline(always)]
    #[track_caller]
    pub fn new(
        [rows, width]: [usize; 2],
        read: [Source<'a, E>; N],
        write: &'a mut [Target<'_, E>; M],
    ) -> Self {
        let assert_len = |len: usize, step: usize, of_row: usize| {
            let needed = match (rows, of_row) {
                (0, _) | (_, 0) => Some(0),
                _ => (rows - 1)
                    .checked_mul(step)
                    .and_then(|start| start.checked_add(of_row)),
            };
            assert!(
                needed.is_some_and(|needed| needed <= len),
                "slices with all rows"
            );
        };
        let write = write.each_mut().map(|to| match to {
            Target::Elements {
                numbers,
                step,
                mode,
            } => {
                assert_len(numbers.len(), *step, width);
                WriteTo {
                    numbers: numbers.as_mut_ptr(),
                    step: *step,
                    mode: match mode {
                        WriteMode::Overwrite => Mode::Overwrite,
                        WriteMode::Add => Mode::Add,
                    },
                }
            }
            Target::Sum { numbers, step } => {
                assert_len(numbers.len(), *step, 1);
                WriteTo {
                    numbers: numbers.as_mut_ptr(),
                    step: *step,
                    mode: Mode::Sum,
                }
            }
        });
        let first = write.first().filter(|to| to.mode != Mode::Sum);
        let read = read.map(|x| match x {
            Source::Elements { numbers, step } => {
                assert_len(numbers.len(), step, width);
                let numbers = numbers.as_ptr();
                ReadFrom {
                    numbers,
                    step,
                    is_number: false,
                }
            }
            Source::Number { numbers, step } => {
                assert_len(numbers.len(), step, 1);
                let numbers = numbers.as_ptr();
                ReadFrom {
                    numbers,
                    step,
                    is_number: true,
                }
            }
            Source::First => match first {
                Some(to) => ReadFrom {
                    numbers: to.numbers.cast_const(),
                    step: to.step,
                    is_number: false,
                },
                None => panic!("the first slice to write is read, and there is none"),
            },
        });
        Self {
            rows,
            width,
            read,
            write,
            slices: PhantomData,
        }
    }

    /// Writes the values of all elements, row by row. A vector is read before it is written.
    #[inline(always)]
    pub fn write<V: Vector<Element = E>, T: Values<E, N, M>>(self, of: &T) {
        // A constant, so that the second loop is compiled only where there may be numbers.
        if const { T::NUMBERS != 0 } && self.are_numbers(T::NUMBERS) {
            self.write_rows::<V, T, true>(of);
        } else {
            self.write_rows::<V, T, false>(of);
        }
    }

    /// Whether each of these operands, a bit for each, is a number.
    #[inline(always)]
    fn are_numbers(&self, which: u32) -> bool {
        let mut are = true;
        for (index, from) in self.read.iter().enumerate() {
            are &= which >> index & 1 == 0 || from.is_number;
        }
        are
    }

    #[inline(always)]
    fn write_rows<V: Vector<Element = E>, T: Values<E, N, M>, const ARE_NUMBERS: bool>(
        mut self,
        of: &T,
    ) {
        let mut constants = [Constant([E::ZERO; 16]); N];
        for _ in 0..self.rows {
            self.write_row::<V, T, ARE_NUMBERS>(of, &mut constants);
            self.next_row();
        }
    }

    /// Goes to the next row. This and the two functions below do not depend on `T`, so that rustc has one of each for all expressions.
    #[inline(always)]
    fn next_row(&mut self) {
        for from in &mut self.read {
            from.numbers = from.numbers.wrapping_add(from.step);
        }
        for to in &mut self.write {
            to.numbers = to.numbers.wrapping_add(to.step);
        }
    }

    /// The operands of this row. The first list has where each is read, and a mask of its index: all bits of a slice, none of a number, which is
    /// read from `constants`. The second list has the numbers.
    #[inline(always)]
    fn operands<V: Vector<Element = E>>(
        &self,
        constants: &mut [Constant<E>; N],
    ) -> ([(*const E, usize); N], [V; N]) {
        const { assert!(V::LANES <= size_of::<Constant<u8>>()) };
        let mut read = [(std::ptr::null(), 0); N];
        let mut numbers = [V::zero(); N];
        for (index, from) in self.read.iter().enumerate() {
            read[index] = (from.numbers, usize::MAX);
            if from.is_number {
                // SAFETY: the slice has a number for each row.
                let number = unsafe { *from.numbers };
                numbers[index] = V::splat(number);
                constants[index].0.fill(number);
                read[index] = (constants[index].0.as_ptr(), 0);
            }
        }
        (read, numbers)
    }

    /// Adds the sums of this row to their numbers.
    #[inline(always)]
    fn add_sums<V: Vector<Element = E>>(&self, sums: [[V; M]; 2]) {
        for (index, to) in self.write.iter().enumerate() {
            if to.mode == Mode::Sum {
                let sum = (sums[0][index] + sums[1][index]).reduce_sum();
                // SAFETY: the slice has a number for each row.
                unsafe { *to.numbers += sum };
            }
        }
    }

    #[inline(always)]
    fn write_row<V: Vector<Element = E>, T: Values<E, N, M>, const ARE_NUMBERS: bool>(
        &self,
        of: &T,
        constants: &mut [Constant<E>; N],
    ) {
        let (read, numbers) = self.operands(constants);
        let row = Row::<'_, E, N, M, V> {
            read,
            numbers,
            write: &self.write,
        };
        // Two vectors at a time have two sums: an addition need not wait for the one before it.
        let mut sums = [[V::zero(); M]; 2];
        let two = 2 * V::LANES;
        let whole = match ARE_NUMBERS || T::NUMBERS == 0 {
            true => self.width - self.width % two,
            // This is seldom, and shorter code.
            false => 0,
        };
        let mut start = 0;
        while start < whole {
            let next = start.wrapping_add(V::LANES);
            // SAFETY: so many elements are left in the row.
            let values = unsafe {
                [
                    row.load::<_, ARE_NUMBERS>(of, start, V::LANES),
                    row.load::<_, ARE_NUMBERS>(of, next, V::LANES),
                ]
            };
            // SAFETY: as above.
            unsafe { row.store([start, next], values, &mut sums, V::LANES) };
            // Without a check: it is at most the width.
            start = start.wrapping_add(two);
        }
        while start < self.width {
            let left = V::LANES.min(self.width - start);
            // SAFETY: as above.
            let values = unsafe { row.load::<_, ARE_NUMBERS>(of, start, left) };
            let values = first_lanes(values, left);
            let [sum, _] = &mut sums;
            // SAFETY: as above.
            unsafe { row.store([start], [values], std::array::from_mut(sum), left) };
            start += left;
        }
        self.add_sums(sums);
    }
}

/// The values with zeros in the lanes from `count` on.
#[inline(always)]
fn first_lanes<V: Vector, const M: usize>(mut values: [V; M], count: usize) -> [V; M] {
    for value in &mut values {
        *value = V::select(V::first_lanes(count), *value, V::zero());
    }
    values
}

/// A row of slices.
struct Row<'r, E, const N: usize, const M: usize, V> {
    read: [(*const E, usize); N],
    /// The values of operands that are one number.
    numbers: [V; N],
    write: &'r [WriteTo<E>; M],
}

impl<E: Real, const N: usize, const M: usize, V: Vector<Element = E>> Row<'_, E, N, M, V> {
    /// The values of so many elements.
    ///
    /// # Safety
    /// The rows have so many elements from `start` on, and no reference to one that is written is alive.
    #[inline(always)]
    unsafe fn load<T: Values<E, N, M>, const ARE_NUMBERS: bool>(
        &self,
        of: &T,
        start: usize,
        len: usize,
    ) -> [V; M] {
        let len = len.min(V::LANES);
        let mut loaded = self.numbers;
        // A closure would not always be inlined into the code with the instructions.
        for (index, (from, mask)) in self.read.into_iter().enumerate() {
            if !(ARE_NUMBERS && T::NUMBERS >> index & 1 == 1) {
                // SAFETY: the caller says so. A constant has as many elements as `len` may be, and is read from the first one on.
                loaded[index] =
                    load_any(unsafe { slice::from_raw_parts(from.add(start & mask), len) });
            }
        }
        of.values(loaded)
    }

    /// Writes so many elements from each start on, or adds to them, or to sums.
    ///
    /// # Safety
    /// The rows have so many elements there, and no reference to one of them is alive.
    #[inline(always)]
    unsafe fn store<const C: usize>(
        &self,
        starts: [usize; C],
        values: [[V; M]; C],
        sums: &mut [[V; M]; C],
        len: usize,
    ) {
        for (index, to) in self.write.iter().enumerate() {
            for chain in 0..C {
                let value = values[chain][index];
                if to.mode == Mode::Sum {
                    sums[chain][index] += value;
                    continue;
                }
                // SAFETY: the caller says so; `&mut` slices do not overlap.
                let to_row =
                    unsafe { slice::from_raw_parts_mut(to.numbers.add(starts[chain]), len) };
                match to.mode {
                    Mode::Add => store_any(load_any::<V>(to_row) + value, to_row),
                    _ => store_any(value, to_row),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, Kernel};

    /// `x + y` and `x - y`, of which `y` is a number where `NUMBERS` says so.
    struct Both<const NUMBERS: u32>;

    impl<const NUMBERS: u32> Values<f32, 2, 2> for Both<NUMBERS> {
        const NUMBERS: u32 = NUMBERS;

        #[inline(always)]
        fn values<V: Vector<Element = f32>>(&self, [x, y]: [V; 2]) -> [V; 2] {
            [x + y, x - y]
        }
    }

    struct Run<'a, const NUMBERS: u32>(Zipped<'a, f32, 2, 2>);

    impl<const NUMBERS: u32> Kernel for Run<'_, NUMBERS> {
        type Element = f32;
        type Output = ();

        #[inline(always)]
        fn run<V: Vector<Element = f32>>(self) {
            self.0.write::<V, _>(&Both::<NUMBERS>);
        }
    }

    const WIDTHS: std::ops::Range<usize> = 0..70;

    fn elements(numbers: &[f32], step: usize) -> Source<'_, f32> {
        Source::Elements { numbers, step }
    }

    fn written(numbers: &mut [f32], step: usize, mode: WriteMode) -> Target<'_, f32> {
        Target::Elements {
            numbers,
            step,
            mode,
        }
    }

    #[test]
    fn slices_are_read_before_they_are_written() {
        for isa in Isa::available() {
            for width in WIDTHS {
                let y: Vec<f32> = (0..3 * width).map(|i| i as f32).collect();
                let mut z = vec![1.0; 3 * width];
                let mut sums = vec![10.0; 3 * width];
                isa.run(Run::<0>(Zipped::new(
                    [3, width],
                    [Source::First, elements(&y, width)],
                    &mut [
                        written(&mut z, width, WriteMode::Overwrite),
                        written(&mut sums, width, WriteMode::Add),
                    ],
                )));
                for i in 0..3 * width {
                    assert_eq!(z[i], 1.0 + y[i], "{i} of {width} on {isa}");
                    assert_eq!(sums[i], 11.0 - y[i], "{i} of {width} on {isa}");
                }
            }
        }
    }

    /// One row that is read and added to for all, with a number and a sum for each.
    fn sums<const NUMBERS: u32>(isa: Isa, width: usize, is_number: bool) -> [Vec<f32>; 2] {
        let x: Vec<f32> = (0..width).map(|i| i as f32).collect();
        let factors = [1.0, 20.0, 300.0];
        let all: Vec<f32> = factors.iter().flat_map(|y| vec![*y; width]).collect();
        let mut columns = vec![0.5; width];
        let mut of_rows = [0.5, f32::NAN, 0.5, f32::NAN, 0.5];
        let y = match is_number {
            true => Source::Number {
                numbers: &factors,
                step: 1,
            },
            false => elements(&all, width),
        };
        let of_row = Target::Sum {
            numbers: &mut of_rows,
            step: 2,
        };
        isa.run(Run::<NUMBERS>(Zipped::new(
            [3, width],
            [elements(&x, 0), y],
            &mut [written(&mut columns, 0, WriteMode::Add), of_row],
        )));
        [columns, of_rows.to_vec()]
    }

    #[test]
    fn numbers_and_sums_are_of_rows() {
        for isa in Isa::available() {
            for width in WIDTHS {
                let [columns, rows] = sums::<0>(isa, width, true);
                let of_x = (0..width).sum::<usize>() as f32;
                for (i, sum) in columns.iter().enumerate() {
                    assert_eq!(*sum, 321.5 + 3.0 * i as f32, "{i} of {width} on {isa}");
                }
                for (row, y) in [(0, 1.0), (2, 20.0), (4, 300.0)] {
                    assert_eq!(rows[row], 0.5 + of_x - y * width as f32, "{width} on {isa}");
                }
                let bits = |sums: [Vec<f32>; 2]| sums.concat().into_iter().map(f32::to_bits);
                let bits = |sums| bits(sums).collect::<Vec<_>>();
                let want = bits([columns, rows]);
                assert_eq!(bits(sums::<2>(isa, width, true)), want);
                assert_eq!(bits(sums::<0>(isa, width, false)), want);
                assert_eq!(bits(sums::<2>(isa, width, false)), want);
            }
        }
    }

    #[test]
    #[should_panic(expected = "slices with all rows")]
    fn slices_of_fewer_rows_are_refused() {
        let mut to = [0.0; 6];
        let to = Target::Elements {
            numbers: &mut to[..],
            step: 3,
            mode: WriteMode::Add,
        };
        let _ = Zipped::new([2, 3], [elements(&[0.0; 5], 3)], &mut [to]);
    }

    #[test]
    #[should_panic(expected = "slices with all rows")]
    fn slices_of_fewer_rows_are_not_written() {
        let mut to = [0.0; 5];
        let to = Target::Elements {
            numbers: &mut to[..],
            step: 3,
            mode: WriteMode::Add,
        };
        let _ = Zipped::<f32, 0, 1>::new([2, 3], [], &mut [to]);
    }

    #[test]
    #[should_panic(expected = "there is none")]
    fn a_missing_output_slice_is_refused() {
        let _ = Zipped::<f32, 1, 0>::new([1, 0], [Source::First], &mut []);
    }
}
