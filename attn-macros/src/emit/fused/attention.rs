//! Everything from queries, keys and values to attended values, as one argument of the kernels.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::score::Score;
use super::{LayerFrame, places, var};
use crate::emit::block::Frame;
use crate::emit::expr::vectors;
use crate::ops::attention_layer::{Attend, HeadTransform, Norm, Similarity};
use crate::score::Expr;
use crate::score::diff::{Wrt, diff};

/// The rows of all keys of a value that the body reads, in a session.
fn remembered(given: &Ident) -> Ident {
    format_ident!("{given}_of_keys")
}

/// The function from a mixed score to a weight, which reads nothing else.
fn emit_weigh(weight: &Expr) -> TokenStream {
    let value = vectors(weight);
    let derivative = vectors(&diff(weight, Wrt::Operand(0)));
    quote! {
        /// From a mixed score to its weight.
        struct Weigh;

        #[allow(unused_variables)]
        impl<E: p::Element> p::Score<E> for Weigh {
            #[inline(always)]
            fn value<V: p::Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V {
                #value
            }

            #[inline(always)]
            fn derivative<V: p::Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V {
                #derivative
            }
        }
    }
}

impl LayerFrame<'_> {
    /// The types of the mask and the score, and the function that puts the parts together.
    pub(super) fn emit_attention(&self, attention: &Attend) -> TokenStream {
        let mask_type = attention
            .mask
            .as_ref()
            .map(|mask| places::emit_mask(self.cx, mask));
        let function = Score::new(self.cx, attention);
        let score_type = function.as_ref().map(Score::emit);
        let [parameter, argument] = function
            .as_ref()
            .map(Score::type_of_keys)
            .unwrap_or_default();
        let score_argument = function
            .is_some()
            .then(|| quote!(score: &'a Modified<'a, E #argument>,));
        let [query, key, value] = attention.transforms().map(|how| self.emit_prepare(&how));
        let similarity = match attention.similarity {
            Similarity::Dot | Similarity::None => {
                let scale = attention.scale();
                let scale = scale.map_or(quote!(1.0), |scale| quote!(#scale));
                quote!(p::Similarity::Dot { scale: <E as p::Element>::of(#scale) })
            }
            Similarity::Additive { field } => {
                let field = var(field);
                quote!(p::Similarity::Additive { w: weights.#field.matrix() })
            }
        };
        let some = |is_some: bool, value| {
            if is_some {
                quote!(Some(#value))
            } else {
                quote!(None)
            }
        };
        let score = some(function.is_some(), quote!(score));
        let mask = match attention.mask {
            Some(_) => quote!(&call.mask),
            None => quote!(&p::Everything),
        };
        let learned = attention.normalizer.field().map(|field| {
            let field = var(field);
            quote!((weights.#field.values()))
        });
        let weigh = attention.weight_of_mixed().map(emit_weigh);
        let talking = self.talking(attention);
        // A function of the score is in `score`.
        let normalizer = format_ident!("{}", attention.normalizer.names()[1]);
        let dropout = match attention.dropout {
            Some(_) => quote!(call.dropout),
            None => quote!(None),
        };
        quote_spanned! {self.cx.at=>
            #mask_type
            #score_type
            #weigh

            /// From queries, keys and values to attended values.
            #[allow(unused_variables)]
            fn attention<'a, E: p::Element #parameter>(
                call: &'a Call<E>,
                weights: &'a Weights<E>,
                #score_argument
            ) -> p::Attention<'a, E> {
                p::Attention {
                    sizes: call.sizes,
                    query: #query,
                    key: #key,
                    value: #value,
                    similarity: #similarity,
                    score: #score,
                    mask: #mask,
                    normalizer: p::Normalizer::#normalizer #learned,
                    talking: #talking,
                    dropout: #dropout,
                    dtype: weights.dtype,
                }
            }
        }
    }

    /// What heads mix.
    fn talking(&self, attention: &Attend) -> TokenStream {
        if !attention.talking.is_any() {
            return quote!(p::TalkingHeads::default());
        }
        let [scores, weights] = attention.talking.fields().map(|field| match field {
            None => quote!(None),
            Some(field) => {
                let field = var(field);
                quote!(Some(weights.#field.matrix()))
            }
        });
        let weigh = match attention.weight_of_mixed() {
            Some(_) => quote!(Some(&Weigh)),
            None => quote!(None),
        };
        quote!(p::TalkingHeads { scores: #scores, weigh: #weigh, weights: #weights })
    }

    /// `attention(call, weights)`, with the function of the score, if there is one.
    pub(super) fn call_attention(&self, attention: &Attend) -> TokenStream {
        let score = attention.score();
        let given = self.given();
        let score = score.map(|_| quote!(, &modified(call, weights #(, #given.values())*)));
        quote!(attention(call, weights #score))
    }

    /// The attention of the new tokens of a session. What is given for each query has rows for these alone, and what is given for each key
    /// is remembered for each sequence, so that a sequence has a function of the score for itself.
    pub(crate) fn call_attention_of_tokens(
        &self,
        attention: &Attend,
        operands: &[TokenStream],
        y: &TokenStream,
    ) -> TokenStream {
        let given = self.given();
        if given.is_empty() {
            let attention = self.call_attention(attention);
            return quote!(cache.attend(new, &#attention, [#(#operands),*], #y, lse));
        }
        let of_keys = self.given_of_keys();
        let rows: Vec<_> = of_keys.iter().map(|(given, _)| remembered(given)).collect();
        let of_keys: Vec<_> = of_keys.into_iter().map(|(given, _)| given).collect();
        let numbers = given.iter().map(|given| match of_keys.contains(given) {
            true => {
                let rows = remembered(given);
                quote!(#rows.push(span, #given))
            }
            false => quote!(#given.values()),
        });
        let score = Score::new(self.cx, attention);
        let tables = score.iter().flat_map(Score::tables_of_values);
        let (tables, values): (Vec<_>, Vec<_>) =
            tables.map(|(name, value)| (var(&name), value)).unzip();
        quote! {
            let mut to = #y;
            let mut lse = lse;
            let [#(#rows),*] = of_keys;
            for span in new.spans() {
                #(let #given = #numbers;)*
                // Tables of distances are as long as the sequence.
                let len = span.first + span.rows.len();
                let sizes = p::Sizes { query: len, key: len, ..call.sizes };
                #(let #tables = #values;)*
                let score = Modified {
                    // One sequence, whose keys begin at the first row.
                    sizes: p::Sizes { query: 0, key: 0, ..call.sizes },
                    first_row: span.row_of_first_position(),
                    #(#tables: &#tables,)*
                    ..modified(call, weights #(, #given)*)
                };
                let lse = lse.as_deref_mut();
                cache.attend_in(span, &attention(call, weights, &score), [#(#operands),*], to.reborrow(), lse);
            }
        }
    }

    pub(super) fn emit_prepare(&self, how: &HeadTransform) -> TokenStream {
        if how.is_nothing() {
            return quote!(p::HeadTransform::default());
        }
        let bias = how.bias.map_or(quote!(None), |id| {
            let projection = self.value(id);
            let part = self.layer.value(id).view.and_then(|view| view.part);
            let part = Literal::usize_unsuffixed(part.unwrap_or(0));
            quote!(weights.#projection.bias(#part))
        });
        let norm = match &how.norm {
            None => quote!(None),
            Some(Norm::L2(epsilon)) => quote!(Some(p::Norm::L2 { epsilon: (#epsilon) as f64 })),
            Some(Norm::Rms {
                gain,
                field,
                epsilon,
            }) => {
                let gain = gain.tokens(|| {
                    let field = var(field);
                    quote!(weights.#field.values())
                });
                quote!(Some(p::Norm::Rms { gain: #gain, epsilon: (#epsilon) as f64 }))
            }
        };
        let rope = match &how.rope {
            None => quote!(None),
            Some(rotary) if rotary.position_ids && how.of_keys && self.cx.graph.cross => {
                quote!(Some(call.key_angles.rope()))
            }
            Some(_) => quote!(Some(call.angles.rope())),
        };
        quote!(p::HeadTransform { bias: #bias, norm: #norm, rope: #rope })
    }
}
