//! The values inside of a model, and the first of them that is not finite.
//!
//! `values(x)` of a declared model returns the result of each of its operations; `first_non_finite(x, loss)` looks for one that is NaN or
//! infinite, forward and then backward. Both run the model as a chain of operations, each of which has the kernels of the fused form.
//!
//! - `value`: the results of operations.
//! - `finite`: the first number that is not finite.

mod finite;
mod value;

pub use finite::{Backpropagate, NonFinite, Pass, first_non_finite, nan_of_input};
pub use value::{Value, Values, record_values};
