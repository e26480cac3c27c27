//! The contents of a checkpoint.

use std::{
    cell::{RefCell, RefMut},
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
use crate::{
    Element, disk,
    train::{Algorithm, Collective, OptimizerState, Own},
};

/// The file with the weights of a checkpoint.
pub(super) const MODEL: &str = "model.safetensors";
/// The file with the state of the optimizer of a checkpoint.
pub(super) const OPTIMIZER: &str = "optimizer.safetensors";

/// The file with the shard of a rank, counted from 1.
pub(super) fn shard_name(rank: usize, ranks: usize) -> String {
    format!("optimizer-{:05}-of-{ranks:05}.safetensors", rank + 1)
}

/// How many ranks wrote the shard that has this name.
pub(super) fn ranks_of(name: &str) -> Option<usize> {
    let numbers = name
        .strip_prefix("optimizer-")?
        .strip_suffix(".safetensors")?;
    let (rank, ranks) = numbers.split_once("-of-")?;
    let (rank, ranks): (usize, usize) = (rank.parse().ok()?, ranks.parse().ok()?);
    (rank > 0 && shard_name(rank - 1, ranks) == name).then_some(ranks)
}

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
    /// The ranks that save together, if there are several: rank 0 writes the files, and each one its shard.
    across: Option<Across<'a>>,
}

struct Across<'a> {
    ranks: RefCell<&'a mut dyn Collective>,
    /// The state of the optimizer, without which it is among the files.
    shard: Option<Box<WriteFile<'a>>>,
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
    pub fn optimizer<E: Element, A: Algorithm>(self, state: &'a OptimizerState<E, A>) -> Self {
        self.file(OPTIMIZER, |file| {
            let (metadata, tensors) = optimizer::stored(state, None);
            write(file, metadata, &tensors)
        })
    }

    /// Saves them together with the other ranks.
    pub(super) fn across(mut self, ranks: &'a mut dyn Collective) -> Self {
        self.across = Some(Across {
            ranks: RefCell::new(ranks),
            shard: None,
        });
        self
    }

    /// Adds the part of the lists that this rank has, as its shard.
    pub(super) fn shard<E: Element, A: Algorithm>(
        mut self,
        state: &'a OptimizerState<E, A>,
        own: &'a Own,
    ) -> Self {
        if let Some(across) = &mut self.across {
            across.shard = Some(Box::new(|file| {
                let (metadata, tensors) = optimizer::stored(state, Some(own));
                write(file, metadata, &tensors)
            }));
        }
        self
    }

    /// The ranks that save together, if there are several.
    pub(super) fn ranks(&self) -> Option<RefMut<'_, &'a mut dyn Collective>> {
        let across = self.across.as_ref();
        across.map(|across| across.ranks.borrow_mut())
    }

    /// Whether each rank has a shard.
    pub(super) fn is_sharded(&self) -> bool {
        let across = self.across.as_ref();
        across.is_some_and(|across| across.shard.is_some())
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
            create(&folder.join(name), write)?;
        }
        Ok(disk::sync_folder(folder)?)
    }

    /// Writes the shard of this rank into the folder, which is there, and syncs it to the disk.
    pub(super) fn write_shard(&self, folder: &Path, name: &str) -> Result<(), CheckpointError> {
        let across = self.across.as_ref();
        if let Some(write) = across.and_then(|across| across.shard.as_ref()) {
            create(&folder.join(name), write)?;
            disk::sync_folder(folder)?;
        }
        Ok(())
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

fn create(path: &Path, write: &WriteFile<'_>) -> Result<(), CheckpointError> {
    disk::create(path, |file| write(file).map_err(|problem| problem.at(path)))
}

impl Debug for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.files.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}
