//! The body of a declaration: learned tensors, data of the call, and functions of the score and of the place.
//!
//! [`parse`] reads the items of the braces; [`check`] lowers them, once the sizes of the layer are known.

mod constants;
mod data;
mod dims;
mod dot;
mod foreign;
mod functions;
mod index;
mod lower;
mod names;
mod normalize;
mod operand;
mod operators;
mod params;
mod parse;
mod range;
mod reach;
mod unsupported;

use proc_macro2::Ident;
use syn::Attribute;
use syn::ext::IdentExt;

use super::check::Checker;
use super::value::Size;
use super::{Dim, Distribution, Grid, Normalizer};
use crate::score::{Expr, Type};

pub(crate) use dot::{Dot, IndexOfProducts, Rows};
pub(crate) use functions::{FUNCTIONS, Function, upside_down};
pub(crate) use index::text_of;
use lower::{Lower, Scope};
pub(crate) use names::may_be_constant;
pub(crate) use operand::OperandKind;
pub(crate) use parse::{BodyDraft, FunctionKind, may_start, parse};
pub(crate) use range::Found;

/// The tokens in the braces, parsed and checked.
#[derive(Default)]
pub(crate) struct Body {
    /// `param name: [dims] = initializer;`
    pub(crate) params: Vec<ParamDecl>,
    /// `data name: [dims];`
    pub(crate) data: Vec<DataDecl>,
    /// The value of `fn score`, an expression of [`Expr::SCORE`].
    pub(crate) score: Option<Expr>,
    /// The truth of `fn mask`.
    pub(crate) mask: Option<Expr>,
    /// The normalizer of `fn normalize`, by name or as an expression.
    pub(crate) normalizer: Option<Normalizer>,
}

/// A learned tensor.
pub(crate) struct ParamDecl {
    /// Its documentation.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) dims: Vec<Size>,
    pub(crate) init: Distribution,
}

/// A tensor that the call passes.
pub(crate) struct DataDecl {
    /// Its documentation.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) name: Ident,
    /// Integers, which are `ids`, or floats.
    pub(crate) ty: Type,
    pub(crate) dims: Vec<Dim>,
    /// Of the products of `dot`, which have no name in the body: what a user knows of them.
    pub(crate) rows: Option<Rows>,
    /// It is a value of the model around the layer, which has a gradient: an input of the layer beside the sequences.
    pub(crate) given: bool,
}

impl DataDecl {
    /// The name, also where it is written as a raw one.
    pub(crate) fn text(&self) -> String {
        self.name.unraw().to_string()
    }

    /// The name in errors: that of the table, of products.
    pub(crate) fn label(&self) -> String {
        let table = self.rows.as_ref().map(|rows| rows.table.clone());
        table.unwrap_or_else(|| self.text())
    }
}

/// A tensor whose elements an expression reads.
#[derive(Clone, Copy)]
pub(crate) enum Tensor<'a> {
    Param(&'a ParamDecl),
    Data(&'a DataDecl),
}

impl<'a> Tensor<'a> {
    pub(crate) fn name(self) -> &'a Ident {
        match self {
            Tensor::Param(param) => &param.name,
            Tensor::Data(data) => &data.name,
        }
    }

    /// The type of an element.
    pub(crate) fn ty(self) -> Type {
        match self {
            Tensor::Param(_) => Type::Float,
            Tensor::Data(data) => data.ty,
        }
    }

    pub(crate) fn dims(self) -> Vec<Dim> {
        match self {
            Tensor::Param(param) => param.dims.iter().cloned().map(Dim::Size).collect(),
            Tensor::Data(data) => data.dims.clone(),
        }
    }
}

/// The sizes of the header that a body may name.
pub(crate) type Sizes<'a> = &'a [(&'a str, &'a Size)];

/// The body of `draft`. After a mistake only the tensors remain, since parameters are fields of the layer.
pub(super) fn check(
    draft: &BodyDraft,
    (sizes, grid): (Sizes<'_>, Option<&Grid>),
    checker: &mut Checker<'_>,
) -> Body {
    let before = checker.cx.count();
    let mut params = params::check(&draft.params, sizes, checker);
    let data = data::check(&draft.data, sizes, checker);
    let learned = params.iter().map(Tensor::Param);
    let named = data.iter().filter(|data| data.rows.is_none());
    let tensors: Vec<_> = learned.chain(named.map(Tensor::Data)).collect();
    let scope = |kind| {
        draft.function(kind).map(|function| Scope {
            function,
            tensors: &tensors,
            products: &draft.products,
            sizes,
            grid,
        })
    };
    let mut lowered = |kind| Some(Lower::new(scope(kind)?, checker).function());
    let score = lowered(FunctionKind::Score);
    let mask = lowered(FunctionKind::Mask);
    let normalizer = scope(FunctionKind::Normalize)
        .map(|scope| normalize::check(scope, score.as_ref(), checker));
    params.retain(|param| params::may_be_field(&param.name));
    let mut body = Body {
        params,
        data,
        score,
        mask,
        normalizer,
    };
    if !draft.poisoned && checker.cx.count() == before {
        reach::check(&body, draft, checker);
    }
    if draft.poisoned || checker.cx.count() > before {
        (body.score, body.mask, body.normalizer) = (None, None, None);
    }
    body
}
