//! The weights of a model as a safetensors file.

use std::{io::Read, path::Path};

use dfdx::{nn::TensorCollection, tensor_ops::Device};

use super::{
    Archive, CheckpointError, LoadOptions,
    layout::WeightMap,
    tensors::stored,
    write::{Metadata, write},
};
use crate::{Element, disk};

/// Writes all tensors of a model to a safetensors file, which takes the place of the one before at once.
///
/// The method `model.save(path)` is dfdx's, and writes an npz archive. dfdx's `load_safetensors` and Python's `safetensors` read this file. Names are those that dfdx gives: `0.weight`. Numbers that
/// dfdx keeps beside the tensors, the `epsilon` of its norms, are in it as tensors without axes.
///
/// PyTorch: `safetensors.torch.save_file(model.state_dict(), path)`.
///
/// # Errors
/// [`CheckpointError`] if the system refuses; then the file at `path` is what it was before.
#[doc(alias("save_file", "state_dict"))]
pub fn save<M, E, D>(model: &M, path: impl AsRef<Path>) -> Result<(), CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    let tensors = stored(model);
    let path = path.as_ref();
    disk::replace(path, |file| {
        write(file, Metadata::new(), &tensors).map_err(|problem| problem.at(path))
    })
}

/// Reads all tensors of a model from a safetensors file.
///
/// Everything is checked before the first tensor of the model is touched: the file's names, types and shapes must be those
/// of the model, all of them, and its numbers must be the ones that [`save`] wrote, if it was `save` that wrote them. The
/// [options](LoadOptions) say what else is refused.
///
/// Numbers without axes, as the `epsilon` of dfdx's norms, may be missing: other libraries do not save them. The model then
/// keeps its own.
///
/// PyTorch: `model.load_state_dict(safetensors.torch.load_file(path), strict=True)`.
///
/// # Errors
/// [`CheckpointError`] with [`Problem::Mismatch`](super::Problem::Mismatch), which lists everything that is missing, extra or different; with
/// [`Problem::Nan`](super::Problem::Nan); or with what is wrong with the file itself. The model is then what it was before.
#[doc(alias("load_file", "load_state_dict"))]
pub fn load<M, E, D>(
    model: &mut M,
    path: impl AsRef<Path>,
    options: LoadOptions,
) -> Result<(), CheckpointError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Device<E>,
{
    Archive::open(path)?.load(model, options)
}

impl<R: Read> Archive<R> {
    /// [`load`](super::load) from this file.
    ///
    /// # Errors
    /// As [`load`](super::load).
    pub fn load<M, E, D>(self, model: &mut M, options: LoadOptions) -> Result<(), CheckpointError>
    where
        M: TensorCollection<E, D>,
        E: Element,
        D: Device<E>,
    {
        self.load_mapped(model, &WeightMap::identity(), options)?;
        Ok(())
    }
}
