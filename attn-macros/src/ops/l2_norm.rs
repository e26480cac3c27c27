//! `l2_norm(x)`, over the last axis, and `l2_norm::<axis>(x)`, along any other.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::norm::{asked_epsilon, epsilon};
use super::selection::masked;
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call};
use crate::spec::Real;
use crate::spec::keys::{Key, KeyKind};

/// The default of the key.
const EPSILON: f64 = 1e-12;

pub(super) static L2_NORM: Operation = Operation {
    name: "l2_norm",
    keys: &[
        Key {
            name: "axis",
            kind: KeyKind::Axes,
            default: "the last one",
            doc: "Along which axis the length is 1.",
        },
        epsilon("1e-12"),
    ],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]`, perhaps with `lens[..]` or `bool[..]`, to the same",
    doc: "`x / max(|x|, epsilon)` along an axis: vectors of length 1. PyTorch: `torch.nn.functional.normalize(x, dim)`.",
    lower: Lower::Operands(1..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let epsilon = asked_epsilon(lowering, call).unwrap_or_else(|| Real::known(EPSILON));
    let ty = lowering.floats_of(call)?;
    let index = lowering.axis_or_last(call, &ty)?;
    let operands = vec![masked(lowering, call, index, 0.0, builder)?];
    let is_last = index + 1 == ty.axes.len();
    let axis = ty.axes[index].clone();
    let result = (call.result, ty);
    Some(match is_last {
        true => lowering.node(builder, L2Norm { epsilon, axis }, operands, result),
        false => {
            let op = L2NormAlong {
                epsilon,
                axis,
                index,
            };
            lowering.node(builder, op, operands, result)
        }
    })
}

/// `x / max(|x|, epsilon)` along an axis, in ONNX.
fn onnx_along(of: &OnnxNode<'_, '_>, axis: i64, epsilon: Term) -> Term {
    let x = of.operand(0);
    let squares = x.clone().times(x.clone()).reduce("ReduceSum", axis, true);
    let length = call("Sqrt", [squares]);
    x.over(call("Max", [length, epsilon]))
}

/// Over the last axis.
struct L2Norm {
    epsilon: Real,
    axis: Axis,
}

/// Along another axis.
struct L2NormAlong {
    epsilon: Real,
    axis: Axis,
    /// Its index.
    index: usize,
}

impl Op for L2Norm {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::Rows,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for L2Norm {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("l2_norm".to_owned()),
            vertex: VertexKind::Norm,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, "l2_norm")
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let epsilon = of.number(&self.epsilon);
        Ok(onnx_along(of, -1, epsilon))
    }
}

impl Emit<ModelFrame<'_>> for L2Norm {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let epsilon = &self.epsilon;
        of.define(&quote!(l2_norm(&#x, (#epsilon) as f64)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let [x, y] = to.rows(of);
        let epsilon = &self.epsilon;
        quote!(p::layers::l2_norm(#x, (#epsilon) as f64, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let x = of.matrix(0);
        let epsilon = &self.epsilon;
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        quote! {
            p::layers::l2_norm_backward(#x, (#epsilon) as f64, #d_y, #(&mut #d_x,)* gradients);
        }
    }
}

impl Op for L2NormAlong {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for L2NormAlong {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(format!("l2_norm {}", self.axis)),
            vertex: VertexKind::Norm,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, "l2_norm")
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let epsilon = of.number(&self.epsilon);
        Ok(onnx_along(of, self.index as i64, epsilon))
    }
}

impl Emit<ModelFrame<'_>> for L2NormAlong {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let axis = Literal::isize_unsuffixed(self.index as isize);
        let epsilon = &self.epsilon;
        of.define(&quote!(l2_norm_along(&#x, p::shapes::Axis::<#axis>, (#epsilon) as f64)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let epsilon = &self.epsilon;
        let y = to.slice();
        quote!(p::layers::l2_norm_along(#x, #axis, (#epsilon) as f64, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let epsilon = &self.epsilon;
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote! {
            p::layers::l2_norm_along_backward(#x, #axis, (#epsilon) as f64, #d_y, #(&mut #d_x,)* gradients);
        }
    }
}
