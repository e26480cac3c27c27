//! A scan in a session.

use quote::quote;

use crate::emit::block::Frame;
use crate::emit::tracked_code::TrackedCode;
use crate::model::emit::fused::ModelFrame;
use crate::model::graph::Scan;

impl ModelFrame<'_> {
    /// In a session the states are those behind the tokens before.
    pub(super) fn scan_in_session(
        &self,
        lines: &mut TrackedCode,
        scan: &Scan,
        inner: &ModelFrame<'_>,
    ) {
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
}
