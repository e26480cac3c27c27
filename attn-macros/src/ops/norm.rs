//! `layer_norm(x)` and `rms_norm(x)`, over the last axis.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::layer::{self, Layer, Rounding};
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Kept, Label, Lower, LowerOperands,
    ModelOp, Op, Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Lowering, RegionBuilder, is_without_bias};
use crate::onnx::{OnnxNode, Term, call_with};
use crate::spec::keys::{Key, KeyKind, gain};
use crate::spec::parse::Value;
use crate::spec::{GainKind, Real, Rules, Size};

pub(super) static LAYER_NORM: Operation = Operation {
    name: Norm::Layer.name(),
    keys: &[epsilon("1e-5"), gain(), bias()],
    positional: 0,
    may_be_tied: false,
    signature: "`[.., d_model]` to the same",
    doc: "`(x - mean) / sqrt(var + epsilon)` over the last axis, with a learned gain and bias. PyTorch: `torch.nn.LayerNorm`; `gain = false, bias = false` is its `elementwise_affine=False`.",
    lower: Lower::Operands(1..=1, &Norm::Layer),
};

pub(super) static RMS_NORM: Operation = Operation {
    name: Norm::Rms.name(),
    keys: &[epsilon("1e-6"), gain()],
    positional: 0,
    may_be_tied: false,
    signature: "`[.., d_model]` to the same",
    doc: "`x / sqrt(mean(x²) + epsilon)` over the last axis, with a learned gain. PyTorch: `torch.nn.RMSNorm`. Gemma's is `rms_norm::<gain = one_plus>(x)`.",
    lower: Lower::Operands(1..=1, &Norm::Rms),
};

pub(super) const fn bias() -> Key {
    layer::bias("`true`", "Whether a learned bias is added.")
}

pub(super) const fn epsilon(default: &'static str) -> Key {
    Key {
        name: "epsilon",
        kind: KeyKind::Number,
        default,
        doc: "Positive: keeps the divisor away from 0.",
    }
}

#[derive(Clone, Copy)]
enum Norm {
    Layer,
    Rms,
}

impl Norm {
    /// In a declaration, and of the method of the composed form.
    const fn name(self) -> &'static str {
        match self {
            Self::Layer => "layer_norm",
            Self::Rms => "rms_norm",
        }
    }
}

impl LowerOperands for Norm {
    fn lower(
        &self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let ty = lowering.ty(call.operands[0]).clone();
        let learned = match self {
            Self::Layer => Learned::of(call),
            // Without the key for a bias.
            Self::Rms => Learned {
                bias: false,
                ..Learned::of(call)
            },
        };
        let layer = Gain {
            norm: *self,
            learned,
            epsilon: asked_epsilon(lowering, call),
            width: lowering.width(call.at, &ty)?,
        };
        let node = Normalize {
            norm: *self,
            learned,
            place: lowering.layer(call, layer, &ty, builder),
        };
        let operands = call.operands.clone();
        Some(lowering.node(builder, node, operands, (call.result, ty)))
    }
}

/// The epsilon that is given, if it is positive.
pub(super) fn asked_epsilon(lowering: &mut Lowering<'_>, call: &CallSite<'_>) -> Option<Real> {
    let Some(Value::Number(epsilon)) = call.arguments.value("epsilon") else {
        return None;
    };
    let is_positive = lowering.is_positive(epsilon, "epsilon");
    is_positive.then(|| epsilon.clone())
}

/// The tensors that a norm learns.
#[derive(Clone, Copy)]
pub(super) struct Learned {
    gain: GainKind,
    bias: bool,
}

impl Learned {
    /// By the keys of a call.
    pub(super) fn of(call: &CallSite<'_>) -> Self {
        Learned {
            gain: GainKind::of(call.arguments.word("gain")),
            bias: !call.arguments.entries.iter().any(is_without_bias),
        }
    }

    /// The normalised values of this layer with its gain and bias, which have so many axes behind that of the channels.
    pub(super) fn onnx(
        self,
        of: &OnnxNode<'_, '_>,
        place: &ParamPath,
        behind: &[usize],
        normed: Term,
    ) -> Term {
        let weight = |tensor: &str| of.weight(place, tensor).unsqueeze(behind);
        let scaled = match self.gain {
            GainKind::One => normed,
            GainKind::Factor => normed.times(weight("weight")),
            GainKind::OnePlus => normed.times(weight("weight").plus(Term::number(1.0))),
        };
        match self.bias {
            true => scaled.plus(weight("bias")),
            false => scaled,
        }
    }

    /// The number of its vectors.
    pub(super) fn count(self) -> usize {
        usize::from(self.gain != GainKind::One) + usize::from(self.bias)
    }

    /// The module of a norm that may have a bias: `UnbiasedLayerNorm`.
    pub(super) fn module(self, norm: &str) -> Ident {
        let variant = match (self.gain, self.bias) {
            (GainKind::Factor, true) => "",
            (GainKind::Factor, false) => "Unbiased",
            (GainKind::One, true) => "Ungained",
            (GainKind::One, false) => "Plain",
            (GainKind::OnePlus, true) => "OnePlus",
            (GainKind::OnePlus, false) => "UnbiasedOnePlus",
        };
        format_ident!("{variant}{norm}")
    }

    /// The differences from a gain and a bias, for people.
    pub(super) fn label(self, may_have_bias: bool) -> String {
        let gain = match self.gain {
            GainKind::Factor => "",
            GainKind::One => ", without gain",
            GainKind::OnePlus => ", gain 1 + weight",
        };
        let bias = match self.bias || !may_have_bias {
            true => "",
            false => ", without bias",
        };
        format!("{gain}{bias}")
    }
}

/// The epsilon, for people.
pub(super) fn epsilon_label(epsilon: Option<&Real>) -> String {
    match epsilon {
        None => String::new(),
        Some(Real {
            value: Some(epsilon),
            ..
        }) => format!(", epsilon {epsilon:e}"),
        Some(epsilon) => format!(", epsilon {epsilon}"),
    }
}

struct Gain {
    norm: Norm,
    learned: Learned,
    width: Size,
    epsilon: Option<Real>,
}

impl Layer for Gain {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let norm = match (self.norm, self.learned.gain) {
            (Norm::Layer, _) => self.learned.module("LayerNorm"),
            (Norm::Rms, GainKind::Factor) => format_ident!("RmsNorm"),
            (Norm::Rms, GainKind::One) => format_ident!("PlainRmsNorm"),
            (Norm::Rms, GainKind::OnePlus) => format_ident!("OnePlusRmsNorm"),
        };
        let width = self.width.arg();
        quote!(#krate::nn::#norm<#width #rest>)
    }

    fn label(&self) -> String {
        let norm = layer::label(self.norm.name(), &[&self.width]);
        let learned = self.learned.label(matches!(self.norm, Norm::Layer));
        format!("{norm}{learned}{}", epsilon_label(self.epsilon.as_ref()))
    }

    fn epsilon(&self) -> Option<&Real> {
        self.epsilon.as_ref()
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

struct Normalize {
    norm: Norm,
    learned: Learned,
    place: ParamPath,
}

impl Op for Normalize {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: Some(Kept::Array),
            fusion: Fusion::Rows,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Normalize {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Norm,
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
        let x = of.operand(0);
        let epsilon = of.epsilon(&self.place);
        let Learned { gain, bias } = self.learned;
        if let (Norm::Layer, GainKind::Factor) = (self.norm, gain) {
            let bias = bias.then(|| of.weight(&self.place, "bias"));
            let attributes = format!("axis=-1,epsilon={}", of.float(&epsilon));
            let operands = [x, of.weight(&self.place, "weight")]
                .into_iter()
                .chain(bias);
            return Ok(call_with("LayerNormalization", attributes, operands));
        }
        let normed = match self.norm {
            Norm::Layer => of.standardized(x, &epsilon),
            Norm::Rms => of.divided_by_rms(x, &epsilon),
        };
        Ok(self.learned.onnx(of, &self.place, &[], normed))
    }
}

impl Emit<ModelFrame<'_>> for Normalize {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        of.layer(self.norm.name(), &self.place)
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let extents = of.extents();
        let rows = extents.rows();
        let width = extents.width();
        let learned = self.learned.count();
        Footprints::of_both(quote!(p::layers::norm_footprint(&[#(#rows),*], #width, #learned)))
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let [x, y] = to.rows(of);
        quote!(#weights.forward(#x, #y))
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
