//! Functions whose names the model cannot have. After the message about one, its methods are not emitted: they would be there twice.

use std::collections::HashSet;

use proc_macro2::Ident;
use syn::ext::IdentExt;

use super::function::{LoweredFunction, is_taken_by_model, method_of_another};
use crate::model::syntax::BlockDraft;

/// The names of the functions that are methods of the model, or of a function before them.
pub(super) fn refused_names(functions: &[BlockDraft]) -> HashSet<String> {
    let names: Vec<&Ident> = functions.iter().map(|function| &function.name).collect();
    let refused = names.iter().enumerate().filter(|(index, name)| {
        is_taken_by_model(&name.unraw().to_string())
            || method_of_another(name, names[..*index].iter().copied()).is_some()
    });
    refused.map(|(_, name)| name.to_string()).collect()
}

/// Drops the functions of these names, and those with the name of one before them.
pub(super) fn drop_refused(functions: &mut Vec<LoweredFunction>, refused: &HashSet<String>) {
    let mut known = HashSet::new();
    functions.retain(|function| {
        let name = function.name();
        let is_refused = function.other.is_some() && refused.contains(&name);
        !is_refused && known.insert(name)
    });
}
