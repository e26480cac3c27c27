//! Indices in data of a call: tokens, classes, lengths.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Storage, Tensor},
};

use super::values;
use crate::{Error, sizes::index_of};

/// The result of a kernel whose indices have been checked before.
pub(crate) fn known<T, Error: std::fmt::Display>(result: Result<T, Error>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => unreachable!("{error}, but it was checked"),
    }
}

/// The values and the shape of a tensor of indices.
#[derive(Clone, Debug)]
pub struct Ids {
    /// Row-major.
    pub values: Vec<usize>,
    shape: Vec<usize>,
}

impl Ids {
    /// Reads a tensor.
    pub fn read<S: Shape, D: Storage<usize>>(ids: &Tensor<S, usize, D>) -> Self {
        Self {
            values: values(ids),
            shape: ids.shape().concrete().into_iter().collect(),
        }
    }

    /// Some indices.
    pub fn of(values: &[usize]) -> Self {
        Self {
            values: values.to_vec(),
            shape: vec![values.len()],
        }
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Checks that all indices are below `count` or equal to `ignored`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] with the first invalid index, which the error calls the `what` of an operation.
    pub fn check<Dev>(
        &self,
        operation: &'static str,
        what: &'static str,
        count: usize,
        ignored: Option<usize>,
    ) -> Result<(), Error<Dev>> {
        let bad = |&index: &usize| index >= count && Some(index) != ignored;
        match self.values.iter().position(bad) {
            Some(position) => Err(Error::OutOfRange {
                operation,
                what,
                index: self.values[position],
                count,
                place: index_of(position, &self.shape),
            }),
            None => Ok(()),
        }
    }

    /// Checks that no valid length is greater than `len`.
    ///
    /// # Errors
    /// [`Error::LengthBeyondKeys`], with the first such length.
    pub fn check_lengths<Dev>(&self, layer: &'static str, len: usize) -> Result<(), Error<Dev>> {
        match self.values.iter().position(|&length| length > len) {
            Some(position) => Err(Error::LengthBeyondKeys {
                layer,
                length: self.values[position],
                keys: len,
                index: index_of(position, &self.shape),
            }),
            None => Ok(()),
        }
    }
}
