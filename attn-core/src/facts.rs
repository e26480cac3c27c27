//! Facts of a layer or a model that are known without running it.

/// Facts of a declared layer or model that are known without running it, for every type of elements and every device. Generic code
/// reads them, and so does a call for other elements: `Net::<f64>::summary()`.
///
/// The type with the default arguments has them without this trait, as `const` functions of one argument per axis: `Net::PARAMS`,
/// `Net::flops(batch, seq)`, `Net::summary()`. A model with a `module` has no facts: its layers are not all
/// known while it is compiled.
#[doc(alias("get_num_params", "num_parameters"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `PARAMS` and `flops` that are known while the program is compiled",
    note = "layers of `attention!` and models of `model!` have them, but for models with a `module`"
)]
pub trait Facts {
    /// One size for each of [`AXES`](Self::AXES): `[usize; N]`.
    type Sizes;

    /// Number of learned numbers.
    const PARAMS: usize;

    /// The axes that only a call knows: `batch`, `q_len` and `kv_len` of a layer, those of the inputs of a model.
    const AXES: &'static [&'static str];

    /// Floating-point operations of the matrix products of one forward pass, a multiplication and an addition counted as two.
    /// Masked pairs are counted; a backward pass takes twice as many. A number that does not fit is `u64::MAX`.
    fn flops(sizes: Self::Sizes) -> u64;

    /// The layers, with their shapes and numbers of parameters, as a table.
    fn summary() -> String;
}
