//! The body of a declaration: learned tensors, and functions of the score and of the place.
//!
//! [`parse`] reads the items of the braces; [`check`] lowers them, once the sizes of the layer are known.

mod constants;
mod functions;
mod index;
mod lower;
mod names;
mod normalize;
mod operand;
mod operators;
mod params;
mod parse;
mod reach;
mod unsupported;

use proc_macro2::Ident;
use syn::Attribute;

use super::Normalizer;
use super::check::Checker;
use super::value::{Real, Size};
use crate::score::Expr;

pub(crate) use functions::{FUNCTIONS, Function};
pub(crate) use index::text_of;
use lower::{Lower, Scope};
pub(crate) use operand::Kind;
pub(super) use parse::parse;
pub(crate) use parse::{BodyDraft, FunctionKind};

/// What stands in the braces, understood and checked.
#[derive(Default)]
pub(crate) struct Body {
    /// `param name: [dims] = initializer;`
    pub(crate) params: Vec<ParamDecl>,
    /// The value of `fn score`, an expression of [`Expr::Score`].
    pub(crate) score: Option<Expr>,
    /// The truth of `fn mask`.
    pub(crate) mask: Option<Expr>,
    /// What `fn normalize` names, or its value.
    pub(crate) normalizer: Option<Normalizer>,
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

/// The sizes of the header that a body may name.
pub(crate) type Sizes<'a> = &'a [(&'static str, &'a Size)];

/// The body of `draft`. Where something is wrong, only the parameters are left: they are fields of the layer all the same.
pub(super) fn check(draft: &BodyDraft, sizes: Sizes<'_>, checker: &mut Checker<'_>) -> Body {
    let before = checker.cx.count();
    let mut params = params::check(&draft.params, sizes, checker);
    let scope = |kind| {
        draft.function(kind).map(|function| Scope {
            function,
            params: &params,
            sizes,
        })
    };
    let mut lowered = |kind| Some(Lower::new(scope(kind)?, checker).function());
    let (score, mask) = (lowered(FunctionKind::Score), lowered(FunctionKind::Mask));
    let normalizer = scope(FunctionKind::Normalize)
        .map(|scope| normalize::check(scope, score.as_ref(), checker));
    params.retain(|param| !params::is_field(&param.name));
    let mut body = Body {
        params,
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
