//! The derivative: the lines of [`diff`](crate::model::diff), backwards through the operations.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::forward::emit_again;
use super::strips::{Memory, Slot, StripNames, slot};
use super::{Access, BlockNode, Frame, Gradients, Rounds, saved_fields};
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::{BackwardStep, BufferId, GradSource, GradTarget, last_reads};
use crate::model::graph::{Node, Region, Repeat, Step, ValueId};
use crate::model::plan::Forward;
use crate::model::types::{Axis, same_axes};
use crate::ops::{Emit, Fusion, Kept, Op};

/// The parameters of the rounds of a loop, as a frame has them.
type OfRounds<'f, F> = dyn Fn(&F, &Repeat<<F as Frame>::Op>) -> Option<TokenStream> + 'f;

/// The lines of the whole derivative.
pub(crate) fn emit_backward<F: Frame>(frame: &F, lines: &mut TrackedCode) {
    let steps = &frame.derivative().lines;
    let backward = Backward {
        frame,
        strips: None,
    };
    backward.emit_lines(lines, frame.block().body, frame.plan(), steps);
}

struct Backward<'a, F> {
    frame: &'a F,
    /// The pass that the lines are of.
    strips: Option<&'a StripNames>,
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
        let made = lines.iter().filter_map(|line| match line {
            BackwardStep::Recompute(again) => Some(&again.ends),
            _ => None,
        });
        let mut saved = plan.saved.clone();
        for id in made.flatten() {
            if !saved.contains(id) {
                saved.push(*id);
            }
        }
        let free = last_reads(self.frame.block(), lines, &saved);
        for (index, (line, free)) in lines.iter().zip(free).enumerate() {
            self.emit_end(emitted, region, lines, index);
            self.emit_line(emitted, region, plan, line);
            self.emit_finish(emitted, region, lines, index);
            // Behind the last line, all memory goes by itself.
            if Some(index) < last {
                let is_apart = |id: &&ValueId| self.frame.place_of_step(**id).is_none();
                let free = free.iter().filter(is_apart);
                let mut free: Vec<_> = free.map(|id| self.frame.value(*id)).collect();
                if let BackwardStep::Free(buffer) = line {
                    free.push(self.frame.buffer(*buffer));
                }
                free.iter().for_each(|name| emitted.drop(name));
            }
        }
    }

    /// Whether these lines end where no gradient of those that follow is wanted.
    fn may_end(&self, region: &Region<F::Op>) -> bool {
        let is_whole = std::ptr::eq(region, self.frame.block().body);
        is_whole && self.strips.is_none() && self.frame.may_end()
    }

    /// How many rounds of a loop the derivative takes.
    fn rounds_wanted(&self) -> TokenStream {
        self.frame.own("wanted", 0).into_token_stream()
    }

    /// Emits a `return` between a line that adds to gradients of parameters or inputs and the lines behind it, for the case that none of those
    /// that the lines behind it add to is wanted. In front of a loop, emits how many of its rounds are run.
    fn emit_end(
        &self,
        emitted: &mut TrackedCode,
        region: &Region<F::Op>,
        lines: &[BackwardStep<'_, F::Op>],
        index: usize,
    ) {
        if !self.may_end(region) {
            return;
        }
        let any = |parts: &[&[BackwardStep<'_, F::Op>]]| {
            let mut all = BTreeMap::new();
            let lines = parts.iter().copied().flatten();
            lines.for_each(|line| self.wanted_by(line, &mut all));
            let all: Vec<_> = all.into_values().collect();
            (!all.is_empty()).then(|| quote!(p::any_wanted(&[#(&#all),*])))
        };
        let is_behind = index > 0 && any(&[&lines[index - 1..index]]).is_some();
        if let Some(rest) = any(&[&lines[index..]]).filter(|_| is_behind) {
            emitted.line(quote!(if !#rest { return; }));
        }
        if let BackwardStep::Repeat {
            repeat,
            lines: of_round,
            ..
        } = &lines[index]
            && let Some(rounds) = self.frame.rounds(repeat)
        {
            // Each round adds to the gradients of parameters and inputs that stand outside of the loop, and passes on those of what is before it.
            let others = any(&[of_round, &lines[index + 1..]]).unwrap_or(quote!(false));
            let [sets, wanted] = [&rounds.backward, &self.rounds_wanted()];
            emitted.line(quote!(let #wanted = p::rounds_wanted(#others, #sets);));
        }
    }

    /// Behind the last line that adds to gradients of parameters, says that they are finished.
    fn emit_finish(
        &self,
        emitted: &mut TrackedCode,
        region: &Region<F::Op>,
        lines: &[BackwardStep<'_, F::Op>],
        index: usize,
    ) {
        if !self.may_end(region) {
            return;
        }
        let mut finished = BTreeMap::new();
        self.added_by(&lines[index], &mut finished, &Frame::parameters_of_loop);
        let mut rest = BTreeMap::new();
        for line in &lines[index + 1..] {
            self.added_by(line, &mut rest, &Frame::parameters_of_loop);
        }
        finished.retain(|name, _| !rest.contains_key(name));
        let finished: Vec<_> = finished.into_values().collect();
        if !finished.is_empty() {
            emitted.line(quote!(gradients.finish(&[#(&#finished),*]);));
        }
    }

    /// Whether each round of a loop finishes the gradients of its set of parameters: no loop behind this one adds to them, in a scan or not.
    fn finishes_rounds(&self, repeat: &Repeat<F::Op>) -> bool {
        let is_this = |line: &BackwardStep<'_, F::Op>| matches!(line, BackwardStep::Repeat { repeat: other, .. } if std::ptr::eq(*other, repeat));
        let lines = self.frame.derivative().lines.iter();
        let mut behind = lines.skip_while(|line| !is_this(line)).skip(1);
        let adds = |line: &BackwardStep<'_, F::Op>| match line {
            BackwardStep::Repeat { repeat: other, .. } => {
                other.place == repeat.place && !other.is_beside(repeat)
            }
            BackwardStep::Scan { scan, .. } => {
                let loops = scan.body.repeats();
                loops.iter().any(|other| other.place == repeat.place)
            }
            _ => false,
        };
        !repeat.share && !behind.any(adds)
    }

    /// The parameters and inputs, by their text, whose gradients a line adds to.
    fn wanted_by(&self, line: &BackwardStep<'_, F::Op>, all: &mut BTreeMap<String, TokenStream>) {
        self.added_by(line, all, &Frame::parameters_of_rounds);
    }

    /// [`wanted_by`](Self::wanted_by), with these parameters of the rounds of a loop.
    fn added_by(
        &self,
        line: &BackwardStep<'_, F::Op>,
        all: &mut BTreeMap<String, TokenStream>,
        of_rounds: &OfRounds<'_, F>,
    ) {
        let mut add = |of: Option<TokenStream>| all.extend(of.map(|of| (of.to_string(), of)));
        let input = |to: &GradTarget| match to {
            GradTarget::Input(id) => Some(self.frame.d_input(*id)),
            _ => None,
        };
        match line {
            BackwardStep::Adjoint { node, to, .. } => {
                add(self.frame.parameters(node));
                to.iter().for_each(|(_, to)| add(input(to)));
            }
            BackwardStep::Add { to, .. } => add(input(to)),
            BackwardStep::Scan { scan, to, .. } => {
                self.parameters_in(&scan.body, &mut add, of_rounds);
                to.iter().for_each(|(_, to)| add(input(to)));
            }
            BackwardStep::Repeat { repeat, lines, .. } => {
                add(of_rounds(self.frame, repeat));
                let lines = lines.iter();
                lines.for_each(|line| self.added_by(line, all, of_rounds));
            }
            BackwardStep::Strips { lines, .. } => {
                let lines = lines.iter();
                lines.for_each(|line| self.added_by(line, all, of_rounds));
            }
            _ => {}
        }
    }

    /// The parameters of a region, those of its loops included.
    fn parameters_in(
        &self,
        region: &Region<F::Op>,
        add: &mut impl FnMut(Option<TokenStream>),
        of_rounds: &OfRounds<'_, F>,
    ) {
        for step in &region.steps {
            match step {
                Step::Node(node) => add(self.frame.parameters(node)),
                Step::Scan(scan) => self.parameters_in(&scan.body, add, of_rounds),
                Step::Repeat(repeat) => {
                    add(of_rounds(self.frame, repeat));
                    self.parameters_in(&repeat.body, add, of_rounds);
                }
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
            BackwardStep::Uninit(to) => self.make(emitted, *to, "uninit"),
            BackwardStep::Copy { from, to } if self.strips.is_some() => {
                let of = self.frame.derivative().buffers[to.0];
                let name = self.frame.buffer(*to);
                let from = self.gradient(*from, of).slice;
                emitted.line(quote!(#name.as_mut_slice().copy_from_slice(#from);));
            }
            BackwardStep::Add { from, to } if self.strips.is_some() => {
                let from = self.slice(*from);
                if let Some([name, mode]) = self.local(*to) {
                    let to = quote!(p::Write::with_mode(#name.as_mut_slice(), p::WriteMode::#mode));
                    emitted
                        .line(quote!(p::compute_here(&p::loops::Copy, [p::read(#from)], [#to]);));
                }
            }
            BackwardStep::Copy { from, to } => {
                let of = self.frame.derivative().of(*to);
                let name = self.frame.buffer(*to);
                let from = self.copy(*from, *to);
                emitted.line(quote!(let mut #name = #from;));
                emitted.take(&name, self.frame.footprint_of(of));
            }
            BackwardStep::Add { from, to } => {
                let to = self.target(emitted, *to);
                let from = self.slice(*from);
                emitted.line(quote!(p::GradTarget::add(&mut #to, 1.0, #from, gradients);));
            }
            BackwardStep::Adjoint {
                node,
                d_result,
                d_others,
                to,
            } => {
                self.emit_adjoint(emitted, node, (*d_result, d_others), to);
            }
            BackwardStep::Free(_) => {}
            BackwardStep::Recompute(again) => {
                emitted.line(quote!(let keep = true;));
                emitted.append(emit_again(self.frame, again));
            }
            BackwardStep::Strips { axes, lines } => {
                self.emit_strips(emitted, region, plan, axes, lines);
            }
            BackwardStep::Scan {
                scan,
                d_results,
                to,
            } => {
                let d_results = d_results.iter().zip(scan.defined());
                let d_results =
                    d_results.map(|(from, of)| from.map(|from| self.gradient(from, of)));
                let d_results: Vec<_> = d_results.collect();
                self.frame.emit_scan_backward(emitted, scan, &d_results, to);
            }
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
                if let (Some(body), Some(mut rounds)) = (bodies.next(), self.frame.rounds(repeat)) {
                    if self.may_end(region) {
                        let [sets, wanted] = [&rounds.backward, &self.rounds_wanted()];
                        rounds.backward = quote!(#sets.take(#wanted));
                    }
                    let finishes = self.may_end(region) && self.finishes_rounds(repeat);
                    self.emit_rounds(emitted, (repeat, &rounds), body, carried, lines, finishes);
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
        finishes: bool,
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
        if finishes {
            body.line(quote!(gradients.finish(&[#weights]);));
        }
        let changed = carried.iter().filter(|[start, end]| start != end);
        let (starts, ends): (Vec<_>, Vec<_>) = changed
            .clone()
            .map(|pair| pair.map(|id| self.frame.buffer(id)).into())
            .unzip();
        let values: Vec<_> = changed
            .map(|[start, end]| self.moved(*end, *start))
            .collect();
        let next = match starts.as_slice() {
            [] => TokenStream::new(),
            [start] => quote!(#start = #(#values)*;),
            _ => quote!((#(#starts),*) = (#(#values),*);),
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

    /// Lines for strips of rows. A gradient that nobody reads behind them is scratch.
    fn emit_strips(
        &self,
        emitted: &mut TrackedCode,
        region: &Region<F::Op>,
        plan: &Forward,
        axes: &[Axis],
        lines: &[BackwardStep<'_, F::Op>],
    ) {
        let mut free: Vec<BufferId> = lines
            .iter()
            .filter_map(|line| match line {
                BackwardStep::Free(buffer) => Some(*buffer),
                _ => None,
            })
            .collect();
        let for_all = for_all(lines, &free);
        let slots = self.slots(emitted, axes, lines, &mut free, &for_all);
        let mut names = StripNames::new(axes, &slots);
        names.for_all = for_all;
        let inside = Backward {
            frame: self.frame,
            strips: Some(&names),
        };
        let mut body = TrackedCode::default();
        for line in lines {
            inside.emit_line(&mut body, region, plan, line);
        }
        let body = body.code;
        let body = quote!(let gradients = &mut p::Gradients::<E>::default(); #body);
        names.emit(self.frame, emitted, &slots, body);
        free.iter()
            .for_each(|buffer| emitted.drop(&self.frame.buffer(*buffer)));
    }

    /// The memory of the gradients that a pass writes. Those that are scratch are taken out of what is free behind it.
    fn slots(
        &self,
        emitted: &mut TrackedCode,
        axes: &[Axis],
        lines: &[BackwardStep<'_, F::Op>],
        free: &mut Vec<BufferId>,
        for_all: &[BufferId],
    ) -> Vec<Slot> {
        let written = lines.iter().flat_map(|line| match line {
            BackwardStep::Adjoint { to, node, .. } => {
                let to = to.iter();
                to.map(|(operand, to)| (*to, node.operands[*operand]))
                    .collect()
            }
            BackwardStep::Copy { to, .. } => {
                let of = self.frame.derivative().buffers[to.0];
                vec![(GradTarget::New(*to), of)]
            }
            BackwardStep::Add { to, .. } => match (to, to.buffer()) {
                (GradTarget::Input(id), _) => vec![(*to, *id)],
                (_, Some(buffer)) => vec![(*to, self.frame.derivative().buffers[buffer.0])],
                (_, None) => Vec::new(),
            },
            _ => Vec::new(),
        });
        let mut first: Vec<(GradTarget, ValueId)> = Vec::new();
        for (to, of) in written {
            let is_known = |(other, _): &(GradTarget, _)| Memory::from(*other) == Memory::from(to);
            if !first.iter().any(is_known) {
                first.push((to, of));
            }
        }
        let inputs = self.inputs(emitted, &first);
        let names = StripNames::new(axes, &[]);
        let slots = first.into_iter().map(|(to, of)| {
            let of_type = &self.frame.ty(of).axes;
            let is_sum = !same_axes(of_type, axes) && !same_axes(of_type, &axes[..axes.len() - 1]);
            let width = names.width(of_type);
            let buffer = to.buffer();
            let name = match buffer {
                Some(buffer) => self.frame.buffer(buffer),
                None => self.frame.own("to", of.0),
            };
            let numbers = match inputs.iter().find(|(id, _)| buffer.is_none() && *id == of) {
                Some((_, input)) => quote!(&mut *#input.0),
                None => quote!(#name.as_mut_slice()),
            };
            let memory = match (to, is_sum) {
                (GradTarget::New(buffer), false) if free.contains(&buffer) => {
                    free.retain(|other| *other != buffer);
                    let width = match for_all.contains(&buffer) {
                        true => quote!(1),
                        false => width,
                    };
                    slot("Scratch", &[width])
                }
                (to, true) => {
                    if let GradTarget::New(buffer) = to {
                        self.make(emitted, buffer, "zeros");
                    }
                    slot("Sums", &[numbers])
                }
                (to, false) => {
                    if let GradTarget::New(buffer) = to {
                        self.make(emitted, buffer, "uninit");
                    }
                    slot("Rows", &[numbers, width])
                }
            };
            Slot {
                name,
                of: vec![to.into()],
                memory,
            }
        });
        slots.collect()
    }

    /// The gradients of inputs that a pass writes: `let [input_0] = p::GradTarget::all_of([&mut call.inputs.x.target()], gradients);`
    fn inputs(
        &self,
        emitted: &mut TrackedCode,
        written: &[(GradTarget, ValueId)],
    ) -> Vec<(ValueId, Ident)> {
        let inputs = written.iter().filter_map(|(to, _)| match to {
            GradTarget::Input(id) => Some((*id, self.frame.own("input", id.0))),
            _ => None,
        });
        let inputs: Vec<_> = inputs.collect();
        if inputs.is_empty() {
            return inputs;
        }
        let names: Vec<_> = inputs.iter().map(|(_, name)| name).collect();
        let targets = inputs.iter().map(|(id, _)| self.frame.d_input(*id));
        emitted.line(quote! {
            #(let mut #names = #targets;)*
            let [#(#names),*] = p::GradTarget::all_of([#(&mut #names),*], gradients);
        });
        inputs
    }

    /// In a strip, the variable of a gradient, and how it is written.
    fn local(&self, to: GradTarget) -> Option<[Ident; 2]> {
        let name = self.strips?.local(to.into())?;
        let mode = match to {
            GradTarget::Input(_) | GradTarget::Add(_) => "Add",
            GradTarget::New(_) | GradTarget::Overwrite(_) | GradTarget::InPlace(_) => "Overwrite",
        };
        Some([name.clone(), format_ident!("{mode}")])
    }

    /// `let mut d_x = p::Array::<E>::uninit(rows, [width]);`
    fn make(&self, lines: &mut TrackedCode, buffer: BufferId, how: &str) {
        let of = self.frame.derivative().of(buffer);
        let name = self.frame.buffer(buffer);
        self.frame.make(lines, &name, how, of);
    }

    /// A buffer in the place of another one: `d_y`, or `d_y.reshaped(rows, width)`.
    fn moved(&self, from: BufferId, to: BufferId) -> TokenStream {
        let [of, like] = [from, to].map(|buffer| self.frame.derivative().of(buffer));
        let name = self.frame.buffer(from);
        if self.frame.is_alike(of, like) {
            return quote!(#name);
        }
        let [rows, width] = self.frame.extents(like);
        quote!(#name.reshaped(#rows, #width))
    }

    fn copy(&self, from: GradSource, to: BufferId) -> TokenStream {
        let derivative = self.frame.derivative();
        let of = derivative.of(to);
        match from {
            GradSource::Buffer(from) if self.frame.is_alike(derivative.of(from), of) => {
                let from = self.frame.buffer(from);
                quote!(#from.copy())
            }
            GradSource::Buffer(_) | GradSource::Result(_) => {
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
            GradSource::Buffer(buffer) => self.frame.derivative().of(buffer),
        };
        self.gradient(from, of).slice
    }

    /// A gradient, to read as that of this value.
    fn gradient(&self, from: GradSource, of: ValueId) -> Access {
        let access = self.whole_gradient(from, of);
        match self.strips {
            None => access,
            Some(strips) => Access {
                slice: strips.gradient(self.frame, from, &access.slice, of),
                ..access
            },
        }
    }

    fn whole_gradient(&self, from: GradSource, of: ValueId) -> Access {
        match from {
            GradSource::Result(index) => self.frame.d_result(index, of),
            GradSource::Buffer(buffer) => {
                let name = self.frame.buffer(buffer);
                let slice = quote!(#name.as_slice());
                let matrix = match self.frame.is_alike(self.frame.derivative().of(buffer), of) {
                    true => quote!(#name.view()),
                    false => self.frame.reshaped(&slice, of),
                };
                Access { slice, matrix }
            }
        }
    }

    /// Where a gradient goes, which is made if it is new.
    fn target(&self, lines: &mut TrackedCode, to: GradTarget) -> TokenStream {
        if let Some([name, mode]) = self.local(to) {
            return quote!(p::GradTarget::local(#name.as_mut_slice(), p::WriteMode::#mode));
        }
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
        (d_result, d_others): (GradSource, &[Option<GradSource>]),
        to: &[(usize, GradTarget)],
    ) {
        let targets = to.iter().map(|(_, to)| self.target(lines, *to));
        let local = to.iter().filter_map(|(_, to)| self.local(*to));
        let is_for_all = |to: &GradTarget| {
            let names = self.strips.zip(to.buffer());
            names.is_some_and(|(names, buffer)| names.for_all.contains(&buffer))
        };
        let for_all = to.iter().filter(|(_, to)| is_for_all(to));
        let d_others = node.others.iter().zip(d_others);
        let d_others = d_others.map(|(id, from)| Some(self.gradient((*from)?, (*id)?)));
        let gradients = Gradients {
            targets: targets.collect(),
            local: local.collect(),
            for_all: for_all.map(|(operand, _)| *operand).collect(),
            to: to.to_vec(),
            d_result: self.gradient(d_result, node.result),
            d_others: d_others.collect(),
        };
        let of = BlockNode::new(self.frame, node).in_strips(self.strips);
        let of_step = self.frame.emit_product_of_step(node, &gradients);
        lines.line(of_step.unwrap_or_else(|| node.op.backward(&of, &gradients)));
        // In a strip nothing takes memory but scratch.
        if let Some(footprint) = node.op.footprints(&of).backward {
            lines.differentiate(footprint);
        }
        match node.op.properties().kept {
            Some(Kept::Array | Kept::Hidden | Kept::Attention | Kept::Loss) => {
                lines.consumed(&of.kept())
            }
            Some(Kept::Dropout) | None => {}
        }
    }
}

/// The gradients of the operands of sums that only loops read: all elements of a row have the same one. They are free behind the lines.
fn for_all<O: Op + ?Sized>(lines: &[BackwardStep<'_, O>], free: &[BufferId]) -> Vec<BufferId> {
    let is_other_use = |line: &BackwardStep<'_, O>, buffer: BufferId| match line {
        BackwardStep::Adjoint {
            node,
            d_result,
            d_others,
            to,
        } => {
            let is_written = to.iter().any(|(_, to)| to.buffer() == Some(buffer));
            let is_loop = matches!(node.fusion(), Fusion::Elementwise(_));
            let is_read = d_others.contains(&Some(GradSource::Buffer(buffer)));
            is_written || is_read || (*d_result == GradSource::Buffer(buffer) && !is_loop)
        }
        BackwardStep::Free(_) => false,
        BackwardStep::Copy { from, to } => *from == GradSource::Buffer(buffer) || *to == buffer,
        BackwardStep::Add { from, to } => {
            *from == GradSource::Buffer(buffer) || to.buffer() == Some(buffer)
        }
        _ => true,
    };
    let made = lines.iter().enumerate().filter_map(|(index, line)| {
        let BackwardStep::Adjoint { node, to, .. } = line else {
            return None;
        };
        let is_sum = matches!(node.fusion(), Fusion::Reduce { is_sum: true, .. });
        match to.as_slice() {
            [(_, GradTarget::New(buffer))] if is_sum && free.contains(buffer) => {
                let mut others = lines.iter().enumerate();
                let is_alone =
                    others.all(|(other, line)| other == index || !is_other_use(line, *buffer));
                is_alone.then_some(*buffer)
            }
            _ => None,
        }
    });
    made.collect()
}
