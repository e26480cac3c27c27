//! The model as one operation of the tape: a forward and a backward function over slices, a line or two per operation.

mod backward;
mod decode;
mod forward;
mod frame;
mod memory;
mod plans;
mod read;
mod scan;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Emitter, field, item};
use crate::emit::ExecMode;
use crate::emit::block::{BlockNode, Frame, hidden, product, size};
use crate::model::given::Given;
use crate::model::graph::{Model, Module, ModuleId, Node, Repeat, Step, Submodule, ValueId};
use crate::model::passes::{MemoryPlan, Passes};
use crate::model::types::{Axis, ValueKind};
use crate::ops::{Attention, Fusion, Lookup, emit_loops};

/// A node of a model.
pub(crate) type FusedNode<'a> = BlockNode<'a, ModelFrame<'a>>;

/// ```text
/// struct ___Loop0;                        // an elementwise expression that `attn-core` has not compiled
/// struct Sizes { batch, seq }             // axes that only the running program knows
/// struct Inputs<E> { tokens, .. }
/// struct Call<E> { sizes, inputs, data }
/// struct ___GptWeights<E> { .. }          // what is read of the layers: of the model, of the body of each `repeat`
/// struct ___GptSaved<E> { .. }            // what the derivative reads again
///
/// fn fused(operation, model, tokens, .., train) -> Result<Tensor<..>, ..>             // one operation on the tape
/// fn forward(call, weights, random, keep, results) -> ___GptSaved<E>
/// fn backward(call, weights, saved, d_results, gradients)
/// const fn footprint<E>(batch, seq) -> p::Footprint                         // the memory that the two take
/// const fn activation_bytes(batch, seq) -> usize                           // the same in bytes
///
/// struct ___GptPast<E> { .. }             // what the attentions have seen, for a model that goes on token by token
/// fn past(weights, room) -> Result<___GptPast<E>, ..>
/// fn decode(weights, past, new, result)
/// ```
pub(super) fn emit(cx: &Emitter<'_>, plans: &[MemoryPlan<'_>]) -> TokenStream {
    let Some(first) = plans.first() else {
        return TokenStream::new();
    };
    let goes_on = cx.session.is_ok();
    let fused = |mode| ModelFrame::new(cx, mode, &first.passes);
    let is_split = |plan: &&MemoryPlan<'_>| !std::ptr::eq(plan.model, cx.model);
    let split = plans.iter().find(is_split);
    let split = split.map(|plan| Emitter::new(cx.krate, plan.model));
    let frames = plans.iter().map(|plan| {
        let of_split = split.as_ref().filter(|_| is_split(&plan));
        ModelFrame::new(of_split.unwrap_or(cx), ExecMode::Forward, &plan.passes)
    });
    let frames: Vec<_> = frames.collect();
    let works = plans.iter().filter_map(|plan| plan.work.as_ref());
    let works: Vec<_> = works.collect();
    let cx = &frames[0];
    let loops = cx.emit_loops();
    let session = goes_on.then(|| {
        let start = fused(ExecMode::Start);
        fused(ExecMode::Session).emit_session(&start)
    });
    let parts = [
        loops,
        cx.emit_call(),
        cx.emit_weights(),
        // Plans have this each.
        match &cx.model().budget {
            Some(_) => TokenStream::new(),
            None => cx.emit_saved(),
        },
        cx.emit_fused(),
        cx.emit_plans(&frames, &works),
    ];
    parts.into_iter().chain(session).collect()
}

/// The frame of a model.
pub(crate) struct ModelFrame<'a> {
    cx: &'a Emitter<'a>,
    mode: ExecMode,
    passes: &'a Passes<'a>,
    /// The scan whose body the block is.
    step: Option<scan::InStep<'a>>,
    /// What values depend on, for the passes of a session.
    given: Given,
}

/// The results of nodes with a loop of their own, in their order.
pub(super) fn emitted_loops(model: &Model) -> Vec<ValueId> {
    let nodes = model.grouped.nodes().into_iter();
    let nodes = nodes.filter(|node| model.original(node.result) == node.result);
    let is_emitted =
        |node: &&Node| matches!(node.fusion(), Fusion::Elementwise(op) if op.is_emitted());
    nodes.filter(is_emitted).map(|node| node.result).collect()
}

impl<'a> ModelFrame<'a> {
    fn new(cx: &'a Emitter<'a>, mode: ExecMode, passes: &'a Passes<'a>) -> Self {
        ModelFrame {
            cx,
            mode,
            passes,
            step: None,
            given: Given::of(cx.model),
        }
    }

    fn model(&self) -> &'a Model {
        self.cx.model
    }

    fn emit_loops(&self) -> TokenStream {
        let nodes = self.model().grouped.nodes().into_iter();
        let loops = nodes.filter_map(|node| {
            let Fusion::Elementwise(op) = node.fusion() else {
                return None;
            };
            let axes = self.model().value(node.result).ty.axes.len();
            let is_emitted = self.cx.loops.contains(&node.result);
            is_emitted.then(|| emit_loops(op, &self.loop_name(node.result), axes))
        });
        loops.collect()
    }

    /// A value of ids or lengths.
    fn ids(&self, id: ValueId) -> TokenStream {
        if !self.model().inputs.contains(&id) {
            let name = self.value(id);
            return quote!(#name.as_slice());
        }
        if self.mode == ExecMode::Session {
            return quote!(new.ids());
        }
        let name = self.input_field(id);
        quote!(&call.inputs.#name.values)
    }

    /// The field of an input.
    fn input_field(&self, id: ValueId) -> Ident {
        field(&self.model().value(id).name)
    }

    /// The variable with the weights of a round, or of the model.
    fn module_var(&self, module: &Module) -> Ident {
        if module.name == self.model().item.name {
            format_ident!("weights")
        } else {
            hidden(&self.unique(format!("{}_weights", module.var())))
        }
    }

    fn weights_type(&self, module: &Module) -> Ident {
        self.type_name(module, "Weights")
    }

    /// The type of what the rounds of a loop keep.
    fn saved_type(&self, repeat: &Repeat) -> Ident {
        let saved = self.type_name(self.body_of(repeat), "Saved");
        match repeat.run {
            1 => saved,
            run => format_ident!("{saved}{run}"),
        }
    }

    /// `___GptBlocksWeights`: a name that no layer can give a type. Behind the model's name those have no underscores, and before it
    /// one begins with two at most.
    fn type_name(&self, module: &Module, what: &str) -> Ident {
        format_ident!("___{}{what}", module.name)
    }

    /// The variable, and the field, with what the rounds of a loop keep.
    fn kept_of_rounds(&self, repeat: &Repeat) -> Ident {
        let mut name = format!("{}_rounds", self.body_of(repeat).var());
        if repeat.run > 1 {
            name = format!("{name}_{}", repeat.run);
        }
        hidden(&self.unique(name))
    }

    /// `<GptBlocksAttention<E> as p::FusedBlock<E, 1, 1>>`
    fn attention(&self, attention: &Attention) -> TokenStream {
        let layer = Submodule::Attention(attention.index);
        let layer = item::layer_type(self.cx, &layer, &quote!(, E));
        let [inputs, read] = self.reads_of(attention.index);
        quote!(<#layer as p::FusedBlock<E, #inputs, #read>>)
    }

    /// How many inputs an attention has as a block, and how many values its derivative reads.
    fn reads_of(&self, attention: usize) -> [usize; 2] {
        let layer = &self.model().attentions[attention];
        let block = layer.fused.as_ref();
        let inputs = block.map_or(1, |block| block.inputs.len());
        [
            inputs,
            inputs + usize::from(layer.spec.of_operands.is_some()),
        ]
    }

    /// The sizes of the axes batch, query and key of an attention.
    fn axes(&self, operands: &[ValueId], attention: &Attention) -> TokenStream {
        let query = self.ty(operands[0]);
        let key = self.ty(operands[attention.inputs.keys]);
        let [batch, query, key] = [
            product(&query.axes[..query.axes.len() - 2]),
            size(&query.axes[query.axes.len() - 2]),
            size(&key.axes[key.axes.len() - 2]),
        ];
        quote!((#batch, #query, #key))
    }
}

impl ModelFrame<'_> {
    /// `fused`: the operation.
    fn emit_fused(&self) -> TokenStream {
        let cx = self.cx;
        let model = self.model();
        let name = &cx.name;
        let symbols = cx.symbols();
        let label = cx.label();
        let tape = |index: usize| match index {
            0 => quote!(T),
            _ => TokenStream::new(),
        };
        let inputs = model.inputs.iter().enumerate().map(|(index, id)| {
            let name = self.value(*id);
            let ty = cx.tensor(self.ty(*id), &tape(index));
            quote!(#name: #ty)
        });
        let first = self.value(model.inputs[0]);
        let device = self.emit_device(&first);
        let shapes = self.emit_shapes();
        let read = self.emit_read(&label, true);
        let results: Vec<_> = (0..model.results.len())
            .map(|index| format_ident!("result_{index}"))
            .collect();
        let d_results: Vec<_> = results
            .iter()
            .map(|name| format_ident!("d_{name}"))
            .collect();
        let shape_names = (0..results.len()).map(|index| format_ident!("shape_{index}"));
        let outputs = model.results.iter().map(|id| {
            let [rows, width] = self.extents(*id);
            quote!(p::Output::zeros(#rows, #width))
        });
        let ty = cx.returned_type(model.results.iter().map(|id| self.ty(*id)));
        let value = match results.as_slice() {
            [one] => {
                let returned = cx.returned(&[quote!(p::PutTape::put_tape(#one, tape))]);
                quote!(Ok(#returned))
            }
            several => cx.put_tapes(several, &quote!(tape)),
        };
        quote_spanned! {cx.at=>
            /// The model as one operation on the tape: what `run_graph` computes, on slices.
            fn fused<#symbols E: p::Element, D: p::Backend<E>, T: p::Tape<E, D>>(
                mut operation: p::Operation<E, D, T>,
                model: &#name<E, D>,
                #(#inputs,)*
                train: bool,
            ) -> Result<#ty, p::Error<D::Err>> {
                let device = #device;
                let #first = operation.input(#first);
                #shapes
                #read
                let weights = p::read_weights(model, &mut operation)?;
                let draw = operation.seeds(&device);
                let random = p::Random::new(train && T::OWNS_TAPE, &draw);
                #(let mut #results = #outputs;)*
                let saved = p::run_pass(numbers, || {
                    forward(&call, &weights, random, T::OWNS_TAPE, #(&mut #results),*)
                });
                let mut results = p::GradientRefs::default();
                #(
                    let #results = #results.into_tensor(&device, #shape_names)?;
                    results.add(&#results);
                )*
                let tape = operation.record(results, move |[#(#d_results),*], gradients| {
                    p::run_pass(numbers, || backward(&call, &weights, saved, #(#d_results,)* gradients))
                });
                #value
            }
        }
    }

    /// The device that dropout draws from: that of the first numbers, be they an input or a table.
    fn emit_device(&self, first: &Ident) -> TokenStream {
        let mut tables = self
            .model()
            .grouped
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Node(node) => {
                    let table = match node.op.description().lookup? {
                        Lookup::ById { table, .. } => table?,
                        Lookup::ByPosition { table, .. } => table,
                    };
                    let is_outside = self.model().round_of(table.module) == ModuleId(0);
                    is_outside.then(|| self.cx.place(table))
                }
                Step::Repeat(_) | Step::Scan(_) => None,
            });
        let is_float = self.ty(self.model().inputs[0]).kind == ValueKind::Floats;
        let table = tables.next().filter(|_| !is_float);
        table.map_or_else(
            || quote!(p::Clone::clone(#first.device())),
            |table| quote!(p::Clone::clone(#table.weight.device())),
        )
    }

    /// The shapes of the results.
    fn emit_shapes(&self) -> TokenStream {
        let shapes = self.model().results.iter().enumerate().map(|(index, id)| {
            let name = format_ident!("shape_{index}");
            let axes = self.ty(*id).axes.iter().map(|axis| match axis {
                Axis::Symbol(symbol) => self.axis_of_call(&symbol.length),
                Axis::Size(_) => quote!(p::Const),
            });
            quote!(let #name = (#(#axes,)*);)
        });
        shapes.collect()
    }

    /// An axis of any length: of an input, or computed of those.
    fn axis_of_call(&self, symbol: &str) -> TokenStream {
        let axis_of_input = |symbol: &str| self.cx.axis_of_input(symbol, |id| self.value(id));
        match self.model().made(symbol) {
            None => axis_of_input(symbol),
            Some(made) => made.length.tokens(&|symbol| {
                let axis = axis_of_input(symbol);
                quote!(p::Dim::size(&#axis))
            }),
        }
    }
}
