//! Axes by name: those that a call names, and those of two values that are combined.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;

use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::sizes::ConstValue;
use crate::model::syntax::{TypeDraft, first, is_leading};
use crate::model::types::{Axis, Same, Type, ValueKind};
use crate::ops::{CallSite, Expand, Permute};
use crate::spec::{Size, split_at_commas};

impl Lowering<'_> {
    /// The indices of the axes that the key `axis` names, in the order in which they are written. In a block `..` are those that it stands
    /// for in its operands, which may be none. `None` after a mistake.
    pub(crate) fn axes_of(&mut self, call: &CallSite<'_>, ty: &Type) -> Option<Vec<usize>> {
        let tokens = call.arguments.tokens("axis")?.clone();
        let names = names_of_axes(&tokens);
        if names.is_empty() {
            self.error(first(&tokens), messages::NO_AXIS_NAMED);
        }
        let mut indices: Vec<usize> = Vec::new();
        for name in &names {
            for index in self.indices_named(name, ty)? {
                if indices.contains(&index) {
                    self.error(first(name), messages::axis_twice(name));
                    return None;
                }
                indices.push(index);
            }
        }
        (!names.is_empty()).then_some(indices)
    }

    /// The index of the axis with this name, or those of the axes that `..` stands for.
    fn indices_named(&mut self, name: &TokenStream, ty: &Type) -> Option<Vec<usize>> {
        if !is_leading(name) {
            return self.index_of_axis(name, ty).map(|index| vec![index]);
        }
        let Some(leading) = self.leading.clone() else {
            let message = self.leading_axes_elsewhere();
            self.error(first(name), message);
            return None;
        };
        let indices = leading.iter().map(|axis| match *ty.candidates(axis) {
            [index] => Some(index),
            _ => None,
        });
        let indices: Option<Vec<usize>> = indices.collect();
        if indices.is_none() {
            let message = messages::lacks_leading_axes(&Type::floats(leading), ty);
            self.error(first(name), message);
        }
        indices
    }

    /// The same for an operation that needs axes.
    pub(crate) fn required_axes(&mut self, call: &CallSite<'_>, ty: &Type) -> Option<Vec<usize>> {
        if !call.arguments.is_given("axis") && call.arguments.complete {
            self.cx
                .error(call.at, messages::missing_key_of(call.at, "axis"));
        }
        self.axes_of(call, ty)
    }

    /// The axis that the key `axis` names, be it one of a value or not.
    pub(crate) fn axis_of_call(&mut self, call: &CallSite<'_>) -> Option<Axis> {
        let Some(tokens) = call.arguments.tokens("axis").cloned() else {
            if !call.arguments.is_given("axis") && call.arguments.complete {
                self.cx
                    .error(call.at, messages::missing_key_of(call.at, "axis"));
            }
            return None;
        };
        self.axis(&tokens)
    }

    /// The axes that a key names, of a result.
    pub(crate) fn result_of_call(&mut self, call: &CallSite<'_>, key: &str) -> Option<Type> {
        let Some(tokens) = call.arguments.tokens(key).cloned() else {
            if !call.arguments.is_given(key) && call.arguments.complete {
                self.cx
                    .error(call.at, messages::missing_key_of(call.at, key));
            }
            return None;
        };
        let axes = match one_group(&tokens) {
            Some(group) => split_at_commas(group.stream()),
            None => vec![tokens.clone()],
        };
        self.declared_type(&TypeDraft {
            kind: None,
            axes,
            span: first(&tokens),
        })
    }

    /// The same for an operation along one axis: without the key, the last one.
    pub(crate) fn axis_or_last(&mut self, call: &CallSite<'_>, ty: &Type) -> Option<usize> {
        if !call.arguments.is_given("axis") {
            let last = ty.axes.len().checked_sub(1);
            if last.is_none() {
                self.takes(call.at, "a value with axes", ty);
            }
            return last;
        }
        let axes = self.axes_of(call, ty)?;
        match *axes {
            [axis] => Some(axis),
            _ => {
                let message = messages::along_one_axis(call.at, axes.len());
                self.cx.error(call.at, message);
                None
            }
        }
    }

    /// The index of the axis of `ty` with this name, or of this size.
    pub(crate) fn index_of_axis(&mut self, tokens: &TokenStream, ty: &Type) -> Option<usize> {
        let axis = self.named_axis(tokens, ty)?;
        match *ty.candidates(&axis) {
            [index] => Some(index),
            [] => {
                let message = match self.axis_of_steps() {
                    Some(steps) if steps.name() == axis.name() => messages::axis_of_the_scan(steps),
                    _ => messages::no_such_axis(tokens, ty),
                };
                self.error(first(tokens), message);
                None
            }
            _ => {
                let message = messages::ambiguous_axis(tokens, ty, &self.item.name);
                self.error(first(tokens), message);
                None
            }
        }
    }

    /// The size of the header that `tokens` name.
    pub(crate) fn size_named(&self, tokens: &TokenStream) -> Option<Size> {
        let name = syn::parse2::<Ident>(tokens.clone()).ok()?;
        match self.sizes.get(&name)? {
            ConstValue::Size(size) => Some(size),
            _ => None,
        }
    }

    pub(crate) fn named_axis(&mut self, tokens: &TokenStream, ty: &Type) -> Option<Axis> {
        if let Ok(name) = syn::parse2::<Ident>(tokens.clone())
            && !self.sizes.has(&name)
        {
            let text = name.unraw().to_string();
            if let Some(axis) = self.axis_of_name(&text) {
                return Some(axis);
            }
            // `rearrange` gives names to parts of an axis, too.
            let mut axes = ty.axes.iter();
            if let Some(axis) = axes.find(|axis| axis.name() == Some(&*text)) {
                return Some(axis.clone());
            }
            if !super::is_name_of_constant(&text) {
                if self.knows_axes {
                    self.error(name.span(), messages::no_such_axis(tokens, ty));
                }
                return None;
            }
        }
        self.axis(tokens)
    }

    /// The type of all values, of which there is one at least: that of the one with the most axes. If they differ, that is reported.
    pub(crate) fn common_of(&mut self, values: &[ValueId], at: Span, what: &str) -> Option<Type> {
        // One with the most axes first: two others may share none of them.
        let mut types: Vec<Type> = values.iter().map(|value| self.ty(*value).clone()).collect();
        types.sort_by_key(|ty| std::cmp::Reverse(ty.axes.len()));
        let mut types = types.into_iter();
        let mut ty = types.next()?;
        if ty.kind != ValueKind::Floats {
            self.error(at, messages::expected_floats(what, &ty));
            return None;
        }
        for other in types {
            let lengths = self.lengths_differ(&ty, &other);
            let differ = messages::operands_differ(what, &ty, &other, lengths);
            ty = self.common([&ty, &other], at, &differ)?;
        }
        Some(ty)
    }

    /// The same of two types. Axes are the same by their names, or else by their places, the last ones of the type with more axes; then
    /// one of size 1 is repeated. `differ` is the message if they are not.
    pub(crate) fn common(
        &mut self,
        [left, right]: [&Type; 2],
        at: Span,
        differ: &str,
    ) -> Option<Type> {
        let is_floats = |ty: &Type| ty.kind == ValueKind::Floats;
        if !is_floats(left) || !is_floats(right) {
            self.error(at, differ);
            return None;
        }
        let [larger, smaller] = match left.axes.len() < right.axes.len() {
            true => [right, left],
            false => [left, right],
        };
        let places = larger.places_or_last(smaller);
        let mut axes = larger.axes.clone();
        let mut conditions = Vec::new();
        for (axis, place) in smaller.axes.iter().zip(places) {
            let of = &larger.axes[place];
            let is_whole = larger.axes.len() == smaller.axes.len();
            axes[place] = match of.same(axis) {
                // Two names are two axes, whatever their sizes.
                _ if !is_whole && of.is_another(axis) => {
                    self.error(at, differ);
                    return None;
                }
                // The one with a name, if there is one.
                Same::Yes if of.name().is_none() => axis.clone(),
                Same::Yes => of.clone(),
                // A size that only rustc knows may be 1, too. Then the two are equal.
                _ if of.is_one() && is_whole => axis.clone(),
                _ if axis.is_one() && is_whole => of.clone(),
                Same::No => {
                    self.error(at, differ);
                    return None;
                }
                Same::If(more) => {
                    conditions.extend(more);
                    match of.name() {
                        None => axis.clone(),
                        Some(_) => of.clone(),
                    }
                }
            };
        }
        if !conditions.is_empty() {
            self.assume(conditions, at, differ.to_owned());
        }
        Some(Type::floats(axes))
    }

    /// The value with the axes of `ty` in their order, repeated along those that it does not have or of which it has one of size 1.
    pub(crate) fn expanded(
        &mut self,
        value: ValueId,
        ty: &Type,
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let from = self.ty(value).clone();
        let places = ty.places_or_last(&from);
        if !places.is_sorted() {
            let ordered = self.in_order(value, &places, builder);
            return self.expanded(ordered, ty, builder);
        }
        let grows = from.axes.len() < ty.axes.len();
        let is_repeated =
            |(from, place): (&Axis, &usize)| from.is_one() && !ty.axes[*place].is_one();
        if !grows && !from.axes.iter().zip(&places).any(is_repeated) {
            return value;
        }
        self.node(
            builder,
            Expand::new(places),
            vec![value],
            ("expand", ty.clone()),
        )
    }

    /// The value with its axes in the order of their places.
    pub(crate) fn in_order(
        &mut self,
        value: ValueId,
        places: &[usize],
        builder: &mut RegionBuilder,
    ) -> ValueId {
        let from = self.ty(value).clone();
        let mut axes: Vec<usize> = (0..places.len()).collect();
        axes.sort_by_key(|axis| places[*axis]);
        let ty = axes.iter().map(|axis| from.axes[*axis].clone());
        let ty = Type::floats(ty.collect());
        self.node(builder, Permute::new(axes), vec![value], ("permute", ty))
    }
}

/// The axes in brackets, or the one without.
pub(crate) fn names_of_axes(tokens: &TokenStream) -> Vec<TokenStream> {
    match one_group(tokens) {
        Some(group) => split_at_commas(group.stream()),
        None => vec![tokens.clone()],
    }
}

/// The axes in brackets.
pub(super) fn one_group(tokens: &TokenStream) -> Option<Group> {
    let mut tokens = tokens.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None)
            if group.delimiter() == proc_macro2::Delimiter::Bracket =>
        {
            Some(group)
        }
        _ => None,
    }
}
