//! From the graph of a model to Rust. Everything emitted refers to `__private` of the facade crate and to `core`.

mod docs;
pub(crate) mod dot;
mod facts;
mod forward;
mod fused;
mod input;
mod inside;
mod item;
mod missing;
mod onnx;
mod opaque;
mod output;
pub(crate) mod picture;
mod session;
mod trainer;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::Attribute;

use super::decode;
use super::graph::{Holder, Model, Module, ModuleId, Node, ParamPath, ValueId};
use super::names::capital;
use super::passes::{MemoryPlan, Passes};
use super::types::{Axis, Type, ValueKind};
use crate::emit as attention;
use crate::emit::block::{field, hidden};
use crate::ops::attention_layer::LayerOp;
use crate::ops::emit_buffers;

pub(super) use docs::operation_name;
pub(crate) use facts::Extents;
pub(crate) use forward::ComposedNode;
pub(crate) use fused::{FusedNode, ModelFrame};
pub(crate) use picture::VertexKind;

/// The declared model:
///
/// ```text
/// // every attention of it, as `attention!` declares a layer
/// pub struct GptBlocks<E, D> { attention: .., layer_norm: .., .. }     // the body of a `repeat`
/// /// docs
/// pub struct Gpt<E: Dtype = f32, D: Storage<E> = AutoDevice> { embedding: .., blocks: Repeated<GptBlocks<E, D>, 6>, .. }
/// pub trait GptInput<E, D> { .. }               // what `forward` accepts
/// const _: () = {                               // `BuildOnDevice`, `TensorCollection`, `Module`, `forward`, the graph
///     use attn::__private as p;
///     ..
/// };
/// const _: () = assert!(..);                    // rules that only rustc can evaluate
/// ```
///
/// The passes are those of the model and of each attention, where there is a fused form. A function with a bound on its memory has several.
pub(crate) fn model(
    krate: &TokenStream,
    model: &Model,
    plans: &[MemoryPlan<'_>],
    of_layers: &[Option<Passes<'_, dyn LayerOp>>],
    functions: &[(&Model, Vec<MemoryPlan<'_>>)],
) -> TokenStream {
    let cx = &Emitter::new(krate, model);
    let functions = functions.iter();
    let functions = functions.map(|(model, plans)| (Emitter::new(krate, model), plans));
    let functions: Vec<_> = functions.collect();
    let traits_of_functions = functions.iter().map(|(cx, _)| input::emit_traits(cx));
    let of_functions = functions.iter().map(|(cx, plans)| emit_function(cx, plans));
    let layers = model.attentions.iter().zip(of_layers).enumerate();
    let layers = layers.map(|(index, (layer, passes))| {
        let mut all = std::iter::once(cx).chain(functions.iter().map(|(cx, _)| cx));
        let goes_on = all.any(|cx| cx.session.is_ok() && cx.model.remembers_attention(index));
        let caller = match goes_on {
            true => attention::Caller::Session,
            false => attention::Caller::Model,
        };
        attention::layer(krate, layer, passes.as_ref(), caller)
    });
    let cfgs = &cx.cfgs;
    let items = item::emit(cx);
    let types = opaque::emit_aliases(cx);
    let others = [cx.built_by_default(MODEL), cx.built(MODEL)];
    let alias = attention::alias(krate, &model.item, cx.generics(), &others);
    let traits = input::emit_traits(cx);
    let all = std::iter::once(cx).chain(functions.iter().map(|(cx, _)| cx));
    let outputs: TokenStream = all.map(output::emit).collect();
    let impls = [
        input::emit_impls(cx),
        item::emit_traits(cx),
        item::emit_forward(cx),
        inside::emit_outline(cx),
        emit_buffers(model),
        forward::emit(cx),
        fused::emit(cx, plans),
        session::emit(cx),
        facts::emit(cx),
        facts::emit_trait(cx),
        facts::emit_adapters(cx),
        missing::emit(cx),
        opaque::emit_checks(cx),
        trainer::emit_method(cx),
        onnx::emit(cx),
    ];
    let constants = model.constants.iter();
    let constants = constants.map(|item| attention::constant(krate, cfgs, item));
    let assertions = model.assertions.iter();
    let assertions = assertions.map(|rule| attention::assertion(krate, cfgs, rule));
    quote! {
        #(#layers)*
        #types
        #items
        #(#constants)*
        #alias
        #traits
        #(#traits_of_functions)*
        #outputs
        #(#cfgs)*
        #[allow(clippy::all, clippy::pedantic, clippy::nursery, non_camel_case_types)]
        const _: () = {
            // The block's own imports: what the user's module calls `Result` stays out.
            #[allow(unused_imports)]
            use #krate::__private::{self as p, prelude::{Err, None, Ok, Option, Result, Some}, traits::*};
            #(#impls)*
            #(#of_functions)*
        };
        #(#assertions)*
    }
}

/// A function beside `forward`, in a block of its own, which sees the weights of the model:
///
/// ```text
/// const _: () = {
///     impl NetEncodeInput<E, D> for Tensor<..> { .. }
///     impl Net<E, D> { fn encode(&self, x) { .. } .. }
///     fn run_graph(..) { .. }
///     fn fused(..) { .. }
///     ..
/// };
/// ```
fn emit_function(cx: &Emitter<'_>, plans: &[MemoryPlan<'_>]) -> TokenStream {
    let parts = [
        input::emit_impls(cx),
        item::emit_forward(cx),
        inside::emit_outline(cx),
        forward::emit(cx),
        fused::emit(cx, plans),
        session::emit(cx),
        facts::emit_function(cx),
        trainer::emit_loss(cx),
        onnx::emit(cx),
    ];
    quote!(const _: () = { #(#parts)* };)
}

/// The model itself among its modules.
const MODEL: ModuleId = ModuleId(0);

/// The context of every emitter.
struct Emitter<'a> {
    krate: &'a TokenStream,
    model: &'a Model,
    /// The struct, as the emitted code calls it.
    name: Ident,
    /// Where rustc's notes place what is emitted: at the model's name.
    at: Span,
    /// `#[cfg]`s of the declaration: they hold for all that is emitted.
    cfgs: Vec<&'a Attribute>,
    /// Whether the model can go on token by token, or why not.
    session: Result<(), String>,
    /// The results of nodes with a loop of their own, in their order.
    loops: Vec<ValueId>,
}

impl<'a> Emitter<'a> {
    fn new(krate: &'a TokenStream, model: &'a Model) -> Self {
        let name = &model.item.name;
        Emitter {
            krate,
            model,
            name: attention::emitted_name(name),
            at: Span::call_site().located_at(name.span()),
            cfgs: model.item.cfgs().collect(),
            session: decode::check(model),
            loops: fused::emitted_loops(model),
        }
    }

    /// The type variables of the structs, element and device.
    fn generics(&self) -> [Ident; 2] {
        attention::generics(&self.model.item.name)
    }

    /// The model's name, for messages at run time; with that of the function, if it is another one than `forward`.
    fn label(&self) -> String {
        let model = &self.model.item.name;
        match &self.model.function {
            None => model.to_string(),
            Some(function) => format!("{model}::{}", function.name),
        }
    }

    /// How the names of the types of the function begin.
    fn stem(&self) -> &Ident {
        let function = self.model.function.as_ref();
        function.map_or(&self.model.item.name, |function| &function.stem)
    }

    /// The method of a function that is this one of `forward`: `forward_mut` and `flops`, or `encode_mut` and `encode_flops`.
    fn method(&self, of_forward: &str) -> Ident {
        let mut name = field(&self.method_name(of_forward));
        name.set_span(self.at);
        name
    }

    fn method_name(&self, of_forward: &str) -> String {
        match &self.model.function {
            None => of_forward.to_owned(),
            Some(function) => function.method(of_forward),
        }
    }

    /// The struct of a module, as the emitted code calls it.
    fn module_name<'m>(&'m self, module: &'m Module) -> &'m Ident {
        if module.name == self.model.item.name {
            &self.name
        } else {
            &module.name
        }
    }

    /// The type variable of a symbolic axis: its name with a capital, or its number where that means something else.
    fn symbol(&self, name: &str) -> Ident {
        let symbols = &self.model.symbols;
        let camel = capital(name);
        let is_taken = attention::TAKEN.contains(&camel.as_str())
            // The model and the types of its layers begin so.
            || camel.starts_with(&self.model.item.name.to_string())
            || is_numbered(&camel, "Axis")
            || symbols
                .iter()
                .filter(|other| capital(other) == camel)
                .count()
                > 1
            || syn::parse_str::<Ident>(&camel).is_err();
        match symbols.iter().position(|symbol| symbol == name) {
            Some(index) if is_taken => format_ident!("Axis{index}"),
            _ => Ident::new(&camel, Span::call_site()),
        }
    }

    fn axis(&self, axis: &Axis) -> TokenStream {
        match axis {
            Axis::Symbol(symbol) if self.model.made(&symbol.length).is_some() => quote!(usize),
            Axis::Symbol(symbol) => {
                let symbol = self.symbol(&symbol.length);
                quote!(#symbol)
            }
            Axis::Size(size) => {
                let size = size.arg();
                quote!(p::Const<#size>)
            }
        }
    }

    /// A tensor of this type, with the tape `tape`, if there is one.
    fn tensor(&self, ty: &Type, tape: &TokenStream) -> TokenStream {
        let axes = ty.axes.iter().map(|axis| self.axis(axis));
        let element = match ty.kind {
            ValueKind::Floats => quote!(E),
            ValueKind::Ids | ValueKind::Lens => quote!(usize),
            ValueKind::Bools => quote!(bool),
        };
        let tape = (!tape.is_empty()).then(|| quote!(, #tape));
        quote!(p::Tensor<(#(#axes,)*), #element, D #tape>)
    }

    /// The same without a tape: what variables hold.
    fn value_type(&self, id: ValueId) -> TokenStream {
        self.tensor(&self.model.value(id).ty, &TokenStream::new())
    }

    /// The variable of a value. It is no name of the emitted code: whatever a user calls a value, it hides nothing.
    fn var(&self, id: ValueId) -> Ident {
        hidden(&self.model.value(id).name)
    }

    /// The variable of a module that is no field: the model, or a round of a loop.
    fn module_var(&self, id: ModuleId) -> Ident {
        match id {
            MODEL => format_ident!("model"),
            round => hidden(self.model.module(round).var()),
        }
    }

    /// `blocks.attention`, `blocks.mlp.linear`
    fn place(&self, place: &ParamPath) -> TokenStream {
        let module = match &self.model.module(place.module).holder {
            Holder::Variable(_) => self.module_var(place.module).into_token_stream(),
            Holder::Field(outer) => self.place(outer),
        };
        let field = field(&place.field);
        quote!(#module.#field)
    }

    /// The data of the call of an attention: copies of inputs, by their `name`. Lengths of queries are marked as such.
    fn data_of_call(
        &self,
        attention: &Node,
        inputs: &[ValueId],
        name: impl Fn(ValueId) -> Ident,
    ) -> TokenStream {
        let type_of = |id: ValueId| &self.model.value(id).ty;
        let query = type_of(attention.operands[0]);
        let copies = inputs.iter().map(|id| {
            let copy = copy(&name(*id));
            let ty = type_of(*id);
            match ty.kind == ValueKind::Lens && ty.axes.len() + 1 == query.axes.len() {
                true => quote!(p::LengthsPerQuery(#copy)),
                false => copy,
            }
        });
        tuple(&copies.collect::<Vec<_>>())
    }

    /// Several results as a tuple, each with its tape: the lines at the end of a forward pass that has the `history`.
    fn put_tapes(&self, results: &[Ident], history: &TokenStream) -> TokenStream {
        let label = self.label();
        let tapes = 0..results.len();
        let tapes: Vec<_> = tapes.map(|index| format_ident!("tape_{index}")).collect();
        let values = results.iter().zip(&tapes);
        let values = values.map(|(value, tape)| quote!(p::PutTape::put_tape(#value, #tape)));
        let returned = self.returned(&values.collect::<Vec<_>>());
        quote! {
            let [#(#tapes),*] = p::tapes_of_results::<E, D, T, _>(#label, #history);
            Ok(#returned)
        }
    }

    /// The first axis of this name of an input that is always there. `var` has its tensor.
    fn axis_of_input(&self, symbol: &str, var: impl Fn(ValueId) -> Ident) -> TokenStream {
        let model = self.model;
        let inputs = model.inputs.iter().enumerate();
        let mut inputs = inputs.filter(|(index, _)| model.default_of(*index).is_none());
        let found = inputs.find_map(|(_, id)| {
            let is_it = |axis: &Axis| matches!(axis, Axis::Symbol(other) if other.length == symbol);
            let index = model.value(*id).ty.axes.iter().position(is_it)?;
            Some((var(*id), syn::Index::from(index)))
        });
        found.map_or_else(
            || quote!(p::Const),
            |(input, index)| quote!(p::HasShape::shape(&#input).#index),
        )
    }

    /// `Batch: p::Dim, Seq: p::Dim,`
    fn symbols(&self) -> TokenStream {
        let symbols = self.model.symbols.iter().map(|name| self.symbol(name));
        quote!(#(#symbols: p::Dim,)*)
    }
}

/// The argument with the length of a symbolic axis: its name in small letters, as no constant is called; or its number where
/// that is the name of another, too.
pub(crate) fn length(model: &Model, name: &str) -> Ident {
    let small = |name: &str| hidden(&name.to_lowercase());
    let is_it = |other: &&str| small(other) == small(name);
    let is_taken =
        is_numbered(&small(name).to_string(), "axis_") || model.axes().filter(is_it).count() > 1;
    match model.axes().position(|symbol| symbol == name) {
        Some(index) if is_taken => hidden(&format!("axis_{index}")),
        _ => small(name),
    }
}

/// The lines that compute the lengths of the axes that operations make, of the [`length`]s of those of the inputs.
fn made_lengths(model: &Model) -> TokenStream {
    let lines = model.made.iter().map(|axis| {
        let name = length(model, &axis.name);
        let value = axis
            .length
            .tokens(&|symbol| length(model, symbol).to_token_stream());
        quote!(let #name: usize = #value;)
    });
    lines.collect()
}

/// Whether a name is this and a number, as that of the axis of an index is.
fn is_numbered(name: &str, stem: &str) -> bool {
    let number = name.strip_prefix(stem);
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn copy(value: &Ident) -> TokenStream {
    quote!(p::Clone::clone(&#value))
}

/// One by itself, several in parentheses.
fn tuple(parts: &[TokenStream]) -> TokenStream {
    match parts {
        [one] => one.clone(),
        several => quote!((#(#several),*)),
    }
}
