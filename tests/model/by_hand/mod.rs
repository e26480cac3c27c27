//! Whole networks as loops over slices of `f64`, with the derivatives that a textbook writes down: no tensor, no tape, and
//! no part of `attn`.
//!
//! All that goes through a network is rows of numbers, `[batch * length, width]`, one after the other in a slice; what a
//! layer of heads does is `[batch, heads, query, key]`. A `forward` takes `x` and returns `y`; the `backward` of it takes
//! `d_y`, the derivative of the loss by every element of `y`, returns `d_x`, and adds what the parameters get to their
//! gradients. What else it needs of the forward pass, `forward` hands out as `Saved`.
//!
//! Parameters have the names by which the declared network saves them.

mod attention;
mod encoder_decoder;
mod gpt;
mod layers;
mod loss;

use super::steps::ByName;

/// A gradient for every parameter, 0 so far.
fn zeros(parameters: &ByName) -> ByName {
    let zeros = |(name, values): (&String, &Vec<f64>)| (name.clone(), vec![0.0; values.len()]);
    parameters.iter().map(zeros).collect()
}

/// The gradient of this parameter, to be added to.
fn gradient<'a>(gradients: &'a mut ByName, name: &str) -> &'a mut [f64] {
    match gradients.get_mut(name) {
        Some(gradient) => gradient,
        None => panic!("no parameter is called {name}"),
    }
}

/// `a + b`, element by element.
fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}
