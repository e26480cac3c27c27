//! `mean_pool(x)` and `mean_pool(x, padding)`: the mean over a sequence.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::selection::Selection;
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type, ValueKind};
use crate::onnx::{OnnxNode, Term};

pub(super) static MEAN_POOL: Operation = Operation {
    name: "mean_pool",
    keys: &[],
    positional: 0,
    may_be_tied: false,
    signature: "`[.., seq, d_model]` to `[.., d_model]`",
    doc: "The mean over a sequence; with `lens[batch]` as a second operand, over that many of its first rows, with `bool[batch, seq]` over those that are `true`, and 0 if there are none.",
    lower: Lower::Operands(1..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let (pool, ty) = Pool::lower(lowering, call)?;
    let operands = call.operands.clone();
    Some(lowering.node(builder, MeanPool(pool), operands, (call.result, ty)))
}

/// One vector out of a sequence of them, of which some may be padding.
pub(super) struct Pool {
    /// The kind of the second operand, if there is one.
    padding: Option<ValueKind>,
}

impl Pool {
    /// With the type of the result.
    pub(super) fn lower(lowering: &mut Lowering<'_>, call: &CallSite<'_>) -> Option<(Self, Type)> {
        let x = lowering.ty(call.operands[0]).clone();
        let width = lowering.width(call.at, &x)?;
        if x.axes.len() < 2 {
            lowering.takes(call.at, "[.., seq, d_model]", &x);
            return None;
        }
        let padding = match call.operands.get(1) {
            Some(padding) => Some(padding_kind(lowering, call, &x, *padding)?),
            None => None,
        };
        let before = x.axes[..x.axes.len() - 2].iter().cloned();
        let ty = Type::floats(before.chain([Axis::Size(width)]).collect());
        Some((Pool { padding }, ty))
    }

    /// Padding has none.
    pub(super) fn gradients(&self, operands: usize) -> Vec<Gradient> {
        let mut gradients = vec![Gradient::None; operands];
        gradients[0] = Gradient::Computed;
        gradients
    }

    /// `mean_pool(&x)`, `mean_pool_padded(&x, &lens)`
    pub(super) fn composed(&self, of: &ComposedNode<'_>, name: &str) -> TokenStream {
        let operands = of.operands();
        let padded = if self.padding.is_some() {
            "_padded"
        } else {
            ""
        };
        let method = format_ident!("{name}{padded}");
        of.define(&quote!(#method(#(&#operands),*)))
    }

    /// The vectors that are read, if not all are.
    pub(super) fn selection(&self) -> Option<Selection> {
        self.padding.map(|kind| match kind {
            ValueKind::Bools => Selection::new(kind, vec![0, 1]),
            _ => Selection::new(kind, vec![0]),
        })
    }

    /// Lengths are those of the sequences at most.
    pub(super) fn check(&self, of: &FusedNode<'_>, name: &str) -> Option<TokenStream> {
        let is_lens = self.padding == Some(ValueKind::Lens);
        is_lens.then(|| {
            let len = of.length(0);
            let lens = of.input(1);
            quote!(call.inputs.#lens.check_lengths(#name, #len)?;)
        })
    }

    /// The vectors that are read.
    pub(super) fn counted(&self, of: &FusedNode<'_>) -> TokenStream {
        match self.padding {
            None => quote!(p::Counted::All),
            Some(ValueKind::Bools) => {
                let marks = of.input(1);
                quote!(p::Counted::Where(&call.inputs.#marks))
            }
            Some(_) => {
                let lens = of.ids(1);
                quote!(p::Counted::First(#lens))
            }
        }
    }
}

/// Whether the second operand is lengths or a mask, if it fits `x`.
fn padding_kind(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    x: &Type,
    padding: ValueId,
) -> Option<ValueKind> {
    if x.axes.len() != 3 {
        let takes = "[batch, seq, d_model], and lens[batch] or bool[batch, seq]";
        lowering.takes(call.at, takes, x);
        return None;
    }
    let found = lowering.ty(padding).clone();
    let lens = Type::new(ValueKind::Lens, &x.axes[..1]);
    let mask = Type::new(ValueKind::Bools, &x.axes[..2]);
    let message = || messages::padding_of_pool(call.operation, &lens, &mask, &found);
    let expected = if found.kind == ValueKind::Bools {
        &mask
    } else {
        &lens
    };
    let agrees = lowering.agree(expected, &found, call.at.span(), message);
    agrees.then_some(found.kind)
}

struct MeanPool(Pool);

impl Op for MeanPool {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        self.0.gradients(operands)
    }
}

impl ModelOp for MeanPool {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("mean_pool".to_owned()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::Never)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        self.0.check(of, "mean_pool")
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let axis = of.operand_type(0).axes.len() - 2;
        Ok(match self.0.selection() {
            None => of.operand(0).reduce("ReduceMean", axis as i64, false),
            Some(selection) => selection.onnx(of, axis).mean(),
        })
    }
}

impl Emit<ModelFrame<'_>> for MeanPool {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        self.0.composed(of, "mean_pool")
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axis = of.sequence(0);
        let y = to.slice();
        let counted = self.0.counted(of);
        quote!(p::layers::mean_pool(#x, #axis, #counted, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let axis = of.sequence(0);
        let counted = self.0.counted(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::mean_pool_backward(#axis, #counted, #d_y, #(&mut #d_x,)* gradients);)
    }
}
