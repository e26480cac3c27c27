//! `one_hot::<n>(ids)`: ids as vectors with one 1.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    Bound, CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved, layer,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call};
use crate::spec::Size;

pub(super) static ONE_HOT: Operation = Operation {
    name: "one_hot",
    keys: &[layer::size("count", "required", "How many ids there are.")],
    positional: 1,
    may_be_tied: false,
    signature: "`ids[..]` to `[.., count]`",
    doc: "A vector with a 1 at each id: `one_hot::<classes>(ids)`. PyTorch: `torch.nn.functional.one_hot(ids, count)`, as floats.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let count = lowering.required(call, "count")?;
    let ids = lowering.ty(call.operands[0]).clone();
    let ty = lowering.vector_per_id(call.at, &ids, &count)?;
    let axis = Axis::Size(count.clone());
    let bound = lowering.bound_of(call.operands[0], &axis, call.at.span(), ONE_HOT.name)?;
    let op = OneHot { count, axis, bound };
    Some(lowering.node(builder, op, call.operands.clone(), (call.result, ty)))
}

struct OneHot {
    count: Size,
    /// The same as an axis.
    axis: Axis,
    bound: Bound,
}

impl Op for OneHot {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::None]
    }
}

impl ModelOp for OneHot {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(format!("one_hot {}", self.count)),
            vertex: VertexKind::Embedding,
            lookup: self.bound.lookup(&self.axis),
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let count = &self.count;
        self.bound.check(of, 0, ONE_HOT.name, &quote!(#count))
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let rank = of.operand_type(0).axes.len();
        let classes = of.indices(&self.axis);
        let ids = of.operand(0).unsqueeze(&[rank]);
        Ok(call("Equal", [ids, classes]).cast("E"))
    }
}

impl Emit<ModelFrame<'_>> for OneHot {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let ids = of.operand(0);
        let check = self.bound.check_composed(of, ONE_HOT.name, &self.axis);
        let line = of.define(&quote!(one_hot(&#ids)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let ids = of.ids(0);
        let count = &self.count;
        let y = to.slice();
        quote!(p::layers::one_hot(#ids, #count, #y))
    }

    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
