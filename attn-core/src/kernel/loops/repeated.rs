//! An operand with fewer axes than the result, or with axes of size 1: its numbers are repeated as they are read.

use crate::simd::Source;

/// The most axes of a tensor.
const AXES: usize = 6;

/// Numbers that are repeated to a larger shape, from an element of that shape on.
#[derive(Clone, Copy, Debug)]
pub struct Repeated<'a, E> {
    numbers: &'a [E],
    /// Size and stride of the axes of the larger shape, the last one first. The stride of an axis along which numbers are repeated is 0.
    /// Neighbours that are read as one axis are one.
    axes: [(usize, usize); AXES],
    first: usize,
    /// How many elements there are from the first one on.
    len: usize,
}

/// The numbers of a tensor with the sizes `from`, repeated along its axes of size 1 to the sizes `to`.
///
/// # Panics
/// If there are not as many axes, or more than 6; if the size of an axis changes and is not 1; or if there are not so many numbers.
#[track_caller]
pub fn repeated<'a, E>(numbers: &'a [E], from: &[usize], to: &[usize]) -> Repeated<'a, E> {
    assert_eq!(from.len(), to.len(), "axes of {from:?} and {to:?}");
    let len: usize = from.iter().product();
    assert_eq!(numbers.len(), len, "numbers of {from:?}");
    let mut axes = [(1, 0); AXES];
    let mut last: Option<usize> = None;
    let mut stride = 1;
    for (&from, &to) in from.iter().zip(to).rev() {
        assert!(from == to || from == 1, "{from} is not repeated to {to}");
        let step = if from == to { stride } else { 0 };
        stride *= from;
        if to == 1 {
            continue;
        }
        match last {
            // Both are repeated, or the numbers of one follow those of the other.
            Some(last) if step == axes[last].0 * axes[last].1 => axes[last].0 *= to,
            last_axis => {
                let next = last_axis.map_or(0, |last| last + 1);
                axes[next] = (to, step);
                last = Some(next);
            }
        }
    }
    Repeated {
        numbers,
        axes,
        first: 0,
        len: to.iter().product(),
    }
}

impl<E> Repeated<'_, E> {
    /// The number of elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// So many elements from this one on.
    ///
    /// # Panics
    /// If there are fewer.
    #[track_caller]
    pub(in crate::kernel) fn some(self, first: usize, len: usize) -> Self {
        assert!(first + len <= self.len, "there are fewer elements");
        let first = self.first + first;
        Self { first, len, ..self }
    }
}

impl<'a, E: Copy> Repeated<'a, E> {
    /// The elements in runs along the last axis.
    pub(super) fn runs(&self) -> Runs<'_, 'a, E> {
        let (size, _) = self.axes[0];
        let size = size.max(1);
        let mut runs = Runs {
            of: self,
            place: self.first % size,
            start: 0,
            indices: [0; AXES - 1],
        };
        let mut rest = self.first / size;
        for (index, (size, stride)) in runs.indices.iter_mut().zip(&self.axes[1..]) {
            if rest == 0 {
                break;
            }
            *index = rest % (*size).max(1);
            rest /= (*size).max(1);
            runs.start += *index * stride;
        }
        runs
    }

    /// Copies the first elements.
    pub(super) fn copy_to(&self, mut to: &mut [E]) {
        let mut runs = self.runs();
        while !to.is_empty() {
            let len = runs.left().min(to.len());
            let (run, rest) = to.split_at_mut(len);
            match runs.next([1, len]) {
                Source::Number { numbers, .. } => run.fill(numbers[0]),
                Source::Elements { numbers, .. } => run.copy_from_slice(&numbers[..len]),
                Source::First => {}
            }
            to = rest;
        }
    }
}

/// Where a loop is in an operand that is repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'x, 'a, E> {
    of: &'x Repeated<'a, E>,
    /// The next place in the last axis, and the first number along it.
    place: usize,
    start: usize,
    /// The indices along the other axes.
    indices: [usize; AXES - 1],
}

impl<'a, E: Copy> Runs<'_, 'a, E> {
    /// How many elements there are up to the end of the last axis.
    pub(super) fn left(&self) -> usize {
        self.size() - self.place
    }

    /// How many rows of this width, at most what is [left](Self::left), are read with the same step.
    pub(super) fn rows(&self, width: usize) -> usize {
        match self.is_whole(width) {
            true => self.of.axes[1].0.max(1) - self.indices[0],
            false => self.left() / width,
        }
    }

    /// So many rows, which are the next ones.
    pub(super) fn next(&mut self, [rows, width]: [usize; 2]) -> Source<'a, E> {
        let is_whole = self.is_whole(width);
        let [(_, stride), (_, next_stride), ..] = self.of.axes;
        let numbers = &self.of.numbers[self.start + self.place * stride..];
        let step = match is_whole {
            true => next_stride,
            false => width * stride,
        };
        if is_whole {
            self.step(rows);
        } else {
            self.place += rows * width;
            if self.place == self.size() {
                self.place = 0;
                self.step(1);
            }
        }
        match stride {
            0 => Source::Number { numbers, step },
            _ => Source::Elements { numbers, step },
        }
    }

    fn size(&self) -> usize {
        self.of.axes[0].0.max(1)
    }

    /// Whether rows of this width are the last axis.
    fn is_whole(&self, width: usize) -> bool {
        self.place == 0 && width == self.size()
    }

    /// Goes so many indices of the next axis on, at most to its end.
    fn step(&mut self, by: usize) {
        let mut by = by;
        for (index, (size, stride)) in self.indices.iter_mut().zip(&self.of.axes[1..]) {
            *index += by;
            self.start += by * stride;
            if *index < *size {
                return;
            }
            *index = 0;
            self.start -= size * stride;
            by = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element by its indices.
    fn brute_force(numbers: &[usize], from: &[usize], to: &[usize]) -> Vec<usize> {
        let elements = 0..to.iter().product();
        let source = |mut place: usize| {
            let mut source = 0;
            let mut stride = 1;
            for (from, to) in from.iter().zip(to).rev() {
                source += place % to % from * stride;
                stride *= from;
                place /= to;
            }
            numbers[source]
        };
        elements.map(source).collect()
    }

    #[test]
    fn numbers_are_repeated_from_any_element_on() {
        let cases: [(&[usize], &[usize]); 12] = [
            (&[4], &[4]),
            (&[1], &[5]),
            (&[1, 1, 4], &[2, 3, 4]),
            (&[2, 1, 4], &[2, 3, 4]),
            (&[2, 3, 1], &[2, 3, 4]),
            (&[1, 3, 1], &[2, 3, 4]),
            (&[2, 1, 1], &[2, 3, 4]),
            (&[1, 1, 1], &[2, 3, 4]),
            (&[1, 3, 1, 2, 1, 2], &[2, 3, 2, 2, 3, 2]),
            (&[2, 3, 4], &[2, 3, 4]),
            (&[1, 1, 4], &[1, 3, 4]),
            (&[], &[]),
        ];
        for (from, to) in cases {
            let numbers: Vec<usize> = (0..from.iter().product()).collect();
            let want = brute_force(&numbers, from, to);
            for first in 0..want.len() {
                for end in first..=want.len() {
                    let of = repeated(&numbers, from, to).some(first, want.len() - first);
                    assert_eq!(of.len(), want.len() - first, "{from:?} to {to:?}");
                    let mut found = vec![0; end - first];
                    of.copy_to(&mut found);
                    assert_eq!(found, want[first..end], "{from:?} to {to:?}");
                }
            }
        }
    }

    #[test]
    fn axes_of_size_0_have_no_elements() {
        for (from, to) in [([1, 3], [0, 3]), ([0, 1], [0, 3]), ([1, 1], [2, 0])] {
            let numbers = vec![0; from.iter().product()];
            let of = repeated(&numbers, &from, &to);
            assert_eq!(of.len(), 0);
            of.copy_to(&mut []);
        }
    }

    #[test]
    #[should_panic(expected = "2 is not repeated to 3")]
    fn an_axis_of_another_size_than_1_is_not_repeated() {
        repeated(&[1, 2], &[2], &[3]);
    }
}
