//! An operand with fewer axes than the result, or with axes of size 1: its numbers are repeated as they are read.

/// The most axes of a tensor.
const AXES: usize = 6;

/// Shorter runs are copied, so that a loop has enough elements at once.
const LONG: usize = 64;

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

    /// Whether it has runs that are worth to be read where they stand.
    pub(super) fn is_long(&self) -> bool {
        self.axes[0].0 >= LONG
    }
}

impl<'a, E: Copy> Repeated<'a, E> {
    /// The elements in runs along the last axis.
    pub(super) fn runs(&self) -> Runs<'a, E> {
        let [(size, stride), outer @ ..] = self.axes;
        let size = size.max(1);
        let mut runs = Runs {
            numbers: self.numbers,
            size,
            stride,
            place: self.first % size,
            start: 0,
            outer,
            indices: [0; AXES - 1],
        };
        let mut rest = self.first / size;
        for (index, (size, stride)) in runs.indices.iter_mut().zip(outer) {
            *index = rest % size.max(1);
            rest /= size.max(1);
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
            match runs.next(len) {
                Run::Constant(number) => run.fill(number),
                Run::Numbers(numbers) => run.copy_from_slice(numbers),
            }
            to = rest;
        }
    }
}

/// Where a loop is in an operand that is repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'a, E> {
    numbers: &'a [E],
    /// Size and stride of the last axis, and the next place in it.
    size: usize,
    stride: usize,
    place: usize,
    /// The first number along that axis.
    start: usize,
    outer: [(usize, usize); AXES - 1],
    indices: [usize; AXES - 1],
}

/// Elements along the last axis.
pub(super) enum Run<'a, E> {
    Constant(E),
    Numbers(&'a [E]),
}

impl<'a, E: Copy> Runs<'a, E> {
    /// How many elements there are up to the end of the last axis.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.size - self.place
    }

    /// The next elements, at most those that are [left](Self::left).
    #[inline(always)]
    pub(super) fn next(&mut self, len: usize) -> Run<'a, E> {
        let run = match self.stride {
            0 => Run::Constant(self.numbers[self.start]),
            _ => Run::Numbers(&self.numbers[self.start + self.place..][..len]),
        };
        self.place += len;
        if self.place == self.size {
            self.place = 0;
            self.step();
        }
        run
    }

    /// Goes to the next index of the outer axes.
    #[inline(always)]
    fn step(&mut self) {
        for (index, (size, stride)) in self.indices.iter_mut().zip(self.outer) {
            *index += 1;
            self.start += stride;
            if *index < size {
                return;
            }
            *index = 0;
            self.start -= size * stride;
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
