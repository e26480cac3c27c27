//! Everything from queries, keys and values to the attended values of all heads. Scores and weights never stand in memory.

use proc_macro2::TokenStream;
use quote::quote;

use super::{FusedOp, FusedProperties, HeadTransform, LayerGradients};
use crate::emit::tracked_code::TrackedCode;
use crate::emit::{ExecMode, LayerNode};
use crate::model::graph::Derivative;
use crate::ops::{Fusion, Gradient, Saved};
use crate::score::Expr;
use crate::score::split::BiasTerm;
use crate::spec::{Normalizer, Real};

/// The operands: queries and keys, if there are any, and values.
#[derive(Clone)]
pub(crate) struct Attend {
    /// What is done to queries and keys as they are loaded. `None` if the score is a function of the place alone: then their
    /// width is 0.
    pub(crate) vectors: Option<[HeadTransform; 2]>,
    /// The same of values.
    pub(crate) values: HeadTransform,
    pub(crate) similarity: Similarity,
    /// From the similarity to what the normalizer takes, or to the weight if that is a function of the score: an expression of the
    /// score and of the bias terms.
    pub(crate) score: Option<Expr>,
    /// The numbers of the place that it reads.
    pub(crate) bias_terms: Vec<BiasTerm>,
    pub(crate) mask: Option<Expr>,
    pub(crate) normalizer: Normalizer,
    pub(crate) dropout: Option<Real>,
}

#[derive(Clone, Debug)]
pub(crate) enum Similarity {
    /// The product, times a constant. `None` is 1.
    Dot { scale: Option<Real> },
    /// With the weights in this field.
    Additive { field: &'static str },
}

impl Similarity {
    /// The field of what it learns.
    pub(crate) fn field(&self) -> Option<&'static str> {
        match self {
            Similarity::Additive { field } => Some(field),
            Similarity::Dot { .. } => None,
        }
    }
}

impl Attend {
    /// What is done to its operands as they are loaded.
    pub(crate) fn transforms(&self) -> impl Iterator<Item = &HeadTransform> {
        self.vectors.iter().flatten().chain([&self.values])
    }

    pub(crate) fn transforms_mut(&mut self) -> impl Iterator<Item = &mut HeadTransform> {
        let vectors = self.vectors.iter_mut().flatten();
        vectors.chain([&mut self.values])
    }

    /// The transforms of queries and keys.
    pub(crate) fn prepares(&self) -> [HeadTransform; 2] {
        self.vectors.clone().unwrap_or_default()
    }
}

impl Derivative for Attend {
    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        vec![Gradient::Together; operands]
    }

    /// The sum of the weights' gradients, weighted, is a product of the result and its gradient.
    fn saved(&self) -> Saved {
        Saved::OperandsAndResult
    }

    fn fusion(&self) -> Fusion<'_> {
        Fusion::None
    }
}

impl FusedOp for Attend {
    fn properties(&self) -> FusedProperties<'_> {
        let learned = [self.similarity.field(), self.normalizer.field()];
        FusedProperties {
            fields: learned.into_iter().flatten().collect(),
            attention: Some(self),
            ..FusedProperties::default()
        }
    }

    fn forward(&self, of: &LayerNode<'_>, to: &TokenStream, lines: &mut TrackedCode) {
        let operands = of.vectors();
        let (make, attention) = of.attention(self);
        lines.line(make);
        match of.mode() {
            ExecMode::Forward => {
                let lse = of.make_lse(lines);
                lines.line(quote!(#attention.forward(#(#operands,)* #to, #lse.as_mut_slice());));
            }
            ExecMode::Session => {
                lines.line(quote!(cache.attend(new, &#attention, [#(#operands),*], #to);));
            }
        }
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &LayerGradients, lines: &mut TrackedCode) {
        let operands = of.vectors();
        let attended = of.matrix_of_result();
        let d_attended = &gradients.d_result;
        let (make, attention) = of.attention(self);
        lines.line(make);
        let [query, key] = self.prepares();
        let [query, add_query] =
            of.parameter_gradient(lines, ("d_query_gain", "as_mut_slice"), query.gain());
        let [key, add_key] =
            of.parameter_gradient(lines, ("d_key_gain", "as_mut_slice"), key.gain());
        let [w, add_w] = of.parameter_gradient(lines, ("d_w", "view_mut"), self.similarity.field());
        let [sink, add_sink] =
            of.parameter_gradient(lines, ("d_sink", "as_mut_slice"), self.normalizer.field());
        let [score, add_score] = of.score_gradient(lines, self);
        let [to_q, to_k, to_v] = of.gradients_of_vectors(lines);
        lines.line(quote! {
            #attention.backward(
                #(#operands,)*
                #attended,
                lse.as_slice(),
                #d_attended,
                p::AttentionGradients {
                    q: #to_q,
                    k: #to_k,
                    v: #to_v,
                    score: #score,
                    query_gain: #query,
                    key_gain: #key,
                    w: #w,
                    sink: #sink,
                },
            );
            #add_query #add_key #add_w #add_sink #add_score
        });
        if self.normalizer.is_sparse() {
            lines.differentiate(of.centres());
        }
    }
}
