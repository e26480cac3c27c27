//! From tokens to a checked [`Spec`].
//!
//! [`parse`] never fails: it returns the parts that it understood as [`Draft`]s and reports the rest. [`check`] applies defaults
//! and rules. It reports a broken rule and continues with a valid value.

pub(crate) mod arithmetic;
pub(crate) mod body;
mod check;
mod claims;
pub(crate) mod distribution;
pub(crate) mod elsewhere;
pub(crate) mod grid;
pub(crate) mod keys;
mod mask;
pub(crate) mod not_constant;
pub(crate) mod parse;
mod position;
pub(crate) mod receiver;
pub(crate) mod rope_keys;
mod rotary;
mod rules;
mod talking;
pub(crate) mod text;
pub(crate) mod value;
mod word;

use std::fmt;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, Visibility};

pub(crate) use body::{Body, ParamDecl};
pub(crate) use check::{ABOUT_QUERIES, check};
pub(crate) use distribution::{Distribution, fans};
pub(crate) use grid::{Coordinate, Grid};
pub(crate) use mask::{Align, Atom, MaskExpr, parse as parse_mask};
pub(crate) use parse::{expect, has_next_entry, parse, parse_crate, tokens_of_entry};
pub(crate) use rules::Rules;
pub(crate) use talking::TalkingHeads;
pub(crate) use value::{Real, Size};
pub(crate) use word::{
    Call, parse_number, parse_numbers, parse_size, split_at_commas, without_parentheses,
};

use crate::score::prove::{Claim, Subject, Verdict};
use crate::score::{Expr, builtin};

/// A layer as it was declared, complete and consistent.
pub(crate) struct Spec {
    pub(crate) item: Item,
    pub(crate) heads: Size,
    pub(crate) kv_heads: Size,
    pub(crate) d_model: Size,
    /// Width of a query and a key, per head. With an additive score this is its `hidden`, and 0 if there are none.
    pub(crate) head_dim: Size,
    pub(crate) value_head_dim: Size,
    /// Width of the second input, if there is one.
    pub(crate) d_context: Option<Size>,
    /// Width of the third input, if there is one: then the second gives the keys alone.
    pub(crate) d_values: Option<Size>,
    /// Where the tokens stand, if that is on a grid.
    pub(crate) grid: Option<Grid>,
    /// Queries, keys and values are the inputs: there are no projections. This is the width of a query and a key, used or not.
    pub(crate) of_operands: Option<Size>,
    pub(crate) mask: MaskExpr,
    pub(crate) score: Score,
    /// `None` is 1.
    pub(crate) scale: Option<Real>,
    pub(crate) softcap: Option<Real>,
    /// The normalizer of the header or of the body.
    pub(crate) normalizer: Normalizer,
    pub(crate) position: Position,
    pub(crate) qk_norm: QkNorm,
    pub(crate) talking_heads: TalkingHeads,
    pub(crate) bias: Projections,
    /// `None` is 0.
    pub(crate) dropout: Option<Real>,
    pub(crate) init: Option<Distribution>,
    pub(crate) body: Body,
    /// The names of the keys that were given, with their values as written.
    pub(crate) written: Vec<(&'static str, String)>,
    /// The items that evaluate what only rustc can.
    pub(crate) constants: Vec<TokenStream>,
    /// Rules over sizes that only rustc can evaluate.
    pub(crate) assertions: Vec<Assertion>,
    /// There was a mistake: the item is emitted so that its uses compile with any arguments.
    pub(crate) poisoned: bool,
}

impl Spec {
    /// What another declaration of the same layer has otherwise, in the words of both.
    pub(crate) fn difference(&self, other: &Spec) -> Option<[String; 2]> {
        let sizes = [self, other].map(Spec::sizes);
        let [known, found] = &sizes;
        if let Some(at) = (0..known.len()).find(|at| known[*at] != found[*at]) {
            return Some(sizes.each_ref().map(|sizes| match &sizes[at] {
                (name, Some(size)) => format!("`{name} = {size}`"),
                ("d_context", None) => "keys of its own sequence".to_owned(),
                (name, None) => format!("no `{name}`"),
            }));
        }
        let written = |spec: &Spec, key: &str| {
            let mut written = spec.written.iter();
            let found = written.find(|(name, _)| *name == key);
            found.map_or_else(
                || format!("no `{key}`"),
                |(_, value)| format!("`{key} = {value}`"),
            )
        };
        // These are about the layer when it is made, and about a claim that was checked.
        let is_other = |name: &str| matches!(name, "init" | "ensure");
        let is_size = |name: &str| known.iter().any(|(size, _)| *size == name);
        let keys = keys::KEYS.iter().map(|key| key.name);
        let mut pairs = keys
            .filter(|name| !is_size(name) && !is_other(name))
            .map(|key| [self, other].map(|spec| written(spec, key)));
        let differ = pairs.find(|[known, found]| known != found);
        let positions = [self, other].map(|spec| match &spec.position {
            Position::Rope(Rotary { position_ids, .. }) if *position_ids => "`position_ids`",
            _ => "no `position_ids`",
        });
        let differ =
            differ.or_else(|| (positions[0] != positions[1]).then(|| positions.map(str::to_owned)));
        differ.or_else(|| {
            let [a, b] = [&self.body, &other.body];
            let tensors = |body: &Body| {
                let params = body.params.iter();
                let params = params.map(|param| (param.name.to_string(), param.dims.clone()));
                let data = body.data.iter();
                let data = data.map(|data| (data.text(), data.ty, data.dims.clone()));
                (params.collect::<Vec<_>>(), data.collect::<Vec<_>>())
            };
            let is_same = a.score == b.score
                && a.mask == b.mask
                && self.normalizer == other.normalizer
                && tensors(a) == tensors(b);
            (!is_same).then(|| ["its body", "another body"].map(str::to_owned))
        })
    }

    /// The sizes by their keys.
    fn sizes(&self) -> [(&'static str, Option<Size>); 7] {
        let sizes = [
            ("heads", Some(&self.heads)),
            ("kv_heads", Some(&self.kv_heads)),
            ("head_dim", Some(&self.head_dim)),
            ("value_head_dim", Some(&self.value_head_dim)),
            ("d_model", Some(&self.d_model)),
            ("d_context", self.d_context.as_ref()),
            ("d_values", self.d_values.as_ref()),
        ];
        sizes.map(|(name, size)| (name, size.cloned()))
    }

    /// The inputs with keys and values, besides `x`: each with its width.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&'static str, &Size)> {
        let context = self.d_context.iter().map(|width| ("context", width));
        let values = self.d_values.iter().map(|width| ("values", width));
        context.chain(values)
    }

    /// The input that gives the keys, and its width.
    pub(crate) fn source_of_keys(&self) -> (&'static str, &Size) {
        self.sources().next().unwrap_or(("x", &self.d_model))
    }

    /// The input that gives the values, and its width.
    pub(crate) fn source_of_values(&self) -> (&'static str, &Size) {
        self.sources().last().unwrap_or(("x", &self.d_model))
    }

    /// The conjunction of the masks of the header and of the body. `None` is no mask.
    pub(crate) fn predicate(&self) -> Option<Expr> {
        let header = (!self.mask.is_none()).then(|| builtin::mask(&self.mask, self.grid.as_ref()));
        match (header, self.body.mask.clone()) {
            (Some(header), Some(body)) => Some(header & body),
            (header, body) => header.or(body),
        }
    }

    /// The layer's mask, as the subject of proofs.
    pub(crate) fn subject<'a>(&'a self, predicate: &'a Expr) -> Subject<'a> {
        Subject {
            mask: predicate,
            cross: self.d_context.is_some(),
            heads: &self.heads,
            positive: self.lengths(),
        }
    }

    /// The sizes that its definitions compare with and divide by. None of them is 0.
    fn lengths(&self) -> Vec<Size> {
        let of_grid = self.grid.iter().flat_map(Grid::lengths);
        self.mask.lengths().into_iter().chain(of_grid).collect()
    }

    /// Whether no query attends to a key with a greater index.
    pub(crate) fn looks_back(&self) -> Verdict {
        let predicate = self.predicate().unwrap_or(Expr::Bool(true));
        let before = Claim::Within(builtin::causal(Align::UpperLeft));
        self.subject(&predicate).decide(&before)
    }
}

/// A dimension of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Dim {
    Batch,
    Query,
    Key,
    Size(Size),
}

/// The notation of a body.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Batch => f.write_str("batch"),
            Dim::Query => f.write_str("q_len"),
            Dim::Key => f.write_str("kv_len"),
            Dim::Size(size) => size.fmt(f),
        }
    }
}

/// The struct that is declared.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
}

impl Item {
    /// The `#[cfg]`s, which apply to all emitted items.
    pub(crate) fn cfgs(&self) -> impl Iterator<Item = &Attribute> {
        self.attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
    }
}

/// A condition for rustc to check, and the message at `at` if it does not hold.
#[derive(Clone)]
pub(crate) struct Assertion {
    pub(crate) at: TokenStream,
    pub(crate) condition: TokenStream,
    pub(crate) message: String,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Score {
    ScaledDot,
    Dot,
    Additive,
    Bilinear,
    /// The body computes the score without queries and keys: there are none.
    OfPlaces,
}

/// From the scores of a query to its weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Normalizer {
    Softmax,
    Softmax1,
    /// With a learned logit per head.
    Sink,
    Sparsemax,
    Entmax15,
    /// The weight is a function of the score and of the position.
    Elementwise(Expr),
}

impl Normalizer {
    /// The weight of a score, where that is a function of it.
    pub(crate) fn weight(&self) -> Option<&Expr> {
        match self {
            Self::Elementwise(weight) => Some(weight),
            _ => None,
        }
    }

    /// The function of the composed form, and the variant of the kernels. Of a function of the score that is the identity.
    pub(crate) fn names(&self) -> [&'static str; 2] {
        match self {
            Self::Softmax => ["softmax", "Softmax"],
            Self::Softmax1 => ["softmax1", "Softmax1"],
            Self::Sink => ["sink", "Sink"],
            Self::Sparsemax => ["sparsemax", "Sparsemax"],
            Self::Entmax15 => ["entmax15", "Entmax15"],
            Self::Elementwise(_) => ["identity", "Identity"],
        }
    }

    /// The field of what it learns.
    pub(crate) fn field(&self) -> Option<&'static str> {
        matches!(self, Self::Sink).then_some("sink")
    }

    /// Whether weights are divided by a sum of exponentials, which has a logarithm.
    pub(crate) fn has_sum(&self) -> bool {
        matches!(self, Self::Softmax | Self::Softmax1 | Self::Sink)
    }

    /// Whether it keeps a threshold of every query.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self, Self::Sparsemax | Self::Entmax15)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Position {
    None,
    Rope(Rotary),
    Alibi,
    RelPosBias {
        num_buckets: Size,
        max_distance: Size,
        /// No bucket is for keys after the query: the mask shows none.
        one_sided: bool,
    },
}

/// The rotation of queries and keys by their positions.
#[derive(Clone, Debug)]
pub(crate) struct Rotary {
    pub(crate) theta: Real,
    /// How the frequencies are scaled. `None` is not at all.
    pub(crate) scaling: Option<Call>,
    /// How many coordinates of a head are rotated.
    pub(crate) dims: Size,
    /// Whether pairs are neighbours.
    pub(crate) interleaved: bool,
    /// Whether the call passes the positions.
    pub(crate) position_ids: bool,
}

impl Rotary {
    /// The value of `attn_core`'s type.
    pub(crate) fn tokens(&self) -> TokenStream {
        let Rotary {
            theta,
            dims,
            interleaved,
            ..
        } = self;
        let scaling = match &self.scaling {
            None => quote!(p::RopeScaling::None),
            Some(call) => {
                let variant = match call.word.name {
                    "linear" => "Linear",
                    "ntk" => "Ntk",
                    "dynamic_ntk" => "DynamicNtk",
                    "llama3" => "Llama3",
                    "longrope" => "LongRope",
                    _ => "Yarn",
                };
                let variant = quote::format_ident!("{variant}");
                let fields = call.fields();
                let fields = fields.map(|(name, value)| quote!(#name: #value));
                quote!(p::RopeScaling::#variant { #(#fields),* })
            }
        };
        quote!(p::Rotary { dims: #dims, theta: #theta, scaling: #scaling, interleaved: #interleaved })
    }

    /// Whether the angles depend on the length of the sequence.
    pub(crate) fn depends_on_len(&self) -> bool {
        self.longrope().is_some() || self.changes_with_len()
    }

    /// Whether every length has angles of its own, so that a session would turn all keys again for each token.
    pub(crate) fn changes_with_len(&self) -> bool {
        let scaling = self.scaling.as_ref();
        scaling.is_some_and(|scaling| scaling.word.name == "dynamic_ntk")
    }

    /// The scaling that has angles of short sequences and others of long ones.
    pub(crate) fn longrope(&self) -> Option<&Call> {
        let scaling = self.scaling.as_ref();
        scaling.filter(|scaling| scaling.word.name == "longrope")
    }
}

/// The norm of queries and keys, with its epsilon.
#[derive(Clone, Debug)]
pub(crate) enum QkNorm {
    None,
    Rms(GainKind, Real),
    L2(Real),
}

/// The learned factor of a norm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GainKind {
    One,
    Factor,
    /// One more than what is learned.
    OnePlus,
}

impl GainKind {
    /// By a word of the key `gain`.
    pub(crate) fn of(word: Option<&str>) -> Self {
        match word {
            Some("false") => Self::One,
            Some("one_plus") => Self::OnePlus,
            _ => Self::Factor,
        }
    }

    /// The variant of `Gain`, of what is learned.
    pub(crate) fn tokens(self, learned: impl FnOnce() -> TokenStream) -> TokenStream {
        match self {
            Self::One => quote!(p::Gain::One),
            Self::Factor => {
                let learned = learned();
                quote!(p::Gain::Factor(#learned))
            }
            Self::OnePlus => {
                let learned = learned();
                quote!(p::Gain::OnePlus(#learned))
            }
        }
    }
}

/// A yes or no for each of the four projections.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Projections {
    pub(crate) q: bool,
    pub(crate) k: bool,
    pub(crate) v: bool,
    pub(crate) o: bool,
}

impl Projections {
    pub(crate) const fn all(value: bool) -> Self {
        Projections {
            q: value,
            k: value,
            v: value,
            o: value,
        }
    }
}
