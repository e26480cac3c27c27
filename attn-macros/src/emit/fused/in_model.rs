//! A layer as `model!` calls it, inside of the model's one operation.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::LayerFrame;
use crate::emit::{bounds, input};

impl LayerFrame<'_> {
    pub(super) fn emit_in_model(&self) -> TokenStream {
        let name = &self.cx.name;
        let inputs = self.inputs();
        let count = inputs.len();
        let read: Vec<_> = inputs.iter().cloned().chain(self.read_result()).collect();
        let read_count = read.len();
        let d_inputs: Vec<_> = inputs
            .iter()
            .map(|name| format_ident!("d_{name}"))
            .collect();
        let data: Vec<_> = self.cx.graph.data.iter().map(input::data_name).collect();
        let types = self.cx.graph.data.iter().map(input::read_type);
        let check_sizes = input::emit_check(self.cx);
        let check_grid = input::emit_grid_check(self.cx);
        let check_integers = bounds::emit_call(self.cx);
        let seed = self.dropout().map(|_| quote!(, seed));
        let given_numbers = self.given();
        let fields = self.fields_of_weights();
        let (weighted, given) = match self.has_projections() {
            true => ("WithProjections", Some(quote!(projections,))),
            false => ("Weighted", None),
        };
        let weighted = format_ident!("{weighted}");
        let projections = given
            .as_ref()
            .map(|_| quote!(projections: &[&dyn p::ProjectionLayer<E, D, T>],));
        quote_spanned! {self.cx.at=>
            impl<E: p::Element> p::WantsGradient for Weights<E> {
                fn slots(&self, visit: p::VisitSlot<'_>) {
                    p::visit_slots(&[#(&self.#fields),*], visit);
                }
            }

            impl<E: p::Element> p::VisitWeights<E> for Weights<E> {
                fn visit_weights(&mut self, visit: p::WeightVisitor<'_, E>) {
                    p::visit_weights(&mut [#(&mut self.#fields),*], visit);
                }
            }

            impl<E: p::Element, D: p::Storage<E>> p::FusedLayer<E> for #name<E, D> {
                type Weights = Weights<E>;
            }

            impl<E: p::Element, D: p::Backend<E>> p::#weighted<E, D> for #name<E, D> {
                fn weights<T: p::Tape<E, D>>(
                    &self,
                    #projections
                    operation: &mut p::Operation<E, D, T>,
                ) -> Result<Self::Weights, D::Err> {
                    read_weights(self, #given operation)
                }
            }

            #[allow(unused_variables)]
            impl<E: p::Element, D: p::Storage<E>> p::FusedBlock<E, #count, #read_count> for #name<E, D> {
                type Data = (#(#types,)*);
                type Saved = (Call<E>, Saved<E>);

                fn check<Dev>(axes: (usize, usize, usize), (#(#data,)*): &Self::Data) -> Result<(), p::Error<Dev>> {
                    #check_sizes
                    #check_grid
                    #check_integers
                    Ok(())
                }

                fn forward(
                    weights: &Self::Weights,
                    axes: (usize, usize, usize),
                    (#(#data,)*): &Self::Data,
                    seed: Option<p::Seed>,
                    [#(#inputs),*]: [p::Matrix<'_, E>; #count],
                    output: p::MatrixMut<'_, E>,
                    beside: p::Beside<'_, E>,
                ) -> Self::Saved {
                    let call = make_call(weights, axes #(, p::Clone::clone(#data))* #seed #(, #given_numbers.values())*);
                    let saved = forward(&call, weights, #(#inputs,)* output, beside);
                    (call, saved)
                }

                fn backward(
                    weights: &Self::Weights,
                    (call, saved): Self::Saved,
                    [#(#read),*]: [p::Matrix<'_, E>; #read_count],
                    d_output: p::Matrix<'_, E>,
                    d_beside: p::BesideGradients<'_, E>,
                    [#(#d_inputs),*]: [&mut p::GradTarget<'_, E>; #count],
                    gradients: &mut p::Gradients<E>,
                ) {
                    backward(&call, weights, #(#read,)* saved, d_output, d_beside, #(#d_inputs,)* gradients)
                }
            }
        }
    }
}
