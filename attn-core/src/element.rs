//! The element types of layers.

use dfdx::dtypes::Dtype;
use num_traits::Float;

use rand_distr::uniform::SampleUniform;

use crate::kernel::Kernels;

/// The element type of a layer: `f32` or `f64`.
///
/// It is one bound in place of the four that dfdx's layers need. The half types are not supported: dfdx's optimizers keep their
/// moments in the type of the parameter, and half precision is not enough for moments.
///
/// ```
/// use attn::Element;
///
/// fn halve<E: Element>(x: E) -> E {
///     x * E::of(0.5)
/// }
/// assert_eq!(halve(3.0_f32), 1.5);
/// ```
#[diagnostic::on_unimplemented(
    message = "a layer cannot be made of `{Self}`",
    label = "the numbers of a layer",
    note = "a layer is made of `f32` or `f64`"
)]
pub trait Element: Dtype + Float + Kernels + SampleUniform + sealed::Sealed {
    /// The element nearest to `value`.
    fn of(value: f64) -> Self;
}

impl Element for f32 {
    #[inline]
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Element for f64 {
    #[inline]
    fn of(value: f64) -> Self {
        value
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}
