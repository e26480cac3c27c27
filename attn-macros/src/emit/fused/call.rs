//! The structs that the functions of the fused form pass to each other: `Weights`, `Call` and `Saved`.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::score::{Score, param_field};
use super::{LayerFrame, places, var};
use crate::emit::Caller;
use crate::emit::block::Frame;
use crate::emit::input::{data_name, read_type};
use crate::ops::attention_layer::HeadTransform;
use crate::score::Name;
use crate::spec::{Real, Size};

impl LayerFrame<'_> {
    /// The parameters that are read by themselves: their names in `Weights`, and those of the layer's fields.
    fn operands(&self) -> Vec<(Ident, Ident)> {
        let mut fields = Vec::new();
        let mut declared = Vec::new();
        for node in self.layer.nodes() {
            let description = node.op.description();
            fields.extend(description.transforms().filter_map(HeadTransform::gain));
            let attention = description.attention;
            fields.extend(description.fields);
            let score = attention.and_then(|attention| Score::new(self.cx, attention));
            declared.extend(score.iter().flat_map(Score::params));
        }
        let fields = fields.into_iter().map(|field| (var(field), var(field)));
        let declared = declared
            .into_iter()
            .filter(|name| !self.cx.graph.is_given(name));
        let declared = declared.map(var);
        let declared = declared.map(|field| (param_field(&field), field));
        fields.chain(declared).collect()
    }

    /// The projections that are read as one, with their fields.
    fn projections(&self) -> Vec<(Ident, &[&'static str])> {
        let nodes = self.layer.nodes();
        let projections = nodes.filter_map(|node| {
            let linear = node.op.description().linear?;
            Some((self.value(node.result), linear.fields.as_slice()))
        });
        projections.collect()
    }

    /// The fields of `Weights` with parameters.
    pub(super) fn fields_of_weights(&self) -> Vec<Ident> {
        let linears = self.projections().into_iter().map(|(name, _)| name);
        let operands = self.operands().into_iter().map(|(name, _)| name);
        linears.chain(operands).collect()
    }

    /// A trait that a model knows of names these types.
    fn vis(&self) -> Option<TokenStream> {
        (self.cx.caller != Caller::User).then(|| quote!(pub))
    }

    pub(super) fn emit_weights(&self) -> TokenStream {
        let linears = self.projections().into_iter().map(|(name, _)| name);
        let operands = self.operands().into_iter().map(|(name, _)| name);
        let none = self.has_no_weights();
        let none = none.then(|| quote!(none: p::PhantomData<E>,));
        let dtype = self.layer.attention();
        let dtype = dtype.map(|_| quote!(dtype: p::ProductDtype,));
        let vis = self.vis();
        quote! {
            /// The parameters that are read of the layer.
            #vis struct Weights<E: p::Element> {
                #(#linears: p::Projection<E>,)*
                #(#operands: p::Operand<E>,)*
                #dtype
                #none
            }
        }
    }

    /// Whether projections are layers of the model around it.
    pub(super) fn has_projections(&self) -> bool {
        !self.cx.projected.is_empty()
    }

    /// Nothing of the type of the elements is read.
    fn has_no_weights(&self) -> bool {
        self.projections().is_empty() && self.operands().is_empty()
    }

    /// The function that reads the parameters.
    pub(super) fn emit_read_weights(&self) -> TokenStream {
        let linears = self.projections().into_iter().map(|(name, fields)| {
            let fields = fields.iter().map(|field| {
                let mut given = self.cx.projected.iter();
                match given.position(|given| given == field) {
                    Some(index) => quote!(projections[#index]),
                    None => {
                        let field = format_ident!("{field}");
                        quote!(&layer.#field)
                    }
                }
            });
            quote!(#name: operation.projection(&[#(#fields),*])?)
        });
        let operands = self
            .operands()
            .into_iter()
            .map(|(name, field)| quote!(#name: operation.parameter(&layer.#field.weight)?));
        let name = &self.cx.name;
        let none = self.has_no_weights().then(|| quote!(none: p::PhantomData,));
        let dtype = self.layer.attention();
        let dtype = dtype.map(|_| quote!(dtype: operation.dtype(),));
        let projections = self.has_projections();
        let projections =
            projections.then(|| quote!(projections: &[&dyn p::ProjectionLayer<E, D, T>],));
        quote! {
            #[allow(unused_variables)]
            fn read_weights<E: p::Element, D: p::Backend<E>, T: p::Tape<E, D>>(
                layer: &#name<E, D>,
                #projections
                operation: &mut p::Operation<E, D, T>,
            ) -> Result<Weights<E>, D::Err> {
                Ok(Weights { #(#linears,)* #(#operands,)* #dtype #none })
            }
        }
    }

    pub(super) fn emit_call(&self) -> TokenStream {
        let fields = self.call_fields().into_iter().map(|field| {
            let name = var(&field.name);
            let ty = field.ty;
            quote!(#name: #ty)
        });
        let vis = self.vis();
        quote! {
            /// One call, but for the tensors.
            #vis struct Call<E: p::Element> {
                sizes: p::Sizes,
                #(#fields,)*
                element: p::PhantomData<E>,
            }
        }
    }

    /// The function that makes a `Call`, of the sizes of the axes batch, query and key.
    pub(super) fn emit_make_call(&self) -> TokenStream {
        let fields = self.call_fields().into_iter().map(|field| {
            let name = var(&field.name);
            let value = field.value;
            quote!(#name: #value)
        });
        let data = self.cx.graph.data.iter().map(|data| {
            let name = data_name(data);
            let ty = read_type(data);
            quote!(#name: #ty,)
        });
        let dropout_seed = self
            .dropout()
            .map(|_| quote!(dropout_seed: Option<p::Seed>,));
        let given = self.given();
        let spec = self.cx.spec;
        let heads = &spec.heads;
        let kv_heads = &spec.kv_heads;
        let width = &spec.head_dim;
        let value_width = &spec.value_head_dim;
        quote! {
            #[allow(unused_variables)]
            fn make_call<E: p::Element>(
                weights: &Weights<E>,
                (batch, query, key): (usize, usize, usize),
                #(#data)*
                #dropout_seed
                #(#given: &[E],)*
            ) -> Call<E> {
                let sizes = p::Sizes {
                    batch,
                    heads: #heads,
                    kv_heads: #kv_heads,
                    query,
                    key,
                    width: #width,
                    value_width: #value_width,
                };
                Call { sizes, #(#fields,)* element: p::PhantomData }
            }
        }
    }

    /// The inputs that the body reads, as variables.
    pub(super) fn given(&self) -> Vec<Ident> {
        let given = self.cx.graph.given.iter();
        given.map(|given| param_field(&var(&given.name))).collect()
    }

    /// Those of them that a session remembers for each key, with how many numbers a key has.
    pub(super) fn given_of_keys(&self) -> Vec<(Ident, Size)> {
        let given = self.given().into_iter().zip(&self.cx.graph.given);
        let of_keys = given.filter(|(_, given)| given.is_remembered());
        of_keys
            .map(|(name, given)| (name, given.numbers()))
            .collect()
    }

    /// The probability with which weights fall.
    pub(super) fn dropout(&self) -> Option<&Real> {
        self.layer.attention()?.dropout.as_ref()
    }

    fn call_fields(&self) -> Vec<CallField> {
        let Some(attention) = self.layer.attention() else {
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
        fields.extend(self.angles());
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
        if let Some(p) = self.dropout() {
            fields.push(CallField {
                name: "dropout".into(),
                ty: quote!(Option<p::Dropout>),
                value: quote!(dropout_seed.map(|seed| p::Dropout::new(#p, seed, batch))),
            });
        }
        fields
    }

    /// The angles of the rotation: those of all positions, or those of the positions that the call passes, of queries and of keys.
    fn angles(&self) -> Vec<CallField> {
        let mut nodes = self.layer.nodes();
        let rotary = nodes.find_map(|node| {
            let mut transforms = node.op.description().transforms();
            transforms.find_map(|how| how.rope.as_ref())
        });
        let Some(rotary) = rotary else {
            return Vec::new();
        };
        let tokens = rotary.tokens();
        if !rotary.position_ids {
            return vec![CallField {
                name: "angles".into(),
                ty: quote!(p::Arc<p::Angles<E>>),
                value: quote!(p::angles(&#tokens, p::max(sizes.query, sizes.key))),
            }];
        }
        let of = |name: &str, method: &str| {
            let method = format_ident!("{method}");
            CallField {
                name: name.to_owned().into(),
                ty: quote!(p::AnglesAt<E>),
                value: quote!(p::angles_at(&#tokens, position_ids.longest(), position_ids.#method())),
            }
        };
        let keys = self.cx.graph.cross.then(|| of("key_angles", "of_keys"));
        [of("angles", "of_queries")]
            .into_iter()
            .chain(keys)
            .collect()
    }

    pub(super) fn emit_saved(&self) -> TokenStream {
        let arrays = self.plan().saved.iter().map(|id| {
            let parts = self.layer.block().parts(*id).len();
            let name = self.value(*id);
            let parts = Literal::usize_unsuffixed(parts);
            quote!(#name: p::Array<E, #parts>)
        });
        let kept = self.layer.nodes().filter_map(|node| {
            let name = self.kept(node.result);
            node.op
                .properties()
                .kept
                .map(|_| quote!(#name: p::Array<E>))
        });
        let vis = self.vis();
        quote! {
            /// Values that the derivative reads.
            #vis struct Saved<E: p::Element> {
                #(#arrays,)*
                #(#kept,)*
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
