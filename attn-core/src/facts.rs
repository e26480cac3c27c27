//! Facts about a layer or a model that are known without running it.

use std::fmt;

/// Facts about a declared layer or model that are known without running it, for every element type and device. Generic code reads
/// them. So does a call for another element type: `Net::<f64>::summary()`.
///
/// The type with the default arguments has them without this trait, as `const` functions with one argument per axis:
/// `Net::PARAMS`, `Net::flops(batch, seq)`, `Net::summary()`. A model with a `module` has no facts, as not all of its layers are
/// known at compile time.
#[doc(alias("get_num_params", "num_parameters"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `PARAMS` and `flops` that are known while the program is compiled",
    note = "layers of `attention!` and models of `model!` have them, but for models with a `module`"
)]
pub trait Facts {
    /// One size for each of [`AXES`](Self::AXES): `[usize; N]`.
    type Sizes;

    /// The number of parameters.
    const PARAMS: usize;

    /// The axes whose sizes the call determines: `batch`, `q_len` and `kv_len` of a layer, those of the inputs of a model.
    const AXES: &'static [&'static str];

    /// The constants in the header of a model, by name, in their order. A layer of `attention!` has none: its sizes are constants of their
    /// own, such as `HEADS`.
    ///
    /// ```
    /// use attn::{Constant, prelude::*};
    ///
    /// model! {
    ///     struct Net<d_model = 8, epsilon = 1e-5>;
    ///     fn forward(x: [batch, d_model]) -> [batch, d_model] { rms_norm::<epsilon = epsilon>(x) }
    /// }
    ///
    /// assert_eq!(<Net as Facts>::CONSTANTS, [("d_model", Constant::Size(8)), ("epsilon", Constant::Number(1e-5))]);
    /// ```
    ///
    /// PyTorch: `model.config` of `transformers`.
    #[doc(alias = "config")]
    const CONSTANTS: &'static [(&'static str, Constant)] = &[];

    /// Floating-point operations of the matrix products of one forward pass. A multiplication and an addition count as two, and
    /// masked pairs count. A backward pass takes twice as many. A number that does not fit is `u64::MAX`.
    fn flops(sizes: Self::Sizes) -> u64;

    /// The table of the layers, with their shapes and numbers of parameters.
    fn summary() -> String;
}

/// The value of a constant in the header of a model: see [`Facts::CONSTANTS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    /// `d_model = 64`
    Size(usize),
    /// `epsilon = 1e-5`
    Number(f64),
    /// `tied = true`
    Switch(bool),
    /// `long_factor = [1.0, 1.25]`
    Numbers(&'static [f64]),
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::Size(size) => size.fmt(f),
            Constant::Number(number) => write!(f, "{number:?}"),
            Constant::Switch(value) => value.fmt(f),
            Constant::Numbers(list) => write!(f, "{list:?}"),
        }
    }
}
