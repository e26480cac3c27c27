//! The runtime of a declared model.
//!
//! In the fused form, a model is one operation on the tape, which calls those of [`fused`](crate::fused). `weights` reads the
//! parameters of its layers.
//!
//! In the composed form, a model is a chain of operations: each line of its forward function calls a method of a [`Pass`]. The values
//! are tensors without a tape, so the model can use them several times. The pass has the tape, and the form of the operations: one
//! operation on slices, or the equivalent chain of dfdx's operations.
//!
//! - `pass`: the tape, and its use by operations. The methods for the operations are in [`ops`](crate::ops).
//! - `opaque`: modules that are known only by their type.
//! - `outline`: the names of what a model runs.
//! - `inputs`: the sizes of named axes, and equalities of constants.
//! - `named`: the parameters of a model by their names.
//! - `parameters`: iteration over them.
//! - `results`: several results with one history.
//! - `seeds`: those of dropouts that are computed again.
//! - `summary`: a model as a table.
//! - `weights`: the parameters of a model that runs as one operation.

mod inputs;
mod named;
mod opaque;
mod outline;
pub(crate) mod parameters;
mod pass;
mod results;
mod seeds;
mod summary;
mod weights;

pub use inputs::{
    asserted, axis, check_at_least, check_axis, check_ids_below, check_length, check_multiple,
    count_targets, num_elements, rows,
};
pub use named::read_named_weights;
pub use opaque::{Built, count};
pub use outline::Outline;
pub use pass::{Pass, on};
pub use results::{attended, tapes_of_results};
pub use seeds::Seeds;
pub use summary::{Batch, Row, summary, summary_of};
pub(crate) use weights::weighted;
pub use weights::{FusedBlock, FusedLayer, Random, Weighted, WithProjections, read_weights};
