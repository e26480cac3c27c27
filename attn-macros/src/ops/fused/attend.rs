//! Everything from queries, keys and values to the attended values of all heads. Scores and weights never stand in memory.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{HeadTransform, LayerOp, LayerProperties};
use crate::emit::block::{Footprints, FusedOp, Gradients, Output};
use crate::emit::tracked_code;
use crate::emit::{ExecMode, LayerFrame, LayerNode, ParameterGradient};
use crate::model::graph::Derivative;
use crate::ops::{Fusion, Gradient, Kept, Saved};
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

impl LayerOp for Attend {
    fn properties(&self) -> LayerProperties<'_> {
        let learned = [self.similarity.field(), self.normalizer.field()];
        LayerProperties {
            fields: learned.into_iter().flatten().collect(),
            attention: Some(self),
            ..LayerProperties::default()
        }
    }
}

impl FusedOp<LayerFrame<'_>> for Attend {
    fn kept(&self) -> Option<Kept> {
        Some(Kept::Array)
    }

    fn footprints(&self, of: &LayerNode<'_>) -> Footprints {
        let [heads, width] = of.heads();
        let learned = self.parameter_gradients(of).into_iter();
        let learned: Vec<_> = learned.flat_map(|gradient| gradient.footprints).collect();
        // The kernel computes as many numbers as are attended, and the thresholds again.
        let centres = self
            .normalizer
            .is_sparse()
            .then(|| quote!(p::Footprint::back(&[batch, #heads, query, (#width) + 1])));
        Footprints {
            forward: Some(tracked_code::array(&[
                quote!(batch),
                quote!(#heads),
                quote!(query),
            ])),
            backward: tracked_code::at_once(&learned, centres),
        }
    }

    fn forward(&self, of: &LayerNode<'_>, to: &Output) -> TokenStream {
        let operands = vectors(of.matrices(), "Matrix");
        let attention = of.attention(self);
        let y = to.matrix();
        match of.mode() {
            ExecMode::Forward => quote!(#attention.forward_with_lse(#(#operands,)* #y)),
            ExecMode::Session => quote!(cache.attend(new, &#attention, [#(#operands),*], #y)),
        }
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &Gradients) -> TokenStream {
        let operands = vectors(of.matrices(), "Matrix");
        let attended = of.matrix_of_result();
        let lse = of.kept();
        let d_attended = gradients.matrix();
        let attention = of.attention(self);
        let learned = self.parameter_gradients(of);
        let makes = learned.iter().map(|gradient| &gradient.make);
        let adds = learned.iter().map(|gradient| &gradient.add);
        let [query, key, w, sink, score] = learned.each_ref().map(|gradient| &gradient.argument);
        let (split, to) = of.gradients_mut(gradients);
        let [to_q, to_k, to_v] = vectors(to, "MatrixMut");
        let lines = quote! {
            #(#makes)*
            #split
            #attention.backward_with_lse(
                #(#operands,)*
                #attended,
                #lse,
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
    /// The gradients of what it learns: of the gains of queries and keys, of additive scores, of the sink, of the score's function.
    fn parameter_gradients(&self, of: &LayerNode<'_>) -> [ParameterGradient; 5] {
        let [query, key] = self.prepares();
        [
            of.parameter_gradient(query.gain(), "d_query_gain", "as_mut_slice"),
            of.parameter_gradient(key.gain(), "d_key_gain", "as_mut_slice"),
            of.parameter_gradient(self.similarity.field(), "d_w", "view_mut"),
            of.parameter_gradient(self.normalizer.field(), "d_sink", "as_mut_slice"),
            of.score_gradient(self),
        ]
    }
}

/// Queries, keys and values, where the first two may be missing: then they have no columns.
fn vectors(mut found: Vec<TokenStream>, ty: &str) -> [TokenStream; 3] {
    let values = found.pop().unwrap_or_default();
    let ty = format_ident!("{ty}");
    let [queries, keys] = found.try_into().unwrap_or_else(|_| {
        ["queries", "keys"]
            .map(|rows| format_ident!("{rows}"))
            .map(|rows| quote!(p::#ty::without_cols(sizes.#rows())))
    });
    [queries, keys, values]
}
