//! The sizes of named axes.

use dfdx::{
    shapes::{Dtype, HasShape, Shape},
    tensor::{Storage, Tensor},
    tensor_ops::RealizeTo,
};

use crate::Error;

/// The size of an axis.
pub fn axis<S: Shape, F, D: Storage<F>, T>(x: &Tensor<S, F, D, T>, index: usize) -> usize {
    x.shape().concrete()[index]
}

/// The number of elements of a tensor.
pub fn num_elements<S: Shape, F, D: Storage<F>, T>(x: &Tensor<S, F, D, T>) -> usize {
    x.shape().num_elements()
}

/// The length of the first axis of a tensor; a number is one row.
pub fn rows<S: Shape, F, D: Storage<F>, T>(x: &Tensor<S, F, D, T>) -> usize {
    x.shape().concrete().into_iter().next().unwrap_or(1)
}

/// How many of the targets of a classifier count: all but those that are ignored.
pub fn count_targets<S: Shape, D: Storage<usize>>(
    targets: &Tensor<S, usize, D>,
    ignored: Option<usize>,
) -> usize {
    let count = num_elements(targets);
    // dfdx's `as_vec` panics on an empty tensor.
    let Some(ignored) = ignored.filter(|_| count > 0) else {
        return count;
    };
    let targets = targets.as_vec();
    targets.iter().filter(|target| **target != ignored).count()
}

/// The tensor with its type changed to an equal shape: an assertion has proved that two constants are equal, but the types differ.
///
/// # Panics
/// If the sizes differ.
pub fn asserted<S: Shape, U: Shape<Concrete = S::Concrete>, E: Dtype, D: Storage<E>>(
    x: &Tensor<S, E, D>,
) -> Tensor<U, E, D> {
    let Ok(x) = x.clone().try_realize() else {
        unreachable!("rustc evaluates the assertion")
    };
    x
}

/// Checks that a learned position has a vector for every token.
///
/// # Errors
/// [`Error::TooLong`], with both.
pub fn check_length<Dev>(length: usize, max: usize) -> Result<(), Error<Dev>> {
    if length <= max {
        return Ok(());
    }
    Err(Error::TooLong {
        layer: "LearnedPosition",
        length,
        max,
    })
}

/// Checks that an axis has at least so many indices.
///
/// # Errors
/// [`Error::TooShort`], with both.
pub fn check_at_least<Dev>(
    model: &'static str,
    axis: &'static str,
    size: usize,
    least: usize,
) -> Result<(), Error<Dev>> {
    if size >= least {
        return Ok(());
    }
    Err(Error::TooShort {
        model,
        axis,
        size,
        least,
    })
}

/// Checks that an axis can be split into parts of a size.
///
/// # Errors
/// [`Error::Indivisible`], with both.
pub fn check_multiple<Dev>(
    model: &'static str,
    axis: &'static str,
    size: usize,
    of: usize,
) -> Result<(), Error<Dev>> {
    if size.checked_rem(of) == Some(0) {
        return Ok(());
    }
    Err(Error::Indivisible {
        model,
        axis,
        size,
        of,
    })
}

/// Checks that ids below one size are indices of an axis of another size. They are computed later, and may be as large.
///
/// # Errors
/// [`Error::OutOfRange`], with the largest id and the size.
pub fn check_ids_below<Dev>(
    operation: &'static str,
    below: usize,
    count: usize,
) -> Result<(), Error<Dev>> {
    if below <= count {
        return Ok(());
    }
    Err(Error::OutOfRange {
        operation,
        what: "largest id",
        index: below - 1,
        count,
        place: Vec::new(),
    })
}

/// Checks that an axis has the same size in two inputs.
///
/// # Errors
/// [`Error::AxisMismatch`], with both.
pub fn check_axis<Dev>(
    model: &'static str,
    axis: &'static str,
    [input, other]: [&'static str; 2],
    size: usize,
    found: usize,
) -> Result<(), Error<Dev>> {
    if size == found {
        return Ok(());
    }
    Err(Error::AxisMismatch {
        model,
        axis,
        input,
        size,
        other,
        found,
    })
}
