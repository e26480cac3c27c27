//! Axes of any length that operations make of others: `concat::<all>(..)`, `rows = (batch, seq)`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;
use syn::ext::IdentExt;

use super::Lowering;
use super::axes::one_group;
use super::rearrange::Part;
use crate::messages::model as messages;
use crate::model::lengths::{Length, MadeAxis};
use crate::model::syntax::{Statement, TypeDraft, calls, first};
use crate::model::types::{Axis, Symbol, Type};
use crate::ops::CallSite;
use crate::spec::{Size, split_at_commas};

impl Lowering<'_> {
    /// How long an axis is, by the axes of the inputs.
    pub(crate) fn length(&self, axis: &Axis) -> Length {
        let Axis::Symbol(symbol) = axis else {
            return Length::from(axis);
        };
        let mut made = self.made.iter();
        let found = made.find(|made| made.name == symbol.length);
        found.map_or_else(|| Length::from(axis), |made| made.length.clone())
    }

    /// Whether an axis is known to be so long.
    fn has_length(&self, axis: &Axis, length: &Length) -> bool {
        match (axis, length) {
            (Axis::Size(own), Length::Constant(size)) => {
                own.value.is_some() && own.value == size.value
            }
            _ => self.length(axis) == *length,
        }
    }

    /// The axis that is known to be so long.
    pub(crate) fn axis_of_length(&self, length: &Length) -> Option<Axis> {
        if let Length::Constant(size) = length {
            return Some(Axis::Size(size.clone()));
        }
        // The names that hold here come first.
        let here = self.axes.iter().map(|(_, symbol)| symbol.clone());
        let made = self.made.iter().map(|made| &made.name);
        let all = self.symbols.iter().chain(made);
        let all = here.chain(all.map(|name| Symbol::of_inputs(name)));
        let mut axes = all.map(Axis::Symbol);
        axes.find(|axis| self.length(axis) == *length)
    }

    /// The text about the lengths of two axes in the same place, if both are of any length and an operation made one of them.
    pub(crate) fn lengths_differ(&self, left: &Type, right: &Type) -> Option<String> {
        let is_made = |axis: &Symbol| self.made.iter().any(|made| made.name == axis.length);
        if left.axes.len() != right.axes.len() {
            return None;
        }
        let mut pairs = left.axes.iter().zip(&right.axes);
        let (made, other) = pairs.find_map(|pair| match pair {
            (Axis::Symbol(a), Axis::Symbol(b)) if a.length == b.length => None,
            (Axis::Symbol(a), Axis::Symbol(b)) if is_made(b) => Some((b, a)),
            (Axis::Symbol(a), Axis::Symbol(b)) if is_made(a) => Some((a, b)),
            _ => None,
        })?;
        let [of_made, of_other] =
            [made, other].map(|axis| self.length(&Axis::Symbol(axis.clone())));
        Some(messages::lengths_differ(
            (made.name.as_str(), &of_made),
            (other.name.as_str(), &of_other),
            is_made(other),
        ))
    }

    /// The axis of this length, under a name of its own if there is none.
    pub(crate) fn unnamed_axis(&mut self, length: &Length) -> Axis {
        self.axis_of_length(length).unwrap_or_else(|| {
            let mut names = (1..).map(|number| format!("axis_{number}"));
            let is_free = |name: &String| {
                let is_size = self.sizes.names().any(|size| size == *name);
                !is_size && self.axis_of_name(name).is_none()
            };
            let name = names.find(is_free).unwrap_or_default();
            self.made_axis(&name, length)
        })
    }

    /// A new axis of this name. In a block the name is that of one call, so the model may have others of the same name.
    fn made_axis(&mut self, name: &str, length: &Length) -> Axis {
        let is_taken = |name: &String| {
            self.symbols.contains(name) || self.made.iter().any(|made| made.name == *name)
        };
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let unique = names.find(|name| !is_taken(name)).unwrap_or_default();
        self.made.push(MadeAxis {
            name: unique.clone(),
            length: length.clone(),
        });
        let symbol = Symbol {
            length: unique,
            name: name.to_owned(),
        };
        self.axes.push((name.to_owned(), symbol.clone()));
        Axis::Symbol(symbol)
    }

    /// The axis with this name, of this length. One that is not known is made here.
    pub(crate) fn make_axis(&mut self, name: &Ident, length: &Length) -> Option<Axis> {
        let text = name.unraw().to_string();
        if self.sizes.has(name) || matches!(length, Length::Constant(_)) {
            return self.constant_axis(name, length);
        }
        if let Some(axis) = self.axis_of_name(&text) {
            let known = self.length(&axis);
            if known != *length {
                self.cx
                    .error(name, messages::axis_of_another_length(name, &known, length));
                return None;
            }
            // From here on it is known that nothing is left over.
            if let (Axis::Symbol(symbol), true) = (&axis, length.is_exact()) {
                let mut made = self.made.iter_mut();
                if let Some(made) = made.find(|made| made.name == symbol.length) {
                    made.length = length.clone();
                }
            }
            return Some(axis);
        }
        Some(self.made_axis(&text, length))
    }

    /// The axis that an operation makes of another one, under the name of its key `to`.
    pub(crate) fn resized(
        &mut self,
        call: &CallSite<'_>,
        axis: &Axis,
        length: &Length,
    ) -> Option<Axis> {
        self.resized_to(call, axis, length, call.arguments.tokens("to"))
    }

    /// The same with the name that the key has for this axis.
    pub(crate) fn resized_to(
        &mut self,
        call: &CallSite<'_>,
        axis: &Axis,
        length: &Length,
        to: Option<&TokenStream>,
    ) -> Option<Axis> {
        if let Some(tokens) = to {
            let Ok(name) = syn::parse2::<Ident>(tokens.clone()) else {
                self.error(first(tokens), messages::expected_new_name(tokens));
                return None;
            };
            return self.make_axis(&name, length);
        }
        if !call.arguments.complete {
            return None;
        }
        // An axis that keeps its length keeps its name, which tells it apart from others that are as long.
        if self.has_length(axis, length) {
            return Some(axis.clone());
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

    /// The length of an axis in which so many windows lie, of which the numbers at its ends are left out.
    pub(crate) fn length_of_windows(
        &self,
        count: &Size,
        reach: &Size,
        stride: &Size,
        cut: &Size,
    ) -> Size {
        let known = (count.value.zip(reach.value)).zip(stride.value.zip(cut.value));
        let value = known.and_then(|((count, reach), (stride, cut))| {
            let len = count.checked_mul(stride)?.checked_add(reach)?;
            Some(len.saturating_sub(stride.saturating_add(cut)))
        });
        let krate = self.krate;
        Size::derive(
            value,
            quote!(#krate::__private::layers::length_of_windows(#count, #reach, #stride, #cut)),
            format!("({count} - 1) * {stride} + {reach} - {cut}"),
        )
    }

    /// The least number of windows of which something is left.
    pub(crate) fn least_windows(&self, reach: &Size, stride: &Size, cut: &Size) -> Size {
        let known = reach.value.zip(stride.value).zip(cut.value);
        let value = known.and_then(|((reach, stride), cut)| {
            let missing = stride.saturating_add(cut).saturating_sub(reach);
            (stride > 0).then(|| missing.div_ceil(stride))
        });
        let krate = self.krate;
        Size::derive(
            value,
            quote!(#krate::__private::layers::least_windows(#reach, #stride, #cut)),
            format!("({stride} + {cut} - {reach}) / {stride}"),
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
            if let Some(axis) = self.axis_of_name(&text) {
                let known = self.length(&axis);
                self.cx
                    .error(name, messages::axis_of_another_length(name, &known, length));
                return None;
            }
            return Some(Axis::Size(size.clone().called(&text)));
        }
        let declared = self.size_of_header(name)?;
        let message = messages::axis_of_another_size(name, &declared, size);
        self.equal(&declared, size, name.span(), message)
            .then_some(Axis::Size(declared))
    }

    /// The declared results, unless one of them has an axis that the statements make.
    pub(super) fn declared_before(
        &mut self,
        results: Option<&[TypeDraft]>,
        statements: &[Statement],
    ) -> Option<Vec<Option<Type>>> {
        let is_late = |ty: &TypeDraft| self.has_made_axis(ty, statements);
        let late = results?.iter().any(is_late);
        (!late).then(|| self.declared_results(results))?
    }

    pub(super) fn declared_results(
        &mut self,
        results: Option<&[TypeDraft]>,
    ) -> Option<Vec<Option<Type>>> {
        let results = results?.iter().map(|ty| self.declared_result(ty));
        Some(results.collect())
    }

    /// Whether a result has an axis that is none of the inputs, and that an operation names.
    fn has_made_axis(&self, ty: &TypeDraft, statements: &[Statement]) -> bool {
        let mut axes = ty.axes.iter();
        axes.any(|axis| {
            let Ok(name) = syn::parse2::<Ident>(axis.clone()) else {
                return false;
            };
            let arguments = calls(statements)
                .into_iter()
                .flat_map(|call| &call.arguments);
            let mut values = arguments.map(|argument| &argument.value);
            let is_known =
                self.sizes.has(&name) || self.axis_of_name(&name.unraw().to_string()).is_some();
            let is_new = !is_known && !super::is_name_of_constant(&name.to_string());
            is_new && values.any(|value| mentions(value, &name))
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
