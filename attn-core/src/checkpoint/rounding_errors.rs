//! The errors of the gradients that a rank has sent in bf16, as a safetensors file.

use std::{collections::BTreeMap, path::Path};

use super::{
    Archive, CheckpointError, LoadOptions, Mismatch, Problem,
    number::encode,
    optimizer::{self, STEP, check_rank, list_of},
    write::{Metadata, Stored},
};
use crate::{Element, train::RoundingErrors};

/// The key of the weight of the batches of the step.
const WEIGHT: &str = "weight";

/// The errors behind this step.
pub(super) fn stored<E: Element>(errors: &RoundingErrors<E>, step: u64) -> (Metadata, Vec<Stored>) {
    let tensors = errors.of.iter().map(|(name, numbers)| Stored {
        name: name.clone(),
        described: list_of::<E>(numbers.len()),
        bytes: encode(numbers),
    });
    // The shortest digits that are read as the same number.
    let weight = format!("{:?}", errors.weight);
    let metadata = [(STEP, step.to_string()), (WEIGHT, weight)];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value));
    (metadata.into(), tensors.collect())
}

/// The errors of this rank. Which of them the trainer goes on with is known when it knows what it trains.
pub(super) fn load<E: Element>(
    path: impl AsRef<Path>,
    rank: usize,
    step: u64,
    options: LoadOptions,
) -> Result<RoundingErrors<E>, CheckpointError> {
    let archive = Archive::open(path)?;
    check_rank(&archive, rank)?;
    let weight = weight_at(step, archive.metadata());
    let weight = weight.map_err(|problem| problem.at(&archive.path))?;
    let names: Vec<_> = archive.tensors().map(|(name, _)| name.to_owned()).collect();
    let values = archive.checked(Mismatch::default(), options)?;
    let mut of = BTreeMap::new();
    for name in names {
        if let Some(numbers) = values.numbers(&name)? {
            of.insert(name, numbers);
        }
    }
    Ok(RoundingErrors { weight, of })
}

/// The weight of the gradients of a step, whose errors these are.
fn weight_at(step: u64, metadata: &Metadata) -> Result<f64, Problem> {
    if optimizer::step(metadata)? != step {
        return Err(Problem::OtherShard);
    }
    let found = metadata.get(WEIGHT);
    let weight = found.and_then(|found| found.parse().ok());
    weight.ok_or_else(|| Problem::Number {
        key: WEIGHT.into(),
        found: found.cloned().unwrap_or_default(),
    })
}
