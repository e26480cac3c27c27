//! Inputs that a call may leave out, with what stands for them then.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::LitBool;
use syn::ext::IdentExt;

use super::Lowering;
use crate::messages::model as messages;
use crate::model::graph::Absent;
use crate::model::syntax::{BlockDraft, InputDraft, first};
use crate::model::types::{Axis, Type, ValueKind};
use crate::spec::Real;

impl Lowering<'_> {
    /// The defaults of the inputs, which are declared.
    pub(super) fn defaults(&mut self, draft: &BlockDraft) -> Vec<Option<Absent>> {
        if let Some(default) = draft
            .operands()
            .next()
            .and_then(|input| input.default.as_ref())
        {
            self.cx.error(default, messages::DEFAULT_OF_FIRST_INPUT);
        }
        let required = draft.operands().filter(|input| input.default.is_none());
        let known = required.filter_map(|input| input.ty.as_ref());
        let known: Vec<String> = known.flat_map(|ty| &ty.axes).map(text).collect();
        let inputs = draft.operands().map(|input| {
            let default = input.default.as_ref()?;
            let ty = self.ty_of_input(input)?;
            self.check_axes_of_default(input, &ty, &known);
            self.default(default, &ty)
        });
        inputs.collect()
    }

    fn ty_of_input(&self, input: &InputDraft) -> Option<Type> {
        let variable = self.scopes.find(input.name.as_ref()?)?;
        variable.value.map(|value| self.ty(value).clone())
    }

    /// The length of every axis is a constant, or that of an input that is always there.
    fn check_axes_of_default(&self, input: &InputDraft, ty: &Type, known: &[String]) {
        let drafts = input.ty.iter().flat_map(|ty| &ty.axes);
        for (axis, draft) in ty.axes.iter().zip(drafts) {
            if let (Axis::Symbol(_), Some(name)) = (axis, &input.name)
                && !known.contains(&text(draft))
            {
                self.cx.error(draft, messages::axis_of_default(name, axis));
            }
        }
    }

    fn default(&mut self, tokens: &TokenStream, ty: &Type) -> Option<Absent> {
        let found = match ty.kind {
            ValueKind::Floats => return self.number_of_default(tokens).map(Absent::Number),
            ValueKind::Bools => {
                let value = syn::parse2::<LitBool>(self.sizes.substitute(tokens));
                self.sizes.skip(tokens);
                value.ok().map(|value| Absent::Marks(value.value))
            }
            ValueKind::Ids if let Some(start) = counts_from(tokens) => {
                return self.size(&start, "the default").map(Absent::From);
            }
            ValueKind::Ids | ValueKind::Lens => match self.axis_of_default(tokens) {
                Some(axis) => Some(Absent::Length(axis)),
                None if self.is_size(tokens) => {
                    let size = self.size(tokens, "the default")?;
                    Some(Absent::Length(Axis::Size(size)))
                }
                None => None,
            },
        };
        if found.is_none() {
            let message = messages::default_of_kind(ty.kind, tokens);
            self.error(first(tokens), message);
        }
        found
    }

    /// The axis of any length that has this name.
    fn axis_of_default(&self, tokens: &TokenStream) -> Option<Axis> {
        let name = syn::parse2::<Ident>(tokens.clone()).ok()?;
        let is_axis = !self.sizes.has(&name);
        is_axis.then(|| self.axis_of_name(&name.unraw().to_string()))?
    }

    fn number_of_default(&mut self, tokens: &TokenStream) -> Option<Real> {
        let number = self.sizes.substitute(tokens);
        if !self.is_constant(tokens) {
            return None;
        }
        let mut number = crate::spec::parse_number(&number, "the default", self.cx)?;
        self.constants.name(&mut number);
        Some(number)
    }
}

/// The `0` of `0..`
fn counts_from(tokens: &TokenStream) -> Option<TokenStream> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is_dot =
        |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == '.');
    match tokens.as_slice() {
        [start @ .., a, b] if is_dot(a) && is_dot(b) && !start.is_empty() => {
            Some(start.iter().cloned().collect())
        }
        _ => None,
    }
}

fn text(axis: &TokenStream) -> String {
    axis.to_string()
}
