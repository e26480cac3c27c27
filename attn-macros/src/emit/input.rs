//! The trait of what `forward` accepts: its errors are the layer's own words about shapes.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Anything, Layer, anything, bounds, docs, on_unimplemented, tracked_code, var};
use crate::graph::{CallData, Declared, Dim};
use crate::score::{Type, Var};
use crate::spec::{self, Size};

/// The trait. Its `on_unimplemented` is what a user reads after passing a wrong shape.
pub(super) fn emit_trait(cx: &Layer<'_>) -> TokenStream {
    let Layer {
        krate,
        name,
        input,
        cfgs,
        ..
    } = cx;
    let vis = &cx.spec.item.vis;
    let words = docs::accepted(cx);
    let doc = words.doc;
    let unimplemented = on_unimplemented(
        cx.at,
        &["Self", "E", "D"],
        &words.message,
        &words.label,
        &[words.note.as_str()],
    );
    quote_spanned! {cx.at=>
        #(#cfgs)*
        #[doc = #doc]
        #unimplemented
        #vis trait #input<E: #krate::__private::Dtype, D: #krate::__private::Storage<E>>: ::core::marker::Sized {
            /// The type that `forward` returns.
            type Output;
            /// The attention weights. They have a tape if the input has one.
            type Weights: #krate::__private::AttentionWeights;
            #[doc(hidden)]
            type Lse;
            #[doc(hidden)]
            fn attend(
                self,
                layer: &#name<E, D>,
                how: #krate::__private::ForwardOptions<'_>,
            ) -> ::core::result::Result<
                #krate::__private::Attended<Self::Output, Self::Weights, Self::Lse>,
                #krate::__private::Error<D::Err>,
            >;
        }
    }
}

/// The types that the trait is implemented for: batched and unbatched input.
pub(super) fn emit_impls(cx: &Layer<'_>) -> TokenStream {
    if cx.spec.poisoned {
        return emit_anything(cx);
    }
    let traits = cx
        .graph
        .declared()
        .map(|declared| emit_declared(cx, declared));
    traits
        .chain([emit_impl(cx, true), emit_impl(cx, false)])
        .collect()
}

/// After an error: accept whatever is passed, so that the error stays alone.
fn emit_anything(cx: &Layer<'_>) -> TokenStream {
    let Layer { name, input, .. } = cx;
    // `context`, `values`, `padding`, `document`, `position_ids`, and what the body declares: after too many of them, no more than tuples can have.
    let others = (5 + cx.spec.body.data.len()).min(11);
    let accepted = anything(others, &TokenStream::new()).into_iter();
    let impls = accepted.map(|of| {
        let Anything {
            generics,
            ty,
            first,
        } = of;
        quote! {
            impl<#generics> #input<E, D> for #ty {
                type Output = #first;
                type Weights = p::Tensor<(usize, usize, usize, usize), E, D>;
                type Lse = ();
                fn attend(
                    self,
                    _: &#name<E, D>,
                    _: p::ForwardOptions<'_>,
                ) -> Result<p::Attended<Self::Output, Self::Weights, Self::Lse>, p::Error<D::Err>> {
                    ::core::unreachable!()
                }
            }
        }
    });
    impls.collect()
}

/// ```text
/// impl<B: Dim, S: Dim, T: Tape<E, D>, E: Element, D: Backend<E>> NameInput<E, D> for Tensor<(B, S, Const<512>), E, D, T> {
///     type Output = ..;
///     type Weights = ..;
///     type Lse = ..;
///     fn attend(self, layer, how) -> .. {
///         let x = self;
///         let axes = p::check_inputs("Name", &x, &x, p::Widths { .. })?;
///         if how.is_fused::<E, D>() { footprint_by_itself(axes).check::<E, D, T>("Name")?; }
///         if how.is_fused::<E, D>() { fused(layer, x, how.train, how.wanted) } else { run(layer, x, how.train, how.wanted) }
///     }
/// }
/// ```
fn emit_impl(cx: &Layer<'_>, batched: bool) -> TokenStream {
    let Layer { name, input, .. } = cx;
    let query = cx.query_var();
    let key = cx.key_var();
    let lead = batched.then(|| quote!(B,));
    let d_model = cx.spec.d_model.arg();
    let heads = cx.spec.heads.arg();
    let parts = parts(cx, batched);
    let Parts {
        generics,
        types,
        fits,
        ..
    } = &parts;
    let ty = match types.as_slice() {
        [one] => quote!(#one),
        _ => quote_spanned!(cx.at=> (#(#types),*)),
    };
    let bounds = fits.iter().map(|(_, ty, bound)| quote!(#ty: #bound,));
    let body = emit_body(cx, &parts, batched);
    quote_spanned! {cx.at=>
        impl<#generics E: p::Element, D: p::Backend<E>> #input<E, D> for #ty
        where
            #(#bounds)*
        {
            type Output = p::Tensor<(#lead #query, p::Const<#d_model>), E, D, T>;
            type Weights = p::Tensor<(#lead p::Const<#heads>, #query, #key), E, D, T>;
            type Lse = p::Tensor<(#lead p::Const<#heads>, #query), E, D, T>;

            fn attend(
                self,
                layer: &#name<E, D>,
                how: p::ForwardOptions<'_>,
            ) -> Result<p::Attended<Self::Output, Self::Weights, Self::Lse>, p::Error<D::Err>> {
                #body
            }
        }
    }
}

/// Checks the inputs before the first operation, and chooses the form.
fn emit_body(cx: &Layer<'_>, parts: &Parts, batched: bool) -> TokenStream {
    let names = &parts.names;
    let pattern = match names.as_slice() {
        [one] => quote!(#one),
        _ => quote!((#(#names),*)),
    };
    let fit = parts
        .fits
        .iter()
        .map(|(tensor, ty, bound)| quote!(let #tensor = <#ty as #bound>::fit(#tensor);));
    let (tensors, data) = names.split_at(cx.graph.block.inputs.len());
    let label = cx.label();
    let sequences = &tensors[..cx.graph.sequences()];
    let first = sequences.first();
    let keys = match cx.spec.d_values {
        Some(_) => sequences.get(1),
        None => sequences.last(),
    };
    let check_values = cx
        .spec
        .d_values
        .is_some()
        .then(|| quote!(p::check_values(#label, &#keys, &values)?;));
    let widths = emit_widths(cx);
    // In a model it is a part of the one operation.
    let fused = cx.fused.filter(|_| !cx.is_in_model());
    let weights = {
        let heads = &cx.spec.heads;
        tracked_code::array(&[
            quote!(axes.0),
            quote!(#heads),
            quote!(axes.1),
            quote!(axes.2),
        ])
    };
    let check_memory = fused.map(|_| {
        quote! {
            if how.is_fused::<E, D>() {
                let footprint = footprint_by_itself(axes);
                let footprint = match how.wanted.weights {
                    // The derivative reads a copy.
                    true => footprint.with_kept(#weights).with_result(#weights),
                    false => footprint,
                };
                footprint.check::<E, D, T>(#label)?;
            }
        }
    });
    let check_grid = emit_grid_check(cx);
    let reads = cx.graph.data.iter();
    let reads = reads.map(|data| emit_read(cx, data, batched));
    let check_integers = bounds::emit_call(cx);
    let composed = quote!(run(layer, #(#tensors,)* #(&#data,)* how.train, how.wanted));
    let attend = match fused {
        None => composed,
        Some(_) => quote! {
            if how.is_fused::<E, D>() {
                fused(layer, #(#tensors,)* #(#data,)* how.train, how.wanted)
            } else {
                #composed
            }
        },
    };
    let given = cx.input_values().into_iter().skip(sequences.len());
    let given = given.filter(|(_, dims)| dims.contains(&Dim::Batch));
    let given = given.map(|(name, dims)| {
        let dims = dims.iter().map(|dim| match dim {
            Dim::Batch => quote!(p::Const::<1>),
            Dim::Query => quote!(p::HasShape::shape(&#first).1),
            Dim::Key => quote!(p::HasShape::shape(&#keys).1),
            Dim::Size(size) => {
                let size = size.arg();
                quote!(p::Const::<#size>)
            }
        });
        quote!(let #name = p::in_shape(#name, (#(#dims,)*))?;)
    });
    let attend = if batched {
        attend
    } else {
        quote! {
            #(let #sequences = p::add_batch(#sequences)?;)*
            #(#given)*
            p::drop_batch({ #attend }?)
        }
    };
    quote! {
        let #pattern = self;
        #(#fit)*
        let axes = p::check_inputs(#label, &#first, &#keys, #widths)?;
        #check_values
        #check_grid
        #check_memory
        #(#reads)*
        #check_integers
        #attend
    }
}

/// The line that checks the sizes of a call that has `axes`.
pub(super) fn emit_check(cx: &Layer<'_>) -> TokenStream {
    let label = cx.label();
    let widths = emit_widths(cx);
    quote!(p::check_axes(#label, axes, #widths)?;)
}

/// The line that checks the sizes of a session that has `room`.
pub(super) fn emit_room_check(cx: &Layer<'_>) -> TokenStream {
    let label = cx.label();
    let widths = emit_widths(cx);
    quote!(p::check_room(#label, (room.sequences, room.capacity), #widths)?;)
}

/// The lines that check that the sequences fill the grid, for lengths in `axes`.
pub(super) fn emit_grid_check(cx: &Layer<'_>) -> Option<TokenStream> {
    let label = cx.label();
    let checks = grid_sizes(cx)?.map(|(axis, index, sizes, prefix)| {
        quote!(p::check_grid(#label, #axis, axes.#index, &[#(#sizes),*], #prefix)?;)
    });
    Some(quote!(#(#checks)*))
}

/// The line that checks that the tokens of a session have places on the grid.
pub(super) fn emit_grid_capacity(cx: &Layer<'_>) -> Option<TokenStream> {
    let label = cx.label();
    let (_, index, sizes, prefix) = grid_sizes(cx)?.next()?;
    Some(quote!(p::check_grid_capacity(#label, axes.#index, &[#(#sizes),*], #prefix)?;))
}

/// The grids of the queries and of the keys: the name and the number of the axis, the sizes, and the number of tokens before.
fn grid_sizes<'a>(
    cx: &Layer<'a>,
) -> Option<impl Iterator<Item = (&'static str, Literal, &'a [Size], Size)>> {
    let grid = cx.spec.grid.as_ref()?;
    let prefix = grid.prefix.clone().unwrap_or_else(|| Size::known(0));
    let sequences = [("query", 1, Var::QIdx), ("key", 2, Var::KvIdx)];
    let sequences = sequences.into_iter().map(move |(axis, index, of)| {
        let index = Literal::usize_unsuffixed(index);
        (axis, index, grid.sizes(of), prefix.clone())
    });
    Some(sequences)
}

/// `p::Widths { queries: 512, keys: 512, heads: 8, hidden: None }`
fn emit_widths(cx: &Layer<'_>) -> TokenStream {
    let spec = cx.spec;
    let widest_over = |inputs: &[&Size], heads: &Size| {
        let vectors = [&spec.head_dim, &spec.value_head_dim].map(|width| heads.times(width));
        widest(&[inputs, &vectors.each_ref()].concat())
    };
    let queries = widest_over(&[&spec.d_model], &spec.heads);
    let sources: Vec<&Size> = spec.sources().map(|(_, width)| width).collect();
    let keys = match sources.is_empty() {
        true => widest_over(&[&spec.d_model], &spec.kv_heads),
        false => widest_over(&sources, &spec.kv_heads),
    };
    let heads = &spec.heads;
    let hidden = match spec.score {
        spec::Score::Additive => {
            let hidden = &spec.head_dim;
            quote!(Some(#hidden))
        }
        _ => quote!(None),
    };
    quote!(p::Widths { queries: #queries, keys: #keys, heads: #heads, hidden: #hidden })
}

fn widest(sizes: &[&Size]) -> TokenStream {
    let known: Option<Vec<u64>> = sizes.iter().map(|size| size.value).collect();
    match known {
        Some(values) => {
            let widest = Size::known(values.into_iter().max().unwrap_or(1));
            quote!(#widest)
        }
        None => quote!(p::largest(&[#({ #sizes }),*])),
    }
}

/// The line that reads data of the call, and checks them against `axes`.
fn emit_read(cx: &Layer<'_>, data: &CallData, batched: bool) -> TokenStream {
    let name = data_name(data);
    let arguments = read_arguments(&cx.label(), data, batched);
    let of = match data {
        CallData::Padding => quote!(Padding),
        CallData::Document => quote!(Documents),
        CallData::PositionIds => quote!(PositionIds),
        CallData::Declared(_) => quote!(Data),
    };
    quote!(let #name = p::#of::read(#name, #arguments)?;)
}

/// The data that a model passes to an attention.
pub(crate) struct Given<'a> {
    /// The axes batch, query and key.
    pub(crate) shape: &'a TokenStream,
    /// Its own ones.
    pub(crate) own_shape: &'a TokenStream,
    pub(crate) batched: bool,
}

/// The expression that reads a tensor as data of the call, and checks it against `axes`.
pub(crate) fn read_given(
    label: &str,
    data: &CallData,
    given: Given<'_>,
    tensor: &TokenStream,
) -> TokenStream {
    let Given {
        shape,
        own_shape,
        batched,
    } = given;
    let arguments = read_arguments(label, data, batched);
    let of = match data {
        CallData::Padding => quote!(Padding::<#shape, D>),
        CallData::Document => quote!(Documents::<#shape, D>),
        CallData::PositionIds => quote!(PositionIds::<#shape, D>),
        CallData::Declared(declared) => {
            let element = element(declared);
            quote!(Data::<#own_shape, #element, D>)
        }
    };
    quote!(p::#of::read(#tensor, #arguments)?)
}

/// The context in which data of the call are read.
fn read_arguments(label: &str, data: &CallData, batched: bool) -> TokenStream {
    let CallData::Declared(Declared { name: of, dims, .. }) = data else {
        return quote!(#label, axes);
    };
    let axes = dims.iter().map(|dim| {
        let text = dim.to_string();
        match dim {
            Dim::Batch => quote!((#text, axes.0)),
            Dim::Query => quote!((#text, axes.1)),
            Dim::Key => quote!((#text, axes.2)),
            Dim::Size(size) => quote!((#text, #size)),
        }
    });
    quote!(p::Declared { layer: #label, data: #of, axes: [#(#axes),*], batched: #batched })
}

/// The inputs of one implementation.
struct Parts {
    generics: TokenStream,
    names: Vec<Ident>,
    types: Vec<TokenStream>,
    /// Name, type, and the bound that says which type it must have: in a tuple, where rustc would not show it.
    fits: Vec<(Ident, TokenStream, TokenStream)>,
}

/// `x`, perhaps `context` and `values`, and the mask's data. A single input is given its exact shape.
fn parts(cx: &Layer<'_>, batched: bool) -> Parts {
    let name = &cx.name;
    let query = cx.query_var();
    let key = cx.key_var();
    let sequences = cx.sequence_vars();
    let batch = batched.then(|| quote!(B: p::Dim,));
    let lead = batched.then(|| quote!(B,));
    if cx.is_in_model() {
        return parts_of_operands(cx, batched);
    }
    let d_model = cx.spec.d_model.arg();
    let mut parts = Parts {
        generics: quote!(#batch #(#sequences: p::Dim,)* T: p::Tape<E, D>,),
        names: vec![var("x")],
        types: vec![quote_spanned!(cx.at=> p::Tensor<(#lead #query, p::Const<#d_model>), E, D, T>)],
        fits: Vec::new(),
    };
    if !cx.graph.cross && cx.graph.data.is_empty() {
        return parts;
    }
    let given = quote_spanned!(cx.at=> p::Tensor<(#lead #query, p::Const<{ WIDTH }>), E, D, T>);
    let expected = &parts.types[0];
    let bound = quote!(p::XFits<#name<E, D>, #expected>);
    parts.generics.extend(quote!(const WIDTH: usize,));
    parts.types = vec![given.clone()];
    parts.fits.push((var("x"), given, bound));
    for (index, (source, width)) in cx.spec.sources().enumerate() {
        let [b, s, e, d, t] = match index {
            0 => ["B2", "K", "E2", "D2", "T2"].map(var),
            _ => ["B3", "K2", "E3", "D3", "T3"].map(var),
        };
        let len = (s != key).then(|| quote!(#s: p::Dim,));
        let batch = batched.then(|| quote!(#b: p::Dim,));
        let other = batched.then(|| quote!(#b,));
        let [given_width, fits] = match source {
            "context" => ["CONTEXT_WIDTH", "ContextFits"].map(var),
            _ => ["VALUES_WIDTH", "ValuesFits"].map(var),
        };
        let given =
            quote_spanned!(cx.at=> p::Tensor<(#other #s, p::Const<{ #given_width }>), #e, #d, #t>);
        let width = width.arg();
        let expected = quote!(p::Tensor<(#lead #key, p::Const<#width>), E, D>);
        let bound = quote!(p::#fits<#name<E, D>, #expected>);
        parts.generics.extend(
            quote!(#batch #len const #given_width: usize, #e: p::Dtype, #d: p::Storage<#e>, #t,),
        );
        parts.names.push(var(source));
        parts.types.push(given.clone());
        parts.fits.push((var(source), given, bound));
    }
    parts_of_data(cx, batched, &mut parts);
    parts
}

/// Queries, keys and values, and the mask's data. The shapes are those of the model that calls it.
fn parts_of_operands(cx: &Layer<'_>, batched: bool) -> Parts {
    let batch = batched.then(|| quote!(B: p::Dim,));
    let sequences = cx.sequence_vars();
    let mut parts = Parts {
        generics: quote!(#batch #(#sequences: p::Dim,)* T: p::Tape<E, D>,),
        names: Vec::new(),
        types: Vec::new(),
        fits: Vec::new(),
    };
    for (index, (name, dims)) in cx.input_values().into_iter().enumerate() {
        let is_given = |dim: &&Dim| batched || !matches!(dim, Dim::Batch);
        let dims = dims.iter().filter(is_given).map(|dim| cx.dim(dim));
        let tape = (index == 0).then(|| quote!(, T));
        parts.names.push(name);
        parts
            .types
            .push(quote!(p::Tensor<(#(#dims,)*), E, D #tape>));
    }
    parts_of_data(cx, batched, &mut parts);
    parts
}

/// Adds the mask's data.
fn parts_of_data(cx: &Layer<'_>, batched: bool, parts: &mut Parts) {
    let query = cx.query_var();
    let key = cx.key_var();
    let lead = batched.then(|| quote!(B,));
    for (index, data) in cx.graph.data.iter().enumerate() {
        let (ty, bound) = match data {
            CallData::Padding => (var("Padding"), quote!(p::Padding<(#lead #query, #key), D>)),
            CallData::Document => (
                var("Document"),
                quote!(p::Documents<(#lead #query, #key), D>),
            ),
            CallData::PositionIds => (
                var("Positions"),
                quote!(p::PositionIds<(#lead #query, #key), D>),
            ),
            CallData::Declared(declared) => {
                let ty = format_ident!("A{}", index + 1);
                (ty, declared_bound(cx, declared, batched))
            }
        };
        parts.generics.extend(quote!(#ty: #bound,));
        parts.names.push(data_name(data));
        parts.types.push(quote!(#ty));
    }
}

/// The argument for data of the body: a tensor of this shape.
fn declared_bound(cx: &Layer<'_>, declared: &Declared, batched: bool) -> TokenStream {
    let name = declared_trait(declared);
    let is_given = |dim: &&Dim| batched || !matches!(dim, Dim::Batch);
    let dims = declared.dims.iter().filter(is_given);
    let dims = dims.map(|dim| cx.dim(dim));
    let element = element(declared);
    quote!(#name<(#(#dims,)*), #element, D>)
}

/// The trait of what is passed for data of the body. Only its messages differ from those of the others: they name the data.
fn emit_declared(cx: &Layer<'_>, declared: &Declared) -> TokenStream {
    let name = declared_trait(declared);
    let (message, notes) = wrong_data(cx, declared);
    let label = format!("wrong `{}`", declared.name);
    let parameters = ["Self", "Shape", "V", "D"];
    let unimplemented = on_unimplemented(cx.at, &parameters, &message, &label, &notes);
    quote_spanned! {cx.at=>
        #unimplemented
        #[allow(non_camel_case_types)]
        pub trait #name<Shape, V, D: p::Storage<V>>: p::Data<Shape, V, D> {}

        #[diagnostic::do_not_recommend]
        impl<A: p::Data<Shape, V, D>, Shape, V, D: p::Storage<V>> #name<Shape, V, D> for A {}
    }
}

/// The message and the notes for a wrong argument where the body declares data.
fn wrong_data(cx: &Layer<'_>, declared: &Declared) -> (String, [&'static str; 2]) {
    let message = format!(
        "`{}` of `{}` is `Tensor<{{Shape}}, {{V}}, {{D}}>`, not `{{Self}}`",
        declared.name,
        cx.label()
    );
    let notes = [
        "an axis `batch`, `q_len` or `kv_len` has the type that it has in the input, and `batch` is left out of unbatched input",
        "no gradient flows into data: a traced tensor gives its tape away by `let (data, tape) = data.split_tape();`",
    ];
    (message, notes)
}

fn declared_trait(declared: &Declared) -> Ident {
    format_ident!("__Data_{}", &*declared.name)
}

fn element(declared: &Declared) -> TokenStream {
    match declared.ty {
        Type::Int => quote!(usize),
        Type::Bool => quote!(bool),
        Type::Float => quote!(E),
    }
}

/// The variable that holds data of the call.
pub(super) fn data_name(data: &CallData) -> Ident {
    match data {
        CallData::Padding => var("padding"),
        CallData::Document => var("document"),
        CallData::PositionIds => var("position_ids"),
        CallData::Declared(declared) => declared_name(&declared.name),
    }
}

/// The same for what the body declares: no name of the emitted code.
pub(super) fn declared_name(name: &str) -> Ident {
    format_ident!("data_{name}")
}

/// The type into which data of the call are read.
pub(super) fn read_type(data: &CallData) -> TokenStream {
    match data {
        CallData::Padding => quote!(p::PaddingData),
        CallData::Document => quote!(p::DocumentData),
        CallData::PositionIds => quote!(p::PositionData),
        CallData::Declared(declared) => {
            let rank = Literal::usize_unsuffixed(declared.dims.len());
            let element = element(declared);
            quote!(p::Table<#element, #rank>)
        }
    }
}
