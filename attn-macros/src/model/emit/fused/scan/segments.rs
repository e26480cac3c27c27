//! A scan that keeps its states before segments of about √n steps.
//!
//! ```text
//! // forward
//! let mut h_starts = p::Steps::<E>::uninit(if keep { p::segments(sizes.seq) } else { 0 }, sizes.batch, 256);
//! for step_0 in 0..sizes.seq {
//!     if keep && step_0 % p::segment_length(sizes.seq) == 0 { .. }            // the state goes into `h_starts`
//!     ..
//! }
//! // backward
//! for segment_0 in (0..p::segments(sizes.seq)).rev() {
//!     for step_0 in begin_0..end_0 { .. }                                     // the lines of the forward pass again
//!     for step_0 in (begin_0..end_0).rev() { .. }
//! }
//! ```
//!
//! The values of the steps of a segment stand where those of all steps do otherwise. The gradients of weights are a product for each
//! segment.

use std::cell::OnceCell;

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::InStep;
use crate::emit::ExecMode;
use crate::emit::block::{self, Frame, size};
use crate::emit::tracked_code::TrackedCode;
use crate::model::emit::fused::ModelFrame;
use crate::model::graph::{Keep, Scan, State, ValueId};

impl ModelFrame<'_> {
    pub(super) fn is_in_segments(&self, scan: &Scan) -> bool {
        scan.keep == Keep::Sqrt && self.mode == ExecMode::Forward
    }

    /// The first of the steps whose values are there, and how many these are.
    pub(super) fn outer_steps(&self, scan: &Scan) -> [TokenStream; 2] {
        match self.is_in_segments(scan) {
            true => {
                let [begin, end] = self.bounds();
                [quote!(#begin), quote!((#end - #begin))]
            }
            false => [quote!(0), size(&scan.axis)],
        }
    }

    fn bounds(&self) -> [Ident; 2] {
        ["begin", "end"].map(|name| self.own(name, 0))
    }

    /// A state before each segment.
    pub(super) fn starts(&self, state: &State) -> Ident {
        self.named(state.value, |name| format!("{name}_starts"))
    }

    /// The seeds of all steps.
    pub(super) fn seeds(&self, scan: &Scan) -> Ident {
        self.named(self.defined_first(scan), |name| format!("{name}_seeds"))
    }

    /// The memory of a result that is computed again and not read.
    pub(super) fn unread(&self, whole: ValueId) -> Ident {
        self.named(whole, |name| format!("{name}_again"))
    }

    pub(super) fn fields_of_segments(&self, scan: &Scan) -> Vec<(Ident, TokenStream)> {
        let starts = scan.states.iter();
        let starts = starts.map(|state| (self.starts(state), quote!(p::Steps<E>)));
        let seeds = (self.seeds(scan), quote!(p::Seeds));
        starts.chain([seeds]).collect()
    }

    /// Makes the memory of what is kept. Returns the lines that keep the states where a segment begins.
    pub(super) fn make_starts(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        is_by_rows: bool,
    ) -> TokenStream {
        if !self.is_in_segments(scan) {
            return TokenStream::new();
        }
        let (count, extent) = (size(&scan.axis), self.extent_of_axis(&scan.axis));
        let step = self.own("step", 0);
        let seeds = self.seeds(scan);
        let copies = scan.states.iter().map(|state| {
            let (starts, states) = (self.starts(state), self.states(state));
            let [rows, width] = self.extents(state.value);
            lines.line(quote! {
                let mut #starts = p::Steps::<E>::uninit(if keep { p::segments(#count) } else { 0 }, #rows, #width);
            });
            let places = quote!(p::segments(#extent));
            lines.take(&starts, self.footprint_of_steps(&places, state.value));
            let at = match scan.reverse {
                true => quote!(#step + 1),
                false => quote!(#step),
            };
            quote! {
                let segment = #step / p::segment_length(#count);
                #starts.at_mut(segment).as_mut_slice().copy_from_slice(#states.at(#at).as_slice());
            }
        });
        let copies: TokenStream = copies.collect();
        lines.line(quote!(let #seeds = p::Seeds::default();));
        // Rows by themselves draw nothing.
        let random = (!is_by_rows).then(|| {
            lines.line(quote! {
                let recorded = || #seeds.record(random);
                let of_steps = random.with(&recorded);
            });
            quote!(let random = of_steps;)
        });
        let begins = match scan.reverse {
            true => {
                quote!((#step + 1) % p::segment_length(#count) == 0 || #step + 1 == #count)
            }
            false => quote!(#step % p::segment_length(#count) == 0),
        };
        quote! {
            #random
            if keep && (#begins) {
                #copies
            }
        }
    }

    /// The derivative, segment by segment.
    pub(super) fn segments_backward(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        inner: &ModelFrame<'_>,
    ) {
        let (count, extent) = (size(&scan.axis), self.extent_of_axis(&scan.axis));
        let [length, places] = [&count, &extent].map(|size| quote!(p::segment_length(#size)));
        let arrays = self.make_segment(lines, scan, inner, [&length, &places]);
        let is_by_rows = inner.is_by_rows();
        if is_by_rows {
            self.pack_forward(lines, scan, inner);
            self.pack_backward(lines, scan, inner);
        }
        let [begin, end] = self.bounds();
        let (step, segment) = (self.own("step", 0), self.own("segment", 0));
        let mut of_segment = TrackedCode::default();
        let start = match scan.reverse {
            true => &end,
            false => &begin,
        };
        of_segment.line(quote! {
            let #begin = #segment * #length;
            let #end = ::core::cmp::min(#begin + #length, #count);
            #(#arrays.begin(#begin);)*
        });
        for state in &scan.states {
            let (states, starts) = (self.states(state), self.starts(state));
            of_segment.line(quote! {
                #states.at_mut(#start).as_mut_slice().copy_from_slice(#starts.at(#segment).as_slice());
            });
        }
        let rounds = self.steps_again(&mut of_segment, scan, &places);
        let mut body = TrackedCode::default();
        let fields = block::kept_of_step(inner);
        body.restore(&fields);
        self.step_backward(&mut body, scan, inner);
        let body = of_segment.repeat(&places, body);
        let rev = (!scan.reverse).then(|| quote!(.rev()));
        let ty = self.step_type(scan);
        of_segment.line(match rounds {
            None if is_by_rows => {
                let steps = quote!(for #step in (#begin..#end) #rev { #body });
                self.backward_by_rows(scan, inner, &quote!(#end - #begin), &steps)
            }
            None => quote!(for #step in (#begin..#end) #rev { #body }),
            Some(all) => quote! {
                for (#step, round) in (#begin..#end) #rev.zip(#all.into_iter().rev()) {
                    let #ty { #(#fields,)* .. } = round;
                    #body
                }
            },
        });
        self.add_products(&mut of_segment, scan, inner);
        let of_segment = lines.repeat(quote!(p::segments(#extent)), of_segment);
        lines.line(quote! {
            for #segment in (0..p::segments(#count)) #rev {
                #of_segment
            }
        });
        arrays.iter().for_each(|name| lines.drop(name));
        for of in &scan.yields {
            lines.drop(&self.unread(of.whole));
        }
    }

    /// The memory of the steps of a segment.
    fn make_segment(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        inner: &ModelFrame<'_>,
        [length, places]: [&TokenStream; 2],
    ) -> Vec<Ident> {
        for of in &scan.yields {
            self.make(lines, &self.unread(of.whole), "uninit", of.slice);
        }
        let states = scan.states.iter();
        let states = states.map(|state| (self.states(state), state.value, Some(quote!(+ 1))));
        let kept = inner.plan().saved.iter();
        let kept = kept.filter(|id| inner.is_kept_in_steps(**id));
        let kept = kept.map(|id| (inner.all_of(*id), *id, None));
        let arrays = states.chain(kept);
        let names = arrays.map(|(name, id, more)| {
            let [rows, width] = self.extents(id);
            lines
                .line(quote!(let mut #name = p::Steps::<E>::uninit(#length #more, #rows, #width);));
            lines.take(&name, self.footprint_of_steps(&quote!(#places #more), id));
            name
        });
        let mut names: Vec<_> = names.collect();
        for (node, _) in inner.products(scan) {
            names.push(self.make_gradients_of_product(lines, node, [length, places]));
        }
        names
    }

    /// The steps of a segment as in the forward pass. Returns the variable with what they keep beside floats, if they do.
    fn steps_again(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        places: &TokenStream,
    ) -> Option<Ident> {
        let again = InStep {
            scan,
            outer: self,
            d_results: &[],
            to: &[],
            again: true,
            is_by_rows: OnceCell::new(),
        };
        self.in_step(again, |inner| {
            let fields = block::kept_of_step(inner);
            let mut body = self.step_forward(scan, inner);
            body.keep(&fields);
            let body = lines.repeat(places, body);
            let [begin, end] = self.bounds();
            let (step, seeds) = (self.own("step", 0), self.seeds(scan));
            let count = size(&scan.axis);
            let (rev, done) = match scan.reverse {
                true => (Some(quote!(.rev())), quote!(#count - #end)),
                false => (None, quote!(#begin)),
            };
            let states = self.pairs(scan);
            let all = (!fields.is_empty()).then(|| self.kept_of_steps(scan));
            let ty = self.step_type(scan);
            let make = all
                .iter()
                .map(|all| quote!(let mut #all = p::Vec::<#ty<E>>::new();));
            let push = all
                .iter()
                .map(|all| quote!(#all.push(#ty { #(#fields,)* __types: p::PhantomData });));
            if inner.is_by_rows() {
                let steps = quote!(for #step in (#begin..#end) #rev { #states #body });
                lines.line(self.forward_by_rows(scan, inner, &steps));
                return None;
            }
            lines.line(quote! {
                #seeds.go_to(#done, #count);
                let again = || #seeds.again();
                let random = #seeds.random(&again);
                let keep = true;
                #(#make)*
                for #step in (#begin..#end) #rev {
                    #states
                    #body
                    #(#push)*
                }
            });
            all
        })
    }
}
