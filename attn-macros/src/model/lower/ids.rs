//! Ids: indices of axes, and how large they may be.

use proc_macro2::Span;
use quote::quote;

use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::sizes;
use crate::model::syntax::{Index, Part, first};
use crate::model::types::{Axis, MOST_AXES, Same, Type, ValueKind};
use crate::ops::{Along, Bound, Gather, Indices, ModelOp, Offset};
use crate::spec::Size;

/// The indices of `x[seq = ..]`.
pub(super) enum IdsOfIndex<'i> {
    Value(ValueId),
    List(&'i [proc_macro2::TokenStream]),
}

impl Lowering<'_> {
    /// Computed ids, which are indices of this axis.
    pub(crate) fn ids_node(
        &mut self,
        builder: &mut RegionBuilder,
        op: impl ModelOp + 'static,
        operands: Vec<ValueId>,
        (name, axes): (&str, Vec<Axis>),
        below: Axis,
    ) -> ValueId {
        let ty = Type::new(ValueKind::Ids, &axes);
        let ids = self.node(builder, op, operands, (name, ty));
        self.below.insert(ids.0, below);
        ids
    }

    /// How large ids may be, which are indices of `axis` in what is written as `text`. What is too large for certain is reported.
    pub(crate) fn bound_of(
        &mut self,
        ids: ValueId,
        axis: &Axis,
        at: Span,
        text: &str,
    ) -> Option<Bound> {
        let Some(below) = self.below.get(&self.memory(ids).0).cloned() else {
            return Some(Bound::OfCall);
        };
        match (&below, axis) {
            _ if matches!(below.same(axis), Same::Yes) => {}
            (Axis::Size(below), Axis::Size(size)) => {
                self.within(below, size, at, || messages::ids_beyond(text, below, size))?;
            }
            _ => return Some(Bound::Below(below)),
        }
        Some(Bound::Known)
    }

    /// The ids that choose indices of an axis. Without any, the index is a constant or a range.
    pub(super) fn ids_of_index<'i>(
        &mut self,
        index: &'i Index,
        builder: &mut RegionBuilder,
    ) -> Option<Option<IdsOfIndex<'i>>> {
        let ids = match &index.part {
            Part::Range(_) => return Some(None),
            Part::List(list) => return Some(Some(IdsOfIndex::List(list))),
            Part::Of(ids) => self.tensor(ids, None, builder)?,
            Part::At(at) => {
                let Ok(name) = syn::parse2::<syn::Ident>(at.clone()) else {
                    return self.computed_index(at).then_some(None);
                };
                if self.scopes.find(&name).is_none() {
                    return Some(None);
                }
                let ids = self.scopes.read(&name).and_then(|found| found.value)?;
                self.seen(&name, ids)?
            }
        };
        let ty = self.ty(ids);
        if ty.kind != ValueKind::Ids {
            let message = messages::expected_ids(&index.entry, ty);
            self.error(first(&index.entry), message);
            return None;
        }
        Some(Some(IdsOfIndex::Value(ids)))
    }

    /// Whether an index of several tokens has no variables: ids are not computed by operators.
    fn computed_index(&mut self, at: &proc_macro2::TokenStream) -> bool {
        let names = sizes::names(at);
        let is_variable =
            |name: &&syn::Ident| self.scopes.find(name).is_some() && !self.sizes.has(name);
        let Some(variable) = names.iter().find(is_variable).cloned() else {
            return true;
        };
        self.scopes.read(&variable);
        self.error(first(at), messages::computed_index(at));
        false
    }

    /// `x[seq = ids]`
    pub(super) fn gather(
        &mut self,
        value: ValueId,
        axis: usize,
        index: &Index,
        ids: IdsOfIndex<'_>,
        (of, name): (&str, &str),
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        let at = first(&index.entry);
        let ty = self.ty(value).clone();
        let text = format!("{of}[{}]", index.text());
        let (ids, ids_ty, operands) = match ids {
            IdsOfIndex::Value(ids) => {
                let ids_ty = self.ty(ids).clone();
                let bound = self.bound_of(ids, &ty.axes[axis], at, &text)?;
                (Indices::Operand(bound), ids_ty, vec![value, ids])
            }
            IdsOfIndex::List(list) => {
                let offsets = self.listed(list, index, &ty.axes[axis])?;
                let axis = Axis::Size(Size::known(offsets.len() as u64));
                let ids_ty = Type::new(ValueKind::Ids, &[axis]);
                (Indices::Constants(offsets), ids_ty, vec![value])
            }
        };
        let along = self.along(&ty, axis, &ids_ty, (at, text))?;
        let result = along.of(&ty, &ids_ty);
        if result.axes.len() > MOST_AXES {
            self.error(
                at,
                messages::too_many_axes_of_index(&along.text, &result, MOST_AXES),
            );
            return None;
        }
        let op = Gather { along, ids };
        Some(self.node(builder, op, operands, (name, result)))
    }

    /// The constants of a list, which the axis must have as indices.
    fn listed(
        &mut self,
        list: &[proc_macro2::TokenStream],
        index: &Index,
        axis: &Axis,
    ) -> Option<Vec<Offset>> {
        if list.is_empty() {
            self.error(first(&index.entry), messages::NO_INDEX_LISTED);
            return None;
        }
        let name = match &index.axis {
            Some(name) => name.clone(),
            None => axis.to_string().parse().unwrap_or_else(|_| quote!(_)),
        };
        let offsets: Vec<_> = list.iter().map(|at| self.at(at, axis, &name)).collect();
        offsets.into_iter().collect()
    }

    /// An axis of a value with ids of this type. Axes of the ids are those of the value with the same names, but for the indexed one.
    pub(crate) fn along(
        &mut self,
        value: &Type,
        index: usize,
        ids: &Type,
        (at, text): (Span, String),
    ) -> Option<Along> {
        let mut shared: Vec<Option<usize>> = Vec::new();
        for axis in &ids.axes {
            let is_it = |other: &(usize, &Axis)| {
                other.0 != index && axis.name().is_some() && other.1.name() == axis.name()
            };
            let mut found = value.axes.iter().enumerate().filter(is_it);
            let of = found.next().map(|(of, _)| of);
            if found.next().is_some() || (of.is_some() && shared.contains(&of)) {
                self.error(at, messages::ambiguous_ids(axis, ids, value));
                return None;
            }
            shared.push(of);
        }
        Some(Along {
            axis: value.axes[index].clone(),
            index,
            shared,
            text,
        })
    }
}
