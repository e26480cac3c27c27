//! The operations of an attention layer, a file for each: its properties, its derivative, and the lines of both forms.
//!
//! [`build`](crate::graph::build) makes a block of them. For the fused form, [passes](crate::graph::passes) change it: then one
//! operation may stand for several.

mod attend;
mod head_transform;
mod heads;
mod linear;
mod onnx;
mod per_head_linear;

use super::Emit;
use crate::emit::LayerFrame;
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term};

pub(crate) use attend::{Attend, Similarity, vectors};
pub(crate) use head_transform::{HeadTransform, Norm, TransformHeads};
pub(crate) use heads::{MergeHeads, SplitHeads};
pub(crate) use linear::Linear;
pub(crate) use per_head_linear::PerHeadLinear;

/// An operation of an attention layer: the facts that only the passes over a layer and its documentation read.
pub(crate) trait LayerOp: for<'a> Emit<LayerFrame<'a>> {
    fn description(&self) -> LayerDescription<'_>;

    /// The axes of its matrix products, the inner one last: two FLOPs for each.
    fn products(&self, operands: &[&Type], result: &Type) -> Vec<Vec<Axis>>;

    /// Its value in ONNX. An error says why there is none, and what to do.
    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String>;
}

/// An operation for the passes over a layer and for its documentation.
#[derive(Default)]
pub(crate) struct LayerDescription<'o> {
    /// The operation, if it is one of these.
    pub(crate) linear: Option<&'o Linear>,
    pub(crate) transform: Option<&'o TransformHeads>,
    pub(crate) attention: Option<&'o Attend>,
    /// Whether the result is the memory of the operand.
    pub(crate) is_view: bool,
    /// The fields of parameters that are neither those of projections nor gains, and not declared in the body of the layer.
    pub(crate) fields: Vec<&'static str>,
}

impl<'o> LayerDescription<'o> {
    /// The transforms of vectors as they are loaded.
    pub(crate) fn transforms(&self) -> impl Iterator<Item = &'o HeadTransform> + use<'o> {
        let alone = self.transform.into_iter().map(|transform| &transform.how);
        alone.chain(
            self.attention
                .into_iter()
                .flat_map(|attention| &attention.loads),
        )
    }
}

/// A result's axes and the inner one.
fn product(result: &Type, inner: Option<&Axis>) -> Vec<Axis> {
    result.axes.iter().chain(inner).cloned().collect()
}
