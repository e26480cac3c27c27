//! The dimensions of a tensor that a body declares.

use proc_macro2::{Group, Ident};
use quote::{ToTokens, quote};
use syn::Token;
use syn::parse::Parser;
use syn::punctuated::Punctuated;

use super::Sizes;
use super::names::may_be_constant;
use crate::messages::{body as messages, expected_size};
use crate::spec::Rules;
use crate::spec::check::{Checker, LARGEST_SIZE};
use crate::spec::value::Size;

/// The maximum number of axes of dfdx's shapes.
const MAX_AXES: usize = 6;

/// The tokens in the brackets, between commas.
pub(super) fn list(dims: &Group, usage: &str, checker: &Checker<'_>) -> Vec<syn::Expr> {
    let list = Punctuated::<syn::Expr, Token![,]>::parse_terminated;
    let list = list.parse2(dims.stream()).unwrap_or_default();
    if !(1..=MAX_AXES).contains(&list.len()) {
        let message = messages::expected_sizes(dims, MAX_AXES, usage);
        checker.cx.error(dims, message);
    }
    list.into_iter().collect()
}

/// A size: a number, a name of the header, a constant of the user, or arithmetic with these. `axes` are names that are not sizes,
/// but might be written in place of one.
pub(super) fn check(
    dim: &syn::Expr,
    what: &str,
    sizes: Sizes<'_>,
    axes: &[&'static str],
    checker: &mut Checker<'_>,
) -> Option<Size> {
    if let Some(size) = size_of_header(dim, sizes) {
        return Some(size.clone());
    }
    let origin = dim.to_token_stream();
    let mut expr = dim.clone();
    let before = checker.cx.count();
    put_sizes(&mut expr, sizes, axes, checker);
    if checker.cx.count() > before {
        return None;
    }
    let Some(size) = Size::from_expr(&expr) else {
        checker.cx.error(&origin, expected_size(what, &origin));
        return None;
    };
    let mut size = size.written_as(origin);
    checker.name_constant(&mut size);
    checker.bounded(&size, what, LARGEST_SIZE).then_some(size)
}

/// The name that `expr` is.
pub(super) fn name(expr: &syn::Expr) -> Option<&Ident> {
    match expr {
        syn::Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

/// The size whose name `expr` is.
fn size_of_header<'a>(expr: &syn::Expr, sizes: Sizes<'a>) -> Option<&'a Size> {
    let name = name(expr)?;
    let (_, size) = sizes.iter().find(|(size, _)| name == size)?;
    Some(size)
}

/// Replaces the names of sizes in arithmetic by their values.
fn put_sizes(expr: &mut syn::Expr, sizes: Sizes<'_>, axes: &[&'static str], checker: &Checker<'_>) {
    if let Some(size) = size_of_header(expr, sizes)
        && let Ok(size) = syn::parse2(quote!((#size)))
    {
        *expr = size;
        return;
    }
    if let Some(name) = name(expr).filter(|name| !may_be_constant(name)) {
        let message = match axes.iter().any(|axis| name == axis) {
            true => messages::axis_in_arithmetic(name),
            false => messages::unknown_size(name, sizes, axes),
        };
        checker.cx.error(name, message);
    }
    let put = |expr: &mut syn::Expr| put_sizes(expr, sizes, axes, checker);
    match expr {
        syn::Expr::Block(block) => {
            if let [syn::Stmt::Expr(expr, None)] = block.block.stmts.as_mut_slice() {
                put(expr);
            }
        }
        syn::Expr::Paren(paren) => put(&mut paren.expr),
        syn::Expr::Group(group) => put(&mut group.expr),
        syn::Expr::Cast(cast) => put(&mut cast.expr),
        syn::Expr::Unary(unary) => put(&mut unary.expr),
        syn::Expr::Binary(binary) => {
            put(&mut binary.left);
            put(&mut binary.right);
        }
        _ => {}
    }
}
