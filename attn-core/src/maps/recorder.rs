//! The recorder of attention weights during a pass of a model.

use std::cell::RefCell;

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Storage, Tensor},
};

use super::AttentionMap;
use crate::{Element, Error, entry::ForwardOptions, kernel::attention::MaskBlocks};

/// The recorded weights of a pass, in the order of execution.
#[derive(Debug, Default)]
pub struct Recorder(RefCell<Vec<([usize; 4], Vec<f32>)>>);

impl Recorder {
    /// Records the weights of the attention that has just run.
    pub(crate) fn record(&self, weights: &impl Looked) {
        self.0.borrow_mut().push(weights.to_host());
    }
}

/// Attention weights on some device: `[batch, heads, query, key]`, or without the batch.
pub trait Looked {
    /// Shape and numbers.
    fn to_host(&self) -> ([usize; 4], Vec<f32>);
}

impl<S: Shape, E: Element, D: Storage<E>> Looked for Tensor<S, E, D> {
    fn to_host(&self) -> ([usize; 4], Vec<f32>) {
        let mut shape = [1; 4];
        let axes: Vec<_> = self.shape().concrete().into();
        for (size, axis) in shape.iter_mut().rev().zip(axes.into_iter().rev()) {
            *size = axis;
        }
        let weights = match self.shape().num_elements() {
            // dfdx cannot list the elements of an empty tensor.
            0 => Vec::new(),
            _ => self.as_vec(),
        };
        let weights = weights
            .into_iter()
            .map(|weight| weight.to_f32().unwrap_or(f32::NAN));
        (shape, weights.collect())
    }
}

/// The attentions of a model in the order of execution, with their names and the blocks of their masks.
#[derive(Debug, Default)]
pub struct Attentions {
    path: String,
    found: Vec<(String, Blocks)>,
}

type Blocks = fn(usize, usize) -> MaskBlocks;

impl Attentions {
    /// Adds an attention of this name.
    pub fn attention(&mut self, name: &str, blocks: Blocks) {
        self.found.push((format!("{}{name}", self.path), blocks));
    }

    /// Adds the attentions of a loop of this name.
    pub fn repeat(&mut self, name: &str, rounds: usize, body: impl Fn(&mut Self)) {
        let outside = self.path.len();
        for round in 0..rounds {
            self.path.push_str(&format!("{name}.{round}."));
            body(self);
            self.path.truncate(outside);
        }
    }
}

/// Runs a model in its composed form and returns its attention maps.
///
/// # Errors
/// The error of the model.
pub fn attention_maps<Output, Dev>(
    run: impl FnOnce(ForwardOptions<'_>) -> Result<Output, Error<Dev>>,
    list: impl FnOnce(&mut Attentions),
) -> Result<Vec<AttentionMap>, Error<Dev>> {
    let recorder = Recorder::default();
    run(ForwardOptions {
        recorder: Some(&recorder),
        ..ForwardOptions::COMPOSED
    })?;
    let mut attentions = Attentions::default();
    list(&mut attentions);
    let recorded = recorder.0.into_inner();
    debug_assert_eq!(recorded.len(), attentions.found.len(), "each of them runs");
    let maps = recorded.into_iter().zip(attentions.found);
    let maps = maps.map(|((shape, weights), (name, blocks))| {
        let [_, _, queries, keys] = shape;
        AttentionMap::new(name, shape, weights).with_mask_blocks(blocks(queries, keys))
    });
    Ok(maps.collect())
}
