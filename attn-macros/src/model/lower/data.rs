//! The data that the mask and the body of an attention read: operands by name.

use std::fmt;

use proc_macro2::Ident;
use syn::ext::IdentExt;

use super::Lowering;
use super::attention::NamedOperands;
use crate::graph::{self, CallData, Dim};
use crate::messages::{choice, model as messages};
use crate::model::graph::ValueId;
use crate::model::syntax::Call;
use crate::model::types::{Axis, Type, ValueKind, tuple};
use crate::score;
use crate::spec::Spec;

impl Lowering<'_> {
    /// These values, in the order in which the body declares them. `None` if one has not the declared axes.
    pub(super) fn values_given(
        &mut self,
        call: &Call,
        (spec, graph): (&Spec, &graph::Graph),
        sequences: [&Type; 2],
        given: &[(&Ident, ValueId)],
    ) -> Option<Vec<ValueId>> {
        // A mistake in the axes is reported already.
        if spec.poisoned {
            return None;
        }
        let mut values = Vec::new();
        for declared in &graph.given {
            let (at, value) = given
                .iter()
                .find(|(name, _)| name.unraw() == declared.name)?;
            let data = CallData::Declared(declared.clone());
            let expected = Expected::of(&data, graph.cross, sequences);
            let fits = self.are(call, &[*value], &expected, (&declared.name, at));
            values.push(fits.then_some(*value));
        }
        values.into_iter().collect()
    }

    /// Whether a value is an input of the model.
    pub(super) fn is_input(&self, value: ValueId) -> bool {
        self.inputs.contains(&self.memory(value))
    }

    /// The operands that the mask and the body read, in the order of the call.
    pub(super) fn data(
        &mut self,
        call: &Call,
        (spec, graph): (&Spec, &graph::Graph),
        sequences: [&Type; 2],
        mut named: NamedOperands<'_>,
    ) -> Option<Vec<ValueId>> {
        let mut operands = Vec::new();
        for data in &graph.data {
            let name = data_name(data);
            let expected = Expected::of(data, graph.cross, sequences);
            let Some(index) = named.iter().position(|(key, _)| **key == *name) else {
                let message = messages::data_missing(&call.name, &name, &expected.to_string());
                self.cx.error(&call.name, message);
                operands.push(None);
                continue;
            };
            let (at, values) = named.remove(index);
            let values: Option<Vec<ValueId>> = values.into_iter().collect();
            let fits = |values: &Vec<ValueId>| {
                self.are(call, values, &expected, (&name, at))
                    && self.are_inputs(call, values, &expected, (&name, at))
            };
            match values.filter(fits) {
                Some(values) => operands.extend(values.into_iter().map(Some)),
                None => operands.push(None),
            }
        }
        let known: Vec<String> = graph.data.iter().map(data_name).collect();
        for (key, _) in named {
            // A mask that was not understood may read it.
            if !spec.poisoned {
                self.cx
                    .error(key, messages::unknown_data(&call.name, key, &known, spec));
            }
        }
        operands.into_iter().collect()
    }

    /// Whether a call may pass these values as data that have no gradient: inputs of the model.
    fn are_inputs(
        &self,
        call: &Call,
        values: &[ValueId],
        expected: &Expected,
        (name, at): (&str, &Ident),
    ) -> bool {
        if values.iter().all(|value| self.is_input(*value)) {
            return true;
        }
        let message = messages::computed_data(&call.name, name, &expected.to_string());
        self.cx.error(at, message);
        false
    }

    /// Whether these values are what data are to be.
    fn are(
        &mut self,
        call: &Call,
        values: &[ValueId],
        expected: &Expected,
        (name, at): (&str, &Ident),
    ) -> bool {
        let types: Vec<Type> = values.iter().map(|value| self.ty(*value).clone()).collect();
        let message = || {
            let found = tuple(&types);
            messages::data_differs(&call.name, name, &expected.to_string(), &found)
        };
        if expected.0.len() != values.len() {
            self.cx.error(at, message());
            return false;
        }
        let mut values = expected.0.iter().zip(&types);
        values.all(|(any, found)| {
            let of_its_kind = any
                .iter()
                .find(|ty| ty.kind == found.kind && ty.axes.len() == found.axes.len());
            let expected = of_its_kind.unwrap_or(&any[0]);
            self.agree(expected, found, at.span(), message)
        })
    }
}

fn data_name(data: &CallData) -> String {
    match data {
        CallData::Padding => "padding".to_owned(),
        CallData::Document => "document".to_owned(),
        CallData::PositionIds => "position_ids".to_owned(),
        CallData::Declared(declared) => declared.name.to_string(),
    }
}

/// The tensors that are passed for data of the call: for each, the types that it may have.
struct Expected(Vec<Vec<Type>>);

impl Expected {
    fn of(data: &CallData, cross: bool, [query, key]: [&Type; 2]) -> Self {
        let batch = &query.axes[..query.axes.len() - 2];
        let [query, key] = [query, key].map(|ty| ty.axes[ty.axes.len() - 2].clone());
        let of = |kind, axes: &[Axis]| Type::new(kind, &[batch, axes].concat());
        let per_query = [query.clone()];
        let per_key = [key.clone()];
        Expected(match data {
            CallData::Padding => {
                let lens = (!batch.is_empty()).then(|| of(ValueKind::Lens, &[]));
                let others = [
                    of(ValueKind::Lens, &per_query),
                    of(ValueKind::Bools, &per_key),
                ];
                vec![lens.into_iter().chain(others).collect()]
            }
            CallData::Document if cross => vec![
                vec![of(ValueKind::Ids, &per_query)],
                vec![of(ValueKind::Ids, &per_key)],
            ],
            CallData::Document => vec![vec![of(ValueKind::Ids, &per_query)]],
            CallData::PositionIds => {
                let either = |len: &[Axis]| {
                    let of_all = Type::new(ValueKind::Ids, len);
                    let of_each = (!batch.is_empty()).then(|| of(ValueKind::Ids, len));
                    of_each.into_iter().chain([of_all]).collect()
                };
                let keys = cross.then(|| either(&per_key));
                [either(&per_query)].into_iter().chain(keys).collect()
            }
            CallData::Declared(declared) => {
                let axes = declared.dims.iter().flat_map(|dim| match dim {
                    Dim::Batch => batch.to_vec(),
                    Dim::Query => vec![query.clone()],
                    Dim::Key => vec![key.clone()],
                    Dim::Size(size) => vec![Axis::Size(size.clone())],
                });
                let kind = match declared.ty {
                    score::Type::Int => ValueKind::Ids,
                    score::Type::Bool => ValueKind::Bools,
                    score::Type::Float => ValueKind::Floats,
                };
                vec![vec![Type {
                    kind,
                    axes: axes.collect(),
                }]]
            }
        })
    }
}

/// `lens[batch] or bool[batch, seq]`, `(ids[batch, q], ids[batch, k])`
impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensors = self.0.iter().map(|types| choice(types));
        f.write_str(&tuple(&tensors.collect::<Vec<_>>()))
    }
}
