//! `cross_entropy(logits, targets)`: the loss of a classifier.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    Bound, CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Kept, Label, Lower,
    ModelOp, Op, Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output, size};
use crate::messages::model as messages;
use crate::messages::onnx as words;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::syntax::first;
use crate::model::types::{Axis, Type, ValueKind};
use crate::onnx::{OnnxNode, Term};
use crate::spec::keys::{Key, KeyKind, Word, plain};
use crate::spec::parse::Value;
use crate::spec::{Real, Size};

const NONE: Word = plain("none", "The loss of each target.");

pub(super) static CROSS_ENTROPY: Operation = Operation {
    name: "cross_entropy",
    keys: &[
        Key {
            name: "axis",
            kind: KeyKind::Axes,
            default: "the last one",
            doc: "The axis of the classes.",
        },
        Key {
            name: "ignore_index",
            kind: KeyKind::Size,
            default: "none",
            doc: "Targets that do not count. It need not be a class.",
        },
        Key {
            name: "label_smoothing",
            kind: KeyKind::Number,
            default: "`0`",
            doc: "The share of each target that is spread over all classes: from 0 to 1.",
        },
        Key {
            name: "reduction",
            kind: KeyKind::Word(&[
                plain("mean", "The mean of the losses of the targets that count."),
                NONE,
            ]),
            default: "`mean`",
            doc: "The mean of the losses, or the loss of each target.",
        },
    ],
    positional: 1,
    may_be_tied: false,
    signature: "`[.., classes]` and `ids[..]` to `[]`, or `[..]` with `reduction = none`",
    doc: "The mean of `-ln softmax(logits)[target]` over all targets: `cross_entropy(logits, targets)`. PyTorch: `torch.nn.functional.cross_entropy`, where the classes are the second axis.",
    lower: Lower::Operands(2..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let smoothing = smoothing(lowering, call)?;
    let ty = lowering.floats_of(call)?;
    let [logits, targets] = *call.operands else {
        return None;
    };
    let ids = lowering.ty(targets).clone();
    if ids.kind != ValueKind::Ids {
        lowering.takes(call.at, "floats and ids", &ids);
        return None;
    }
    let index = lowering.axis_or_last(call, &ty)?;
    let classes = ty.axes[index].clone();
    let each = ids.axes.iter().cloned();
    let expected = Type::floats(each.clone().chain([classes.clone()]).collect());
    let places = expected.places(&ty);
    let places = places.filter(|_| ty.axes.len() == expected.axes.len());
    let at = call.at.span();
    let message = || messages::targets_differ(&ty, &classes, &ids, &expected);
    let logits = match places {
        Some(places) if !places.is_sorted() => lowering.in_order(logits, &places, builder),
        Some(_) => logits,
        None => {
            lowering.agree(&expected, &ty, at, message).then_some(())?;
            logits
        }
    };
    let bound = lowering.bound_of(targets, &classes, at, CROSS_ENTROPY.name)?;
    let is_mean = call.arguments.word("reduction") != Some(NONE.name);
    let result = match is_mean {
        true => Vec::new(),
        false => each.collect(),
    };
    let op = CrossEntropy {
        classes,
        targets: ids.axes,
        bound,
        ignored: call.arguments.size("ignore_index"),
        smoothing,
        is_mean,
    };
    let result = (call.result, Type::floats(result));
    Some(lowering.node(builder, op, vec![logits, targets], result))
}

/// The label smoothing, if it is a share.
fn smoothing(lowering: &mut Lowering<'_>, call: &CallSite<'_>) -> Option<Real> {
    if !call.arguments.is_given("label_smoothing") {
        return Some(Real::known(0.0));
    }
    let Some(Value::Number(share)) = call.arguments.value("label_smoothing") else {
        return None;
    };
    let message = || messages::label_smoothing(share);
    match share.value {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            lowering.error(first(&share.origin), message());
            return None;
        }
        Some(_) => {}
        None => {
            let condition = quote!(#share >= 0.0 && #share <= 1.0);
            lowering.assume(vec![condition], first(&share.origin), message());
        }
    }
    Some(share.clone())
}

#[derive(Clone)]
pub(crate) struct CrossEntropy {
    pub(super) classes: Axis,
    /// The axes of the targets.
    targets: Vec<Axis>,
    bound: Bound,
    ignored: Option<Size>,
    smoothing: Real,
    /// The result is the mean of the losses.
    pub(super) is_mean: bool,
}

impl CrossEntropy {
    /// The target that does not count.
    pub(crate) fn ignored(&self) -> TokenStream {
        match &self.ignored {
            Some(index) => quote!(Some(#index)),
            None => quote!(None),
        }
    }

    fn options(&self) -> TokenStream {
        let (ignored, smoothing) = (self.ignored(), &self.smoothing);
        quote!(p::layers::CrossEntropyOptions { ignore_index: #ignored, label_smoothing: #smoothing })
    }

    /// The operation on slices.
    fn on_slices(&self) -> TokenStream {
        self.fields_of(&quote!(CrossEntropy))
    }

    /// The options and the reduction as the fields of an operation on slices.
    pub(super) fn fields_of(&self, operation: &TokenStream) -> TokenStream {
        let options = self.options();
        let reduction = match self.is_mean {
            true => quote!(Mean),
            false => quote!(None),
        };
        quote! {
            p::layers::#operation { options: #options, reduction: p::layers::LossReduction::#reduction }
        }
    }
}

impl Op for CrossEntropy {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Reads(vec![0, 1]),
            kept: Some(Kept::Array),
            fusion: Fusion::Loss(self),
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed, Gradient::None]
    }
}

impl ModelOp for CrossEntropy {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(format!("cross_entropy {}", self.classes)),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        let targets = self.targets.iter().filter(|_| self.is_mean);
        let mut axes = targets.chain([&self.classes]);
        axes.try_for_each(|axis| Decode::along(axis, CROSS_ENTROPY.name).map(drop))?;
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let (count, ignored) = (size(&self.classes), self.ignored());
        match &self.bound {
            Bound::OfCall => {
                let targets = of.input(1);
                Some(quote! {
                    call.inputs.#targets.check("cross_entropy", "target", #count, #ignored)?;
                })
            }
            computed => computed.check(of, 1, CROSS_ENTROPY.name, &count),
        }
    }

    fn onnx(&self, _: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Err(words::loss(CROSS_ENTROPY.name))
    }
}

impl Emit<ModelFrame<'_>> for CrossEntropy {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let [logits, targets] = [0, 1].map(|operand| of.operand(operand));
        let check = self
            .bound
            .check_composed(of, CROSS_ENTROPY.name, &self.classes);
        let options = self.options();
        let line = of.define(&match self.is_mean {
            true => quote!(cross_entropy(&#logits, &#targets, #options)),
            false => quote!(cross_entropy_per_target(&#logits, &#targets, #options)),
        });
        quote!(#check #line)
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let targets = of.extents().operand(1);
        Footprints {
            forward: Some(quote!(p::layers::cross_entropy_footprint(&[#(#targets),*]))),
            backward: None,
        }
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let loss = self.on_slices();
        let (logits, targets) = (of.matrix(0), of.ids(1));
        let losses = to.slice();
        quote!(#loss.forward(#logits, #targets, #losses))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let loss = self.on_slices();
        let (logits, targets) = (of.matrix(0), of.ids(1));
        let lse = of.kept();
        let d_losses = gradients.slice();
        let d_logits = gradients.targets();
        quote!(#loss.backward(#logits, #targets, #lse, #d_losses, #(&mut #d_logits,)* gradients);)
    }
}
