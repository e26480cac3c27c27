//! `sum::<axis>(x)`, `mean`, `max`, `min`, `variance` and `logsumexp`: one number in place of an axis, or of several.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::selection::{Selected, Selection};
use super::{
    CallSite, Cost, Decode, Description, Elementwise, Emit, Fusion, Gradient, Label, Lower,
    LowerOperands, ModelOp, Op, Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term};
use crate::score::{Binary, Expr};
use crate::spec::keys::{Key, KeyKind};

/// The axes that go away.
pub(super) const REDUCED: Key = Key {
    name: "axis",
    kind: KeyKind::Axes,
    default: "required",
    doc: "The axes that go away.",
};

const SIGNATURE: &str = "`[..]` to the same without these axes";

const fn operation(reduction: &'static Reduction, doc: &'static str) -> Operation {
    Operation {
        name: reduction.name(),
        keys: &[REDUCED],
        positional: 1,
        may_be_tied: false,
        signature: SIGNATURE,
        doc,
        lower: Lower::Operands(1..=2, reduction),
    }
}

/// The reductions but `max` and `min`, which are functions of two values, too. The documentation lists them in this order.
pub(super) static OPERATIONS: [Operation; 4] = [
    operation(
        &Reduction::Sum,
        "The sum over axes: `sum::<seq>(x)`, `sum::<[seq, d_model]>(x)`. PyTorch: `x.sum(dim)`.",
    ),
    operation(
        &Reduction::Mean,
        "The mean over axes. PyTorch: `x.mean(dim)`.",
    ),
    operation(
        &Reduction::Variance,
        "The biased variance over axes, `Σ (x - mean)² / n`. PyTorch: `x.var(dim, correction=0)`.",
    ),
    operation(
        &Reduction::Logsumexp,
        "`ln Σ exp(x)` over axes. PyTorch: `x.logsumexp(dim)`.",
    ),
];

/// A reduction of the numbers along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Variance,
    Logsumexp,
}

impl Reduction {
    /// The name of the operation, of the method of `Pass`.
    const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::Max => "max",
            Reduction::Min => "min",
            Reduction::Variance => "variance",
            Reduction::Logsumexp => "logsumexp",
        }
    }

    /// `p::layers::Reduction::Sum`
    fn variant(self) -> TokenStream {
        let variant = format_ident!("{self:?}");
        quote!(p::layers::Reduction::#variant)
    }
}

impl LowerOperands for Reduction {
    fn lower(
        &self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let ty = lowering.floats_of(call)?;
        let mut axes = lowering.required_axes(call, &ty)?;
        axes.sort_unstable();
        if call.operands.len() > 1 {
            return self.of_some(lowering, call, &axes, builder);
        }
        if axes.is_empty() && *self == Reduction::Variance {
            let message = messages::variance_of_no_axes(&ty);
            lowering.error(call.at.span(), message);
            return None;
        }
        let mut nodes = Nodes { lowering, builder };
        let x = call.operands[0];
        Some(match self {
            Reduction::Variance => nodes.variance(x, &axes, call.result),
            _ => nodes.reduce_all(*self, x, &axes, call.result),
        })
    }
}

impl Reduction {
    /// The reduction of the numbers that the second operand selects.
    fn of_some(
        self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        axes: &[usize],
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let [index] = *axes else {
            let message = messages::selection_of_several(call.operation, axes.len());
            lowering.error(call.at.span(), message);
            return None;
        };
        let Selected {
            value,
            selection,
            order,
        } = Selected::lower(lowering, call, index, builder)?;
        let mut ty = lowering.ty(value).clone();
        let op = Reduce {
            reduction: self,
            axis: ty.axes.remove(order.index),
            index: order.index,
            selection: Some(selection),
        };
        let name = match order.is_in_order() {
            true => call.result,
            false => self.name(),
        };
        let operands = vec![value, call.operands[1]];
        let result = lowering.node(builder, op, operands, (name, ty));
        Some(order.back_without(lowering, result, call.result, builder))
    }
}

/// The nodes of a call.
struct Nodes<'n, 'l> {
    lowering: &'n mut Lowering<'l>,
    builder: &'n mut RegionBuilder,
}

impl Nodes<'_, '_> {
    /// Along some axes, the last one first, so that the indices of the others stay. The result has the name.
    fn reduce_all(
        &mut self,
        reduction: Reduction,
        x: ValueId,
        axes: &[usize],
        name: &str,
    ) -> ValueId {
        axes.iter().enumerate().rev().fold(x, |x, (place, axis)| {
            let name = if place == 0 { name } else { reduction.name() };
            self.reduce(reduction, x, *axis, name)
        })
    }

    fn reduce(&mut self, reduction: Reduction, x: ValueId, index: usize, name: &str) -> ValueId {
        let mut ty = self.lowering.ty(x).clone();
        let axis = ty.axes.remove(index);
        let op = Reduce {
            reduction,
            axis,
            index,
            selection: None,
        };
        self.lowering.node(self.builder, op, vec![x], (name, ty))
    }

    /// Over several axes, it is the mean of the variances over the last one, and the variance of its means.
    fn variance(&mut self, x: ValueId, axes: &[usize], name: &str) -> ValueId {
        let (last, others) = match axes {
            [others @ .., last] if !others.is_empty() => (*last, others),
            _ => return self.reduce_all(Reduction::Variance, x, axes, name),
        };
        let [mean, variance] = [Reduction::Mean, Reduction::Variance];
        let of_last = self.reduce(variance, x, last, variance.name());
        let of_last = self.reduce_all(mean, of_last, others, mean.name());
        let means = self.reduce(mean, x, last, mean.name());
        let of_means = self.variance(means, others, variance.name());
        let ty = self.lowering.ty(of_means).clone();
        let sum = Expr::Operand(0).binary(Binary::Add, Expr::Operand(1));
        self.lowering.node(
            self.builder,
            Elementwise::new(sum, 2),
            vec![of_last, of_means],
            (name, ty),
        )
    }
}

/// The node of a sum over these axes, in ascending order.
pub(super) fn sum(
    lowering: &mut Lowering<'_>,
    builder: &mut RegionBuilder,
    x: ValueId,
    axes: &[usize],
    name: &str,
) -> ValueId {
    Nodes { lowering, builder }.reduce_all(Reduction::Sum, x, axes, name)
}

struct Reduce {
    reduction: Reduction,
    /// The axis of the operand, and its index there.
    axis: Axis,
    index: usize,
    /// The numbers that count, if not all do: the second operand.
    selection: Option<Selection>,
}

impl Reduce {
    fn is_sum(&self) -> bool {
        matches!(self.reduction, Reduction::Sum | Reduction::Mean)
    }

    /// `p::loops::Scale { by: .. }`: what a sum or a mean multiplies its terms by.
    fn scale(&self, of: &FusedNode<'_>) -> TokenStream {
        let by = match self.reduction {
            Reduction::Mean => {
                let len = of.len(0, self.index);
                quote!(1.0 / #len as f64)
            }
            _ => quote!(1.0),
        };
        quote!(p::loops::Scale { by: #by })
    }

    fn label(&self) -> String {
        format!("{} {}", self.reduction.name(), self.axis)
    }

    fn counted(&self, of: &FusedNode<'_>) -> TokenStream {
        let selection = self.selection.as_ref();
        let counted = selection.map(|selection| selection.counted(of, self.index));
        counted.unwrap_or(quote!(p::Counted::All))
    }
}

impl Op for Reduce {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: match self.reduction {
                Reduction::Sum | Reduction::Mean => Saved::Nothing,
                Reduction::Variance => Saved::Operands,
                Reduction::Max | Reduction::Min | Reduction::Logsumexp => Saved::OperandsAndResult,
            },
            kept: None,
            fusion: match &self.selection {
                None => Fusion::Reduce {
                    axis: self.index,
                    is_sum: self.is_sum(),
                },
                // A selection knows places in the whole tensor, not in a strip.
                Some(_) => Fusion::None,
            },
        }
    }

    /// A selection has no gradient.
    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        let mut gradients = vec![Gradient::None; operands];
        gradients[0] = Gradient::Computed;
        gradients
    }
}

impl ModelOp for Reduce {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, &self.label())
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let selection = self.selection.as_ref()?;
        selection.check(of, self.reduction.name(), self.index)
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        if let Some(selection) = &self.selection {
            let selected = selection.onnx(of, self.index);
            return Ok(match self.reduction {
                Reduction::Sum => selected.sum(),
                Reduction::Mean => selected.mean(),
                Reduction::Max => selected.extreme("ReduceMax", f64::NEG_INFINITY),
                Reduction::Min => selected.extreme("ReduceMin", f64::INFINITY),
                Reduction::Variance => selected.variance(of),
                Reduction::Logsumexp => {
                    let x = selected.or(f64::NEG_INFINITY);
                    of.logsumexp(x, self.index)
                }
            });
        }
        let x = of.operand(0);
        let axis = self.index as i64;
        Ok(match self.reduction {
            Reduction::Sum => x.reduce("ReduceSum", axis, false),
            Reduction::Mean => x.reduce("ReduceMean", axis, false),
            Reduction::Max => x.reduce("ReduceMax", axis, false),
            Reduction::Min => x.reduce("ReduceMin", axis, false),
            Reduction::Variance => {
                let mean = x.clone().reduce("ReduceMean", axis, true);
                let difference = of.name(x.minus(mean));
                let square = difference.clone().times(difference);
                square.reduce("ReduceMean", axis, false)
            }
            Reduction::Logsumexp => of.logsumexp(x, self.index),
        })
    }
}

impl Emit<ModelFrame<'_>> for Reduce {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let name = self.reduction.name();
        let x = of.operand(0);
        let axis = Literal::isize_unsuffixed(self.index as isize);
        let Some(selection) = &self.selection else {
            let method = format_ident!("{name}");
            return of.define(&quote!(#method(&#x, p::shapes::Axis::<#axis>)));
        };
        let method = format_ident!("{name}_where");
        let [check, selection] = selection.composed(of, name, self.index);
        let line = of.define(&quote!(#method(&#x, p::shapes::Axis::<#axis>, #selection)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let y = to.slice();
        if let Some(terms) = to.terms() {
            let len = of.len(0, self.index);
            let sums =
                quote!(p::compute_here(&#terms, [p::row_sums(#y, p::WriteMode::Overwrite, #len)]));
            let scale = self.scale(of);
            return match self.reduction {
                Reduction::Mean => {
                    quote!(#sums; p::compute_here(&#scale, [p::read(p::InPlace)], [#y.into()]))
                }
                _ => sums,
            };
        }
        let reduction = self.reduction.variant();
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let counted = self.counted(of);
        quote!(p::layers::reduce(#reduction, #x, #axis, #counted, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        if let Some(d_x) = gradients.for_all(0) {
            let scale = self.scale(of);
            let d_y = gradients.slice();
            return quote!(p::compute_here(&#scale, [p::read(#d_y)], [#d_x.as_mut_slice().into()]););
        }
        let reduction = self.reduction.variant();
        let axis = of.axis(0, self.index);
        let counted = self.counted(of);
        let saved = self.properties().saved;
        let x = match saved {
            Saved::Nothing => quote!(&[]),
            _ => of.slice(0),
        };
        let y = match saved {
            Saved::OperandsAndResult => of.slice_of_result(),
            _ => quote!(&[]),
        };
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote! {
            p::layers::reduce_backward(#reduction, #x, (#axis, #counted), #y, #d_y, #(&mut #d_x,)* gradients);
        }
    }
}
