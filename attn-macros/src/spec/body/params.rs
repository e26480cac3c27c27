//! Learned tensors: their names, sizes and initial values.

use proc_macro2::Ident;
use quote::{ToTokens, quote};
use syn::ext::IdentExt;

use super::names::variable;
use super::parse::ParamDraft;
use super::{ParamDecl, Sizes, constants, data, dims};
use crate::messages::body as messages;
use crate::spec::Rules;
use crate::spec::check::{Checker, LARGEST_LENGTH, unless_out_of_bounds};
use crate::spec::distribution::{self, Distribution};
use crate::spec::keys::INITIALIZER;
use crate::spec::value::{Constant, Size};

/// The names that a layer uses itself.
const FIELDS: [&str; 11] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "q_norm",
    "k_norm",
    "score_proj",
    "rel_pos_bias",
    "sink",
    "mix_scores",
    "mix_weights",
];

fn is_field(name: &Ident) -> bool {
    FIELDS.iter().any(|field| name == field)
}

fn is_raw(name: &Ident) -> bool {
    *name != name.unraw()
}

/// Whether the layer can have a field of this name.
pub(super) fn may_be_field(name: &Ident) -> bool {
    !is_field(name) && !is_raw(name)
}

/// Checks every declaration, also those with mistakes: the functions may read them.
pub(super) fn check(
    drafts: &[ParamDraft],
    sizes: Sizes<'_>,
    checker: &mut Checker<'_>,
) -> Vec<ParamDecl> {
    let params = drafts.iter().map(|draft| {
        check_name(&draft.name, checker);
        let mut dims = check_dims(draft, sizes, checker);
        let mut init = check_init(draft, &dims, sizes, checker);
        if matches!(init, Distribution::AlibiSlopes) && !are_slopes(&dims, sizes) {
            // Slopes belong to the heads. Neither reads of this tensor nor its values are further mistakes.
            dims.clear();
            init = Distribution::Zeros;
        }
        ParamDecl {
            attrs: draft.attrs.clone(),
            name: draft.name.clone(),
            init,
            dims,
        }
    });
    params.collect()
}

pub(super) fn check_name(name: &Ident, checker: &Checker<'_>) {
    if is_field(name) {
        checker
            .cx
            .error(name, messages::param_is_field(name, &FIELDS));
    } else if is_raw(name) {
        checker.cx.error(name, messages::param_is_raw(name));
    } else if name == "score" || variable(name).is_some() {
        checker.cx.error(name, messages::tensor_is_argument(name));
    }
}

/// The sizes in the brackets, or none if one of them is not understood.
fn check_dims(draft: &ParamDraft, sizes: Sizes<'_>, checker: &mut Checker<'_>) -> Vec<Size> {
    let before = checker.cx.count();
    let usage = "write `[heads, 2 * WINDOW + 1]`, or `[1]` for a single number";
    let what = format!("axis` of `{}", draft.name);
    let list = dims::list(&draft.dims, usage, checker);
    let mut names = list.iter().filter_map(dims::name);
    if let Some(axis) = names.find(|name| data::is_axis(name)) {
        let message = messages::axis_of_param(axis, &draft.name);
        checker.cx.error(axis, message);
        return Vec::new();
    }
    let dims = list
        .iter()
        .filter_map(|dim| dims::check(dim, &what, sizes, &[], checker));
    let dims: Vec<_> = dims.collect();
    if checker.cx.count() > before || !check_total(draft, &dims, checker) {
        return Vec::new();
    }
    dims
}

/// All elements together.
fn check_total(draft: &ParamDraft, dims: &[Size], checker: &mut Checker<'_>) -> bool {
    let values = dims.iter().map(|dim| dim.value.map(u128::from));
    let holds = values
        .product::<Option<u128>>()
        .map(|total| total <= u128::from(LARGEST_LENGTH));
    let total = quote!(1 #(* ((#dims) as u128))*);
    let sizes: Vec<_> = dims.iter().collect();
    let condition = unless_out_of_bounds(&sizes, quote!(#total <= #LARGEST_LENGTH as u128));
    let at = draft.dims.to_token_stream();
    let message = || messages::too_many_elements(&draft.name, LARGEST_LENGTH);
    checker.require(&at, holds, condition, message)
}

fn check_init(
    draft: &ParamDraft,
    dims: &[Size],
    sizes: Sizes<'_>,
    checker: &mut Checker<'_>,
) -> Distribution {
    let cx = checker.cx;
    let mut name = |value: &mut dyn Constant| checker.name_constant(value);
    let init = match distribution::parse(&draft.init, &INITIALIZER, cx, &mut name) {
        None => return Distribution::Zeros,
        Some(Distribution::Constant(number)) => {
            Distribution::Constant(constants::real(number, checker))
        }
        Some(init) => init,
    };
    if let Some((scale, what)) = init.scale() {
        checker.is_positive(scale, what);
    }
    if let Distribution::AlibiSlopes = init {
        check_slopes(draft, dims, sizes, checker);
    }
    // Missing sizes are a mistake that is reported elsewhere.
    if let Some(word) = init.of_matrices()
        && dims.len() == 1
    {
        let message = crate::messages::init_of_vector(word);
        checker.cx.error(&draft.init, message);
    }
    init
}

/// There is one slope for each head.
fn check_slopes(draft: &ParamDraft, dims: &[Size], sizes: Sizes<'_>, checker: &Checker<'_>) {
    // Missing sizes are a mistake that is reported elsewhere.
    if !dims.is_empty() && !are_slopes(dims, sizes) {
        checker.cx.error(&draft.init, messages::SLOPES_OF_HEADS);
    }
}

fn are_slopes(dims: &[Size], sizes: Sizes<'_>) -> bool {
    let heads = sizes.iter().find(|(name, _)| *name == "heads");
    matches!((dims, heads), ([dim], Some((_, heads))) if *dim == **heads)
}
