//! The composed form of a layer, by name.

use super::{Attended, ForwardOptions};
use crate::{Error, unwrap};

/// A layer that runs as a chain of dfdx's operations: the result of `composed()` of a declared layer.
///
/// It computes the same as the layer, which is tested against it. The layer itself runs on slices and is faster.
#[derive(Clone, Copy, Debug)]
pub struct Composed<'a, L> {
    layer: &'a L,
}

/// A declared layer or model that takes `X`, in any of its forms. Implemented by what the macros emit.
pub trait Layer<X> {
    /// The result.
    type Output;
    /// The error of the device.
    type Err;

    /// Runs the layer as `run` says.
    ///
    /// # Errors
    /// The errors of the layer itself.
    fn run(&self, x: X, run: ForwardOptions<'_>) -> Result<Self::Output, Error<Self::Err>>;
}

/// A declared attention, which has results beside its output. Implemented by what the macros emit.
pub trait Attends<X>: Layer<X> {
    /// The weights.
    type Weights;
    /// The logarithms of the sums that they are divided by.
    type Lse;

    /// Runs the layer as `run` says.
    ///
    /// # Errors
    /// The errors of the layer itself.
    fn attend(
        &self,
        x: X,
        run: ForwardOptions<'_>,
    ) -> Result<Attended<Self::Output, Self::Weights, Self::Lse>, Error<Self::Err>>;
}

impl<'a, L> Composed<'a, L> {
    /// The composed form of `layer`.
    pub fn new(layer: &'a L) -> Self {
        Self { layer }
    }

    /// See the method of the layer itself.
    ///
    /// # Panics
    /// Where [`try_forward`](Self::try_forward) returns an error.
    #[track_caller]
    pub fn forward<X>(&self, x: X) -> L::Output
    where
        L: Layer<X>,
        L::Err: std::fmt::Display,
    {
        unwrap(self.try_forward(x))
    }

    /// See the method of the layer itself.
    ///
    /// # Errors
    /// The errors of the layer itself.
    pub fn try_forward<X>(&self, x: X) -> Result<L::Output, Error<L::Err>>
    where
        L: Layer<X>,
    {
        self.layer.run(x, ForwardOptions::COMPOSED)
    }

    /// See the method of the layer itself.
    ///
    /// # Panics
    /// Where [`try_forward_mut`](Self::try_forward_mut) returns an error.
    #[track_caller]
    pub fn forward_mut<X>(&mut self, x: X) -> L::Output
    where
        L: Layer<X>,
        L::Err: std::fmt::Display,
    {
        unwrap(self.try_forward_mut(x))
    }

    /// See the method of the layer itself.
    ///
    /// # Errors
    /// The errors of the layer itself.
    pub fn try_forward_mut<X>(&mut self, x: X) -> Result<L::Output, Error<L::Err>>
    where
        L: Layer<X>,
    {
        let train = true;
        self.layer.run(
            x,
            ForwardOptions {
                train,
                ..ForwardOptions::COMPOSED
            },
        )
    }
}
