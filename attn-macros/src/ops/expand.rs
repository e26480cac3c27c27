//! `expand::<[batch, latents, d_model]>(x)`: a value repeated along axes. Operators do the same to operands of fewer axes.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call};
use crate::spec::Size;
use crate::spec::keys::{Key, KeyKind};

pub(super) static EXPAND: Operation = Operation {
    name: "expand",
    keys: &[Key {
        name: "out",
        kind: KeyKind::Axes,
        default: "required",
        doc: "All axes of the result.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[n, d]` to `[batch, n, d]`",
    doc: "A value repeated along axes that it lacks, or of which it has one of size 1: `expand::<[batch, n, d]>(latents)`. \
          PyTorch: `x.expand(batch, -1, -1)`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let x = lowering.floats_of(call)?;
    let result = lowering.result_of_call(call, "out")?;
    let differ = messages::not_expanded(&x, &result);
    let common = lowering.common([&result, &x], call.at.span(), &differ)?;
    // `common` repeats the smaller one, and axes of size 1 of both.
    let is_one = |ty: &Type| ty.axes.iter().filter(|axis| axis.is_one()).count();
    if common.axes.len() != result.axes.len() || is_one(&common) != is_one(&result) {
        lowering.error(call.at.span(), differ);
        return None;
    }
    Some(lowering.expanded(call.operands[0], &result, builder))
}

/// To the shape of the result: along axes of size 1, and along axes that the operand does not have.
pub(crate) struct Expand {
    /// For each axis of the operand, in ascending order, which one it is in the result.
    places: Vec<usize>,
}

impl Expand {
    pub(crate) fn new(places: Vec<usize>) -> Self {
        Expand { places }
    }
}

impl Op for Expand {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::Repeat(&self.places),
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Expand {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("expand".to_owned()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let (from, to) = (of.operand_type(0), of.result_type());
        let new = (0..to.axes.len()).filter(|axis| !self.places.contains(axis));
        let new: Vec<usize> = new.collect();
        let axes = to.axes.iter().enumerate().map(|(index, axis)| {
            let place = self.places.iter().position(|place| *place == index);
            match place {
                // It has this length already.
                Some(place) if !from.axes[place].is_one() => Axis::Size(Size::known(1)),
                _ => axis.clone(),
            }
        });
        let shape = of.shape(&axes.collect::<Vec<_>>());
        Ok(call("Expand", [of.operand(0).unsqueeze(&new), shape]))
    }
}

impl Emit<ModelFrame<'_>> for Expand {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let to = of.result_type();
        let mut ty = of.operand_type(0).clone();
        for (axis, place) in ty.axes.iter_mut().zip(&self.places) {
            if !axis.is_one() {
                *axis = to.axes[*place].clone();
            }
        }
        let x = of.operand_as(0, &ty);
        let shape = of.shape(0);
        let axes = to.axes.len();
        let new = (0..axes).filter(|axis| !self.places.contains(axis));
        let new: Vec<_> = new
            .map(|axis| Literal::isize_unsuffixed(axis as isize))
            .collect();
        if new.is_empty() {
            return of.define(&quote!(expand(&#x, #shape)));
        }
        let new = match new.as_slice() {
            [axis] => quote!(p::shapes::Axis::<#axis>),
            several => {
                let axes = format_ident!("Axes{}", several.len());
                quote!(p::shapes::#axes::<#(#several),*>)
            }
        };
        of.define(&quote!(broadcast(&#x, #new, #shape)))
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let extents = of.extents();
        let to = extents.result();
        let from = with_ones(&self.places, extents.operand(0), to.len());
        Footprints::of_both(quote!(p::layers::expand_footprint(&[#(#from),*], &[#(#to),*])))
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axes = expanded_axes(&self.places, of, 0);
        let y = to.slice();
        quote!(p::layers::expand(#x, #axes, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let axes = expanded_axes(&self.places, of, 0);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::expand_backward(#axes, #d_y, #(&mut #d_x,)* gradients);)
    }
}

/// The sizes of a value whose axes are these of a larger shape, with 1 for every other axis of it.
pub(super) fn with_ones(
    places: &[usize],
    sizes: Vec<TokenStream>,
    axes: usize,
) -> Vec<TokenStream> {
    let mut all = vec![quote!(1); axes];
    for (place, size) in places.iter().zip(sizes) {
        all[*place] = size;
    }
    all
}

/// `&p::layers::expanded_axes(&[1, 512], &[sizes.seq, 512])`: the axes along which an operand is repeated.
pub(super) fn expanded_axes(places: &[usize], of: &FusedNode<'_>, operand: usize) -> TokenStream {
    let to = of.sizes_of_result();
    let from = with_ones(places, of.sizes(operand), to.len());
    quote!(&p::layers::expanded_axes(&[#(#from),*], &[#(#to),*]))
}
