//! The forward pass: a line or two per operation.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::{Access, BlockNode, Frame, Output, saved_fields};
use crate::emit::ExecMode;
use crate::emit::tracked_code::TrackedCode;
use crate::model::fusion::FuseWith;
use crate::model::graph::{Carried, Node, Region, Repeat, Step, ValueId};
use crate::model::plan::{self, Planned};
use crate::ops::{Emit, Fusion, Kept, Op};

/// The lines of the whole forward pass.
pub(crate) fn emit_forward<F: Frame>(frame: &F) -> TrackedCode {
    Forward { frame }.emit_steps(frame.block().body, frame.plan())
}

struct Forward<'a, F> {
    frame: &'a F,
}

/// An operation, perhaps with the dropout of its result.
struct Computed<'m, O: ?Sized> {
    node: &'m Node<O>,
    planned: &'m Planned,
    dropout: Option<&'m Node<O>>,
    /// The result of the operation on rows before it in its pass.
    rows: Option<ValueId>,
}

impl<O: Op + ?Sized> Computed<'_, O> {
    fn is_on_rows(&self) -> bool {
        matches!(self.node.fusion(), Fusion::Rows)
    }

    /// The value that is in memory.
    fn result(&self) -> ValueId {
        self.dropout.unwrap_or(self.node).result
    }

    /// The operand whose memory the result takes.
    fn reused(&self) -> Option<ValueId> {
        let term = &self.planned.terms[self.planned.reuse?];
        Some(term.value)
    }
}

impl<F: Frame> Forward<'_, F> {
    fn emit_steps(&self, region: &Region<F::Op>, plan: &plan::Forward) -> TrackedCode {
        let mut lines = TrackedCode::default();
        let mut pass = Vec::new();
        let mut done = Vec::new();
        for (step, planned) in region.steps.iter().zip(&plan.steps) {
            done.push(planned);
            match step {
                Step::Node(node) if self.frame.block().is_alias(node.result) => {}
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
            free.for_each(|id| lines.drop(&self.frame.value(*id)));
        }
        lines
    }

    /// One pass over memory: operations, each perhaps with the dropout of its result.
    fn emit_pass(&self, lines: &mut TrackedCode, nodes: &[(&Node<F::Op>, &Planned)]) {
        let mut pass: Vec<Computed<'_, F::Op>> = Vec::new();
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
            None => {
                for computed in &pass {
                    let to = self.output(lines, computed);
                    self.emit_operation(lines, computed.node, &to);
                }
            }
        }
    }

    /// An operation on rows, with the loop before it and the one behind it.
    ///
    /// ```text
    /// let mut prologue = p::assign(p::loops::Add, [p::read(x.as_slice()), p::read(p::InPlace)], x_2.as_mut_slice());
    /// let mut epilogue = p::assign(p::loops::Mul, [p::read(p::Rows), p::read(scale.as_slice())], y.as_mut_slice());
    /// let norm_kept = weights.norm.forward(&mut prologue, (norm.view_mut(), &mut epilogue));
    /// ```
    fn emit_rows(&self, lines: &mut TrackedCode, pass: &[Computed<'_, F::Op>], rows: usize) {
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
            if result.is_over_rows {
                to.to.matrix = result.to.matrix;
            }
        }
        self.emit_operation(lines, pass[rows].node, &to);
    }

    fn loop_arguments(&self, computed: &Computed<'_, F::Op>, to: &Output) -> Option<TokenStream> {
        match computed.node.fusion() {
            Fusion::Elementwise(op) => {
                let name = self.frame.loop_name(computed.node.result);
                Some(op.arguments(&name, to))
            }
            _ => None,
        }
    }

    /// `let a_kept = random.dropout(0.1);`
    fn emit_seed(&self, lines: &mut TrackedCode, node: &Node<F::Op>) {
        if let (Fusion::Dropout(p), ExecMode::Forward) = (node.fusion(), self.frame.mode()) {
            let kept = self.frame.kept(node.result);
            lines.line(quote!(let #kept = random.dropout(#p);));
        }
    }

    /// The call of an operation, with the variable for what it keeps, and the memory that it takes beside its result.
    fn emit_operation(&self, lines: &mut TrackedCode, node: &Node<F::Op>, to: &Output) {
        let kept = self.frame.kept(node.result);
        let of = BlockNode::new(self.frame, node);
        let call = node.op.forward(&of, to);
        let returned = match (node.op.properties().kept, self.frame.mode()) {
            (Some(Kept::Array | Kept::Attention), ExecMode::Forward) => Some(quote!(let #kept =)),
            (Some(Kept::Dropout) | None, _) | (_, ExecMode::Session) => None,
        };
        if !call.is_empty() {
            lines.line(quote!(#returned #call;));
        }
        match (node.op.footprints(&of).forward, node.op.properties().kept) {
            (Some(footprint), Some(_)) => lines.take(&kept, footprint),
            (Some(footprint), None) => lines.compute(footprint),
            (None, _) => {}
        }
    }

    /// Where an operation writes: a new array, or that of a term that is not needed any more.
    fn output(&self, lines: &mut TrackedCode, computed: &Computed<'_, F::Op>) -> Output {
        let result = computed.result();
        let is_direct = self.direct(result).is_some();
        let reused = computed.reused().filter(|_| !is_direct);
        let to = match reused {
            None => self.result(lines, result),
            Some(term) => {
                let name = self.frame.value(result);
                let term = self.owned(lines, &name, term, true);
                lines.line(quote!(let mut #name = #term;));
                array(&name)
            }
        };
        let is_over_rows = reused.is_some() && reused == computed.rows;
        let of = BlockNode::new(self.frame, computed.node);
        let terms = computed.planned.terms.iter().enumerate();
        let reads = terms.map(|(index, term)| {
            let numbers = match Some(term.value) {
                value if value == computed.rows => quote!(p::Rows),
                value if value == reused => quote!(p::InPlace),
                _ => self.frame.read(term.value).slice,
            };
            let dropped = self.dropped(term.dropout, "of", &numbers);
            dropped.unwrap_or_else(|| match computed.node.fusion() {
                Fusion::Elementwise(op) => op.read(index, &of, numbers),
                _ => quote!(p::read(#numbers)),
            })
        });
        let reads = reads.collect();
        let slice = match is_over_rows {
            true => quote!(p::InPlace),
            false => to.slice,
        };
        let dropout = computed.dropout.map(|dropout| dropout.result);
        let slice = self.dropped(dropout, "to", &slice).unwrap_or(slice);
        Output {
            to: Access { slice, ..to },
            reads,
            is_in_place: reused.is_some(),
            is_over_rows,
            has_prologue: false,
            has_epilogue: false,
        }
    }

    /// `dropout_kept.of(numbers)`, for numbers of which a dropout drops some in this pass.
    fn dropped(
        &self,
        dropout: Option<ValueId>,
        method: &str,
        numbers: &TokenStream,
    ) -> Option<TokenStream> {
        match (dropout, self.frame.mode()) {
            (Some(dropout), ExecMode::Forward) => {
                let kept = self.frame.kept(dropout);
                let method = format_ident!("{method}");
                Some(quote!(#kept.#method(#numbers)))
            }
            (None, _) | (_, ExecMode::Session) => None,
        }
    }

    /// The memory that a result is written to. It is new, unless the block returns the result.
    fn result(&self, lines: &mut TrackedCode, id: ValueId) -> Access {
        if let Some(index) = self.direct(id) {
            return self.frame.result(index);
        }
        let name = self.frame.value(id);
        self.frame.make(lines, &name, "uninit", id);
        array(&name)
    }

    /// The number of the result, if its operation can write it where the block returns it.
    fn direct(&self, id: ValueId) -> Option<usize> {
        let block = self.frame.block();
        let mut results = block.results.iter();
        let index = results.position(|result| *result == id)?;
        plan::is_written_directly(block, id, self.frame.plan()).then_some(index)
    }

    /// A value as an array of its own, for the variable `to`: that of the value itself, if nobody else needs it, or a copy.
    fn owned(
        &self,
        lines: &mut TrackedCode,
        to: &Ident,
        id: ValueId,
        is_free: bool,
    ) -> TokenStream {
        let id = self.frame.block().source(id);
        let name = self.frame.value(id);
        if is_free {
            lines.moved(&name, to);
            return quote!(#name);
        }
        lines.take(to, self.frame.footprint_of(id));
        if self.frame.block().is_input(id) {
            let numbers = self.frame.input(id).slice;
            let [rows, width] = self.frame.extents(id);
            quote!(p::Array::of(#numbers, #rows, #width))
        } else {
            quote!(#name.copy())
        }
    }

    fn emit_repeat(&self, lines: &mut TrackedCode, repeat: &Repeat<F::Op>, planned: &Planned) {
        let Some(rounds) = self.frame.rounds(repeat) else {
            return;
        };
        for (carried, moved) in repeat.carried.iter().zip(&planned.moved) {
            let value = self.frame.value(carried.value);
            let before = self.owned(lines, &value, carried.before, *moved);
            lines.line(quote!(let mut #value = #before;));
        }
        let mut body = self.emit_steps(&repeat.body, &planned.body);
        let fields = saved_fields(self.frame, &repeat.body, &planned.body.saved);
        let [values, next] = self.carried(&mut body, &repeat.carried, &planned.body, &fields);
        let steps = lines.repeat(&repeat.count, body);
        let (each, sets) = (&rounds.each, &rounds.forward);
        if self.frame.mode() == ExecMode::Session {
            return lines.line(quote! {
                for #each in #sets {
                    #steps
                    #values = #next;
                }
            });
        }
        let (saved, kept) = (&rounds.saved, &rounds.kept);
        lines.line(quote! {
            let mut #kept = p::Vec::new();
            for #each in #sets {
                #steps
                let next = #next;
                let round = #saved { #(#fields,)* __types: p::PhantomData };
                if keep {
                    #kept.push(round);
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
        body: &plan::Forward,
        kept: &[Ident],
    ) -> [TokenStream; 2] {
        let values = carried.iter().map(|of| self.frame.value(of.value));
        let values: Vec<_> = values.collect();
        let names = (0..values.len()).map(|index| self.frame.own("next", index));
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

/// An array, to write.
pub(crate) fn array(name: &Ident) -> Access {
    Access {
        slice: quote!(#name.as_mut_slice()),
        matrix: quote!(#name.view_mut()),
    }
}

/// One of them by itself, several in parentheses.
fn tuple(parts: &[impl ToTokens]) -> TokenStream {
    match parts {
        [part] => quote!(#part),
        _ => quote!((#(#parts),*)),
    }
}
