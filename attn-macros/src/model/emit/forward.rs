//! The forward pass: a line per operation, each with the shape of its result as the type.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::opaque::Access;
use super::{Emitter, MODEL, ModelFrame, copy, tuple};
use crate::model::graph::{Node, ParamPath, Region, Repeat, Scan, Step, ValueId};
use crate::model::types::{Axis, Same, Symbol, Type};
use crate::ops::{Attention, Emit};

/// `run_graph`: computes the graph. Its twin `run_graph_mut` may change the model.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    if cx.model.poisoned {
        return TokenStream::new();
    }
    let functions = cx.accesses().iter();
    functions.map(|access| emit_function(cx, *access)).collect()
}

fn emit_function(cx: &Emitter<'_>, access: Access) -> TokenStream {
    let name = &cx.name;
    let symbols = cx.symbols();
    let run_graph = access.function();
    let built = cx.built(MODEL);
    let calls = cx.calls_where(access);
    let mutability = access.mutability();
    let inputs = cx.model.inputs.iter().map(|id| {
        let name = cx.var(*id);
        let ty = cx.value_type(*id);
        quote!(#name: #ty)
    });
    let body = emit_region(cx, &cx.model.body, access);
    let results: Vec<_> = cx.model.results.iter().map(|id| cx.var(*id)).collect();
    let types: Vec<_> = cx
        .model
        .results
        .iter()
        .map(|id| cx.value_type(*id))
        .collect();
    let (result, ty) = match results.as_slice() {
        [one] => (quote!(#one), quote!(#(#types)*)),
        // A value may be returned twice.
        _ => (
            quote!((#(p::Clone::clone(&#results)),*)),
            quote!((#(#types),*)),
        ),
    };
    quote_spanned! {cx.at=>
        /// The operations of the model.
        fn #run_graph<#symbols E: p::Element, D: p::Backend<E>, T: p::Tape<E, D> #built>(
            model: & #mutability #name<E, D #built>,
            pass: &mut p::Pass<'_, T>,
            #(#inputs,)*
        ) -> Result<#ty, p::Error<D::Err>> #calls {
            #body
            Ok(#result)
        }
    }
}

fn emit_region(cx: &Emitter<'_>, region: &Region, access: Access) -> TokenStream {
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(node) => emit_node(cx, node, access),
        Step::Repeat(repeat) => emit_repeat(cx, repeat, access),
        Step::Scan(scan) => emit_scan(cx, scan, access),
    });
    steps.collect()
}

fn emit_node(cx: &Emitter<'_>, node: &Node, access: Access) -> TokenStream {
    let of = ComposedNode { cx, node, access };
    Emit::<ModelFrame<'_>>::composed(&*node.op, &of)
}

/// A node of the composed form: its operands are tensors without a tape.
pub(crate) struct ComposedNode<'a> {
    cx: &'a Emitter<'a>,
    node: &'a Node,
    access: Access,
}

impl ComposedNode<'_> {
    /// `let y: p::Tensor<..> = pass.call(..)?;`
    pub(crate) fn define(&self, call: &TokenStream) -> TokenStream {
        let result = self.cx.var(self.node.result);
        let ty = self.cx.value_type(self.node.result);
        quote!(let #result: #ty = pass.#call?;)
    }

    pub(crate) fn operand(&self, index: usize) -> Ident {
        self.cx.var(self.node.operands[index])
    }

    /// The name of the model.
    pub(crate) fn label(&self) -> String {
        self.cx.label()
    }

    pub(crate) fn operands(&self) -> Vec<Ident> {
        let operands = self.node.operands.iter();
        operands.map(|id| self.cx.var(*id)).collect()
    }

    pub(crate) fn operand_type(&self, index: usize) -> &Type {
        &self.cx.model.value(self.node.operands[index]).ty
    }

    pub(crate) fn result_type(&self) -> &Type {
        &self.cx.model.value(self.node.result).ty
    }

    /// An operand where one of this type is to be.
    pub(crate) fn operand_as(&self, index: usize, ty: &Type) -> TokenStream {
        as_type(self.cx, self.node.operands[index], ty)
    }

    /// The shape of the result without so many of its last axes.
    pub(crate) fn shape(&self, without: usize) -> TokenStream {
        let axes = &self.result_type().axes;
        let axes = axes[..axes.len() - without].iter();
        let axes = axes.map(|axis| axis_value(self.cx, axis));
        quote!((#(#axes,)*))
    }

    /// The device of the first input.
    pub(crate) fn device(&self) -> TokenStream {
        let input = self.cx.model.inputs.first().map(|id| self.cx.var(*id));
        quote!(#input.device())
    }

    /// An axis of the inputs, or the constant that the type of the result says.
    pub(crate) fn axis(&self, axis: &Axis) -> TokenStream {
        axis_value(self.cx, axis)
    }

    /// The size of an axis.
    pub(crate) fn size(&self, axis: &Axis) -> TokenStream {
        match axis {
            Axis::Size(size) => quote!(#size),
            Axis::Symbol(_) => {
                let axis = axis_value(self.cx, axis);
                quote!(p::Dim::size(&#axis))
            }
        }
    }

    /// The path of `attn::nn`.
    pub(crate) fn nn(&self) -> TokenStream {
        let krate = self.cx.krate;
        quote!(#krate::nn)
    }

    /// `model.linear`
    pub(crate) fn place(&self, place: &ParamPath) -> TokenStream {
        self.cx.place(place)
    }

    /// `let y: p::Tensor<..> = pass.linear(&x, &model.linear)?;`
    pub(crate) fn layer(&self, method: &str, place: &ParamPath) -> TokenStream {
        let method = format_ident!("{method}");
        let place = self.place(place);
        let operands = self.operands();
        self.define(&quote!(#method(#(&#operands,)* &#place)))
    }

    /// `let y: p::Tensor<..> = pass.layer(&model.attention, |tape| (p::on(tape, &x), ..))?;`, or `pass.attention(..)` with results beside.
    pub(crate) fn attention(&self, attention: &Attention) -> TokenStream {
        let operands = self.operands();
        let others = operands[1..attention.inputs.len()].iter().map(copy);
        let data = self.cx.model.data(self.node).into_iter();
        let data = data.map(|(_, inputs)| {
            self.cx
                .data_of_call(self.node, inputs, |id| self.cx.var(id))
        });
        let input = input_with_tape(&operands[0], others.chain(data));
        let layer = self.place(&attention.place);
        let others = &self.node.others;
        if others.iter().all(Option::is_none) {
            return self.define(&quote!(layer(&#layer, |tape| #input)));
        }
        let fields = ["weights", "lse"].map(|name| format_ident!("{name}"));
        let beside = fields.iter().zip(others.iter().chain([&None, &None]));
        let flags = beside.clone().map(|(field, id)| {
            let is_wanted = id.is_some();
            quote!(#field: #is_wanted)
        });
        let beside = beside.filter_map(|(field, id)| Some((field, (*id)?)));
        let taken = beside.clone().map(|(field, id)| {
            let name = self.cx.var(id);
            quote!(#field: #name,)
        });
        let typed = beside.map(|(_, id)| {
            let (name, ty) = (self.cx.var(id), self.cx.value_type(id));
            quote!(let #name: #ty = p::wanted(#name);)
        });
        let result = self.cx.var(self.node.result);
        let ty = self.cx.value_type(self.node.result);
        quote! {
            let p::Attended { output: #result, #(#taken)* .. } =
                pass.attention(&#layer, p::Wanted { #(#flags),* }, |tape| #input)?;
            let #result: #ty = #result;
            #(#typed)*
        }
    }

    /// `let y: p::Tensor<..> = pass.module(&model.head, |tape| p::on(tape, &x))?;`
    pub(crate) fn module(&self, place: &ParamPath) -> TokenStream {
        let operands = self.operands();
        let module = self.place(place);
        let others = operands[1..].iter().map(copy);
        let input = input_with_tape(&operands[0], others);
        self.define(&match self.access {
            Access::Shared => quote!(module(&#module, |tape| #input)),
            Access::Exclusive => quote!(module_mut(&mut #module, |tape| #input)),
        })
    }
}

/// A value where one of this type is to be: rustc may have to find out that the two are the same.
fn as_type(cx: &Emitter<'_>, id: ValueId, ty: &Type) -> TokenStream {
    let name = cx.var(id);
    match cx.model.value(id).ty.same(ty) {
        // A generic operation needs the type.
        Same::If(_) => {
            let axes = ty.axes.iter().map(|axis| cx.axis(axis));
            quote!(p::asserted::<_, (#(#axes,)*), _, _>(&#name))
        }
        _ => quote!(#name),
    }
}

/// The operands, the first one with the tape.
fn input_with_tape(x: &Ident, others: impl Iterator<Item = TokenStream>) -> TokenStream {
    let x = [quote!(p::on(tape, &#x))].into_iter();
    tuple(&x.chain(others).collect::<Vec<_>>())
}

/// The axis of a tensor to be made: that of an input that has it, or the constant.
fn axis_value(cx: &Emitter<'_>, axis: &Axis) -> TokenStream {
    let Axis::Symbol(symbol) = axis else {
        return quote!(p::Const);
    };
    if let Some(made) = cx.model.made(&symbol.length) {
        return made.length.tokens(&|symbol| {
            let axis = axis_value(cx, &Axis::Symbol(Symbol::of_inputs(symbol)));
            quote!(p::Dim::size(&#axis))
        });
    }
    let found = cx.model.inputs.iter().find_map(|id| {
        let axes = &cx.model.value(*id).ty.axes;
        let is_it =
            |axis: &Axis| matches!(axis, Axis::Symbol(other) if other.length == symbol.length);
        Some((cx.var(*id), axes.iter().position(is_it)?))
    });
    match found {
        Some((input, index)) => {
            let index = syn::Index::from(index);
            quote!(p::HasShape::shape(&#input).#index)
        }
        None => quote!(p::Const),
    }
}

/// A loop over the sets of parameters.
fn emit_repeat(cx: &Emitter<'_>, repeat: &Repeat, access: Access) -> TokenStream {
    let place = cx.place(&repeat.place);
    let module = cx.module_var(repeat.module);
    let starts = repeat.carried.iter().map(|carried| {
        let value = cx.var(carried.value);
        let before = cx.var(carried.before);
        quote!(let mut #value = p::Clone::clone(&#before);)
    });
    let starts: Vec<_> = starts.collect();
    let values: Vec<_> = repeat.carried.iter().map(|of| cx.var(of.value)).collect();
    let ends = repeat.carried.iter().map(|of| {
        let ty = &cx.model.value(of.value).ty;
        as_type(cx, of.after, ty)
    });
    let ends: Vec<_> = ends.collect();
    let assign = match (values.as_slice(), ends.as_slice()) {
        ([value], [end]) => quote!(#value = #end;),
        _ => quote!((#(#values),*) = (#(p::Clone::clone(&#ends)),*);),
    };
    let body = emit_region(cx, &repeat.body, access);
    let count = &repeat.count;
    let rounds = match (repeat.share, access) {
        (true, Access::Shared) => quote!(for #module in ::core::iter::repeat_n(&#place, #count)),
        (true, Access::Exclusive) => quote!(for _ in 0..#count),
        (false, Access::Shared) => quote!(for #module in #place.modules.iter()),
        (false, Access::Exclusive) => quote!(for #module in #place.modules.iter_mut()),
    };
    // The one set of parameters is borrowed anew in every round.
    let borrowed =
        (repeat.share && access == Access::Exclusive).then(|| quote!(let #module = &mut #place;));
    quote! {
        #(#starts)*
        #rounds {
            #borrowed
            #body
            #assign
        }
    }
}

/// A loop over steps: their slices, the body, and the results of all steps stacked.
fn emit_scan(cx: &Emitter<'_>, scan: &Scan, access: Access) -> TokenStream {
    let ty = |id: ValueId| cx.value_type(id);
    let count = match &scan.axis {
        Axis::Size(size) => quote!(#size),
        Axis::Symbol(_) => {
            let axis = axis_value(cx, &scan.axis);
            quote!(p::Dim::size(&#axis))
        }
    };
    let starts = scan.states.iter().map(|state| {
        let (value, before, ty) = (cx.var(state.value), cx.var(state.before), ty(state.value));
        quote!(let mut #value: #ty = p::Clone::clone(&#before);)
    });
    let slices = scan.slices.iter().map(|of| {
        let (slice, whole, ty) = (cx.var(of.slice), cx.var(of.whole), ty(of.slice));
        quote!(let #slice: #ty = pass.select(&#whole, p::shapes::Axis::<0>, step)?;)
    });
    let values: Vec<_> = scan.states.iter().map(|of| cx.var(of.value)).collect();
    let ends = scan.states.iter().map(|of| {
        let end = as_type(cx, of.after, &cx.model.value(of.value).ty);
        quote!(p::Clone::clone(&#end))
    });
    let assign = (!values.is_empty()).then(|| quote!((#(#values,)*) = (#(#ends,)*);));
    let all: Vec<_> = (0..scan.yields.len())
        .map(|index| format_ident!("yields_{index}"))
        .collect();
    let pushes = scan.yields.iter().zip(&all).map(|(of, all)| {
        let slice = cx.var(of.slice);
        quote!(#all.push(p::Clone::clone(&#slice));)
    });
    let reverse = scan.reverse;
    let stacked = scan.yields.iter().zip(&all).map(|(of, all)| {
        let (whole, ty) = (cx.var(of.whole), ty(of.whole));
        let axes = cx.model.value(of.whole).ty.axes.iter();
        let axes = axes.map(|axis| axis_value(cx, axis));
        quote!(let #whole: #ty = pass.stack_steps(&device_of_steps, #all, #reverse, (#(#axes,)*))?;)
    });
    let lasts = scan.states.iter().filter_map(|state| {
        let (last, value) = (cx.var(state.last?), cx.var(state.value));
        Some(quote!(let #last = p::Clone::clone(&#value);))
    });
    let body = emit_region(cx, &scan.body, access);
    let rev = reverse.then(|| quote!(.rev()));
    let input = cx.model.inputs.first().map(|id| cx.var(*id));
    let attentions = attentions_of(&scan.body);
    let [count_attentions, join_steps] = match attentions.is_empty() {
        true => [TokenStream::new(), TokenStream::new()],
        false => [
            quote!(let first_attention = pass.attentions();),
            quote!(pass.join_steps(first_attention, 0 #attentions, #reverse);),
        ],
    };
    quote! {
        #count_attentions
        let observer = pass.pause();
        let device_of_steps = p::Clone::clone(#input.device());
        #(#starts)*
        #(let mut #all = p::Vec::new();)*
        for step in (0..#count) #rev {
            #(#slices)*
            #body
            #(#pushes)*
            #assign
        }
        pass.resume(observer);
        #join_steps
        #(#stacked)*
        #(#lasts)*
    }
}

/// How many attentions a region runs: `+ 1 + 6 * (0 + 1)`
fn attentions_of(region: &Region) -> TokenStream {
    let counts = region.steps.iter().map(|step| match step {
        Step::Node(node) => node.attention().map(|_| quote!(+ 1)).unwrap_or_default(),
        Step::Repeat(repeat) => {
            let (count, each) = (&repeat.count, attentions_of(&repeat.body));
            match each.is_empty() {
                true => TokenStream::new(),
                false => quote!(+ #count * (0 #each)),
            }
        }
        Step::Scan(_) => TokenStream::new(),
    });
    counts.collect()
}
