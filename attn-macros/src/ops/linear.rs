//! `linear::<out>(x)`, with a weight of its own or the table of an embedding.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::layer::{self, Layer, Rounding};
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Lowering, RegionBuilder, is_without_bias};
use crate::model::syntax::first;
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term};
use crate::spec::{Real, Size};

pub(super) static LINEAR: Operation = Operation {
    name: "linear",
    keys: &[
        layer::size("out", "required", "Width of the result."),
        layer::bias("`true`", "Whether a learned bias is added."),
        layer::init(
            "uniform within `1 / sqrt(in)`",
            "Distribution of the weight before training, as of `embedding`. That of the bias stays.",
        ),
    ],
    positional: 1,
    may_be_tied: true,
    signature: "`[.., in]` to `[.., out]`",
    doc: "`x Wᵀ + b`. With `tied = name` the weight is the table of that embedding. PyTorch: `torch.nn.Linear`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    if let Some(tied) = &call.arguments.tied {
        return lower_tied(lowering, call, tied, builder);
    }
    let x = lowering.ty(call.operands[0]).clone();
    let output = lowering.required(call, "out");
    let input = lowering.width(call.at, &x);
    let output = output?;
    let input = input?;
    let ty = x.ending_in(output.clone());
    let bias = !call.arguments.entries.iter().any(is_without_bias);
    let layer = Affine {
        input: input.clone(),
        output: output.clone(),
        bias,
    };
    let place = lowering.layer(call, layer, &ty, builder);
    let of = (call.operands[0], call.result);
    Some(lowering.linear(&place, (bias, [input, output]), of, builder))
}

fn lower_tied(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    tied: &Ident,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let table = lowering.table(tied, call.arguments, builder)?;
    let vocab = &table.vocab;
    let width = &table.width;
    let x = lowering.ty(call.operands[0]).clone();
    let row = |size: &Size| Type::floats(vec![Axis::Size(size.clone())]);
    if let Some(out) = call.arguments.size("out") {
        let message = || messages::tied_size(&out, tied, vocab);
        lowering.agree(&row(&out), &row(vocab), first(&out.origin), message);
    }
    let found = lowering.width(call.at, &x)?;
    let message = || messages::tied_width(tied, width, &x);
    if !lowering.agree(&row(&found), &row(width), call.at.span(), message) {
        return None;
    }
    let ty = x.ending_in(table.vocab);
    let operands = call.operands.clone();
    let linear = Linear {
        place: table.place,
        bias: false,
        tied: true,
        parts: 1,
    };
    Some(lowering.node(builder, linear, operands, (call.result, ty)))
}

/// `y = x Wᵀ + b` among the layers of a model.
#[derive(Clone)]
pub(crate) struct Affine {
    pub(crate) input: Size,
    pub(crate) output: Size,
    pub(crate) bias: bool,
}

impl Layer for Affine {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let linear = format_ident!(
            "{}",
            if self.bias {
                "Linear"
            } else {
                "UnbiasedLinear"
            }
        );
        let [input, output] = [&self.input, &self.output].map(Size::arg);
        quote!(#krate::nn::#linear<#input, #output #rest>)
    }

    fn label(&self) -> String {
        let bias = if self.bias { "" } else { ", without bias" };
        let name = layer::label("linear", &[&self.input, &self.output]);
        format!("{name}{bias}")
    }

    fn epsilon(&self) -> Option<&Real> {
        None
    }

    fn table(&self) -> Option<[&Size; 2]> {
        None
    }

    fn rounding(&self) -> Rounding {
        Rounding::Products
    }

    fn recent(&self) -> Option<[Size; 2]> {
        None
    }
}

#[derive(Clone)]
pub(crate) struct Linear {
    /// The place of the layer, or of the embedding whose table is the weight.
    pub(crate) place: ParamPath,
    pub(crate) bias: bool,
    tied: bool,
    /// The number of its results: columns of one size each, side by side.
    parts: usize,
}

impl Linear {
    pub(crate) fn new(place: ParamPath, bias: bool) -> Self {
        Linear {
            place,
            bias,
            tied: false,
            parts: 1,
        }
    }

    /// The same with so many results.
    pub(crate) fn in_parts(&self, parts: usize) -> Self {
        Linear {
            parts,
            ..self.clone()
        }
    }
}

impl Op for Linear {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: match self.tied {
                true => Fusion::Tied(self),
                false => Fusion::Projection(self),
            },
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Linear {
    fn description(&self) -> Description<'_> {
        Description {
            label: match self.tied {
                true => Label::Text(format!("linear, tied to {}", self.place.field)),
                false => Label::Layer(&self.place),
            },
            vertex: VertexKind::Linear,
            lookup: None,
            attention: None,
        }
    }

    fn parameters(&self) -> Option<&ParamPath> {
        Some(&self.place)
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, of: &Extents<'_>) -> Cost {
        let rows = of.rows();
        let input = of.width();
        let output = of.width_of_result();
        let parts = (self.parts > 1).then(|| Literal::usize_unsuffixed(self.parts));
        let parts = parts.into_iter();
        Cost {
            flops: Some(quote!(p::product(&[2, #(#rows,)* #input, #(#parts,)* #output]))),
            ..Cost::none()
        }
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let weight = of.weight(&self.place, "weight");
        let bias = self.bias.then(|| of.weight(&self.place, "bias"));
        Ok(of.affine(of.operand(0), weight, bias))
    }
}

impl Emit<ModelFrame<'_>> for Linear {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let method = if self.tied { "tied_linear" } else { "linear" };
        of.layer(method, &self.place)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let method = format_ident!("{}", if self.tied { "project" } else { "forward" });
        let weights = of.packed().unwrap_or_else(|| of.weights(&self.place));
        let x = of.matrix(0);
        let y = to.matrix();
        if self.parts > 1 {
            let others = to.other_matrices();
            return quote!(#weights.forward_in_parts(#x, [#y, #(#others),*]));
        }
        quote!(#weights.#method(#x, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let method = if self.tied {
            "project_backward"
        } else {
            "backward"
        };
        let method = format_ident!("{method}");
        let weights = of.weights(&self.place);
        let x = of.matrix(0);
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        if self.parts > 1 {
            let d_y = gradients.parts();
            return quote!(#weights.backward_in_parts(#x, [#(#d_y),*], #(&mut #d_x,)* gradients););
        }
        quote!(#weights.#method(#x, #d_y, #(&mut #d_x,)* gradients);)
    }
}
