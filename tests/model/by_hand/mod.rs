//! Whole networks as loops over slices of `f64`, with the derivatives of textbooks: no tensor, no tape, and no part of `attn`.
//!
//! All values are rows of numbers in a slice, `[batch * length, width]`; those of a layer with heads are
//! `[batch, heads, query, key]`. A `forward` takes `x` and returns `y`. Its `backward` takes `d_y`, the gradient of `y`, returns `d_x`, and adds to the
//! gradients of the parameters. `forward` also returns the values that `backward` reads, as `Saved`.
//!
//! Parameters have the names under which the declared network saves them.

mod attention;
mod encoder_decoder;
mod gpt;
mod layers;
mod loss;

use super::steps::ByName;

/// A gradient of 0 for every parameter.
fn zeros(parameters: &ByName) -> ByName {
    let zeros = |(name, values): (&String, &Vec<f64>)| (name.clone(), vec![0.0; values.len()]);
    parameters.iter().map(zeros).collect()
}

/// The gradient of this parameter, to add to.
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
