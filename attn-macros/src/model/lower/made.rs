//! Axes of any length that operations make of others: `concat::<all>(..)`, `rows = (batch, seq)`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;
use syn::ext::IdentExt;

use super::Lowering;
use super::axes::one_group;
use super::rearrange::Part;
use crate::messages::model as messages;
use crate::model::lengths::{Length, MadeAxis};
use crate::model::syntax::{Call, Statement, TypeDraft, first, for_each_call};
use crate::model::types::{Axis, Type};
use crate::ops::CallSite;
use crate::spec::{Size, split_at_commas};

impl Lowering<'_> {
    /// Whether an axis of any length is called so.
    pub(super) fn is_symbol(&self, name: &str) -> bool {
        let mut made = self.made.iter();
        self.symbols.iter().any(|symbol| symbol == name) || made.any(|axis| axis.name == name)
    }

    /// How long an axis is, by the axes of the inputs.
    pub(crate) fn length(&self, axis: &Axis) -> Length {
        let mut made = self.made.iter();
        let found = made.find(|made| axis.name() == Some(&made.name));
        found.map_or_else(|| Length::from(axis), |made| made.length.clone())
    }

    /// The axis that is known to be so long.
    pub(crate) fn axis_of_length(&self, length: &Length) -> Option<Axis> {
        if let Length::Constant(size) = length {
            return Some(Axis::Size(size.clone()));
        }
        let symbols = self.symbols.iter().cloned();
        let mut all = symbols.chain(self.made.iter().map(|made| made.name.clone()));
        let name = all.find(|name| self.length(&Axis::Symbol(name.clone())) == *length);
        name.map(Axis::Symbol)
    }

    /// The axis of this length, under a name of its own if there is none.
    pub(crate) fn unnamed_axis(&mut self, length: &Length) -> Axis {
        self.axis_of_length(length).unwrap_or_else(|| {
            let mut names = (1..).map(|number| format!("axis_{number}"));
            let is_free = |name: &String| {
                let is_size = self.sizes.names().any(|size| size == *name);
                !is_size && !self.is_symbol(name)
            };
            let name = names.find(is_free).unwrap_or_default();
            let length = length.clone();
            self.made.push(MadeAxis {
                name: name.clone(),
                length,
            });
            Axis::Symbol(name)
        })
    }

    /// The axis with this name, of this length. One that is not known is made here.
    pub(crate) fn make_axis(&mut self, name: &Ident, length: &Length) -> Option<Axis> {
        let text = name.unraw().to_string();
        if self.sizes.has(name) || matches!(length, Length::Constant(_)) {
            return self.constant_axis(name, length);
        }
        let axis = Axis::Symbol(text.clone());
        if self.is_symbol(&text) {
            let known = self.length(&axis);
            if known != *length {
                self.cx
                    .error(name, messages::axis_of_another_length(name, &known, length));
                return None;
            }
            return Some(axis);
        }
        self.made.push(MadeAxis {
            name: text,
            length: length.clone(),
        });
        Some(axis)
    }

    /// The axis that an operation makes of another one, under the name of its key `to`.
    pub(crate) fn resized(
        &mut self,
        call: &CallSite<'_>,
        axis: &Axis,
        length: &Length,
    ) -> Option<Axis> {
        if let Some(tokens) = call.arguments.tokens("to") {
            let Ok(name) = syn::parse2::<Ident>(tokens.clone()) else {
                self.error(first(tokens), messages::expected_new_name(tokens));
                return None;
            };
            return self.make_axis(&name, length);
        }
        if !call.arguments.complete {
            return None;
        }
        let found = self.axis_of_length(length);
        if found.is_none() {
            let message = messages::axis_without_name(call.operation.name, axis, length);
            self.error(call.at.span(), message);
        }
        found
    }

    /// The number of windows in an axis of a constant size, into which one fits.
    pub(crate) fn count_of_windows(&self, len: &Size, size: &Size, step: &Size) -> Size {
        let known = len.value.zip(size.value).zip(step.value);
        let value = known.and_then(|((len, size), step)| {
            let rest = len.checked_sub(size)?;
            rest.checked_div(step).map(|windows| windows + 1)
        });
        let krate = self.krate;
        Size::derive(
            value,
            quote!(#krate::__private::layers::count_windows(#len, #size, #step)),
            format!("({len} - {size}) / {step} + 1"),
        )
    }

    /// The axis that `axes` have beside those of an operand, of which there are so many, and its index.
    pub(crate) fn new_axis(
        &mut self,
        axes: &TokenStream,
        operand: &Type,
        count: usize,
    ) -> Option<(usize, Axis)> {
        let entries = one_group(axes).map(|group| split_at_commas(group.stream()));
        let Some(entries) = entries.filter(|all| all.len() == operand.axes.len() + 1) else {
            let message = messages::stacked_axes(axes, operand, count);
            self.error(first(axes), message);
            return None;
        };
        let parts = entries.iter().map(|tokens| self.axis_part(tokens));
        let parts: Vec<Part> = parts.collect::<Option<_>>()?;
        let is_axis = |(part, axis): (&Part, &Axis)| match part {
            Part::New(name) => axis.name() == Some(&name.unraw().to_string()),
            Part::Known(known) => !Type::floats(vec![axis.clone()])
                .candidates(known)
                .is_empty(),
        };
        let is_new = |place: &usize| {
            let others = parts[..*place].iter().chain(&parts[place + 1..]);
            others.zip(&operand.axes).all(is_axis)
        };
        let places: Vec<usize> = (0..parts.len()).filter(is_new).collect();
        let [place] = *places else {
            let message = match places.first() {
                None => messages::stacked_axes(axes, operand, count),
                Some(place) => messages::ambiguous_axis(&entries[*place], operand, &self.item.name),
            };
            self.error(first(axes), message);
            return None;
        };
        let number = Size::known(count as u64);
        let at = first(&entries[place]);
        let axis = match &parts[place] {
            Part::New(name) => self.make_axis(name, &Length::Constant(number))?,
            Part::Known(Axis::Size(size)) => {
                let axis = Axis::Size(size.clone());
                let message = messages::stacked_number(count, &axis);
                self.equal(size, &number, at, message).then_some(axis)?
            }
            Part::Known(axis) => {
                self.error(at, messages::stacked_number(count, axis));
                return None;
            }
        };
        Some((place, axis))
    }

    /// An axis of a constant size under a name: that of a size of the header, or a new one.
    fn constant_axis(&mut self, name: &Ident, length: &Length) -> Option<Axis> {
        let Length::Constant(size) = length else {
            self.cx.error(
                name,
                messages::size_for_any_length(name, length, &self.item.name),
            );
            return None;
        };
        let text = name.unraw().to_string();
        if !self.sizes.has(name) {
            if self.is_symbol(&text) {
                let known = self.length(&Axis::Symbol(text));
                self.cx
                    .error(name, messages::axis_of_another_length(name, &known, length));
                return None;
            }
            return Some(Axis::Size(size.clone().called(&text)));
        }
        let declared = self.sizes.get(name)?;
        let message = messages::axis_of_another_size(name, &declared, size);
        self.equal(&declared, size, name.span(), message)
            .then_some(Axis::Size(declared))
    }

    /// Whether a result has an axis that is none of the inputs, and that an operation names.
    pub(super) fn has_made_axis(&self, ty: &TypeDraft, statements: &[Statement]) -> bool {
        let mut axes = ty.axes.iter();
        axes.any(|axis| {
            let Ok(name) = syn::parse2::<Ident>(axis.clone()) else {
                return false;
            };
            let mut is_named = false;
            for_each_call(statements, &mut |call: &Call| {
                let mut values = call.arguments.iter().map(|argument| &argument.value);
                is_named |= values.any(|value| mentions(value, &name));
            });
            let is_known = self.sizes.has(&name) || self.is_symbol(&name.unraw().to_string());
            is_named && !is_known && !super::is_name_of_constant(&name.to_string())
        })
    }
}

/// Whether a name stands among tokens.
fn mentions(tokens: &TokenStream, name: &Ident) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(other) => other == *name,
        TokenTree::Group(group) => mentions(&group.stream(), name),
        _ => false,
    })
}
