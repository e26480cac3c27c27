//! Some new tokens of sequences that go on: the lines of the forward pass, with attentions that remember.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::{FusedNode, ModelFrame};
use crate::emit::block::{self, Frame, hidden};
use crate::model::emit::{field, item};
use crate::model::given::DependsOn;
use crate::model::graph::{
    Holder, Module, ModuleId, ParamPath, Repeat, Scan, State, Submodule, ValueId,
};
use crate::model::plan::is_written_directly;
use crate::model::types::Axis;
use crate::ops::Attention;

impl ModelFrame<'_> {
    /// `start` has the lines that are computed once.
    pub(super) fn emit_session(&self, start: &Self) -> TokenStream {
        let parts = [
            self.emit_pasts(),
            self.emit_past(start),
            self.emit_start(),
            self.emit_decode(),
        ];
        parts.into_iter().collect()
    }

    fn past_type(&self, module: &Module) -> Ident {
        self.type_name(module, "DecodeState")
    }

    /// The variable with the state of a round, or of the model.
    fn past_var(&self, module: &Module) -> Ident {
        if module.name == self.model().item.name {
            format_ident!("past")
        } else {
            hidden(&self.unique(format!("{}_past", module.var())))
        }
    }

    /// `<GptBlocksAttention<E> as p::Decode<E, 1>>`
    pub(super) fn attention_in_session(&self, index: usize) -> TokenStream {
        let layer = item::layer_type(self.cx, &Submodule::Attention(index), &quote!(, E));
        let [inputs, read] = self.reads_of(index);
        match self.model().attentions[index].graph.cross {
            true => {
                let sources = inputs - 1;
                quote!(<#layer as p::DecodeWithContext<E, #inputs, #read, #sources>>)
            }
            false => quote!(<#layer as p::Decode<E, #inputs>>),
        }
    }

    /// The state of the layers in a session: of the model, of the body of each `repeat`, and of each call of a block.
    fn emit_pasts(&self) -> TokenStream {
        let modules = (0..self.model().modules.len()).map(ModuleId);
        let modules = modules.filter(|id| *id == ModuleId(0) || self.model().remembers(*id));
        let structs = modules.map(|id| {
            let module = self.model().module(id);
            let name = self.past_type(module);
            let fields = self.model().remembering(module);
            let fields = fields.map(|of| (field(&of.name), self.type_of_past(&of.layer)));
            let states = self.states_in(id).into_iter();
            let states =
                states.map(|(_, state)| (self.past_name(state), quote!(p::StateOfScan<E>)));
            let (names, types): (Vec<_>, Vec<_>) = fields.chain(states).unzip();
            quote_spanned! {self.cx.at=>
                /// The state of the layers in a session.
                #[derive(p::Clone)]
                struct #name<E: p::Element> {
                    #(#names: #types,)*
                    __types: p::PhantomData<E>,
                }

                impl<E: p::Element> p::SequenceStates for #name<E> {
                    fn parts(&self) -> p::Vec<&dyn p::SequenceState> {
                        p::Vec::from([#(&self.#names as &dyn p::SequenceState),*])
                    }

                    fn parts_mut(&mut self) -> p::Vec<&mut dyn p::SequenceState> {
                        p::Vec::from([#(&mut self.#names as &mut dyn p::SequenceState),*])
                    }
                }
            }
        });
        structs.collect()
    }

    fn type_of_past(&self, layer: &Submodule) -> TokenStream {
        match layer {
            Submodule::Repeat { module, .. } => {
                let past = self.past_type(self.model().module(*module));
                quote!(p::Vec<#past<E>>)
            }
            Submodule::Block { module, .. } => {
                let past = self.past_type(self.model().module(*module));
                quote!(#past<E>)
            }
            Submodule::Attention(index) => {
                let attention = self.attention_in_session(*index);
                quote!(#attention::DecodeState)
            }
            Submodule::Layer(_) => quote!(p::Recent<E>),
            _ => TokenStream::new(),
        }
    }

    /// The function that makes a past in which nothing was seen but what the session is given.
    fn emit_past(&self, start: &Self) -> TokenStream {
        let module = &self.model().modules[0];
        let weights = self.weights_type(module);
        let past = self.past_type(module);
        let value = start.emit_past_of(ModuleId(0));
        let is_given = self.model().inputs.len() > 1;
        let call = is_given.then(|| quote!(call: &Call<E>,));
        let lines = is_given.then(|| {
            let steps = block::emit_forward(start).code;
            quote! {
                let sizes = call.sizes;
                #steps
            }
        });
        quote_spanned! {self.cx.at=>
            /// No token was seen yet.
            #[allow(unused_variables, unused_mut)]
            fn past<E: p::Element, Dev>(
                weights: &#weights<E>,
                room: p::Capacity,
                #call
            ) -> Result<#past<E>, p::Error<Dev>> {
                #lines
                Ok(#value)
            }
        }
    }

    /// The function that reads the weights, and the inputs that are the same for all tokens, and computes what follows of these.
    fn emit_start(&self) -> TokenStream {
        let model = self.model();
        if model.inputs.len() < 2 {
            return TokenStream::new();
        }
        let cx = self.cx;
        let name = &cx.name;
        let symbols = cx.symbols();
        let inputs = model.inputs.iter().map(|id| {
            let name = self.value(*id);
            let ty = cx.tensor(self.ty(*id), &TokenStream::new());
            quote!(#name: #ty)
        });
        let read = self.emit_read(&cx.label(), false);
        let weights = self.weights_type(&model.modules[0]);
        let past = self.past_type(&model.modules[0]);
        quote_spanned! {cx.at=>
            /// The weights, and what was computed of the inputs that are the same for all tokens.
            #[allow(unused_variables)]
            fn start<#symbols E: p::Element, D: p::Backend<E>>(
                model: &#name<E, D>,
                #(#inputs,)*
                room: p::Capacity,
            ) -> Result<(#weights<E>, p::Arc<[p::NamedTensor]>, #past<E>), p::Error<D::Err>> {
                let mut operation = p::Operation::<E, D, p::NoneTape>::default();
                #read
                let (weights, tensors) = p::read_named_weights(model, &mut operation)?;
                let past = past(&weights, room, &call)?;
                Ok((weights, tensors, past))
            }
        }
    }

    fn emit_past_of(&self, id: ModuleId) -> TokenStream {
        let module = self.model().module(id);
        let name = self.past_type(module);
        let weights = self.weights_of(id);
        let fields = self.model().remembering(module).map(|of| {
            let name = field(&of.name);
            let value = match &of.layer {
                Submodule::Repeat {
                    module,
                    count,
                    share,
                    ..
                } => {
                    let value = self.emit_past_of(*module);
                    let var = self.module_var(self.model().module(*module));
                    let sets = rounds(&quote!(#weights.#name), count, *share);
                    quote!({
                        let mut rounds = p::Vec::new();
                        for #var in #sets {
                            rounds.push(#value);
                        }
                        rounds
                    })
                }
                Submodule::Block { module, .. } => self.emit_past_of(*module),
                Submodule::Attention(index) => {
                    let attention = self.attention_in_session(*index);
                    let weights = quote!(&#weights.#name);
                    match self.with_context(*index) {
                        Some((of, op)) => {
                            let axes = of.axes_of_attention(op);
                            let data = of.data_of_attention();
                            let context = (1..op.inputs.len()).map(|index| of.matrix(index));
                            quote!(#attention::past(#weights, #axes, &#data, [#(#context),*])?)
                        }
                        None => quote!(#attention::past(#weights, room)?),
                    }
                }
                Submodule::Layer(layer) => {
                    let sizes = layer.recent().into_iter().flatten();
                    quote!(p::Recent::new(room, #(#sizes),*)?)
                }
                _ => TokenStream::new(),
            };
            quote!(#name: #value)
        });
        let states = self.states_in(id).into_iter().map(|(_, state)| {
            let name = self.past_name(state);
            let sizes = self.ty(state.value).axes.iter().filter_map(Axis::size);
            let initial = self
                .is_given(state.before)
                .then(|| self.read(state.before).slice);
            let initial = initial.map(|initial| quote!(.starting_from(#initial)));
            quote!(#name: p::StateOfScan::new(room.sequences, 1 #(* #sizes)*)? #initial)
        });
        quote!(#name { #(#fields,)* #(#states,)* __types: p::PhantomData })
    }

    /// The states of the scans in a module.
    fn states_in(&self, module: ModuleId) -> Vec<(&Scan, &State)> {
        let scans = self.model().scans_in(module).into_iter();
        let states = scans.flat_map(|scan| scan.states.iter().map(move |state| (scan, state)));
        states.collect()
    }

    /// Whether a value is computed when a session starts.
    pub(super) fn is_given(&self, id: ValueId) -> bool {
        self.given.depends_on(self.block(), id) == DependsOn::Given
    }

    /// The field of a state. It is the name of no layer, since these do not end so.
    fn past_name(&self, state: &State) -> Ident {
        format_ident!("__state_{}", state.value.0)
    }

    /// `past.__state_3`
    pub(super) fn past_of_state(&self, scan: &Scan, state: &State) -> TokenStream {
        let module = self.model().module(scan.module);
        let past = match &module.holder {
            Holder::Variable(_) => self.past_var(module).into_token_stream(),
            Holder::Field(outer) => self.past_of(outer),
        };
        let field = self.past_name(state);
        quote!(#past.#field)
    }

    /// The node of an attention that has a context.
    fn with_context(&self, index: usize) -> Option<(FusedNode<'_>, &Attention)> {
        if !self.model().attentions[index].graph.cross {
            return None;
        }
        let nodes = self.attentions().into_iter();
        let mut nodes = nodes.filter_map(|node| Some((node, node.attention()?)));
        let (node, op) = nodes.find(|(_, op)| op.index == index)?;
        Some((FusedNode::new(self, node), op))
    }

    fn emit_decode(&self) -> TokenStream {
        let model = self.model();
        let module = &model.modules[0];
        let weights = self.weights_type(module);
        let past = self.past_type(module);
        let steps = block::emit_forward(self).code;
        let result = model.results[0];
        let copy = (!is_written_directly(model.block(), result, self.plan())).then(|| {
            let numbers = self.read(result).slice;
            quote!(result_0.as_mut_slice().copy_from_slice(#numbers);)
        });
        let of_new = |name: &str| match model.sequence() == Some(name) {
            true => quote!(new.len()),
            false => quote!(1),
        };
        let symbols = model.axes().map(|name| {
            let value = match model.made(name) {
                Some(made) => made.length.tokens(&of_new),
                None => of_new(name),
            };
            let name = field(name);
            quote!(#name: #value)
        });
        quote_spanned! {self.cx.at=>
            /// New tokens, as if they were one sequence but for what they attend to, operation by operation.
            #[allow(unused_variables, unused_mut)]
            fn decode<E: p::Element>(
                weights: &#weights<E>,
                past: &mut #past<E>,
                new: &p::NewTokens,
                result_0: &mut p::Array<E>,
            ) {
                let sizes = Sizes { #(#symbols),* };
                #steps
                #copy
            }
        }
    }

    /// `past.attention`, `past.mixer.attention`
    pub(super) fn past_of(&self, place: &ParamPath) -> TokenStream {
        let module = self.model().module(place.module);
        let past = match &module.holder {
            Holder::Variable(_) => self.past_var(module).into_token_stream(),
            Holder::Field(outer) => self.past_of(outer),
        };
        let field = field(&place.field);
        quote!(#past.#field)
    }

    /// The sets of weights of a loop and what its rounds have seen, and the variables for both.
    pub(super) fn with_past(
        &self,
        repeat: &Repeat,
        sets: TokenStream,
        weights: &Ident,
    ) -> (TokenStream, TokenStream) {
        if !self.model().remembers(repeat.module) {
            return (sets, quote!(#weights));
        }
        let pasts = self.past_of(&repeat.place);
        let inner = self.past_var(self.body_of(repeat));
        (
            quote!(#sets.zip(#pasts.iter_mut())),
            quote!((#weights, #inner)),
        )
    }
}

/// A loop over the weights of rounds.
pub(super) fn rounds(weights: &TokenStream, count: &crate::spec::Size, share: bool) -> TokenStream {
    if share {
        quote!(::core::iter::repeat_n(&#weights, #count))
    } else {
        quote!(#weights.iter())
    }
}
