//! `dropout::<0.1>(x)`

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Kept, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::syntax::first;
use crate::onnx::{OnnxNode, Term};
use crate::spec::Real;
use crate::spec::keys::{Key, KeyKind};
use crate::spec::parse::Value;

pub(super) static DROPOUT: Operation = Operation {
    name: "dropout",
    keys: &[Key {
        name: "p",
        kind: KeyKind::Number,
        default: "required",
        doc: "Probability, at least 0 and less than 1, with which a number is dropped. It acts in `forward_mut` on a traced tensor.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]` to the same",
    doc: "A share `p` of the numbers becomes 0, and the others `1 / (1 - p)` times as large. PyTorch: `torch.nn.Dropout`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    if !call.arguments.is_given("p") && call.arguments.complete {
        let message = messages::missing_key_of(call.at, "p");
        lowering.error(call.at.span(), message);
    }
    let p = probability(lowering, call, "p")?;
    let ty = lowering.floats_of(call)?;
    let operands = call.operands.clone();
    Some(lowering.node(builder, Dropout(p), operands, (call.result, ty)))
}

/// The probability that a key gives, if it is one.
pub(super) fn probability(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    key: &str,
) -> Option<Real> {
    let Some(Value::Number(p)) = call.arguments.value(key) else {
        return None;
    };
    check_probability(lowering, p)
}

/// The probability, if it is one.
pub(crate) fn check_probability(lowering: &mut Lowering<'_>, p: &Real) -> Option<Real> {
    let message = || crate::messages::dropout_out_of_range(p);
    match p.value {
        Some(value) if !(0.0..1.0).contains(&value) => {
            lowering.error(first(&p.origin), message());
            return None;
        }
        Some(_) => {}
        None => {
            let condition = quote!(#p >= 0.0 && #p < 1.0);
            lowering.assume(vec![condition], first(&p.origin), message());
        }
    }
    Some(p.clone())
}

pub(crate) struct Dropout(pub(crate) Real);

impl Op for Dropout {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: Some(Kept::Dropout),
            fusion: Fusion::Dropout(&self.0),
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::InPlace]
    }
}

impl ModelOp for Dropout {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(format!("dropout {}", self.0)),
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
        Ok(of.operand(0))
    }
}

impl Emit<ModelFrame<'_>> for Dropout {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let p = &self.0;
        of.define(&quote!(dropout(&#x, #p)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let y = to.slice();
        if of.mode() == ExecMode::Forward {
            let (kept, x) = (of.dropout(), to.read(0));
            return quote!(p::layers::elementwise(&p::loops::Copy, [#kept.of(#x)], #y));
        }
        let x = of.slice(0);
        match to.is_in_place() {
            true => TokenStream::new(),
            false => quote!(#y.copy_from_slice(#x)),
        }
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let kept = of.dropout();
        let d_y = gradients.read();
        let d_x = gradients.targets();
        quote!(p::layers::elementwise_backward(&p::loops::Copy, [#kept.of(#d_y)], [#(&mut #d_x),*], gradients);)
    }
}
