//! The derivative of a scan: from the last step to the first, and then the products of all steps.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use crate::emit::block::{self, Access, Frame, product, size};
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::{BackwardStep, GradTarget};
use crate::model::emit::fused::ModelFrame;
use crate::model::graph::{Node, ParamPath, Scan, Step, ValueId};
use crate::ops::Fusion;

impl ModelFrame<'_> {
    /// The weights of a product of which all steps are there behind the loop.
    pub(super) fn product_of_step<'n>(&self, scan: &Scan, node: &'n Node) -> Option<&'n ParamPath> {
        let Fusion::Projection(linear) = node.fusion() else {
            return None;
        };
        let mut steps = scan.body.steps.iter();
        let is_it = |step: &Step| matches!(step, Step::Node(of) if of.result == node.result);
        let is_there = steps.any(is_it) && self.all_steps(scan, node.operands[0]).is_some();
        is_there.then_some(&linear.place)
    }

    /// The numbers of a value of the body at all steps.
    pub(super) fn all_steps(&self, scan: &Scan, id: ValueId) -> Option<TokenStream> {
        let step = self.step.as_ref()?;
        let id = self.block().memory(id);
        let [begin, count] = self.outer_steps(scan);
        if let Some(of) = scan.slices.iter().find(|of| of.slice == id) {
            let whole = step.outer.read(of.whole).slice;
            let each = product(&self.ty(id).axes);
            return Some(quote!(p::some_steps(#whole, #begin, #count, #each)));
        }
        if let Some(state) = scan.states.iter().find(|state| state.value == id) {
            let all = step.outer.states(state);
            let after = scan.reverse.then(|| quote!(+ 1));
            return Some(quote!(#all.some(#begin #after, #count)));
        }
        self.is_kept_in_steps(id).then(|| {
            let all = self.all_of(id);
            quote!(#all.some(#begin, #count))
        })
    }

    /// The products of the body whose weights have their gradients behind the steps.
    pub(super) fn products<'s>(&self, scan: &'s Scan) -> Vec<(&'s Node, &'s ParamPath)> {
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
    pub(super) fn d_product(&self, node: &Node) -> Ident {
        self.named(node.result, |name| format!("d_all_{name}"))
    }

    /// The gradients of weights, each a product over all steps.
    pub(super) fn add_products(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        inner: &ModelFrame<'_>,
    ) {
        let [begin, count] = self.outer_steps(scan);
        for (node, place) in inner.products(scan) {
            let weights = self.weights(place);
            let all = self.d_product(node);
            let x = inner.all_steps(scan, node.operands[0]);
            let [rows, width] = self.extents(node.operands[0]);
            let [_, d_width] = self.extents_of_product(node);
            lines.line(quote! {
                #weights.add_gradients(
                    p::Matrix::new(#x, #count * #rows, #width),
                    p::Matrix::new(#all.some(#begin, #count), #count * #rows, #d_width),
                    gradients,
                );
            });
        }
    }

    pub(super) fn target_of(
        &self,
        to: &[(ValueId, GradTarget)],
        id: ValueId,
    ) -> Option<GradTarget> {
        let id = self.block().whole(id);
        let found = to.iter().find(|(of, _)| *of == id);
        found.map(|(_, to)| *to)
    }

    pub(super) fn array_of(&self, to: GradTarget) -> TokenStream {
        let buffer = to.buffer().map(|buffer| self.buffer(buffer));
        quote!(#buffer)
    }

    pub(in crate::model::emit::fused) fn scan_backward(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        d_results: &[Option<Access>],
        to: &[(ValueId, GradTarget)],
    ) {
        self.inside(scan, d_results, to, |inner| {
            self.make_gradients(lines, scan, d_results, to);
            if self.is_in_segments(scan) {
                self.segments_backward(lines, scan, inner);
                return self.add_gradients(lines, scan, d_results, to);
            }
            let (count, extent) = (size(&scan.axis), self.extent_of_axis(&scan.axis));
            for (node, _) in inner.products(scan) {
                self.make_gradients_of_product(lines, node, [&count, &extent]);
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
            let is_by_rows = inner.is_by_rows();
            if is_by_rows {
                self.pack_backward(lines, scan, inner);
            }
            lines.line(match fields.is_empty() {
                true if is_by_rows => {
                    let steps = quote!(for #step in (0..#count) #rev { #body });
                    self.backward_by_rows(scan, inner, &count, &steps)
                }
                true => quote!(for #step in (0..#count) #rev { #body }),
                false => quote! {
                    for (#step, round) in (0..#count) #rev.zip(#all.into_iter().rev()) {
                        let #ty { #(#fields,)* .. } = round;
                        #body
                    }
                },
            });
            self.add_products(lines, scan, inner);
            for (node, _) in inner.products(scan) {
                lines.drop(&self.d_product(node));
            }
            self.add_gradients(lines, scan, d_results, to);
        });
    }

    /// The gradients of states behind the last step, and arrays for others.
    pub(super) fn make_gradients(
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
        for of in self.slices_apart(scan, to) {
            self.make(lines, &self.d_steps(of), "zeros", of);
        }
    }

    /// The values whose slices have their gradients in arrays of their own.
    pub(super) fn slices_apart(&self, scan: &Scan, to: &[(ValueId, GradTarget)]) -> Vec<ValueId> {
        let wholes = scan.slices.iter().map(|of| of.whole);
        wholes.filter(|id| self.is_apart(scan, to, *id)).collect()
    }

    pub(super) fn step_backward(
        &self,
        body: &mut TrackedCode,
        scan: &Scan,
        inner: &ModelFrame<'_>,
    ) {
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
    pub(super) fn add_gradients(
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
        for id in self.slices_apart(scan, to) {
            let name = self.d_steps(id);
            add(lines, id, &name);
            lines.drop(&name);
        }
        // What was kept is not read again. The loop took what is no array.
        let arrays = self.fields_of_scan(scan).into_iter();
        let is_array =
            |name: &Ident| *name != self.kept_of_steps(scan) && *name != self.seeds(scan);
        let arrays = arrays.filter(|(name, _)| is_array(name));
        arrays.for_each(|(name, _)| lines.drop(&name));
    }
}
