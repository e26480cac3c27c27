//! What the functions of the fused form hand to each other: `Weights`, `Call` and `Saved`.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::attention::{gain, sink, weights_of};
use super::score::{Score, param_field};
use super::{Fused, places, var};
use crate::emit::input::{data_name, read_type};
use crate::graph::plan::Plan;
use crate::graph::steps::Step;
use crate::score::Name;
use crate::spec::Real;

impl Fused<'_> {
    /// The parameters that are read by themselves: their names in `Weights`, and those of the layer's fields.
    fn operands(&self) -> Vec<(Ident, Ident)> {
        let mut fields = Vec::new();
        let mut declared = Vec::new();
        for step in &self.steps.steps {
            match step {
                Step::Linear { .. } => {}
                Step::Prepare { how, .. } => fields.extend(gain(how)),
                Step::PerHeadLinear { field, .. } => fields.push(field),
                Step::Attention(attention) => {
                    fields.extend(gain(&attention.query));
                    fields.extend(gain(&attention.key));
                    fields.extend(weights_of(&attention.similarity));
                    fields.extend(sink(attention.normalizer));
                    let score = Score::new(self.cx, attention);
                    declared.extend(score.iter().flat_map(Score::params));
                }
            }
        }
        let fields = fields.into_iter().map(|field| (var(field), var(field)));
        let declared = declared.into_iter().map(var);
        let declared = declared.map(|field| (param_field(&field), field));
        fields.chain(declared).collect()
    }

    pub(super) fn emit_weights(&self) -> TokenStream {
        let linears = self.steps.steps.iter().filter_map(|step| match step {
            Step::Linear { to, .. } => Some(self.name(*to)),
            _ => None,
        });
        let operands = self.operands().into_iter().map(|(name, _)| name);
        quote! {
            /// What is read of the layer.
            struct Weights<E: p::Element, D: p::Host<E>> {
                #(#linears: p::Projection<E, D>,)*
                #(#operands: p::Operand<E, D>,)*
            }
        }
    }

    pub(super) fn emit_weights_value(&self) -> TokenStream {
        let linears = self.steps.steps.iter().filter_map(|step| match step {
            Step::Linear { fields, to, .. } => {
                let (name, fields) = (self.name(*to), fields.iter());
                let fields = fields.map(|field| format_ident!("{field}"));
                Some(quote!(#name: operation.projection(&[#(&layer.#fields),*])?))
            }
            _ => None,
        });
        let operands = self
            .operands()
            .into_iter()
            .map(|(name, field)| quote!(#name: operation.parameter(&layer.#field.weight)?));
        quote!(Weights { #(#linears,)* #(#operands,)* })
    }

    pub(super) fn emit_call(&self) -> TokenStream {
        let fields = self.call_fields().into_iter().map(|field| {
            let (name, ty) = (var(&field.name), field.ty);
            quote!(#name: #ty)
        });
        quote! {
            /// One call, but for the tensors.
            struct Call<E: p::Element> {
                sizes: p::Sizes,
                #(#fields,)*
                element: p::PhantomData<E>,
            }
        }
    }

    pub(super) fn emit_call_value(&self) -> TokenStream {
        let fields = self.call_fields().into_iter().map(|field| {
            let (name, value) = (var(&field.name), field.value);
            quote!(#name: #value)
        });
        quote!(Call { sizes, #(#fields,)* element: p::PhantomData })
    }

    fn call_fields(&self) -> Vec<CallField> {
        let Some(attention) = self.attention() else {
            return Vec::new();
        };
        let mut fields = Vec::new();
        if let Some(mask) = &attention.mask {
            let [ty, _] = places::mask_type(self.cx, mask);
            fields.push(CallField {
                name: "mask".into(),
                ty,
                value: places::emit_mask_value(
                    self.cx,
                    mask,
                    &quote!(sizes.query),
                    &quote!(sizes.key),
                ),
            });
        }
        if let Some(theta) = self.theta() {
            let width = &self.cx.spec.head_dim;
            fields.push(CallField {
                name: "angles".into(),
                ty: quote!(p::Arc<p::Angles<E>>),
                value: quote!(p::angles(#width, #theta, p::max(sizes.query, sizes.key))),
            });
        }
        let score = Score::new(self.cx, attention);
        for (name, value) in score.iter().flat_map(Score::tables_of_call) {
            fields.push(CallField {
                name: name.into(),
                ty: quote!(p::DistanceTable<E>),
                value,
            });
        }
        for data in score.iter().flat_map(Score::data) {
            let name = data_name(data);
            fields.push(CallField {
                name: name.to_string().into(),
                ty: read_type(data),
                value: quote!(#name),
            });
        }
        if let Some(p) = &attention.dropout {
            fields.push(CallField {
                name: "dropout".into(),
                ty: quote!(Option<p::Dropout>),
                value: quote! {
                    (train && T::OWNS_TAPE).then(|| p::Dropout { p: #p, key: device.random_u64() })
                },
            });
        }
        fields
    }

    /// The base of the rotations' angles.
    fn theta(&self) -> Option<&Real> {
        self.steps.steps.iter().find_map(|step| match step {
            Step::Prepare { how, .. } => how.rope.as_ref(),
            Step::Attention(attention) => attention
                .query
                .rope
                .as_ref()
                .or(attention.key.rope.as_ref()),
            _ => None,
        })
    }

    pub(super) fn emit_saved(&self, plan: &Plan) -> TokenStream {
        let arrays = plan.saved.iter().map(|id| {
            let parts = self.steps.array(*id).parts.len();
            let (name, parts) = (self.name(*id), Literal::usize_unsuffixed(parts));
            quote!(#name: p::Array<E, #parts>)
        });
        quote! {
            /// What the derivative reads again.
            struct Saved<E: p::Element> {
                #(#arrays,)*
                lse: p::Array<E>,
            }
        }
    }
}

/// A field of `Call`, and what it is at a call.
struct CallField {
    name: Name,
    ty: TokenStream,
    value: TokenStream,
}
