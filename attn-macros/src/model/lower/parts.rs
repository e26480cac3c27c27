//! Parts of values: `x[seq = 0]`, `x[seq = 1..]`, `let (a, b) = split::<axis>(x);`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote;

use super::operators::named;
use super::{Lowering, RegionBuilder};
use crate::messages::{attend as attend_messages, model as messages};
use crate::model::graph::ValueId;
use crate::model::sizes;
use crate::model::syntax::{Call, Expr, Index, NamedParts, Part, first};
use crate::model::types::{Axis, Type};
use crate::ops::{CallSite, Lower, Offset, Operation, Slice};
use crate::spec::{Size, text};

impl Lowering<'_> {
    /// `x[seq = 0, d_model = 1..]`, `table[ids]`
    pub(super) fn index(
        &mut self,
        value: &Expr,
        indices: &[Index],
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let text = value.text();
        let Some(mut value) = self.floats(value, "[..]", builder) else {
            self.read_indices(indices, builder);
            return None;
        };
        for (number, index) in indices.iter().enumerate() {
            let result = match number + 1 == indices.len() {
                true => named(name, "part"),
                false => "part".to_owned(),
            };
            let axis = self.axis_of_index(value, index, &indices[..number])?;
            value = match self.ids_of_index(index, builder)? {
                Some(ids) => self.gather(value, axis, index, ids, (&text, &result), builder)?,
                None => {
                    let ty = self.ty(value).clone();
                    let slice = self.slice(index, axis, &ty)?;
                    self.slice_node(slice, value, &result, builder)
                }
            };
        }
        Some(value)
    }

    /// After a mistake in the value: its indices are read all the same.
    fn read_indices(&mut self, indices: &[Index], builder: &mut RegionBuilder) {
        for index in indices {
            match &index.part {
                Part::Of(ids) => self.read_all([ids], builder),
                Part::At(at) => sizes::names(at).iter().for_each(|name| {
                    self.scopes.read(name);
                }),
                Part::Range(_) | Part::List(_) => {}
            }
        }
    }

    /// The index of the axis that is named, and was not before. Without a name it is the first one.
    fn axis_of_index(&mut self, value: ValueId, index: &Index, before: &[Index]) -> Option<usize> {
        let ty = self.ty(value).clone();
        let Some(axis) = &index.axis else {
            if ty.axes.is_empty() {
                let message = messages::no_first_axis(&index.entry, &ty);
                self.error(first(&index.entry), message);
                return None;
            }
            return Some(0);
        };
        let text = axis.to_string();
        let mut before = before.iter().filter_map(|before| before.axis.as_ref());
        if before.any(|before| before.to_string() == text) {
            self.error(first(axis), messages::axis_twice(axis));
            return None;
        }
        self.index_of_axis(axis, &ty)
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
            Some(len) => ty.axes[slice.index] = len.clone(),
            None => {
                ty.axes.remove(slice.index);
            }
        }
        self.node(builder, slice, vec![value], (name, ty))
    }

    fn slice(&mut self, index: &Index, place: usize, ty: &Type) -> Option<Slice> {
        let axis = ty.axes[place].clone();
        let Some(name) = &index.axis else {
            self.cx
                .error(&index.entry, messages::expected_part(&index.entry));
            return None;
        };
        let (start, len) = match &index.part {
            Part::At(at) => (self.at(at, &axis, name)?, None),
            Part::Range(range) => {
                let (start, len) = self.range(range, &axis, name)?;
                (start, Some(len))
            }
            Part::Of(_) | Part::List(_) => return None,
        };
        Some(Slice {
            axis,
            index: place,
            start,
            len,
        })
    }

    /// One index, which the axis must have.
    pub(super) fn at(
        &mut self,
        at: &TokenStream,
        axis: &Axis,
        name: &TokenStream,
    ) -> Option<Offset> {
        let offset = self.offset(at)?;
        let message = || messages::no_such_index(at, name, axis.size());
        if let Offset::FromEnd(before) = &offset {
            let is_there = self.at_least_one(before, first(at), message());
            is_there.then_some(())?;
        }
        if let Axis::Size(size) = axis {
            let least = match &offset {
                Offset::FromStart(start) => start.plus(&Size::known(1)),
                Offset::FromEnd(before) => before.clone(),
            };
            self.within(&least, size, first(at), message)?;
        }
        Some(offset)
    }

    /// The first index of a range, and the axis that it is: a constant, or an axis of which another one consists.
    fn range(
        &mut self,
        sides: &[Option<TokenStream>; 2],
        axis: &Axis,
        name: &TokenStream,
    ) -> Option<(Offset, Axis)> {
        let [start, end] = sides;
        let text = range_text(sides);
        let at = start.as_ref().or(end.as_ref()).map_or(first(name), first);
        let mut read = |side: &Option<TokenStream>, missing: Offset| match side {
            None => Some(missing),
            Some(tokens) => self.offset(tokens),
        };
        let nothing = Size::known(0);
        let start = read(start, Offset::FromStart(nothing.clone()));
        let end = read(end, Offset::FromEnd(nothing));
        let (start, from, to) = match (axis, start?, end?) {
            (Axis::Size(size), start, end) => {
                let start = self.counted_from_start(start, size, at, &text, name)?;
                let end = self.counted_from_start(end, size, at, &text, name)?;
                (Offset::FromStart(start.clone()), start, end)
            }
            (_, Offset::FromStart(from), Offset::FromStart(to)) => {
                (Offset::FromStart(from.clone()), from, to)
            }
            (_, Offset::FromEnd(from), Offset::FromEnd(to)) => {
                // Counted from the end, the first index is the larger number.
                (Offset::FromEnd(from.clone()), to, from)
            }
            (_, Offset::FromStart(from), Offset::FromEnd(before)) => {
                let rest = self.length(axis).minus(&from.plus(&before));
                let rest = rest.and_then(|length| self.axis_of_length(&length));
                if rest.is_none() {
                    self.error(at, messages::range_of_any_length(&text, name));
                }
                return Some((Offset::FromStart(from), rest?));
            }
            _ => {
                self.error(at, messages::range_of_any_length(&text, name));
                return None;
            }
        };
        let least = from.plus(&Size::known(1));
        self.within(&least, &to, at, || messages::empty_range(&text, name))?;
        Some((start, Axis::Size(to.minus(&from))))
    }

    /// The place of an offset in an axis of a constant size, which reaches so far.
    fn counted_from_start(
        &mut self,
        offset: Offset,
        size: &Size,
        at: Span,
        range: &str,
        name: &TokenStream,
    ) -> Option<Size> {
        let (Offset::FromStart(reach) | Offset::FromEnd(reach)) = &offset;
        self.within(reach, size, at, || {
            messages::range_beyond(range, name, size)
        })?;
        Some(match offset {
            Offset::FromStart(place) => place,
            Offset::FromEnd(before) => size.minus(&before),
        })
    }

    /// `2`, `-1`
    pub(crate) fn offset(&mut self, tokens: &TokenStream) -> Option<Offset> {
        let mut rest = tokens.clone().into_iter();
        let (is_from_end, number) = match rest.next() {
            Some(TokenTree::Punct(sign)) if sign.as_char() == '-' => (true, rest.collect()),
            _ => (false, tokens.clone()),
        };
        if !self.is_size(&number) {
            self.cx.error(tokens, messages::expected_index(tokens));
            return None;
        }
        let number = self.size(&number, "index")?;
        Some(match is_from_end {
            true => Offset::FromEnd(number),
            false => Offset::FromStart(number),
        })
    }

    /// Whether one size is at most another one; if that is for rustc to find out, the rule is noted.
    pub(crate) fn within(
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

    /// `let (a, b) = split::<axis>(x);`, `let (a, b) = block(x);`: a value for each name.
    pub(super) fn parts(
        &mut self,
        (names, of): (&[Ident], Option<&NamedParts>),
        value: &Expr,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        if let Expr::Call(call) = value
            && let Some(block) = self.block(&call.name)
        {
            return self.parts_of_block(call, block, (names, of), builder);
        }
        let Some((call, operation)) = parts_of(value) else {
            let before = self.cx.count();
            self.read_all([value], builder);
            if self.cx.count() == before {
                self.error(value.span(), messages::EXPECTED_PARTS);
            }
            return None;
        };
        if of.is_some() {
            self.read_all(&call.operands, builder);
            let message = messages::results_have_no_names(&call.name);
            self.cx.error(&call.name, message);
            return None;
        }
        let arguments = self.arguments(call, operation);
        let lower = match &operation.lower {
            Lower::Parts(lower) => *lower,
            Lower::Attention(lower) if (2..=3).contains(&names.len()) => {
                return lower(self, call, arguments, names, builder);
            }
            _ => {
                let message = attend_messages::names(&call.name, names.len());
                self.cx.error(&call.name, message);
                let named = call.named.iter().flat_map(|(_, values)| values);
                self.read_all(call.operands.iter().chain(named), builder);
                return None;
            }
        };
        let operands = self.operands(call, operation, &(1..=1), builder)?;
        let call = CallSite {
            operation,
            at: &call.name,
            arguments: &arguments,
            operands,
            result: operation.name,
        };
        lower.lower(self, names, &call, builder)
    }

    /// Equal parts of an axis.
    pub(crate) fn split(
        &mut self,
        names: &[Ident],
        call: &CallSite<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        let ty = self.floats_of(call)?;
        let axis = self.axis_or_last(call, &ty)?;
        let Axis::Size(size) = ty.axes[axis].clone() else {
            let message = messages::split_of_any_length(&ty.axes[axis], &self.item.name);
            self.error(call.at.span(), message);
            return None;
        };
        let parts = Size::known(names.len() as u64);
        let message = messages::uneven_split(&size, names.len());
        match size.value {
            Some(size) if size % names.len() as u64 != 0 => {
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
                len: Some(Axis::Size(len.clone())),
            };
            self.slice_node(slice, call.operands[0], &named(Some(name), ""), builder)
        });
        Some(values.collect())
    }
}

/// The operation that is called, if it has several results.
fn parts_of(value: &Expr) -> Option<(&Call, &'static Operation)> {
    let Expr::Call(call) = value else { return None };
    let operation = Operation::find(&call.name.to_string())?;
    let has_several = matches!(operation.lower, Lower::Parts(_) | Lower::Attention(_));
    has_several.then_some((call, operation))
}

/// `1..-1`
fn range_text(sides: &[Option<TokenStream>; 2]) -> String {
    let [start, end] = sides
        .each_ref()
        .map(|side| side.as_ref().map(text::of).unwrap_or_default());
    format!("{start}..{end}")
}
