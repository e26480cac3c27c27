//! The run time of a declared model.
//!
//! On slices a model is one operation of the tape, which calls those of [`fused`](crate::fused): here is how it reads its layers.
//!
//! As a chain of operations, its forward pass is a function each line of which calls one method of a [`Pass`]. The values in it
//! are tensors without a tape, which can be used as often as the model needs them; the pass has the tape, and knows which form
//! of the operations was asked for: one operation on slices each, or the chain of dfdx's operations that means the same.
//!
//! - `pass`: the tape, and how an operation gets it. Its methods are beside the operations, in [`ops`](crate::ops).
//! - `opaque`: modules of which only the type is known.
//! - `inputs`: axes of one name, and constants that are to be equal, have one size.
//! - `results`: several results share one history.
//! - `summary`: a model as a table.
//! - `weights`: what a model reads of its layers when it runs as one operation.

mod inputs;
mod opaque;
mod pass;
mod results;
mod summary;
mod weights;

pub use inputs::{asserted, axis, check_axis, check_length};
pub use opaque::{Built, count};
pub use pass::{Pass, on};
pub use results::tapes_of_results;
pub use summary::{Batch, Row, summary, summary_of};
pub(crate) use weights::weighted;
pub use weights::{FusedBlock, FusedLayer, Random, Weighted};
