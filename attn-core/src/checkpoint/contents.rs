//! The contents of a checkpoint.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt::{self, Debug},
    io::Write,
    path::Path,
};

use dfdx::{nn::TensorCollection, tensor_ops::Device};
use serde::Serialize;

use super::{
    CheckpointError, Problem, optimizer, tensors,
    write::{Metadata, write},
};
use crate::{Element, disk, train::OptimizerState};

/// The file with the weights of a checkpoint.
pub(super) const MODEL: &str = "model.safetensors";
/// The file with the state of the optimizer of a checkpoint.
pub(super) const OPTIMIZER: &str = "optimizer.safetensors";

/// The files of a new checkpoint.
///
/// ```
/// use attn::{dfdx::prelude::*, checkpoint::Contents, train::AdamW};
///
/// let model = Cpu::default().build_module::<Linear<3, 2>, f32>();
/// let optimizer = AdamW::<f32>::new(Default::default());
/// let contents = Contents::new()
///     .model(&model)
///     .optimizer(&optimizer.state)
///     .json("trainer_state.json", &("seed", 7));
/// ```
#[derive(Default)]
pub struct Contents<'a> {
    files: Vec<(String, Box<WriteFile<'a>>)>,
}

type WriteFile<'a> = dyn Fn(&mut dyn Write) -> Result<(), Problem> + 'a;

impl<'a> Contents<'a> {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the weights of a model, as `model.safetensors`.
    pub fn model<M, E, D>(self, model: &'a M) -> Self
    where
        M: TensorCollection<E, D>,
        E: Element,
        D: Device<E>,
    {
        self.file(MODEL, |file| {
            write(file, Metadata::new(), &tensors::stored(model))
        })
    }

    /// Adds the state of an optimizer, as `optimizer.safetensors`.
    pub fn optimizer<E: Element, A>(self, state: &'a OptimizerState<E, A>) -> Self {
        self.file(OPTIMIZER, |file| {
            let (metadata, tensors) = optimizer::stored(state);
            write(file, metadata, &tensors)
        })
    }

    /// Contents that cannot be saved.
    pub(super) fn refused(self, problem: impl Fn() -> Problem + 'a) -> Self {
        self.file(OPTIMIZER, move |_| Err(problem()))
    }

    /// Adds any other value, as JSON. JSON has no NaN and no infinity: they are saved as `null`.
    pub fn json(self, name: impl Into<String>, value: &'a (impl Serialize + ?Sized)) -> Self {
        self.file(name, |file| {
            let json = serde_json::to_vec_pretty(value).map_err(|error| Problem::Json {
                reason: error.to_string(),
            })?;
            file.write_all(&json).map_err(Problem::io("write"))
        })
    }

    fn file(
        mut self,
        name: impl Into<String>,
        write: impl Fn(&mut dyn Write) -> Result<(), Problem> + 'a,
    ) -> Self {
        self.files.push((name.into(), Box::new(write)));
        self
    }

    /// Writes the files into a new folder and syncs them to the disk.
    pub(super) fn write(&self, folder: &Path) -> Result<(), CheckpointError> {
        self.check_names().map_err(|problem| problem.at(folder))?;
        disk::create_folder(folder)?;
        for (name, write) in &self.files {
            let path = folder.join(name);
            disk::create(&path, |file| {
                write(file).map_err(|problem| problem.at(&path))
            })?;
        }
        Ok(disk::sync_folder(folder)?)
    }

    fn check_names(&self) -> Result<(), Problem> {
        let mut names = BTreeSet::new();
        for (name, _) in &self.files {
            let name = name.clone();
            if Path::new(&name).file_name() != Some(OsStr::new(&name)) {
                return Err(Problem::FileName { name });
            }
            if !names.insert(name.clone()) {
                return Err(Problem::Duplicate { name });
            }
        }
        Ok(())
    }
}

impl Debug for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.files.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}
