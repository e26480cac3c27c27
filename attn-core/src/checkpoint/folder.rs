//! The folder with the checkpoints of a run.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use dfdx::{nn::TensorCollection, tensor_ops::Device};
use serde::de::DeserializeOwned;

use super::{
    CheckpointError, Contents, LoadOptions, Problem,
    contents::{MODEL, OPTIMIZER, Shard},
    load, load_optimizer,
    optimizer::load_shards,
    rounding_errors,
};
use crate::{
    Element, disk,
    train::{Algorithm, OptimizerState, RoundingErrors},
};

/// The file that names the checkpoint of the last save.
const LATEST: &str = "latest";
/// The file with the name of the checkpoint with the lowest metric, and that metric.
const BEST: &str = "best";
/// The lock file of a process that saves.
const SAVING: &str = ".lock";
/// The lock file of a run.
const RUNNING: &str = ".run";
/// The suffix of a hidden folder that is being written or removed. Its contents are incomplete.
const UNFINISHED: &str = "tmp";
/// The suffix of a hidden folder that is being replaced. It is a complete checkpoint.
const REPLACED: &str = "old";

/// The checkpoints of a run, in one folder.
///
/// The [module](super) has an example, and the layout of the folder. Nothing is cached in memory: another process, for example one
/// that draws samples, can read the [`latest`](Self::latest) checkpoint during training.
#[doc(alias("ModelCheckpoint", "resume"))]
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep_last: usize,
}

impl Checkpoints {
    /// The checkpoints in this folder. The first [`save`](Self::save) creates it.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            keep_last: usize::MAX,
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps only the `count` checkpoints with the highest steps. By default, all are kept.
    ///
    /// The latest and the best checkpoint are always kept.
    pub fn keep_last(mut self, count: usize) -> Self {
        self.keep_last = count;
        self
    }

    /// Locks the folder for this run, and creates it if necessary. The lock is released when the result is dropped, or when the process
    /// ends in any way.
    ///
    /// If two runs write to one folder, their records are mixed, and each removes checkpoints of the other. So a training program locks
    /// the folder before it looks for a checkpoint to resume from. A program that only reads does not need the lock.
    ///
    /// ```
    /// use attn::checkpoint::{Checkpoints, Problem};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let checkpoints = Checkpoints::new(folder.path());
    /// let run = checkpoints.lock_run()?;
    /// let second = checkpoints.lock_run().err().map(|error| error.problem);
    /// assert!(matches!(second, Some(Problem::Running)));
    /// drop(run);
    /// assert!(checkpoints.lock_run().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// This is an advisory lock of the operating system. On file systems without locks it does not exclude other runs.
    ///
    /// # Errors
    /// [`CheckpointError`] with [`Problem::Running`] if a run of this or of another process has locked the folder; or if the operating
    /// system returns an error.
    pub fn lock_run(&self) -> Result<RunLock, CheckpointError> {
        disk::create_folder(&self.folder)?;
        Ok(RunLock {
            lock: self.lock(RUNNING, Problem::Running)?,
        })
    }

    /// The text in the lock file of a run.
    pub(super) fn mark(&self) -> Result<Option<String>, CheckpointError> {
        self.read(RUNNING)
    }

    /// Saves a checkpoint of this step. It replaces an older one of the same step.
    ///
    /// It becomes the [`latest`](Self::latest) checkpoint. It becomes the [`best`](Self::best) one if its `metric`, such as the loss on
    /// held-out data, is less than that of the best checkpoint so far. NaN is never the best.
    ///
    /// Of several [ranks](crate::train::Trainer::across), all call it with the [contents](crate::train::Trainer::contents) of their trainers. Rank 0
    /// writes the model and the other common files, and each rank its shard of the optimizer's state, `optimizer-00001-of-00002.safetensors`, and its `rounding-errors-00001-of-00002.safetensors` if it sends
    /// [gradients in bf16](crate::train::Trainer::bf16_gradients). The folder gets its name when
    /// all are on the disk, and then the call returns on all ranks. The folder must be on a file system that all of them share. Where there is none, one
    /// rank saves alone, after [`gather_state`](crate::train::Trainer::gather_state) on all: `Contents::new().model(trainer.model())`, and `.optimizer(..)` with a clone of
    /// `trainer.state()`.
    ///
    /// # Errors
    /// [`CheckpointError`] if the operating system returns an error, for example because the disk is full, or if another process is
    /// saving to this folder. No checkpoint is lost then. All ranks have an error if one has: [`Problem::Rank`] names that one, and
    /// [`Problem::NotShared`] one that does not see the folder.
    pub fn save(
        &self,
        step: u64,
        contents: &Contents<'_>,
        metric: Option<f64>,
    ) -> Result<Checkpoint, CheckpointError> {
        if let Some(mut ranks) = contents.ranks() {
            return self.save_across(&mut **ranks, step, contents, metric);
        }
        let _lock = self.begin_save()?;
        let unfinished = self.unfinished(step);
        let written = contents.write(&unfinished);
        self.end_save(step, written, metric)
    }

    /// Locks the folder for a save, and makes room for it.
    pub(super) fn begin_save(&self) -> Result<Lock, CheckpointError> {
        disk::create_folder(&self.folder)?;
        let lock = self.lock(SAVING, Problem::Busy)?;
        self.clean_up()?;
        Ok(lock)
    }

    /// The folder in which the checkpoint of a step is written.
    pub(super) fn unfinished(&self, step: u64) -> PathBuf {
        self.hidden(step, UNFINISHED)
    }

    /// Gives a checkpoint that was written its name, or removes what was written of it.
    pub(super) fn end_save(
        &self,
        step: u64,
        written: Result<(), CheckpointError>,
        metric: Option<f64>,
    ) -> Result<Checkpoint, CheckpointError> {
        let unfinished = self.unfinished(step);
        if let Err(error) = written.and_then(|()| self.publish(step, &unfinished)) {
            // This frees space for the next attempt. If it fails as well, the first error is the important one.
            let _ = fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        self.point(LATEST, &name(step))?;
        self.update_best(step, metric)?;
        self.remove_old(step)?;
        Ok(self.named(step))
    }

    /// The checkpoint of a step that has its final name.
    pub(super) fn named(&self, step: u64) -> Checkpoint {
        let folder = self.folder.join(name(step));
        Checkpoint { step, folder }
    }

    /// The checkpoint of the last [`save`](Self::save), if there was one.
    ///
    /// # Errors
    /// [`CheckpointError`] if the folder cannot be read.
    pub fn latest(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        let named = self.read(LATEST)?.and_then(|text| step_of(text.trim()));
        if let Some(checkpoint) = named.and_then(|step| self.at(step)) {
            return Ok(Some(checkpoint));
        }
        // The pointer is written last, so a killed first save leaves a checkpoint without a pointer.
        Ok(self.steps()?.last().and_then(|&step| self.at(step)))
    }

    /// The checkpoint with the lowest metric, and that metric; `None` if no checkpoint was saved with a metric.
    ///
    /// # Errors
    /// [`CheckpointError`] if the folder cannot be read.
    pub fn best(&self) -> Result<Option<(Checkpoint, f64)>, CheckpointError> {
        let text = self.read(BEST)?;
        Ok(text.and_then(|text| {
            let (name, metric) = text.trim().split_once(' ')?;
            let checkpoint = self.at(step_of(name)?)?;
            // No metric is less than NaN.
            let metric = metric.parse().ok().filter(|metric: &f64| !metric.is_nan());
            Some((checkpoint, metric?))
        }))
    }

    /// The checkpoint of a step, if there is one.
    pub fn at(&self, step: u64) -> Option<Checkpoint> {
        let places = [self.folder.join(name(step)), self.hidden(step, REPLACED)];
        let folder = places.into_iter().find(|place| place.is_dir())?;
        Some(Checkpoint { step, folder })
    }

    /// The steps with a checkpoint, in ascending order.
    ///
    /// # Errors
    /// [`CheckpointError`] if the folder cannot be read.
    pub fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        let names = self.names()?;
        let steps = names.iter().filter_map(|name| match hidden_step(name) {
            Some((step, REPLACED)) => Some(step),
            _ => step_of(name),
        });
        Ok(Vec::from_iter(steps.collect::<BTreeSet<_>>()))
    }

    /// Locks a file. The lock is released when the result is dropped, or when the process ends in any way.
    fn lock(&self, file: &str, taken: Problem) -> Result<Lock, CheckpointError> {
        let path = self.folder.join(file);
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(|error| Problem::io("open")(error).at(&path))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(taken.at(&self.folder)),
            // On a file system without locks, the folder is used without a lock.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Lock(file)),
        }
    }

    /// Completes or removes the remains of a killed process.
    fn clean_up(&self) -> Result<(), CheckpointError> {
        for name in self.names()? {
            let path = self.folder.join(&name);
            match hidden_step(&name) {
                Some((step, REPLACED)) if !self.folder.join(self::name(step)).exists() => {
                    disk::rename(&path, &self.folder.join(self::name(step)))?;
                }
                Some((_, UNFINISHED | REPLACED)) => disk::remove(&path)?,
                _ if is_unfinished_pointer(&name) => disk::remove(&path)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Renames a finished checkpoint to its final name.
    fn publish(&self, step: u64, finished: &Path) -> Result<(), CheckpointError> {
        let place = self.folder.join(name(step));
        let replaced = self.hidden(step, REPLACED);
        let replaces = place.exists();
        if replaces {
            disk::rename(&place, &replaced)?;
        }
        disk::rename(finished, &place)?;
        disk::sync_folder(&self.folder)?;
        if replaces {
            disk::remove(&replaced)?;
        }
        Ok(())
    }

    fn update_best(&self, step: u64, metric: Option<f64>) -> Result<(), CheckpointError> {
        let best = self.best()?;
        let replaced = best.as_ref().is_some_and(|(best, _)| best.step == step);
        match metric.filter(|metric| !metric.is_nan()) {
            Some(metric) if replaced || best.is_none_or(|(_, least)| metric < least) => {
                self.point(BEST, &format!("{} {metric}", name(step)))
            }
            // The best checkpoint was removed.
            None if replaced => Ok(disk::remove(&self.folder.join(BEST))?),
            _ => Ok(()),
        }
    }

    /// Removes the checkpoints that [`keep_last`](Self::keep_last) does not keep.
    fn remove_old(&self, latest: u64) -> Result<(), CheckpointError> {
        let best = self.best()?.map(|(best, _)| best.step);
        let steps = self.steps()?;
        for &step in steps.iter().rev().skip(self.keep_last) {
            if step != latest && Some(step) != best {
                // A partially removed checkpoint must not have the name of a complete one.
                let unfinished = self.hidden(step, UNFINISHED);
                disk::rename(&self.folder.join(name(step)), &unfinished)?;
                disk::remove(&unfinished)?;
            }
        }
        Ok(())
    }

    /// Writes a file of one line, atomically.
    fn point(&self, file: &str, line: &str) -> Result<(), CheckpointError> {
        let path = self.folder.join(file);
        disk::replace(&path, |file| {
            let written = writeln!(file, "{line}");
            written.map_err(|error| Problem::io("write")(error).at(&path))
        })
    }

    fn read(&self, file: &str) -> Result<Option<String>, CheckpointError> {
        let path = self.folder.join(file);
        if_found(fs::read_to_string(&path)).map_err(|error| Problem::io("read")(error).at(&path))
    }

    fn names(&self) -> Result<Vec<String>, CheckpointError> {
        names(&self.folder)
    }

    fn hidden(&self, step: u64, end: &str) -> PathBuf {
        self.folder.join(format!(".{}.{end}", name(step)))
    }
}

/// The lock of a run on its folder: [`Checkpoints::lock_run`].
#[derive(Debug)]
#[must_use = "the folder is free again when this is dropped"]
pub struct RunLock {
    lock: Lock,
}

impl RunLock {
    /// Replaces the text in the lock file.
    pub(super) fn set_mark(&self, mark: &str) -> io::Result<()> {
        let mut file = &self.lock.0;
        file.set_len(0)?;
        file.write_all(mark.as_bytes())
    }
}

#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is being started may have it open for a moment.
        let _ = self.0.unlock();
    }
}

/// The files in a folder; none if there is no folder.
fn names(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let read = || -> io::Result<Vec<String>> {
        let Some(entries) = if_found(fs::read_dir(folder))? else {
            return Ok(Vec::new());
        };
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    read().map_err(|error| Problem::io("read")(error).at(folder))
}

fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name of the checkpoint of a step.
fn name(step: u64) -> String {
    format!("step-{step:08}")
}

fn step_of(text: &str) -> Option<u64> {
    let step = text.strip_prefix("step-")?.parse().ok()?;
    (name(step) == text).then_some(step)
}

/// The step of a hidden folder, and the suffix of its name.
fn hidden_step(text: &str) -> Option<(u64, &str)> {
    let (name, end) = text.strip_prefix('.')?.split_once('.')?;
    Some((step_of(name)?, end))
}

/// Whether this is a temporary file of [`disk::replace`].
fn is_unfinished_pointer(text: &str) -> bool {
    [LATEST, BEST].iter().any(|pointer| {
        let end = text
            .strip_prefix('.')
            .and_then(|text| text.strip_prefix(pointer));
        end.is_some_and(|end| end.starts_with(".tmp-"))
    })
}

/// A checkpoint on the disk.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    step: u64,
    folder: PathBuf,
}

impl Checkpoint {
    /// The step after which the checkpoint was saved.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The folder with its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads the weights of a model: [`load`] of `model.safetensors`.
    ///
    /// # Errors
    /// As [`load`].
    pub fn load_model<M, E, D>(
        &self,
        model: &mut M,
        options: LoadOptions,
    ) -> Result<(), CheckpointError>
    where
        M: TensorCollection<E, D>,
        E: Element,
        D: Device<E>,
    {
        load(model, self.folder.join(MODEL), options)
    }

    /// Reads the state of the optimizer of a model: [`load_optimizer`] of `optimizer.safetensors`, or of the shards of several ranks, whatever
    /// their number.
    ///
    /// # Errors
    /// As [`load_optimizer`]; [`Problem::Shard`] if a shard is missing, and [`Problem::OtherShard`] if one is of another step, and
    /// [`Problem::OtherRank`] if one is of another rank.
    pub fn load_optimizer<M, E, D, A>(
        &self,
        model: &M,
        options: LoadOptions,
    ) -> Result<OptimizerState<E, A>, CheckpointError>
    where
        M: TensorCollection<E, D>,
        E: Element,
        D: Device<E>,
        A: Algorithm,
    {
        let paths = self.shards(Shard::Optimizer)?;
        match paths.is_empty() {
            true => load_optimizer(model, self.folder.join(OPTIMIZER), options),
            false => load_shards(model, &paths, options, &self.folder),
        }
    }

    /// The errors of the gradients that this rank had sent, if as many ranks sent them in bf16.
    pub(super) fn rounding_errors<E: Element>(
        &self,
        rank: usize,
        ranks: usize,
        step: u64,
        options: LoadOptions,
    ) -> Result<Option<RoundingErrors<E>>, CheckpointError> {
        let paths = self.shards(Shard::RoundingErrors)?;
        let path = paths.get(rank).filter(|_| paths.len() == ranks);
        let load = |path| rounding_errors::load(path, rank, step, options);
        path.map(load).transpose()
    }

    /// The files of the ranks, if they have some of this kind.
    fn shards(&self, shard: Shard) -> Result<Vec<PathBuf>, CheckpointError> {
        let names = names(&self.folder)?;
        let Some(ranks) = names.iter().find_map(|name| shard.ranks_of(name)) else {
            return Ok(Vec::new());
        };
        let shards = (0..ranks).map(|rank| {
            let name = shard.name(rank, ranks);
            match names.contains(&name) {
                true => Ok(self.folder.join(name)),
                false => Err(Problem::Shard { name, ranks }.at(&self.folder)),
            }
        });
        shards.collect()
    }

    /// Reads a file that [`Contents::json`] saved.
    ///
    /// # Errors
    /// [`CheckpointError`] if the file does not exist, or if its contents do not fit the type.
    pub fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, CheckpointError> {
        let path = self.folder.join(name);
        let read = || {
            let json = fs::read(&path).map_err(Problem::io("read"))?;
            serde_json::from_slice(&json).map_err(|error| Problem::Json {
                reason: error.to_string(),
            })
        };
        read().map_err(|problem| problem.at(&path))
    }
}
