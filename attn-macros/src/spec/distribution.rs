//! How a tensor begins.

use std::fmt;

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;

use super::keys::Key;
use super::value::Constant;
use super::word::{self, Call};
use super::{Real, Size};
use crate::diag::Diagnostics;
use crate::messages::body as messages;
use crate::spec::body::may_be_constant;

/// The distribution of a tensor before training.
#[derive(Clone, Debug)]
pub(crate) enum Distribution {
    Zeros,
    Ones,
    /// Every element is this number.
    Constant(Real),
    Normal {
        std: Real,
    },
    /// Normal within two standard deviations.
    TruncatedNormal {
        std: Real,
    },
    /// Between `-bound` and `bound`.
    Uniform {
        bound: Real,
    },
    XavierUniform,
    XavierNormal,
    KaimingUniform,
    KaimingNormal,
    Orthogonal,
    /// ALiBi's slope of every head: `[heads]`.
    AlibiSlopes,
}

impl Distribution {
    /// The distribution that a word of [`DISTRIBUTIONS`](super::keys::DISTRIBUTIONS) names.
    pub(crate) fn of(call: &Call) -> Self {
        match call.word.name {
            "ones" => Self::Ones,
            "normal" => Self::Normal {
                std: call.number("std"),
            },
            "truncated_normal" => Self::TruncatedNormal {
                std: call.number("std"),
            },
            "uniform" => Self::Uniform {
                bound: call.number("bound"),
            },
            "xavier_uniform" => Self::XavierUniform,
            "xavier_normal" => Self::XavierNormal,
            "kaiming_uniform" => Self::KaimingUniform,
            "kaiming_normal" => Self::KaimingNormal,
            "orthogonal" => Self::Orthogonal,
            "alibi_slopes" => Self::AlibiSlopes,
            _ => Self::Zeros,
        }
    }

    /// The number that must be positive, with its name for a message.
    pub(crate) fn scale(&self) -> Option<(&Real, &'static str)> {
        match self {
            Self::Normal { std } => Some((std, "std` of `normal")),
            Self::TruncatedNormal { std } => Some((std, "std` of `truncated_normal")),
            Self::Uniform { bound } => Some((bound, "bound` of `uniform")),
            _ => None,
        }
    }

    /// Its word, if it depends on the sizes of a matrix.
    pub(crate) fn of_matrices(&self) -> Option<&'static str> {
        match self {
            Self::XavierUniform => Some("xavier_uniform"),
            Self::XavierNormal => Some("xavier_normal"),
            Self::KaimingUniform => Some("kaiming_uniform"),
            Self::KaimingNormal => Some("kaiming_normal"),
            Self::Orthogonal => Some("orthogonal"),
            _ => None,
        }
    }

    /// The value of `init::Initial`, for a layer or a parameter of a model.
    pub(crate) fn emit(&self) -> Option<TokenStream> {
        let initial = match self {
            Self::Zeros => quote!(Constant { value: 0.0 }),
            Self::Ones => quote!(Constant { value: 1.0 }),
            Self::Constant(value) => quote!(Constant { value: (#value) as f64 }),
            Self::Normal { std } => quote!(Normal { std: (#std) as f64 }),
            Self::TruncatedNormal { std } => quote!(TruncatedNormal { std: (#std) as f64 }),
            Self::Uniform { bound } => quote!(Uniform { bound: (#bound) as f64 }),
            Self::XavierUniform => quote!(XavierUniform),
            Self::XavierNormal => quote!(XavierNormal),
            Self::KaimingUniform => quote!(KaimingUniform),
            Self::KaimingNormal => quote!(KaimingNormal),
            Self::Orthogonal => quote!(Orthogonal),
            // Only the body of an attention takes this word.
            Self::AlibiSlopes => return None,
        };
        Some(quote!(p::init::Initial::#initial))
    }
}

/// The text as a user writes it.
impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => f.write_str("zeros"),
            Self::Ones => f.write_str("ones"),
            Self::Constant(value) => write!(f, "{value}"),
            Self::Normal { std } => write!(f, "normal({std})"),
            Self::TruncatedNormal { std } => write!(f, "truncated_normal({std})"),
            Self::Uniform { bound } => write!(f, "uniform({bound})"),
            Self::AlibiSlopes => f.write_str("alibi_slopes"),
            other => f.write_str(other.of_matrices().unwrap_or_default()),
        }
    }
}

/// The initial values of a learned tensor: a word of `key` or a number. `name` gets the constants in the arguments of a word.
pub(crate) fn parse(
    tokens: &TokenStream,
    key: &'static Key,
    cx: &Diagnostics,
    name: &mut dyn FnMut(&mut dyn Constant),
) -> Option<Distribution> {
    let list: Vec<_> = tokens.clone().into_iter().collect();
    let is_word = match list.as_slice() {
        [TokenTree::Ident(name)] | [TokenTree::Ident(name), TokenTree::Group(_)] => {
            !may_be_constant(name)
        }
        _ => false,
    };
    if is_word {
        let mut call = word::parse_single(tokens, key, key.words(), cx)?;
        call.constants().for_each(name);
        return Some(Distribution::of(&call));
    }
    let number = syn::parse2(tokens.clone()).ok();
    let number = number.and_then(|expr| Real::from_expr(&expr));
    if number.is_none() {
        cx.error(tokens, messages::expected_initializer(tokens, key));
    }
    number.map(Distribution::Constant)
}

/// The fans of a tensor of these sizes, as PyTorch has them: of a matrix `[out, in]`, `in` and `out`.
pub(crate) fn fans(dims: &[Size]) -> Option<[Size; 2]> {
    let [output, input, rest @ ..] = dims else {
        return None;
    };
    let times = |size: &Size| rest.iter().fold(size.clone(), |size, by| size.times(by));
    Some([times(input), times(output)])
}
