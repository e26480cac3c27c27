//! The errors of the gradients that a rank has sent in bf16, as a safetensors file.

use std::path::Path;

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
    archive.with_path(|archive| {
        if optimizer::step(archive.metadata())? != step {
            return Err(Problem::OtherShard);
        }
        let found = archive.metadata().get(WEIGHT);
        let weight = found.and_then(|found| found.parse().ok());
        let weight = weight.ok_or_else(|| Problem::Number {
            key: WEIGHT.into(),
            found: found.cloned().unwrap_or_default(),
        })?;
        let names: Vec<_> = archive.tensors().map(|(name, _)| name.to_owned()).collect();
        let values = archive.read_unless(Mismatch::default(), options)?;
        let of = names.into_iter().filter_map(|name| {
            let numbers = values.numbers(&name)?;
            Some((name, numbers))
        });
        Ok(RoundingErrors {
            weight,
            of: of.collect(),
        })
    })
}
