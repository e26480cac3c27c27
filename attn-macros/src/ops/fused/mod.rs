//! The operations of an attention layer on slices, a file for each: what is true of it, and the lines of both passes.
//!
//! They are what [`simplify`](crate::graph::simplify) makes of the graph of a layer, and stand in no declaration.

mod attend;
mod head_transform;
mod packed_linear;
mod per_head_linear;

use proc_macro2::TokenStream;

use crate::emit::LayerNode;
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::GradTarget;
use crate::model::graph::Derivative;

pub(crate) use attend::{Attend, Similarity};
pub(crate) use head_transform::{HeadTransform, Norm, TransformHeads};
pub(crate) use packed_linear::PackedLinear;
pub(crate) use per_head_linear::PerHeadLinear;

/// An operation that only the fused form has.
///
/// `of` is the node with its values. Emitted lines read their operands through it.
pub(crate) trait FusedOp: Derivative {
    fn properties(&self) -> FusedProperties<'_>;

    /// The lines that compute the result, into the matrix `to`.
    fn forward(&self, of: &LayerNode<'_>, to: &TokenStream, lines: &mut TrackedCode);

    /// The lines of the derivative. Gradients of parameters are added to.
    fn backward(&self, of: &LayerNode<'_>, gradients: &LayerGradients, lines: &mut TrackedCode);
}

/// Properties of an operation wherever it stands.
#[derive(Default)]
pub(crate) struct FusedProperties<'o> {
    /// The operation, if it is one of these.
    pub(crate) linear: Option<&'o PackedLinear>,
    pub(crate) transform: Option<&'o TransformHeads>,
    pub(crate) attention: Option<&'o Attend>,
    /// The fields of parameters that are neither those of projections nor gains, and not declared in the body of the layer.
    pub(crate) fields: Vec<&'static str>,
}

impl<'o> FusedProperties<'o> {
    /// What is done to vectors as they are loaded.
    pub(crate) fn transforms(&self) -> impl Iterator<Item = &'o HeadTransform> + use<'o> {
        let alone = self.transform.into_iter().map(|transform| &transform.how);
        alone.chain(self.attention.into_iter().flat_map(Attend::transforms))
    }
}

/// The gradient of a result, and where those of the operands go.
pub(crate) struct LayerGradients {
    /// The gradient of the result, as a matrix.
    pub(crate) d_result: TokenStream,
    pub(crate) to: Vec<GradTarget>,
}
