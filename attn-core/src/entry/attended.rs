//! The results of an attention.

use std::fmt::{Debug, Display};

use crate::Error;

/// The results of an attention that a caller wants beside its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The weights, after dropout.
    pub weights: bool,
    /// For each query, the logarithm of the sum that its weights are divided by. A sparse normalizer and a function of single scores have
    /// none.
    pub lse: bool,
}

impl Wanted {
    /// The output alone.
    pub const NOTHING: Self = Self {
        weights: false,
        lse: false,
    };

    /// The weights.
    pub const WEIGHTS: Self = Self {
        weights: true,
        lse: false,
    };
}

/// The results of an attention: the output, and what is [wanted](Wanted) beside it.
#[derive(Clone, Debug)]
pub struct Attended<Output, Weights, Lse> {
    /// The output.
    pub output: Output,
    /// The weights, `[batch, heads, query, key]`.
    pub weights: Option<Weights>,
    /// The logarithms of the sums, `[batch, heads, query]`.
    pub lse: Option<Lse>,
}

/// A result that the options ask for.
///
/// # Panics
/// If the layer ran with other options.
pub fn wanted<R>(result: Option<R>) -> R {
    result.expect("the options ask for it")
}

/// The output alone.
///
/// # Errors
/// The error of the layer.
pub fn output<Output, Weights, Lse, Dev>(
    attended: Result<Attended<Output, Weights, Lse>, Error<Dev>>,
) -> Result<Output, Error<Dev>> {
    attended.map(|attended| attended.output)
}

/// The output alone, or the error of the device, for dfdx's traits.
///
/// # Errors
/// The error of the device.
///
/// # Panics
/// On every other error of the layer.
#[track_caller]
pub fn into_device<Output, Weights, Lse, Dev: Debug + Display>(
    attended: Result<Attended<Output, Weights, Lse>, Error<Dev>>,
) -> Result<Output, Dev> {
    output(attended).map_err(Error::into_device)
}

/// The output and the weights of a layer that ran with [`Wanted::WEIGHTS`].
///
/// # Errors
/// The error of the layer.
///
/// # Panics
/// If the layer ran with other options.
pub fn with_weights<Output, Weights, Lse, Dev>(
    attended: Result<Attended<Output, Weights, Lse>, Error<Dev>>,
) -> Result<(Output, Weights), Error<Dev>> {
    let attended = attended?;
    Ok((attended.output, wanted(attended.weights)))
}
