//! The second operand of reductions and of `softmax`: which numbers along the axis count.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::arange::Arange;
use super::{CallSite, Float, Permute};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, FusedNode};
use crate::model::graph::ValueId;
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Type, ValueKind};
use crate::onnx::{OnnxNode, Term, call};
use crate::score::Expr;
use crate::spec::Real;

/// Lengths or marks, with axes up to the one that is read.
pub(super) struct Selection {
    kind: ValueKind,
    /// For each axis of the lengths or marks, the one of the first operand that it is.
    own: Vec<usize>,
}

/// A value whose axis stands behind those that select its numbers.
pub(super) struct Selected {
    pub(super) value: ValueId,
    pub(super) selection: Selection,
    pub(super) order: Order,
}

/// An order of axes.
pub(super) struct Order {
    /// For each axis, which one it was before.
    axes: Vec<usize>,
    /// The axis that is read.
    pub(super) index: usize,
}

impl Selected {
    /// The first operand of a call with two, along one axis of it.
    pub(super) fn lower(
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        index: usize,
        builder: &mut RegionBuilder,
    ) -> Option<Selected> {
        let [x, selection] = *call.operands else {
            return None;
        };
        let ty = lowering.ty(x).clone();
        let found = lowering.ty(selection).clone();
        let places = places(&ty, index, &found);
        let Some(places) = places else {
            differs(lowering, call, &ty, index, &found);
            return None;
        };
        let comes_before =
            |axis: &usize| *axis != index && (*axis < index || places.contains(axis));
        let all = 0..ty.axes.len();
        let mut order: Vec<usize> = all.clone().filter(|axis| comes_before(axis)).collect();
        order.push(index);
        order.extend(all.filter(|axis| *axis != index && !comes_before(axis)));
        let value = permuted(lowering, x, &order, "permute", builder);
        let now = |axis: usize| order.iter().position(|before| *before == axis);
        Some(Selected {
            value,
            selection: Selection {
                kind: found.kind,
                own: places.into_iter().map(now).collect::<Option<_>>()?,
            },
            order: Order {
                index: now(index)?,
                axes: order,
            },
        })
    }
}

/// The first operand of a call, with `otherwise` in the place of numbers along an axis that the second operand, if there is one, leaves
/// out.
pub(super) fn masked(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    index: usize,
    otherwise: f64,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let [x, selection] = *call.operands else {
        return call.operands.first().copied();
    };
    let ty = lowering.ty(x).clone();
    let found = lowering.ty(selection).clone();
    if places(&ty, index, &found).is_none() {
        differs(lowering, call, &ty, index, &found);
        return None;
    }
    let (values, counts) = match found.kind {
        ValueKind::Bools => {
            let marks = Float::node(lowering, builder, selection, "float");
            let zero = Expr::Float(Real::known(0.0));
            (vec![x, marks], !Expr::Operand(1).equals(zero))
        }
        _ => {
            let axis = ty.axes[index].clone();
            let of = (call.operation.name, axis.clone());
            let lens = Float::of_lengths(lowering, builder, selection, of);
            let places = Arange::node(lowering, builder, axis, "arange");
            let places = Float::node(lowering, builder, places, "float");
            (
                vec![x, places, lens],
                Expr::Operand(1).less(Expr::Operand(2)),
            )
        }
    };
    let otherwise = Expr::Float(Real::known(otherwise));
    let expr = counts.select(Expr::Operand(0), otherwise);
    Some(lowering.elementwise(expr, &values, ("select", ty), builder))
}

fn differs(lowering: &Lowering<'_>, call: &CallSite<'_>, ty: &Type, index: usize, found: &Type) {
    let [lens, marks] = accepted(ty, index);
    let message = messages::selection_differs(call.operation, &lens, &marks, found);
    lowering.error(call.at.span(), message);
}

impl Order {
    /// Whether the axes are those of the operand in their order.
    pub(super) fn is_in_order(&self) -> bool {
        self.axes.is_sorted()
    }

    /// The result with all axes, in the order of the operand.
    pub(super) fn back(
        &self,
        lowering: &mut Lowering<'_>,
        result: ValueId,
        name: &str,
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let mut inverse = vec![0; self.axes.len()];
        for (now, before) in self.axes.iter().enumerate() {
            inverse[*before] = now;
        }
        permuted(lowering, result, &inverse, name, builder)
    }

    /// The result without the axis, in the order of the operand.
    pub(super) fn back_without(
        &self,
        lowering: &mut Lowering<'_>,
        result: ValueId,
        name: &str,
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let axis = self.axes[self.index];
        let others: Vec<usize> = self.axes.iter().copied().filter(|of| *of != axis).collect();
        let mut sorted = others.clone();
        sorted.sort_unstable();
        let places = sorted
            .iter()
            .map(|axis| others.iter().position(|of| of == axis));
        let order: Vec<usize> = places.map(Option::unwrap_or_default).collect();
        permuted(lowering, result, &order, name, builder)
    }
}

/// The value with its axes in this order.
fn permuted(
    lowering: &mut Lowering<'_>,
    value: ValueId,
    order: &[usize],
    name: &str,
    builder: &mut RegionBuilder,
) -> ValueId {
    if order.is_sorted() {
        return value;
    }
    let ty = lowering.ty(value).clone();
    let axes = order.iter().map(|axis| ty.axes[*axis].clone()).collect();
    let result = (name, Type::floats(axes));
    lowering.node(builder, Permute::new(order.to_vec()), vec![value], result)
}

/// The axes of `x` that lengths or marks have. Lengths count along the axis, and marks have it.
fn places(x: &Type, index: usize, found: &Type) -> Option<Vec<usize>> {
    let places = x.places(found)?;
    let has_axis = places.contains(&index);
    let fits = match found.kind {
        ValueKind::Lens => !has_axis,
        ValueKind::Bools => has_axis,
        ValueKind::Floats | ValueKind::Ids => false,
    };
    fits.then_some(places)
}

/// The types that are accepted, for a message: all axes before the one that is read.
fn accepted(x: &Type, index: usize) -> [Type; 2] {
    [
        Type::new(ValueKind::Lens, &x.axes[..index]),
        Type::new(ValueKind::Bools, &x.axes[..=index]),
    ]
}

/// The numbers that count along an axis, in ONNX.
pub(super) struct Counted {
    x: Term,
    /// Whether a number counts, with an axis for each of `x`.
    pub(super) is_counted: Term,
    axis: i64,
}

impl Counted {
    /// The numbers, with another one in place of those that do not count.
    pub(super) fn or(&self, otherwise: f64) -> Term {
        let otherwise = Term::number(otherwise);
        self.x
            .clone()
            .where_else(self.is_counted.clone(), otherwise)
    }

    /// How many count, or 1 if none does.
    fn count(&self, keeps: bool) -> Term {
        let marks = self.is_counted.clone().cast("E");
        let count = marks.reduce("ReduceSum", self.axis, keeps);
        call("Max", [count, Term::number(1.0)])
    }

    pub(super) fn sum(&self) -> Term {
        self.or(0.0).reduce("ReduceSum", self.axis, false)
    }

    pub(super) fn mean(&self) -> Term {
        self.sum().over(self.count(false))
    }

    pub(super) fn variance(&self, of: &mut OnnxNode<'_, '_>) -> Term {
        let sum = self.or(0.0).reduce("ReduceSum", self.axis, true);
        let difference = self.x.clone().minus(sum.over(self.count(true)));
        let zero = Term::number(0.0);
        let difference = of.name(difference.where_else(self.is_counted.clone(), zero));
        let square = difference.clone().times(difference);
        square
            .reduce("ReduceSum", self.axis, false)
            .over(self.count(false))
    }

    /// The maximum or the minimum: 0 if no number counts.
    pub(super) fn extreme(&self, op: &str, of_none: f64) -> Term {
        let found = self.or(of_none).reduce(op, self.axis, false);
        let marks = self.is_counted.clone().cast("E");
        let any = marks.reduce("ReduceMax", self.axis, false).cast("BOOL");
        found.where_else(any, Term::number(0.0))
    }
}

impl Selection {
    pub(super) fn new(kind: ValueKind, own: Vec<usize>) -> Self {
        Selection { kind, own }
    }

    /// The numbers of the first operand that count along this axis, by the second operand.
    pub(super) fn onnx(&self, of: &mut OnnxNode<'_, '_>, index: usize) -> Counted {
        let x = of.operand_type(0);
        let rank = x.axes.len();
        let selection = of.operand(1).at_axes(&self.own, rank);
        let is_counted = match self.kind {
            ValueKind::Bools => selection,
            _ => {
                let behind: Vec<usize> = (1..rank - index).collect();
                let places = of.indices(&x.axes[index]).unsqueeze(&behind);
                call("Less", [places, selection])
            }
        };
        Counted {
            x: of.operand(0),
            is_counted: of.name(is_counted),
            axis: index as i64,
        }
    }

    /// `p::Selection::of_lengths(&lens, &[batch], &[0])`
    fn emit(&self, values: &TokenStream, sizes: &[TokenStream], index: usize) -> TokenStream {
        let own = self.own.iter().map(|axis| Literal::usize_unsuffixed(*axis));
        let own = quote!(&[#(#own),*]);
        match self.kind {
            ValueKind::Bools => {
                let sizes = &sizes[..=index];
                quote!(p::Selection::of_marks(#values, &[#(#sizes),*], #own))
            }
            _ => {
                let sizes = &sizes[..index];
                quote!(p::Selection::of_lengths(#values, &[#(#sizes),*], #own))
            }
        }
    }

    /// The numbers that a kernel reads.
    pub(super) fn counted(&self, of: &FusedNode<'_>, index: usize) -> TokenStream {
        let values = match self.kind {
            ValueKind::Bools => {
                let marks = of.input(1);
                quote!(&call.inputs.#marks)
            }
            _ => of.ids(1),
        };
        let selection = self.emit(&values, &of.sizes(0), index);
        quote!(#selection.counted())
    }

    /// The argument of an operation of the composed form, with the line that checks it.
    pub(super) fn composed(
        &self,
        of: &ComposedNode<'_>,
        name: &str,
        index: usize,
    ) -> [TokenStream; 2] {
        let operand = of.operand(1);
        let axes = &of.operand_type(0).axes;
        let sizes: Vec<_> = axes.iter().map(|axis| of.size(axis)).collect();
        let selection = self.emit(&quote!(&p::values(&#operand)), &sizes, index);
        let len = &sizes[index];
        let check = (self.kind == ValueKind::Lens)
            .then(|| quote!(p::Ids::read(&#operand).check_lengths(#name, #len)?;));
        [quote!(#check), selection]
    }

    /// Lengths are those of the axis at most.
    pub(super) fn check(
        &self,
        of: &FusedNode<'_>,
        name: &str,
        index: usize,
    ) -> Option<TokenStream> {
        let is_lens = self.kind == ValueKind::Lens;
        is_lens.then(|| {
            let len = &of.sizes(0)[index];
            let lens = of.input(1);
            quote!(call.inputs.#lens.check_lengths(#name, #len)?;)
        })
    }
}
