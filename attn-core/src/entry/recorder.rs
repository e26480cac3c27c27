//! The recorder of the attention weights of a pass.

use std::cell::RefCell;

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Storage, Tensor},
};

use crate::Element;

/// Records the weights of the attentions of a pass, in the order of execution.
#[derive(Debug, Default)]
pub struct Recorder(RefCell<Vec<Weights>>);

/// `[batch, heads, query, key]`, and the weights.
type Weights = ([usize; 4], Vec<f32>);

impl Recorder {
    /// Records the weights of an attention.
    pub(crate) fn record(&self, weights: &impl AttentionWeights) {
        self.0.borrow_mut().push(weights.to_host());
    }

    /// The weights of all attentions.
    pub(crate) fn into_weights(self) -> Vec<Weights> {
        self.0.into_inner()
    }
}

/// Attention weights on some device: `[batch, heads, query, key]`, or without the batch.
pub trait AttentionWeights {
    /// The shape and the numbers.
    fn to_host(&self) -> ([usize; 4], Vec<f32>);
}

impl<S: Shape, E: Element, D: Storage<E>, T> AttentionWeights for Tensor<S, E, D, T> {
    fn to_host(&self) -> ([usize; 4], Vec<f32>) {
        let mut shape = [1; 4];
        let axes: Vec<_> = self.shape().concrete().into();
        for (size, axis) in shape.iter_mut().rev().zip(axes.into_iter().rev()) {
            *size = axis;
        }
        let weights = match self.shape().num_elements() {
            // dfdx cannot list the numbers of an empty tensor.
            0 => Vec::new(),
            _ => self.as_vec(),
        };
        let weights = weights
            .into_iter()
            .map(|weight| weight.to_f32().unwrap_or(f32::NAN));
        (shape, weights.collect())
    }
}
