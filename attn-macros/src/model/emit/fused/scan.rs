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

mod backward;
mod by_rows;
mod forward;
mod segments;
mod session;

use std::cell::OnceCell;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::ModelFrame;
use crate::emit::ExecMode;
use crate::emit::block::{self, Access, Frame, Gradients, hidden, product};
use crate::emit::tracked_code::{self, TrackedCode};
use crate::model::diff::GradTarget;
use crate::model::graph::{Node, Scan, Slice, State, Step, ValueId};
use crate::model::passes::Passes;
use crate::model::types::{Axis, ValueKind};

/// The frame of the body: where its lines find the inputs and the results of a step.
pub(super) struct InStep<'a> {
    scan: &'a Scan,
    outer: &'a ModelFrame<'a>,
    /// In the derivative, the gradients of the results.
    d_results: &'a [Option<Access>],
    to: &'a [(ValueId, GradTarget)],
    /// Whether the step is computed again, for its derivative.
    again: bool,
    /// Whether a thread takes some rows through all steps.
    is_by_rows: OnceCell<bool>,
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
                let (step, each) = (self.step(), Self::each(frame, id));
                let slice = match frame.is_by_rows() {
                    true => {
                        let whole = self.outer.rows_of(of.whole);
                        quote!(#whole.at(#step).as_slice())
                    }
                    false => {
                        let whole = self.outer.read(of.whole).slice;
                        quote!(p::step(#whole, #step, #each))
                    }
                };
                let matrix = quote!(p::Matrix::new(#slice, #rows, #width));
                Access { slice, matrix }
            }
            None => self.outer.read(id),
        }
    }

    pub(super) fn d_input(&self, frame: &ModelFrame<'_>, id: ValueId) -> TokenStream {
        if let Some(state) = self.scan.states.iter().find(|state| state.value == id) {
            let [_, before] = self.outer.d_state(state);
            return quote!(p::GradTarget::local(#before.as_mut_slice(), p::WriteMode::Add));
        }
        match self.scan.slices.iter().find(|of| of.slice == id) {
            Some(of) => {
                let (step, each) = (self.step(), Self::each(frame, id));
                let array = self.outer.d_slices(self.scan, self.to, of.whole);
                let numbers = match frame.is_by_rows() {
                    true => quote!(#array.at_mut(#step).into_mut_slice()),
                    false => quote!(p::step_mut(#array.as_mut_slice(), #step, #each)),
                };
                let mode = match self.outer.target_of(self.to, of.whole) {
                    Some(GradTarget::New(_)) => quote!(Overwrite),
                    _ => quote!(Add),
                };
                quote!(p::GradTarget::local(#numbers, p::WriteMode::#mode))
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
            Some(of) if frame.is_by_rows() => {
                let (whole, step) = (self.memory_of_yield(of), self.step());
                quote!(#whole.at_mut(#step).into_mut_slice())
            }
            Some(of) if self.again => {
                let unread = self.memory_of_yield(of);
                quote!(#unread.as_mut_slice())
            }
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

    /// Where a result of all steps stands. One that is computed again has a place for one step.
    fn memory_of_yield(&self, of: &Slice) -> Ident {
        match self.again {
            true => self.outer.unread(of.whole),
            false => self.outer.value(of.whole),
        }
    }

    pub(super) fn d_result(&self, frame: &ModelFrame<'_>, index: usize, of: ValueId) -> Access {
        let scan = self.scan;
        let [rows, width] = frame.extents(of);
        let each = Self::each(frame, scan.results[index]);
        let step = self.step();
        let slice = match (scan.yields.get(index), self.d_results.get(index)) {
            (Some(of), _) if frame.is_by_rows() => {
                let all = self.outer.d_steps(of.whole);
                quote!(#all.at(#step).as_slice())
            }
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
        let all = self.outer.d_product(node);
        let (d_y, numbers) = (gradients.matrix(), gradients.slice());
        let d_x = gradients.targets();
        let step = self.step();
        let input_backward = |d_y: &TokenStream| match frame.is_by_rows() {
            true => {
                let weights = self.outer.packed_backward(node);
                quote!(p::packed_input_backward(&#weights, #d_y, #(&mut #d_x,)* gradients);)
            }
            false => {
                let weights = frame.weights(place);
                quote!(#weights.input_backward(#d_y, #(&mut #d_x,)* gradients);)
            }
        };
        if !node.others.is_empty() {
            let parts = gradients.parts();
            let input_backward = input_backward(&quote!(#all.at(#step).view()));
            return Some(quote! {
                p::join_columns([#(#parts),*], #all.at_mut(#step).view_mut());
                #input_backward
            });
        }
        let input_backward = input_backward(d_y);
        Some(quote! {
            #input_backward
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
        self.in_step(
            InStep {
                scan,
                outer: self,
                d_results,
                to,
                again: false,
                is_by_rows: OnceCell::new(),
            },
            run,
        )
    }

    fn in_step<R>(&self, step: InStep<'_>, run: impl FnOnce(&ModelFrame<'_>) -> R) -> R {
        let scan = step.scan;
        let passes = Passes::of_scan(scan.block(&self.model().values));
        run(&ModelFrame {
            cx: self.cx,
            mode: self.mode,
            passes: &passes,
            given: self.given.clone(),
            step: Some(step),
        })
    }

    fn is_kept_in_steps(&self, id: ValueId) -> bool {
        let is_float = self.ty(id).kind == ValueKind::Floats;
        is_float && self.plan().saved.contains(&id)
    }

    fn named(&self, id: ValueId, name: impl FnOnce(&str) -> String) -> Ident {
        hidden(&name(&self.name(id)))
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

    /// The gradients of a sequence that the steps read.
    fn d_slices(&self, scan: &Scan, to: &[(ValueId, GradTarget)], whole: ValueId) -> Ident {
        let buffer = self
            .target_of(to, whole)
            .filter(|_| !self.is_apart(scan, to, whole))
            .and_then(GradTarget::buffer);
        buffer.map_or_else(|| self.d_steps(whole), |buffer| self.buffer(buffer))
    }

    /// Whether the gradients of the slices of a value stand in an array of their own: the value is an input of the model, or the steps read it
    /// as it is, too, and one operation may write both gradients.
    fn is_apart(&self, scan: &Scan, to: &[(ValueId, GradTarget)], whole: ValueId) -> bool {
        match self.target_of(to, whole).map(GradTarget::buffer) {
            Some(Some(buffer)) => scan.wholes().any(|id| {
                let to = self.target_of(to, id);
                to.and_then(GradTarget::buffer) == Some(buffer)
            }),
            of_input => of_input.is_some(),
        }
    }

    /// A kept value of all steps.
    fn all_of(&self, id: ValueId) -> Ident {
        self.named(id, |name| format!("{name}_all"))
    }

    /// A value that is there behind this scan alone. Its results may be values from outside, which others return as well.
    fn defined_first(&self, scan: &Scan) -> ValueId {
        let defined = scan.defined();
        defined.first().copied().unwrap_or(scan.results[0])
    }

    /// What the steps keep beside floats.
    fn kept_of_steps(&self, scan: &Scan) -> Ident {
        let id = self.defined_first(scan);
        self.named(id, |name| format!("{name}_of_steps"))
    }

    /// The rows and columns of all results of a product, side by side.
    fn extents_of_product(&self, node: &Node) -> [TokenStream; 2] {
        let [rows, width] = self.extents(node.result);
        match 1 + node.others.len() {
            1 => [rows, width],
            parts => {
                let parts = Literal::usize_unsuffixed(parts);
                [rows, quote!(#parts * #width)]
            }
        }
    }

    /// The array for the gradients of all results of a product at so many steps.
    fn make_gradients_of_product(
        &self,
        lines: &mut TrackedCode,
        node: &Node,
        [places, count]: [&TokenStream; 2],
    ) -> Ident {
        let name = self.d_product(node);
        let [rows, width] = self.extents_of_product(node);
        lines.line(quote!(let mut #name = p::Steps::<E>::uninit(#places, #rows, #width);));
        let parts = match node.others.len() {
            0 => None,
            others => Some(Literal::usize_unsuffixed(1 + others).into_token_stream()),
        };
        let axes = std::iter::once(count.clone()).chain(parts);
        lines.take(&name, self.footprint_of_arrays(axes, node.result));
        name
    }

    /// The footprint of so many arrays.
    fn footprint_of_steps(&self, count: &TokenStream, id: ValueId) -> TokenStream {
        self.footprint_of_arrays(std::iter::once(count.clone()), id)
    }

    /// The footprint of arrays along these axes.
    fn footprint_of_arrays(
        &self,
        arrays: impl Iterator<Item = TokenStream>,
        id: ValueId,
    ) -> TokenStream {
        let axes = self.ty(id).axes.iter();
        let axes = axes.map(|axis| self.extent_of_axis(axis));
        let axes: Vec<_> = arrays.chain(axes).collect();
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
        if self.is_in_segments(scan) {
            return self.fields_of_segments(scan);
        }
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
        let index = self.defined_first(scan).0;
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
}
