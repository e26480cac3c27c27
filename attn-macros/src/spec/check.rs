//! Defaults and rules: [`Draft`] to [`Spec`].
//!
//! A rule over sizes is decided here if the sizes are known. If one is the user's `const`, the same rule becomes an [`Assertion`]
//! for rustc. After a broken rule the spec continues with a valid value.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;

use super::body::{self, Body};
use super::claims::Masked;
use super::parse::{Draft, Entry, Value};
use super::rules::Rules;
use super::value::{Constant, Real, Size};
use super::word::Call;
use super::{
    Assertion, Atom, Distribution, GainKind, Grid, MaskExpr, Normalizer, Position, Projections,
    QkNorm, Score, Spec, text,
};
use crate::diag::Diagnostics;
use crate::messages;
use crate::score::eval::LARGEST_INTEGER;
use crate::score::{Expr, builtin};

/// Far above any layer, and low enough that products of three sizes stay in range.
pub(super) const LARGEST_SIZE: u64 = 1 << 20;
/// The keys that concern the score of queries and keys.
pub(crate) const ABOUT_QUERIES: [&str; 8] = [
    "head_dim",
    "d_values",
    "score",
    "scale",
    "softcap",
    "position",
    "bidirectional",
    "qk_norm",
];
/// Window, chunk and prefix lengths are compared with indices: they may be larger than any sequence.
pub(super) const LARGEST_LENGTH: u64 = LARGEST_INTEGER as u64;

/// The complete spec of `draft`.
pub(crate) fn check(mut draft: Draft, krate: &TokenStream, cx: &Diagnostics) -> Spec {
    let before = cx.count();
    let constants = name_constants(&mut draft);
    let checker = Checker {
        draft: &draft,
        krate,
        cx,
        constants,
        assertions: Vec::new(),
        sound: Vec::new(),
    };
    let mut spec = checker.spec();
    spec.written = draft
        .entries
        .iter()
        .map(|entry| (entry.key.name, text::of(&entry.origin)))
        .collect();
    spec.poisoned = draft.poisoned || cx.count() > before;
    spec.item = draft.item;
    spec
}

/// Gives every value that only rustc can evaluate a named constant.
fn name_constants(draft: &mut Draft) -> Vec<TokenStream> {
    let mut constants = Vec::new();
    let layer = draft.item.name.unraw();
    for entry in &mut draft.entries {
        let key = entry.key.name;
        let mut index = 0;
        entry.value.for_each_constant(&mut |value| {
            index += 1;
            let name = match index {
                1 => format_ident!("__{layer}_{key}"),
                _ => format_ident!("__{layer}_{key}_{index}"),
            };
            constants.extend(value.name(&name));
        });
    }
    constants
}

pub(super) struct Checker<'a> {
    draft: &'a Draft,
    krate: &'a TokenStream,
    pub(super) cx: &'a Diagnostics,
    constants: Vec<TokenStream>,
    assertions: Vec<Assertion>,
    /// The size keys that were given and are within bounds: rules about others would only repeat an error.
    sound: Vec<&'static str>,
}

impl Checker<'_> {
    fn spec(mut self) -> Spec {
        let before = self.cx.count();
        let d_model = self.required("d_model", 64);
        let heads = self.heads(&d_model);
        let kv_heads = self.kv_heads(&heads);
        let d_context = self.size("d_context");
        let d_values = self.size("d_values");
        if d_values.is_some() && !self.has("d_context") {
            self.contradiction("d_values", messages::VALUES_WITHOUT_CONTEXT);
        }
        let score_call = self.word("score");
        let score = self.score();
        let per_head = d_model.over(&heads, self.krate);
        let head_dim = self.head_dim(score, score_call.as_ref(), &per_head);
        let value_head_dim = self.value_head_dim(score, &head_dim, per_head);
        let qk_norm = self.qk_norm(score);
        let grid = self.grid(d_context.is_some());
        let mask = self.mask(d_context.is_some(), grid.as_ref());
        let mut mask_is_sound = mask.is_some() && !self.draft.body.poisoned;
        let spec = Spec {
            scale: self.scale(score, &head_dim),
            softcap: self
                .positive("softcap")
                .filter(|_| score != Score::OfPlaces),
            normalizer: self.normalizer(),
            bias: self.bias(),
            dropout: self.dropout(),
            init: self.init(),
            heads,
            kv_heads,
            d_model,
            head_dim,
            value_head_dim,
            d_values: d_values.filter(|_| d_context.is_some()),
            d_context,
            grid,
            of_operands: self.draft.of_operands.clone(),
            mask: mask.unwrap_or_else(MaskExpr::none),
            score,
            position: Position::None,
            qk_norm,
            talking_heads: self.talking_heads(),
            item: super::Item {
                attrs: Vec::new(),
                vis: syn::Visibility::Inherited,
                name: self.draft.item.name.clone(),
            },
            written: Vec::new(),
            constants: Vec::new(),
            assertions: Vec::new(),
            poisoned: false,
            body: Body::default(),
        };
        let before_body = self.cx.count();
        let body = self.body(&spec);
        if self.cx.count() == before_body {
            self.without_queries();
        }
        if self.cx.count() == before && !self.draft.poisoned {
            self.grid_is_read(&spec.mask, self.draft.body.reads_grid());
        }
        let spec = Spec {
            normalizer: body.normalizer.clone().unwrap_or(spec.normalizer),
            body,
            ..spec
        };
        if self.cx.count() == before {
            self.mixed_pairs(&spec);
        }
        mask_is_sound &= self.cx.count() == before_body;
        let spec = Spec {
            position: self.position(&spec, mask_is_sound),
            ..spec
        };
        if self.cx.count() == before && !self.draft.poisoned {
            self.claims(&spec);
        }
        Spec {
            constants: self.constants,
            assertions: self.assertions,
            ..spec
        }
    }

    /// The body, which may name the sizes of `spec`.
    fn body(&mut self, spec: &Spec) -> Body {
        let mut sizes = vec![
            ("heads", &spec.heads),
            ("kv_heads", &spec.kv_heads),
            ("d_model", &spec.d_model),
        ];
        if spec.score != Score::OfPlaces {
            sizes.push(("head_dim", &spec.head_dim));
        }
        sizes.push(("value_head_dim", &spec.value_head_dim));
        sizes.extend(spec.d_context.as_ref().map(|size| ("d_context", size)));
        sizes.extend(spec.d_values.as_ref().map(|size| ("d_values", size)));
        let prefix = spec.grid.as_ref().and_then(|grid| grid.prefix.as_ref());
        sizes.extend(prefix.map(|size| ("prefix_tokens", size)));
        let draft = self.draft;
        // Names of the layer, and those that the body declares, hide the sizes of the model.
        let around = draft.sizes_around.iter();
        let around = around.filter(|(name, _)| !draft.body.declares(name));
        let around: Vec<_> = around
            .map(|(name, size)| (name.unraw().to_string(), size))
            .filter(|(name, _)| !sizes.iter().any(|(known, _)| known == name))
            .collect();
        sizes.extend(around.iter().map(|(name, size)| (name.as_str(), *size)));
        body::check(&draft.body, (&sizes, spec.grid.as_ref()), self)
    }

    /// Whether queries, keys and values are the inputs.
    pub(super) fn has_vectors(&self) -> bool {
        self.draft.of_operands.is_some()
    }

    /// Gives a value in the body that only rustc can evaluate a named constant.
    pub(super) fn name_constant(&mut self, value: &mut dyn Constant) {
        let layer = self.draft.item.name.unraw();
        let name = format_ident!("__{layer}_body_{}", self.constants.len() + 1);
        self.constants.extend(value.name(&name));
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.draft.entry(key)
    }

    /// Whether the header has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Whether the value of `key` was not understood.
    pub(super) fn is_invalid(&self, key: &str) -> bool {
        let entry = self.entry(key);
        entry.is_some_and(|entry| matches!(entry.value, Value::Invalid))
    }

    /// The value of `key` as written, or the key if it is missing, for errors about the value.
    pub(super) fn origin(&self, key: &str) -> TokenStream {
        match self.entry(key) {
            Some(entry) if entry.origin.is_empty() => entry.name.to_token_stream(),
            Some(entry) => entry.origin.clone(),
            None => TokenStream::new(),
        }
    }

    pub(super) fn word(&self, key: &str) -> Option<Call> {
        match self.entry(key)?.value {
            Value::Word(ref call) => Some(call.clone()),
            _ => None,
        }
    }

    /// The word that `key` was given, or the default.
    pub(super) fn word_name(&self, key: &str, default: &'static str) -> &'static str {
        self.word(key).map_or(default, |call| call.word.name)
    }

    fn number(&self, key: &str) -> Option<Real> {
        match self.entry(key)?.value {
            Value::Number(ref number) => Some(number.clone()),
            _ => None,
        }
    }

    fn required(&mut self, key: &'static str, fallback: u64) -> Size {
        if self.entry(key).is_none() && self.draft.complete {
            self.cx.error(
                &self.draft.item.name,
                messages::missing_key(key, &self.draft.item.name),
            );
        }
        self.size(key).unwrap_or_else(|| Size::known(fallback))
    }

    /// A size key that is within bounds.
    fn size(&mut self, key: &'static str) -> Option<Size> {
        let Some(Entry {
            value: Value::Size(size),
            ..
        }) = self.entry(key)
        else {
            return None;
        };
        let size = size.clone();
        if !self.bounded(&size, key, LARGEST_SIZE) {
            return None;
        }
        self.sound.push(key);
        Some(size)
    }

    pub(super) fn are_sound(&self, keys: &[&'static str]) -> bool {
        keys.iter().all(|key| self.sound.contains(key))
    }

    /// The default width of a head is `d_model / heads`, which must have no remainder.
    fn heads(&mut self, d_model: &Size) -> Size {
        let heads = self.required("heads", 1);
        let given = match self.score() {
            Score::Additive | Score::OfPlaces => "value_head_dim",
            _ => "head_dim",
        };
        let is_operand = self.draft.of_operands.is_some();
        if is_operand || self.entry(given).is_some() || !self.are_sound(&["heads", "d_model"]) {
            return heads;
        }
        let comes_out = divides(d_model, &heads);
        let condition = unless_out_of_bounds(&[d_model, &heads], quote!(#d_model % #heads == 0));
        self.require(&heads.origin, comes_out, condition, || {
            messages::heads_do_not_divide(d_model, &heads)
        });
        heads
    }

    /// Query heads share key heads in groups of one size.
    fn kv_heads(&mut self, heads: &Size) -> Size {
        let Some(kv_heads) = self.size("kv_heads") else {
            return heads.clone();
        };
        if self.are_sound(&["heads"]) {
            let shared = match kv_heads.value {
                Some(1) => Some(true),
                _ => divides(heads, &kv_heads),
            };
            let condition =
                unless_out_of_bounds(&[heads, &kv_heads], quote!(#heads % #kv_heads == 0));
            let message = || messages::kv_heads_do_not_divide(heads, &kv_heads);
            self.require(&kv_heads.origin, shared, condition, message);
        }
        kv_heads
    }

    fn score(&self) -> Score {
        match self.word_name("score", "scaled_dot") {
            _ if self.draft.body.of_places().is_some() => Score::OfPlaces,
            "dot" => Score::Dot,
            "additive" => Score::Additive,
            "bilinear" => Score::Bilinear,
            _ => Score::ScaledDot,
        }
    }

    /// Queries and keys of an additive score are as wide as its hidden layer.
    fn head_dim(&mut self, score: Score, call: Option<&Call>, per_head: &Size) -> Size {
        let given = self.size("head_dim");
        match (score, call) {
            (Score::Additive, Some(call)) => {
                if self.entry("head_dim").is_some() {
                    self.contradiction("head_dim", messages::HEAD_DIM_WITH_ADDITIVE);
                }
                let hidden = call.size("hidden");
                self.bounded(&hidden, "hidden` of `additive", LARGEST_SIZE);
                if let Some(width) = &self.draft.of_operands {
                    let same = width.value.zip(hidden.value).map(|(a, b)| a == b);
                    let message = || messages::hidden_differs(&hidden, width);
                    self.require(&hidden.origin, same, quote!(#hidden == #width), message);
                }
                hidden
            }
            (Score::OfPlaces, _) => Size::known(0),
            _ => {
                let given = given.or_else(|| self.draft.of_operands.clone());
                given.unwrap_or_else(|| per_head.clone())
            }
        }
    }

    /// Keys of the header about queries and keys have an effect only if there are any.
    fn without_queries(&self) {
        let Some(kind) = self.draft.body.of_places() else {
            return;
        };
        for key in ABOUT_QUERIES {
            let is_none = self.word(key).is_some_and(|call| call.word.name == "none");
            if self.has(key) && !is_none {
                self.contradiction(key, &messages::body::without_queries(key, kind));
            }
        }
        let bias = self.bias();
        if (bias.q || bias.k) && bias != Projections::all(true) {
            self.contradiction("bias", &messages::body::bias_without_queries(kind));
        }
    }

    fn value_head_dim(&mut self, score: Score, head_dim: &Size, per_head: Size) -> Size {
        self.size("value_head_dim").unwrap_or_else(|| match score {
            Score::Additive | Score::OfPlaces => per_head,
            _ => head_dim.clone(),
        })
    }

    /// Two keys that exclude each other. The error is at the second one.
    pub(super) fn contradiction(&self, key: &str, message: &str) {
        self.cx.error(self.origin(key), message);
    }

    fn qk_norm(&mut self, score: Score) -> QkNorm {
        let call = self.word("qk_norm");
        let gain = call.as_ref().and_then(|call| call.choice("gain"));
        let gain = GainKind::of(gain.map(|gain| gain.word.name));
        let epsilon = call.as_ref().map(|call| call.number("epsilon"));
        let norm = match (self.word_name("qk_norm", "none"), epsilon) {
            _ if score == Score::OfPlaces => QkNorm::None,
            ("rms", Some(epsilon)) => QkNorm::Rms(gain, epsilon),
            ("l2", Some(epsilon)) => QkNorm::L2(epsilon),
            _ => QkNorm::None,
        };
        if let QkNorm::Rms(_, epsilon) | QkNorm::L2(epsilon) = &norm
            && !epsilon.origin.is_empty()
            && !self.is_positive(epsilon, "epsilon` of `qk_norm")
        {
            return QkNorm::None;
        }
        if score == Score::Additive && !matches!(norm, QkNorm::None) {
            self.contradiction("qk_norm", messages::QK_NORM_WITH_ADDITIVE);
            return QkNorm::None;
        }
        norm
    }

    /// A dot product needs the scale that keeps its variance; the other scores do not.
    fn scale(&mut self, score: Score, head_dim: &Size) -> Option<Real> {
        let given = self.positive("scale");
        if self.entry("scale").is_some() && matches!(score, Score::Dot | Score::Additive) {
            let message = if score == Score::Dot {
                messages::SCALE_WITH_DOT
            } else {
                messages::SCALE_WITH_ADDITIVE
            };
            self.contradiction("scale", message);
            return None;
        }
        match score {
            Score::OfPlaces => None,
            Score::ScaledDot => given.or_else(|| Some(Real::inverse_sqrt(head_dim))),
            _ => given,
        }
    }

    fn positive(&mut self, key: &'static str) -> Option<Real> {
        let number = self.number(key)?;
        self.is_positive(&number, key).then_some(number)
    }

    fn normalizer(&mut self) -> Normalizer {
        match self.word("normalizer") {
            Some(call) => self.normalizer_of(&call),
            None => Normalizer::Softmax,
        }
    }

    /// The normalizer that a word names.
    pub(super) fn normalizer_of(&mut self, call: &Call) -> Normalizer {
        match call.word.name {
            "softmax1" => Normalizer::Softmax1,
            "sink" => Normalizer::Sink,
            "sparsemax" => Normalizer::Sparsemax,
            "entmax15" => Normalizer::Entmax15,
            "sigmoid" => Normalizer::Elementwise(builtin::sigmoid()),
            "relu" => {
                let power = call.number("power");
                if !power.origin.is_empty() {
                    self.is_positive(&power, "power` of `relu");
                }
                Normalizer::Elementwise(builtin::relu(&power))
            }
            _ => Normalizer::Softmax,
        }
    }

    fn bias(&self) -> Projections {
        match self.entry("bias") {
            Some(Entry {
                value: Value::Projections(chosen),
                ..
            }) => *chosen,
            _ => Projections::all(true),
        }
    }

    fn dropout(&mut self) -> Option<Real> {
        let p = self.number("dropout")?;
        let holds = p.value.map(|value| (0.0..1.0).contains(&value));
        let condition = quote!(#p >= 0.0 && #p < 1.0);
        let kept = self.require(&p.origin, holds, condition, || {
            messages::dropout_out_of_range(&p)
        });
        (kept && p.value != Some(0.0)).then_some(p)
    }

    fn init(&mut self) -> Option<Distribution> {
        let init = Distribution::of(&self.word("init")?);
        let is_sound = match init.scale() {
            Some((scale, what)) => self.is_positive(scale, what),
            None => true,
        };
        is_sound.then_some(init)
    }

    /// `None` if the mask is not known, for a mistake that is reported.
    fn mask(&mut self, cross: bool, grid: Option<&Grid>) -> Option<MaskExpr> {
        let (mask, complete) = match self.entry("mask").map(|entry| &entry.value) {
            Some(Value::Mask { mask, complete }) => (mask.clone(), *complete),
            Some(_) => return None,
            None => return Some(MaskExpr::none()),
        };
        for atom in mask.atoms() {
            self.mask_word(atom, cross);
            self.grid_word(atom, grid);
        }
        for data in ["padding", "document"] {
            let mut again = mask.atoms().into_iter().filter(|atom| atom.name() == data);
            if let (Some(_), Some(second)) = (again.next(), again.next()) {
                self.cx
                    .error(&second.call.origin, messages::data_mask_twice(data));
            }
        }
        complete.then_some(mask)
    }

    /// Checks that its sizes are within bounds, and that it states the alignment where that is ambiguous.
    fn mask_word(&mut self, atom: &Atom, cross: bool) -> bool {
        let before = self.cx.count();
        for arg in ["n", "dilation"]
            .into_iter()
            .filter(|arg| atom.call.word.args.iter().any(|a| a.name == *arg))
        {
            let what = format!("{arg}` of `{}", atom.name());
            self.bounded(&atom.size(arg), &what, LARGEST_LENGTH);
        }
        if cross && atom.compares_positions() && atom.align().is_none() {
            self.cx
                .error(&atom.call.origin, messages::ambiguous_alignment(&atom.call));
        }
        self.cx.count() == before
    }

    /// Proves the claims of `ensure`.
    fn claims(&mut self, spec: &Spec) {
        let Some(Value::Claims(claims)) = self.entry("ensure").map(|entry| &entry.value) else {
            return;
        };
        let masked = Masked {
            spec,
            predicate: spec.predicate().unwrap_or(Expr::Bool(true)),
        };
        for call in claims.clone() {
            let atom = Atom { call };
            if self.mask_word(&atom, masked.cross()) {
                masked.check(&atom.call, self.cx);
            }
        }
    }
}

/// Whether `parts` divides `whole`, if both are known.
pub(super) fn divides(whole: &Size, parts: &Size) -> Option<bool> {
    let (whole, parts) = whole.value.zip(parts.value)?;
    Some(whole % parts == 0)
}

pub(super) fn is_bounded(size: &Size, largest: u64) -> TokenStream {
    quote!(#size >= 1 && #size as u64 <= #largest)
}

/// A rule about `sizes`, which holds if one of them is out of bounds: that is reported elsewhere.
pub(super) fn unless_out_of_bounds(sizes: &[&Size], rule: TokenStream) -> TokenStream {
    let unknown = sizes.iter().filter(|size| size.value.is_none());
    let bounded: Vec<_> = unknown.map(|size| is_bounded(size, LARGEST_SIZE)).collect();
    match bounded.is_empty() {
        true => rule,
        false => quote!(!(#(#bounded)&&*) || #rule),
    }
}

impl Rules for Checker<'_> {
    fn require(
        &mut self,
        at: &TokenStream,
        holds: Option<bool>,
        condition: TokenStream,
        message: impl FnOnce() -> String,
    ) -> bool {
        match holds {
            Some(true) => true,
            Some(false) => {
                self.cx.error(at, message());
                false
            }
            None => {
                self.assertions.push(Assertion {
                    at: at.clone(),
                    condition,
                    message: message(),
                });
                true
            }
        }
    }
}

impl ToTokens for Assertion {
    /// rustc underlines from the start of the assertion to its end, so these have the spans of the user's tokens.
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let spans = || self.at.clone().into_iter().map(|token| token.span());
        let start = spans().next().unwrap_or_else(Span::call_site);
        let end = spans().last().unwrap_or_else(Span::call_site);
        let condition = &self.condition;
        let message = &self.message;
        let start = quote_spanned!(start=> const _: () = ::core::assert!);
        tokens.extend(quote! {
            #[allow(clippy::all, clippy::pedantic)]
        });
        // The message is an argument, so its braces are not placeholders.
        tokens.extend(quote_spanned!(end=> #start(#condition, "{}", #message);));
    }
}
