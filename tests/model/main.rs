//! Networks declared with `model!`: against the same out of other layers, against their composed form, and all else that
//! they promise.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod agree;
mod by_hand;
mod decoder;
mod differences;
mod dropout;
mod dropped;
mod encoder_decoder;
mod facts;
mod facts_of_any_type;
mod graphs;
mod initial;
mod maps;
mod mistakes;
mod norms;
mod opaque;
mod out_of_modules;
mod padding;
mod results;
mod session;
mod steps;
mod threads;

use attn::dfdx::prelude::*;
use support::cases::{ids, lens_up_to, marks};
use support::compare::{Backpropagated, Outcome, backpropagate};
use support::reference::parameters::scattered;
use support::tensors;

/// Gives every parameter numbers that its name determines: gains around 1, the others around 0.
fn scatter<E: Dtype, M: TensorCollection<E, Cpu>>(model: &mut M)
where
    Cpu: Device<E>,
{
    tensors::fill(model, |name, values| {
        let is_gain = name.contains("norm") && name.ends_with("weight");
        let numbers = scattered(name, values.len());
        let numbers = numbers.into_iter();
        numbers
            .map(|number| {
                if is_gain {
                    1.0 + 0.5 * number
                } else {
                    0.6 * number
                }
            })
            .collect()
    });
}

/// A tensor of numbers between -1 and 1, other ones for every name.
fn tensor<S: Shape, E: Dtype>(name: &str, shape: S) -> Tensor<S, E, Cpu>
where
    Cpu: Device<E>,
{
    let numbers = scattered(name, shape.num_elements());
    let numbers = numbers.into_iter().map(|x| E::from_f64(x).unwrap());
    Cpu::default().tensor_from_vec(numbers.collect(), shape)
}

/// `ids` or `lens` of one axis.
fn lens<const N: usize>(lens: [usize; N]) -> Tensor<(usize,), usize, Cpu> {
    Cpu::default().tensor_from_vec(lens.to_vec(), (N,))
}
