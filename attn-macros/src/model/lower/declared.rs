//! What a header and a signature declare: types, axes, sizes, the bound on the memory.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;

use super::function::LoweredFunction;
use super::{Lowering, NONE, not_none};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::model::budget::{self, Budget, Budgets};
use crate::model::sizes::{self, ConstValue, LARGEST_SIZE};
use crate::model::syntax::{BudgetDraft, SizeDraft, TypeDraft, is_leading, is_name_of_constant};
use crate::model::types::{Axis, MOST_AXES, Type, ValueKind};
use crate::ops::Operation;
use crate::spec::Size;

impl Lowering<'_> {
    pub(crate) fn declared_type(&mut self, draft: &TypeDraft) -> Option<Type> {
        let kind = self.kind(draft)?;
        let (has_leading, axes) = draft.behind_leading();
        let axes: Option<Vec<Axis>> = axes.iter().map(|axis| self.axis(axis)).collect();
        let axes = axes?;
        if has_leading {
            let Some(leading) = self.leading.clone() else {
                self.wrong_axis(&draft.axes[0]);
                return None;
            };
            let axes = leading.into_iter().chain(axes).collect();
            return Some(Type { kind, axes });
        }
        let (least, most) = match kind {
            ValueKind::Floats => (0, MOST_AXES),
            ValueKind::Ids | ValueKind::Bools => (1, MOST_AXES),
            ValueKind::Lens => (1, 2),
        };
        if !(least..=most).contains(&axes.len()) {
            let message = messages::number_of_axes(kind, axes.len(), least, most);
            self.cx.push(syn::Error::new(draft.span, message));
            return None;
        }
        Some(Type { kind, axes })
    }

    pub(super) fn declared_result(&mut self, draft: &TypeDraft) -> Option<Type> {
        let ty = self.declared_type(draft)?;
        if ty.kind != ValueKind::Floats {
            let message = messages::result_of_indices(&self.current(), &ty);
            self.cx.error(&draft.kind, message);
            return None;
        }
        Some(ty)
    }

    /// A size of the header, a constant, or a name of the inputs.
    pub(super) fn axis(&mut self, tokens: &TokenStream) -> Option<Axis> {
        if let Ok(name) = syn::parse2::<Ident>(tokens.clone()).and_then(not_none) {
            if self.sizes.has(&name) {
                return self.size_of_header(&name).map(Axis::Size);
            }
            let text = name.unraw().to_string();
            if let Some(axis) = self.axis_of_name(&text) {
                return Some(axis);
            }
            if !is_name_of_constant(&text) {
                if self.knows_axes {
                    let sizes: Vec<_> = self.sizes.names().collect();
                    let axes: Vec<_> = self.axes.iter().map(|(name, _)| name.clone()).collect();
                    let of = if self.calls.is_empty() {
                        "input"
                    } else {
                        "operand"
                    };
                    let message = messages::unknown_axis(&name, of, &axes, &sizes);
                    self.cx.error(&name, message);
                }
                return None;
            }
        }
        if !self.is_size(tokens) {
            self.wrong_axis(tokens);
            return None;
        }
        self.size(tokens, "axis").map(Axis::Size)
    }

    /// The size of the header with this name, which is that of a constant.
    pub(super) fn size_of_header(&self, name: &Ident) -> Option<Size> {
        match self.sizes.get(name)? {
            ConstValue::Size(size) => {
                let is_too_large = self.is_too_large(&size, &name.to_token_stream(), "");
                (!is_too_large).then_some(size)
            }
            value => {
                self.cx.error(name, messages::no_size(name, &value));
                None
            }
        }
    }

    /// Whether a constant can be a size at all.
    pub(super) fn is_size(&self, tokens: &TokenStream) -> bool {
        let quiet = Diagnostics::default();
        if tokens.to_string() == NONE {
            return false;
        }
        !self.sizes.is_sound(tokens)
            || crate::spec::parse_size(&self.sizes.substitute(tokens), "", &quiet).is_some()
    }

    /// Once for the inputs and the result, where an axis has the same mistake.
    pub(super) fn wrong_axis(&mut self, tokens: &TokenStream) {
        let text = tokens.to_string();
        if !self.wrong_axes.contains(&text) {
            let message = match is_leading(tokens) {
                true => self.leading_axes_elsewhere(),
                false => messages::no_axis(tokens),
            };
            self.cx.error(tokens, message);
            self.wrong_axes.push(text);
        }
        self.knows_axes = false;
    }

    /// The bound on the memory.
    pub(super) fn budget(&mut self, draft: &BudgetDraft) -> Option<Budget> {
        let axes = draft.axes.iter().map(|SizeDraft { name, value }| {
            let size = self.whole_number(value, &name.unraw().to_string())?;
            Some((name.clone(), size))
        });
        let axes = axes.collect::<Option<Vec<_>>>();
        Some(Budget {
            amount: self.whole_number(&draft.amount, "memory")?,
            unit: draft.unit,
            axes: axes?,
            text: draft.text(),
            key: draft.key.clone(),
        })
    }

    pub(super) fn report_budgets(&self, budgets: &Budgets, functions: &[LoweredFunction]) {
        if let Some(budget) = budgets.all().next().filter(|_| !self.opaques.is_empty()) {
            self.cx.error(&budget.key, messages::MEMORY_OF_MODULE);
            return;
        }
        let called = functions
            .iter()
            .filter(|function| !function.inputs.is_empty());
        if let Some(budget) = &budgets.of_model {
            let symbols = called.clone().map(|function| &*function.symbols);
            budget::check(budget, symbols, self.cx);
        }
        for (name, budget) in &budgets.of_functions {
            let own = called.clone().filter(|function| *name == function.name());
            budget::check(budget, own.map(|function| &*function.symbols), self.cx);
        }
    }

    /// A constant that is a size.
    pub(super) fn size(&mut self, tokens: &TokenStream, what: &str) -> Option<Size> {
        let size = self.whole_number(tokens, what)?;
        (!self.is_too_large(&size, tokens, what)).then_some(size)
    }

    /// Reports a size that no tensor has: of a constant of the header once, where its value is.
    pub(super) fn is_too_large(&self, size: &Size, written: &TokenStream, what: &str) -> bool {
        let is_too_large = match size.value {
            Some(value) => value > LARGEST_SIZE,
            None => size.to_string().ends_with("usize::MAX"),
        };
        if !is_too_large {
            return false;
        }
        let name = syn::parse2::<Ident>(written.clone()).ok();
        let Some(name) = name.filter(|name| self.sizes.has(name)) else {
            self.cx.error(written, messages::size_too_large(what, size));
            return true;
        };
        if self.sizes.is_first_misuse(&name) {
            let value = self.sizes.size(&name).map(|size| size.origin.clone());
            let value = value.filter(|value| !value.is_empty());
            let message = messages::size_too_large(&name.unraw().to_string(), size);
            self.cx
                .error(value.unwrap_or_else(|| written.clone()), message);
        }
        true
    }

    /// A constant that is a whole number, and not that of the indices of an axis.
    pub(super) fn whole_number(&mut self, tokens: &TokenStream, what: &str) -> Option<Size> {
        let size = self.sizes.substitute(tokens);
        if !self.is_constant(tokens) {
            return None;
        }
        let mut size = crate::spec::parse_size(&size, what, self.cx)?;
        self.constants.name(&mut size);
        size.axis = self.sizes.axis(tokens);
        Some(size)
    }

    /// Whether a constant is one: an axis has no length that is known, and a size with a mistake has no value. Notes what it names.
    pub(super) fn is_constant(&self, constant: &TokenStream) -> bool {
        let names = sizes::names(constant);
        self.sizes.mention(&names);
        let is_axis = |name: &&Ident| {
            !self.sizes.has(name) && self.axis_of_name(&name.unraw().to_string()).is_some()
        };
        if let Some(name) = names.iter().find(is_axis) {
            let message = messages::axis_as_constant(name, &self.item.name);
            self.cx.error(name, message);
            return false;
        }
        let is_own = |name: &&Ident| !self.sizes.has(name);
        if let [name] = names.as_slice()
            && is_own(&name)
            && let Ok(alone) = syn::parse2::<Ident>(constant.clone())
            && Operation::find(&alone.to_string()).is_some()
        {
            let message = messages::operation_as_constant(name, &self.item.name);
            self.cx.error(name, message);
            return false;
        }
        let variable = names
            .iter()
            .filter(is_own)
            .find_map(|name| self.scopes.find(name));
        if let Some(variable) = variable {
            if variable.value.is_some() {
                let name = names.iter().find(|name| **name == variable.name);
                self.cx.error(
                    name,
                    messages::variable_as_size(&variable.name, &self.item.name),
                );
            }
            return false;
        }
        self.sizes.is_sound(constant)
    }
}
