//! The forward pass: a line or two per operation.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::Fused;
use super::node::{Computed, FusedNode, Output};
use crate::emit::ExecMode;
use crate::emit::tracked_code::TrackedCode;
use crate::model::fusion::FuseWith;
use crate::model::graph::{Carried, Module, Node, Region, Repeat, Step, ValueId};
use crate::model::plan::{Forward, Planned};
use crate::ops::{Fusion, Kept};

impl Fused<'_> {
    pub(super) fn emit_forward(&self) -> TrackedCode {
        let model = self.model();
        let results: Vec<_> = (0..model.results.len())
            .map(|index| format_ident!("result_{index}"))
            .collect();
        let mut lines = TrackedCode::default();
        let made = (0..results.len()).map(|index| self.own("result", index));
        let made: Vec<_> = made.collect();
        for (id, result) in model.results.iter().zip(&made) {
            lines.take(result, self.footprint_of(*id));
        }
        lines.append(self.emit_steps(&model.grouped, self.plan));
        for (id, result) in model.results.iter().zip(&results) {
            if !model.is_written_directly(*id, self.plan) {
                let numbers = self.slice(*id);
                lines.line(quote!(#result.as_mut_slice().copy_from_slice(#numbers);));
            }
        }
        let module = &model.modules[0];
        let weights = self.weights_type(module);
        let saved = self.saved_type(module);
        let fields = self.saved_fields(&model.grouped, &self.plan.saved);
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

    pub(super) fn emit_steps(&self, region: &Region, plan: &Forward) -> TrackedCode {
        let mut lines = TrackedCode::default();
        let mut pass = Vec::new();
        let mut done = Vec::new();
        for (step, planned) in region.steps.iter().zip(&plan.steps) {
            done.push(planned);
            match step {
                Step::Node(node) => {
                    pass.push((node, planned));
                    if planned.with == Some(FuseWith::Next) {
                        continue;
                    }
                    self.emit_pass(&mut lines, &pass);
                    pass.clear();
                }
                Step::Repeat(repeat) => self.emit_repeat(&mut lines, repeat, planned),
            }
            let free = done.drain(..).flat_map(|planned| &planned.free);
            free.for_each(|id| lines.drop(&self.value(*id)));
        }
        lines
    }

    /// One pass over memory: operations, each perhaps with the dropout of its result.
    fn emit_pass(&self, lines: &mut TrackedCode, nodes: &[(&Node, &Planned)]) {
        let mut pass: Vec<Computed<'_>> = Vec::new();
        for (node, planned) in nodes {
            self.emit_seed(lines, node);
            let before = pass.last_mut();
            match (before, node.fusion()) {
                _ if planned.with == Some(FuseWith::Reader) => (),
                (Some(before), Fusion::Dropout(_)) => before.dropout = Some(node),
                (before, _) => {
                    let rows = before.filter(|before| before.is_on_rows());
                    let rows = rows.map(|rows| rows.node.result);
                    pass.push(Computed {
                        node,
                        planned,
                        dropout: None,
                        rows,
                    });
                }
            }
        }
        match pass.iter().position(Computed::is_on_rows) {
            Some(rows) => self.emit_rows(lines, &pass, rows),
            None => pass.iter().for_each(|of| self.emit_node(lines, of)),
        }
    }

    /// An operation on rows, with the loop before it and the one behind it.
    ///
    /// ```text
    /// let mut prologue = p::assign(p::loops::Add, [p::read(x.as_slice()), p::read(p::InPlace)], x_2.as_mut_slice());
    /// let mut epilogue = p::assign(p::loops::Mul, [p::read(p::Rows), p::read(scale.as_slice())], y.as_mut_slice());
    /// let norm_kept = weights.norm.forward(&mut prologue, (norm.view_mut(), &mut epilogue));
    /// ```
    fn emit_rows(&self, lines: &mut TrackedCode, pass: &[Computed<'_>], rows: usize) {
        for before in &pass[..rows] {
            let to = self.output(lines, before);
            let of_loop = self.loop_arguments(before, &to);
            lines.line(quote!(let mut prologue = p::assign(#of_loop);));
        }
        let mut to = self.output(lines, &pass[rows]);
        to.has_prologue = rows > 0;
        for behind in &pass[rows + 1..] {
            let result = self.output(lines, behind);
            let of_loop = self.loop_arguments(behind, &result);
            lines.line(quote!(let mut epilogue = p::assign(#of_loop);));
            to.has_epilogue = true;
            if result.is_over_rows() {
                to.name = result.name;
            }
        }
        self.emit_operation(lines, pass[rows].node, &to);
    }

    fn loop_arguments(&self, computed: &Computed<'_>, to: &Output<'_>) -> Option<TokenStream> {
        match computed.node.fusion() {
            Fusion::Elementwise(op) => Some(op.arguments(&self.loop_name(computed.node), to)),
            _ => None,
        }
    }

    /// `let a_kept = random.dropout(0.1);`
    fn emit_seed(&self, lines: &mut TrackedCode, node: &Node) {
        if let (Fusion::Dropout(p), ExecMode::Forward) = (node.fusion(), self.mode) {
            let kept = self.kept(node.result);
            lines.line(quote!(let #kept = random.dropout(#p);));
        }
    }

    /// An operand of a loop, of which some elements are dropped as they are read.
    pub(super) fn read(&self, dropout: Option<ValueId>, numbers: &TokenStream) -> TokenStream {
        match (dropout, self.mode) {
            (Some(dropout), ExecMode::Forward) => {
                let kept = self.kept(dropout);
                quote!(#kept.of(#numbers))
            }
            _ => quote!(p::read(#numbers)),
        }
    }

    /// Numbers to write, of which some are dropped as they are written.
    pub(super) fn written(&self, computed: &Computed<'_>, numbers: TokenStream) -> TokenStream {
        match (computed.dropout, self.mode) {
            (Some(dropout), ExecMode::Forward) => {
                let kept = self.kept(dropout.result);
                quote!(#kept.to(#numbers))
            }
            _ => numbers,
        }
    }

    /// A value as an array of its own, for the variable `to`: that of the value itself, if nobody else needs it, or a copy.
    fn owned(
        &self,
        lines: &mut TrackedCode,
        to: &Ident,
        id: ValueId,
        is_free: bool,
    ) -> TokenStream {
        let name = self.value(id);
        if is_free {
            lines.moved(&name, to);
            return quote!(#name);
        }
        lines.take(to, self.footprint_of(id));
        if self.model().is_input(id) {
            let numbers = self.slice(id);
            let ty = self.ty(id);
            let rows = self.rows(ty);
            let width = self.width(ty);
            quote!(p::Array::of(#numbers, #rows, #width))
        } else {
            quote!(#name.copy())
        }
    }

    /// Where an operation writes: a new array, or that of a term that is not needed any more.
    fn output<'a>(&'a self, lines: &mut TrackedCode, computed: &'a Computed<'a>) -> Output<'a> {
        let planned = computed.planned;
        let result = computed.result();
        let direct = self.model().is_written_directly(result, self.plan);
        let in_place = planned.reuse.filter(|_| !direct);
        let Some(index) = in_place else {
            let name = self.result(lines, result);
            return Output::new(self, computed, name, None);
        };
        let name = self.value(result);
        let term = self.owned(lines, &name, planned.terms[index].value, true);
        lines.line(quote!(let mut #name = #term;));
        Output::new(self, computed, name, in_place)
    }

    /// The array that a result is written to. It is new, unless the model returns the result.
    fn result(&self, lines: &mut TrackedCode, id: ValueId) -> Ident {
        let model = self.model();
        let direct = model.is_written_directly(id, self.plan);
        let index = model.results.iter().position(|result| *result == id);
        if let (true, Some(index)) = (direct, index) {
            return format_ident!("result_{index}");
        }
        let name = self.value(id);
        self.make(lines, &name, "uninit", id);
        name
    }

    fn emit_node(&self, lines: &mut TrackedCode, computed: &Computed<'_>) {
        let to = self.output(lines, computed);
        self.emit_operation(lines, computed.node, &to);
    }

    fn emit_operation(&self, lines: &mut TrackedCode, node: &Node, to: &Output<'_>) {
        let keep = self.keep(node);
        let of = FusedNode { fused: self, node };
        let call = node.op.forward(&of, to);
        if !call.is_empty() {
            lines.line(quote!(#keep #call;));
        }
        self.take_kept(lines, node);
    }

    /// Notes the memory that an operation takes beside its result, and may keep.
    fn take_kept(&self, lines: &mut TrackedCode, node: &Node) {
        if let Some(footprint) = self.footprint(node) {
            match node.op.properties().kept {
                Some(_) => lines.take(&self.kept(node.result), footprint),
                None => lines.compute(footprint),
            }
        }
    }

    /// `let a_kept =`, for what an operation returns that is kept for the derivative.
    fn keep(&self, node: &Node) -> Option<TokenStream> {
        let kept = node.op.properties().kept;
        let kept = kept.filter(|_| self.mode == ExecMode::Forward);
        let returned = kept.filter(|kept| !matches!(kept, Kept::Dropout));
        returned.map(|_| {
            let kept = self.kept(node.result);
            quote!(let #kept =)
        })
    }

    fn emit_repeat(&self, lines: &mut TrackedCode, repeat: &Repeat, planned: &Planned) {
        for (carried, moved) in repeat.carried.iter().zip(&planned.moved) {
            let value = self.value(carried.value);
            let before = self.owned(lines, &value, carried.before, *moved);
            lines.line(quote!(let mut #value = #before;));
        }
        let module: &Module = self.body_of(repeat);
        let weights = self.module_var(module);
        let saved = self.saved_type(module);
        let rounds = self.rounds(repeat);
        let mut body = self.emit_steps(&repeat.body, &planned.body);
        let fields = self.saved_fields(&repeat.body, &planned.body.saved);
        let [values, next] = self.carried(&mut body, &repeat.carried, &planned.body, &fields);
        let steps = lines.repeat(&repeat.count, body);
        let sets = self.weights_of_rounds(repeat);
        if self.mode == ExecMode::Session {
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
        lines: &mut TrackedCode,
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
