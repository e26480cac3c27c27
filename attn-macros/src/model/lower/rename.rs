//! `x as [batch, kv = seq, d_model]`: the same value, with other names for its axes.
//!
//! The names are for the lowering alone: nodes read the value itself, so there is no operation, and nothing in memory.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;

use super::operators::named;
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::syntax::{AxisDraft, Expr, first};
use crate::model::types::{Axis, Same, Type};

impl Lowering<'_> {
    /// The value that is in memory.
    pub(crate) fn memory(&self, value: ValueId) -> ValueId {
        self.aliases.get(&value.0).copied().unwrap_or(value)
    }

    /// The axis that has this name from the inputs, or from an `as`.
    pub(crate) fn axis_of_name(&self, name: &str) -> Option<Axis> {
        let mut axes = self.axes.iter();
        if let Some((_, symbol)) = axes.find(|(known, _)| known == name) {
            return Some(Axis::Symbol(symbol.clone()));
        }
        let mut renamed = self.renamed.iter();
        renamed.find(|axis| axis.name() == Some(name)).cloned()
    }

    /// Whether this may be the name of an axis, and of nothing else.
    pub(crate) fn is_name_of_axis(&self, name: &str) -> bool {
        self.knows_axes && !super::is_name_of_constant(name)
    }

    pub(super) fn rename(
        &mut self,
        value: &Expr,
        (at, drafts): (Span, &[AxisDraft]),
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let value = self.tensor(value, None, builder)?;
        let ty = self.ty(value).clone();
        if drafts.len() != ty.axes.len() {
            self.error(at, messages::not_all_axes_of_as(drafts.len(), &ty));
            return None;
        }
        let mut axes: Vec<Axis> = Vec::new();
        for (index, draft) in drafts.iter().enumerate() {
            let axis = self.renamed_axis(draft, index, &ty)?;
            let is_it = |other: &Axis| axis.name().is_some() && other.name() == axis.name();
            if axes.iter().any(is_it) {
                let (at, text) = match &draft.name {
                    Some(name) => (name.span(), name.to_string()),
                    None => (first(&draft.axis), axis.to_string()),
                };
                self.error(at, messages::two_axes_of_one_name(&text, &draft.axis));
                return None;
            }
            axes.push(axis);
        }
        let memory = self.memory(value);
        let alias = self.value(&named(name, "renamed"), Type::new(ty.kind, &axes));
        self.aliases.insert(alias.0, memory);
        Some(alias)
    }

    fn renamed_axis(&mut self, draft: &AxisDraft, index: usize, ty: &Type) -> Option<Axis> {
        let written = self.named_axis(&draft.axis, ty)?;
        if !ty.candidates(&written).contains(&index) {
            let axes = [&written, &ty.axes[index]].map(|axis| Type::floats(vec![axis.clone()]));
            let lengths = self.lengths_differ(&axes[0], &axes[1]);
            let message = messages::another_axis_of_as(&draft.axis, index, ty, lengths);
            self.error(first(&draft.axis), message);
            return None;
        }
        let axis = match ty.axes[index].name() {
            Some(_) => &ty.axes[index],
            None => &written,
        };
        match &draft.name {
            Some(name) => self.axis_by_name(axis, name),
            None => Some(axis.clone()),
        }
    }

    /// The axis by another name. Axes of one name have one size.
    fn axis_by_name(&mut self, axis: &Axis, name: &Ident) -> Option<Axis> {
        let text = name.unraw().to_string();
        let known = match self.sizes.has(name) {
            true => Some(self.size_of_header(name).map(Axis::Size)?),
            false => self.axis_of_name(&text),
        };
        let renamed = axis.named(&text);
        if let Some(known) = known {
            let message = messages::name_of_another_size(&text, &known, axis);
            match known.same(axis) {
                Same::Yes => {}
                Same::No => {
                    self.error(name.span(), message);
                    return None;
                }
                Same::If(conditions) => self.assume(conditions, name.span(), message),
            }
        } else {
            self.renamed.push(renamed.clone());
        }
        Some(renamed)
    }
}
