//! `param token: [1, d_model] = normal(0.02);`

use proc_macro2::{Ident, TokenStream};
use syn::ext::IdentExt;

use super::{Lowering, RegionBuilder};
use crate::messages::{self, model};
use crate::model::graph::{Submodule, ValueId};
use crate::model::syntax::{TypeDraft, first};
use crate::model::types::{Axis, Type, ValueKind};
use crate::ops::{Param, Tensor};
use crate::spec::distribution::{self, Distribution};
use crate::spec::keys::INITIALIZER_OF_MODEL;
use crate::spec::value::Constant;

impl Lowering<'_> {
    pub(super) fn param(
        &mut self,
        name: &Ident,
        ty: &TypeDraft,
        init: &TokenStream,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let ty = self.type_of_constants(name, ty, "a learned tensor");
        let init = self.initial_values(init, ty.as_ref());
        let ty = ty?;
        let tensor = Submodule::Layer(Box::new(Tensor::new(&ty)));
        let text = name.unraw().to_string();
        let place = self.field(builder.module, (&text, Some(name)), tensor, ty.to_string());
        let init = init?;
        self.begin(&place, Some(init));
        Some(self.node(builder, Param::new(place), Vec::new(), (&text, ty)))
    }

    /// Floats with constant axes, of which there may be none.
    pub(super) fn type_of_constants(
        &mut self,
        name: &Ident,
        draft: &TypeDraft,
        what: &str,
    ) -> Option<Type> {
        let ty = match draft.kind.is_none() && draft.axes.is_empty() {
            true => Type::floats(Vec::new()),
            false => self.declared_type(draft)?,
        };
        if ty.kind != ValueKind::Floats {
            self.cx
                .error(&draft.kind, model::param_of_indices(what, name, &ty));
            return None;
        }
        for (axis, tokens) in ty.axes.iter().zip(&draft.axes) {
            if let Axis::Symbol(axis) = axis {
                let message = model::axis_of_param(&axis.name, (what, name), &self.item.name);
                self.error(first(tokens), message);
                return None;
            }
        }
        Some(ty)
    }

    fn initial_values(&mut self, tokens: &TokenStream, ty: Option<&Type>) -> Option<Distribution> {
        let text = tokens.to_string();
        let mut words = INITIALIZER_OF_MODEL.words().iter();
        if !words.any(|word| word.name == text) && !self.is_constant(tokens) {
            return None;
        }
        let substituted = self.sizes.substitute(tokens);
        let mut name = |value: &mut dyn Constant| self.constants.name(value);
        let before = self.cx.count();
        let mut init =
            distribution::parse(&substituted, &INITIALIZER_OF_MODEL, self.cx, &mut name)?;
        if self.cx.count() > before {
            return None;
        }
        if let Distribution::Constant(number) = &mut init {
            self.constants.name(number);
        }
        if let Some(word) = init.of_matrices()
            && ty.is_some_and(|ty| ty.axes.len() < 2)
        {
            self.error(first(tokens), messages::init_of_vector(word));
            return None;
        }
        self.sound(init)
    }
}
