//! `x[seq = 0]` and `x[seq = 1..]`: one index of an axis, or a range.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Label, ModelOp, Op, Properties, Saved,
};
use crate::emit::block::{self, Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::Model;
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call, call_with};
use crate::spec::Size;

/// A part of an axis.
pub(crate) struct Slice {
    /// The axis of the operand, and its index there.
    pub(crate) axis: Axis,
    pub(crate) index: usize,
    pub(crate) start: Offset,
    /// The number of indices. `None` is one index, and the axis goes away.
    pub(crate) len: Option<Axis>,
}

/// An index of an axis.
#[derive(Clone)]
pub(crate) enum Offset {
    FromStart(Size),
    /// So many before the end.
    FromEnd(Size),
}

impl Slice {
    fn label(&self) -> String {
        let name = match &self.len {
            Some(_) => "slice",
            None => "select",
        };
        format!("{name} {}", self.axis)
    }

    /// The first index, where the axis is so long.
    fn start(&self, len: &TokenStream) -> TokenStream {
        match &self.start {
            Offset::FromStart(start) => quote!(#start),
            Offset::FromEnd(before) => quote!(#len - #before),
        }
    }

    fn len(&self, size: impl Fn(&Axis) -> TokenStream) -> TokenStream {
        self.len.as_ref().map_or(quote!(1), size)
    }

    /// How long the axis must be, if only the call knows how long it is.
    fn check(&self, model: &str, len: &TokenStream) -> Option<TokenStream> {
        let Axis::Symbol(axis) = &self.axis else {
            return None;
        };
        let axis = &axis.length;
        let least = match (&self.start, &self.len) {
            (Offset::FromStart(start), None) => quote!(usize::saturating_add(#start, 1)),
            (Offset::FromStart(start), Some(Axis::Size(len))) => quote!(#start + #len),
            // The axis is as long as the part and what is around it.
            (Offset::FromStart(_), Some(Axis::Symbol(_))) => return None,
            (Offset::FromEnd(before), _) => quote!(#before),
        };
        Some(quote!(p::check_at_least(#model, #axis, #len, #least)?;))
    }

    /// The axis, the first index, and how many there are.
    fn part(&self, of: &FusedNode<'_>) -> [TokenStream; 3] {
        let len = &of.sizes(0)[self.index];
        [
            of.axis(0, self.index),
            self.start(len),
            self.len(block::size),
        ]
    }
}

impl Op for Slice {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: match self.len {
                Some(_) => Fusion::Slice(self.index, &self.start),
                None => Fusion::None,
            },
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Slice {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, &self.label())
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        Slice::check(self, &of.label(), &of.sizes(0)[self.index])
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let x = of.operand(0);
        let Some(len) = &self.len else {
            let index = match &self.start {
                Offset::FromStart(start) => of.size(start),
                Offset::FromEnd(before) => format!("-{}", of.size(before)),
            };
            let axis = format!("axis={}", self.index);
            return Ok(call_with("Gather", axis, [x, Term::new(index)]));
        };
        let start = match &self.start {
            Offset::FromStart(start) => Term::ints([of.size(start)]),
            Offset::FromEnd(before) => {
                let before = Term::ints([of.size(before)]);
                of.length(&self.axis).minus(before)
            }
        };
        let end = match (&self.start, len) {
            (Offset::FromStart(start), Axis::Size(len)) => {
                let end = start.plus(len);
                Term::ints([of.size(&end)])
            }
            _ => start.clone().plus(of.length(len)),
        };
        Ok(call("Slice", [x, start, end, Term::ints([self.index])]))
    }
}

impl Emit<ModelFrame<'_>> for Slice {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let index = syn::Index::from(self.index);
        let axis = Literal::isize_unsuffixed(self.index as isize);
        let len = quote!(p::Dim::size(&p::HasShape::shape(&#x).#index));
        let start = self.start(&len);
        let check = Slice::check(self, &of.label(), &len);
        let line = match &self.len {
            Some(_) => {
                let shape = of.shape(0);
                of.define(&quote!(slice(&#x, p::shapes::Axis::<#axis>, #start, #shape)))
            }
            None => of.define(&quote!(select(&#x, p::shapes::Axis::<#axis>, #start))),
        };
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let [axis, start, len] = self.part(of);
        let y = to.slice();
        quote!(p::layers::slice(#x, #axis, #start, #len, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let [axis, start, len] = self.part(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::slice_backward(#axis, #start, #len, #d_y, #(&mut #d_x,)* gradients);)
    }
}
