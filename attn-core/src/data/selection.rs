//! The numbers along an axis that an operation reads.

use std::borrow::Cow;

use crate::{
    Error,
    kernel::axis::{Axis, Counted},
    sizes::place_in,
};

/// The indices of an axis that an operation such as [`sum_where`](crate::ops::sum_where) reads, for each index of the axes before it.
///
/// | | numbers | indices |
/// | --- | --- | --- |
/// | [`all`](Self::all) | | all of them |
/// | [`lengths`](Self::lengths) | one for each index of the axes before | so many of the first ones |
/// | [`marks`](Self::marks) | one for each index of the axis and of those before | those that are `true` |
///
/// PyTorch has no such operations; there `x` is filled at the others before: `x.masked_fill(~keep, 0).sum(1)`.
#[derive(Clone, Debug)]
pub struct Selection<'a>(Which<'a>);

#[derive(Clone, Debug)]
enum Which<'a> {
    All,
    First(Cow<'a, [usize]>),
    Where(Cow<'a, [bool]>),
}

impl<'a> Selection<'a> {
    /// All indices.
    pub const fn all() -> Self {
        Self(Which::All)
    }

    /// The first indices, as many as `lengths` say.
    pub fn lengths(lengths: impl Into<Cow<'a, [usize]>>) -> Self {
        Self(Which::First(lengths.into()))
    }

    /// The indices whose mark is `true`.
    pub fn marks(marks: impl Into<Cow<'a, [bool]>>) -> Self {
        Self(Which::Where(marks.into()))
    }

    /// [`lengths`](Self::lengths) with some of the axes before, which have these sizes: repeated along the others.
    #[doc(hidden)]
    pub fn of_lengths(lengths: &'a [usize], before: &[usize], own: &[usize]) -> Self {
        Self::lengths(repeated(lengths, before, own))
    }

    /// [`marks`](Self::marks) with some of the axes up to the one that is read: repeated along the others.
    #[doc(hidden)]
    pub fn of_marks(marks: &'a [bool], sizes: &[usize], own: &[usize]) -> Self {
        Self::marks(repeated(marks, sizes, own))
    }

    /// The same for kernels.
    pub fn counted(&self) -> Counted<'_> {
        match &self.0 {
            Which::All => Counted::All,
            Which::First(lengths) => Counted::First(lengths),
            Which::Where(marks) => Counted::Where(marks),
        }
    }

    /// A selection that owns its numbers.
    pub(crate) fn into_owned(self) -> Selection<'static> {
        Selection(match self.0 {
            Which::All => Which::All,
            Which::First(lengths) => Which::First(Cow::Owned(lengths.into_owned())),
            Which::Where(marks) => Which::Where(Cow::Owned(marks.into_owned())),
        })
    }

    /// Checks that no length is greater than the axis.
    pub(crate) fn check<Dev>(&self, layer: &'static str, axis: Axis) -> Result<(), Error<Dev>> {
        let Which::First(lengths) = &self.0 else {
            return Ok(());
        };
        match lengths.iter().position(|&length| length > axis.len) {
            Some(index) => Err(Error::LengthBeyondKeys {
                layer,
                length: lengths[index],
                keys: axis.len,
                index: vec![index],
            }),
            None => Ok(()),
        }
    }
}

/// Values of some axes of a tensor of these sizes, in any order, for all of its elements.
pub(crate) fn repeated<'a, T: Copy>(
    values: &'a [T],
    sizes: &[usize],
    own: &[usize],
) -> Cow<'a, [T]> {
    if own.iter().copied().eq(0..sizes.len()) {
        return Cow::Borrowed(values);
    }
    let all: Vec<usize> = (0..sizes.len()).collect();
    let place = place_in(own, &all, sizes);
    let elements = 0..sizes.iter().product::<usize>();
    elements.map(|element| values[place(element)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_repeated_along_other_axes() {
        let of =
            |sizes: &[usize], own: &[usize]| repeated(&[1, 2, 3, 4, 5, 6], sizes, own).into_owned();
        assert_eq!(of(&[2, 3], &[0, 1]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(of(&[3, 2], &[1, 0]), [1, 4, 2, 5, 3, 6]);
        assert_eq!(
            of(&[2, 2, 3], &[0, 2]),
            [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]
        );
        assert_eq!(repeated(&[7], &[3], &[]).into_owned(), [7, 7, 7]);
        assert!(repeated::<i32>(&[], &[0, 3], &[0]).is_empty());
    }
}
