//! The forward pass: a line or two per operation.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::strips::{Memory, Slot, StripNames, slot};
use super::{Access, BlockNode, Frame, Output, saved_fields};
use crate::emit::ExecMode;
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::Again;
use crate::model::fusion::FuseWith;
use crate::model::graph::{Carried, Node, Region, Repeat, Step, ValueId};
use crate::model::plan::{self, Planned};
use crate::model::recompute::keeps_memory;
use crate::model::strips::StripPass;
use crate::model::types::Axis;
use crate::ops::{Emit, Fusion, Kept, Op};

/// The lines of the whole forward pass.
pub(crate) fn emit_forward<F: Frame>(frame: &F) -> TrackedCode {
    let forward = Forward {
        frame,
        strips: None,
        again: None,
    };
    forward.emit_steps(frame.block().body, frame.plan())
}

/// The lines of nodes that run again for the derivative.
pub(super) fn emit_again<F: Frame>(frame: &F, again: &Again<F::Op>) -> TrackedCode {
    let forward = Forward {
        frame,
        strips: None,
        again: Some(again),
    };
    let mut lines = forward.emit_steps(&again.steps, &again.plan);
    for node in again.steps.nodes() {
        let unread = node.results().filter(|id| !forward.is_read(*id));
        let made = unread.filter(|_| !forward.is_unread(node));
        made.for_each(|id| lines.drop(&frame.value(id)));
    }
    let forgotten = again.forgotten.iter();
    forgotten.for_each(|id| lines.drop(&frame.kept(*id)));
    lines
}

struct Forward<'a, F: Frame> {
    frame: &'a F,
    /// The pass that the lines are of.
    strips: Option<&'a StripNames>,
    /// The nodes, if they ran before, with the seeds that were kept of them.
    again: Option<&'a Again<F::Op>>,
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
        for (index, (step, planned)) in region.steps.iter().zip(&plan.steps).enumerate() {
            let mut strips = plan.strips.iter();
            if let Some(strips) = strips.find(|strips| strips.steps.contains(&index)) {
                let of_pass = &region.steps[strips.steps.clone()];
                let is_emitted = of_pass.iter().all(|step| self.frame.emits(step));
                if index == strips.steps.start && is_emitted {
                    self.emit_strips(&mut lines, region, plan, strips);
                }
                continue;
            }
            if !self.frame.emits(step) {
                continue;
            }
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
                Step::Scan(scan) => self.frame.emit_scan(&mut lines, scan),
            }
            let free = done.drain(..).flat_map(|planned| &planned.free);
            let free = free.filter(|id| self.frame.is_made(**id));
            free.for_each(|id| lines.drop(&self.frame.value(*id)));
        }
        lines
    }

    /// One pass over memory: operations, each perhaps with the dropout of its result.
    fn emit_pass(&self, lines: &mut TrackedCode, nodes: &[(&Node<F::Op>, &Planned)]) {
        let pass = self.computed(lines, nodes);
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

    /// The operations of a pass, behind the lines that draw seeds.
    fn computed<'m>(
        &self,
        lines: &mut TrackedCode,
        nodes: &[(&'m Node<F::Op>, &'m Planned)],
    ) -> Vec<Computed<'m, F::Op>> {
        let mut pass: Vec<Computed<'_, F::Op>> = Vec::new();
        let mut is_with_next = false;
        for (node, planned) in nodes {
            self.emit_seed(lines, node);
            let before = pass.last_mut().filter(|_| is_with_next);
            is_with_next = planned.with == Some(FuseWith::Next);
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
        pass
    }

    /// Operations on strips of rows. What nobody reads behind them is scratch.
    fn emit_strips(
        &self,
        lines: &mut TrackedCode,
        region: &Region<F::Op>,
        plan: &plan::Forward,
        strips: &StripPass,
    ) {
        let steps = region.steps.iter().zip(&plan.steps);
        let steps = steps.skip(strips.steps.start).take(strips.steps.len());
        let nodes = steps.filter_map(|(step, planned)| match step {
            Step::Node(node) => Some((node, planned)),
            Step::Repeat(_) | Step::Scan(_) => None,
        });
        let nodes: Vec<_> = nodes.collect();
        let pass = self.computed(lines, &nodes);
        let mut free: Vec<ValueId> = Vec::new();
        nodes
            .iter()
            .for_each(|(_, planned)| free.extend(&planned.free));
        let terms = terms_of_sums(&pass, &free);
        free.retain(|id| !terms.contains(id));
        let in_memory = pass
            .iter()
            .filter(|computed| !terms.contains(&computed.result()));
        let in_memory: Vec<_> = in_memory.collect();
        let slots = self.slots(lines, &strips.axes, &in_memory, &mut free);
        let names = StripNames::new(&strips.axes, &slots);
        let inside = Forward {
            frame: self.frame,
            strips: Some(&names),
            again: self.again,
        };
        let mut body = TrackedCode::default();
        let mut loop_of_terms = None;
        for computed in &pass {
            if terms.contains(&computed.result()) {
                loop_of_terms = inside.loop_of_terms(computed);
                continue;
            }
            let mut to = inside.output(&mut body, computed);
            to.terms = loop_of_terms.take();
            inside.emit_operation(&mut body, computed.node, &to);
        }
        names.emit(self.frame, lines, &slots, body.code);
        free.iter()
            .for_each(|id| lines.drop(&self.frame.value(*id)));
    }

    /// The memory of the results of a pass. Values that are scratch are taken out of those that are free behind it.
    fn slots(
        &self,
        lines: &mut TrackedCode,
        axes: &[Axis],
        pass: &[&Computed<'_, F::Op>],
        free: &mut Vec<ValueId>,
    ) -> Vec<Slot> {
        // The values that are in one memory, one after the other. The first one may stand there before the pass.
        let mut chains: Vec<Vec<ValueId>> = Vec::new();
        let is_result = |id: ValueId| pass.iter().any(|computed| computed.result() == id);
        for computed in pass {
            let is_direct = self.direct(computed.result()).is_some();
            let reused = computed.reused();
            free.extend(reused.filter(|id| is_direct && is_result(*id)));
            let reused = reused.filter(|_| !is_direct);
            let chain = chains
                .iter_mut()
                .find(|chain| chain.last().copied() == reused && reused.is_some());
            match chain {
                Some(chain) => chain.push(computed.result()),
                None => chains.push(reused.into_iter().chain([computed.result()]).collect()),
            }
        }
        let names = StripNames::new(axes, &[]);
        let slots = chains.into_iter().filter_map(|chain| {
            let (first, last) = (*chain.first()?, *chain.last()?);
            let name = self.frame.value(last);
            let width = names.width(&self.frame.ty(last).axes);
            let is_new = is_result(first);
            let memory = if is_new && free.contains(&last) {
                free.retain(|id| *id != last);
                slot("Scratch", &[width])
            } else {
                let to = match is_new {
                    true => self.result(lines, last),
                    false => {
                        let before = self.owned(lines, &name, (first, last), true);
                        lines.line(quote!(let mut #name = #before;));
                        array(&name)
                    }
                };
                slot("Rows", &[to.slice, width])
            };
            let of = chain.into_iter().map(Memory::Value);
            Some(Slot {
                name,
                of: of.collect(),
                memory,
            })
        });
        slots.collect()
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

    /// `let a_kept = random.dropout_of_batch(0.1, sizes.batch * sizes.seq * 384);`
    fn emit_seed(&self, lines: &mut TrackedCode, node: &Node<F::Op>) {
        if self.again.is_some() {
            return;
        }
        if let (Fusion::Dropout(p), ExecMode::Forward) = (node.fusion(), self.frame.mode()) {
            let kept = self.frame.kept(node.result);
            lines.line(match self.frame.len_of_batch(node.result) {
                Some(len) => quote!(let #kept = random.dropout_of_batch(#p, #len);),
                None => quote!(let #kept = random.dropout(#p);),
            });
        }
    }

    /// The call of an operation, with the variable for what it keeps, and the memory that it takes beside its result.
    fn emit_operation(&self, lines: &mut TrackedCode, node: &Node<F::Op>, to: &Output) {
        let kept = self.frame.kept(node.result);
        let of = BlockNode::new(self.frame, node).in_strips(self.strips);
        let call = node.op.forward(&of, to);
        let returned = match (node.op.properties().kept, self.frame.mode()) {
            (
                Some(Kept::Array | Kept::Hidden | Kept::Attention | Kept::Loss),
                ExecMode::Forward,
            ) => Some(quote!(let #kept =)),
            (Some(Kept::Dropout) | None, _) | (_, ExecMode::Session | ExecMode::Start) => None,
        };
        let seeds = self.frame.seeds(node);
        if let Some(seeds) = &seeds {
            lines.line(match self.again {
                None => quote! {
                    let #seeds = p::Seeds::default();
                    #returned {
                        let recorded = || #seeds.record(random);
                        let random = random.with(&recorded);
                        #call
                    };
                },
                Some(_) => quote! {
                    #returned {
                        #seeds.go_to(0, 1);
                        let again = || #seeds.again();
                        let random = #seeds.random(&again);
                        #call
                    };
                },
            });
        } else if !call.is_empty() {
            lines.line(quote!(#returned #call;));
        }
        match (node.op.footprints(&of).forward, node.op.properties().kept) {
            (Some(footprint), Some(_)) if to.is_unread() => {
                lines.take(&kept, quote!(#footprint.kept_alone()));
            }
            (Some(footprint), Some(_)) => lines.take(&kept, footprint),
            (Some(footprint), None) => lines.compute(footprint),
            (None, _) => {}
        }
        if self.again.is_none() && keeps_memory(node) && self.frame.is_again(node) {
            lines.drop(&kept);
        }
    }

    /// Where an operation writes: a new array, or that of a term that is not needed any more.
    fn output(&self, lines: &mut TrackedCode, computed: &Computed<'_, F::Op>) -> Output {
        let result = computed.result();
        let is_direct = self.direct(result).is_some();
        let reused = computed.reused().filter(|_| !is_direct);
        let local = self
            .strips
            .and_then(|strips| strips.local(Memory::Value(result)));
        let is_unread = self.is_unread(computed.node);
        let to = match (local, reused) {
            _ if is_unread => Access {
                slice: TokenStream::new(),
                matrix: TokenStream::new(),
            },
            (Some(name), _) => array(name),
            (None, None) => self.result(lines, result),
            (None, Some(term)) => {
                let name = self.frame.value(result);
                let term = self.owned(lines, &name, (term, result), true);
                lines.line(quote!(let mut #name = #term;));
                array(&name)
            }
        };
        let is_over_rows = reused.is_some() && reused == computed.rows;
        let reads = self.reads(computed, reused);
        let slice = match is_over_rows {
            true => quote!(p::InPlace),
            false => to.slice,
        };
        let dropout = computed.dropout.map(|dropout| dropout.result);
        let slice = self.dropped(dropout, "to", &slice).unwrap_or(slice);
        let others = computed.node.others.iter();
        let others = others.map(|id| id.map(|id| self.result(lines, id)));
        Output {
            others: others.collect(),
            to: Access { slice, ..to },
            reads,
            terms: None,
            is_in_place: reused.is_some(),
            is_over_rows,
            has_prologue: false,
            has_epilogue: false,
            is_unread,
        }
    }

    /// Whether a value that is made again is read, by others of these nodes or behind them.
    fn is_read(&self, id: ValueId) -> bool {
        let memory = |id: ValueId| self.frame.block().memory(id);
        self.again.is_none_or(|again| {
            let nodes = again.steps.nodes();
            let mut operands = nodes.iter().flat_map(|node| &node.operands);
            again.ends.contains(&memory(id)) || operands.any(|of| memory(*of) == memory(id))
        })
    }

    /// Whether a node runs for its hidden layer alone.
    fn is_unread(&self, node: &Node<F::Op>) -> bool {
        node.op.properties().kept == Some(Kept::Hidden) && !self.is_read(node.result)
    }

    /// The operands of a loop, of which one may stand where the result is written.
    fn reads(&self, computed: &Computed<'_, F::Op>, reused: Option<ValueId>) -> Vec<TokenStream> {
        let of = BlockNode::new(self.frame, computed.node).in_strips(self.strips);
        let terms = computed.planned.terms.iter().enumerate();
        let reads = terms.map(|(index, term)| {
            let numbers = match Some(term.value) {
                value if value == computed.rows => quote!(p::Rows),
                value if value == reused => quote!(p::InPlace),
                _ => of.numbers(term.value),
            };
            let dropped = self.dropped(term.dropout, "of", &numbers);
            dropped.unwrap_or_else(|| match computed.node.fusion() {
                Fusion::Elementwise(op) => op.read(index, &of, numbers),
                _ => quote!(p::read(#numbers)),
            })
        });
        reads.collect()
    }

    /// The loop whose values a sum adds up: `p::loops::Square, [p::read(x)]`.
    fn loop_of_terms(&self, computed: &Computed<'_, F::Op>) -> Option<TokenStream> {
        let Fusion::Elementwise(op) = computed.node.fusion() else {
            return None;
        };
        let name = self.frame.loop_name(computed.node.result);
        Some(op.terms(&name, &self.reads(computed, None)))
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
                let kept = match self.strips {
                    None => quote!(#kept),
                    Some(strips) => strips.dropout(&kept, &self.frame.ty(dropout).axes),
                };
                let method = format_ident!("{method}");
                Some(quote!(#kept.#method(#numbers)))
            }
            (None, _) | (_, ExecMode::Session | ExecMode::Start) => None,
        }
    }

    /// The memory that a result is written to. It is new, unless the block returns the result.
    fn result(&self, lines: &mut TrackedCode, id: ValueId) -> Access {
        if let Some(index) = self.direct(id) {
            let to = self.frame.result(index);
            let returned = self.frame.block().results[index];
            return match self.frame.is_alike(returned, id) {
                true => to,
                false => Access {
                    matrix: self.frame.reshaped_mut(&to.slice, id),
                    slice: to.slice,
                },
            };
        }
        let name = self.frame.value(id);
        match self.frame.place_of_step(id) {
            Some(place) => lines.line(quote!(let mut #name = #place;)),
            None => self.frame.make(lines, &name, "uninit", id),
        }
        array(&name)
    }

    /// The number of the result, if its operation can write it where the block returns it.
    fn direct(&self, id: ValueId) -> Option<usize> {
        if self.again.is_some() {
            return None;
        }
        let block = self.frame.block();
        let mut results = block.results.iter();
        let index = results.position(|result| block.memory(*result) == id)?;
        plan::is_written_directly(block, id, self.frame.plan()).then_some(index)
    }

    /// A value as an array of its own with the rows and columns of another one, for the variable `to`: that of the value itself, if nobody
    /// else needs it, or a copy.
    fn owned(
        &self,
        lines: &mut TrackedCode,
        to: &Ident,
        (id, like): (ValueId, ValueId),
        is_free: bool,
    ) -> TokenStream {
        let block = self.frame.block();
        let name = self.frame.value(id);
        let is_alike = self.frame.is_alike(block.memory(id), like);
        let [rows, width] = self.frame.extents(like);
        if is_free {
            lines.moved(&name, to);
            return match is_alike {
                true => quote!(#name),
                false => quote!(#name.reshaped(#rows, #width)),
            };
        }
        lines.take(to, self.frame.footprint_of(id));
        match is_alike && !block.is_input(id) {
            true => quote!(#name.copy()),
            false => {
                let numbers = self.frame.read(id).slice;
                quote!(p::Array::of(#numbers, #rows, #width))
            }
        }
    }

    fn emit_repeat(&self, lines: &mut TrackedCode, repeat: &Repeat<F::Op>, planned: &Planned) {
        let Some(rounds) = self.frame.rounds(repeat) else {
            return;
        };
        for (carried, moved) in repeat.carried.iter().zip(&planned.moved) {
            let value = self.frame.value(carried.value);
            let as_carried = (carried.before, carried.value);
            let before = self.owned(lines, &value, as_carried, *moved);
            lines.line(quote!(let mut #value = #before;));
        }
        let mut body = self.emit_steps(&repeat.body, &planned.body);
        let fields = saved_fields(self.frame, &repeat.body, &planned.body.saved);
        let [values, next] = self.carried(&mut body, &repeat.carried, &planned.body, &fields);
        let steps = lines.repeat(&repeat.count, body);
        let (each, sets) = (&rounds.each, &rounds.forward);
        if self.frame.mode() != ExecMode::Forward {
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
            let as_carried = (carried.after, carried.value);
            next.push(self.owned(lines, name, as_carried, *moved));
        }
        lines.keep(kept);
        for (name, value) in names.iter().zip(&values) {
            lines.assigned(name, value);
        }
        [tuple(&values), tuple(&next)]
    }
}

/// The results of loops that nobody reads but a sum behind each: they are nowhere in memory.
fn terms_of_sums<O: Op + ?Sized>(pass: &[Computed<'_, O>], free: &[ValueId]) -> Vec<ValueId> {
    let terms = pass.windows(2).filter_map(|pair| {
        let [terms, sum] = pair else {
            return None;
        };
        let is_sum = matches!(sum.node.fusion(), Fusion::Reduce { is_sum: true, .. });
        let is_loop = matches!(terms.node.fusion(), Fusion::Elementwise(_));
        let is_plain = is_loop && terms.dropout.is_none() && terms.reused().is_none();
        let value = terms.result();
        let is_free = free.contains(&value) && sum.planned.free.contains(&value);
        let reads_it = sum.node.operands.contains(&value);
        (is_sum && is_plain && is_free && reads_it).then_some(value)
    });
    terms.collect()
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
