//! Whether the indices of the declared tensors stay inside of them, and no integer is divided by 0: proved from the sizes of a
//! call and the ids that it passes, or looked up.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;

use super::expr::host;
use super::input::{data_name, declared_name, read_type};
use super::{Layer, places};
use crate::graph::{CallData, Dim};
use crate::ops::attention_layer::Attend;
use crate::score::{Binary, Data, Expr, Type, Var};
use crate::spec::body::Tensor;

/// The checks of a call.
#[derive(PartialEq)]
enum Check<'a> {
    /// An element that a function of the body reads.
    Read {
        tensor: &'a str,
        dims: Vec<Dim>,
        index: &'a [Expr],
    },
    /// The divisor of an integer.
    Divisor(&'a Expr),
}

/// `check_integers(axes, &data_distance)?;`, if there is something to check.
pub(super) fn emit_call(cx: &Layer<'_>) -> Option<TokenStream> {
    let data = cx.graph.declared().map(|data| declared_name(&data.name));
    let call = quote_spanned!(cx.at=> check_integers::<E, _>(axes, #(&#data),*)?;);
    let is_checked = !lines(cx, checks(cx, expressions(cx))).is_empty();
    is_checked.then_some(call)
}

/// `fn check_integers((batch, query, key), data) -> Result<(), p::Error<Dev>>`, if there is something to check.
pub(super) fn emit(cx: &Layer<'_>) -> Option<TokenStream> {
    let lines = lines(cx, checks(cx, expressions(cx)));
    let data = cx.graph.data.iter();
    let data = data.filter(|data| matches!(data, CallData::Declared(_)));
    let data = data.map(|data| {
        let name = data_name(data);
        let ty = read_type(data);
        quote_spanned!(cx.at=> #name: &#ty)
    });
    (!lines.is_empty()).then(|| {
        quote_spanned! {cx.at=>
            /// Checks the indices of the declared tensors and the divisors of integers.
            #[allow(unused_variables)]
            fn check_integers<E: p::Element, Dev>(
                (batch, query, key): (usize, usize, usize),
                #(#data),*
            ) -> Result<(), p::Error<Dev>> {
                #(#lines)*
                Ok(())
            }
        }
    })
}

/// `fn check_mask(query, key) -> Result<(), p::Error<Dev>>`, if a mask without data divides by what is not known.
pub(super) fn emit_of_mask(cx: &Layer<'_>, mask: &Expr) -> Option<TokenStream> {
    let lines = lines(cx, checks(cx, [mask].into_iter()));
    (!lines.is_empty()).then(|| {
        quote_spanned! {cx.at=>
            /// Checks the divisors of integers in the mask.
            #[allow(dead_code, unused_variables)]
            fn check_mask<Dev>(query: usize, key: usize) -> Result<(), p::Error<Dev>> {
                let batch = 1;
                #(#lines)*
                Ok(())
            }
        }
    })
}

/// The lines for every index that is not known to stay inside, and for every divisor that is not known.
fn lines(cx: &Layer<'_>, checks: Vec<Check<'_>>) -> Vec<TokenStream> {
    let lines = checks.into_iter().flat_map(|check| match check {
        Check::Read {
            tensor,
            dims,
            index,
        } => {
            let axes = dims.into_iter().zip(index).enumerate();
            let open = axes.filter(|(_, (dim, index))| !stays_inside(cx, dim, index));
            let open = open.map(|(axis, (dim, index))| {
                let (tensor, axis) = known_as(cx, tensor, axis);
                emit_index(cx, tensor, axis, &dim, index)
            });
            open.collect()
        }
        Check::Divisor(divisor) => vec![emit_divisor(cx, divisor)],
    });
    lines.collect()
}

/// A tensor and an axis of it, as a user knows them: of the products of `dot` those of the table.
fn known_as<'a>(cx: &'a Layer<'_>, tensor: &'a str, axis: usize) -> (&'a str, usize) {
    let mut given = cx.graph.given.iter();
    let rows = given.find(|given| *given.name == *tensor);
    match rows.and_then(|given| given.rows.as_ref()) {
        Some(rows) => (&rows.table, rows.index[axis].unwrap_or(axis)),
        None => (tensor, axis),
    }
}

/// The expressions of a call.
fn expressions<'a>(cx: &'a Layer<'_>) -> impl Iterator<Item = &'a Expr> {
    let attention = cx.graph.attention();
    attention.into_iter().flat_map(Attend::expressions)
}

/// Every check once. The checks of an operand come before those of its index or divisor.
fn checks<'a>(cx: &'a Layer<'_>, expressions: impl Iterator<Item = &'a Expr>) -> Vec<Check<'a>> {
    let mut checks = Vec::new();
    for expr in expressions {
        add_checks(cx, expr, &mut checks);
    }
    checks
}

fn add_checks<'a>(cx: &'a Layer<'_>, expr: &'a Expr, checks: &mut Vec<Check<'a>>) {
    for child in expr.children() {
        add_checks(cx, child, checks);
    }
    let mut add = |check| {
        if !checks.contains(&check) {
            checks.push(check);
        }
    };
    let read = |tensor, dims, index| Check::Read {
        tensor,
        dims,
        index,
    };
    match expr {
        Expr::Param { name, index } => {
            let mut params = cx.spec.body.params.iter();
            if let Some(param) = params.find(|param| param.name == **name) {
                let dims = Tensor::Param(param).dims();
                add(read(name, dims, index));
            } else if cx.graph.is_given(name) {
                add(read(name, cx.graph.dims(name), index));
            }
        }
        Expr::Data {
            data: Data::Declared { name, .. },
            index,
        } => {
            if let Some(declared) = cx.graph.declared().find(|data| data.name == *name) {
                add(read(name, declared.dims.clone(), index));
            }
        }
        // Literals and the user's constants were checked where they stand.
        Expr::Binary(Binary::Div | Binary::Rem, _, divisor)
            if divisor.ty() == Type::Int && !matches!(**divisor, Expr::Int(_)) =>
        {
            add(Check::Divisor(divisor));
        }
        _ => {}
    }
}

/// Whether `index` counts along this axis and no other.
fn stays_inside(cx: &Layer<'_>, dim: &Dim, index: &Expr) -> bool {
    let Expr::Var(var) = index else {
        return false;
    };
    match (var, dim) {
        (Var::B, Dim::Batch) | (Var::QIdx, Dim::Query) | (Var::KvIdx, Dim::Key) => true,
        (Var::QIdx, Dim::Key) | (Var::KvIdx, Dim::Query) => !cx.graph.cross,
        (Var::H, Dim::Size(size)) => *size == cx.spec.heads,
        _ => false,
    }
}

fn emit_index(cx: &Layer<'_>, name: &str, axis: usize, dim: &Dim, index: &Expr) -> TokenStream {
    let label = cx.label();
    let axis = Literal::usize_unsuffixed(axis);
    let size = match dim {
        Dim::Batch => quote_spanned!(cx.at=> batch),
        Dim::Query => quote_spanned!(cx.at=> query),
        Dim::Key => quote_spanned!(cx.at=> key),
        Dim::Size(size) => quote_spanned!(cx.at=> #size),
    };
    let (lines, args) = emit_values(cx, index);
    quote_spanned! {cx.at=>
        #lines
        let axis = p::AxisBounds { layer: #label, tensor: #name, axis: #axis, size: #size };
        axis.check(#args)?;
    }
}

fn emit_divisor(cx: &Layer<'_>, divisor: &Expr) -> TokenStream {
    let label = cx.label();
    let text = divisor.to_string();
    let (lines, args) = emit_values(cx, divisor);
    quote_spanned! {cx.at=>
        #lines
        let divisor = p::DivisorBounds { layer: #label, divisor: #text };
        divisor.check(#args)?;
    }
}

/// Lines for the integer `expr`, and what is checked of it: where it lies, the places that it depends on, and the function of
/// these.
fn emit_values(cx: &Layer<'_>, expr: &Expr) -> (TokenStream, TokenStream) {
    let heads = &cx.spec.heads;
    let bounds = places::on_zone(expr);
    let value = host(expr, 0);
    let places = [
        (Var::B, quote_spanned!(cx.at=> batch)),
        (Var::H, quote_spanned!(cx.at=> #heads)),
        (Var::QIdx, quote_spanned!(cx.at=> query)),
        (Var::KvIdx, quote_spanned!(cx.at=> key)),
    ];
    let places = places.map(|(var, len)| {
        if expr.reads(var) {
            len
        } else {
            quote_spanned!(cx.at=> 1)
        }
    });
    let lines = quote_spanned! {cx.at=>
        let bounds = {
            let at = &p::Zone::of(&(0..query), &(0..key));
            let b = at.within(p::Interval::of(&(0..batch)));
            let h = at.within(p::Interval::of(&(0..#heads)));
            let q_idx = at.q_idx();
            let kv_idx = at.kv_idx();
            let q_len = at.number(query as i64);
            let kv_len = at.number(key as i64);
            p::Affine::bounds(#bounds)
        };
        let [q_len, kv_len] = [query as i64, key as i64];
    };
    let args = quote_spanned!(cx.at=> bounds, [#(#places),*], |b, h, q_idx, kv_idx| #value);
    (lines, args)
}
