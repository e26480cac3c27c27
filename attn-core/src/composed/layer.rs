//! A layer in its composed form, asked for by name.

use crate::{Error, unwrap};

/// A layer that runs as a chain of dfdx's operations: what `composed()` of a declared layer returns.
///
/// It means what the layer itself means, and is what that is tested against; on slices, the layer is faster.
#[derive(Clone, Copy, Debug)]
pub struct Composed<'a, L> {
    layer: &'a L,
}

/// What a layer that takes `X` computes in its composed form. Implemented by what the macro emits.
pub trait Compose<X> {
    /// What comes out.
    type Output;
    /// The error of the device.
    type Err;

    /// Runs the layer; while training with dropout, if `x` is traced.
    ///
    /// # Errors
    /// What the layer itself returns as an error.
    fn compose(&self, x: X, train: bool) -> Result<Self::Output, Error<Self::Err>>;
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
        L: Compose<X>,
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
        L: Compose<X>,
    {
        self.layer.compose(x, false)
    }

    /// As the layer's own.
    ///
    /// # Panics
    /// On what [`try_forward_mut`](Self::try_forward_mut) returns as an error.
    #[track_caller]
    pub fn forward_mut<X>(&mut self, x: X) -> L::Output
    where
        L: Compose<X>,
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
        L: Compose<X>,
    {
        self.layer.compose(x, true)
    }
}
