//! `softmax(x)`, over the last axis, `softmax::<axis>(x)`, along any other, and `softmax::<axis>(x, keep)`, of some numbers.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::selection::{Selected, Selection};
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call_with};
use crate::spec::keys::{Key, KeyKind};

pub(super) static SOFTMAX: Operation = Operation {
    name: "softmax",
    keys: &[Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "the last one",
        doc: "Along which axis the sum is 1.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]` to the same",
    doc: "`exp(x) / Σ exp(x)` along an axis: `softmax(x)`, `softmax::<seq>(x)`. PyTorch: `torch.softmax(x, dim)`.",
    lower: Lower::Operands(1..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.floats_of(call)?;
    let x = call.operands.clone();
    let index = lowering.axis_or_last(call, &ty)?;
    let axis = ty.axes[index].clone();
    if call.operands.len() > 1 {
        return of_some(lowering, call, index, builder);
    }
    let result = (call.result, ty);
    let is_last = index + 1 == result.1.axes.len();
    Some(match is_last {
        true => lowering.node(builder, Softmax { axis }, x, result),
        false => {
            let op = SoftmaxAlong {
                axis,
                index,
                selection: None,
            };
            lowering.node(builder, op, x, result)
        }
    })
}

/// The softmax of the numbers that the second operand selects. The others become 0.
fn of_some(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    index: usize,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let Selected {
        value,
        selection,
        order,
    } = Selected::lower(lowering, call, index, builder)?;
    let ty = lowering.ty(value).clone();
    let op = SoftmaxAlong {
        axis: ty.axes[order.index].clone(),
        index: order.index,
        selection: Some(selection),
    };
    let name = match order.is_in_order() {
        true => call.result,
        false => SOFTMAX.name,
    };
    let operands = vec![value, call.operands[1]];
    let result = lowering.node(builder, op, operands, (name, ty));
    Some(order.back(lowering, result, call.result, builder))
}

/// Over the last axis.
struct Softmax {
    axis: Axis,
}

/// Along another axis, or of some numbers.
struct SoftmaxAlong {
    axis: Axis,
    /// Its index.
    index: usize,
    /// The numbers that count, if not all do: the second operand.
    selection: Option<Selection>,
}

impl Op for Softmax {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Result,
            kept: None,
            fusion: Fusion::Rows,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Softmax {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("softmax".to_owned()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, "softmax")
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(call_with("Softmax", "axis=-1", [of.operand(0)]))
    }
}

impl Emit<ModelFrame<'_>> for Softmax {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        of.define(&quote!(softmax(&#x)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let [x, y] = to.rows(of);
        quote!(p::layers::softmax(#x, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let y = of.matrix_of_result();
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        quote!(p::layers::softmax_backward(#y, #d_y, #(&mut #d_x,)* gradients);)
    }
}

impl Op for SoftmaxAlong {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Result,
            kept: None,
            fusion: Fusion::None,
        }
    }

    /// A selection has no gradient.
    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        let mut gradients = vec![Gradient::None; operands];
        gradients[0] = Gradient::Computed;
        gradients
    }
}

impl ModelOp for SoftmaxAlong {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(format!("softmax {}", self.axis)),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, "softmax")
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let selection = self.selection.as_ref()?;
        selection.check(of, SOFTMAX.name, self.index)
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let axis = format!("axis={}", self.index);
        Ok(match &self.selection {
            None => call_with("Softmax", axis, [of.operand(0)]),
            Some(selection) => {
                let selected = selection.onnx(of, self.index);
                let weights = call_with("Softmax", axis, [selected.or(f64::MIN)]);
                weights.where_else(selected.is_counted.clone(), Term::number(0.0))
            }
        })
    }
}

impl Emit<ModelFrame<'_>> for SoftmaxAlong {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let axis = Literal::isize_unsuffixed(self.index as isize);
        let Some(selection) = &self.selection else {
            return of.define(&quote!(softmax_along(&#x, p::shapes::Axis::<#axis>)));
        };
        let [check, selection] = selection.composed(of, SOFTMAX.name, self.index);
        let line = of.define(&quote!(softmax_where(&#x, p::shapes::Axis::<#axis>, #selection)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let y = to.slice();
        match &self.selection {
            None => quote!(p::layers::softmax_along(#x, #axis, #y)),
            Some(selection) => {
                let counted = selection.counted(of, self.index);
                quote!(p::layers::softmax_where(#x, #axis, #counted, #y))
            }
        }
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let y = of.slice_of_result();
        let axis = of.axis(0, self.index);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        match &self.selection {
            None => {
                quote!(p::layers::softmax_along_backward(#y, #axis, #d_y, #(&mut #d_x,)* gradients);)
            }
            Some(selection) => {
                let of = selection.counted(of, self.index);
                quote!(p::layers::softmax_where_backward(#y, (#axis, #of), #d_y, #(&mut #d_x,)* gradients);)
            }
        }
    }
}
