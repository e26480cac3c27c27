//! A scan in which every row of the batch goes its own way: each thread takes some rows through all steps, and waits for no other one.
//!
//! ```text
//! let shares = p::RowShares::new(sizes.batch, sizes.seq, 256 * 768, 5 * 256);
//! let hr_weights = weights.hh.pack();                     // once for all steps
//! let xz_by_rows = p::StepRows::of(xz_steps.as_slice(), sizes.batch, 256);
//! shares.for_each([h_states.view_mut(), ..], |share, [mut h_states, ..]| {
//!     let mut sizes = sizes;
//!     sizes.batch = share.len();
//!     let xz_by_rows = xz_by_rows.some_rows(share);
//!     for step_0 in 0..sizes.seq { .. }                   // the lines of the body, with the rows of the share
//! });
//! ```
//!
//! No sum depends on the shares: a row of a product does not depend on the others, and the gradients of weights are products over all rows
//! behind the loop.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use crate::emit::ExecMode;
use crate::emit::block::{self, Frame, field, product, size};
use crate::emit::tracked_code::TrackedCode;
use crate::model::emit::fused::ModelFrame;
use crate::model::graph::{Node, Scan, Step, ValueId};
use crate::model::types::{Axis, ValueKind};
use crate::ops::Fusion;

/// Memory that is cut into shares, and what makes a view of it.
type Cut = (Ident, TokenStream);

impl ModelFrame<'_> {
    /// Whether each row of the batch depends on the same row of the inputs and states alone. This is the frame of the body.
    pub(super) fn is_by_rows(&self) -> bool {
        let step = self.step.as_ref();
        step.is_some_and(|step| {
            *step
                .is_by_rows
                .get_or_init(|| self.are_rows_apart(step.scan))
        })
    }

    fn are_rows_apart(&self, scan: &Scan) -> bool {
        let Some(batch) = self.axis_of_rows(scan) else {
            return false;
        };
        let has_rows = |id: &ValueId| {
            let ty = self.ty(*id);
            let mut axes = ty.axes.iter();
            let is_vector = axes.len() > 1;
            let is_batch = |axis: &Axis| matches!(axis, Axis::Symbol(of) if of.length == batch);
            ty.kind == ValueKind::Floats
                && is_vector
                && axes.next().is_some_and(is_batch)
                && !axes.any(is_batch)
        };
        let is_known = |step: &Step| match step {
            Step::Node(node) => match node.fusion() {
                Fusion::Projection(_) => self.product_of_step(scan, node).is_some(),
                Fusion::Elementwise(_) | Fusion::Repeat(_) => true,
                Fusion::Slice(axis, _) | Fusion::Concat(axis) => axis > 0,
                _ => false,
            },
            Step::Repeat(_) | Step::Scan(_) => false,
        };
        let nodes = scan.body.nodes();
        let mut results = nodes.iter().flat_map(|node| node.results());
        self.mode == ExecMode::Forward
            && scan.wholes().next().is_none()
            && scan.inputs.iter().all(has_rows)
            && scan.results.iter().all(has_rows)
            && results.all(|id| has_rows(&id))
            && scan.body.steps.iter().all(is_known)
            && block::kept_of_step(self).is_empty()
    }

    /// The length of the first axis of the states, if a call chooses it and the steps are along another one.
    fn axis_of_rows(&self, scan: &Scan) -> Option<String> {
        let state = scan.states.first()?;
        let is_steps = |length: &str| matches!(&scan.axis, Axis::Symbol(of) if of.length == length);
        match self.ty(state.value).axes.first()? {
            Axis::Symbol(of) if !is_steps(&of.length) => Some(of.length.clone()),
            _ => None,
        }
    }

    /// The rows of a share of a sequence.
    pub(super) fn rows_of(&self, whole: ValueId) -> Ident {
        self.named(whole, |name| format!("{name}_by_rows"))
    }

    /// The packed weights of a product.
    fn packed_forward(&self, result: ValueId) -> Ident {
        self.named(result, |name| format!("{name}_weights"))
    }

    /// The same for the gradient of its operand.
    pub(super) fn packed_backward(&self, node: &Node) -> Ident {
        self.named(node.result, |name| format!("d_{name}_weights"))
    }

    pub(in crate::model::emit::fused) fn packed(&self, result: ValueId) -> Option<TokenStream> {
        self.is_by_rows().then(|| {
            let packed = self.packed_forward(result);
            quote!(#packed)
        })
    }

    /// Packs the weights of the products of a step.
    pub(super) fn pack_forward(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        inner: &ModelFrame<'_>,
    ) {
        self.share_rows(lines, scan, inner);
        for node in scan.body.nodes() {
            if let Fusion::Projection(linear) = node.fusion() {
                let (packed, weights) = (
                    self.packed_forward(node.result),
                    self.weights(&linear.place),
                );
                lines.line(quote!(let #packed = #weights.pack();));
            }
        }
    }

    /// The same for the derivative.
    pub(super) fn pack_backward(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        inner: &ModelFrame<'_>,
    ) {
        self.share_rows(lines, scan, inner);
        for (node, place) in inner.products(scan) {
            let (packed, weights) = (self.packed_backward(node), self.weights(place));
            lines.line(quote!(let #packed = #weights.pack_input_backward();));
        }
    }

    /// Decides how the rows are shared.
    fn share_rows(&self, lines: &mut TrackedCode, scan: &Scan, inner: &ModelFrame<'_>) {
        let nodes = scan.body.nodes();
        let of_row = |id: ValueId| product(&self.ty(id).axes[1..]);
        let weights = nodes.iter().filter_map(|node| match node.fusion() {
            Fusion::Projection(_) => {
                let input = self.ty(node.operands[0]).axes.last().map(size);
                let [_, width] = inner.extents_of_product(node);
                Some(quote!(+ #input * #width))
            }
            _ => None,
        });
        let numbers = nodes.iter().map(|node| {
            let numbers = of_row(node.result);
            quote!(+ #numbers)
        });
        let (rows, steps) = (self.rows_of_batch(scan), size(&scan.axis));
        lines.line(quote! {
            let shares = p::RowShares::new(#rows, #steps, 0 #(#weights)*, 0 #(#numbers)*);
        });
    }

    fn rows_of_batch(&self, scan: &Scan) -> TokenStream {
        let first = scan.states.first();
        let axis = first.and_then(|state| self.ty(state.value).axes.first());
        axis.map_or_else(TokenStream::new, size)
    }

    /// The steps of the forward pass, with the rows of a share.
    pub(super) fn forward_by_rows(
        &self,
        scan: &Scan,
        inner: &ModelFrame<'_>,
        steps: &TokenStream,
    ) -> TokenStream {
        let is_again = inner.step.as_ref().is_some_and(|step| step.again);
        let yields = scan.yields.iter().map(|of| {
            let name = match is_again {
                true => self.unread(of.whole),
                false => self.value(of.whole),
            };
            self.cut_array(name, of.slice)
        });
        let states = scan.states.iter().map(|state| self.states(state));
        let kept = inner.plan().saved.iter();
        let kept = kept.filter(|id| inner.is_kept_in_steps(**id));
        let kept = kept.map(|id| inner.all_of(*id));
        let has_starts = self.is_in_segments(scan) && !is_again;
        let starts = scan.states.iter().filter(|_| has_starts);
        let starts = starts.map(|state| self.starts(state));
        let steps_of = states.chain(kept).chain(starts).map(cut_steps);
        let reads = scan.slices.iter().map(|of| {
            let numbers = self.read(of.whole).slice;
            self.read_rows(self.rows_of(of.whole), &numbers, of.slice)
        });
        let cuts = yields.chain(steps_of).collect();
        self.in_shares(scan, cuts, reads.collect(), steps)
    }

    /// The steps of the derivative, so many, with the rows of a share.
    pub(super) fn backward_by_rows(
        &self,
        scan: &Scan,
        inner: &ModelFrame<'_>,
        count: &TokenStream,
        steps: &TokenStream,
    ) -> TokenStream {
        let Some(step) = inner.step.as_ref() else {
            return TokenStream::new();
        };
        let mut cuts = Vec::new();
        let states = scan.states.iter();
        let states: Vec<_> = states.map(|state| (self.d_state(state), state)).collect();
        for (names, state) in &states {
            cuts.extend(
                names
                    .iter()
                    .map(|name| self.cut_array(name.clone(), state.value)),
            );
        }
        for of in &scan.slices {
            let name = self.d_slices(scan, step.to, of.whole);
            let has_gradient = self.target_of(step.to, of.whole).is_some();
            if has_gradient && cuts.iter().all(|(other, _)| *other != name) {
                cuts.push(self.cut_array(name, of.slice));
            }
        }
        let products = inner.products(scan).into_iter();
        cuts.extend(products.map(|(node, _)| cut_steps(self.d_product(node))));
        let mut reads = Vec::new();
        for state in &scan.states {
            if self.is_state_kept(scan, state) {
                reads.push(read_steps(&self.states(state)));
            }
        }
        let kept = inner.plan().saved.iter();
        for id in kept.filter(|id| inner.is_kept_in_steps(**id)) {
            reads.push(read_steps(&inner.all_of(*id)));
        }
        let saved = scan.saved_inputs(scan.block(&self.model().values));
        for of in scan.slices.iter().filter(|of| saved.contains(&of.slice)) {
            let numbers = self.read(of.whole).slice;
            reads.push(self.read_rows(self.rows_of(of.whole), &numbers, of.slice));
        }
        for (of, gradient) in scan.yields.iter().zip(step.d_results) {
            let name = self.d_steps(of.whole);
            let numbers = match gradient {
                Some(gradient) => gradient.slice.clone(),
                None => quote!(#name.as_slice()),
            };
            reads.push(self.read_rows(name, &numbers, of.slice));
        }
        let [after, before]: [Vec<_>; 2] =
            [0, 1].map(|index| states.iter().map(|(names, _)| &names[index]).collect());
        let steps = quote! {
            #(
                let mut #after = #after.at_mut(0);
                let mut #before = #before.at_mut(0);
            )*
            let gradients = &mut p::Gradients::<E>::default();
            #steps
        };
        let shares = self.in_shares(scan, cuts, reads, &steps);
        // The views changed places at each step.
        quote! {
            #shares
            if (#count) % 2 == 1 {
                #(::core::mem::swap(&mut #after, &mut #before);)*
            }
        }
    }

    /// An array with the rows of a value, or with those of all steps.
    fn cut_array(&self, name: Ident, id: ValueId) -> Cut {
        let [rows, width] = self.extents(id);
        let cut = quote!(p::StepRowsMut::of(#name.as_mut_slice(), #rows, #width));
        (name, cut)
    }

    /// Numbers in front of the shares, and those of a share.
    fn read_rows(&self, name: Ident, numbers: &TokenStream, id: ValueId) -> [TokenStream; 2] {
        let [rows, width] = self.extents(id);
        [
            quote!(let #name = p::StepRows::of(#numbers, #rows, #width);),
            quote!(let #name = #name.some_rows(share);),
        ]
    }

    fn in_shares(
        &self,
        scan: &Scan,
        cuts: Vec<Cut>,
        reads: Vec<[TokenStream; 2]>,
        steps: &TokenStream,
    ) -> TokenStream {
        let (names, cuts): (Vec<_>, Vec<_>) = cuts.into_iter().unzip();
        let (before, inside): (Vec<_>, Vec<_>) = reads
            .into_iter()
            .map(|[before, inside]| (before, inside))
            .unzip();
        let batch = self.axis_of_rows(scan).map(|length| field(&length));
        quote! {
            {
                #(#before)*
                shares.for_each([#(#cuts),*], |share, [#(mut #names),*]| {
                    let mut sizes = sizes;
                    sizes.#batch = share.len();
                    #(#inside)*
                    #steps
                });
            }
        }
    }
}

fn cut_steps(name: Ident) -> Cut {
    let cut = quote!(#name.view_mut());
    (name, cut)
}

fn read_steps(name: &Ident) -> [TokenStream; 2] {
    [
        TokenStream::new(),
        quote!(let #name = #name.some_rows(share);),
    ]
}
