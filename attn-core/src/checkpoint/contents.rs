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
    CheckpointError, Problem, optimizer, rounding_errors, tensors,
    write::{Metadata, RANK, Stored, write},
};
use crate::{
    Element, disk,
    train::{Algorithm, Collective, OptimizerState, Own, RoundingErrors},
};

/// The file with the weights of a checkpoint.
pub(super) const MODEL: &str = "model.safetensors";
/// The file with the state of the optimizer of a checkpoint.
pub(super) const OPTIMIZER: &str = "optimizer.safetensors";

/// A kind of files of which each rank has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shard {
    /// Its part of the optimizer's state.
    Optimizer,
    /// The errors of the gradients that it sends in bf16.
    RoundingErrors,
}

impl Shard {
    /// The file of a rank, which is counted from 1 in it.
    pub(super) fn name(self, rank: usize, ranks: usize) -> String {
        let prefix = self.prefix();
        format!("{prefix}-{:05}-of-{ranks:05}.safetensors", rank + 1)
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Optimizer => "optimizer",
            Self::RoundingErrors => "rounding-errors",
        }
    }

    /// How many ranks wrote the file that has this name.
    pub(super) fn ranks_of(self, name: &str) -> Option<usize> {
        let numbers = name
            .strip_prefix(self.prefix())?
            .strip_prefix('-')?
            .strip_suffix(".safetensors")?;
        let (rank, ranks) = numbers.split_once("-of-")?;
        let (rank, ranks): (usize, usize) = (rank.parse().ok()?, ranks.parse().ok()?);
        (rank > 0 && self.name(rank - 1, ranks) == name).then_some(ranks)
    }
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
    /// The ranks that save together, if there are several: rank 0 writes the files, and each one its shards.
    across: Option<Across<'a>>,
}

struct Across<'a> {
    ranks: RefCell<&'a mut dyn Collective>,
    /// The state of the optimizer may be among the files instead.
    shards: Vec<(Shard, Box<WriteFile<'a>>)>,
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
            shards: Vec::new(),
        });
        self
    }

    /// Adds the part of the lists that this rank has, as its shard.
    pub(super) fn shard<E: Element, A: Algorithm>(
        self,
        state: &'a OptimizerState<E, A>,
        own: &'a Own,
    ) -> Self {
        self.of_rank(Shard::Optimizer, move || {
            optimizer::stored(state, Some(own))
        })
    }

    /// Adds what is missing of the gradients that this rank has sent until this step.
    pub(super) fn rounding_errors<E: Element>(
        self,
        errors: &'a RoundingErrors<E>,
        step: u64,
    ) -> Self {
        self.of_rank(Shard::RoundingErrors, move || {
            rounding_errors::stored(errors, step)
        })
    }

    /// Adds a file of this rank.
    fn of_rank(mut self, shard: Shard, stored: impl Fn() -> (Metadata, Vec<Stored>) + 'a) -> Self {
        if let Some(across) = &mut self.across {
            let rank = across.ranks.get_mut().rank();
            let write = move |file: &mut dyn Write| {
                let (mut metadata, tensors) = stored();
                metadata.insert(RANK.into(), rank.to_string());
                write(file, metadata, &tensors)
            };
            across.shards.push((shard, Box::new(write)));
        }
        self
    }

    /// The ranks that save together, if there are several.
    pub(super) fn ranks(&self) -> Option<RefMut<'_, &'a mut dyn Collective>> {
        let across = self.across.as_ref();
        across.map(|across| across.ranks.borrow_mut())
    }

    /// The kinds of files of which each rank has one.
    pub(super) fn shards(&self) -> impl Iterator<Item = Shard> {
        let shards = self.across.iter().flat_map(|across| &across.shards);
        shards.map(|(shard, _)| *shard)
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

    /// Writes the shards of this rank into the folder, which is there, and syncs them to the disk.
    pub(super) fn write_shards(
        &self,
        folder: &Path,
        rank: usize,
        ranks: usize,
    ) -> Result<(), CheckpointError> {
        let shards = self.across.iter().flat_map(|across| &across.shards);
        for (shard, write) in shards {
            create(&folder.join(shard.name(rank, ranks)), write)?;
            disk::sync_folder(folder)?;
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), Problem> {
        let mut names = BTreeSet::new();
        for (name, _) in &self.files {
            let name = name.clone();
            if !is_file_name(&name) {
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

/// Whether it is the name of a file, without folders.
pub(super) fn is_file_name(name: &str) -> bool {
    Path::new(name).file_name() == Some(OsStr::new(name))
}
