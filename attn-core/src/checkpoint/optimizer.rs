//! The state of an [`Optimizer`](crate::train::Optimizer) as a safetensors file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    str::FromStr,
};

use dfdx::{nn::TensorCollection, tensor_ops::Device};

use super::{
    Archive, CheckpointError, LoadOptions, Mismatch, Problem, ReadAt, TensorType,
    archive::{Expected, compare},
    header::Located,
    number::{dtype_of, encode},
    tensors::{TensorKind, for_each},
    write::{Metadata, RANK, Stored, write},
};
use crate::{
    Element, disk,
    train::{AVERAGE, Algorithm, List, OptimizerState, Own},
};

/// The key of the step count in the metadata.
pub(super) const STEP: &str = "step";
/// The key of the name of the algorithm. States of earlier versions have none.
const ALGORITHM: &str = "algorithm";
/// The prefix of the keys of an algorithm's numbers.
const NUMBER: &str = "number.";
/// The prefix of the keys of how many steps have updated a parameter.
const UPDATES: &str = "updates.";
/// The key of the names of the frozen parameters: those of a model have no line breaks.
const FROZEN: &str = "frozen";

/// Writes the state of an optimizer to a safetensors file. The file replaces an existing one atomically.
///
/// It has the lists of the state by their names, such as `<parameter>.mean`. Its metadata have the step count as `step`, the name of the
/// algorithm as `algorithm`, the numbers that it keeps for all parameters as `number.<name>`, the number of steps that have updated a parameter as `updates.<parameter>`, if
/// not all have, and the names of frozen parameters, one per line, as `frozen`, if there are any.
///
/// PyTorch: `torch.save(optimizer.state_dict(), path)`.
///
/// # Errors
/// [`CheckpointError`] if the operating system returns an error. The file at `path` does not change then.
#[doc(alias = "state_dict")]
pub fn save_optimizer<E: Element, A: Algorithm>(
    state: &OptimizerState<E, A>,
    path: impl AsRef<Path>,
) -> Result<(), CheckpointError> {
    let (metadata, tensors) = stored(state, None);
    let path = path.as_ref();
    disk::replace(path, |file| {
        write(file, metadata, &tensors).map_err(|problem| problem.at(path))
    })
}

/// Reads the state of an optimizer of `model` from a safetensors file.
///
/// The state must be that of this model and of the algorithm `A`: it has the lists of all parameters that a step has updated, and no
/// others but of parameters that it may update, and the [averages](crate::train::Trainer::ema) of a trainer. An optimizer with this state freezes what it is told to [freeze](crate::train::Optimizer::freeze), whatever the
/// state says of the last step. It drops the lists that its settings do not keep, and begins those that the state does not have.
///
/// PyTorch: `optimizer.load_state_dict(torch.load(path))`.
///
/// # Errors
/// The errors of [`load`](super::load), [`Problem::Algorithm`] if it is the state of another algorithm, and [`Problem::Step`] or [`Problem::Number`] if the file has no valid step count or number.
#[doc(alias = "load_state_dict")]
pub fn load_optimizer<M, E, D, A>(
    model: &M,
    path: impl AsRef<Path>,
    options: LoadOptions,
) -> Result<OptimizerState<E, A>, CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
    A: Algorithm,
{
    Archive::open(path)?.load_optimizer(model, options)
}

impl<R: ReadAt> Archive<R> {
    /// Loads the state from this file: see [`load_optimizer`](super::load_optimizer).
    ///
    /// # Errors
    /// The errors of [`load_optimizer`](super::load_optimizer).
    pub fn load_optimizer<M, E, D, A>(
        self,
        model: &M,
        options: LoadOptions,
    ) -> Result<OptimizerState<E, A>, CheckpointError>
    where
        M: TensorCollection<E, D>,
        E: Element,
        D: Device<E>,
        A: Algorithm,
    {
        let path = self.path.clone();
        read(vec![self], model, options, &path)
    }
}

/// Reads the state of an optimizer from the shards of several ranks.
pub(super) fn load_shards<M, E, D, A>(
    model: &M,
    paths: &[PathBuf],
    options: LoadOptions,
    folder: &Path,
) -> Result<OptimizerState<E, A>, CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
    A: Algorithm,
{
    let archives = paths.iter().map(Archive::open);
    read(archives.collect::<Result<_, _>>()?, model, options, folder)
}

/// Reads a state that is in these files together.
fn read<R: ReadAt, M, E, D, A>(
    archives: Vec<Archive<R>>,
    model: &M,
    options: LoadOptions,
    place: &Path,
) -> Result<OptimizerState<E, A>, CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
    A: Algorithm,
{
    let mut state = OptimizerState::default();
    let mut found = BTreeMap::<_, Located>::new();
    for (index, archive) in archives.iter().enumerate() {
        let of = described(archive.metadata()).map_err(|problem| problem.at(&archive.path))?;
        if archives.len() > 1 {
            check_rank(archive, index)?;
        }
        if index == 0 {
            state = of;
        } else if (of.step, &of.numbers, &of.frozen) == (state.step, &state.numbers, &state.frozen)
        {
            state.updates.extend(of.updates);
        } else {
            return Err(Problem::OtherShard.at(&archive.path));
        }
        for (name, tensor) in &archive.tensors {
            match found.get_mut(name) {
                None => drop(found.insert(name.clone(), tensor.clone())),
                Some(list) => append(&mut list.described, &tensor.described)
                    .ok_or_else(|| Problem::OtherShard.at(&archive.path))?,
            }
        }
    }
    let expected = match state.step {
        0 => Vec::new(),
        _ => lists(model, A::LISTS, &state.updates),
    };
    let mismatch = compare(&expected, &found, options);
    if !mismatch.is_empty() {
        return Err(Problem::Mismatch(mismatch).at(place));
    }
    for archive in archives {
        let values = archive.checked(Mismatch::default(), options)?;
        for Expected { name, .. } in &expected {
            if let Some(part) = values.numbers::<E>(name)? {
                state.lists.entry(name.clone()).or_default().extend(part);
            }
        }
    }
    Ok(state)
}

/// Whether a file is the shard of this rank: others may be as long.
pub(super) fn check_rank<R>(archive: &Archive<R>, expected: usize) -> Result<(), CheckpointError> {
    let found = archive.metadata().get(RANK);
    if found.is_some_and(|found| *found == expected.to_string()) {
        return Ok(());
    }
    let found = found.cloned();
    Err(Problem::OtherRank { found, expected }.at(&archive.path))
}

/// Appends the part that a rank has of a list to those of the ranks before it. Parts have one type.
fn append(list: &mut TensorType, part: &TensorType) -> Option<()> {
    let ([len], [more]) = (&mut list.shape[..], &part.shape[..]) else {
        return None;
    };
    *len = len.checked_add(*more)?;
    (list.dtype == part.dtype).then_some(())
}

/// The state without its lists.
fn described<E, A: Algorithm>(metadata: &Metadata) -> Result<OptimizerState<E, A>, Problem> {
    if let Some(found) = metadata.get(ALGORITHM).filter(|found| *found != A::NAME) {
        return Err(Problem::Algorithm {
            found: found.clone(),
            expected: A::NAME,
        });
    }
    let frozen = metadata.get(FROZEN);
    let frozen = frozen.map(|names| names.lines().map(str::to_owned).collect());
    Ok(OptimizerState {
        step: step(metadata)?,
        numbers: numbers_of(metadata, NUMBER)?,
        updates: numbers_of(metadata, UPDATES)?,
        frozen: frozen.unwrap_or_default(),
        ..OptimizerState::default()
    })
}

/// The state, or the part of it that a rank has.
pub(super) fn stored<E: Element, A: Algorithm>(
    state: &OptimizerState<E, A>,
    own: Option<&Own>,
) -> (Metadata, Vec<Stored>) {
    let lists = state.lists.iter().filter_map(|(name, list)| {
        let part = own.map_or(Some(&list[..]), |own| own.part(name, list))?;
        Some((name, part))
    });
    let tensors = lists.map(|(name, numbers)| Stored {
        name: name.clone(),
        described: list_of::<E>(numbers.len()),
        bytes: encode(numbers),
    });
    let mut metadata = Metadata::from([
        (STEP.into(), state.step.to_string()),
        (ALGORITHM.into(), A::NAME.into()),
    ]);
    if !state.frozen.is_empty() {
        let names: Vec<_> = state.frozen.iter().map(String::as_str).collect();
        metadata.insert(FROZEN.into(), names.join("\n"));
    }
    let updates = state.updates.iter();
    let updates = updates.filter(|(name, _)| own.is_none_or(|own| own.has(name)));
    metadata.extend(updates.map(|(name, count)| (format!("{UPDATES}{name}"), count.to_string())));
    // The shortest digits that are read as the same number.
    let numbers = state.numbers.iter();
    metadata
        .extend(numbers.map(|(name, number)| (format!("{NUMBER}{name}"), format!("{number:?}"))));
    (metadata, tensors.collect())
}

pub(super) fn list_of<E: Element>(len: usize) -> TensorType {
    TensorType {
        dtype: dtype_of::<E>(),
        shape: vec![len],
    }
}

pub(super) fn step(metadata: &Metadata) -> Result<u64, Problem> {
    let found = metadata.get(STEP);
    let step = found.and_then(|step| step.parse().ok());
    step.ok_or_else(|| Problem::Step {
        found: found.cloned(),
    })
}

/// The numbers whose keys have a prefix, by the rest of the key.
fn numbers_of<N: FromStr>(
    metadata: &Metadata,
    prefix: &str,
) -> Result<BTreeMap<String, N>, Problem> {
    let numbers = metadata.iter().filter_map(|(key, found)| {
        let name = key.strip_prefix(prefix)?;
        Some((name, key, found))
    });
    let parse = |(name, key, found): (&str, &String, &String)| {
        let number = found.parse().map_err(|_| Problem::Number {
            key: key.clone(),
            found: found.clone(),
        })?;
        Ok((name.to_owned(), number))
    };
    numbers.map(parse).collect()
}

/// The tensors of a state after the first step. A parameter that no step has updated may have none.
fn lists<M, E, D>(model: &M, lists: &[List], updates: &BTreeMap<String, u64>) -> Vec<Expected>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let mut expected = Vec::new();
    for_each(model, |tensor| {
        if tensor.kind == TensorKind::Parameter {
            let dims = &tensor.described.shape;
            let is_new = updates.get(&tensor.name) == Some(&0);
            expected.extend(lists.iter().map(|list| Expected {
                name: format!("{}.{}", tensor.name, list.name),
                described: list_of::<E>(list.size.of(dims)),
                optional: !list.always || is_new,
            }));
            expected.push(Expected {
                name: format!("{}.{AVERAGE}", tensor.name),
                described: list_of::<E>(dims.iter().product()),
                optional: true,
            });
        }
    });
    expected
}
