//! The weights of a model as a safetensors file.

use std::path::Path;

use dfdx::{nn::TensorCollection, tensor_ops::Device};

use super::{
    Archive, CheckpointError, LoadOptions, ReadAt,
    layout::WeightMap,
    tensors::stored,
    write::{Metadata, write},
};
use crate::{Element, disk};

/// Writes all tensors of a model to a safetensors file. The file replaces an existing one atomically.
///
/// dfdx's `load_safetensors` and Python's `safetensors` read it. (The method `model.save(path)` is dfdx's, and writes an npz archive.)
/// Names are those of dfdx: `0.weight`. Numbers that dfdx stores beside the tensors, such as the `epsilon` of its norms, are saved as
/// tensors without axes.
///
/// PyTorch: `safetensors.torch.save_file(model.state_dict(), path)`.
///
/// # Errors
/// [`CheckpointError`] if the operating system returns an error. The file at `path` does not change then.
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
/// All checks precede the first change of a tensor. The file must have all names, types and shapes of the model, and no others. The
/// numbers of a file that [`save`] wrote must match its checksum. The [options](LoadOptions) allow some differences.
///
/// Numbers without axes, such as the `epsilon` of dfdx's norms, may be missing, because other libraries do not save them. The model
/// keeps its own then.
///
/// PyTorch: `model.load_state_dict(safetensors.torch.load_file(path), strict=True)`.
///
/// # Errors
/// [`CheckpointError`] with [`Problem::Mismatch`](super::Problem::Mismatch), which lists everything that is missing, extra or different;
/// with [`Problem::Nan`](super::Problem::Nan); or with a problem of the file itself. The model does not change then.
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

impl<R: ReadAt> Archive<R> {
    /// Loads the model from this file: see [`load`](super::load).
    ///
    /// # Errors
    /// The errors of [`load`](super::load).
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
