//! The results of functions and blocks: one value or several, in their order or by name.

use proc_macro2::{Ident, Span};

use super::Lowering;
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::syntax::{BlockDraft, Expr, NamedParts};
use crate::model::types::Type;

/// The values of the last line.
pub(super) struct Returned<'a> {
    /// Each with where it was written.
    pub(super) values: Vec<(Option<ValueId>, &'a Expr)>,
    /// None, or one for each.
    pub(super) names: &'a [Ident],
}

impl Returned<'_> {
    /// Where it begins.
    pub(super) fn span(&self) -> Option<Span> {
        let value = || self.values.first().map(|(_, value)| value.span());
        self.names.first().map(Ident::span).or_else(value)
    }
}

impl Lowering<'_> {
    /// Compares the values that a function or a block returns with the declared types. Where that is nothing, the error is `at` a name.
    pub(super) fn returned(
        &mut self,
        returned: Option<Returned<'_>>,
        declared: Option<&[Option<Type>]>,
        draft: &BlockDraft,
        at: &Ident,
    ) -> Vec<ValueId> {
        let current = self.current();
        let Some(returned) = returned else {
            if self.is_understood {
                self.cx.error(at, messages::nothing_returned(&current));
            }
            return Vec::new();
        };
        let Some(declared) = declared else {
            return Vec::new();
        };
        let Some(returned) = self.in_declared_order(returned, draft, at) else {
            return Vec::new();
        };
        if returned.len() != declared.len() {
            let first = returned.first().map(|(_, value)| value.span());
            self.error(
                first.unwrap_or_else(|| at.span()),
                messages::number_of_results(&current, declared.len(), returned.len()),
            );
        }
        let mut results = Vec::new();
        for ((value, at), declared) in returned.into_iter().zip(declared) {
            let (Some(value), Some(declared)) = (value, declared) else {
                continue;
            };
            let found = self.ty(value).clone();
            self.agree(declared, &found, at.span(), || {
                messages::result_differs(&current, declared, &found)
            });
            results.push(self.memory(value));
        }
        results
    }

    /// The values in the order in which they are declared.
    fn in_declared_order<'a>(
        &self,
        returned: Returned<'a>,
        draft: &BlockDraft,
        at: &Ident,
    ) -> Option<Vec<(Option<ValueId>, &'a Expr)>> {
        let (declared, names) = (&draft.names, returned.names);
        let first = returned.span().unwrap_or_else(|| at.span());
        match (declared.is_empty(), names.is_empty()) {
            (true, true) => return Some(returned.values),
            (true, false) => {
                let message = messages::results_without_names(&self.current(), names);
                self.error(first, message);
                return None;
            }
            (false, true) => {
                self.error(first, messages::results_by_name(&self.current(), declared));
                return None;
            }
            (false, false) => {}
        }
        let places = self.places_of_names((names, first), declared, &self.current(), false)?;
        let places = places.into_iter();
        Some(places.map(|place| returned.values[place]).collect())
    }

    /// The results of a call that get a variable, in the order of these.
    pub(super) fn named_parts(
        &self,
        parts: Option<&NamedParts>,
        draft: &BlockDraft,
        at: &Ident,
    ) -> Option<Vec<usize>> {
        let Some(NamedParts { results, others }) = parts else {
            if draft.names.is_empty() {
                return Some((0..draft.results.as_ref()?.len()).collect());
            }
            let message = messages::parts_by_name(&draft.name, &draft.names);
            self.cx.error(at, message);
            return None;
        };
        if draft.names.is_empty() {
            let message = messages::results_have_no_names(&draft.name);
            self.cx.error(results.first().unwrap_or(at), message);
            return None;
        }
        let name = draft.name.to_string();
        self.places_of_names((results, at.span()), &draft.names, &name, *others)?;
        let place = |name| draft.names.iter().position(|other| other == name);
        results.iter().map(place).collect()
    }

    /// For each declared name, its place among those that are given, of which every one is declared. `of` is a function or a block.
    fn places_of_names(
        &self,
        (given, at): (&[Ident], Span),
        declared: &[Ident],
        of: &str,
        may_lack: bool,
    ) -> Option<Vec<usize>> {
        let before = self.cx.count();
        for (index, name) in given.iter().enumerate() {
            if !declared.contains(name) {
                self.cx
                    .error(name, messages::unknown_result(of, name, declared));
            } else if given[..index].contains(name) {
                self.cx.error(name, messages::result_again(name));
            }
        }
        let places = declared.iter().map(|name| {
            let place = given.iter().position(|other| other == name);
            if place.is_none() && !may_lack && self.cx.count() == before {
                self.error(at, messages::missing_result(of, name));
            }
            place.unwrap_or_default()
        });
        let places: Vec<usize> = places.collect();
        (self.cx.count() == before).then_some(places)
    }
}
