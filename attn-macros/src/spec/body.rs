//! The body of a declaration: learned tensors, and functions of the score and of the place.

use proc_macro2::Ident;
use syn::Attribute;

use super::value::{Real, Size};
use crate::score::Expr;

/// What stands in the braces, understood and checked.
#[derive(Default)]
pub(crate) struct Body {
    /// `param name: [dims] = initializer;`
    pub(crate) params: Vec<ParamDecl>,
    /// The value of `fn score`, an expression of [`Expr::Score`].
    pub(crate) score: Option<Expr>,
    /// The truth of `fn mask`.
    pub(crate) mask: Option<Expr>,
}

/// A learned tensor.
pub(crate) struct ParamDecl {
    /// Its documentation.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) name: Ident,
    pub(crate) dims: Vec<Size>,
    pub(crate) init: ParamInit,
}

/// What a learned tensor is before training.
#[derive(Clone, Debug)]
pub(crate) enum ParamInit {
    Zeros,
    Ones,
    /// Every element is this number.
    Constant(Real),
    Normal {
        std: Real,
    },
    /// Between `-bound` and `bound`.
    Uniform {
        bound: Real,
    },
    /// ALiBi's slope of every head: `[heads]`.
    AlibiSlopes,
}
