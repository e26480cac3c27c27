//! `learned_position::<max_len, d_model>(x)`

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::layer::{self, Layer, Rounding};
use super::{
    Bound, CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lookup, Lower,
    ModelOp, Op, Operation, Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call};
use crate::spec::{Real, Size};

pub(super) static LEARNED_POSITION: Operation = Operation {
    name: "learned_position",
    keys: &[
        layer::size(
            "max_len",
            "required",
            "How many positions there are: the longest sequence.",
        ),
        layer::size("d_model", "required", "Width of a vector."),
        layer::init(
            "`normal(0.02)`",
            "Distribution of the table before training, as of `embedding`.",
        ),
        layer::size(
            "offset",
            "0",
            "How many rows of the table stand before that of the first position: 2 in OPT, BART and RoBERTa. The longest sequence is `max_len - offset`.",
        ),
    ],
    positional: 2,
    may_be_tied: false,
    signature: "`ids[.., seq]` or `[.., seq, d_model]` to `[.., seq, d_model]`",
    doc: "A learned vector per position (Gehring et al. 2017), to be added. With `position_ids = ids`, `ids[batch, seq]` or `ids[seq]`, it is that of these positions, with the axes of `ids`.",
    lower: Lower::OperandsAnd("position_ids", &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let max_len = lowering.required(call, "max_len");
    let width = lowering.required(call, "d_model");
    let max_len = max_len?;
    let width = width?;
    let offset = call.arguments.size("offset");
    let ty = lowering.vector_per_position(call, &width)?;
    let positions = call.operands.get(1).copied();
    if let Some(offset) = &offset {
        let least = offset.plus(&Size::known(1));
        lowering.within(&least, &max_len, call.at.span(), || {
            messages::offset_too_large(offset, &max_len)
        })?;
        if positions.is_some() {
            lowering.error(call.at.span(), messages::OFFSET_OF_GIVEN_POSITIONS);
            return None;
        }
    }
    let ty = match positions {
        Some(ids) => of_given(lowering, call, ids, (&ty, &width))?,
        None => ty,
    };
    let layer = Table {
        max_len: max_len.clone(),
        width,
    };
    let place = lowering.layer(call, layer, &ty, builder);
    let axis = Axis::Size(max_len.clone());
    let given = match positions {
        Some(ids) => Some(lowering.bound_of(ids, &axis, call.at.span(), call.operation.name)?),
        None => None,
    };
    let position = LearnedPosition {
        place,
        longest: match &offset {
            Some(offset) => max_len.minus(offset),
            None => max_len.clone(),
        },
        offset,
        max_len,
        axis,
        given,
    };
    let operands = vec![positions.unwrap_or(call.operands[0])];
    Some(lowering.node(builder, position, operands, (call.result, ty)))
}

/// The vectors of given positions: those of the tokens, or the same for all sequences.
fn of_given(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    ids: ValueId,
    (expected, width): (&Type, &Size),
) -> Option<Type> {
    let ids = lowering.ty(ids).clone();
    let found = lowering.vector_per_id(call.at, &ids, width)?;
    let skip = expected.axes.len().saturating_sub(found.axes.len());
    let wanted = Type::floats(expected.axes[skip..].to_vec());
    let message = || messages::positions_differ(&ids, expected);
    let agrees = found.axes.len() >= 2 && lowering.agree(&wanted, &found, call.at.span(), message);
    if found.axes.len() < 2 {
        lowering.error(call.at.span(), messages::positions_differ(&ids, expected));
    }
    agrees.then_some(found)
}

struct Table {
    max_len: Size,
    width: Size,
}

impl Layer for Table {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let [max_len, width] = [&self.max_len, &self.width].map(Size::arg);
        quote!(#krate::nn::LearnedPosition<#max_len, #width #rest>)
    }

    fn label(&self) -> String {
        layer::label("learned_position", &[&self.max_len, &self.width])
    }

    fn epsilon(&self) -> Option<&Real> {
        None
    }

    fn table(&self) -> Option<[&Size; 2]> {
        None
    }

    fn rounding(&self) -> Rounding {
        Rounding::None
    }

    fn recent(&self) -> Option<[Size; 2]> {
        None
    }
}

/// The result has the axes of its operand.
struct LearnedPosition {
    place: ParamPath,
    max_len: Size,
    /// The same as an axis.
    axis: Axis,
    /// The row of the first position, if it is not the first row.
    offset: Option<Size>,
    /// The length of the longest sequence.
    longest: Size,
    /// How large the positions may be, if they are its operand.
    given: Option<Bound>,
}

impl Op for LearnedPosition {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: match self.given {
                Some(_) => Saved::Reads(vec![0]),
                None => Saved::Nothing,
            },
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::None]
    }
}

impl ModelOp for LearnedPosition {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Embedding,
            lookup: Some(match &self.given {
                Some(bound) => Lookup::ById {
                    table: Some(&self.place),
                    vocab: bound.vocab(&self.max_len),
                },
                None => Lookup::ByPosition {
                    table: &self.place,
                    max_len: &self.longest,
                },
            }),
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
        let max_len = &self.max_len;
        match &self.given {
            Some(Bound::OfCall) => {
                let ids = of.input(0);
                return Some(quote!(
                    call.inputs.#ids.check("learned_position", "position", #max_len, None)?;
                ));
            }
            Some(bound) => return bound.check(of, 0, "learned_position", &quote!(#max_len)),
            None => {}
        }
        let len = of.length_of_result();
        let longest = &self.longest;
        Some(quote!(p::check_length(#len, #longest)?;))
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let table = of.weight(&self.place, "weight");
        if self.given.is_some() {
            return Ok(call("Gather", [table, of.operand(0)]));
        }
        let axes = &of.result_type().axes;
        let (before, len) = (&axes[..axes.len() - 2], &axes[axes.len() - 2]);
        let start = match &self.offset {
            Some(offset) => Term::ints([of.size(offset)]),
            None => Term::ints([0]),
        };
        let end = match &self.offset {
            Some(_) => start.clone().plus(of.length(len)),
            None => of.length(len),
        };
        let rows = call("Slice", [table, start, end, Term::ints([0])]);
        Ok(of.repeated(rows, before))
    }
}

impl Emit<ModelFrame<'_>> for LearnedPosition {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let place = of.place(&self.place);
        if let Some(bound) = &self.given {
            let check = bound.check_composed(of, "learned_position", &self.axis);
            let line = of.layer("learned_position_at", &self.place);
            return quote!(#check #line);
        }
        let shape = of.shape(1);
        of.define(&match &self.offset {
            None => quote!(learned_position(#shape, &#place)),
            Some(offset) => quote!(learned_position_behind(#offset, #shape, &#place)),
        })
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let y = to.matrix();
        if self.given.is_some() {
            let ids = of.ids(0);
            return quote!(#weights.forward(#ids, #y));
        }
        let weights = self.behind(&weights);
        let len = of.length_of_result();
        match of.mode() {
            ExecMode::Forward | ExecMode::Start => quote!(#weights.forward_positions(#len, #y)),
            ExecMode::Session => quote!(#weights.forward(new.positions(), #y)),
        }
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.place);
        let d_y = gradients.matrix();
        if self.given.is_some() {
            let ids = of.ids(0);
            return quote!(#weights.backward(#ids, #d_y, gradients););
        }
        let weights = self.behind(&weights);
        let len = of.length_of_result();
        quote!(#weights.backward_positions(#len, #d_y, gradients);)
    }
}

impl LearnedPosition {
    /// The rows of the table from that of the first position on.
    fn behind(&self, table: &impl ToTokens) -> TokenStream {
        match &self.offset {
            None => table.to_token_stream(),
            Some(offset) => quote!(#table.behind(#offset)),
        }
    }
}
