//! `max_pool(x)` and `max_pool(x, padding)`: the largest numbers of a sequence.

use proc_macro2::TokenStream;
use quote::quote;

use super::mean_pool::Pool;
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::onnx::{OnnxNode, Term};

pub(super) static MAX_POOL: Operation = Operation {
    name: "max_pool",
    keys: &[],
    positional: 0,
    may_be_tied: false,
    signature: "`[.., seq, d_model]` to `[.., d_model]`",
    doc: "The largest numbers of a sequence; with `lens[batch]` as a second operand, of that many of its first rows, with `bool[batch, seq]` of those that are `true`, and 0 if there are none. The first of equal numbers has the gradient. PyTorch: `x.max(-2).values`.",
    lower: Lower::Operands(1..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let (pool, ty) = Pool::lower(lowering, call)?;
    let operands = call.operands.clone();
    Some(lowering.node(builder, MaxPool(pool), operands, (call.result, ty)))
}

struct MaxPool(Pool);

impl Op for MaxPool {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::OperandsAndResult,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        self.0.gradients(operands)
    }
}

impl ModelOp for MaxPool {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("max_pool".to_owned()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::Never)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        self.0.check(of, "max_pool")
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let axis = of.operand_type(0).axes.len() - 2;
        Ok(match self.0.selection() {
            None => of.operand(0).reduce("ReduceMax", axis as i64, false),
            Some(selection) => selection
                .onnx(of, axis)
                .extreme("ReduceMax", f64::NEG_INFINITY),
        })
    }
}

impl Emit<ModelFrame<'_>> for MaxPool {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        self.0.composed(of, "max_pool")
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axis = of.sequence(0);
        let y = to.slice();
        let counted = self.0.counted(of);
        quote!(p::layers::max_pool(#x, #axis, #counted, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let x = of.slice(0);
        let axis = of.sequence(0);
        let y = of.slice_of_result();
        let counted = self.0.counted(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote! {
            p::layers::max_pool_backward(#x, #axis, #counted, #y, #d_y, #(&mut #d_x,)* gradients);
        }
    }
}
