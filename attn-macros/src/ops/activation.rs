//! The nonlinearities, number by number.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{
    CallSite, Cost, Decode, Fusion, Gradient, Label, Lower, LowerOperands, Op, Operation,
    Properties, Saved, Scratch,
};
use crate::model::emit::{Composed, Extents, FusedNode, Gradients, Output, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Frame, Lowering};
use crate::spec::keys::Word;

/// A function of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Activation {
    /// In a declaration.
    name: &'static str,
    /// The type in `attn::nn`.
    pub(crate) ty: &'static str,
    doc: &'static str,
}

const fn of(name: &'static str, ty: &'static str, doc: &'static str) -> Activation {
    Activation { name, ty, doc }
}

pub(super) const GELU: Activation = of("gelu", "Gelu", "`x Φ(x)` (Hendrycks and Gimpel 2016).");
pub(super) const GELU_TANH: Activation = of(
    "gelu_tanh",
    "GeluTanh",
    "`gelu` approximated by `tanh`, as in GPT-2.",
);
pub(super) const RELU: Activation = of("relu", "Relu", "`max(x, 0)`.");
pub(super) const RELU_SQUARED: Activation = of(
    "relu_squared",
    "ReluSquared",
    "`max(x, 0)²` (So et al. 2021).",
);
pub(super) const SILU: Activation = of("silu", "Silu", "`x sigmoid(x)`.");
pub(super) const SIGMOID: Activation = of("sigmoid", "Sigmoid", "`1 / (1 + exp(-x))`.");
pub(super) const TANH: Activation = of("tanh", "Tanh", "`tanh(x)`.");

/// In the order in which the documentation lists them.
pub(super) static OPERATIONS: [Operation; 7] = [
    operation(&GELU),
    operation(&GELU_TANH),
    operation(&RELU),
    operation(&RELU_SQUARED),
    operation(&SILU),
    operation(&SIGMOID),
    operation(&TANH),
];

const fn operation(activation: &'static Activation) -> Operation {
    Operation {
        name: activation.name,
        keys: &[],
        positional: 0,
        may_be_tied: false,
        signature: "`[..]` to the same",
        doc: activation.doc,
        lower: Lower::Operands(1..=1, activation),
    }
}

impl Activation {
    /// As the value of a key.
    pub(super) const fn word(&self) -> Word {
        Word {
            name: self.name,
            args: &[],
            doc: self.doc,
        }
    }

    /// `<attn::nn::Gelu as p::Activation>::KERNEL`
    fn kernel(self, of: &FusedNode<'_>) -> TokenStream {
        let nn = of.nn();
        let ty = format_ident!("{}", self.ty);
        quote!(<#nn::#ty as p::Activation>::KERNEL)
    }
}

impl LowerOperands for Activation {
    fn lower(
        &self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        frame: &mut Frame,
    ) -> Option<ValueId> {
        let ty = lowering.floats_of(call)?;
        Some(lowering.node(frame, *self, call.operands.clone(), (call.result, ty)))
    }
}

impl Op for Activation {
    fn properties(&self) -> Properties<'_> {
        Properties {
            label: Label::Text(self.ty.to_owned()),
            vertex: VertexKind::Other,
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::Elementwise,
            lookup: None,
            attention: None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    /// Its derivative is written before it is added.
    fn cost(&self, of: &Extents<'_>) -> Cost {
        let axes = of.operand(0);
        Cost {
            backward: Scratch::WhenAdding(quote!(p::Footprint::back(&[#(#axes),*]))),
            ..Cost::none()
        }
    }

    fn composed(&self, of: &Composed<'_>) -> TokenStream {
        let nn = of.nn();
        let ty = format_ident!("{}", self.ty);
        let x = of.operand(0);
        quote!(activate::<#nn::#ty, _, _, _>(&#x))
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output<'_>) -> TokenStream {
        let x = of.slice(0);
        let activation = self.kernel(of);
        let y = to.slice();
        quote!(p::layers::activate(#activation, #x, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let x = of.slice(0);
        let activation = self.kernel(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::activate_backward(#activation, #x, #d_y, #(&mut #d_x,)* gradients);)
    }
}
