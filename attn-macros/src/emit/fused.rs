//! The fused lowering: the steps and their derivatives as straight-line code over slices, a line or two per step.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Layer, places, var};
use crate::graph::MaskData;
use crate::graph::diff::{Adjoint, Into, diff};
use crate::graph::plan::{Plan, plan};
use crate::graph::steps::{ArrayId, Attention, Norm, Prepare, Role, Similarity, Step, Steps, View};
use crate::score::split::param_reads;
use crate::spec::Normalizer;

/// ```text
/// struct Attends { .. }           // the mask
/// struct Modified;                // what becomes of a score
/// struct Weights<E, D> { .. }     // what is read of the layer
/// struct Call<E> { .. }           // sizes and data of one call
/// struct Saved<E> { .. }          // what the derivative reads again
///
/// fn fused(layer, x, .., train) -> Result<Tensor<..>, ..>                 // one operation on the tape
/// fn forward(call, weights, x, .., output) -> Saved<E>
/// fn backward(call, weights, x, .., saved, d_output, gradients) -> Result<(), ..>
/// fn attention(call, weights) -> p::Attention<E>
/// ```
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let Some(steps) = &cx.steps else {
        return TokenStream::new();
    };
    let adjoints = diff(steps);
    let plan = plan(steps, &adjoints);
    let cx = &Fused { cx, steps };
    let attentions = steps.steps.iter().filter_map(|step| match step {
        Step::Attention(attention) => Some(&**attention),
        _ => None,
    });
    let attentions = attentions.map(|attention| cx.emit_attention(attention));
    let attentions: Vec<_> = attentions.collect();
    let structs = [cx.emit_weights(), cx.emit_call(), cx.emit_saved(&plan)];
    let functions = [
        cx.emit_fused(),
        cx.emit_forward(&plan),
        cx.emit_backward(&adjoints, &plan),
    ];
    quote! {
        #(#structs)*
        #(#functions)*
        #(#attentions)*
    }
}

struct Fused<'a> {
    cx: &'a Layer<'a>,
    steps: &'a Steps,
}

impl Fused<'_> {
    fn attention(&self) -> Option<&Attention> {
        self.steps.steps.iter().find_map(|step| match step {
            Step::Attention(attention) => Some(&**attention),
            _ => None,
        })
    }

    fn name(&self, array: ArrayId) -> Ident {
        var(&self.steps.array(array).name)
    }

    fn gradient_name(&self, array: ArrayId) -> Ident {
        format_ident!("d_{}", self.steps.array(array).name)
    }

    fn inputs(&self) -> Vec<Ident> {
        let arrays = self.steps.arrays.iter();
        let inputs = arrays.filter(|array| array.role == Role::Input);
        inputs.map(|array| var(&array.name)).collect()
    }

    /// The parameters that are read by themselves.
    fn operands(&self) -> Vec<&'static str> {
        let mut fields = Vec::new();
        for step in &self.steps.steps {
            match step {
                Step::Linear { .. } => {}
                Step::Prepare { how, .. } => fields.extend(gain(how)),
                Step::PerHeadLinear { field, .. } => fields.push(field),
                Step::Attention(attention) => {
                    fields.extend(gain(&attention.query));
                    fields.extend(gain(&attention.key));
                    fields.extend(weights_of(&attention.similarity));
                    let reads = attention.bias.iter().flat_map(param_reads);
                    fields.extend(reads.map(|(name, _)| name));
                }
            }
        }
        fields
    }

    fn emit_weights(&self) -> TokenStream {
        let linears = self.steps.steps.iter().filter_map(|step| match step {
            Step::Linear { to, .. } => Some(self.name(*to)),
            _ => None,
        });
        let operands = self.operands().into_iter().map(var);
        quote! {
            /// What is read of the layer.
            struct Weights<E: p::Element, D: p::Backend<E>> {
                #(#linears: p::Projection<E, D>,)*
                #(#operands: p::Operand<E, D>,)*
            }
        }
    }

    fn emit_weights_value(&self) -> TokenStream {
        let linears = self.steps.steps.iter().filter_map(|step| match step {
            Step::Linear { x, fields, to } => {
                let (name, width) = (self.name(*to), self.width(*x));
                let parts = fields.iter().map(|field| {
                    let (bias, field) = (self.cx.bias(field), format_ident!("{field}"));
                    quote!(.push(&mut operation, &layer.#field.weight, #bias)?)
                });
                Some(quote!(#name: p::Stack::new(#width) #(#parts)* .read()))
            }
            _ => None,
        });
        let operands = self.operands().into_iter().map(|field| {
            let field = var(field);
            quote!(#field: operation.parameter(&layer.#field.weight)?)
        });
        quote!(Weights { #(#linears,)* #(#operands,)* })
    }

    fn width(&self, array: ArrayId) -> TokenStream {
        let widths = self.steps.array(array).parts.iter().map(|part| &part.width);
        quote!(#(#widths)+*)
    }

    fn emit_call(&self) -> TokenStream {
        let fields = self.call_fields().into_iter().map(|field| {
            let (name, ty) = (var(field.name), field.ty);
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

    fn emit_call_value(&self) -> TokenStream {
        let fields = self.call_fields().into_iter().map(|field| {
            let (name, value) = (var(field.name), field.value);
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
            fields.push(CallField {
                name: "mask",
                ty: quote!(Attends),
                value: places::emit_mask_value(self.cx, mask),
            });
        }
        if let Some(theta) = self.theta() {
            let width = &self.cx.spec.head_dim;
            fields.push(CallField {
                name: "angles",
                ty: quote!(p::Arc<p::Angles<E>>),
                value: quote!(p::angles(#width, #theta, p::max(sizes.query, sizes.key))),
            });
        }
        if let Some(bias) = &attention.bias {
            let (heads, function) = (&self.cx.spec.heads, places::emit_bias(self.cx, bias));
            fields.push(CallField {
                name: "bias",
                ty: quote!(p::Array<E>),
                value: quote!(p::bias_table(#heads, sizes.query, sizes.key, #function)),
            });
        }
        if let Some(p) = &attention.dropout {
            fields.push(CallField {
                name: "dropout",
                ty: quote!(Option<p::Dropout>),
                value: quote! {
                    (train && T::OWNS_TAPE).then(|| p::Dropout { p: #p, key: device.random_u64() })
                },
            });
        }
        fields
    }

    /// The base of the rotations' angles.
    fn theta(&self) -> Option<&crate::spec::Real> {
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

    fn emit_saved(&self, plan: &Plan) -> TokenStream {
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

    fn emit_fused(&self) -> TokenStream {
        let Layer {
            name, at, graph, ..
        } = self.cx;
        let sequences = self.cx.sequence_vars();
        let output = self.cx.tensor(self.cx.output_shape(), &quote!(T));
        let inputs = self.cx.inputs(|data| match data {
            MaskData::Padding => quote!(p::PaddingData),
            MaskData::Document => quote!(p::DocumentData),
        });
        let names = self.inputs();
        let key = if graph.cross {
            quote!(context)
        } else {
            quote!(x)
        };
        let read_context = graph
            .cross
            .then(|| quote!(let context = operation.read(context.retaped::<T>())?;));
        let (weights, call) = (self.emit_weights_value(), self.emit_call_value());
        let (heads, kv_heads) = (&self.cx.spec.heads, &self.cx.spec.kv_heads);
        let (width, value_width) = (&self.cx.spec.head_dim, &self.cx.spec.value_head_dim);
        let d_model = &self.cx.spec.d_model;
        quote_spanned! {*at=>
            /// The layer as one operation on the tape: what `run` computes, on slices.
            fn fused<B: p::Dim, #(#sequences: p::Dim,)* E: p::Element, D: p::Backend<E>, T: p::Tape<E, D>>(
                layer: &#name<E, D>,
                #inputs
                #[allow(unused_variables)] train: bool,
            ) -> Result<#output, p::Error<D::Err>> {
                let shape = (x.shape().0, x.shape().1, p::Const);
                let device = x.device().clone();
                let sizes = p::Sizes {
                    batch: shape.0.size(),
                    heads: #heads,
                    kv_heads: #kv_heads,
                    query: shape.1.size(),
                    key: #key.shape().1.size(),
                    width: #width,
                    value_width: #value_width,
                };
                let mut operation = p::Operation::<T>::default();
                let x = operation.read(x)?;
                #read_context
                let weights = #weights;
                let call = #call;
                let mut output = p::zeros(sizes.queries() * #d_model);
                let saved = forward(&call, &weights, #(&#names,)* p::MatrixMut::new(&mut output, sizes.queries(), #d_model));
                let output = operation.finish(&device, output, shape, move |d_output, gradients| {
                    let d_output = p::Matrix::new(d_output, sizes.queries(), #d_model);
                    backward(&call, &weights, #(&#names,)* saved, d_output, gradients)
                })?;
                Ok(output)
            }
        }
    }

    fn emit_forward(&self, plan: &Plan) -> TokenStream {
        let inputs = self.inputs();
        let output = self.name(self.steps.output);
        let steps = self.steps.steps.iter().zip(&plan.free).map(|(step, free)| {
            let (line, free) = (self.emit_step(step), free.iter().map(|id| self.name(*id)));
            quote!(#line #(p::drop(#free);)*)
        });
        let saved = plan.saved.iter().map(|id| self.name(*id));
        quote_spanned! {self.cx.at=>
            /// The forward pass, step by step.
            fn forward<E: p::Element, D: p::Backend<E>>(
                call: &Call<E>,
                weights: &Weights<E, D>,
                #(#inputs: &p::Operand<E, D>,)*
                #output: p::MatrixMut<'_, E>,
            ) -> Saved<E> {
                let sizes = call.sizes;
                #(#steps)*
                Saved { #(#saved,)* lse }
            }
        }
    }

    /// `let mut q_k_v = p::Array::stale(sizes.queries(), [512, 512, 512]);`
    fn emit_array(&self, name: &Ident, id: ArrayId) -> TokenStream {
        let rows = self.rows(id);
        let widths = self.steps.array(id).parts.iter().map(|part| &part.width);
        quote!(let mut #name = p::Array::<E, _>::stale(#rows, [#(#widths),*]);)
    }

    fn rows(&self, id: ArrayId) -> TokenStream {
        match self.steps.array(id).rows {
            crate::graph::Dim::Key => quote!(sizes.keys()),
            _ => quote!(sizes.queries()),
        }
    }

    /// The whole of an array, to read.
    fn matrix(&self, id: ArrayId) -> TokenStream {
        let name = self.name(id);
        match self.steps.array(id).role {
            Role::Input => quote!(#name.matrix()),
            _ => quote!(#name.all()),
        }
    }

    /// One matrix of an array, to read.
    fn view(&self, view: View) -> TokenStream {
        let (name, part) = (self.name(view.array), Literal::usize_unsuffixed(view.part));
        match self.steps.array(view.array).role {
            Role::Input => quote!(#name.matrix()),
            _ => quote!(#name.part(#part)),
        }
    }

    /// An array to write for the first time: the line that makes it, and the matrix.
    fn result(&self, id: ArrayId) -> (TokenStream, TokenStream) {
        let name = self.name(id);
        match self.steps.array(id).role {
            Role::Output => (TokenStream::new(), quote!(#name)),
            _ => (self.emit_array(&name, id), quote!(#name.all_mut())),
        }
    }

    fn emit_step(&self, step: &Step) -> TokenStream {
        let (array, to) = self.result(step.result());
        match step {
            Step::Linear { x, to: id, .. } => {
                let (projection, x) = (self.name(*id), self.matrix(*x));
                quote! {
                    #array
                    weights.#projection.forward(#x, #to);
                }
            }
            Step::Prepare { x, heads, how, .. } => {
                let (how, len, x) = (self.emit_prepare(how), self.len(*x), self.view(*x));
                quote! {
                    #array
                    p::prepare(&#how, sizes.batch, #len, #heads, #x, #to);
                }
            }
            Step::PerHeadLinear {
                x, heads, field, ..
            } => {
                let (field, x) = (var(field), self.view(*x));
                quote! {
                    #array
                    p::per_head_linear(#heads, #x, weights.#field.matrix(), #to);
                }
            }
            Step::Attention(attention) => {
                let views = [attention.q, attention.k, attention.v].map(|view| self.view(view));
                quote! {
                    #array
                    let mut lse = p::Array::stale(sizes.batch * sizes.heads, [sizes.query]);
                    attention(call, weights).forward(#(#views,)* #to, lse.numbers_mut());
                }
            }
        }
    }

    /// The number of tokens of a sequence.
    fn len(&self, view: View) -> TokenStream {
        match self.steps.array(view.array).rows {
            crate::graph::Dim::Key => quote!(sizes.key),
            _ => quote!(sizes.query),
        }
    }

    fn emit_backward(&self, adjoints: &[Adjoint], plan: &Plan) -> TokenStream {
        let inputs = self.inputs();
        let d_output = self.gradient_name(self.steps.output);
        let mut made = Vec::new();
        let lines = adjoints
            .iter()
            .zip(&plan.free_backward)
            .map(|(adjoint, free)| {
                let line = self.emit_adjoint(adjoint, &mut made);
                let saved = free.saved.iter().map(|id| self.name(*id));
                let gradients = free.gradients.iter().map(|id| self.gradient_name(*id));
                quote!(#line #(p::drop(#saved);)* #(p::drop(#gradients);)*)
            });
        let lines: Vec<_> = lines.collect();
        let saved = plan.saved.iter().map(|id| self.name(*id));
        quote_spanned! {self.cx.at=>
            /// The derivative, step by step backwards. Gradients of weights and inputs are added to in the tape's own buffers.
            fn backward<E: p::Element, D: p::Backend<E>>(
                call: &Call<E>,
                weights: &Weights<E, D>,
                #(#inputs: &p::Operand<E, D>,)*
                saved: Saved<E>,
                #d_output: p::Matrix<'_, E>,
                gradients: &mut p::Gradients<E, D>,
            ) -> Result<(), D::Err> {
                let sizes = call.sizes;
                let Saved { #(#saved,)* lse } = saved;
                #(#lines)*
                Ok(())
            }
        }
    }

    /// The lines that make the gradient arrays of `operands` that are not there yet.
    fn make_gradients(&self, operands: &[(View, Into)], made: &mut Vec<ArrayId>) -> TokenStream {
        let mut lines = TokenStream::new();
        for (View { array, .. }, _) in operands {
            if self.steps.array(*array).role != Role::Input && !made.contains(array) {
                made.push(*array);
                lines.extend(self.emit_array(&self.gradient_name(*array), *array));
            }
        }
        lines
    }

    /// The gradient of an array, to read.
    fn gradient(&self, id: ArrayId) -> TokenStream {
        let name = self.gradient_name(id);
        match self.steps.array(id).role {
            Role::Output => quote!(#name),
            _ => quote!(#name.all()),
        }
    }

    /// The gradient of a whole array, to write.
    fn gradient_mut(&self, id: ArrayId) -> TokenStream {
        let name = self.name(id);
        match self.steps.array(id).role {
            Role::Input => quote!(#name.gradient_matrix(gradients)?),
            _ => {
                let name = self.gradient_name(id);
                quote!(#name.all_mut())
            }
        }
    }

    fn emit_adjoint(&self, adjoint: &Adjoint, made: &mut Vec<ArrayId>) -> TokenStream {
        let step = &self.steps.steps[adjoint.step];
        let make = self.make_gradients(&adjoint.operands, made);
        let d_to = self.gradient(step.result());
        let line = match step {
            Step::Linear { x, to, .. } => {
                let (projection, into) = (self.name(*to), emit_into(adjoint.operands[0].1));
                let (d_x, x) = (self.gradient_mut(*x), self.matrix(*x));
                quote! {
                    weights.#projection.add_gradients(#x, #d_to, gradients)?;
                    weights.#projection.input_gradient(#d_to, #into, #d_x);
                }
            }
            Step::Prepare { x, heads, how, .. } => {
                let (len, view) = (self.len(*x), self.view(*x));
                let (d_x, part) = (
                    self.gradient_name(x.array),
                    Literal::usize_unsuffixed(x.part),
                );
                let (make_gain, gain, add_gain) = self.emit_gain("gain", how);
                let how = self.emit_prepare(how);
                quote! {
                    #make_gain
                    p::prepare_backward(&#how, sizes.batch, #len, #heads, #view, #d_to, #d_x.part_mut(#part), #gain);
                    #add_gain
                }
            }
            Step::PerHeadLinear {
                x, heads, field, ..
            } => {
                let (field, view) = (var(field), self.view(*x));
                let (d_x, part) = (
                    self.gradient_name(x.array),
                    Literal::usize_unsuffixed(x.part),
                );
                quote! {
                    let d_weights = weights.#field.gradient_matrix(gradients)?;
                    p::per_head_linear_backward(#heads, #view, weights.#field.matrix(), #d_to, #d_x.part_mut(#part), d_weights);
                }
            }
            Step::Attention(attention) => self.emit_attention_adjoint(attention, &d_to),
        };
        quote!(#make #line)
    }

    /// For a norm with a gain: the line that makes an array for its gradient, the argument, and the line that adds it.
    fn emit_gain(&self, name: &str, how: &Prepare) -> (TokenStream, TokenStream, TokenStream) {
        let name = format_ident!("d_{name}");
        self.emit_own_gradient(&name, gain(how), quote!(numbers_mut))
    }

    fn emit_own_gradient(
        &self,
        name: &Ident,
        field: Option<&'static str>,
        view: TokenStream,
    ) -> (TokenStream, TokenStream, TokenStream) {
        let Some(field) = field.map(var) else {
            return (TokenStream::new(), quote!(None), TokenStream::new());
        };
        (
            quote!(let mut #name = p::Array::<E>::like(weights.#field.matrix());),
            quote!(Some(#name.#view())),
            quote!(p::accumulate(weights.#field.gradient(gradients)?, #name.numbers());),
        )
    }

    fn emit_attention_adjoint(&self, attention: &Attention, d_to: &TokenStream) -> TokenStream {
        let operands = [attention.q, attention.k, attention.v];
        let views = operands.map(|view| self.view(view));
        let [to_q, to_k, to_v] = ["to_q", "to_k", "to_v"].map(var);
        let split = self.emit_split(&operands, [&to_q, &to_k, &to_v]);
        let attended = self.matrix(attention.to);
        let (make_query, query, add_query) = self.emit_gain("query_gain", &attention.query);
        let (make_key, key, add_key) = self.emit_gain("key_gain", &attention.key);
        let (make_w, w, add_w) = self.emit_own_gradient(
            &var("d_w"),
            weights_of(&attention.similarity),
            quote!(all_mut),
        );
        let (make_bias, bias, add_bias) = self.emit_bias_gradient(attention);
        quote! {
            #make_query #make_key #make_w #make_bias
            #split
            attention(call, weights).backward(
                #(#views,)*
                #attended,
                lse.numbers(),
                #d_to,
                p::AttentionGradients {
                    q: #to_q,
                    k: #to_k,
                    v: #to_v,
                    bias: #bias,
                    query_gain: #query,
                    key_gain: #key,
                    w: #w,
                },
            );
            #add_query #add_key #add_w #add_bias
        }
    }

    /// `let [to_q] = d_q.parts_mut(); let [to_k, to_v] = d_k_v.parts_mut();`
    fn emit_split(&self, views: &[View; 3], names: [&Ident; 3]) -> TokenStream {
        let mut lines = TokenStream::new();
        let mut arrays: Vec<ArrayId> = views.iter().map(|view| view.array).collect();
        arrays.dedup();
        for array in arrays {
            let parts = (0..self.steps.array(array).parts.len()).map(|part| {
                let place = views.iter().position(|view| *view == View { array, part });
                place.map_or_else(|| var("_"), |place| names[place].clone())
            });
            let name = self.gradient_name(array);
            lines.extend(quote!(let [#(#parts),*] = #name.parts_mut();));
        }
        lines
    }

    fn emit_bias_gradient(&self, attention: &Attention) -> (TokenStream, TokenStream, TokenStream) {
        let Some(bias) = &attention.bias else {
            return (TokenStream::new(), quote!(None), TokenStream::new());
        };
        let derivatives = places::emit_bias_derivatives(self.cx, bias);
        if derivatives.is_empty() {
            return (TokenStream::new(), quote!(None), TokenStream::new());
        }
        let add = derivatives.into_iter().map(|(param, read)| {
            let param = var(param);
            quote!(p::add_bias_gradient(d_bias.all(), (sizes.query, sizes.key), #read, weights.#param.gradient(gradients)?);)
        });
        (
            quote!(let mut d_bias = p::Array::<E>::like(call.bias.all());),
            quote!(Some(d_bias.all_mut())),
            quote!(#(#add)*),
        )
    }

    fn emit_prepare(&self, how: &Prepare) -> TokenStream {
        let norm = match how.norm {
            None => quote!(None),
            Some(Norm::L2) => quote!(Some(p::Norm::L2)),
            Some(Norm::Rms(field)) => {
                let field = var(field);
                quote!(Some(p::Norm::Rms(weights.#field.values())))
            }
        };
        let rope = match how.rope {
            None => quote!(None),
            Some(_) => quote!(Some(call.angles.rope())),
        };
        quote!(p::Prepare { norm: #norm, rope: #rope })
    }

    /// The types of the mask and the score, and the function that puts the parts together.
    fn emit_attention(&self, attention: &Attention) -> TokenStream {
        let mask_type = attention
            .mask
            .as_ref()
            .map(|mask| places::emit_mask(self.cx, mask));
        let score_type = attention.score.as_ref().map(places::emit_score);
        let (query, key) = (
            self.emit_prepare(&attention.query),
            self.emit_prepare(&attention.key),
        );
        let similarity = match &attention.similarity {
            Similarity::Dot { scale } => {
                let scale = scale.as_ref().map_or(quote!(1.0), |scale| quote!(#scale));
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
        let score = some(attention.score.is_some(), quote!(&Modified));
        let bias = some(attention.bias.is_some(), quote!(call.bias.all()));
        let mask = match attention.mask {
            Some(_) => quote!(&call.mask),
            None => quote!(&p::Everything),
        };
        let normalizer = format_ident!(
            "{}",
            match attention.normalizer {
                Normalizer::Softmax => "Softmax",
                Normalizer::Softmax1 => "Softmax1",
                Normalizer::Sigmoid => "Sigmoid",
            }
        );
        let dropout = match attention.dropout {
            Some(_) => quote!(call.dropout),
            None => quote!(None),
        };
        quote_spanned! {self.cx.at=>
            #mask_type
            #score_type

            /// From queries, keys and values to attended values.
            #[allow(unused_variables)]
            fn attention<'a, E: p::Element, D: p::Backend<E>>(
                call: &'a Call<E>,
                weights: &'a Weights<E, D>,
            ) -> p::Attention<'a, E> {
                p::Attention {
                    sizes: call.sizes,
                    query: #query,
                    key: #key,
                    similarity: #similarity,
                    score: #score,
                    bias: #bias,
                    mask: #mask,
                    normalizer: p::Normalizer::#normalizer,
                    dropout: #dropout,
                }
            }
        }
    }
}

/// A field of `Call`, and what it is at a call.
struct CallField {
    name: &'static str,
    ty: TokenStream,
    value: TokenStream,
}

fn emit_into(into: Into) -> TokenStream {
    match into {
        Into::Overwrite => quote!(p::Into::Overwrite),
        Into::Add => quote!(p::Into::Add),
    }
}

/// The field of the gain, if there is one.
fn gain(how: &Prepare) -> Option<&'static str> {
    match how.norm {
        Some(Norm::Rms(field)) => Some(field),
        _ => None,
    }
}

fn weights_of(similarity: &Similarity) -> Option<&'static str> {
    match similarity {
        Similarity::Additive { field } => Some(field),
        Similarity::Dot { .. } => None,
    }
}
