//! The state of [`AdamW`](crate::train::AdamW) as a safetensors file.

use std::{io::Read, path::Path};

use dfdx::{nn::TensorCollection, tensor_ops::Device};

use super::{
    Archive, CheckpointError, LoadOptions, Problem, TensorType,
    archive::Expected,
    number::{dtype_of, encode},
    tensors::{TensorKind, for_each},
    write::{Metadata, Stored, write},
};
use crate::{Element, disk, train::AdamWState};

/// The key of the step count in the metadata.
const STEP: &str = "step";
/// The suffixes of the names of a parameter's moments.
const MOMENTS: [&str; 2] = ["mean", "square"];

/// Writes the state of an optimizer to a safetensors file. The file replaces an existing one atomically.
///
/// It has a list `<parameter>.mean` and a list `<parameter>.square` for each parameter, and the step count as `step` in its metadata.
///
/// PyTorch: `torch.save(optimizer.state_dict(), path)`.
///
/// # Errors
/// [`CheckpointError`] if the operating system returns an error. The file at `path` does not change then.
#[doc(alias = "state_dict")]
pub fn save_adamw<E: Element>(
    state: &AdamWState<E>,
    path: impl AsRef<Path>,
) -> Result<(), CheckpointError> {
    let (metadata, tensors) = stored(state);
    let path = path.as_ref();
    disk::replace(path, |file| {
        write(file, metadata, &tensors).map_err(|problem| problem.at(path))
    })
}

/// Reads the state of an optimizer of `model` from a safetensors file.
///
/// The state must be that of this model: after the first step it has the moments of all parameters, and no others.
///
/// PyTorch: `optimizer.load_state_dict(torch.load(path))`.
///
/// # Errors
/// The errors of [`load`](super::load), and [`Problem::Step`] if the file has no valid step count.
#[doc(alias = "load_state_dict")]
pub fn load_adamw<M, E, D>(
    model: &M,
    path: impl AsRef<Path>,
    options: LoadOptions,
) -> Result<AdamWState<E>, CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    Archive::open(path)?.load_adamw(model, options)
}

impl<R: Read> Archive<R> {
    /// Loads the state from this file: see [`load_adamw`](super::load_adamw).
    ///
    /// # Errors
    /// The errors of [`load_adamw`](super::load_adamw).
    pub fn load_adamw<M, E, D>(
        self,
        model: &M,
        options: LoadOptions,
    ) -> Result<AdamWState<E>, CheckpointError>
    where
        M: TensorCollection<E, D>,
        E: Element,
        D: Device<E>,
    {
        self.with_path(|archive| read(archive, model, options))
    }
}

fn read<R: Read, M, E, D>(
    archive: Archive<R>,
    model: &M,
    options: LoadOptions,
) -> Result<AdamWState<E>, Problem>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let step = step(archive.metadata())?;
    let expected = if step == 0 {
        Vec::new()
    } else {
        moments(model)
    };
    let values = archive.read(&expected, options)?;
    let lists = expected.into_iter().map(|Expected { name, .. }| {
        let numbers = values.numbers(&name).unwrap_or_default();
        (name, numbers)
    });
    AdamWState::from_lists(step, lists).map_err(Problem::State)
}

pub(super) fn stored<E: Element>(state: &AdamWState<E>) -> (Metadata, Vec<Stored>) {
    let tensors = state.lists().map(|(name, numbers)| Stored {
        name,
        described: list_of::<E>(numbers.len()),
        bytes: encode(numbers),
    });
    let metadata = Metadata::from([(STEP.into(), state.step.to_string())]);
    (metadata, tensors.collect())
}

fn list_of<E: Element>(len: usize) -> TensorType {
    TensorType {
        dtype: dtype_of::<E>(),
        shape: vec![len],
    }
}

fn step(metadata: &Metadata) -> Result<u64, Problem> {
    let found = metadata.get(STEP);
    let step = found.and_then(|step| step.parse().ok());
    step.ok_or_else(|| Problem::Step {
        found: found.cloned(),
    })
}

/// The tensors of a state after the first step.
fn moments<M, E, D>(model: &M) -> Vec<Expected>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let mut expected = Vec::new();
    for_each(model, |tensor| {
        if tensor.kind == TensorKind::Parameter {
            let len = tensor.described.shape.iter().product();
            expected.extend(MOMENTS.map(|moment| Expected {
                name: format!("{}.{moment}", tensor.name),
                described: list_of::<E>(len),
                optional: false,
            }));
        }
    });
    expected
}
