//! The derivative: the lines of [`diff`](crate::model::diff), backwards through the operations.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Access, BlockNode, Frame, Gradients, Rounds, saved_fields};
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::{BackwardStep, BufferId, GradSource, GradTarget, last_reads};
use crate::model::graph::{Node, Region, Repeat, Step, ValueId};
use crate::model::plan::Forward;
use crate::ops::{Emit, Kept, Op};

/// The lines of the whole derivative.
pub(crate) fn emit_backward<F: Frame>(frame: &F, lines: &mut TrackedCode) {
    let steps = &frame.derivative().lines;
    Backward { frame }.emit_lines(lines, frame.block().body, frame.plan(), steps);
}

struct Backward<'a, F> {
    frame: &'a F,
}

impl<F: Frame> Backward<'_, F> {
    /// The lines of a region. A value that was saved is dropped when its last reader is done.
    fn emit_lines(
        &self,
        emitted: &mut TrackedCode,
        region: &Region<F::Op>,
        plan: &Forward,
        lines: &[BackwardStep<'_, F::Op>],
    ) {
        let is_free = |line: &BackwardStep<'_, _>| matches!(line, BackwardStep::Free(_));
        let last = lines.iter().rposition(|line| !is_free(line));
        let free = last_reads(self.frame.block(), lines, &plan.saved);
        for (index, (line, free)) in lines.iter().zip(free).enumerate() {
            self.emit_line(emitted, region, plan, line);
            // Behind the last line, all memory goes by itself.
            if Some(index) < last {
                let mut free: Vec<_> = free.iter().map(|id| self.frame.value(*id)).collect();
                if let BackwardStep::Free(buffer) = line {
                    free.push(self.frame.buffer(*buffer));
                }
                free.iter().for_each(|name| emitted.drop(name));
            }
        }
    }

    fn emit_line(
        &self,
        emitted: &mut TrackedCode,
        region: &Region<F::Op>,
        plan: &Forward,
        line: &BackwardStep<'_, F::Op>,
    ) {
        match line {
            BackwardStep::Zeros(to) => self.make(emitted, *to, "zeros"),
            BackwardStep::Copy { from, to } => {
                let of = self.frame.derivative().buffers[to.0];
                let name = self.frame.buffer(*to);
                let from = self.copy(*from, *to);
                emitted.line(quote!(let mut #name = #from;));
                emitted.take(&name, self.frame.footprint_of(of));
            }
            BackwardStep::Add { from, to } => {
                let to = self.target(emitted, *to);
                let from = self.slice(*from);
                emitted.line(quote!(#to.add(1.0, #from, gradients);));
            }
            BackwardStep::Adjoint { node, d_result, to } => {
                self.emit_adjoint(emitted, node, *d_result, to);
            }
            BackwardStep::Free(_) => {}
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
                if let (Some(body), Some(rounds)) = (bodies.next(), self.frame.rounds(repeat)) {
                    self.emit_rounds(emitted, (repeat, &rounds), body, carried, lines);
                }
            }
        }
    }

    fn emit_rounds(
        &self,
        emitted: &mut TrackedCode,
        (repeat, rounds): (&Repeat<F::Op>, &Rounds),
        plan: &Forward,
        carried: &[[BufferId; 2]],
        lines: &[BackwardStep<'_, F::Op>],
    ) {
        let Rounds {
            weights,
            backward: sets,
            saved,
            kept,
            ..
        } = rounds;
        let fields = saved_fields(self.frame, &repeat.body, &plan.saved);
        let mut body = TrackedCode::default();
        body.restore(&fields);
        self.emit_lines(&mut body, &repeat.body, plan, lines);
        let changed = carried.iter().filter(|[start, end]| start != end);
        let (starts, ends): (Vec<_>, Vec<_>) = changed
            .map(|pair| pair.map(|id| self.frame.buffer(id)).into())
            .unzip();
        let next = match starts.as_slice() {
            [] => TokenStream::new(),
            [start] => quote!(#start = #(#ends)*;),
            _ => quote!((#(#starts),*) = (#(#ends),*);),
        };
        // All of them are moved before the first is assigned.
        let moved = (0..ends.len()).map(|index| self.frame.own("next", index));
        let moved: Vec<_> = moved.collect();
        for (end, moved) in ends.iter().zip(&moved) {
            body.moved(end, moved);
        }
        for (start, moved) in starts.iter().zip(&moved) {
            body.assigned(moved, start);
        }
        let lines = emitted.repeat(&repeat.count, body);
        emitted.line(quote! {
            for (#weights, round) in #sets.zip(#kept.into_iter().rev()) {
                let #saved { #(#fields,)* .. } = round;
                #lines
                #next
            }
        });
    }

    /// `let mut d_x = p::Array::<E>::uninit(rows, [width]);`
    fn make(&self, lines: &mut TrackedCode, buffer: BufferId, how: &str) {
        let of = self.frame.derivative().buffers[buffer.0];
        let name = self.frame.buffer(buffer);
        self.frame.make(lines, &name, how, of);
    }

    fn copy(&self, from: GradSource, to: BufferId) -> TokenStream {
        match from {
            GradSource::Buffer(from) => {
                let from = self.frame.buffer(from);
                quote!(#from.copy())
            }
            GradSource::Result(_) => {
                let of = self.frame.derivative().buffers[to.0];
                let from = self.slice(from);
                let [rows, width] = self.frame.extents(of);
                quote!(p::Array::of(#from, #rows, #width))
            }
        }
    }

    /// The numbers of a gradient.
    fn slice(&self, from: GradSource) -> TokenStream {
        let of = match from {
            GradSource::Result(index) => self.frame.block().results[index],
            GradSource::Buffer(buffer) => self.frame.derivative().buffers[buffer.0],
        };
        self.gradient(from, of).slice
    }

    /// A gradient, to read as that of this value.
    fn gradient(&self, from: GradSource, of: ValueId) -> Access {
        match from {
            GradSource::Result(index) => self.frame.d_result(index, of),
            GradSource::Buffer(buffer) => {
                let name = self.frame.buffer(buffer);
                Access {
                    slice: quote!(#name.as_slice()),
                    matrix: quote!(#name.view()),
                }
            }
        }
    }

    /// Where a gradient goes, which is made if it is new.
    fn target(&self, lines: &mut TrackedCode, to: GradTarget) -> TokenStream {
        let (buffer, mode) = match to {
            GradTarget::Input(id) => return self.frame.d_input(id),
            GradTarget::New(buffer) => {
                self.make(lines, buffer, "uninit");
                (buffer, quote!(Overwrite))
            }
            GradTarget::InPlace(buffer) | GradTarget::Overwrite(buffer) => {
                (buffer, quote!(Overwrite))
            }
            GradTarget::Add(buffer) => (buffer, quote!(Add)),
        };
        let name = self.frame.buffer(buffer);
        quote!(p::GradTarget::array(&mut #name, p::WriteMode::#mode))
    }

    fn emit_adjoint(
        &self,
        lines: &mut TrackedCode,
        node: &Node<F::Op>,
        d_result: GradSource,
        to: &[(usize, GradTarget)],
    ) {
        let targets = to.iter().map(|(_, to)| self.target(lines, *to));
        let gradients = Gradients {
            targets: targets.collect(),
            to: to.to_vec(),
            d_result: self.gradient(d_result, node.result),
        };
        let of = BlockNode::new(self.frame, node);
        lines.line(node.op.backward(&of, &gradients));
        if let Some(footprint) = node.op.footprints(&of).backward {
            lines.differentiate(footprint);
        }
        match node.op.properties().kept {
            Some(Kept::Array | Kept::Hidden | Kept::Attention) => lines.consumed(&of.kept()),
            Some(Kept::Dropout) | None => {}
        }
    }
}
