//! The axes of an `einsum` that are the same, and the operations that it is made of.
//!
//! An axis of one operand alone that the result lacks is summed over first. Of several operands, the first two are multiplied, and then
//! the product and the next one: an axis goes away as soon as neither the result nor a later operand has it. A product of two operands
//! that is summed over no axis is `*`, unless both have axes of their own.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;

use super::super::{CallSite, Elementwise, Expand, Permute, reduce};
use super::Einsum;
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::lower::{Lowering, RegionBuilder, names_of_axes};
use crate::model::syntax::first;
use crate::model::types::{Axis, MOST_AXES_OF_TENSOR, Same, Type, ValueKind};
use crate::score::{Binary, Expr};
use crate::spec::text;

pub(super) fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    if !call.arguments.is_given("axes") && call.arguments.complete {
        lowering.error(call.at.span(), messages::EINSUM_WITHOUT_AXES);
    }
    let tokens = call.arguments.tokens("axes")?.clone();
    let types = types(lowering, call)?;
    let mut all = AllAxes::default();
    let operands = call.operands.iter().zip(&types);
    let operands: Option<Vec<Term>> = operands
        .map(|(value, ty)| {
            let axes = all.of_operand(lowering, call, ty)?;
            Some(Term {
                value: *value,
                axes,
            })
        })
        .collect();
    let operands = operands?;
    let result = all.of_result(lowering, call, &tokens, &types)?;
    let mut product = Product {
        lowering,
        builder,
        all: all.axes,
        result,
        at: call.at.span(),
        name: call.result.to_owned(),
    };
    product.of_all(&operands)
}

/// The types of the operands, which must be floats.
fn types(lowering: &Lowering<'_>, call: &CallSite<'_>) -> Option<Vec<Type>> {
    let types = call.operands.iter().map(|id| lowering.ty(*id).clone());
    let types: Vec<Type> = types.collect();
    let other = types.iter().find(|ty| ty.kind != ValueKind::Floats);
    if let Some(other) = other {
        let message = messages::expected_floats(call.operation.name, other);
        lowering.error(call.at.span(), message);
        return None;
    }
    Some(types)
}

/// The axes of all operands, each once.
#[derive(Default)]
struct AllAxes {
    axes: Vec<Axis>,
}

impl AllAxes {
    /// The indices of the axes of an operand. New ones are added.
    fn of_operand(
        &mut self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        ty: &Type,
    ) -> Option<Vec<usize>> {
        let before = Type::floats(self.axes.clone());
        let mut indices = Vec::new();
        for (place, axis) in ty.axes.iter().enumerate() {
            let is_again = ty.candidates(axis) != [place];
            let index = match *before.candidates(axis) {
                _ if is_again => None,
                [] => {
                    self.axes.push(axis.clone());
                    Some(self.axes.len() - 1)
                }
                [index] => Some(index).filter(|index| !indices.contains(index)),
                _ => None,
            };
            let Some(index) = index else {
                let message = messages::axis_of_einsum_twice(axis, ty);
                lowering.error(call.at.span(), message);
                return None;
            };
            self.agree(lowering, call, index, axis)?;
            indices.push(index);
        }
        Some(indices)
    }

    /// An axis has one size. It has its name from the operand that has one.
    fn agree(
        &mut self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        index: usize,
        axis: &Axis,
    ) -> Option<()> {
        let known = &self.axes[index];
        let message = messages::einsum_sizes_differ(known, axis);
        match known.same(axis) {
            Same::Yes => {}
            Same::No => {
                lowering.error(call.at.span(), message);
                return None;
            }
            // Axes of one name have one size: that was checked where an axis got its name.
            Same::If(_) if known.name().is_some() && known.name() == axis.name() => {}
            Same::If(conditions) => lowering.assume(conditions, call.at.span(), message),
        }
        if known.name().is_none() {
            self.axes[index] = axis.clone();
        }
        Some(())
    }

    /// The indices of the axes of the result.
    fn of_result(
        &self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        tokens: &TokenStream,
        operands: &[Type],
    ) -> Option<Vec<usize>> {
        if let Some(TokenTree::Literal(literal)) = tokens.clone().into_iter().next()
            && literal.to_string().starts_with('"')
        {
            let message = messages::einsum_of_text(&text::of(tokens));
            lowering.error(literal.span(), message);
            return None;
        }
        let all = Type::floats(self.axes.clone());
        let mut indices: Vec<usize> = Vec::new();
        for name in names_of_axes(tokens) {
            let at = first(&name);
            let index = match *self.candidates(lowering, &name, &all, operands)? {
                [index] => index,
                [] => {
                    lowering.error(at, messages::no_operand_has_axis(&name, operands));
                    return None;
                }
                _ => {
                    let model = &lowering.item.name;
                    lowering.error(at, messages::ambiguous_axis(&name, &all, model));
                    return None;
                }
            };
            if indices.contains(&index) {
                lowering.error(at, messages::axis_twice(&name));
                return None;
            }
            indices.push(index);
        }
        if indices.len() > MOST_AXES_OF_TENSOR {
            let name = call.operation.name;
            let message = messages::too_many_axes(name, indices.len(), MOST_AXES_OF_TENSOR);
            lowering.error(call.at.span(), message);
            return None;
        }
        Some(indices)
    }

    /// The axes that a name or a size may be.
    fn candidates(
        &self,
        lowering: &mut Lowering<'_>,
        name: &TokenStream,
        all: &Type,
        operands: &[Type],
    ) -> Option<Vec<usize>> {
        let text = syn::parse2::<Ident>(name.clone()).map(|name| name.unraw().to_string());
        if let Ok(text) = text
            && lowering.is_name_of_axis(&text)
            && lowering.size_named(name).is_none()
        {
            // In a block, the axis may have another name where the block is called.
            let meant = lowering.axis_of_name(&text);
            let meant = meant.as_ref().and_then(Axis::name).unwrap_or(&text);
            if all.axes.iter().any(|axis| axis.name() == Some(meant)) {
                return Some(all.candidates(&lowering.named_axis(name, all)?));
            }
            lowering.error(first(name), messages::no_operand_has_axis(name, operands));
            return None;
        }
        Some(all.candidates(&lowering.named_axis(name, all)?))
    }
}

/// A factor with its axes.
struct Term {
    value: ValueId,
    axes: Vec<usize>,
}

/// The operations of a call.
struct Product<'p, 'l> {
    lowering: &'p mut Lowering<'l>,
    builder: &'p mut RegionBuilder,
    all: Vec<Axis>,
    result: Vec<usize>,
    at: Span,
    /// The name of the result.
    name: String,
}

impl Product<'_, '_> {
    fn of_all(&mut self, operands: &[Term]) -> Option<ValueId> {
        let (first, others) = operands.split_first()?;
        if others.is_empty() {
            let result = self.result.clone();
            let sum = self.summed(first, &result);
            return Some(self.in_order(sum, &result));
        }
        let mut left = Term {
            value: first.value,
            axes: first.axes.clone(),
        };
        for (index, right) in others.iter().enumerate() {
            let later = &others[index + 1..];
            let axes = self.axes_of_product(&left, right, later);
            if axes.len() > MOST_AXES_OF_TENSOR {
                let message = messages::too_many_axes("einsum", axes.len(), MOST_AXES_OF_TENSOR);
                self.lowering.error(self.at, message);
                return None;
            }
            let value = self.of_two(&left, right, &axes, later.is_empty());
            left = Term { value, axes };
        }
        Some(left.value)
    }

    /// The axes of the product of two operands, which `later` ones are multiplied by: those that are read. The ones that the next product is
    /// summed over are the last, in its order, so that it reads them as one.
    fn axes_of_product(&self, left: &Term, right: &Term, later: &[Term]) -> Vec<usize> {
        let Some((next, others)) = later.split_first() else {
            return self.result.clone();
        };
        let is_kept = |axis: &usize| {
            self.result.contains(axis) || others.iter().any(|term| term.axes.contains(axis))
        };
        let own = right.axes.iter().filter(|axis| !left.axes.contains(axis));
        let all: Vec<usize> = left.axes.iter().chain(own).copied().collect();
        let kept = all.iter().filter(|axis| is_kept(axis));
        let summed = next.axes.iter();
        let summed = summed.filter(|axis| all.contains(axis) && !is_kept(axis));
        kept.chain(summed).copied().collect()
    }

    fn of_two(&mut self, left: &Term, right: &Term, axes: &[usize], is_last: bool) -> ValueId {
        let read = |other: &Term| [axes, &other.axes].concat();
        let left_read = read(right);
        let right_read = read(left);
        let left = &self.summed(left, &left_read);
        let right = &self.summed(right, &right_read);
        let lacks = |a: &[usize], b: &[usize]| a.iter().any(|axis| !b.contains(axis));
        let has_depth = lacks(&left.axes, axes);
        let is_outer = lacks(&left.axes, &right.axes) && lacks(&right.axes, &left.axes);
        let name = if is_last { &*self.name } else { "einsum" }.to_owned();
        let ty = self.ty(axes);
        if has_depth || is_outer {
            let op = Einsum {
                all: self.all.clone(),
                axes: [left.axes.clone(), right.axes.clone(), axes.to_vec()],
            }
            .of_its_axes();
            let operands = vec![left.value, right.value];
            return self.lowering.node(self.builder, op, operands, (&name, ty));
        }
        let factors = [left, right].map(|term| self.repeated(term, axes));
        let is_square = factors[0] == factors[1];
        let operands = if is_square { &factors[..1] } else { &factors };
        let by = Expr::Operand(operands.len() - 1);
        let product = Expr::Operand(0).binary(Binary::Mul, by);
        let op = Elementwise::new(product, operands.len());
        self.lowering
            .node(self.builder, op, operands.to_vec(), (&name, ty))
    }

    fn ty(&self, axes: &[usize]) -> Type {
        Type::floats(axes.iter().map(|axis| self.all[*axis].clone()).collect())
    }

    /// The sum of a value over the axes that nothing reads.
    fn summed(&mut self, term: &Term, read: &[usize]) -> Term {
        let places = 0..term.axes.len();
        let away: Vec<usize> = places
            .filter(|place| !read.contains(&term.axes[*place]))
            .collect();
        let axes = term
            .axes
            .iter()
            .copied()
            .filter(|axis| read.contains(axis))
            .collect();
        let value = match away.as_slice() {
            [] => term.value,
            away => {
                let name = if axes == self.result {
                    &*self.name
                } else {
                    "sum"
                }
                .to_owned();
                reduce::sum(self.lowering, self.builder, term.value, away, &name)
            }
        };
        Term { value, axes }
    }

    /// The value with its axes in this order.
    fn in_order(&mut self, term: Term, axes: &[usize]) -> ValueId {
        if term.axes == axes {
            return term.value;
        }
        let place = |axis: &usize| term.axes.iter().position(|other| other == axis);
        let order: Vec<usize> = axes.iter().filter_map(place).collect();
        // A size that only rustc knows to be the same is another type.
        let own = &self.lowering.ty(term.value).axes;
        let ty = Type::floats(order.iter().map(|axis| own[*axis].clone()).collect());
        let name = if axes == self.result {
            &*self.name
        } else {
            "permute"
        }
        .to_owned();
        self.lowering.node(
            self.builder,
            Permute::new(order),
            vec![term.value],
            (&name, ty),
        )
    }

    /// The value repeated along the axes of the result that it lacks.
    fn repeated(&mut self, term: &Term, axes: &[usize]) -> ValueId {
        let places = 0..axes.len();
        let places: Vec<usize> = places
            .filter(|place| term.axes.contains(&axes[*place]))
            .collect();
        let own: Vec<usize> = places.iter().map(|place| axes[*place]).collect();
        let value = self.in_order(
            Term {
                value: term.value,
                axes: term.axes.clone(),
            },
            &own,
        );
        if places.len() == axes.len() {
            return self.lowering.memory(value);
        }
        let ty = self.ty(axes);
        self.lowering.node(
            self.builder,
            Expand::new(places),
            vec![value],
            ("expand", ty),
        )
    }
}

impl Einsum {
    /// Without the axes that none of the values has.
    fn of_its_axes(self) -> Self {
        let has = |axis: &usize| self.axes[..2].iter().any(|axes| axes.contains(axis));
        let own: Vec<usize> = (0..self.all.len()).filter(has).collect();
        let place = |axis: &usize| own.iter().position(|other| other == axis);
        Einsum {
            axes: self
                .axes
                .each_ref()
                .map(|axes| axes.iter().filter_map(place).collect()),
            all: own.iter().map(|axis| self.all[*axis].clone()).collect(),
        }
    }
}
