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

    /// How many attentions ran so far.
    pub(crate) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Joins what the steps of a scan recorded behind the `first` attentions: one for each of the `each` of a step, whose queries are those
    /// of all steps.
    pub(crate) fn join_steps(&self, first: usize, each: usize, reverse: bool) {
        let mut all = self.0.borrow_mut();
        let mut steps: Vec<Vec<Weights>> = Vec::new();
        let mut recorded = all.drain(first..).peekable();
        while recorded.peek().is_some() {
            steps.push(recorded.by_ref().take(each.max(1)).collect());
        }
        drop(recorded);
        if reverse {
            steps.reverse();
        }
        let joined = (0..each).map(|attention| {
            let steps = steps.iter().map(|step| &step[attention]);
            joined(&steps.collect::<Vec<_>>())
        });
        all.extend(joined.collect::<Vec<_>>());
    }

    /// The weights of all attentions.
    pub(crate) fn into_weights(self) -> Vec<Weights> {
        self.0.into_inner()
    }
}

/// The weights of steps, one behind the other along the axis of the queries. Of no steps there is nothing.
fn joined(steps: &[&Weights]) -> Weights {
    let Some(([batch, heads, queries, keys], _)) = steps.first() else {
        return ([0; 4], Vec::new());
    };
    let each = queries * keys;
    let mut weights = Vec::with_capacity(batch * heads * steps.len() * each);
    for head in 0..batch * heads {
        for (_, of_step) in steps {
            weights.extend_from_slice(&of_step[head * each..(head + 1) * each]);
        }
    }
    ([*batch, *heads, steps.len() * queries, *keys], weights)
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
