//! `argmax::<axis>(x)`, and `let (values, ids) = top_k::<axis, k = 2>(x);`: the places of the largest numbers along an axis.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::selection::masked;
use super::{
    Along, Bound, CallSite, Cost, Decode, Description, Emit, Fusion, Gather, Gradient, Indices,
    Label, Lower, ModelOp, Op, Operation, Properties, Saved, layer,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder, named};
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call_with};
use crate::spec::Size;
use crate::spec::keys::{Key, KeyKind};

pub(super) static ARGMAX: Operation = Operation {
    name: "argmax",
    keys: &[Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "required",
        doc: "The axis that goes away.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]`, perhaps with `lens[..]` or `bool[..]`, to `ids[..]` without this axis",
    doc: "The index of the largest number along an axis, the first one of equal numbers: `x[seq = argmax::<seq>(score)]`. No gradient flows through ids. PyTorch: `x.argmax(dim)`.",
    lower: Lower::Operands(1..=2, &lower_argmax),
};

pub(super) static TOP_K: Operation = Operation {
    name: "top_k",
    keys: &[
        Key {
            name: "axis",
            kind: KeyKind::Axes,
            default: "the last one",
            doc: "Along which axis.",
        },
        layer::size("k", "required", "How many."),
    ],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]` to the same and `ids[..]`, with `k` indices of the axis",
    doc: "The largest numbers along an axis, the largest one first, and their indices: `let (values, ids) = top_k::<experts, k = 2>(x);`. The gradient is that of the numbers. PyTorch: `x.topk(k, dim)`.",
    lower: Lower::Parts(&lower_top_k),
};

fn lower_argmax(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.floats_of(call)?;
    let axes = lowering.required_axes(call, &ty)?;
    let [index] = *axes else {
        let message = messages::along_one_axis(call.at, axes.len());
        lowering.error(call.at.span(), message);
        return None;
    };
    let axis = ty.axes[index].clone();
    if let Axis::Size(size) = &axis {
        let message = messages::argmax_of_nothing(size);
        lowering
            .at_least_one(size, call.at.span(), message)
            .then_some(())?;
    }
    let mut axes = ty.axes;
    axes.remove(index);
    let op = Ranks {
        axis: axis.clone(),
        index,
        k: None,
    };
    let operands = vec![masked(lowering, call, index, f64::MIN, builder)?];
    Some(lowering.ids_node(builder, op, operands, (call.result, axes), axis))
}

/// The ids, and the numbers there.
fn lower_top_k(
    lowering: &mut Lowering<'_>,
    names: &[Ident],
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<Vec<ValueId>> {
    let k = lowering.required(call, "k");
    let ty = lowering.floats_of(call)?;
    let index = lowering.axis_or_last(call, &ty)?;
    let k = k?;
    let [values, ids] = names else {
        let message = messages::top_k_names(names.len());
        lowering.error(call.at.span(), message);
        return None;
    };
    let axis = ty.axes[index].clone();
    if let Axis::Size(size) = &axis {
        let message = || messages::top_k_beyond(&k, size);
        lowering.within(&k, size, call.at.span(), message)?;
    }
    let mut axes = ty.axes.clone();
    axes[index] = Axis::Size(k.clone());
    let to = Type::floats(axes);
    let op = Ranks {
        axis: axis.clone(),
        index,
        k: Some(k),
    };
    let x = call.operands[0];
    let name = named(Some(ids), "");
    let ids = lowering.ids_node(builder, op, vec![x], (&name, to.axes.clone()), axis.clone());
    let shared = (0..ty.axes.len()).map(|of| (of != index).then_some(of));
    let along = Along {
        axis,
        index,
        shared: shared.collect(),
        text: "top_k".to_owned(),
    };
    let gather = Gather {
        along,
        ids: Indices::Operand(Bound::Known),
    };
    let result = (&*named(Some(values), ""), to);
    let values = lowering.node(builder, gather, vec![x, ids], result);
    Some(vec![values, ids])
}

/// The indices of the largest numbers.
struct Ranks {
    /// The axis of the operand, and its index there.
    axis: Axis,
    index: usize,
    /// How many. `None` is one, and the axis goes away.
    k: Option<Size>,
}

impl Ranks {
    fn name(&self) -> &'static str {
        match self.k {
            Some(_) => TOP_K.name,
            None => ARGMAX.name,
        }
    }

    fn label(&self) -> String {
        format!("{} {}", self.name(), self.axis)
    }

    fn k(&self) -> TokenStream {
        self.k.as_ref().map_or(quote!(1), |k| quote!(#k))
    }

    /// The axis has so many numbers, if only the call knows how long it is.
    fn check(&self, model: &str, len: &TokenStream) -> Option<TokenStream> {
        let Axis::Symbol(axis) = &self.axis else {
            return None;
        };
        let axis = &axis.length;
        let k = self.k();
        Some(quote!(p::check_at_least(#model, #axis, #len, #k)?;))
    }
}

impl Op for Ranks {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::None]
    }
}

impl ModelOp for Ranks {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, self.name())
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        Ranks::check(self, &of.label(), &of.sizes(0)[self.index])
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let x = of.operand(0);
        Ok(match &self.k {
            None => call_with(
                "ArgMax",
                format_args!("axis={},keepdims=0", self.index),
                [x],
            ),
            Some(k) => {
                let k = Term::ints([of.size(k)]);
                // The second output.
                call_with("TopK.1", format_args!("axis={}", self.index), [x, k])
            }
        })
    }
}

impl Emit<ModelFrame<'_>> for Ranks {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let axis = Literal::isize_unsuffixed(self.index as isize);
        let check = Ranks::check(self, &of.label(), &of.size(&self.axis));
        let line = of.define(&match self.k {
            Some(_) => {
                let shape = of.shape(0);
                quote!(top_k(&#x, p::shapes::Axis::<#axis>, #shape))
            }
            None => quote!(argmax(&#x, p::shapes::Axis::<#axis>)),
        });
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let k = self.k();
        let ids = to.slice();
        quote!(p::layers::top_k(#x, #axis, #k, #ids))
    }

    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
