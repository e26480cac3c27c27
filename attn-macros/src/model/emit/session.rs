//! `session` and `sessions`, or why there are none.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Emitter, MODEL, docs, input};
use crate::emit::on_unimplemented;
use crate::graph::{AttentionLayer, Declared};
use crate::messages::model as messages;
use crate::model::given::{DependsOn, Given};
use crate::model::graph::{Model, Node, Region, Step};
use crate::model::types::{Axis, ValueKind};
use crate::ops::Lookup;

/// A trait that nothing implements, which says why the model has no session: where one is asked for.
fn emit_trait(cx: &Emitter<'_>) -> TokenStream {
    let Err(reason) = &cx.session else {
        return TokenStream::new();
    };
    let name = trait_name(cx);
    let message = messages::no_session(&cx.label());
    let mut lines = reason.splitn(2, '\n');
    let label = lines.next().unwrap_or_default();
    let notes: Vec<&str> = lines.collect();
    let unimplemented = on_unimplemented(cx.at, &["Self"], &message, label, &notes);
    quote_spanned! {cx.at=>
        /// No layer of the model can have this name.
        mod __session {
            #unimplemented
            pub trait #name {}
        }
    }
}

fn trait_name(cx: &Emitter<'_>) -> Ident {
    format_ident!("{}Session", cx.model.item.name)
}

/// The methods.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    let reason = trait_name(cx);
    match cx.session {
        // After a mistake, uses compile.
        _ if cx.model.poisoned => [emit_none(cx, None), emit_bytes(cx)].into_iter().collect(),
        Ok(()) => [emit_sessions(cx), emit_bytes(cx)].into_iter().collect(),
        Err(_) => [
            emit_trait(cx),
            emit_none(
                cx,
                Some(quote_spanned!(cx.at=> where Self: __session::#reason)),
            ),
        ]
        .into_iter()
        .collect(),
    }
}

/// What a session remembers of each token, on the default type, so that it needs no type arguments.
fn emit_bytes(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let method = cx.method("cache_bytes_per_token");
    let numbers = match cx.model.poisoned {
        true => quote!(0),
        false => numbers_per_token(cx.model, &Given::of(cx.model), &cx.model.body),
    };
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl #name {
            /// The bytes that a session remembers of each token, in `f32`: the keys and values of its attentions. In `f64` it is twice as
            /// many.
            ///
            /// The cache of a session has this times its capacity, or less if masks bound how many keys are read again. Values that are a
            /// part of their keys are not remembered twice.
            #vis const fn #method() -> usize {
                (#numbers) * ::core::mem::size_of::<f32>()
            }
        }
    }
}

/// How many numbers of keys and values attentions have for each token.
fn numbers_per_token(model: &Model, given: &Given, region: &Region) -> TokenStream {
    let terms = region.steps.iter().filter_map(|step| match step {
        Step::Node(node) => {
            let AttentionLayer {
                spec,
                graph,
                values_in_keys,
                ..
            } = &model.attentions[node.attention()?.index];
            let is_of_tokens = given.depends_on(model.block(), node.result) == DependsOn::Tokens;
            if graph.cross || !is_of_tokens {
                return None;
            }
            let [heads, keys, values] = [&spec.kv_heads, &spec.head_dim, &spec.value_head_dim];
            let values = values_in_keys.is_none().then(|| quote!(+ #values));
            let read = graph.given.iter().filter(|given| given.is_remembered());
            let read = read.map(Declared::numbers);
            Some(quote!(#heads * (#keys #values) #(+ #read)*))
        }
        Step::Repeat(repeat) => {
            let count = &repeat.count;
            let inner = numbers_per_token(model, given, &repeat.body);
            Some(quote!(#count * (#inner)))
        }
        // Its states do not grow.
        Step::Scan(_) => None,
    });
    quote!(0 #(+ #terms)*)
}

fn emit_sessions(cx: &Emitter<'_>) -> TokenStream {
    let [session, sessions] = ["session", "sessions"].map(|name| cx.method(name));
    let [doc, doc_of_several] = docs::sessions(cx);
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let label = cx.label();
    let model = cx.model;
    let given = Given::of(model);
    let nodes = model.nodes().into_iter();
    let of_tokens = |node: &&Node| given.depends_on(model.block(), node.result) != DependsOn::Given;
    let nodes: Vec<_> = nodes.filter(of_tokens).collect();
    let lookups = || nodes.iter().filter_map(|node| node.op.description().lookup);
    let vocabularies = lookups().filter_map(|lookup| match lookup {
        Lookup::ById { vocab, .. } => vocab,
        Lookup::ByPosition { .. } => None,
    });
    let positions = lookups().filter_map(|lookup| match lookup {
        Lookup::ByPosition { max_len, .. } => Some(max_len),
        Lookup::ById { .. } => None,
    });
    let result = cx.model.results.first().map(|id| cx.model.value(*id));
    let width = result.and_then(|result| result.ty.width());
    if model.inputs.len() > 1 {
        let vocabulary = quote!(p::least(&[#(#vocabularies),*]));
        return emit_given_sessions(cx, &vocabulary, &quote!(#width));
    }
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl<E: p::Element, D: p::Backend<E>> #name<E, D> {
            #[doc = #doc]
            #vis fn #session(&self, capacity: usize) -> Result<p::Session<E>, p::Error<D::Err>> {
                Ok(p::Session::from(self.#sessions(1, capacity)?))
            }

            #[doc = #doc_of_several]
            #vis fn #sessions(&self, sequences: usize, capacity: usize) -> Result<p::Sessions<E>, p::Error<D::Err>> {
                #(p::check_length(capacity, #positions)?;)*
                p::check_sizes(#label, &[("sequences", sequences), ("capacity", capacity), ("width", #width)])?;
                let room = p::Capacity { sequences, capacity };
                let mut operation = p::Operation::<E, D, p::NoneTape>::default();
                let (weights, tensors) = p::read_named_weights(self, &mut operation)?;
                let past = past(&weights, room)?;
                let model = p::ModelDecoder { weights: p::Arc::new(weights), tensors, past, decode: decode::<E> };
                p::Sessions::try_new(model, room, p::least(&[#(#vocabularies),*]), #width)
            }
        }
    }
}

/// The methods of a function that takes more than tokens: a session is given the other inputs when it starts.
fn emit_given_sessions(
    cx: &Emitter<'_>,
    vocabulary: &TokenStream,
    width: &TokenStream,
) -> TokenStream {
    let [session, sessions] = ["session", "sessions"].map(|name| cx.method(name));
    let [doc, doc_of_several] = docs::sessions(cx);
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let label = cx.label();
    let model = cx.model;
    let place = model.tokens();
    let axis = |index: usize| match &model.value(model.inputs[place]).ty.axes[index] {
        Axis::Symbol(symbol) => symbol.length.as_str(),
        Axis::Size(_) => "",
    };
    let [batch, seq] = [0, 1].map(axis);
    let symbols = model.symbols.iter().filter(|symbol| *symbol != seq);
    let symbols: Vec<_> = symbols.map(|symbol| cx.symbol(symbol)).collect();
    let given = model.given_inputs().map(|(index, id)| {
        let ty = cx.tensor(&model.value(id).ty, &TokenStream::new());
        match model.default_of(index) {
            None => (cx.var(id), ty),
            Some(_) => (cx.var(id), quote!(Option<#ty>)),
        }
    });
    let (names, types): (Vec<_>, Vec<_>) = given.unzip();
    let inputs = model.inputs.iter().map(|id| cx.var(*id));
    let tokens = cx.var(model.inputs[place]);
    // An input that is always there: one of them is, or there is no session.
    let mut present = model.given_inputs();
    let first = present.find(|(index, _)| model.default_of(*index).is_none());
    let first = first.map(|(_, id)| cx.var(id));
    let defaults = input::emit_defaults(cx);
    let checks = input::emit_checks(cx);
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl<E: p::Element, D: p::Backend<E>> #name<E, D> {
            #[doc = #doc]
            #vis fn #session<#(#symbols: p::Dim),*>(
                &self,
                #(#names: #types,)*
                capacity: usize,
            ) -> Result<p::Session<E>, p::Error<D::Err>> {
                p::check_one_sequence(#label, #batch, p::axis(&#first, 0))?;
                Ok(p::Session::from(self.#sessions(#(#names,)* capacity)?))
            }

            #[doc = #doc_of_several]
            #vis fn #sessions<#(#symbols: p::Dim),*>(
                &self,
                #(#names: #types,)*
                capacity: usize,
            ) -> Result<p::Sessions<E>, p::Error<D::Err>> {
                let sequences = p::HasShape::shape(&#first).0;
                let room = p::Capacity { sequences: p::Dim::size(&sequences), capacity };
                p::check_sizes(#label, &[("sequences", room.sequences), ("capacity", capacity), ("width", #width)])?;
                // The call is checked for as many tokens as a sequence may have.
                let #tokens = p::or_full(None, #first.device(), (sequences, capacity), 0_usize)?;
                #defaults
                #checks
                let (weights, tensors, past) = start(self, #(#inputs,)* room)?;
                let model = p::ModelDecoder { weights: p::Arc::new(weights), tensors, past, decode: decode::<E> };
                p::Sessions::try_new(model, room, #vocabulary, #width)
            }
        }
    }
}

/// Names and type variables for the inputs beside tokens, of a function that has tokens.
fn others_of_tokens(cx: &Emitter<'_>) -> impl Iterator<Item = (Ident, Ident)> {
    let model = cx.model;
    let tokens = model.inputs.get(model.tokens());
    let others = match tokens.map(|id| model.value(*id).ty.kind) {
        Some(ValueKind::Ids) => 1..model.inputs.len(),
        _ => 0..0,
    };
    others.map(|index| (format_ident!("_given_{index}"), format_ident!("A{index}")))
}

/// Methods that return nothing: those of a model with mistakes, and those that nobody can call, where the trait says why.
fn emit_none(cx: &Emitter<'_>, condition: Option<TokenStream>) -> TokenStream {
    let [session, sessions] = ["session", "sessions"].map(|name| cx.method(name));
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let built = cx.built(MODEL);
    let others = others_of_tokens(cx);
    let (names, types): (Vec<_>, Vec<_>) = others.unzip();
    // The number of sequences is that of what a session is given.
    let sequences = names.is_empty().then(|| quote!(_sequences: usize,));
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl<E: p::Element, D: p::Backend<E> #built> #name<E, D #built> {
            #[doc(hidden)]
            #vis fn #session<#(#types),*>(
                &self,
                #(#names: #types,)*
                _capacity: usize,
            ) -> Result<p::Session<E>, p::Error<D::Err>> #condition {
                p::no_session()
            }

            #[doc(hidden)]
            #vis fn #sessions<#(#types),*>(
                &self,
                #(#names: #types,)*
                #sequences
                _capacity: usize,
            ) -> Result<p::Sessions<E>, p::Error<D::Err>> #condition {
                p::no_session()
            }
        }
    }
}
