//! Checks of layers and models: their derivatives against differences, and their results against those of another one.
//!
//! - [`gradient_check`] compares the gradients of all parameters and inputs with central differences of the loss. PyTorch:
//!   `torch.autograd.gradcheck`.
//! - [`compare`] runs two modules with the same numbers on the same inputs, and compares results and gradients. PyTorch:
//!   `torch.testing.assert_close` of each.
//!
//! Both return a report, and [`assert_gradients`] and [`assert_same`] panic with it.
//!
//! ```
//! use attn::{attention, dfdx::prelude::*, testing::{Compare, assert_gradients}};
//!
//! attention! {
//!     struct Causal<heads = 2, d_model = 4, mask = causal & padding>;
//! }
//!
//! let dev = Cpu::default();
//! let layer = dev.build_module::<Causal, f64>();
//! let x: Tensor<Rank3<2, 3, 4>, f64, _> = dev.sample_normal();
//! let lens: Tensor<Rank1<2>, usize, _> = dev.tensor([3, 2]);
//! assert_gradients(&layer, (x.clone(), lens.clone()), |layer, (x, lens)| {
//!     layer.forward((x.leaky_traced(), lens)).square().mean()
//! });
//!
//! // The layer as one operation, and as a chain of dfdx's operations.
//! let report = Compare::default().functions(
//!     (&layer, |layer: &Causal<_, _>, input| layer.forward(input)),
//!     (&layer, |layer: &Causal<_, _>, input| layer.composed().forward(input)),
//!     (x, lens),
//! )?;
//! assert_eq!(report.tensors[0].name, "the result");
//! # Ok::<(), attn::testing::CompareError<CpuError>>(())
//! ```

mod compare;
mod comparison;
mod gradients;
mod inputs;
mod results;
mod tensors;
#[cfg(test)]
mod unit;

pub use compare::{Compare, CompareError, assert_same, compare};
pub use comparison::{ComparedTensor, Comparison, Difference, Tolerance};
pub use gradients::{
    GradientCheck, GradientCheckError, GradientDifference, GradientReport, TensorGradient,
};
pub use gradients::{assert_gradients, gradient_check};
pub use inputs::Inputs;
pub use results::Results;
#[cfg(test)]
pub(crate) use unit::*;
