//! `table[ids]` and `x[seq = ids]`: the numbers at indices of an axis.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lookup, ModelOp, Offset, Op,
    Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output, size};
use crate::messages::onnx as words;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::Model;
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call, call_with};
use crate::spec::Size;

/// Indices of one axis of the first operand.
pub(crate) struct Gather {
    pub(crate) along: Along,
    pub(crate) ids: Indices,
}

/// The indices.
pub(crate) enum Indices {
    /// The second operand.
    Operand(Bound),
    /// Constants, of one new axis.
    Constants(Vec<Offset>),
}

/// An axis with indices of it.
pub(crate) struct Along {
    /// The axis, and its index in the value that has it.
    pub(crate) axis: Axis,
    pub(crate) index: usize,
    /// For each axis of the indices, the one of the value that it is, or `None` for a new one.
    pub(crate) shared: Vec<Option<usize>>,
    /// The indices as written, for errors.
    pub(crate) text: String,
}

/// How large ids may be.
#[derive(Clone)]
pub(crate) enum Bound {
    /// The ids are an input: only the call knows how large they are.
    OfCall,
    /// They are computed, and known to be indices of an axis that is long enough.
    Known,
    /// They are computed, and indices of this axis, which may be longer than the one that they index.
    Below(Axis),
}

impl Bound {
    /// The line that finds ids which are not below a count, before the fused form begins.
    pub(crate) fn check(
        &self,
        of: &FusedNode<'_>,
        operand: usize,
        text: &str,
        count: &TokenStream,
    ) -> Option<TokenStream> {
        match self {
            Bound::OfCall => {
                let ids = of.input(operand);
                Some(quote!(call.inputs.#ids.check(#text, "id", #count, None)?;))
            }
            Bound::Known => None,
            Bound::Below(below) => {
                let below = size(below);
                Some(quote!(p::check_ids_below(#text, #below, #count)?;))
            }
        }
    }

    /// The same for the composed form, whose operations check ids of the call.
    pub(crate) fn check_composed(
        &self,
        of: &ComposedNode<'_>,
        text: &str,
        count: &Axis,
    ) -> Option<TokenStream> {
        let Bound::Below(below) = self else {
            return None;
        };
        let [below, count] = [below, count].map(|axis| of.size(axis));
        Some(quote!(p::check_ids_below(#text, #below, #count)?;))
    }

    /// The number of ids that a session may be given, of which there are `count`: computed ones say nothing of that.
    pub(crate) fn vocab<'o>(&self, count: &'o Size) -> Option<&'o Size> {
        matches!(self, Bound::OfCall).then_some(count)
    }

    /// A lookup along this axis of a value.
    pub(crate) fn lookup<'o>(&self, axis: &'o Axis) -> Option<Lookup<'o>> {
        let Axis::Size(count) = axis else { return None };
        Some(Lookup::ById {
            table: None,
            vocab: self.vocab(count),
        })
    }
}

impl Along {
    /// `&p::layers::Indexing::of(&[sizes.batch, 8], 1, &[sizes.batch], &[Some(0)])`, of a value and of indices with these sizes.
    pub(crate) fn indexing(&self, value: &[TokenStream], ids: &[TokenStream]) -> TokenStream {
        let index = Literal::usize_unsuffixed(self.index);
        let shared = self.shared();
        quote!(&p::layers::Indexing::of(&[#(#value),*], #index, &[#(#ids),*], #shared))
    }

    /// The argument of an operation of the composed form.
    pub(crate) fn composed(&self, ids: &TokenStream) -> TokenStream {
        let index = Literal::usize_unsuffixed(self.index);
        let shared = self.shared();
        let text = &self.text;
        quote!(p::layers::Along { operation: #text, axis: #index, ids: #ids, shared: #shared })
    }

    fn shared(&self) -> TokenStream {
        let shared = self.shared.iter().map(|of| match of {
            Some(of) => {
                let of = Literal::usize_unsuffixed(*of);
                quote!(Some(#of))
            }
            None => quote!(None),
        });
        quote!(&[#(#shared),*])
    }

    /// The type of the numbers at indices of this type.
    pub(crate) fn of(&self, value: &Type, ids: &Type) -> Type {
        let news = ids.axes.iter().zip(&self.shared);
        let news = news.filter(|(_, shared)| shared.is_none());
        let news = news.map(|(axis, _)| axis.clone());
        let before = value.axes[..self.index].iter().cloned();
        let behind = value.axes[self.index + 1..].iter().cloned();
        Type::floats(before.chain(news).chain(behind).collect())
    }
}

/// The index at an offset of an axis of this size.
fn at(offset: &Offset, len: &TokenStream) -> TokenStream {
    match offset {
        Offset::FromStart(start) => quote!(#start),
        Offset::FromEnd(before) => quote!(#len - #before),
    }
}

impl Gather {
    fn label(&self) -> String {
        format!("gather {}", self.along.axis)
    }

    /// `&call.inputs.last.values`, `&[0, 2]`
    fn ids(&self, of: &FusedNode<'_>) -> TokenStream {
        match &self.ids {
            Indices::Operand(_) => of.ids(1),
            Indices::Constants(offsets) => {
                let len = &of.sizes(0)[self.along.index];
                let ids = offsets.iter().map(|offset| at(offset, len));
                quote!(&[#(#ids),*])
            }
        }
    }

    fn indexing(&self, of: &FusedNode<'_>) -> TokenStream {
        let ids = match &self.ids {
            Indices::Operand(_) => of.sizes(1),
            Indices::Constants(offsets) => {
                let count = Literal::usize_unsuffixed(offsets.len());
                vec![quote!(#count)]
            }
        };
        self.along.indexing(&of.sizes(0), &ids)
    }

    /// How long the axis must be for constant indices, if only the call knows how long it is.
    fn check_constants(&self, model: &str, len: &TokenStream) -> Option<TokenStream> {
        let (Axis::Symbol(axis), Indices::Constants(offsets)) = (&self.along.axis, &self.ids)
        else {
            return None;
        };
        let axis = &axis.length;
        let checks = offsets.iter().map(|offset| {
            let least = match offset {
                Offset::FromStart(start) => quote!(usize::saturating_add(#start, 1)),
                Offset::FromEnd(before) => quote!(#before),
            };
            quote!(p::check_at_least(#model, #axis, #len, #least)?;)
        });
        Some(checks.collect())
    }
}

impl Op for Gather {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: match self.ids {
                Indices::Operand(_) => Saved::Reads(vec![1]),
                Indices::Constants(_) => Saved::Nothing,
            },
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        let mut gradients = vec![Gradient::None; operands];
        gradients[0] = Gradient::Computed;
        gradients
    }
}

impl ModelOp for Gather {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label()),
            vertex: VertexKind::Embedding,
            lookup: match &self.ids {
                Indices::Operand(bound) => bound.lookup(&self.along.axis),
                Indices::Constants(_) => None,
            },
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.along.axis, &self.along.text)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let len = &of.sizes(0)[self.along.index];
        match &self.ids {
            Indices::Operand(bound) => bound.check(of, 1, &self.along.text, len),
            Indices::Constants(_) => self.check_constants(&of.label(), len),
        }
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let index = self.along.index;
        let axis = format!("axis={index}");
        let x = of.operand(0);
        let ids = match &self.ids {
            Indices::Operand(_) => of.operand(1),
            Indices::Constants(offsets) => {
                let ids = offsets.iter().map(|offset| match offset {
                    Offset::FromStart(start) => of.size(start),
                    Offset::FromEnd(before) => format!("-{}", of.size(before)),
                });
                Term::ints(ids.collect::<Vec<_>>())
            }
        };
        let shared = &self.along.shared;
        let own: Vec<usize> = shared.iter().flatten().copied().collect();
        if own.is_empty() {
            return Ok(call_with("Gather", axis, [x, ids]));
        }
        // An index for every element: the ids stand at the axes of the value, the new one at that which is indexed.
        let rank = of.operand_type(0).axes.len();
        let places: Vec<usize> = shared.iter().map(|of| of.unwrap_or(index)).collect();
        if places.len() > own.len() + 1 {
            return Err(words::GATHER.to_owned());
        }
        let has_new = places.len() > own.len();
        let lengths = of
            .operand_type(0)
            .axes
            .iter()
            .enumerate()
            .map(
                |(axis, length)| match places.contains(&axis) || axis == index {
                    true => Axis::Size(Size::known(1)),
                    false => length.clone(),
                },
            );
        let lengths: Vec<Axis> = lengths.collect();
        let shape = of.shape(&lengths);
        let ids = call("Expand", [ids.at_axes(&places, rank), shape]);
        let gathered = call_with("GatherElements", axis, [x, ids]);
        Ok(match has_new {
            true => gathered,
            false => gathered.squeeze(&[index]),
        })
    }
}

impl Emit<ModelFrame<'_>> for Gather {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let len = of.size(&self.along.axis);
        let (check, ids) = match &self.ids {
            Indices::Operand(bound) => {
                let ids = of.operand(1);
                let check = bound.check_composed(of, &self.along.text, &self.along.axis);
                (check, quote!(p::Ids::read(&#ids)))
            }
            Indices::Constants(offsets) => {
                let ids = offsets.iter().map(|offset| at(offset, &len));
                let check = self.check_constants(&of.label(), &len);
                (check, quote!(p::Ids::of(&[#(#ids),*])))
            }
        };
        let along = self.along.composed(&ids);
        let shape = of.shape(0);
        let line = of.define(&quote!(gather(&#x, #along, #shape)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let ids = self.ids(of);
        let indexing = self.indexing(of);
        let y = to.slice();
        quote!(p::layers::gather(#x, #ids, #indexing, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let ids = self.ids(of);
        let indexing = self.indexing(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::gather_backward(#ids, #indexing, #d_y, #(&mut #d_x,)* gradients);)
    }
}
