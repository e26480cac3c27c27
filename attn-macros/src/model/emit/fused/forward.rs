//! The forward pass: a line or two per operation.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::Fused;
use crate::emit::When;
use crate::emit::lines::Lines;
use crate::model::graph::{Carried, Module, Node, Op, Region, Repeat, Step, ValueId};
use crate::model::plan::{Forward, Planned};

impl Fused<'_> {
    pub(super) fn emit_forward(&self) -> Lines {
        let model = self.model();
        let results: Vec<_> = (0..model.results.len())
            .map(|index| format_ident!("result_{index}"))
            .collect();
        let mut lines = Lines::default();
        let made = (0..results.len()).map(|index| self.own("result", index));
        let made: Vec<_> = made.collect();
        for (id, result) in model.results.iter().zip(&made) {
            lines.take(result, self.footprint_of(*id));
        }
        lines.append(self.emit_steps(&model.body, self.plan));
        for (id, result) in model.results.iter().zip(&results) {
            if !model.is_written_directly(*id, self.plan) {
                let numbers = self.numbers(*id);
                lines.line(quote!(#result.numbers_mut().copy_from_slice(#numbers);));
            }
        }
        let module = &model.modules[0];
        let (weights, saved) = (self.weights_type(module), self.saved_type(module));
        let fields = self.saved_fields(&model.body, &self.plan.saved);
        lines.keep(&fields);
        // The tape has them until the derivative is done.
        lines.keep(&made);
        let steps = std::mem::take(&mut lines.code);
        lines.line(quote_spanned! {self.cx.at=>
            /// The forward pass, operation by operation. `keep` says whether a derivative will be asked for.
            #[allow(unused_variables, unused_mut)]
            fn forward<E: p::Element>(
                call: &Call<E>,
                weights: &#weights<E>,
                random: p::Random<'_>,
                keep: bool,
                #(#results: &mut p::Output<E>,)*
            ) -> #saved<E> {
                let sizes = call.sizes;
                #steps
                #saved { #(#fields,)* __types: p::PhantomData }
            }
        });
        lines
    }

    pub(super) fn emit_steps(&self, region: &Region, plan: &Forward) -> Lines {
        let mut lines = Lines::default();
        let mut waiting: Option<(&Node, &Planned)> = None;
        for (step, planned) in region.steps.iter().zip(&plan.steps) {
            match step {
                Step::Node(node) if planned.with_next => {
                    self.emit_start_of_sum(&mut lines, node, planned);
                    waiting = Some((node, planned));
                    continue;
                }
                Step::Node(node) => match waiting {
                    Some((sum, planned)) => {
                        self.emit_norm_of_sum(&mut lines, sum, planned, node);
                    }
                    None => self.emit_node(&mut lines, node, planned),
                },
                Step::Repeat(repeat) => self.emit_repeat(&mut lines, repeat, planned),
            }
            let before = waiting.take().map(|(_, planned)| &planned.free);
            let free = before.into_iter().flatten().chain(&planned.free);
            free.for_each(|id| lines.drop(&self.value(*id)));
        }
        lines
    }

    /// The array of a sum, with one of the terms in it.
    fn emit_start_of_sum(&self, lines: &mut Lines, node: &Node, planned: &Planned) {
        let (result, term) = (
            self.value(node.result),
            node.operands[planned.reuse.unwrap_or(0)],
        );
        let start = self.owned(lines, &result, term, planned.reuse.is_some());
        lines.line(quote!(let mut #result = #start;));
    }

    /// The term of a sum that is not in its array.
    fn other_term(&self, node: &Node, planned: &Planned) -> ValueId {
        node.operands[1 - planned.reuse.unwrap_or(0)]
    }

    /// A value as an array of its own, for the variable `to`: that of the value itself, if nobody else needs it, or a copy.
    fn owned(&self, lines: &mut Lines, to: &Ident, id: ValueId, is_free: bool) -> TokenStream {
        let name = self.value(id);
        if is_free {
            lines.moved(&name, to);
            return quote!(#name);
        }
        lines.take(to, self.footprint_of(id));
        if self.model().is_input(id) {
            let (numbers, ty) = (self.numbers(id), self.ty(id));
            let (rows, width) = (self.rows(ty), self.width(ty));
            quote!(p::Array::of(#numbers, #rows, #width))
        } else {
            quote!(#name.copy())
        }
    }

    fn emit_norm_of_sum(&self, lines: &mut Lines, sum: &Node, planned: &Planned, norm: &Node) {
        let (Op::LayerNorm(place) | Op::RmsNorm(place)) = &norm.op else {
            return;
        };
        let other = self.matrix(self.other_term(sum, planned));
        let to = self.result(lines, norm.result);
        let (keep, weights, x) = (self.keep(norm), self.weights(place), self.value(sum.result));
        lines.line(quote!(#keep #weights.forward_of_sum(#x.all_mut(), #other, #to.all_mut());));
        self.take_kept(lines, norm);
    }

    /// What a result is written to: makes it, unless the model returns it.
    fn result(&self, lines: &mut Lines, id: ValueId) -> Ident {
        let model = self.model();
        let direct = model.is_written_directly(id, self.plan);
        let index = model.results.iter().position(|result| *result == id);
        if let (true, Some(index)) = (direct, index) {
            return format_ident!("result_{index}");
        }
        let name = self.value(id);
        self.make(lines, &name, "stale", id);
        name
    }

    fn emit_node(&self, lines: &mut Lines, node: &Node, planned: &Planned) {
        let direct = self.model().is_written_directly(node.result, self.plan);
        if let (Op::Add, Some(_), false) = (&node.op, planned.reuse, direct) {
            self.emit_start_of_sum(lines, node, planned);
            let result = self.value(node.result);
            let other = self.numbers(self.other_term(node, planned));
            return lines.line(quote!(p::layers::add_to(#result.numbers_mut(), #other);));
        }
        let to = self.result(lines, node.result);
        let keep = self.keep(node);
        let call = self.emit_operation(node, &quote!(#to));
        lines.line(quote!(#keep #call;));
        self.take_kept(lines, node);
    }

    /// What an operation takes beside its result, and keeps, perhaps.
    fn take_kept(&self, lines: &mut Lines, node: &Node) {
        if let Some(footprint) = self.footprint(node) {
            match self.keeps(node) {
                Some(_) => lines.take(&self.kept(node), footprint),
                None => lines.compute(footprint),
            }
        }
    }

    /// `let a_kept =`, for what is kept for the derivative.
    fn keep(&self, node: &Node) -> Option<TokenStream> {
        let kept = self.keeps(node).filter(|_| self.when == When::Forward);
        kept.map(|_| {
            let kept = self.kept(node);
            quote!(let #kept =)
        })
    }

    /// The call that computes a result.
    fn emit_operation(&self, node: &Node, to: &TokenStream) -> TokenStream {
        let x = |index: usize| node.operands[index];
        let numbers = |index: usize| self.numbers(x(index));
        let matrix = |index: usize| self.matrix(x(index));
        let len = || {
            let axes = &self.ty(x(0)).axes;
            axes.last().map(super::size)
        };
        match &node.op {
            // A model with an opaque module has no fused form.
            Op::Opaque(_) => TokenStream::new(),
            Op::Embedding(place) => {
                let (weights, ids) = (self.weights(place), self.ids(x(0)));
                quote!(#weights.forward(#ids, #to.all_mut()))
            }
            Op::LearnedPosition(place) => {
                let (weights, len) = (self.weights(place), len());
                match self.when {
                    When::Forward => quote!(#weights.forward_positions(#len, #to.all_mut())),
                    When::Session => quote!(#weights.forward(new.positions(), #to.all_mut())),
                }
            }
            Op::SinusoidalPosition => {
                let (len, width) = (len(), self.width(self.ty(node.result)));
                match self.when {
                    When::Forward => {
                        quote!(p::layers::sinusoidal_position(#len, #width, #to.numbers_mut()))
                    }
                    When::Session => quote!(p::layers::sinusoids(new.positions(), #to.all_mut())),
                }
            }
            Op::TiedLinear(place) => {
                let (weights, x) = (self.weights(place), matrix(0));
                quote!(#weights.project(#x, #to.all_mut()))
            }
            Op::Linear(place)
            | Op::FeedForward(place)
            | Op::LayerNorm(place)
            | Op::RmsNorm(place) => {
                let (weights, x) = (self.weights(place), matrix(0));
                quote!(#weights.forward(#x, #to.all_mut()))
            }
            Op::Attention { place, index } if self.when == When::Session => {
                self.emit_attention_to_past(place, *index, matrix(0), to)
            }
            Op::Attention { place, index } => {
                let (attention, weights) = (self.attention(*index), self.weights(place));
                let (axes, number) = (self.axes(node), syn::Index::from(*index));
                let inputs = (0..self.model().differentiable(node)).map(matrix);
                let key = match &self.model().attentions[*index].0.dropout {
                    Some(_) => quote!(random.key()),
                    None => quote!(None),
                };
                quote! {
                    #attention::forward(
                        &#weights,
                        #axes,
                        &call.data.#number,
                        #key,
                        [#(#inputs),*],
                        #to.all_mut(),
                    )
                }
            }
            Op::Dropout(p) => {
                let x = numbers(0);
                match self.when {
                    When::Forward => quote!(random.dropout(#p, #x, #to.numbers_mut())),
                    When::Session => quote!(#to.numbers_mut().copy_from_slice(#x)),
                }
            }
            Op::Activation(name) => {
                let (x, activation) = (numbers(0), self.activation(name));
                quote!(p::layers::activate(#activation, #x, #to.numbers_mut()))
            }
            Op::Add | Op::Sub | Op::Mul => {
                let function = format_ident!(
                    "{}",
                    match &node.op {
                        Op::Add => "add",
                        Op::Sub => "sub",
                        _ => "mul",
                    }
                );
                let (x, y) = (numbers(0), numbers(1));
                quote!(p::layers::#function(#x, #y, #to.numbers_mut()))
            }
            Op::Scale(by) => {
                let x = numbers(0);
                quote!(p::layers::scale((#by) as f64, #x, #to.numbers_mut()))
            }
            Op::Shift(by) => {
                let x = numbers(0);
                quote!(p::layers::shift((#by) as f64, #x, #to.numbers_mut()))
            }
            Op::Softmax => {
                let x = matrix(0);
                quote!(p::layers::softmax(#x, #to.all_mut()))
            }
            Op::Expand => {
                let (x, axes) = (numbers(0), self.growing(node));
                quote!(p::layers::expand(#x, #axes, #to.numbers_mut()))
            }
            Op::Concat => {
                let (x, y) = (matrix(0), matrix(1));
                quote!(p::layers::concat(#x, #y, #to.all_mut()))
            }
            Op::MeanPool | Op::PaddedMeanPool => {
                let (x, axis, counted) = (numbers(0), self.sequence(x(0)), self.counted(node));
                quote!(p::layers::mean_pool(#x, #axis, #counted, #to.numbers_mut()))
            }
        }
    }

    /// `<attn::nn::Gelu as p::Activation>::KERNEL`
    pub(super) fn activation(&self, name: &str) -> TokenStream {
        let (krate, name) = (self.cx.krate, format_ident!("{name}"));
        quote!(<#krate::nn::#name as p::Activation>::KERNEL)
    }

    fn emit_repeat(&self, lines: &mut Lines, repeat: &Repeat, planned: &Planned) {
        for (carried, moved) in repeat.carried.iter().zip(&planned.moved) {
            let value = self.value(carried.value);
            let before = self.owned(lines, &value, carried.before, *moved);
            lines.line(quote!(let mut #value = #before;));
        }
        let module: &Module = self.body_of(repeat);
        let (weights, saved, rounds) = (
            self.module_var(module),
            self.saved_type(module),
            self.rounds(repeat),
        );
        let mut body = self.emit_steps(&repeat.body, &planned.body);
        let fields = self.saved_fields(&repeat.body, &planned.body.saved);
        let [values, next] = self.carried(&mut body, &repeat.carried, &planned.body, &fields);
        let steps = lines.repeat(&repeat.count, body);
        let sets = self.weights_of_rounds(repeat);
        if self.when == When::Session {
            let (sets, pattern) = self.with_past(repeat, sets, &weights);
            return lines.line(quote! {
                for #pattern in #sets {
                    #steps
                    #values = #next;
                }
            });
        }
        lines.line(quote! {
            let mut #rounds = p::Vec::new();
            for #weights in #sets {
                #steps
                let next = #next;
                let round = #saved { #(#fields,)* __types: p::PhantomData };
                if keep {
                    #rounds.push(round);
                }
                #values = next;
            }
        });
    }

    /// The end of a round, which keeps some variables: those that a loop carries, and what they are in the next round.
    fn carried(
        &self,
        lines: &mut Lines,
        carried: &[Carried],
        body: &Forward,
        kept: &[Ident],
    ) -> [TokenStream; 2] {
        let values: Vec<_> = carried.iter().map(|of| self.value(of.value)).collect();
        let names = (0..values.len()).map(|index| self.own("next", index));
        let names: Vec<_> = names.collect();
        let mut next = Vec::new();
        for ((carried, moved), name) in carried.iter().zip(&body.moved).zip(&names) {
            next.push(self.owned(lines, name, carried.after, *moved));
        }
        lines.keep(kept);
        for (name, value) in names.iter().zip(&values) {
            lines.assigned(name, value);
        }
        [tuple(&values), tuple(&next)]
    }
}

/// One of them by itself, several in parentheses.
fn tuple(parts: &[impl ToTokens]) -> TokenStream {
    match parts {
        [part] => quote!(#part),
        _ => quote!((#(#parts),*)),
    }
}
