//! What a trainer needs: the model's parameters in their order, and its loss as one operation.
//!
//! ```text
//! impl<E, D> Gpt<E, D> {
//!     pub fn trainer<A>(self, algorithm: A) -> Trainer<Self, A> where Self: Trainable { .. }
//! }
//! // beside the function `loss`
//! impl Gpt {
//!     pub const fn bytes_per_step(ranks: usize) -> usize { .. }
//!     pub const fn bytes_per_step_bf16(ranks: usize) -> usize { .. }
//!     pub const fn training_bytes(ranks: usize, lists: usize) -> usize { .. }
//!     pub const fn training_bytes_bf16(ranks: usize, lists: usize) -> usize { .. }
//! }
//! impl<E, D> Trainable for Gpt<E, D> { .. }
//! impl<Batch, Seq, E, D> TrainBatch<Gpt<E, D>> for (Tensor<(Batch, Seq), usize, D>, ..) { .. }
//! impl<Input0, Input1, E, D> TrainBatch<Gpt<E, D>> for GptLossInputs<Input0, Input1> { .. }
//! ```
//!
//! The method is there for every model. Of one without a loss the bound says so, where it is called.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::{
    Emitter, MODEL, docs, facts, field, input, length, made_lengths, opaque::Access, tuple,
};
use crate::emit::{Anything, anything};
use crate::model::graph::{Model, ValueId};
use crate::model::types::ValueKind;
use crate::ops::{CrossEntropy, Fusion};

/// The function that a trainer takes the gradients of.
const LOSS: &str = "loss";

/// The method `trainer` of a model.
pub(super) fn emit_method(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let built = cx.built(MODEL);
    let doc = docs::TRAINER;
    let anything = (cx.model.poisoned && !cx.is_opaque()).then(|| emit_anything(cx));
    quote_spanned! {cx.at=>
        #anything

        #[allow(dead_code)]
        impl<E: p::Dtype, D: p::Storage<E> #built> #name<E, D #built> {
            #[doc = #doc]
            #vis fn trainer<A: p::Algorithm>(self, algorithm: A) -> p::Trainer<Self, A>
            where
                Self: p::Trainable,
            {
                p::Trainer::new(self, algorithm)
            }
        }
    }
}

/// After a mistake, every model has a trainer, and any batch fits, so that the error stays alone.
fn emit_anything(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let accepted = anything(11, &quote!(: p::Clone)).into_iter();
    let batches = accepted.map(|Anything { generics, ty, .. }| {
        quote! {
            #[diagnostic::do_not_recommend]
            impl<#generics> p::TrainBatch<#name<E, D>> for #ty {
                fn loss<T: p::Tape<E, D>>(
                    self,
                    _: &#name<E, D>,
                    _: p::Operation<E, D, T>,
                ) -> Result<p::Tensor<(), E, D, T>, p::Error<D::Err>> {
                    ::core::unreachable!()
                }

                fn targets(&self) -> usize {
                    ::core::unreachable!()
                }

                fn rows(&self) -> usize {
                    ::core::unreachable!()
                }

                fn first_non_finite(self, _: &#name<E, D>) -> Result<Option<p::NonFinite>, p::Error<D::Err>> {
                    ::core::unreachable!()
                }
            }
        }
    });
    quote_spanned! {cx.at=>
        #[diagnostic::do_not_recommend]
        impl<E: p::Element, D: p::Backend<E>> p::Trainable for #name<E, D> {
            type Element = E;
            type Device = D;

            fn reserve(&self, _: &mut p::Operation<E, D, p::NoneTape>) -> Result<(), D::Err> {
                ::core::unreachable!()
            }
        }

        #(#batches)*
    }
}

/// Whether a function is the loss: it has that name, and its result is a number.
pub(super) fn is_loss(model: &Model) -> bool {
    let [result] = model.results.as_slice() else {
        return false;
    };
    let ty = &model.value(*result).ty;
    let is_number = ty.axes.is_empty() && ty.kind == ValueKind::Floats;
    let function = model.function.as_ref();
    is_number && function.is_some_and(|function| function.name == LOSS)
}

/// The code of the function `loss`, if its result is a single number.
pub(super) fn emit_loss(cx: &Emitter<'_>) -> TokenStream {
    let model = cx.model;
    if !is_loss(model) || model.poisoned || cx.is_opaque() {
        return TokenStream::new();
    }
    let name = &cx.name;
    let by_name = emit_batch_by_name(cx);
    let batch = emit_batch(cx);
    let bytes = emit_bytes(cx);
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl #name {
            #bytes
        }

        impl<E: p::Element, D: p::Backend<E>> p::Trainable for #name<E, D> {
            type Element = E;
            type Device = D;

            fn reserve(&self, operation: &mut p::Operation<E, D, p::NoneTape>) -> Result<(), D::Err> {
                p::Weighted::weights(self, operation)?;
                Ok(())
            }
        }

        #batch
        #by_name
    }
}

/// The bytes of training on several ranks. They are functions of `PARAMS`.
pub(super) fn emit_bytes(cx: &Emitter<'_>) -> TokenStream {
    let vis = &cx.model.item.vis;
    quote_spanned! {cx.at=>
        /// The bytes that all ranks of a trainer send in a step together, in `f32`; in `f64` it is twice as many: each gradient goes to the rank that
        /// updates the parameter, and the parameter to the others. Nothing is sent of frozen parameters.
        ///
        /// Beside these, a rank sends each other one 32 bytes about the batch and the norm, and a byte for each parameter that both have a part of.
        #vis const fn bytes_per_step(ranks: usize) -> usize {
            (2 * 4 * Self::PARAMS).saturating_mul(ranks.saturating_sub(1))
        }

        /// [`bytes_per_step`](Self::bytes_per_step) of ranks that send their gradients in bf16 (`bf16_gradients` of the trainer), in 2 bytes each.
        /// Parameters are sent in the type of the model.
        #vis const fn bytes_per_step_bf16(ranks: usize) -> usize {
            ((2 + 4) * Self::PARAMS).saturating_mul(ranks.saturating_sub(1))
        }

        /// The bytes that training takes on each of these ranks, in `f32`; in `f64` it is twice as many: those of all parameters and gradients, and
        /// of a part of the optimizer's lists, of which there are so many for a parameter. `AdamW` has two.
        ///
        /// Parts are cut behind 16 numbers, so a rank may have a list of 16 numbers less or more for some parameters. Of an algorithm
        /// that updates whole matrices, a rank has more or less, by their sizes. Activations are not included: see `activation_bytes`.
        #vis const fn training_bytes(ranks: usize, lists: usize) -> usize {
            let part = match ranks {
                0 | 1 => Self::PARAMS,
                ranks => Self::PARAMS.div_ceil(ranks),
            };
            (4 * part).saturating_mul(lists).saturating_add(2 * 4 * Self::PARAMS)
        }

        /// [`training_bytes`](Self::training_bytes) of ranks that send their gradients in bf16 (`bf16_gradients` of the trainer): each also keeps
        /// what is missing of the gradients of other ranks' parts.
        #vis const fn training_bytes_bf16(ranks: usize, lists: usize) -> usize {
            let others = match ranks {
                0 | 1 => 0,
                ranks => Self::PARAMS - Self::PARAMS.div_ceil(ranks),
            };
            Self::training_bytes(ranks, lists).saturating_add(4 * others)
        }
    }
}

/// The tensors that the loss takes.
fn emit_batch(cx: &Emitter<'_>) -> TokenStream {
    let model = cx.model;
    let name = &cx.name;
    let symbols = cx.symbols();
    let names: Vec<_> = model.inputs.iter().map(|id| cx.var(*id)).collect();
    let first = &names[0];
    let types = model.inputs.iter().enumerate().map(|(index, id)| {
        let ty = cx.tensor(&model.value(*id).ty, &TokenStream::new());
        match model.default_of(index) {
            None => ty,
            Some(_) => quote!(Option<#ty>),
        }
    });
    let ty = tuple(&types.collect::<Vec<_>>());
    let pattern = names.iter().map(ToTokens::to_token_stream);
    let pattern = tuple(&pattern.collect::<Vec<_>>());
    let defaults = input::emit_defaults(cx);
    let checks = input::emit_checks(cx);
    let results = &model.result_names;
    let result = results.first().map(|name| field(name));
    let value = match &result {
        None => quote!(fused(operation, model, #(#names,)* true)),
        Some(result) => quote!(Ok(fused(operation, model, #(#names,)* true)?.#result)),
    };
    let input = cx.input(Access::Shared);
    let result = result.map(|result| quote!(.#result));
    let targets = emit_targets(model);
    let rows = match names.len() {
        1 => quote!(self),
        _ => quote!(&self.0),
    };
    let check_memory = emit_check_of_search(cx);
    let check_inputs = emit_check_of_inputs(cx);
    quote_spanned! {cx.at=>
        impl<#symbols E: p::Element, D: p::Backend<E>> p::TrainBatch<#name<E, D>> for #ty {
            fn loss<T: p::Tape<E, D>>(
                self,
                model: &#name<E, D>,
                operation: p::Operation<E, D, T>,
            ) -> Result<p::Tensor<(), E, D, T>, p::Error<D::Err>> {
                let #pattern = self;
                #defaults
                #checks
                let #first = p::PutTape::put_tape(#first, <T as ::core::default::Default>::default());
                #value
            }

            fn targets(&self) -> usize {
                #targets
            }

            fn rows(&self) -> usize {
                p::rows(#rows)
            }

            fn first_non_finite(self, model: &#name<E, D>) -> Result<Option<p::NonFinite>, p::Error<D::Err>> {
                let #pattern = self;
                #check_memory
                #check_inputs
                let #first = p::PutTape::put_tape(#first, <p::OwnedTape<E, D> as ::core::default::Default>::default());
                p::first_non_finite(|run| #input::run(#pattern, model, run), |output| output #result, outline)
            }
        }
    }
}

/// The line that asks for the memory of the chain of operations, whose results and their gradients are all kept.
fn emit_check_of_search(cx: &Emitter<'_>) -> TokenStream {
    let model = cx.model;
    let label = cx.label();
    let lengths = model.symbols.iter().map(|name| length(model, name));
    let lengths: Vec<_> = lengths.collect();
    let sizes = model.symbols.iter().map(|name| {
        let axis = cx.axis_of_input(name, |id| cx.var(id));
        quote!(p::Dim::size(&#axis))
    });
    let made = made_lengths(model);
    let numbers = facts::numbers(cx, &model.body);
    quote! {
        #[allow(unused_variables)]
        {
            let (#(#lengths,)*) = (#(#sizes,)*);
            #made
            let footprint = footprint::<E>(#(#lengths),*).keeping(#numbers);
            footprint.check::<E, D, p::OwnedTape<E, D>>(#label)?;
        }
    }
}

/// The lines that look for NaN in the inputs, behind that of the memory: an input may be a view of more numbers than there are.
fn emit_check_of_inputs(cx: &Emitter<'_>) -> TokenStream {
    let model = cx.model;
    let inputs = model.inputs.iter().enumerate();
    let floats = inputs.filter(|(_, id)| model.value(**id).ty.kind == ValueKind::Floats);
    let checks = floats.map(|(index, id)| {
        let input = cx.var(*id);
        let label = &model.input_names[index];
        let found = match model.default_of(index) {
            None => quote!(p::nan_of_input(#label, &#input)),
            Some(_) => quote!(#input.as_ref().and_then(|given| p::nan_of_input(#label, given))),
        };
        quote! {
            let found = #found;
            if found.is_some() {
                return Ok(found);
            }
        }
    });
    checks.collect()
}

/// The number of targets that count: of the last input that is the targets of a `cross_entropy`, or of the last input at all. An input with a
/// default may be missing.
fn emit_targets(model: &Model) -> TokenStream {
    let inputs = model.inputs.iter().enumerate().rev();
    let mut given = inputs.filter(|(index, _)| model.default_of(*index).is_none());
    let last = given.clone().next();
    let loss = given.find_map(|(index, input)| Some((index, loss_of(model, *input)?)));
    let index = loss
        .map(|(index, _)| index)
        .or(last.map(|(index, _)| index));
    // The first input has no default, so there is a last one without.
    let input = match index.filter(|_| model.inputs.len() > 1) {
        None => quote!(self),
        Some(index) => {
            let index = Literal::usize_unsuffixed(index);
            quote!(&self.#index)
        }
    };
    match loss {
        None => quote!(p::num_elements(#input)),
        Some((_, loss)) => {
            let ignored = loss.ignored();
            quote!(p::count_targets(#input, #ignored))
        }
    }
}

/// The classifier's loss that has an input as its targets, also one in a loop.
fn loss_of(model: &Model, input: ValueId) -> Option<&CrossEntropy> {
    let nodes = model.nodes().into_iter();
    let mut of_input = nodes.filter(|node| node.operands.get(1) == Some(&input));
    of_input.find_map(|node| match node.fusion() {
        Fusion::Loss(loss) => Some(loss),
        _ => None,
    })
}

/// The inputs by name are taken as their tuple is.
fn emit_batch_by_name(cx: &Emitter<'_>) -> Option<TokenStream> {
    let inputs = cx.inputs_by_name()?;
    let name = &cx.name;
    let fields: Vec<_> = cx
        .model
        .input_names
        .iter()
        .map(|name| field(name))
        .collect();
    let types = (0..fields.len()).map(|index| format_ident!("Input{index}"));
    let types: Vec<_> = types.collect();
    Some(quote_spanned! {cx.at=>
        #[diagnostic::do_not_recommend]
        impl<#(#types,)* E: p::Element, D: p::Backend<E>> p::TrainBatch<#name<E, D>> for #inputs<#(#types),*>
        where
            #(#types: p::Clone,)*
            (#(#types,)*): p::TrainBatch<#name<E, D>>,
        {
            fn loss<T: p::Tape<E, D>>(
                self,
                model: &#name<E, D>,
                operation: p::Operation<E, D, T>,
            ) -> Result<p::Tensor<(), E, D, T>, p::Error<D::Err>> {
                p::TrainBatch::loss((#(self.#fields,)*), model, operation)
            }

            fn targets(&self) -> usize {
                p::TrainBatch::targets(&(#(p::Clone::clone(&self.#fields),)*))
            }

            fn rows(&self) -> usize {
                p::TrainBatch::rows(&(#(p::Clone::clone(&self.#fields),)*))
            }

            fn first_non_finite(self, model: &#name<E, D>) -> Result<Option<p::NonFinite>, p::Error<D::Err>> {
                p::TrainBatch::first_non_finite((#(self.#fields,)*), model)
            }
        }
    })
}
