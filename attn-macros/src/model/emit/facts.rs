//! Facts of the model that need no run: the number of its parameters, its cost, a table and pictures of it.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};

use super::{Emitter, MODEL, docs, dot, item, length, made_lengths, picture};
use crate::model::graph::{Model, Module, ModuleId, Node, Region, Step, Submodule, ValueId};
use crate::model::lower::Lora;
use crate::model::sizes::ConstValue;
use crate::model::types::Axis;
use crate::ops::Attention;

/// They stand on the default type, so that `Name::PARAMS` needs no type arguments.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let label = cx.label();
    if cx.model.poisoned {
        return TokenStream::new();
    }
    let constants = emit_params(cx);
    let flops = emit_flops(cx);
    let total = match cx.is_opaque() {
        true => params(cx, cx.model.module(MODEL)),
        false => quote!(Self::PARAMS),
    };
    let rows = rows(cx, ModuleId(0), "");
    let summary_of = emit_summary_of(cx);
    let dot = dot::dot(cx.model);
    let svg = picture::svg(cx.model);
    quote_spanned! {cx.at=>
        #constants

        #[allow(dead_code)]
        impl #name {
            #flops

            /// The table of the layers, with their shapes and numbers of parameters.
            #vis fn summary() -> p::String {
                p::summary(#label, &[#(#rows),*], #total)
            }

            #summary_of

            /// The graph in the format of Graphviz.
            #vis const fn graph_dot() -> &'static str {
                #dot
            }

            /// The graph as a drawing in SVG.
            #vis const fn graph_svg() -> &'static str {
                #svg
            }
        }
    }
}

/// The facts of a function beside `forward`. After a mistake they are there, so that uses compile.
pub(super) fn emit_function(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let symbols = cx.model.symbols.iter();
    let symbols: Vec<_> = symbols.map(|name| length(cx.model, name)).collect();
    let [flops, bytes] = ["flops", "activation_bytes"].map(|fact| cx.method(fact));
    let facts = match cx.model.poisoned {
        true => quote! {
            #vis const fn #flops(#(#symbols: usize),*) -> u64 {
                0
            }

            #vis const fn #bytes(#(#symbols: usize),*) -> usize {
                0
            }
        },
        false => emit_flops(cx).unwrap_or_default(),
    };
    quote_spanned! {cx.at=>
        #[allow(dead_code, missing_docs, unused_variables)]
        impl #name {
            #facts
        }
    }
}

/// The trait of a model with adapters.
pub(super) fn emit_adapters(cx: &Emitter<'_>) -> TokenStream {
    let Some(lora) = cx.model.lora.as_ref().filter(|_| !cx.model.poisoned) else {
        return TokenStream::new();
    };
    let name = &cx.name;
    let built = cx.built(MODEL);
    let Lora {
        rank,
        alpha,
        rslora,
        saved,
        ..
    } = &**lora;
    let dropout = match &lora.dropout {
        Some(p) => quote!((#p) as f64),
        None => quote!(0.0),
    };
    let saved = saved.borrow();
    quote_spanned! {cx.at=>
        impl<E: p::Dtype, D: p::Storage<E> #built> p::Adapted for #name<E, D #built> {
            const LORA: p::Lora = p::Lora {
                rank: #rank, alpha: (#alpha) as f64, dropout: #dropout, rslora: #rslora, save: &[#(#saved),*],
            };
        }
    }
}

/// The trait for generic code: the same facts, for all elements and devices.
pub(super) fn emit_trait(cx: &Emitter<'_>) -> TokenStream {
    if cx.is_opaque() {
        return TokenStream::new();
    }
    let name = &cx.name;
    let names = &cx.model.symbols;
    let count = names.len();
    let axes = names.iter().map(|name| length(cx.model, name));
    let axes: Vec<_> = axes.collect();
    let constants = cx.model.header.iter().map(|(name, value)| {
        let value = match value {
            ConstValue::Size(size) => quote!(Size(#size)),
            ConstValue::Number(number) => quote!(Number(#number)),
            ConstValue::Numbers(numbers) => quote!(Numbers(#numbers)),
            ConstValue::Switch(value) => quote!(Switch(#value)),
        };
        quote!((#name, p::Constant::#value))
    });
    quote_spanned! {cx.at=>
        impl<E: p::Dtype, D: p::Storage<E>> p::Facts for #name<E, D> {
            type Sizes = [usize; #count];

            const PARAMS: usize = <#name>::PARAMS;
            const AXES: &'static [&'static str] = &[#(#names),*];
            const CONSTANTS: &'static [(&'static str, p::Constant)] = &[#(#constants),*];

            fn flops([#(#axes),*]: Self::Sizes) -> u64 {
                <#name>::flops(#(#axes),*)
            }

            fn summary() -> p::String {
                <#name>::summary()
            }
        }
    }
}

/// `PARAMS`, where it is known while the program is compiled.
fn emit_params(cx: &Emitter<'_>) -> TokenStream {
    let vis = &cx.model.item.vis;
    let modules = cx.model.structs();
    let known = modules.filter(|id| cx.model.opaques_in(*id).is_empty());
    let params = known.map(|id| {
        let module = cx.model.module(id);
        let name = cx.module_name(module);
        let params = params(cx, module);
        quote! {
            #[allow(dead_code)]
            impl #name {
                /// The number of parameters.
                #vis const PARAMS: usize = #params;
            }
        }
    });
    params.collect()
}

/// `flops`, where all layers are known.
pub(super) fn emit_flops(cx: &Emitter<'_>) -> Option<TokenStream> {
    if cx.is_opaque() {
        return None;
    }
    let vis = &cx.model.item.vis;
    let symbols = cx.model.symbols.iter();
    let symbols = symbols.map(|name| length(cx.model, name));
    let made = made_lengths(cx.model);
    let flops = flops(cx, &cx.model.body);
    let name = cx.method("flops");
    Some(quote_spanned! {cx.at=>
        /// The floating-point operations of the matrix products of one forward pass: two for a multiplication and an
        /// addition, including masked pairs. A backward pass takes twice as many. `u64::MAX` on overflow.
        #[allow(unused_variables)]
        #vis const fn #name(#(#symbols: usize),*) -> u64 {
            #made
            #flops
        }
    })
}

/// `summary_of`, where all layers are known.
fn emit_summary_of(cx: &Emitter<'_>) -> Option<TokenStream> {
    if cx.is_opaque() {
        return None;
    }
    let vis = &cx.model.item.vis;
    let names = &cx.model.symbols;
    let axes: Vec<_> = names.iter().map(|name| length(cx.model, name)).collect();
    Some(quote_spanned! {cx.at=>
        /// [`summary`](Self::summary) with the cost of a batch of these sizes in `f32`: the multiply-adds that
        /// [`flops`](Self::flops) counts, and the bytes of parameters and of [activations](Self::activation_bytes).
        #vis fn summary_of(#(#axes: usize),*) -> p::String {
            p::summary_of(Self::summary(), p::Batch {
                axes: &[#((#names, #axes)),*],
                flops: Self::flops(#(#axes),*),
                params: Self::PARAMS,
                activations: Self::activation_bytes(#(#axes),*),
            })
        }
    })
}

fn params(cx: &Emitter<'_>, module: &Module) -> TokenStream {
    let terms = module
        .fields
        .iter()
        .map(|field| params_of(cx, &field.layer));
    quote!(0 #(+ #terms)*)
}

/// `PARAMS` of a struct; where it has none, what that would be.
fn params_of_module(cx: &Emitter<'_>, id: ModuleId) -> TokenStream {
    let module = cx.model.module(id);
    if cx.model.opaques_in(id).is_empty() {
        let name = &module.name;
        return quote!(<#name>::PARAMS);
    }
    let sum = params(cx, module);
    quote!((#sum))
}

fn params_of(cx: &Emitter<'_>, layer: &Submodule) -> TokenStream {
    match layer {
        Submodule::Repeat {
            module,
            count,
            share,
            ..
        } => {
            let params = params_of_module(cx, *module);
            if *share {
                params
            } else {
                quote!(#count * #params)
            }
        }
        Submodule::Block { module, .. } => params_of_module(cx, *module),
        Submodule::Opaque { index, .. } => {
            let opaque = &cx.model.opaques[*index];
            let alias = opaque.alias();
            quote_spanned!(opaque.at()=> p::count::<p::Built<#alias, p::AutoDevice, f32>>())
        }
        layer => {
            let ty = item::layer_type(cx, layer, &TokenStream::new());
            quote!(<#ty>::PARAMS)
        }
    }
}

fn flops(cx: &Emitter<'_>, region: &Region) -> TokenStream {
    let terms = region.steps.iter().filter_map(|step| match step {
        Step::Node(node) => {
            let model = cx.model;
            node.op.cost(&Extents::of(model, node)).flops
        }
        Step::Repeat(repeat) => {
            let count = &repeat.count;
            let inner = flops(cx, &repeat.body);
            Some(quote!((#count as u64).saturating_mul(#inner)))
        }
        Step::Scan(scan) => {
            let steps = extent_of(cx.model, &scan.axis);
            let inner = flops(cx, &scan.body);
            Some(quote!((#steps as u64).saturating_mul(#inner)))
        }
    });
    let terms: Vec<_> = terms.collect();
    quote!(p::total(&[#(#terms),*]))
}

/// How many numbers the results of all operations have.
pub(super) fn numbers(cx: &Emitter<'_>, region: &Region) -> TokenStream {
    let of = |id: ValueId| {
        let axes = extent(cx.model, id);
        quote!(p::product(&[#(#axes),*]))
    };
    let terms = region.steps.iter().map(|step| match step {
        Step::Node(node) => of(node.result),
        Step::Repeat(repeat) => {
            let count = &repeat.count;
            let inner = numbers(cx, &repeat.body);
            quote!((#count as u64).saturating_mul(#inner))
        }
        Step::Scan(scan) => {
            let steps = extent_of(cx.model, &scan.axis);
            let inner = numbers(cx, &scan.body);
            // The slices of all steps are as many numbers as what they are of.
            let slices = scan.slices.iter().chain(&scan.yields);
            let whole = slices.map(|slice| of(slice.whole));
            quote!(p::total(&[(#steps as u64).saturating_mul(#inner), #(#whole),*]))
        }
    });
    let terms: Vec<_> = terms.collect();
    quote!(p::total(&[#(#terms),*]))
}

/// The sizes of the axes of a node's values, by the names of the arguments of `flops` and `activation_bytes`.
pub(crate) struct Extents<'a> {
    pub(crate) model: &'a Model,
    pub(crate) operands: &'a [ValueId],
    pub(crate) result: ValueId,
}

impl<'a> Extents<'a> {
    fn of(model: &'a Model, node: &'a Node) -> Self {
        Extents {
            model,
            operands: &node.operands,
            result: node.result,
        }
    }

    pub(crate) fn operand(&self, index: usize) -> Vec<TokenStream> {
        extent(self.model, self.operands[index])
    }

    pub(crate) fn result(&self) -> Vec<TokenStream> {
        extent(self.model, self.result)
    }

    /// The axes of the first operand but the last.
    pub(crate) fn rows(&self) -> Vec<TokenStream> {
        let mut axes = self.operand(0);
        axes.pop();
        axes
    }

    /// The last axis of the first operand.
    pub(crate) fn width(&self) -> Option<TokenStream> {
        self.operand(0).pop()
    }

    pub(crate) fn width_of_result(&self) -> Option<TokenStream> {
        self.result().pop()
    }

    /// The size of an axis.
    pub(crate) fn axis(&self, axis: &Axis) -> TokenStream {
        extent_of(self.model, axis)
    }

    /// The sizes of the axes batch, query and key.
    pub(crate) fn axes_of_attention(&self, attention: &Attention) -> [TokenStream; 3] {
        let query = self.operand(0);
        let key = self.operand(attention.inputs.keys);
        let batch = match query.as_slice() {
            [batch, _, _] => batch.clone(),
            _ => quote!(1),
        };
        let [query, key] = [query, key].map(|axes| axes[axes.len() - 2].clone());
        [batch, query, key]
    }
}

/// The sizes of the axes of a value, by the names of the arguments.
pub(super) fn extent(model: &Model, id: ValueId) -> Vec<TokenStream> {
    let axes = model.value(id).ty.axes.iter();
    axes.map(|axis| extent_of(model, axis)).collect()
}

/// The size of an axis, by the name of the argument.
fn extent_of(model: &Model, axis: &Axis) -> TokenStream {
    match axis {
        Axis::Symbol(symbol) => length(model, &symbol.length).into_token_stream(),
        Axis::Size(size) => size.into_token_stream(),
    }
}

/// The rows of the table: the layers of a module, those of a loop or a block behind it.
fn rows(cx: &Emitter<'_>, module: ModuleId, path: &str) -> Vec<TokenStream> {
    let mut lines = Vec::new();
    for field in &cx.model.module(module).fields {
        let name = format!("{path}{}", field.saved);
        let layer = docs::layer_name(cx.model, &field.layer);
        let output = &field.output;
        let params = params_of(cx, &field.layer);
        lines.push(quote!(p::Row { name: #name, layer: #layer, output: #output, params: #params }));
        if let Some((module, inner)) = field.layer.inner() {
            lines.extend(rows(cx, module, &format!("{name}{inner}")));
        }
    }
    lines
}
