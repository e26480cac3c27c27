//! Parts of values: `x[seq = 0]`, `x[seq = 1..]`, `let (a, b) = split::<axis>(x);`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote;

use super::operators::named;
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::syntax::{Call, Expr, Index, Part, first};
use crate::model::types::{Axis, Type};
use crate::ops::{CallSite, Lower, Offset, Operation, Slice};
use crate::spec::Size;

impl Lowering<'_> {
    /// `x[seq = 0, d_model = 1..]`
    pub(super) fn index(
        &mut self,
        value: &Expr,
        indices: &[Index],
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let mut value = self.floats(value, "[..]", builder)?;
        for (number, index) in indices.iter().enumerate() {
            let ty = self.ty(value).clone();
            let axis = self.index_of_axis(&index.axis, &ty)?;
            let slice = self.slice(index, axis, &ty)?;
            let result = match number + 1 == indices.len() {
                true => named(name, "part"),
                false => "part".to_owned(),
            };
            value = self.slice_node(slice, value, &result, builder);
        }
        Some(value)
    }

    fn slice_node(
        &mut self,
        slice: Slice,
        value: ValueId,
        name: &str,
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let mut ty = self.ty(value).clone();
        match &slice.len {
            Some(len) => ty.axes[slice.index] = Axis::Size(len.clone()),
            None => {
                ty.axes.remove(slice.index);
            }
        }
        self.node(builder, slice, vec![value], (name, ty))
    }

    fn slice(&mut self, index: &Index, axis: usize, ty: &Type) -> Option<Slice> {
        let axis_type = ty.axes[axis].clone();
        let (start, len) = match &index.part {
            Part::At(at) => (self.offset(at)?, None),
            Part::Range(range) => {
                let (start, len) = self.range(range, &axis_type, &index.axis)?;
                (start, Some(len))
            }
        };
        if let (Axis::Size(size), Part::At(at)) = (&axis_type, &index.part) {
            let (before, at) = (&start, at);
            let least = match before {
                Offset::FromStart(start) => start.plus(&Size::known(1)),
                Offset::FromEnd(before) => before.clone(),
            };
            self.within(&least, size, first(at), || {
                messages::no_such_index(at, &index.axis, size)
            })?;
        }
        if let Offset::FromEnd(before) = &start {
            let message = messages::behind_the_end(&index.axis);
            self.at_least_one(before, first(&index.axis), message)
                .then_some(())?;
        }
        Some(Slice {
            axis: axis_type,
            index: axis,
            start,
            len,
        })
    }

    /// The first index of a range, and how many it has. Both must be constants.
    fn range(
        &mut self,
        [start, end]: &[Option<TokenStream>; 2],
        axis: &Axis,
        name: &TokenStream,
    ) -> Option<(Offset, Size)> {
        let read = |lowering: &mut Self, side: &Option<TokenStream>| match side {
            None => Some(None),
            Some(tokens) => lowering.offset(tokens).map(Some),
        };
        let first_index = read(self, start)?.unwrap_or(Offset::FromStart(Size::known(0)));
        let end_index = read(self, end)?.unwrap_or(Offset::FromEnd(Size::known(0)));
        let at = start.as_ref().or(end.as_ref()).map_or(first(name), first);
        let (start, from, to) = match (axis, first_index, end_index) {
            (Axis::Size(size), start, end) => {
                let place = |offset: Offset| match offset {
                    Offset::FromStart(index) => index,
                    Offset::FromEnd(before) => size.minus(&before),
                };
                let is_before = |offset: &Offset| match offset {
                    Offset::FromStart(_) => None,
                    Offset::FromEnd(before) => Some(before.clone()),
                };
                for before in [is_before(&start), is_before(&end)].into_iter().flatten() {
                    self.within(&before, size, at, || messages::empty_range(name, size))?;
                }
                let [start, end] = [start, end].map(place);
                self.within(&end, size, at, || messages::empty_range(name, size))?;
                (Offset::FromStart(start.clone()), start, end)
            }
            (_, Offset::FromStart(from), Offset::FromStart(to)) => {
                (Offset::FromStart(from.clone()), from, to)
            }
            (_, Offset::FromEnd(from), Offset::FromEnd(to)) => {
                // Counted from the end, the first index is the larger number.
                (Offset::FromEnd(from.clone()), to, from)
            }
            _ => {
                self.error(at, messages::range_of_any_length(name));
                return None;
            }
        };
        self.within(&from, &to, at, || messages::upside_down(name))?;
        Some((start, to.minus(&from)))
    }

    /// `2`, `-1`
    fn offset(&mut self, tokens: &TokenStream) -> Option<Offset> {
        let mut rest = tokens.clone().into_iter();
        match rest.next() {
            Some(TokenTree::Punct(sign)) if sign.as_char() == '-' => {
                self.size(&rest.collect(), "an index").map(Offset::FromEnd)
            }
            _ => self.size(tokens, "an index").map(Offset::FromStart),
        }
    }

    /// Whether one size is at most another one; if that is for rustc to find out, the rule is noted.
    fn within(
        &mut self,
        size: &Size,
        most: &Size,
        at: Span,
        message: impl Fn() -> String,
    ) -> Option<()> {
        match (size.value, most.value) {
            (Some(size), Some(most)) if size > most => {
                self.error(at, message());
                return None;
            }
            (Some(_), Some(_)) => {}
            _ if size == most => {}
            _ => self.assume(vec![quote!(#size <= #most)], at, message()),
        }
        Some(())
    }

    /// `let (a, b) = split::<axis>(x);`: a value for each name.
    pub(super) fn split(
        &mut self,
        names: &[Ident],
        value: &Expr,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let call = match value {
            Expr::Call(call) if parts_of(call).is_some() => call,
            other => {
                self.error(other.span(), messages::SEVERAL_VARIABLES);
                self.read_all([other], builder);
                return None;
            }
        };
        let operation = parts_of(call)?;
        let arguments = self.arguments(call, operation);
        let operands = self.operands(call, operation, &(1..=1), builder)?;
        let call = CallSite {
            operation,
            at: &call.name,
            arguments: &arguments,
            operands,
            result: operation.name,
        };
        let ty = self.floats_of(&call)?;
        let axis = self.axis_or_last(&call, &ty)?;
        let Axis::Size(size) = ty.axes[axis].clone() else {
            let message = messages::split_of_any_length(&ty.axes[axis], &self.item.name);
            self.error(call.at.span(), message);
            return None;
        };
        let parts = Size::known(names.len() as u64);
        let message = messages::uneven_split(&size, names.len());
        match size.value {
            Some(size) if names.is_empty() || size % names.len() as u64 != 0 => {
                self.error(call.at.span(), message);
                return None;
            }
            Some(_) => {}
            None => self.assume(vec![quote!(#size % #parts == 0)], call.at.span(), message),
        }
        let len = size.over(&parts, self.krate);
        let values = names.iter().enumerate().map(|(number, name)| {
            let slice = Slice {
                axis: ty.axes[axis].clone(),
                index: axis,
                start: Offset::FromStart(Size::known(number as u64).times(&len)),
                len: Some(len.clone()),
            };
            self.slice_node(slice, call.operands[0], &named(Some(name), ""), builder)
        });
        Some(values.collect())
    }
}

/// The operation that is called, if it has several results.
fn parts_of(call: &Call) -> Option<&'static Operation> {
    let operation = Operation::find(&call.name.to_string())?;
    matches!(operation.lower, Lower::Parts).then_some(operation)
}
