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

/// The next elements of an operand, for a loop that reads them where they stand.
pub(super) enum Run<'a, E> {
    /// One number, so many times.
    Constant(E, usize),
    Numbers(&'a [E]),
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
    /// The elements up to the end of the last axis, of which there is at least one.
    pub(super) fn run(&self) -> Run<'a, E> {
        let [(size, stride), outer @ ..] = self.axes;
        let place = self.first % size;
        let len = (size - place).min(self.len);
        let mut index = self.first / size;
        let mut start = place * stride;
        for (size, stride) in outer {
            start += index % size * stride;
            index /= size;
        }
        match stride {
            0 => Run::Constant(self.numbers[start], len),
            _ => Run::Numbers(&self.numbers[start..][..len]),
        }
    }

    /// Copies the first elements.
    pub(super) fn copy_to(mut self, mut to: &mut [E]) {
        while !to.is_empty() {
            let len = match self.run() {
                Run::Constant(number, len) => {
                    let len = len.min(to.len());
                    to[..len].fill(number);
                    len
                }
                Run::Numbers(numbers) => {
                    let len = numbers.len().min(to.len());
                    to[..len].copy_from_slice(&numbers[..len]);
                    len
                }
            };
            to = &mut to[len..];
            self = self.some(len, self.len - len);
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
