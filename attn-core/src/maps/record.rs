//! The attention maps of a model, recorded in a forward pass.

use super::AttentionMap;
use crate::{
    Error,
    entry::{ForwardOptions, Recorder, Wanted},
    model::Outline,
};

/// Runs a model as a chain of operations and returns its attention maps.
///
/// # Errors
/// The error of the model.
pub fn attention_maps<Output, Dev>(
    run: impl FnOnce(ForwardOptions<'_>) -> Result<Output, Error<Dev>>,
    outline: impl FnOnce(&mut Outline),
) -> Result<Vec<AttentionMap>, Error<Dev>> {
    let recorder = Recorder::default();
    run(ForwardOptions {
        recorder: Some(&recorder),
        wanted: Wanted::WEIGHTS,
        ..ForwardOptions::FORWARD
    })?;
    let mut of = Outline::default();
    outline(&mut of);
    let recorded = recorder.into_weights();
    debug_assert_eq!(recorded.len(), of.attentions.len(), "each of them runs");
    let maps = recorded.into_iter().zip(of.attentions);
    let maps = maps.map(|((shape, weights), (name, blocks))| {
        let [_, _, queries, keys] = shape;
        let map = AttentionMap::new(name, shape, weights);
        match blocks {
            Some(blocks) => map.with_mask_blocks(blocks(queries, keys)),
            None => map,
        }
    });
    Ok(maps.collect())
}
