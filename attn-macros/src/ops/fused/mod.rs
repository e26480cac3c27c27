//! The operations of an attention layer on slices, a file for each: what is true of it, and the lines of both passes.
//!
//! They are what [`simplify`](crate::graph::simplify) makes of the graph of a layer, and stand in no declaration.

mod attend;
mod head_transform;
mod packed_linear;
mod per_head_linear;

use crate::emit::LayerFrame;
use crate::emit::block::FusedOp;

pub(crate) use attend::{Attend, Similarity};
pub(crate) use head_transform::{HeadTransform, Norm, TransformHeads};
pub(crate) use packed_linear::PackedLinear;
pub(crate) use per_head_linear::PerHeadLinear;

/// An operation that only the fused form of a layer has.
pub(crate) trait LayerOp: for<'a> FusedOp<LayerFrame<'a>> {
    fn properties(&self) -> LayerProperties<'_>;
}

/// Properties of an operation wherever it stands.
#[derive(Default)]
pub(crate) struct LayerProperties<'o> {
    /// The operation, if it is one of these.
    pub(crate) linear: Option<&'o PackedLinear>,
    pub(crate) transform: Option<&'o TransformHeads>,
    pub(crate) attention: Option<&'o Attend>,
    /// The fields of parameters that are neither those of projections nor gains, and not declared in the body of the layer.
    pub(crate) fields: Vec<&'static str>,
}

impl<'o> LayerProperties<'o> {
    /// What is done to vectors as they are loaded.
    pub(crate) fn transforms(&self) -> impl Iterator<Item = &'o HeadTransform> + use<'o> {
        let alone = self.transform.into_iter().map(|transform| &transform.how);
        alone.chain(self.attention.into_iter().flat_map(Attend::transforms))
    }
}
