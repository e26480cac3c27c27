//! The attention maps of a model, recorded in a forward pass.

use super::AttentionMap;
use crate::{
    Error,
    entry::{ForwardOptions, Recorder},
    kernel::attention::MaskBlocks,
};

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
    let recorded = recorder.into_weights();
    debug_assert_eq!(recorded.len(), attentions.found.len(), "each of them runs");
    let maps = recorded.into_iter().zip(attentions.found);
    let maps = maps.map(|((shape, weights), (name, blocks))| {
        let [_, _, queries, keys] = shape;
        AttentionMap::new(name, shape, weights).with_mask_blocks(blocks(queries, keys))
    });
    Ok(maps.collect())
}
