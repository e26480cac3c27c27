//! `feed_forward::<hidden>(x)`

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::activation::{self, Activation};
use super::dropout::{Dropout, probability};
use super::layer::{self, Layer, Rounding};
use super::linear::Affine;
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Kept, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Lowering, Projection, RegionBuilder};
use crate::onnx::{OnnxNode, Term};
use crate::score::Expr;
use crate::spec::keys::{Key, KeyKind, Word};
use crate::spec::{Distribution, Real, Size};

pub(super) static FEED_FORWARD: Operation = Operation {
    name: "feed_forward",
    keys: &[
        layer::size("hidden", "required", "Width of the hidden layer."),
        Key {
            name: "activation",
            kind: KeyKind::Word(&ACTIVATIONS),
            default: "`gelu`",
            doc: "The nonlinearity. With a gate there are three projections.",
        },
        layer::bias(
            "`true`, and `false` with a gate",
            "Whether the maps add learned biases.",
        ),
        Key {
            name: "dropout",
            kind: KeyKind::Number,
            default: "0",
            doc: "Probability, at least 0 and less than 1, with which a number behind the nonlinearity, or behind the gate, is dropped. It acts in `forward_mut` on a traced tensor.",
        },
        layer::init(
            "uniform within `1 / sqrt(in)`",
            "Distribution of its weights before training, as of `embedding`. That of the biases stays.",
        ),
    ],
    positional: 1,
    may_be_tied: false,
    signature: "`[.., d_model]` to the same",
    doc: "Two linear maps, and a nonlinearity between them (Vaswani et al. 2017, section 3.3). PyTorch: `linear2(dropout(activation(linear1(x))))` of `torch.nn.TransformerEncoderLayer`.",
    lower: Lower::Operands(1..=1, &lower),
};

/// A nonlinearity between the maps, or in a gate beside the first.
#[derive(Clone, Copy)]
struct Nonlinearity {
    word: Word,
    activation: Activation,
    gated: bool,
}

const fn plain(activation: Activation) -> Nonlinearity {
    Nonlinearity {
        word: activation.word(),
        activation,
        gated: false,
    }
}

const fn gate(name: &'static str, activation: Activation, doc: &'static str) -> Nonlinearity {
    Nonlinearity {
        word: Word {
            name,
            args: &[],
            doc,
        },
        activation,
        gated: true,
    }
}

const NONLINEARITIES: [Nonlinearity; 11] = [
    plain(activation::GELU),
    plain(activation::GELU_TANH),
    plain(activation::RELU),
    plain(activation::RELU_SQUARED),
    plain(activation::SILU),
    plain(activation::SIGMOID),
    plain(activation::TANH),
    gate(
        "swiglu",
        activation::SILU,
        "Gated by `silu`, as in LLaMA (Shazeer 2020).",
    ),
    gate("geglu", activation::GELU, "Gated by `gelu` (Shazeer 2020)."),
    gate(
        "geglu_tanh",
        activation::GELU_TANH,
        "Gated by `gelu_tanh`, as in Gemma.",
    ),
    gate("reglu", activation::RELU, "Gated by `relu` (Shazeer 2020)."),
];

static ACTIVATIONS: [Word; NONLINEARITIES.len()] = {
    let mut words = [NONLINEARITIES[0].word; NONLINEARITIES.len()];
    let mut index = 0;
    while index < words.len() {
        words[index] = NONLINEARITIES[index].word;
        index += 1;
    }
    words
};

/// The first one without a word.
fn nonlinearity(word: Option<&str>) -> Option<Nonlinearity> {
    let word = word.unwrap_or(NONLINEARITIES[0].word.name);
    NONLINEARITIES.into_iter().find(|of| of.word.name == word)
}

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.ty(call.operands[0]).clone();
    let hidden = lowering.required(call, "hidden");
    let width = lowering.width(call.at, &ty);
    let hidden = hidden?;
    let width = width?;
    // The words of the key are those of the table.
    let Nonlinearity {
        activation, gated, ..
    } = nonlinearity(call.arguments.word("activation"))?;
    let bias = match call.arguments.word("bias") {
        Some(word) => word == "true",
        None => !gated,
    };
    let dropout = probability(lowering, call, "dropout");
    let layer = TwoLayers {
        width: width.clone(),
        hidden: hidden.clone(),
        activation,
        gated,
        bias,
        dropout: dropout.clone(),
    };
    let place = lowering.layer(call, layer.clone(), &ty, builder);
    if lowering.are_adapted(&place, layer.fields()) {
        return Some(layer.lower_apart(lowering, call, &place, builder));
    }
    let feed_forward = FeedForward {
        place,
        width,
        hidden,
        activation,
        gated,
        bias,
        dropout,
    };
    let operands = call.operands.clone();
    Some(lowering.node(builder, feed_forward, operands, (call.result, ty)))
}

#[derive(Clone)]
struct TwoLayers {
    width: Size,
    hidden: Size,
    activation: Activation,
    gated: bool,
    bias: bool,
    dropout: Option<Real>,
}

impl TwoLayers {
    /// The names of its projections, the one to the result last.
    fn fields(&self) -> impl Iterator<Item = &'static str> {
        let fields = ["gate_proj", "up_proj", "down_proj"];
        fields.into_iter().skip(usize::from(!self.gated))
    }

    fn projection<'f>(&self, field: &'f str, init: &Option<Distribution>) -> Projection<'f> {
        let [input, output] = match field {
            "down_proj" => [&self.hidden, &self.width],
            _ => [&self.width, &self.hidden],
        };
        Projection {
            field,
            saved: field,
            layer: Affine {
                input: input.clone(),
                output: output.clone(),
                bias: self.bias,
            },
            init: init.clone(),
        }
    }

    /// The same as a layer for each projection: those with adapters have nothing in common with the others.
    fn lower_apart(
        self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        place: &ParamPath,
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let init = lowering.init(call.arguments);
        let module = lowering.apart(place, call.operation.name, call.at.span());
        let outer = std::mem::replace(&mut builder.module, module);
        let x = call.operands[0];
        let mut values = Vec::new();
        for field in self.fields().filter(|field| *field != "down_proj") {
            let name = format!("{}_of_{}", field.trim_end_matches("_proj"), call.result);
            values.push(lowering.projected(self.projection(field, &init), (x, &name), builder));
        }
        let ty = lowering.ty(values[0]).clone();
        let name = format!("hidden_of_{}", call.result);
        let activated = self.activation.of(Expr::Operand(0));
        let mut hidden =
            lowering.elementwise(activated, &values[..1], (&name, ty.clone()), builder);
        if let [_, up] = *values {
            let product = Expr::Operand(0) * Expr::Operand(1);
            hidden = lowering.elementwise(product, &[hidden, up], (&name, ty.clone()), builder);
        }
        if let Some(p) = &self.dropout {
            let name = format!("dropout_of_{}", call.result);
            hidden = lowering.node(builder, Dropout(p.clone()), vec![hidden], (&name, ty));
        }
        let down = self.projection("down_proj", &init);
        let y = lowering.projected(down, (hidden, call.result), builder);
        builder.module = outer;
        y
    }
}

impl Layer for TwoLayers {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let layer = format_ident!(
            "{}",
            match (self.gated, self.bias) {
                (false, true) => "FeedForward",
                (false, false) => "UnbiasedFeedForward",
                (true, false) => "GatedFeedForward",
                (true, true) => "BiasedGatedFeedForward",
            }
        );
        let activation = format_ident!("{}", self.activation.ty);
        let [width, hidden] = [&self.width, &self.hidden].map(Size::arg);
        quote!(#krate::nn::#layer<#width, #hidden, #krate::nn::#activation #rest>)
    }

    fn label(&self) -> String {
        let gate = if self.gated { "gate of " } else { "" };
        let sizes = [&self.width, &self.hidden, &self.width];
        let name = layer::label("feed_forward", &sizes);
        let bias = match (self.gated, self.bias) {
            (false, false) => ", without biases",
            (true, true) => ", with biases",
            _ => "",
        };
        let dropout = self.dropout.as_ref();
        let dropout = dropout.map_or_else(String::new, |p| format!(", dropout {p}"));
        format!("{name}, {gate}{}{bias}{dropout}", self.activation.ty)
    }

    fn epsilon(&self) -> Option<&Real> {
        None
    }

    fn table(&self) -> Option<[&Size; 2]> {
        None
    }

    fn rounding(&self) -> Rounding {
        Rounding::ProductsAndHidden
    }

    fn recent(&self) -> Option<[Size; 2]> {
        None
    }
}

struct FeedForward {
    place: ParamPath,
    width: Size,
    hidden: Size,
    activation: Activation,
    gated: bool,
    bias: bool,
    dropout: Option<Real>,
}

impl Op for FeedForward {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: Some(Kept::Hidden),
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for FeedForward {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Linear,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, of: &Extents<'_>) -> Cost {
        let width = &self.width;
        let hidden = &self.hidden;
        let rows = of.rows();
        let products = if self.gated { 6usize } else { 4 };
        Cost {
            flops: Some(quote!(p::product(&[#products, #(#rows,)* #width, #hidden]))),
            // A gate is as wide again.
            hidden: Some(quote!(2 * #hidden)),
        }
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let affine = |of: &OnnxNode<'_, '_>, x: Term, field: &str| {
            let [weight, bias] = ["weight", "bias"].map(|tensor| format!("{field}.{tensor}"));
            let bias = self.bias.then(|| of.weight(&self.place, &bias));
            of.affine(x, of.weight(&self.place, &weight), bias)
        };
        let x = of.operand(0);
        let activation = self.activation.of(Expr::Operand(0));
        let hidden = match self.gated {
            true => {
                let gate = affine(of, x.clone(), "gate_proj");
                let gate = of.elements(&activation, &[gate]);
                gate.times(affine(of, x, "up_proj"))
            }
            false => {
                let up = affine(of, x, "up_proj");
                of.elements(&activation, &[up])
            }
        };
        Ok(affine(of, hidden, "down_proj"))
    }
}

impl Emit<ModelFrame<'_>> for FeedForward {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let method = if self.gated {
            "gated_feed_forward"
        } else {
            "feed_forward"
        };
        let Some(p) = &self.dropout else {
            return of.layer(method, &self.place);
        };
        let method = format_ident!("{method}_with_dropout");
        let x = of.operand(0);
        let place = of.place(&self.place);
        of.define(&quote!(#method(&#x, &#place, #p)))
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let hidden = &self.hidden;
        let gated = self.gated;
        let rows = of.extents().rows();
        Footprints::of_both(
            quote!(p::layers::feed_forward_footprint(&[#(#rows),*], #hidden, #gated)),
        )
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let x = of.matrix(0);
        let y = to.matrix();
        let dropout = match (&self.dropout, of.mode()) {
            (Some(p), ExecMode::Forward) => match of.rows_of_batch() {
                Some(rows) => {
                    let hidden = &self.hidden;
                    quote!(random.dropout_of_batch(#p, #rows * #hidden))
                }
                None => quote!(random.dropout(#p)),
            },
            _ => quote!(p::layers::Dropout::NONE),
        };
        match to.is_unread() {
            true => quote!(#weights.hidden(#x, #dropout)),
            false => quote!(#weights.forward(#x, #dropout, #y)),
        }
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.place);
        let x = of.matrix(0);
        let kept = of.kept();
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        quote!(#weights.backward(#x, #kept, #d_y, #(&mut #d_x,)* gradients);)
    }
}
