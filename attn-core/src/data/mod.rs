//! Data of a call: valid lengths for `padding`, ids for `document`, positions for `rope`, and the `data` of a body.
//!
//! A layer accepts types that implement [`Padding`], [`Documents`] or [`PositionIds`] for its shape, `(B, Q, K)` for batched input and `(Q, K)`
//! for unbatched, or [`Data`] for the declared shape. Data are read and checked once per call, before any tensor is made.

mod declared;
mod documents;
mod ids;
mod padding;
mod position_ids;
mod selection;

pub use declared::{Data, DataElement, Declared, Table};
pub use documents::{DocumentData, Documents};
pub use ids::Ids;
pub(crate) use ids::known;
pub use padding::{LengthsPerQuery, Padding, PaddingData};
pub use position_ids::{PositionData, PositionIds};
pub use selection::Selection;
pub(crate) use selection::repeated;

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Storage, Tensor},
};

use crate::Error;

/// `(batch, query, key)`; the batch is 1 for unbatched input.
pub type Sizes = (usize, usize, usize);

/// Checks that the data covers a sequence.
fn check_axis<Dev>(
    layer: &'static str,
    (what, axis): (&'static str, &'static str),
    expected: usize,
    found: usize,
) -> Result<(), Error<Dev>> {
    if expected == found {
        return Ok(());
    }
    Err(Error::LengthsMismatch {
        layer,
        what,
        axis,
        expected,
        found,
    })
}

/// The values of a tensor in row-major order. dfdx's own `as_vec` panics on an empty tensor.
pub fn values<S: Shape, V, D: Storage<V>>(t: &Tensor<S, V, D>) -> Vec<V> {
    if t.shape().num_elements() == 0 {
        return Vec::new();
    }
    t.as_vec()
}
