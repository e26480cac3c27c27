//! `rearrange`: the axes of a value are split, put in another order and merged.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;

use super::pattern::{Entry, Pattern, parse};
use super::{Lowering, is_name_of_constant, not_none};
use crate::messages::model as messages;
use crate::model::lengths::Length;
use crate::model::sizes::LARGEST_PRODUCT;
use crate::model::syntax::first;
use crate::model::types::{Axis, MOST_AXES, Same, Type};
use crate::ops::CallSite;
use crate::spec::Size;

/// Axes that were split, their new order, and the axes of the result.
pub(crate) struct Rearranged {
    /// The operand with its axes split. Axes of size 1 may be left out.
    pub(crate) split: Vec<Axis>,
    /// For each of these in the result, which one it is.
    pub(crate) order: Vec<usize>,
    pub(crate) axes: Vec<Axis>,
    /// The axes of any length that are split, with the product of the sizes that divide them.
    pub(crate) multiples: Vec<(Axis, Size)>,
}

/// An axis in a pattern.
pub(super) enum Part {
    Known(Axis),
    /// A name that means nothing so far.
    New(Ident),
}

impl Lowering<'_> {
    /// The axes of the result of a call of `rearrange`.
    pub(crate) fn rearranged(
        &mut self,
        call: &CallSite<'_>,
        tokens: &TokenStream,
        x: &Type,
    ) -> Option<Rearranged> {
        let Pattern { from, to } = match parse(tokens) {
            Ok(pattern) => pattern,
            Err(error) => {
                self.cx.push(error);
                return None;
            }
        };
        let mut multiples = Vec::new();
        let split = match &from {
            None => x.axes.clone(),
            Some(entries) => self.split_axes(call, entries, x, &mut multiples)?,
        };
        let atoms = Type::floats(split.clone());
        let mut used: Vec<usize> = Vec::new();
        let mut axes = Vec::new();
        for entry in &to {
            axes.push(self.merged(entry, &atoms, &mut used)?);
        }
        let lost = |(index, axis): &(usize, &Axis)| !used.contains(index) && !axis.is_one();
        if let Some((_, axis)) = split.iter().enumerate().find(lost) {
            self.error(call.at.span(), messages::axis_lost(axis, &atoms));
            return None;
        }
        let is_same = from.is_none_or(|from| from.iter().all(|entry| !entry.is_group))
            && to.iter().all(|entry| !entry.is_group)
            && used.len() == x.axes.len()
            && used.is_sorted()
            && axes.len() == used.len();
        if is_same {
            let message = messages::same_order(call.operation.name, x);
            self.error(call.at.span(), message);
            return None;
        }
        self.has_few_axes(call, &axes)?;
        let mut kept = used.clone();
        kept.sort_unstable();
        let place = |index: &usize| kept.iter().position(|kept| kept == index);
        Some(Rearranged {
            order: used.iter().filter_map(place).collect(),
            split: kept.iter().map(|index| split[*index].clone()).collect(),
            axes,
            multiples,
        })
    }

    /// A value has four axes at most.
    pub(crate) fn has_few_axes(&self, call: &CallSite<'_>, axes: &[Axis]) -> Option<()> {
        if axes.len() > MOST_AXES {
            let ty = Type::floats(axes.to_vec());
            self.error(call.at.span(), messages::more_than_four_axes(call.at, &ty));
            return None;
        }
        Some(())
    }

    /// The axes of a value as they are written, each perhaps as several.
    fn split_axes(
        &mut self,
        call: &CallSite<'_>,
        entries: &[Entry],
        x: &Type,
        multiples: &mut Vec<(Axis, Size)>,
    ) -> Option<Vec<Axis>> {
        if entries.len() != x.axes.len() {
            let message = messages::axes_of_pattern(entries.len(), x);
            self.error(call.at.span(), message);
            return None;
        }
        let mut split = Vec::new();
        for (entry, axis) in entries.iter().zip(&x.axes) {
            let named = entry.name.as_ref();
            if let Some(name) = named.filter(|name| axis.name() != Some(&name.unraw().to_string()))
            {
                self.error(name.span(), messages::another_axis(&quote!(#name), axis, x));
                return None;
            }
            match entry.is_group {
                true => split.extend(self.parts_of_axis(entry, axis, multiples)?),
                false => split.push(self.same_axis(&entry.parts[0], axis, x)?),
            }
        }
        let names: Vec<_> = split.iter().map(Axis::name).collect();
        let twice = (1..names.len())
            .find(|index| names[*index].is_some() && names[..*index].contains(&names[*index]));
        if let Some(name) = twice.and_then(|index| names[index]) {
            let name = name.parse().unwrap_or_default();
            self.error(call.at.span(), messages::axis_twice(&name));
            return None;
        }
        Some(split)
    }

    /// An axis under the name that is written in its place.
    fn same_axis(&mut self, tokens: &TokenStream, axis: &Axis, x: &Type) -> Option<Axis> {
        let found = match self.axis_part(tokens)? {
            Part::Known(found) => found,
            Part::New(name) => match axis.clone() {
                Axis::Size(size) if size.axis.is_none() => {
                    Axis::Size(size.called(&name.unraw().to_string()))
                }
                _ if axis.name() == Some(&name.unraw().to_string()) => return Some(axis.clone()),
                _ => {
                    self.error(first(tokens), messages::another_axis(tokens, axis, x));
                    return None;
                }
            },
        };
        let message = || messages::another_axis(tokens, axis, x);
        match found.same(axis) {
            _ if found.is_another(axis) => {
                self.error(first(tokens), message());
                return None;
            }
            Same::Yes => {}
            Same::No => {
                self.error(first(tokens), message());
                return None;
            }
            Same::If(conditions) => self.assume(conditions, first(tokens), message()),
        }
        Some(match axis.name() {
            Some(_) => axis.clone(),
            None => found,
        })
    }

    /// `(heads, d_head)` in the place of an axis.
    fn parts_of_axis(
        &mut self,
        entry: &Entry,
        axis: &Axis,
        multiples: &mut Vec<(Axis, Size)>,
    ) -> Option<Vec<Axis>> {
        let parts = entry.parts.iter().map(|part| self.axis_part(part));
        let parts: Vec<Part> = parts.collect::<Option<_>>()?;
        let is_new = |part: &&Part| matches!(part, Part::New(_));
        let new: Vec<_> = parts.iter().filter(is_new).collect();
        if let [_, second, ..] = new.as_slice() {
            if let Part::New(name) = second {
                let message = messages::second_unknown_part(name, axis, &self.item.name);
                self.error(name.span(), message);
            }
            return None;
        }
        let known = parts.iter().filter_map(|part| match part {
            Part::Known(axis) => Some(axis.clone()),
            Part::New(_) => None,
        });
        let known: Vec<Axis> = known.collect();
        let sizes: Option<Vec<&Size>> = known.iter().map(Axis::size).collect();
        let product = sizes.map(|sizes| sizes.into_iter().fold(Size::known(1), |a, b| a.times(b)));
        let rest = match (new.first(), axis, product) {
            (Some(Part::New(name)), Axis::Size(total), Some(product)) => {
                let rest = self.quotient(total, &product, entry.at)?;
                Some(self.make_axis(name, &Length::Constant(rest))?)
            }
            (Some(Part::New(name)), Axis::Symbol(_), Some(product)) => {
                let message = messages::zero_part(axis);
                self.at_least_one(&product, entry.at, message)
                    .then_some(())?;
                let length = Length::quotient(self.length(axis), &product);
                multiples.push((axis.clone(), product));
                Some(self.make_axis(name, &length)?)
            }
            (None, Axis::Size(total), Some(product)) => {
                let message = messages::uneven_parts(total, &known);
                self.equal(total, &product, entry.at, message)
                    .then_some(())?;
                None
            }
            (None, Axis::Symbol(_), _) if self.merged_length(&known) == self.length(axis) => None,
            _ => {
                let message = messages::unknown_parts(axis, &entry.parts);
                self.error(entry.at, message);
                return None;
            }
        };
        let parts = parts.into_iter().map(|part| match part {
            Part::Known(axis) => Some(axis),
            Part::New(_) => rest.clone(),
        });
        parts.collect()
    }

    /// The size of a part, where the others have this product.
    fn quotient(&mut self, total: &Size, product: &Size, at: Span) -> Option<Size> {
        let message = messages::indivisible(total, product);
        match (total.value, product.value) {
            (Some(total), Some(product)) if total.checked_rem(product) != Some(0) => {
                self.error(at, message);
                return None;
            }
            (Some(_), Some(_)) => {}
            _ => {
                let conditions = vec![quote!(#product >= 1), quote!(#total % #product == 0)];
                self.assume(conditions, at, message);
            }
        }
        Some(total.over(product, self.krate))
    }

    /// An axis of the result: one of the others, several of them as one, or a new one of size 1.
    fn merged(&mut self, entry: &Entry, atoms: &Type, used: &mut Vec<usize>) -> Option<Axis> {
        let mut axes = Vec::new();
        for tokens in &entry.parts {
            let is_one = tokens.to_string() == "1";
            let place = match is_one {
                true => (0..atoms.axes.len()).find(|index| {
                    let axis = &atoms.axes[*index];
                    axis.is_one() && axis.name().is_none() && !used.contains(index)
                }),
                false => Some(self.index_of_axis(tokens, atoms)?),
            };
            let Some(place) = place else {
                axes.push(Axis::Size(Size::known(1)));
                continue;
            };
            if used.contains(&place) {
                self.error(first(tokens), messages::axis_twice(tokens));
                return None;
            }
            used.push(place);
            let axis = &atoms.axes[place];
            axes.push(match (axis.name(), self.axis_part(tokens)?) {
                (None, Part::Known(named)) => named,
                _ => axis.clone(),
            });
        }
        if !entry.is_group {
            return axes.pop();
        }
        let length = self.merged_length(&axes);
        if let Length::Constant(size) = &length {
            let mut sizes = axes.iter().filter_map(Axis::size);
            let is_known = sizes.all(|size| size.value.is_some());
            let fits = size.value.is_some_and(|size| size <= LARGEST_PRODUCT);
            if is_known && !fits {
                let of = Type::floats(axes.clone()).to_string();
                self.error(entry.at, messages::merged_too_large(&of));
                return None;
            }
        }
        if let Some(name) = &entry.name {
            return self.make_axis(name, &length);
        }
        let mut larger = axes.iter().filter(|axis| !axis.is_one());
        if let (Some(axis), None) = (larger.next(), larger.next()) {
            return Some(axis.clone());
        }
        let axis = self.axis_of_length(&length);
        if axis.is_none() {
            self.error(
                entry.at,
                messages::merged_without_name(&length, &entry.parts),
            );
        }
        axis
    }

    fn merged_length(&self, axes: &[Axis]) -> Length {
        let sizes: Option<Vec<&Size>> = axes.iter().map(Axis::size).collect();
        match sizes {
            Some(sizes) => {
                let product = sizes.into_iter().fold(Size::known(1), |a, b| a.times(b));
                Length::Constant(product)
            }
            None => Length::product(axes.iter().map(|axis| self.length(axis))),
        }
    }

    /// The tokens in the place of an axis.
    pub(super) fn axis_part(&mut self, tokens: &TokenStream) -> Option<Part> {
        if let Ok(name) = syn::parse2::<Ident>(tokens.clone()).and_then(not_none) {
            let text = name.unraw().to_string();
            let is_new = !self.sizes.has(&name) && self.axis_of_name(&text).is_none();
            if is_new && !is_name_of_constant(&text) {
                return Some(Part::New(name));
            }
        }
        self.axis(tokens).map(Part::Known)
    }
}
