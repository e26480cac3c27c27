//! The derivative: the lines of [`diff`](crate::model::diff), backwards through the operations.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::Fused;
use super::node::{FusedNode, Gradients};
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::{BackwardStep, BufferId, GradSource, GradTarget, last_reads};
use crate::model::graph::{Node, Region, Repeat, Step, ValueId};
use crate::model::plan::Forward;
use crate::ops::Kept;

impl Fused<'_> {
    pub(super) fn emit_backward(&self) -> TrackedCode {
        let model = self.model();
        let d_results = (0..model.results.len()).map(|index| format_ident!("d_result_{index}"));
        let module = &model.modules[0];
        let weights = self.weights_type(module);
        let saved = self.saved_type(module);
        let fields = self.saved_fields(&model.grouped, &self.plan.saved);
        let mut lines = TrackedCode::default();
        for (index, id) in model.results.iter().enumerate() {
            lines.take(&self.own("d_result", index), self.footprint_of(*id));
        }
        lines.restore(&fields);
        self.emit_lines(&mut lines, &model.grouped, self.plan, &self.backward.lines);
        let derivatives = std::mem::take(&mut lines.code);
        lines.line(quote_spanned! {self.cx.at=>
            /// The derivative, operation by operation backwards. Gradients of parameters and inputs are added to in the tape's own
            /// buffers.
            #[allow(unused_variables, unused_mut)]
            fn backward<E: p::Element>(
                call: &Call<E>,
                weights: &#weights<E>,
                saved: #saved<E>,
                #(#d_results: &[E],)*
                gradients: &mut p::Gradients<E>,
            ) {
                let sizes = call.sizes;
                let #saved { #(#fields,)* .. } = saved;
                #derivatives
            }
        });
        lines
    }

    /// The lines of a region. What it has kept goes when its last reader is done.
    fn emit_lines(
        &self,
        emitted: &mut TrackedCode,
        region: &Region,
        plan: &Forward,
        lines: &[BackwardStep<'_>],
    ) {
        let free = last_reads(self.model().block(), lines, &plan.saved);
        for (line, free) in lines.iter().zip(free) {
            self.emit_line(emitted, region, plan, line);
            free.iter().for_each(|id| emitted.drop(&self.value(*id)));
        }
    }

    fn emit_line(
        &self,
        emitted: &mut TrackedCode,
        region: &Region,
        plan: &Forward,
        line: &BackwardStep<'_>,
    ) {
        match line {
            BackwardStep::Zeros(to) => self.make_buffer(emitted, *to, "zeros"),
            BackwardStep::Copy { from, to } => {
                let name = self.buffer(*to);
                let from = self.copy(*from, *to);
                emitted.line(quote!(let mut #name = #from;));
                emitted.take(&name, self.footprint_of(self.backward.buffers[to.0]));
            }
            BackwardStep::Add { from, to } => {
                let to = self.target(emitted, *to);
                let from = self.gradient(*from);
                emitted.line(quote!(#to.add(1.0, #from, gradients);));
            }
            BackwardStep::Adjoint { node, d_result, to } => {
                self.emit_adjoint(emitted, node, *d_result, to);
            }
            BackwardStep::Free(buffer) => emitted.drop(&self.buffer(*buffer)),
            BackwardStep::Repeat {
                repeat,
                carried,
                lines,
            } => {
                let steps = region.steps.iter().zip(&plan.steps);
                let mut bodies = steps.filter_map(|(step, planned)| match step {
                    Step::Repeat(other) if std::ptr::eq(other, *repeat) => Some(&planned.body),
                    _ => None,
                });
                if let Some(body) = bodies.next() {
                    self.emit_rounds(emitted, repeat, body, carried, lines);
                }
            }
        }
    }

    fn emit_rounds(
        &self,
        emitted: &mut TrackedCode,
        repeat: &Repeat,
        plan: &Forward,
        carried: &[[BufferId; 2]],
        lines: &[BackwardStep<'_>],
    ) {
        let module = self.body_of(repeat);
        let weights = self.module_var(module);
        let saved = self.saved_type(module);
        let rounds = self.rounds(repeat);
        let sets = self.weights(&repeat.place);
        let count = &repeat.count;
        // Of sets of parameters the last one comes first.
        let sets = if repeat.share {
            quote!(::core::iter::repeat_n(&#sets, #count))
        } else {
            quote!(#sets.iter().rev())
        };
        let fields = self.saved_fields(&repeat.body, &plan.saved);
        let mut body = TrackedCode::default();
        body.restore(&fields);
        self.emit_lines(&mut body, &repeat.body, plan, lines);
        let changed = carried.iter().filter(|[start, end]| start != end);
        let (starts, ends): (Vec<_>, Vec<_>) = changed
            .map(|pair| pair.map(|id| self.buffer(id)).into())
            .unzip();
        let next = match starts.as_slice() {
            [] => TokenStream::new(),
            [start] => quote!(#start = #(#ends)*;),
            _ => quote!((#(#starts),*) = (#(#ends),*);),
        };
        // All of them are moved before the first is assigned.
        let moved = (0..ends.len()).map(|index| self.own("next", index));
        let moved: Vec<_> = moved.collect();
        for (end, moved) in ends.iter().zip(&moved) {
            body.moved(end, moved);
        }
        for (start, moved) in starts.iter().zip(&moved) {
            body.assigned(moved, start);
        }
        let lines = emitted.repeat(count, body);
        emitted.line(quote! {
            for (#weights, round) in #sets.zip(#rounds.into_iter().rev()) {
                let #saved { #(#fields,)* .. } = round;
                #lines
                #next
            }
        });
    }

    /// `let mut d_x = p::Array::<E>::uninit(rows, [width]);`
    fn make_buffer(&self, lines: &mut TrackedCode, buffer: BufferId, how: &str) {
        let of = self.backward.buffers[buffer.0];
        self.make(lines, &self.buffer(buffer), how, of);
    }

    fn copy(&self, from: GradSource, to: BufferId) -> TokenStream {
        match from {
            GradSource::Buffer(from) => {
                let from = self.buffer(from);
                quote!(#from.copy())
            }
            GradSource::Result(_) => {
                let ty = self.ty(self.backward.buffers[to.0]);
                let from = self.gradient(from);
                let rows = self.rows(ty);
                let width = self.width(ty);
                quote!(p::Array::of(#from, #rows, #width))
            }
        }
    }

    /// The numbers of a gradient.
    fn gradient(&self, from: GradSource) -> TokenStream {
        match from {
            GradSource::Result(index) => {
                let name = format_ident!("d_result_{index}");
                quote!(#name)
            }
            GradSource::Buffer(buffer) => {
                let name = self.buffer(buffer);
                quote!(#name.as_slice())
            }
        }
    }

    /// The gradient of a value as a matrix.
    fn gradient_matrix(&self, from: GradSource, of: ValueId) -> TokenStream {
        match from {
            GradSource::Result(_) => {
                let rows = self.rows(self.ty(of));
                let width = self.width(self.ty(of));
                let numbers = self.gradient(from);
                quote!(p::Matrix::new(#numbers, #rows, #width))
            }
            GradSource::Buffer(buffer) => {
                let name = self.buffer(buffer);
                quote!(#name.view())
            }
        }
    }

    /// Where a gradient goes, which is made if it is new.
    fn target(&self, lines: &mut TrackedCode, to: GradTarget) -> TokenStream {
        match to {
            GradTarget::Input(id) => {
                let name = self.input(id);
                quote!(call.inputs.#name.target())
            }
            GradTarget::New(buffer) | GradTarget::InPlace(buffer) => {
                if let GradTarget::New(_) = to {
                    self.make_buffer(lines, buffer, "uninit");
                }
                let name = self.buffer(buffer);
                quote!(p::GradTarget::array(&mut #name, p::WriteMode::Overwrite))
            }
            GradTarget::Overwrite(buffer) => {
                let name = self.buffer(buffer);
                quote!(p::GradTarget::array(&mut #name, p::WriteMode::Overwrite))
            }
            GradTarget::Add(buffer) => {
                let name = self.buffer(buffer);
                quote!(p::GradTarget::array(&mut #name, p::WriteMode::Add))
            }
        }
    }

    fn emit_adjoint(
        &self,
        lines: &mut TrackedCode,
        node: &Node,
        d_result: GradSource,
        to: &[(usize, GradTarget)],
    ) {
        let targets = to
            .iter()
            .map(|(index, to)| (*index, self.target(lines, *to)));
        let gradients = Gradients {
            targets: targets.collect(),
            is_in_place: to
                .iter()
                .any(|(_, to)| matches!(to, GradTarget::InPlace(_))),
            slice: self.gradient(d_result),
            matrix: self.gradient_matrix(d_result, node.result),
        };
        let of = FusedNode { fused: self, node };
        lines.line(node.op.backward(&of, &gradients));
        if let Some(footprint) = self.footprint_backward(node) {
            lines.differentiate(footprint);
        }
        match node.op.properties().kept {
            Some(Kept::Array | Kept::Attention) => lines.consumed(&self.kept(node.result)),
            Some(Kept::Dropout) | None => {}
        }
    }
}
