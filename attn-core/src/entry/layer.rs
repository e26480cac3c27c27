//! A layer in its composed form, asked for by name.

use super::ForwardOptions;
use crate::{Error, unwrap};

/// A layer that runs as a chain of dfdx's operations: what `composed()` of a declared layer returns.
///
/// It means what the layer itself means, and is what that is tested against; on slices, the layer is faster.
#[derive(Clone, Copy, Debug)]
pub struct Composed<'a, L> {
    layer: &'a L,
}

/// A declared layer or model that takes `X`, in any of its forms. Implemented by what the macros emit.
pub trait Layer<X> {
    /// What comes out.
    type Output;
    /// The error of the device.
    type Err;

    /// Runs the layer as `run` says.
    ///
    /// # Errors
    /// What the layer itself returns as an error.
    fn run(&self, x: X, run: ForwardOptions<'_>) -> Result<Self::Output, Error<Self::Err>>;
}

impl<'a, L> Composed<'a, L> {
    /// The composed form of `layer`.
    pub fn new(layer: &'a L) -> Self {
        Self { layer }
    }

    /// As the layer's own.
    ///
    /// # Panics
    /// On what [`try_forward`](Self::try_forward) returns as an error.
    #[track_caller]
    pub fn forward<X>(&self, x: X) -> L::Output
    where
        L: Layer<X>,
        L::Err: std::fmt::Display,
    {
        unwrap(self.try_forward(x))
    }

    /// As the layer's own.
    ///
    /// # Errors
    /// What the layer itself returns as an error.
    pub fn try_forward<X>(&self, x: X) -> Result<L::Output, Error<L::Err>>
    where
        L: Layer<X>,
    {
        self.layer.run(x, ForwardOptions::COMPOSED)
    }

    /// As the layer's own.
    ///
    /// # Panics
    /// On what [`try_forward_mut`](Self::try_forward_mut) returns as an error.
    #[track_caller]
    pub fn forward_mut<X>(&mut self, x: X) -> L::Output
    where
        L: Layer<X>,
        L::Err: std::fmt::Display,
    {
        unwrap(self.try_forward_mut(x))
    }

    /// As the layer's own.
    ///
    /// # Errors
    /// What the layer itself returns as an error.
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
