//! Facts about a layer or a model that are known without running it.

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

    /// Floating-point operations of the matrix products of one forward pass. A multiplication and an addition count as two, and
    /// masked pairs count. A backward pass takes twice as many. A number that does not fit is `u64::MAX`.
    fn flops(sizes: Self::Sizes) -> u64;

    /// The table of the layers, with their shapes and numbers of parameters.
    fn summary() -> String;
}
