//! A loop over steps.
//!
//! ```text
//! let mut h_states = p::Steps::<E>::uninit(if keep { sizes.seq + 1 } else { 2 }, sizes.batch, 256);    // a state, before each step
//! let mut gates_all = p::Steps::<E>::uninit(if keep { sizes.seq } else { 1 }, sizes.batch, 256);      // a value that the derivative reads
//! h_states.at_mut(0).as_mut_slice().copy_from_slice(zeros.as_slice());
//! for step_0 in 0..sizes.seq {
//!     let (h, mut h_next) = h_states.pair(step_0, step_0 + 1);
//!     ..                                      // the lines of the body, as those of any block
//! }
//! ```
//!
//! The derivative runs from the last step to the first, with a gradient of each state.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::ModelFrame;
use crate::emit::ExecMode;
use crate::emit::block::{self, Access, Frame, Gradients, hidden, product, size};
use crate::emit::tracked_code::{self, TrackedCode};
use crate::model::diff::{BackwardStep, GradTarget};
use crate::model::graph::{Node, ParamPath, Scan, State, Step, ValueId};
use crate::model::passes::Passes;
use crate::model::plan::is_written_directly;
use crate::model::types::{Axis, ValueKind};
use crate::ops::Fusion;

/// The frame of the body: where its lines find the inputs and the results of a step.
pub(super) struct InStep<'a> {
    scan: &'a Scan,
    outer: &'a ModelFrame<'a>,
    /// In the derivative, the gradients of the results.
    d_results: &'a [Option<Access>],
    to: &'a [(ValueId, GradTarget)],
}

impl InStep<'_> {
    fn step(&self) -> Ident {
        self.outer.own("step", 0)
    }

    /// How many numbers a value has at a step.
    fn each(frame: &ModelFrame<'_>, id: ValueId) -> TokenStream {
        product(&frame.ty(id).axes)
    }

    pub(super) fn input(&self, frame: &ModelFrame<'_>, id: ValueId) -> Access {
        let [rows, width] = frame.extents(id);
        if self.scan.states.iter().any(|state| state.value == id) {
            let name = frame.value(id);
            return Access {
                slice: quote!(#name.as_slice()),
                matrix: quote!(#name.view()),
            };
        }
        match self.scan.slices.iter().find(|of| of.slice == id) {
            Some(of) => {
                let whole = self.outer.read(of.whole).slice;
                let (step, each) = (self.step(), Self::each(frame, id));
                let slice = quote!(p::step(#whole, #step, #each));
                let matrix = quote!(p::Matrix::new(#slice, #rows, #width));
                Access { slice, matrix }
            }
            None => self.outer.read(id),
        }
    }

    pub(super) fn d_input(&self, frame: &ModelFrame<'_>, id: ValueId) -> TokenStream {
        if let Some(state) = self.scan.states.iter().find(|state| state.value == id) {
            let [_, before] = self.outer.d_state(state);
            return quote!(p::GradTarget::array(&mut #before, p::WriteMode::Add));
        }
        match self.scan.slices.iter().find(|of| of.slice == id) {
            Some(of) => {
                let (step, each) = (self.step(), Self::each(frame, id));
                let array = match self.outer.target_of(self.to, of.whole) {
                    Some(GradTarget::Input(_)) | None => {
                        let array = self.outer.d_steps(of.whole);
                        quote!(#array)
                    }
                    Some(to) => self.outer.array_of(to),
                };
                let numbers = quote!(p::step_mut(#array.as_mut_slice(), #step, #each));
                quote!(p::GradTarget::local(#numbers, p::WriteMode::Add))
            }
            None => match self.outer.target_of(self.to, id) {
                Some(GradTarget::Input(id)) => self.outer.d_input(id),
                Some(to) => {
                    let array = self.outer.array_of(to);
                    quote!(p::GradTarget::array(&mut #array, p::WriteMode::Add))
                }
                None => TokenStream::new(),
            },
        }
    }

    pub(super) fn result(&self, frame: &ModelFrame<'_>, index: usize) -> Access {
        let scan = self.scan;
        let id = scan.results[index];
        let [rows, width] = frame.extents(id);
        let slice = match scan.yields.get(index) {
            Some(of) => {
                let whole = self.outer.value(of.whole);
                let (step, each) = (self.step(), Self::each(frame, id));
                quote!(p::step_mut(#whole.as_mut_slice(), #step, #each))
            }
            None => {
                let next = self.outer.next(&scan.states[index - scan.yields.len()]);
                quote!(#next.as_mut_slice())
            }
        };
        let matrix = quote!(p::MatrixMut::new(#slice, #rows, #width));
        Access { slice, matrix }
    }

    pub(super) fn d_result(&self, frame: &ModelFrame<'_>, index: usize, of: ValueId) -> Access {
        let scan = self.scan;
        let [rows, width] = frame.extents(of);
        let each = Self::each(frame, scan.results[index]);
        let step = self.step();
        let slice = match (scan.yields.get(index), self.d_results.get(index)) {
            (Some(_), Some(Some(gradient))) => {
                let whole = &gradient.slice;
                quote!(p::step(#whole, #step, #each))
            }
            (Some(of), _) => {
                let none = self.outer.d_steps(of.whole);
                quote!(#none.as_slice())
            }
            (None, _) => {
                let [after, _] = self.outer.d_state(&scan.states[index - scan.yields.len()]);
                quote!(#after.as_slice())
            }
        };
        let matrix = quote!(p::Matrix::new(#slice, #rows, #width));
        Access { slice, matrix }
    }

    pub(super) fn product(
        &self,
        frame: &ModelFrame<'_>,
        node: &Node,
        gradients: &Gradients,
    ) -> Option<TokenStream> {
        let place = frame.product_of_step(self.scan, node)?;
        let weights = frame.weights(place);
        let all = self.outer.d_product(node);
        let (d_y, numbers) = (gradients.matrix(), gradients.slice());
        let d_x = gradients.targets();
        let step = self.step();
        Some(quote! {
            #weights.input_backward(#d_y, #(&mut #d_x,)* gradients);
            #all.at_mut(#step).as_mut_slice().copy_from_slice(#numbers);
        })
    }

    /// Where a value stands that is kept.
    pub(super) fn place(&self, frame: &ModelFrame<'_>, id: ValueId) -> Option<TokenStream> {
        let is_kept = frame.is_kept_in_steps(id);
        is_kept.then(|| {
            let all = frame.all_of(id);
            let step = self.step();
            quote!(#all.at_mut(#step))
        })
    }
}

impl ModelFrame<'_> {
    /// The frame of the body of a scan.
    fn inside<R>(
        &self,
        scan: &Scan,
        d_results: &[Option<Access>],
        to: &[(ValueId, GradTarget)],
        run: impl FnOnce(&ModelFrame<'_>) -> R,
    ) -> R {
        let passes = Passes::of_scan(scan.block(&self.model().values));
        run(&ModelFrame {
            cx: self.cx,
            mode: self.mode,
            passes: &passes,
            given: self.given.clone(),
            step: Some(InStep {
                scan,
                outer: self,
                d_results,
                to,
            }),
        })
    }

    fn is_kept_in_steps(&self, id: ValueId) -> bool {
        let is_float = self.ty(id).kind == ValueKind::Floats;
        is_float && self.plan().saved.contains(&id)
    }

    fn named(&self, id: ValueId, name: impl FnOnce(&str) -> String) -> Ident {
        hidden(&self.unique(name(&self.block().value(id).name)))
    }

    /// A state before each step.
    fn states(&self, state: &State) -> Ident {
        self.named(state.value, |name| format!("{name}_states"))
    }

    /// A state behind a step.
    fn next(&self, state: &State) -> Ident {
        self.named(state.value, |name| format!("{name}_next"))
    }

    /// The gradients of a state behind a step and before it.
    fn d_state(&self, state: &State) -> [Ident; 2] {
        ["d", "d_before"].map(|d| self.named(state.value, |name| format!("{d}_{name}")))
    }

    /// The gradients of a value with steps in an array of its own.
    fn d_steps(&self, whole: ValueId) -> Ident {
        self.named(whole, |name| format!("d_all_{name}"))
    }

    /// The weights of a product of which all steps are there behind the loop.
    fn product_of_step<'n>(&self, scan: &Scan, node: &'n Node) -> Option<&'n ParamPath> {
        let Fusion::Projection(linear) = node.fusion() else {
            return None;
        };
        let mut steps = scan.body.steps.iter();
        let is_it = |step: &Step| matches!(step, Step::Node(of) if of.result == node.result);
        let is_there = steps.any(is_it) && self.all_steps(scan, node.operands[0]).is_some();
        is_there.then_some(&linear.place)
    }

    /// The numbers of a value of the body at all steps.
    fn all_steps(&self, scan: &Scan, id: ValueId) -> Option<TokenStream> {
        let step = self.step.as_ref()?;
        let id = self.block().memory(id);
        let count = size(&scan.axis);
        if let Some(of) = scan.slices.iter().find(|of| of.slice == id) {
            return Some(step.outer.read(of.whole).slice);
        }
        if let Some(state) = scan.states.iter().find(|state| state.value == id) {
            let all = step.outer.states(state);
            let first = match scan.reverse {
                true => quote!(1),
                false => quote!(0),
            };
            return Some(quote!(#all.some(#first, #count)));
        }
        self.is_kept_in_steps(id).then(|| {
            let all = self.all_of(id);
            quote!(#all.some(0, #count))
        })
    }

    /// The products of the body whose weights have their gradients behind the steps.
    fn products<'s>(&self, scan: &'s Scan) -> Vec<(&'s Node, &'s ParamPath)> {
        let lines = &self.derivative().lines;
        // A result that no gradient reaches has none.
        let has_gradient = |node: &Node| {
            let is_it = |line: &BackwardStep<'_>| matches!(line, BackwardStep::Adjoint { node: of, .. } if of.result == node.result);
            lines.iter().any(is_it)
        };
        let nodes = scan.body.steps.iter().filter_map(|step| match step {
            Step::Node(node) if has_gradient(node) => {
                Some((node, self.product_of_step(scan, node)?))
            }
            _ => None,
        });
        nodes.collect()
    }

    /// The gradients of the results of a product at all steps.
    fn d_product(&self, node: &Node) -> Ident {
        self.named(node.result, |name| format!("d_all_{name}"))
    }

    /// The gradients of weights, each a product over all steps.
    fn add_products(&self, lines: &mut TrackedCode, scan: &Scan, inner: &ModelFrame<'_>) {
        let count = size(&scan.axis);
        for (node, place) in inner.products(scan) {
            let weights = self.weights(place);
            let all = self.d_product(node);
            let x = inner.all_steps(scan, node.operands[0]);
            let [rows, width] = self.extents(node.operands[0]);
            let [_, d_width] = self.extents(node.result);
            lines.line(quote! {
                #weights.add_gradients(
                    p::Matrix::new(#x, #count * #rows, #width),
                    p::Matrix::new(#all.some(0, #count), #count * #rows, #d_width),
                    gradients,
                );
            });
            lines.drop(&all);
        }
    }

    /// A kept value of all steps.
    fn all_of(&self, id: ValueId) -> Ident {
        self.named(id, |name| format!("{name}_all"))
    }

    /// What the steps keep beside floats.
    fn kept_of_steps(&self, scan: &Scan) -> Ident {
        let id = scan.results[0];
        self.named(id, |name| format!("{name}_of_steps"))
    }

    fn target_of(&self, to: &[(ValueId, GradTarget)], id: ValueId) -> Option<GradTarget> {
        let id = self.block().whole(id);
        let found = to.iter().find(|(of, _)| *of == id);
        found.map(|(_, to)| *to)
    }

    fn array_of(&self, to: GradTarget) -> TokenStream {
        let buffer = to.buffer().map(|buffer| self.buffer(buffer));
        quote!(#buffer)
    }

    /// The footprint of so many arrays.
    fn footprint_of_steps(&self, count: &TokenStream, id: ValueId) -> TokenStream {
        let axes = self
            .ty(id)
            .axes
            .iter()
            .map(|axis| self.extent_of_axis(axis));
        let axes: Vec<_> = std::iter::once(count.clone()).chain(axes).collect();
        tracked_code::array(&axes)
    }

    fn extent_of_axis(&self, axis: &Axis) -> TokenStream {
        match axis {
            Axis::Symbol(symbol) => {
                let name = self.extent(&symbol.length);
                quote!(#name)
            }
            Axis::Size(size) => quote!(#size),
        }
    }

    /// The states that the derivative reads.
    fn is_state_kept(&self, scan: &Scan, state: &State) -> bool {
        self.mode == ExecMode::Forward
            && scan
                .saved_inputs(scan.block(&self.model().values))
                .contains(&state.value)
    }

    /// What a scan keeps, with the types.
    pub(super) fn fields_of_scan(&self, scan: &Scan) -> Vec<(Ident, TokenStream)> {
        self.inside(scan, &[], &[], |inner| {
            let states = scan.states.iter();
            let states = states.filter(|state| self.is_state_kept(scan, state));
            let states = states.map(|state| self.states(state));
            let saved = inner.plan().saved.iter();
            let saved = saved.filter(|id| inner.is_kept_in_steps(**id));
            let saved = saved.map(|id| inner.all_of(*id));
            let arrays = states.chain(saved);
            let mut fields: Vec<_> = arrays.map(|name| (name, quote!(p::Steps<E>))).collect();
            if !block::kept_of_step(inner).is_empty() {
                let ty = self.step_type(scan);
                fields.push((self.kept_of_steps(scan), quote!(p::Vec<#ty<E>>)));
            }
            fields
        })
    }

    /// The type of what a step keeps beside floats.
    fn step_type(&self, scan: &Scan) -> Ident {
        let module = self.model().module(scan.module);
        let index = scan.results[0].0;
        format_ident!("___{}Step{index}", module.name)
    }

    /// The struct of that, if there is anything.
    pub(super) fn emit_saved_of_step(&self, scan: &Scan, structs: &mut Vec<TokenStream>) {
        self.inside(scan, &[], &[], |inner| {
            let ids = inner.plan().saved.iter();
            let ids = ids.filter(|id| self.ty(**id).kind == ValueKind::Ids);
            let ids = ids.map(|id| {
                let name = self.value(*id);
                quote!(#name: p::IdArray)
            });
            let fields: Vec<_> = ids.chain(inner.kept_of(&scan.body)).collect();
            if !fields.is_empty() {
                let name = self.step_type(scan);
                structs.push(quote_spanned! {self.cx.at=>
                    /// What a step keeps for its derivative.
                    struct #name<E: p::Element> {
                        #(#fields,)*
                        __types: p::PhantomData<E>,
                    }
                });
            }
            let steps = scan.body.steps.iter().zip(&inner.plan().steps);
            for (step, planned) in steps {
                if let Step::Repeat(repeat) = step {
                    let name = self.saved_type(repeat);
                    inner.emit_saved_of(name, &repeat.body, &planned.body, structs);
                }
            }
        });
    }

    pub(super) fn scan(&self, lines: &mut TrackedCode, scan: &Scan) {
        self.inside(scan, &[], &[], |inner| match self.mode {
            ExecMode::Forward | ExecMode::Start => self.scan_forward(lines, scan, inner),
            ExecMode::Session => self.scan_in_session(lines, scan, inner),
        });
    }

    fn scan_forward(&self, lines: &mut TrackedCode, scan: &Scan, inner: &ModelFrame<'_>) {
        let count = size(&scan.axis);
        let extent = self.extent_of_axis(&scan.axis);
        self.make_yields(lines, scan);
        let [first, end] = match scan.reverse {
            true => [count.clone(), quote!(0)],
            false => [quote!(0), count.clone()],
        };
        for state in &scan.states {
            let name = self.states(state);
            let [rows, width] = self.extents(state.value);
            let (places, footprint) = match self.is_state_kept(scan, state) {
                true => (
                    quote!(if keep { #count + 1 } else { 2 }),
                    quote!(#extent + 1),
                ),
                false => (quote!(2), quote!(2)),
            };
            let before = self.read(state.before).slice;
            lines.line(quote! {
                let mut #name = p::Steps::<E>::uninit(#places, #rows, #width);
                #name.at_mut(#first).as_mut_slice().copy_from_slice(#before);
            });
            lines.take(&name, self.footprint_of_steps(&footprint, state.value));
        }
        let kept = inner.plan().saved.iter();
        for id in kept.filter(|id| inner.is_kept_in_steps(**id)) {
            let name = inner.all_of(*id);
            let [rows, width] = self.extents(*id);
            lines.line(quote! {
                let mut #name = p::Steps::<E>::uninit(if keep { #count } else { 1 }, #rows, #width);
            });
            lines.take(&name, self.footprint_of_steps(&extent, *id));
        }
        let fields = block::kept_of_step(inner);
        let all = self.kept_of_steps(scan);
        let ty = self.step_type(scan);
        let [make, push] = match fields.is_empty() {
            true => [TokenStream::new(), TokenStream::new()],
            false => [
                quote!(let mut #all = p::Vec::new();),
                quote! {
                    let round = #ty { #(#fields,)* __types: p::PhantomData };
                    if keep {
                        #all.push(round);
                    }
                },
            ],
        };
        let mut body = self.step_forward(scan, inner);
        body.keep(&fields);
        let body = lines.repeat(&extent, body);
        let step = self.own("step", 0);
        let rev = scan.reverse.then(|| quote!(.rev()));
        let states = self.pairs(scan);
        lines.line(quote! {
            #make
            for #step in (0..#count) #rev {
                #states
                #body
                #push
            }
        });
        self.last_states(lines, scan, &end);
        for state in &scan.states {
            if !self.is_state_kept(scan, state) {
                lines.drop(&self.states(state));
            }
        }
    }

    fn make_yields(&self, lines: &mut TrackedCode, scan: &Scan) {
        for of in &scan.yields {
            let name = self.value(of.whole);
            self.make(lines, &name, "uninit", of.whole);
        }
    }

    /// `let (h, mut h_next) = h_states.pair(step, step + 1);`
    fn pairs(&self, scan: &Scan) -> TokenStream {
        let step = self.own("step", 0);
        let pairs = scan.states.iter().map(|state| {
            let [all, value, next] = [
                self.states(state),
                self.value(state.value),
                self.next(state),
            ];
            let [from, to] = match scan.reverse {
                true => [quote!(#step + 1), quote!(#step)],
                false => [quote!(#step), quote!(#step + 1)],
            };
            quote!(let (#value, mut #next) = #all.pair(#from, #to);)
        });
        pairs.collect()
    }

    /// The lines of a step, and what copies the results that are not written where they belong.
    fn step_forward(&self, scan: &Scan, inner: &ModelFrame<'_>) -> TrackedCode {
        let mut body = block::emit_forward(inner);
        for (index, id) in scan.results.iter().enumerate() {
            if !is_written_directly(inner.block(), *id, inner.plan()) {
                let to = inner.result(index).slice;
                let from = inner.read(*id).slice;
                body.line(quote!(#to.copy_from_slice(#from);));
            }
        }
        // What a loop leaves in a variable stands in memory of its own.
        let carried = scan.body.carried().values;
        for id in carried.iter().filter(|id| inner.is_kept_in_steps(**id)) {
            let (all, value, step) = (inner.all_of(*id), self.value(*id), self.own("step", 0));
            body.line(
                quote!(#all.at_mut(#step).as_mut_slice().copy_from_slice(#value.as_slice());),
            );
        }
        body
    }

    fn last_states(&self, lines: &mut TrackedCode, scan: &Scan, end: &TokenStream) {
        for state in &scan.states {
            if let Some(last) = state.last {
                let (name, all) = (self.value(last), self.states(state));
                lines.line(quote!(let mut #name = #all.at(#end).copy();));
                lines.take(&name, self.footprint_of(last));
            }
        }
    }

    /// In a session the states are those behind the tokens before.
    fn scan_in_session(&self, lines: &mut TrackedCode, scan: &Scan, inner: &ModelFrame<'_>) {
        self.make_yields(lines, scan);
        let body = self.step_forward(scan, inner).code;
        let step = self.own("step", 0);
        let states = self.pairs(scan);
        let loads = scan.states.iter().map(|state| {
            let (all, past) = (self.states(state), self.past_of_state(scan, state));
            let [rows, width] = self.extents(state.value);
            // What is given is there since the session started.
            let to = quote!(#all.at_mut(span.rows.start).as_mut_slice());
            let load = match self.is_given(state.before) {
                true => quote!(load_given(span.sequence, #to)),
                false => {
                    let before = self.read(state.before).slice;
                    quote!(load(span.sequence, #before, #to))
                }
            };
            quote! {
                let mut #all = p::Steps::<E>::uninit(2, #rows, #width);
                #past.#load;
            }
        });
        let stores = scan.states.iter().map(|state| {
            let (all, past) = (self.states(state), self.past_of_state(scan, state));
            quote!(#past.store(span.sequence, #all.at(span.rows.end).as_slice());)
        });
        // To an attention, a step is a sequence of one token.
        let attends = scan
            .body
            .nodes()
            .into_iter()
            .any(|node| node.attention().is_some());
        let new = attends
            .then(|| quote!(let new = &p::NewTokens::step(span.sequence, new.ids()[#step]);));
        lines.line(quote! {
            for span in new.spans() {
                #(#loads)*
                for #step in span.rows.clone() {
                    #new
                    #states
                    #body
                }
                #(#stores)*
            }
        });
    }

    pub(super) fn scan_backward(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        d_results: &[Option<Access>],
        to: &[(ValueId, GradTarget)],
    ) {
        self.inside(scan, d_results, to, |inner| {
            self.make_gradients(lines, scan, d_results, to);
            let extent = self.extent_of_axis(&scan.axis);
            for (node, _) in inner.products(scan) {
                let (all, count) = (self.d_product(node), size(&scan.axis));
                let [rows, width] = self.extents(node.result);
                lines.line(quote!(let mut #all = p::Steps::<E>::uninit(#count, #rows, #width);));
                lines.take(&all, self.footprint_of_steps(&extent, node.result));
            }
            let mut body = TrackedCode::default();
            let fields = block::kept_of_step(inner);
            body.restore(&fields);
            self.step_backward(&mut body, scan, inner);
            let count = size(&scan.axis);
            let body = lines.repeat(self.extent_of_axis(&scan.axis), body);
            let step = self.own("step", 0);
            let all = self.kept_of_steps(scan);
            let ty = self.step_type(scan);
            let rev = (!scan.reverse).then(|| quote!(.rev()));
            lines.line(match fields.is_empty() {
                true => quote!(for #step in (0..#count) #rev { #body }),
                false => quote! {
                    for (#step, round) in (0..#count) #rev.zip(#all.into_iter().rev()) {
                        let #ty { #(#fields,)* .. } = round;
                        #body
                    }
                },
            });
            self.add_products(lines, scan, inner);
            self.add_gradients(lines, scan, d_results, to);
        });
    }

    /// The gradients of states behind the last step, and arrays for others.
    fn make_gradients(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        d_results: &[Option<Access>],
        to: &[(ValueId, GradTarget)],
    ) {
        let mut d_last = d_results.iter().skip(scan.yields.len());
        for state in &scan.states {
            for name in &self.d_state(state) {
                self.make(lines, name, "zeros", state.value);
            }
            if let (Some(_), Some(Some(gradient))) =
                (state.last, state.last.and_then(|_| d_last.next()))
            {
                let [name, _] = self.d_state(state);
                let from = &gradient.slice;
                lines.line(quote!(#name.as_mut_slice().copy_from_slice(#from);));
            }
        }
        for (index, of) in scan.yields.iter().enumerate() {
            if d_results[index].is_none() {
                self.make(lines, &self.d_steps(of.whole), "zeros", of.slice);
            }
        }
        for of in self.slices_of_inputs(scan, to) {
            self.make(lines, &self.d_steps(of), "zeros", of);
        }
    }

    /// The inputs of the model that have the steps in front.
    fn slices_of_inputs(&self, scan: &Scan, to: &[(ValueId, GradTarget)]) -> Vec<ValueId> {
        let wholes = scan.slices.iter().map(|of| of.whole);
        let of_inputs = wholes.filter(|id| {
            let to = self.target_of(to, *id);
            matches!(to, Some(GradTarget::Input(_)))
        });
        of_inputs.collect()
    }

    fn step_backward(&self, body: &mut TrackedCode, scan: &Scan, inner: &ModelFrame<'_>) {
        let step = self.own("step", 0);
        for state in &scan.states {
            if self.is_state_kept(scan, state) {
                let (value, all) = (self.value(state.value), self.states(state));
                let place = match scan.reverse {
                    true => quote!(#step + 1),
                    false => quote!(#step),
                };
                body.line(quote!(let #value = #all.at(#place);));
            }
        }
        let kept = inner.plan().saved.iter();
        for id in kept.filter(|id| inner.is_kept_in_steps(**id)) {
            let (value, all) = (self.value(*id), inner.all_of(*id));
            body.line(quote!(let #value = #all.at(#step);));
        }
        block::emit_backward(inner, body);
        for state in &scan.states {
            let [after, before] = self.d_state(state);
            body.line(quote! {
                ::core::mem::swap(&mut #after, &mut #before);
                #before.clear();
            });
        }
    }

    /// Adds what the steps left to the gradients of the initial values, and of inputs.
    fn add_gradients(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        d_results: &[Option<Access>],
        to: &[(ValueId, GradTarget)],
    ) {
        let add = |lines: &mut TrackedCode, id: ValueId, from: &Ident| {
            let target = match self.target_of(to, id) {
                Some(GradTarget::Input(id)) => self.d_input(id),
                Some(to) => {
                    let array = self.array_of(to);
                    quote!(p::GradTarget::array(&mut #array, p::WriteMode::Add))
                }
                None => return,
            };
            lines.line(quote!(#target.add(1.0, #from.as_slice(), gradients);));
        };
        for state in &scan.states {
            let [after, before] = self.d_state(state);
            add(lines, state.before, &after);
            lines.drop(&after);
            lines.drop(&before);
        }
        for (index, of) in scan.yields.iter().enumerate() {
            if d_results[index].is_none() {
                lines.drop(&self.d_steps(of.whole));
            }
        }
        for id in self.slices_of_inputs(scan, to) {
            let name = self.d_steps(id);
            add(lines, id, &name);
            lines.drop(&name);
        }
        // What was kept is not read again. The loop took what is no array.
        let arrays = self.fields_of_scan(scan).into_iter();
        let arrays = arrays.filter(|(name, _)| *name != self.kept_of_steps(scan));
        arrays.for_each(|(name, _)| lines.drop(&name));
    }
}
