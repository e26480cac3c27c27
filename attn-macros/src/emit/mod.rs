//! From a spec and its graph to Rust. Everything emitted refers to `__private` of the facade crate and to `core`.

mod anything;
pub(crate) mod block;
mod bounds;
mod composed;
mod docs;
mod drawing;
pub(crate) mod expr;
mod facts;
mod fused;
pub(crate) mod input;
pub(crate) mod item;
pub(crate) mod module;
mod places;
pub(crate) mod tables;
pub(crate) mod tracked_code;
mod unimplemented;

pub(crate) use anything::{Anything, anything};
pub(crate) use composed::ComposedNode;
pub(crate) use fused::{LayerFrame, LayerNode, ParameterGradient};
pub(crate) use unimplemented::on_unimplemented;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::Attribute;

use crate::graph::block::{LayerBlock, dim};
use crate::graph::{AttentionLayer, CallData, Dim, Graph};
use crate::model::passes::Passes;
use crate::ops::attention_layer::LayerOp;
use crate::spec::not_constant::with_paths_of_roots;
use crate::spec::{Assertion, Item, Size, Spec};

/// The declared layer:
///
/// ```text
/// /// docs
/// pub struct Name<E: Dtype = f32, D: Storage<E> = AutoDevice> { q_proj: Linear<..>, .. }
/// const __Name_heads: usize = HEADS;            // what only rustc can evaluate
/// pub trait NameInput<E, D> { .. }              // what `forward` accepts
/// const _: () = {                               // `BuildOnDevice`, `TensorCollection`, `Module`, `forward`, the graph
///     use attn::__private as p;
///     ..
/// };
/// const _: () = assert!(..);                    // rules that only rustc can evaluate
/// ```
///
/// `passes` is of the fused form, where there is one.
pub(crate) fn layer(
    krate: &TokenStream,
    layer: &AttentionLayer,
    passes: Option<&Passes<'_, dyn LayerOp>>,
    caller: Caller,
) -> TokenStream {
    let cx = &Layer::new(krate, layer, caller);
    let spec = cx.spec;
    let cfgs = &cx.cfgs;
    let item = item::emit(cx);
    let alias = cx.alias();
    let input_trait = input::emit_trait(cx);
    let impls = [
        input::emit_impls(cx),
        module::emit(cx),
        item::emit_forward(cx),
        composed::emit(cx),
        passes
            .map(|passes| fused::emit(cx, passes))
            .unwrap_or_default(),
        facts::emit(cx),
    ];
    let constants = spec.constants.iter();
    let constants = constants.map(|item| constant(krate, cfgs, item));
    let assertions = spec.assertions.iter();
    let assertions = assertions.map(|rule| assertion(krate, cfgs, rule));
    quote! {
        #item
        #(#constants)*
        #alias
        #input_trait
        #(#cfgs)*
        #[allow(clippy::all, clippy::pedantic, clippy::nursery)]
        const _: () = {
            // The block's own imports: what the user's module calls `Result` stays out.
            #[allow(unused_imports)]
            use #krate::__private::{self as p, prelude::{Err, None, Ok, Option, Result, Some}, traits::*};
            #(#impls)*
        };
        #(#assertions)*
    }
}

/// The type variables of the emitted code, and what it imports: names that would hide the struct's.
#[rustfmt::skip]
pub(crate) const TAKEN: &[&str] = &[
    "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "A11", "Attends", "B", "B2", "B3", "CONTEXT_WIDTH", "Call", "D", "D0", "D2", "D3", "E", "E0", "E2", "E3", "F", "Document", "Positions",
    "Inputs", "K", "K2", "Modified", "Padding", "Q", "S", "Saved", "Sizes", "T", "T2", "T3", "V", "VALUES_WIDTH", "WIDTH", "Weights", "X", "p", "Err", "None", "Ok", "Option",
    "Result", "Some",
];

/// The name of a struct in the emitted code: its own, unless that has another meaning there.
pub(crate) fn emitted_name(name: &Ident) -> Ident {
    // The expansion's own types have two underscores before their names.
    if TAKEN.iter().any(|taken| name == taken) || name.to_string().starts_with("__") {
        format_ident!("__{name}")
    } else {
        name.clone()
    }
}

/// A struct's type variables, element and device. Only one of such a name has others.
pub(crate) fn generics(name: &Ident) -> [Ident; 2] {
    let clash = name == "E" || name == "D";
    if clash { ["E0", "D0"] } else { ["E", "D"] }.map(var)
}

/// The item of a value that only rustc can evaluate.
pub(crate) fn constant(
    krate: &TokenStream,
    cfgs: &[&Attribute],
    item: &TokenStream,
) -> TokenStream {
    let item = with_paths_of_roots(krate, item.clone());
    quote! {
        #(#cfgs)*
        #[allow(clippy::all, clippy::pedantic, non_upper_case_globals, trivial_numeric_casts)]
        #item
    }
}

/// A rule that only rustc can evaluate.
pub(crate) fn assertion(krate: &TokenStream, cfgs: &[&Attribute], rule: &Assertion) -> TokenStream {
    let rule = with_paths_of_roots(krate, rule.to_token_stream());
    quote!(#(#cfgs)* #rule)
}

/// Where a name of the emitted code hides the struct's: the alias under which the emitted code knows it.
///
/// A struct may have further type variables: what declares them, and what names them.
pub(crate) fn alias(
    krate: &TokenStream,
    item: &Item,
    [e, d]: [Ident; 2],
    [declared_others, others]: &[TokenStream; 2],
) -> Option<TokenStream> {
    let declared = &item.name;
    let alias = emitted_name(&item.name);
    let cfgs = item.cfgs();
    (alias != *declared).then(|| {
        quote! {
            #(#cfgs)*
            #[doc(hidden)]
            #[allow(non_camel_case_types, type_alias_bounds)]
            type #alias<#e: #krate::__private::Dtype = f32, #d: #krate::__private::Storage<#e> = #krate::__private::AutoDevice #declared_others> =
                #declared<#e, #d #others>;
        }
    })
}

/// Who calls a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// The user.
    User,
    /// A model.
    Model,
    /// A model with sessions.
    Session,
}

/// The function that the lines of a forward pass are part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExecMode {
    /// A pass over whole sequences.
    Forward,
    /// Some new tokens of sequences that go on, in the one sequence that they make in the order of their rows.
    Session,
    /// What all tokens of a session read, when it starts.
    Start,
}

/// The context of every emitter.
struct Layer<'a> {
    krate: &'a TokenStream,
    spec: &'a Spec,
    graph: &'a Graph,
    /// The block of the fused form. None after a mistake, or where the kernels do not know what it asks for.
    fused: Option<&'a LayerBlock>,
    /// The first column of the values among those of the keys, if they are a part of them.
    values_in_keys: Option<&'a Size>,
    /// The fields of the projections that are layers of the model around it.
    projected: Vec<&'static str>,
    /// The struct, as the emitted code calls it.
    name: Ident,
    /// The trait of what `forward` accepts.
    input: Ident,
    /// The span that rustc's notes show for emitted code: the layer's name, not the whole call.
    at: Span,
    /// `#[cfg]`s of the declaration: they hold for all that is emitted.
    cfgs: Vec<&'a Attribute>,
    caller: Caller,
}

impl<'a> Layer<'a> {
    fn new(krate: &'a TokenStream, layer: &'a AttentionLayer, caller: Caller) -> Self {
        let AttentionLayer {
            spec,
            graph,
            fused,
            values_in_keys,
            ..
        } = layer;
        let name = &spec.item.name;
        Layer {
            krate,
            spec,
            graph,
            fused: fused.as_ref().filter(|_| !spec.poisoned),
            values_in_keys: values_in_keys.as_ref(),
            projected: layer.projected().map(|projected| projected.field).collect(),
            name: emitted_name(name),
            input: format_ident!("{name}Input"),
            at: Span::call_site().located_at(name.span()),
            cfgs: spec.item.cfgs().collect(),
            caller,
        }
    }

    /// The layer's name, for messages at run time.
    fn label(&self) -> String {
        self.spec.item.name.to_string()
    }

    fn alias(&self) -> Option<TokenStream> {
        alias(
            self.krate,
            &self.spec.item,
            self.generics(),
            &Default::default(),
        )
    }

    /// The struct's type variables, element and device.
    fn generics(&self) -> [Ident; 2] {
        generics(&self.spec.item.name)
    }

    /// The type variables of the sequence axes: one in self-attention, two in cross-attention.
    fn sequence_vars(&self) -> Vec<Ident> {
        let names: &[&str] = if self.graph.cross {
            &["Q", "K"]
        } else {
            &["S"]
        };
        names.iter().map(|name| var(name)).collect()
    }

    fn query_var(&self) -> Ident {
        var(if self.graph.cross { "Q" } else { "S" })
    }

    fn key_var(&self) -> Ident {
        var(if self.graph.cross { "K" } else { "S" })
    }

    /// A dimension as a type.
    fn dim(&self, dim: &Dim) -> TokenStream {
        match dim {
            Dim::Batch => quote!(B),
            Dim::Query => {
                let var = self.query_var();
                quote!(#var)
            }
            Dim::Key => {
                let var = self.key_var();
                quote!(#var)
            }
            Dim::Size(size) => {
                let size = size.arg();
                quote!(p::Const<#size>)
            }
        }
    }

    /// A tensor of this shape, with the tape `tape`.
    fn tensor(&self, shape: &[Dim], tape: &TokenStream) -> TokenStream {
        let dims = shape.iter().map(|dim| self.dim(dim));
        quote!(p::Tensor<(#(#dims,)*), E, D, #tape>)
    }

    /// `x: Tensor<..>, context: Tensor<..>, values: Tensor<..>, padding: PaddingData, ..`, with the types that `data` gives.
    fn inputs(&self, data: impl Fn(&CallData) -> TokenStream) -> TokenStream {
        let tensors = self.input_values().into_iter().enumerate();
        let tensors = tensors.map(|(index, (name, dims))| {
            let tape = match index {
                0 => quote!(T),
                _ => quote!(p::NoneTape),
            };
            let ty = self.tensor(&dims, &tape);
            quote!(#name: #ty,)
        });
        let data = self.graph.data.iter().map(|word| {
            let name = input::data_name(word);
            let ty = data(word);
            quote!(#name: #ty,)
        });
        quote!(#(#tensors)* #(#data)*)
    }

    /// Whether only a model can call it: its inputs are more than sequences of tokens.
    fn is_in_model(&self) -> bool {
        self.spec.of_operands.is_some() || !self.graph.given.is_empty()
    }

    /// The tensors that are inputs, with their dimensions. The first one carries the tape.
    fn input_values(&self) -> Vec<(Ident, Vec<Dim>)> {
        let block = &self.graph.block;
        let inputs = block.inputs.iter().map(|id| block.value(*id));
        let inputs = inputs.map(|value| {
            let dims = value.ty.axes.iter().map(dim);
            (var(&value.name), dims.collect())
        });
        inputs.collect()
    }

    /// The shape of the output, batched: `[batch, query, d_model]`.
    fn output_shape(&self) -> Vec<Dim> {
        let block = &self.graph.block;
        let axes = &block.value(block.output()).ty.axes;
        axes.iter().map(dim).collect()
    }

    /// The results of both forms: the output, and what is wanted beside it. All have a tape.
    fn attended(&self) -> TokenStream {
        let output = self.tensor(&self.output_shape(), &quote!(T));
        let weights = self.tensor(&self.graph.weights, &quote!(T));
        let lse = self.tensor(&self.graph.weights[..3], &quote!(T));
        quote!(p::Attended<#output, #weights, #lse>)
    }
}

/// A name of the emitted code. The facade's macro stands between it and the user's names, so it captures none of them.
fn var(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}
