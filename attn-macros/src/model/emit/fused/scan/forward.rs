//! The forward pass of a scan.

use proc_macro2::TokenStream;
use quote::quote;

use crate::emit::block::{self, Frame, size};
use crate::emit::tracked_code::TrackedCode;
use crate::model::emit::fused::ModelFrame;
use crate::model::graph::Scan;
use crate::model::plan::is_written_directly;

impl ModelFrame<'_> {
    pub(super) fn scan_forward(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        inner: &ModelFrame<'_>,
    ) {
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
            let is_kept = self.is_state_kept(scan, state) && !self.is_in_segments(scan);
            let (places, footprint) = match is_kept {
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
            let (places, footprint) = match self.is_in_segments(scan) {
                true => (quote!(1), quote!(1)),
                false => (quote!(if keep { #count } else { 1 }), extent.clone()),
            };
            lines.line(quote! {
                let mut #name = p::Steps::<E>::uninit(#places, #rows, #width);
            });
            lines.take(&name, self.footprint_of_steps(&footprint, *id));
        }
        let start_segment = self.make_starts(lines, scan, inner.is_by_rows());
        let fields = block::kept_of_step(inner);
        let all = self.kept_of_steps(scan);
        let ty = self.step_type(scan);
        let [make, push] = match fields.is_empty() || self.is_in_segments(scan) {
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
        // In segments, nothing of a step is kept.
        let keep = match self.is_in_segments(scan) {
            true => {
                body.keep_nothing();
                quote!(let keep = false;)
            }
            false => {
                body.keep(&fields);
                TokenStream::new()
            }
        };
        let body = lines.repeat(&extent, body);
        let step = self.own("step", 0);
        let rev = scan.reverse.then(|| quote!(.rev()));
        let states = self.pairs(scan);
        let steps = quote! {
            for #step in (0..#count) #rev {
                #start_segment
                #keep
                #states
                #body
                #push
            }
        };
        match inner.is_by_rows() {
            true => {
                self.pack_forward(lines, scan, inner);
                lines.line(self.forward_by_rows(scan, inner, &steps));
            }
            false => lines.line(quote!(#make #steps)),
        }
        self.last_states(lines, scan, &end);
        let in_segments = self.is_in_segments(scan);
        for state in &scan.states {
            if in_segments || !self.is_state_kept(scan, state) {
                lines.drop(&self.states(state));
            }
        }
        let kept = inner.plan().saved.iter();
        for id in kept.filter(|id| in_segments && inner.is_kept_in_steps(**id)) {
            lines.drop(&inner.all_of(*id));
        }
    }

    pub(super) fn make_yields(&self, lines: &mut TrackedCode, scan: &Scan) {
        for of in &scan.yields {
            let name = self.value(of.whole);
            self.make(lines, &name, "uninit", of.whole);
        }
    }

    /// `let (h, mut h_next) = h_states.pair(step, step + 1);`
    pub(super) fn pairs(&self, scan: &Scan) -> TokenStream {
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
    pub(super) fn step_forward(&self, scan: &Scan, inner: &ModelFrame<'_>) -> TrackedCode {
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

    pub(super) fn last_states(&self, lines: &mut TrackedCode, scan: &Scan, end: &TokenStream) {
        for state in &scan.states {
            if let Some(last) = state.last {
                let (name, all) = (self.value(last), self.states(state));
                lines.line(quote!(let mut #name = #all.at(#end).copy();));
                lines.take(&name, self.footprint_of(last));
            }
        }
    }
}
