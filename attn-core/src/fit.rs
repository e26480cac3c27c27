//! Types inside a tuple of inputs: which of them is wrong, and what it should be.

/// A value of the `Expected` type. Every type fits itself and nothing else: the trait is there for its message, as rustc
/// shortens the type of a whole tuple.
#[diagnostic::on_unimplemented(
    message = "`{Layer}` takes `{Input}` as `{Expected}`, not `{Self}`",
    label = "wrong shape of `{Input}`"
)]
pub trait Fits<Layer, Input, Expected>: Sized {
    /// The same value.
    fn fit(self) -> Expected;
}

impl<Layer, Input, X> Fits<Layer, Input, X> for X {
    fn fit(self) -> X {
        self
    }
}

/// Names of inputs, as they stand in messages.
#[expect(non_camel_case_types, reason = "the names of the inputs")]
pub mod input {
    /// The first input.
    #[derive(Clone, Copy, Debug)]
    pub enum x {}

    /// The second input of cross-attention.
    #[derive(Clone, Copy, Debug)]
    pub enum context {}
}
