//! `embedding::<vocab, d_model>(ids)`

use proc_macro2::TokenStream;
use quote::quote;

use super::layer::{self, Layer, Rounding};
use super::{
    Bound, CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lookup, Lower,
    ModelOp, Op, Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call};
use crate::spec::{Real, Size};

pub(super) static EMBEDDING: Operation = Operation {
    name: "embedding",
    keys: &[
        layer::size("vocab", "required", "How many ids there are."),
        layer::size("d_model", "required", "Width of a vector."),
        layer::init(
            "`normal(1)`",
            "Distribution of the table before training: `normal(std)`, `xavier_uniform`, or another word of `init`. A table that others are tied to wants `normal(0.02)`.",
        ),
    ],
    positional: 2,
    may_be_tied: true,
    signature: "`ids[..]` to `[.., d_model]`",
    doc: "A learned vector per id. With `tied = name` the table is that of another embedding. PyTorch: `torch.nn.Embedding`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ids = lowering.ty(call.operands[0]).clone();
    let (place, vocab, ty) = if let Some(tied) = &call.arguments.tied {
        let table = lowering.table(tied, call.arguments, builder)?;
        let ty = lowering.vector_per_id(call.at, &ids, &table.width)?;
        (table.place, table.vocab, ty)
    } else {
        let vocab = lowering.required(call, "vocab");
        let width = lowering.required(call, "d_model");
        let vocab = vocab?;
        let width = width?;
        let ty = lowering.vector_per_id(call.at, &ids, &width)?;
        let layer = Table {
            vocab: vocab.clone(),
            width,
        };
        (lowering.layer(call, layer, &ty, builder), vocab, ty)
    };
    let axis = Axis::Size(vocab.clone());
    let bound = lowering.bound_of(call.operands[0], &axis, call.at.span(), EMBEDDING.name)?;
    let embedding = Embedding {
        place,
        vocab,
        axis,
        bound,
    };
    let operands = call.operands.clone();
    Some(lowering.node(builder, embedding, operands, (call.result, ty)))
}

struct Table {
    vocab: Size,
    width: Size,
}

impl Layer for Table {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let [vocab, width] = [&self.vocab, &self.width].map(Size::arg);
        quote!(#krate::nn::Embedding<#vocab, #width #rest>)
    }

    fn label(&self) -> String {
        layer::label("embedding", &[&self.vocab, &self.width])
    }

    fn epsilon(&self) -> Option<&Real> {
        None
    }

    fn table(&self) -> Option<[&Size; 2]> {
        Some([&self.vocab, &self.width])
    }

    fn rounding(&self) -> Rounding {
        Rounding::None
    }

    fn recent(&self) -> Option<[Size; 2]> {
        None
    }
}

struct Embedding {
    place: ParamPath,
    vocab: Size,
    /// The same as an axis.
    axis: Axis,
    bound: Bound,
}

impl Op for Embedding {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Reads(vec![0]),
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::None]
    }
}

impl ModelOp for Embedding {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Embedding,
            lookup: Some(Lookup::ById {
                table: Some(&self.place),
                vocab: self.bound.vocab(&self.vocab),
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
        let vocab = &self.vocab;
        self.bound.check(of, 0, EMBEDDING.name, &quote!(#vocab))
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(call(
            "Gather",
            [of.weight(&self.place, "weight"), of.operand(0)],
        ))
    }
}

impl Emit<ModelFrame<'_>> for Embedding {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let check = self.bound.check_composed(of, EMBEDDING.name, &self.axis);
        let line = of.layer("embedding", &self.place);
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let ids = of.ids(0);
        let y = to.matrix();
        quote!(#weights.forward(#ids, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.place);
        let ids = of.ids(0);
        let d_y = gradients.matrix();
        quote!(#weights.backward(#ids, #d_y, gradients);)
    }
}
