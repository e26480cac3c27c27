//! The values of a loop over steps: an array for each step, all in one.

use super::Array;
use crate::kernel::row_shares::{Cut, RowShare};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};

/// An array for each step of a loop, one behind the other. `[steps, rows, width]`.
///
/// Where nobody reads a step again, there are fewer places than steps, which are used in turn.
///
/// ```
/// use attn::__private::runtime::fused::Steps;
///
/// let mut h = Steps::<f32>::uninit(3, 1, 2);
/// h.at_mut(0).as_mut_slice().fill(0.0);
/// for step in 0..2 {
///     let (before, mut after) = h.pair(step, step + 1);
///     for (to, from) in after.as_mut_slice().iter_mut().zip(before.as_slice()) {
///         *to = from + 1.0;
///     }
/// }
/// assert_eq!(h.all(), [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
/// ```
#[derive(Debug)]
pub struct Steps<E: Pooled> {
    numbers: Buffer<E>,
    /// The step whose array is at the first place.
    first: usize,
    places: usize,
    rows: usize,
    width: usize,
}

/// The length of a segment of so many steps, where the states are kept before each segment alone: the square root, rounded up.
///
/// ```
/// use attn::__private::runtime::fused::{segment_length, segments};
///
/// assert_eq!([0, 1, 2, 9, 10].map(segment_length), [1, 1, 2, 3, 4]);
/// assert_eq!([0, 1, 2, 9, 10].map(segments), [0, 1, 1, 3, 3]);
/// ```
pub const fn segment_length(steps: usize) -> usize {
    let root = steps.isqrt();
    match steps {
        0 => 1,
        _ if root * root < steps => root + 1,
        _ => root,
    }
}

/// The number of segments.
pub const fn segments(steps: usize) -> usize {
    steps.div_ceil(segment_length(steps))
}

impl<E: Pooled> Steps<E> {
    /// Uninitialised arrays.
    pub fn uninit(places: usize, rows: usize, width: usize) -> Self {
        Self {
            numbers: Buffer::counted(places * rows * width),
            first: 0,
            places,
            rows,
            width,
        }
    }

    fn place(&self, step: usize) -> std::ops::Range<usize> {
        let each = self.rows * self.width;
        let place = (step - self.first) % self.places.max(1);
        place * each..(place + 1) * each
    }

    /// From here on the first place is that of this step, and no step before it has one.
    pub fn begin(&mut self, first: usize) {
        self.first = first;
    }

    /// The array of a step.
    pub fn at(&self, step: usize) -> Step<'_, E> {
        Step {
            numbers: &self.numbers[self.place(step)],
            rows: self.rows,
            width: self.width,
        }
    }

    /// The array of a step, mutable.
    pub fn at_mut(&mut self, step: usize) -> StepMut<'_, E> {
        let place = self.place(step);
        StepMut {
            numbers: &mut self.numbers[place],
            rows: self.rows,
            width: self.width,
        }
    }

    /// The array of a step, and that of another one, mutable.
    ///
    /// # Panics
    /// If both are in one place.
    #[track_caller]
    pub fn pair(&mut self, from: usize, to: usize) -> (Step<'_, E>, StepMut<'_, E>) {
        self.view_mut().into_pair(from, to)
    }

    /// The rows of a share.
    pub fn some_rows(&self, share: &RowShare) -> StepRows<'_, E> {
        let all = StepRows {
            first: self.first,
            ..StepRows::of(&self.numbers, self.rows, self.width)
        };
        all.some_rows(share)
    }

    /// All rows, to be cut into shares.
    pub fn view_mut(&mut self) -> StepRowsMut<'_, E> {
        let each = self.rows * self.width;
        StepRowsMut {
            numbers: MatrixMut::new(&mut self.numbers, self.places, each),
            first: self.first,
            rows: self.rows,
            width: self.width,
        }
    }

    /// The numbers of so many steps from this one on.
    ///
    /// # Panics
    /// If there are fewer places.
    #[track_caller]
    pub fn some(&self, first: usize, count: usize) -> &[E] {
        let each = self.rows * self.width;
        let first = first - self.first;
        &self.numbers[first * each..(first + count) * each]
    }

    /// All numbers, row-major.
    pub fn all(&self) -> &[E] {
        &self.numbers
    }
}

/// Some rows of the arrays of all steps. `[steps, rows, width]`.
#[derive(Clone, Copy, Debug)]
pub struct StepRows<'a, E> {
    /// `[places, rows * width]`
    numbers: Matrix<'a, E>,
    first: usize,
    rows: usize,
    width: usize,
}

impl<'a, E: Pooled> StepRows<'a, E> {
    /// All rows of numbers that have so many at each step.
    pub fn of(numbers: &'a [E], rows: usize, width: usize) -> Self {
        let each = rows * width;
        let places = numbers.len().checked_div(each).unwrap_or(0);
        Self {
            numbers: Matrix::new(numbers, places, each),
            first: 0,
            rows,
            width,
        }
    }

    /// The rows of a share.
    pub fn some_rows(&self, share: &RowShare) -> Self {
        let rows = share.range(self.rows);
        let columns = rows.start * self.width..rows.end * self.width;
        Self {
            numbers: self.numbers.some_cols(columns),
            rows: rows.len(),
            ..*self
        }
    }

    /// The rows of one step.
    pub fn at(&self, step: usize) -> Step<'a, E> {
        let place = (step - self.first).checked_rem(self.numbers.rows());
        Step {
            numbers: place.map_or(&[], |place| self.numbers.row(place)),
            rows: self.rows,
            width: self.width,
        }
    }
}

/// Some rows of the arrays of all steps, mutable.
///
/// ```
/// use attn::__private::runtime::{fused::Steps, kernel::row_shares::RowShares};
///
/// let mut h = Steps::<f32>::uninit(2, 3, 1);
/// RowShares::of(3, 2).for_each([h.view_mut()], |share, [mut h]| {
///     h.at_mut(0).as_mut_slice().fill(share.len() as f32);
///     let (before, mut after) = h.into_pair(0, 1);
///     after.as_mut_slice().copy_from_slice(before.as_slice());
/// });
/// assert_eq!(h.all(), [1.0, 2.0, 2.0, 1.0, 2.0, 2.0]);
/// ```
#[derive(Debug)]
pub struct StepRowsMut<'a, E> {
    /// `[places, rows * width]`
    numbers: MatrixMut<'a, E>,
    first: usize,
    rows: usize,
    width: usize,
}

impl<'a, E: Pooled> StepRowsMut<'a, E> {
    /// All rows of numbers that have so many rows at each step.
    pub fn of(numbers: &'a mut [E], rows: usize, width: usize) -> Self {
        let each = rows * width;
        let places = numbers.len().checked_div(each).unwrap_or(0);
        Self {
            numbers: MatrixMut::new(numbers, places, each),
            first: 0,
            rows,
            width,
        }
    }

    fn place(&self, step: usize) -> usize {
        (step - self.first) % self.numbers.rows().max(1)
    }

    /// The rows of one step.
    pub fn at(&self, step: usize) -> Step<'_, E> {
        let numbers = match self.numbers.rows() {
            0 => &[],
            _ => self.numbers.row(self.place(step)),
        };
        Step {
            numbers,
            rows: self.rows,
            width: self.width,
        }
    }

    /// The rows of one step, mutable.
    pub fn at_mut(&mut self, step: usize) -> StepMut<'_, E> {
        self.reborrow().into_step(step)
    }

    /// The rows of one step, and the rows of another one, mutable.
    ///
    /// # Panics
    /// If both are in one place.
    #[track_caller]
    pub fn pair(&mut self, from: usize, to: usize) -> (Step<'_, E>, StepMut<'_, E>) {
        self.reborrow().into_pair(from, to)
    }

    fn reborrow(&mut self) -> StepRowsMut<'_, E> {
        StepRowsMut {
            numbers: self.numbers.reborrow(),
            ..*self
        }
    }

    fn into_step(self, step: usize) -> StepMut<'a, E> {
        let place = self.place(step);
        StepMut {
            numbers: match self.numbers.rows() {
                0 => &mut [],
                _ => self.numbers.into_row(place),
            },
            rows: self.rows,
            width: self.width,
        }
    }

    /// [`pair`](Self::pair) for as long as the numbers live.
    ///
    /// # Panics
    /// If both are in one place.
    #[track_caller]
    pub fn into_pair(self, from: usize, to: usize) -> (Step<'a, E>, StepMut<'a, E>) {
        let (rows, width) = (self.rows, self.width);
        let [of, place] = [from, to].map(|step| self.place(step));
        assert_ne!(of, place, "two places of a state");
        let (upper, lower) = self.numbers.split_rows(of.max(place));
        let [upper, lower] = [upper.into_row(of.min(place)), lower.into_row(0)];
        let [from, to] = match of < place {
            true => [upper, lower],
            false => [lower, upper],
        };
        let from = Step {
            numbers: from,
            rows,
            width,
        };
        let to = StepMut {
            numbers: to,
            rows,
            width,
        };
        (from, to)
    }
}

impl<E: Pooled> Cut for StepRowsMut<'_, E> {
    fn cut(self, rows: usize, of: usize) -> (Self, Self) {
        let some = self.rows / of.max(1) * rows;
        let (part, others) = self.numbers.split_cols(some * self.width);
        let part = Self {
            numbers: part,
            rows: some,
            ..self
        };
        let others = Self {
            numbers: others,
            first: part.first,
            rows: self.rows - some,
            width: part.width,
        };
        (part, others)
    }
}

/// The array of a step.
#[derive(Debug)]
pub struct Step<'a, E> {
    numbers: &'a [E],
    rows: usize,
    width: usize,
}

impl<'a, E: Pooled> Step<'a, E> {
    /// Its numbers, row-major.
    pub fn as_slice(&self) -> &'a [E] {
        self.numbers
    }

    /// The same as a matrix.
    pub fn view(&self) -> Matrix<'a, E> {
        Matrix::new(self.numbers, self.rows, self.width)
    }

    /// An array of the same numbers.
    pub fn copy(&self) -> Array<E> {
        Array::of(self.numbers, self.rows, self.width)
    }
}

/// The array of a step, mutable.
#[derive(Debug)]
pub struct StepMut<'a, E> {
    numbers: &'a mut [E],
    rows: usize,
    width: usize,
}

impl<'a, E: Pooled> StepMut<'a, E> {
    /// Its numbers, for as long as the array lives.
    pub fn into_mut_slice(self) -> &'a mut [E] {
        self.numbers
    }

    /// Its numbers, row-major.
    pub fn as_slice(&self) -> &[E] {
        self.numbers
    }

    /// Its numbers, row-major, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [E] {
        self.numbers
    }

    /// Sets all numbers to 0.
    pub fn clear(&mut self) {
        self.numbers.fill(E::ZERO);
    }

    /// The same as a matrix.
    pub fn view(&self) -> Matrix<'_, E> {
        Matrix::new(self.numbers, self.rows, self.width)
    }

    /// The same as a matrix, mutable.
    pub fn view_mut(&mut self) -> MatrixMut<'_, E> {
        MatrixMut::new(self.numbers, self.rows, self.width)
    }

    /// An array of the same numbers.
    pub fn copy(&self) -> Array<E> {
        Array::of(self.numbers, self.rows, self.width)
    }
}

/// The numbers of a step, so many for each.
pub fn step<E>(numbers: &[E], step: usize, each: usize) -> &[E] {
    &numbers[step * each..(step + 1) * each]
}

/// The numbers of so many steps from this one on.
pub fn some_steps<E>(numbers: &[E], first: usize, count: usize, each: usize) -> &[E] {
    &numbers[first * each..(first + count) * each]
}

/// The numbers of a step, mutable.
pub fn step_mut<E>(numbers: &mut [E], step: usize, each: usize) -> &mut [E] {
    &mut numbers[step * each..(step + 1) * each]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_in_turn() {
        let mut h = Steps::<f64>::uninit(2, 1, 1);
        h.at_mut(0).as_mut_slice()[0] = 1.0;
        for step in 0..5 {
            let (before, mut after) = h.pair(step, step + 1);
            after.as_mut_slice()[0] = 2.0 * before.as_slice()[0];
        }
        assert_eq!(h.at(5).as_slice(), [32.0]);
        assert_eq!(h.at(4).as_slice(), [16.0]);
    }

    #[test]
    fn a_segment_has_the_places_of_its_steps() {
        let mut h = Steps::<f64>::uninit(3, 1, 1);
        for first in [0, 3, 6] {
            h.begin(first);
            (first..first + 3).for_each(|step| h.at_mut(step).as_mut_slice()[0] = step as f64);
            assert_eq!(
                h.some(first + 1, 2),
                [first as f64 + 1.0, first as f64 + 2.0]
            );
        }
        for steps in 1..200 {
            let [length, count] = [segment_length(steps), segments(steps)];
            assert!(length * length >= steps && (length - 1) * (length - 1) < steps);
            assert!((count - 1) * length < steps && steps <= count * length);
        }
    }

    #[test]
    fn steps_may_be_empty() {
        let mut h = Steps::<f32>::uninit(3, 0, 4);
        let (before, after) = h.pair(1, 2);
        assert_eq!((before.view().rows(), after.view().rows()), (0, 0));
        assert!(step::<f32>(&[], 7, 0).is_empty());
        assert!(step_mut::<f32>(&mut [], 7, 0).is_empty());
    }
}
