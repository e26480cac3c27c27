//! The values of a loop over steps: an array for each step, all in one.

use super::Array;
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
        let (rows, width) = (self.rows, self.width);
        let [of, place] = [from, to].map(|step| self.place(step));
        let places = self.numbers.get_disjoint_mut([of, place]);
        let [from, to] = places.expect("two places of a state");
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

impl<E: Pooled> StepMut<'_, E> {
    /// Its numbers, row-major.
    pub fn as_slice(&self) -> &[E] {
        self.numbers
    }

    /// Its numbers, row-major, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [E] {
        self.numbers
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
