//! The parameters of a block at a call: its names of axes and sizes get what they stand for.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;

use super::scope::Changes;
use super::{Lowering, is_name_of_constant, not_none};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::sizes::{self, ConstValue};
use crate::model::syntax::{BlockDraft, Call, InputDraft, TypeDraft};
use crate::model::types::{Axis, Same, Type, ValueKind};

impl Lowering<'_> {
    pub(super) fn kind(&self, draft: &TypeDraft) -> Option<ValueKind> {
        Some(match &draft.kind {
            None => ValueKind::Floats,
            Some(kind) if kind == "ids" => ValueKind::Ids,
            Some(kind) if kind == "lens" => ValueKind::Lens,
            Some(kind) if kind == "bool" => ValueKind::Bools,
            Some(kind) => {
                self.cx.error(kind, messages::unknown_kind(kind));
                return None;
            }
        })
    }

    /// Why `..` cannot stand here.
    pub(super) fn leading_axes_elsewhere(&self) -> String {
        if self.calls.is_empty() {
            messages::leading_axes_of_function(&self.current())
        } else if self.leading.is_some() {
            messages::LEADING_AXES_FIRST.to_owned()
        } else {
            messages::no_leading_axes(&self.current())
        }
    }

    /// The value of a key, where a call or a default gives it.
    pub(super) fn given(&mut self, value: &TokenStream, key: &Ident) -> Option<ConstValue> {
        let quiet = Diagnostics::default();
        let tokens = self.sizes.substitute(value);
        if let Ok(switch) = syn::parse2::<syn::LitBool>(tokens.clone()) {
            self.sizes.skip(value);
            return Some(ConstValue::Switch(switch.value));
        }
        if sizes::is_list(&tokens) {
            let mut numbers = crate::spec::parse_numbers(&tokens, &key.to_string(), self.cx)?;
            let is_constant = self.is_constant(value);
            self.constants.name(&mut numbers);
            return is_constant.then_some(ConstValue::Numbers(numbers));
        }
        if crate::spec::parse_size(&tokens, "", &quiet).is_none()
            && let Some(mut number) = crate::spec::parse_number(&tokens, "", &quiet)
        {
            let is_constant = self.is_constant(value);
            self.constants.name(&mut number);
            return is_constant.then_some(ConstValue::Number(number));
        }
        // It may be a number of an operation, and no size.
        self.whole_number(value, &key.to_string())
            .map(ConstValue::Size)
    }

    /// Whether all parameters of a block could be bound. In the end the operands have the types that they have in the block.
    pub(super) fn bind(
        &mut self,
        call: &Call,
        block: &BlockDraft,
        operands: &[ValueId],
        keys: Vec<Option<ConstValue>>,
    ) -> bool {
        let before = self.cx.count();
        let mut later = Vec::new();
        let unbound = self.unbound(block);
        for ((name, default), given) in block.keys().zip(keys) {
            let Some(default) = default.filter(|_| given.is_none()) else {
                self.bind_key(name, given);
                continue;
            };
            let names = sizes::names(default);
            let waits = |name: &Ident| {
                unbound.contains(name) || later.iter().any(|(later, _)| *later == name)
            };
            match names.iter().any(waits) {
                true => later.push((name, default)),
                false => {
                    let given = self.given(default, name);
                    self.bind_key(name, given);
                }
            }
        }
        self.later_keys = later.iter().map(|(name, _)| (*name).clone()).collect();
        for ((index, operand), value) in block.operands().enumerate().zip(operands) {
            let at = call.operands[index].span();
            self.bind_operand(block, operand, *value, at);
        }
        self.later_keys.clear();
        for (name, default) in later {
            let given = self.given(default, name);
            self.bind_key(name, given);
        }
        self.cx.count() == before
    }

    /// The names of axes that operands will bind.
    fn unbound(&self, block: &BlockDraft) -> Vec<Ident> {
        let types = block.operands().filter_map(|operand| operand.ty.as_ref());
        let names = types.flat_map(|ty| &ty.axes).filter_map(name_of_axis);
        let is_bound =
            |name: &Ident| self.sizes.has(name) || block.keys().any(|(key, _)| key == name);
        names.filter(|name| !is_bound(name)).collect()
    }

    fn bind_key(&mut self, name: &Ident, given: Option<ConstValue>) {
        let given = given.map(|given| match given {
            ConstValue::Size(mut size) => {
                let own = self.own_axis(&name.unraw().to_string());
                size.axis.get_or_insert_with(|| own.into());
                ConstValue::Size(size)
            }
            value => value,
        });
        self.sizes.declare(name, given);
    }

    /// The name of an axis that only this call of a block knows.
    pub(super) fn own_axis(&self, name: &str) -> String {
        format!("{name}@{}", self.calls.len())
    }

    fn bind_operand(
        &mut self,
        block: &BlockDraft,
        operand: &InputDraft,
        value: ValueId,
        at: proc_macro2::Span,
    ) {
        let found = self.ty(value).clone();
        if let (Some(name), Some(draft)) = (&operand.name, &operand.ty) {
            match self.bind_axes(draft, &found) {
                Some(Bound::Same(ty, conditions)) => {
                    if !conditions.is_empty() {
                        let message = self.operand_differs(block, name, draft, &found);
                        self.assume(conditions, at, message);
                    }
                    self.values[value.0].ty = ty;
                }
                Some(Bound::Differs) => {
                    let message = self.operand_differs(block, name, draft, &found);
                    self.error(at, message);
                }
                None => {}
            }
            let changes = match operand.mutable {
                true => Changes::Allowed,
                false => Changes::OfInput,
            };
            self.scopes.declare(name, Some(value), changes);
            self.note_shape(name, Some(value));
        }
    }

    /// Compares a type with the declared one, whose unknown names are bound. `None` after a mistake in the declaration.
    fn bind_axes(&mut self, draft: &TypeDraft, found: &Type) -> Option<Bound> {
        let kind = self.kind(draft)?;
        let (has_leading, axes) = draft.behind_leading();
        let count = found.axes.len();
        let fits = match has_leading {
            true => count >= axes.len(),
            false => count == axes.len(),
        };
        if kind != found.kind || !fits {
            return Some(Bound::Differs);
        }
        let (before, behind) = found.axes.split_at(count - axes.len());
        let mut expected = match has_leading {
            true => self.leading.get_or_insert_with(|| before.to_vec()).clone(),
            false => Vec::new(),
        };
        if expected.len() != before.len() {
            return Some(Bound::Differs);
        }
        for (tokens, axis) in axes.iter().zip(behind) {
            expected.push(self.bind_axis(tokens, axis)?);
        }
        let mut conditions = Vec::new();
        let mut axes = Vec::new();
        for (expected, axis) in expected.into_iter().zip(&found.axes) {
            match expected.same(axis) {
                Same::Yes => {}
                Same::No => return Some(Bound::Differs),
                Same::If(more) => conditions.extend(more),
            }
            // The same size, by its name in the block.
            axes.push(match (expected, axis) {
                (Axis::Size(expected), Axis::Size(axis)) => {
                    let mut axis = axis.clone();
                    axis.axis = expected.axis.or(axis.axis);
                    Axis::Size(axis)
                }
                _ => axis.clone(),
            });
        }
        Some(Bound::Same(Type::new(kind, &axes), conditions))
    }

    /// The axis that is declared, or `found` if nothing is known of its name yet.
    fn bind_axis(&mut self, tokens: &TokenStream, found: &Axis) -> Option<Axis> {
        let Some(name) = name_of_axis(tokens) else {
            return self.axis(tokens);
        };
        let text = name.unraw().to_string();
        if self.later_keys.contains(&name) {
            self.error(name.span(), messages::key_is_set_later(&name));
            return None;
        }
        if self.sizes.has(&name) || self.axis_of_name(&text).is_some() {
            return self.axis(tokens);
        }
        match found {
            Axis::Symbol(symbol) => self.axes.push((text, symbol.clone())),
            Axis::Size(size) => self.bind_key(&name, Some(ConstValue::Size(size.clone()))),
        }
        self.axis(tokens)
    }

    /// The message, with what the names of the declared type stand for.
    fn operand_differs(
        &self,
        block: &BlockDraft,
        name: &Ident,
        draft: &TypeDraft,
        found: &Type,
    ) -> String {
        let (has_leading, axes) = draft.behind_leading();
        let leading = self.leading.as_ref().filter(|_| has_leading);
        let leading = leading.map(|axes| ("..".to_owned(), Type::floats(axes.clone()).to_string()));
        let names = axes.iter().filter_map(name_of_axis).filter_map(|name| {
            let text = name.unraw().to_string();
            let value = match self.sizes.size(&name) {
                Some(size) => size.to_string(),
                None => self.axis_of_name(&text)?.to_string(),
            };
            (value != text).then_some((text, value))
        });
        let meanings: Vec<_> = leading.into_iter().chain(names).collect();
        messages::operand_of_block(&block.name, name, draft, found, &meanings)
    }
}

/// The result of a comparison with a declared type.
enum Bound {
    /// The type with the names of the block, and what rustc has to find out.
    Same(Type, Vec<TokenStream>),
    Differs,
}

/// The name that stands for an axis, if it is no constant of the user.
fn name_of_axis(tokens: &TokenStream) -> Option<Ident> {
    let name = syn::parse2::<Ident>(tokens.to_token_stream()).ok()?;
    let name = not_none(name).ok()?;
    (!is_name_of_constant(&name.unraw().to_string())).then_some(name)
}
