//! Everything from queries, keys and values to the attended values of all heads. Scores and weights never stand in memory.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{HeadTransform, LayerDescription, LayerOp, product};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::emit::tracked_code;
use crate::emit::{ComposedNode, ExecMode, LayerFrame, LayerNode, ParameterGradient};
use crate::graph::block::axis;
use crate::model::graph::ValueId;
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term};
use crate::ops::{Emit, Fusion, Gradient, Kept, Op, Properties, Saved};
use crate::score::Expr;
use crate::score::split::{self, BiasTerm, Parts};
use crate::spec::{Dim, Normalizer, Real, TalkingHeads};

/// The operands: queries, keys and values.
#[derive(Clone)]
pub(crate) struct Attend {
    pub(crate) similarity: Similarity,
    /// The functions that are applied to a score, in this order.
    pub(crate) functions: Vec<Expr>,
    /// The keys that a query attends to; `None` is all of them.
    pub(crate) mask: Option<Expr>,
    pub(crate) normalizer: Normalizer,
    /// What the heads mix: the scores before the mask, the weights before dropout.
    pub(crate) talking: TalkingHeads,
    /// The probability with which weights fall while training.
    pub(crate) dropout: Option<Real>,
    /// The functions, and the weight if that is a function of the score, as the kernels take them: [`Attend::split`].
    pub(crate) parts: Option<Parts>,
    /// The transform of each operand as it is loaded.
    pub(crate) loads: Vec<HeadTransform>,
    /// How many operands behind these the functions read.
    pub(crate) given: usize,
}

/// The score of a query and a key, before any function of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Similarity {
    /// `q · k`
    Dot,
    /// `w · tanh(q + k)`, with the weights in this field.
    Additive { field: &'static str },
    /// 0. The first operand is then the input that has as many rows as there are queries, and there are no keys.
    None,
}

impl Similarity {
    /// The field of what it learns.
    pub(crate) fn field(self) -> Option<&'static str> {
        match self {
            Similarity::Additive { field } => Some(field),
            Similarity::Dot | Similarity::None => None,
        }
    }
}

impl Attend {
    /// Whether a trainer may round the operands of its products to bf16.
    pub(crate) fn rounds_products(&self) -> bool {
        matches!(self.similarity, Similarity::Dot | Similarity::None) && !self.talking.is_any()
    }

    /// The expressions that are evaluated for a query and a key.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let others = [self.normalizer.weight(), self.mask.as_ref()];
        self.functions.iter().chain(others.into_iter().flatten())
    }

    /// The function of the scores as the kernels take it, and the operands that they read: queries and keys of width 0 are none. `None`
    /// if the kernels do not know what the functions read.
    pub(crate) fn split(&self, operands: &[ValueId]) -> Option<(Attend, Vec<ValueId>)> {
        // The weight of a mixed score is a function by itself.
        let weight = self.normalizer.weight().filter(|_| !self.talking.scores);
        let functions = self.functions.iter().chain(weight);
        let score = functions.fold(Expr::SCORE, |score, function| function.of(&score));
        let is_additive = matches!(self.similarity, Similarity::Additive { .. });
        let unread = usize::from(self.similarity == Similarity::None);
        let attend = Attend {
            parts: Some(split::split(&score, !is_additive)?),
            loads: self.loads[unread..].to_vec(),
            ..self.clone()
        };
        Some((attend, operands[unread..].to_vec()))
    }

    /// From the similarity to what the normalizer takes, or to the weight if that is a function of the score: an expression of the
    /// score and of the bias terms. `None` is the identity.
    pub(crate) fn score(&self) -> Option<&Expr> {
        self.parts.as_ref()?.value.as_ref()
    }

    /// The factor of the product of query and key. `None` is 1.
    pub(crate) fn scale(&self) -> Option<&Real> {
        self.parts.as_ref()?.scale.as_ref()
    }

    /// From a mixed score to the weight, if that is a function of it.
    pub(crate) fn weight_of_mixed(&self) -> Option<&Expr> {
        self.normalizer.weight().filter(|_| self.talking.scores)
    }

    /// The numbers of the place that it reads.
    pub(crate) fn bias_terms(&self) -> &[BiasTerm] {
        let parts = self.parts.as_ref();
        parts.map_or(&[], |parts| &parts.bias_terms)
    }

    /// The transforms of queries and keys as they are loaded, if there are any.
    pub(crate) fn vectors_mut(&mut self) -> &mut [HeadTransform] {
        let vectors = self.loads.len() - 1;
        &mut self.loads[..vectors]
    }

    /// The transforms of queries, keys and values.
    pub(crate) fn transforms(&self) -> [HeadTransform; 3] {
        match self.loads.as_slice() {
            [query, key, value] => [query, key, value].map(HeadTransform::clone),
            loads => {
                let values = loads.last().cloned();
                [None, None, values].map(Option::unwrap_or_default)
            }
        }
    }
}

impl Op for Attend {
    fn properties(&self) -> Properties<'_> {
        Properties {
            // The sum of the weights' gradients, weighted, is a product of the result and its gradient.
            saved: Saved::OperandsAndResult,
            kept: Some(Kept::Array),
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        let vectors = operands - self.given;
        let mut gradients = vec![Gradient::Computed; operands];
        gradients[..vectors].fill(Gradient::Together);
        gradients
    }
}

impl LayerOp for Attend {
    fn description(&self) -> LayerDescription<'_> {
        let learned = [self.similarity.field(), self.normalizer.field()];
        let learned = learned.into_iter().chain(self.talking.fields());
        LayerDescription {
            fields: learned.flatten().collect(),
            attention: Some(self),
            ..LayerDescription::default()
        }
    }

    fn products(&self, operands: &[&Type], result: &Type) -> Vec<Vec<Axis>> {
        let keys = axis(&Dim::Key);
        let weights = result.ending_in_axis(keys.clone());
        let scores = match self.similarity {
            Similarity::None => None,
            _ => Some(product(&weights, operands[0].axes.last())),
        };
        // A sum over the heads for every pair.
        let mixed = self.talking.fields().into_iter().flatten();
        let mixed = mixed.map(|_| product(&weights, weights.axes.get(1)));
        scores
            .into_iter()
            .chain(mixed)
            .chain([product(result, Some(&keys))])
            .collect()
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        self.write_onnx(of)
    }
}

impl Emit<LayerFrame<'_>> for Attend {
    /// What is wanted beside the output is `seen` and `lse`. What is computed of the weights adds to their gradient.
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let ty = of.weights_type();
        let x = of.operand(0);
        let scores = match self.similarity {
            Similarity::Dot => {
                let keys = of.operand(1);
                quote!(p::dot_scores(#x, #keys)?)
            }
            Similarity::Additive { field } => {
                let keys = of.operand(1);
                let weight = of.weight(field);
                quote!(p::additive_scores(#x, #keys, #weight)?)
            }
            Similarity::None => quote!(p::zero_scores(#x, axes.2)?),
        };
        let functions = self.functions.iter().map(|expr| of.map_scores(expr));
        let weight_of_score = self.normalizer.weight().map(|expr| of.map_scores(expr));
        let [mix_scores, mix_weights] = self.talking.fields().map(|field| {
            let field = of.weight(field?);
            Some(field)
        });
        let mix_scores =
            mix_scores.map(|matrix| quote!(let scores: #ty = p::mix_heads(scores, #matrix)?;));
        let mix_weights =
            mix_weights.map(|matrix| quote!(let weights: #ty = p::mix_heads(weights, #matrix)?;));
        let (line, mask) = match &self.mask {
            Some(mask) => (of.mask(mask), quote!(Some(mask))),
            None => (TokenStream::new(), quote!(None)),
        };
        let normalizer = format_ident!("{}", self.normalizer.names()[0]);
        let learned = self.normalizer.field().map(|field| {
            let weight = of.weight(field);
            quote!(, #weight)
        });
        let dropout = self.dropout.as_ref().map(|p| {
            quote! {
                let weights: #ty = match (train && T::OWNS_TAPE).then(|| p::RandomU64::random_u64(&device)) {
                    Some(key) => p::dropout(weights, #p, key)?,
                    None => weights,
                };
            }
        });
        let lse_type = of.lse_type();
        let lse = match self.normalizer.has_sum() {
            false => quote!(None),
            true => {
                let function = format_ident!("{normalizer}_lse");
                let mask = self.mask.as_ref().map(|_| quote!(p::Clone::clone(&mask)));
                let mask = mask.map_or(quote!(None), |mask| quote!(Some(#mask)));
                quote! {
                    match wanted.lse {
                        true => Some(p::#function(scores.retaped::<T>(), #mask #learned)?),
                        false => None,
                    }
                }
            }
        };
        let values = of.operand_before(self.given);
        let attended = of.define(&quote!(p::attend(weights, #values)?));
        quote! {
            let scores: #ty = #scores;
            #(#functions)*
            #mix_scores
            #weight_of_score
            #line
            let lse: Option<#lse_type> = #lse;
            let weights: #ty = p::#normalizer(scores, #mask #learned)?;
            #mix_weights
            #dropout
            let seen = wanted.weights.then(|| weights.retaped::<p::NoneTape>());
            #attended
        }
    }

    fn footprints(&self, of: &LayerNode<'_>) -> Footprints {
        let [heads, width] = of.heads();
        let learned = self.parameter_gradients(of).into_iter();
        let learned: Vec<_> = learned.flat_map(|gradient| gradient.footprints).collect();
        // The kernel computes as many numbers as are attended, and the thresholds again. Where heads talk, it has all weights of a query.
        let centres = (self.normalizer.is_sparse() && !self.talking.is_any())
            .then(|| quote!(p::Footprint::backward_only(&[batch, #heads, query, (#width) + 1])));
        Footprints {
            forward: Some(tracked_code::array(&[
                quote!(batch),
                quote!(#heads),
                quote!(query),
            ])),
            backward: tracked_code::at_once(&[], &learned, centres.as_slice()),
        }
    }

    fn forward(&self, of: &LayerNode<'_>, to: &Output) -> TokenStream {
        let operands = vectors(self.vectors_of(of.matrices()), "Matrix");
        let attention = of.attention(self);
        let y = to.matrix();
        match of.mode() {
            ExecMode::Forward => quote!(#attention.forward_with_lse(#(#operands,)* #y, beside)),
            ExecMode::Session if of.is_cross() => {
                let [queries, ..] = operands;
                quote!(cache.attend(new, &#attention, #queries, #y, lse))
            }
            ExecMode::Session => of.attention_of_tokens(self, &operands, y),
            // Attention is computed for tokens alone.
            ExecMode::Start => TokenStream::new(),
        }
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &Gradients) -> TokenStream {
        let operands = vectors(self.vectors_of(of.matrices()), "Matrix");
        let attended = of.matrix_of_result();
        let lse = of.kept();
        let d_attended = gradients.matrix();
        let attention = of.attention(self);
        let learned = self.parameter_gradients(of);
        let makes = learned.iter().map(|gradient| &gradient.make);
        let adds = learned.iter().map(|gradient| &gradient.add);
        let [query, key, w, sink, mix_scores, mix_weights, score] =
            learned.each_ref().map(|gradient| &gradient.argument);
        let (split, to) = of.gradients_mut(gradients, self.given);
        let [to_q, to_k, to_v] = vectors(to, "MatrixMut");
        let lines = quote! {
            #(#makes)*
            #split
            #attention.backward_with_lse(
                #(#operands,)*
                #attended,
                #lse,
                #d_attended,
                d_beside,
                p::AttentionGradients {
                    q: #to_q,
                    k: #to_k,
                    v: #to_v,
                    score: #score,
                    query_gain: #query,
                    key_gain: #key,
                    w: #w,
                    sink: #sink,
                    mix_scores: #mix_scores,
                    mix_weights: #mix_weights,
                },
            );
            #(#adds)*
        };
        match learned.iter().all(|gradient| gradient.make.is_empty()) {
            true => lines,
            // Their memory goes with the block.
            false => quote!({ #lines }),
        }
    }
}

impl Attend {
    /// Those of queries, keys and values.
    fn vectors_of(&self, mut operands: Vec<TokenStream>) -> Vec<TokenStream> {
        operands.truncate(operands.len() - self.given);
        operands
    }

    /// The gradients of what it learns: of the gains of queries and keys, of additive scores, of the sink, of the matrices that mix heads,
    /// of the score's function.
    fn parameter_gradients(&self, of: &LayerNode<'_>) -> [ParameterGradient; 7] {
        let [query, key, _] = self.transforms();
        let [mix_scores, mix_weights] = self.talking.fields();
        [
            of.parameter_gradient(query.gain(), "d_query_gain", "as_mut_slice"),
            of.parameter_gradient(key.gain(), "d_key_gain", "as_mut_slice"),
            of.parameter_gradient(self.similarity.field(), "d_w", "view_mut"),
            of.parameter_gradient(self.normalizer.field(), "d_sink", "as_mut_slice"),
            of.parameter_gradient(mix_scores, "d_mix_scores", "view_mut"),
            of.parameter_gradient(mix_weights, "d_mix_weights", "view_mut"),
            of.score_gradient(self),
        ]
    }
}

/// Queries, keys and values, where the first two may be missing: then they have no columns.
pub(crate) fn vectors(mut found: Vec<TokenStream>, ty: &str) -> [TokenStream; 3] {
    let values = found.pop().unwrap_or_default();
    let ty = format_ident!("{ty}");
    let [queries, keys] = found.try_into().unwrap_or_else(|_| {
        ["queries", "keys"]
            .map(|rows| format_ident!("{rows}"))
            .map(|rows| quote!(p::#ty::without_cols(sizes.#rows())))
    });
    [queries, keys, values]
}
