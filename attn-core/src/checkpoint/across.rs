//! Checkpoints that several ranks save together.
//!
//! A folder gets the name of its step when the files of all ranks are on the disk, so a crash of any of them before that leaves the
//! previous checkpoint the latest one.

use std::{
    path::Path,
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{Checkpoint, CheckpointError, Checkpoints, Contents, Problem, Run};
use crate::{disk, train::Collective};

impl Checkpoints {
    /// [`run`](Self::run) of several ranks, which all call it: rank 0 locks the folder for all of them. It is to be on a file system that they share.
    ///
    /// ```
    /// use attn::{checkpoint::Checkpoints, train::Threads};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let runs = Threads::run(2, |mut ranks| Checkpoints::new(folder.path()).run_across(&mut ranks, false).map(drop));
    /// for run in runs {
    ///     run.expect("no rank panics")?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run); [`Problem::NotShared`] if a rank does not see the folder of rank 0, [`Problem::Rank`] if another rank has an error,
    /// and [`Problem::Ranks`] if it has ended.
    pub fn run_across(
        self,
        ranks: &mut (impl Collective + ?Sized),
        resume: bool,
    ) -> Result<Run, CheckpointError> {
        let folder = self.folder().to_owned();
        let begun = match ranks.rank() {
            0 => self.clone().run(resume).and_then(|run| mark(run, &folder)),
            _ => Ok(None),
        };
        let begun = together(ranks, &folder, begun)?;
        let mark = begun.as_ref().map(|(_, mark)| mark.clone().into_bytes());
        let mark = ranks.broadcast(0, mark.unwrap_or_default());
        let mark = mark.map_err(|error| Problem::Ranks(error).at(&folder))?;
        let run = match begun {
            Some((run, _)) => Ok(run),
            None => self.seen(&mark, ranks.rank()),
        };
        together(ranks, &folder, run)
    }

    /// The run whose folder another rank has locked, and marked in this way.
    fn seen(self, mark: &[u8], rank: usize) -> Result<Run, CheckpointError> {
        match self.mark()? {
            Some(found) if found.as_bytes() == mark => Ok(Run {
                last: self.latest()?,
                checkpoints: self,
                lock: None,
            }),
            _ => Err(Problem::NotShared { rank }.at(self.folder())),
        }
    }

    pub(super) fn save_across(
        &self,
        ranks: &mut dyn Collective,
        step: u64,
        contents: &Contents<'_>,
        metric: Option<f64>,
    ) -> Result<Checkpoint, CheckpointError> {
        let rank = ranks.rank();
        let unfinished = self.unfinished(step);
        let begun = match rank {
            0 => self.begin_save().and_then(|lock| {
                disk::create_folder(&unfinished)?;
                Ok(Some(lock))
            }),
            _ => Ok(None),
        };
        let lock = together(ranks, self.folder(), begun)?;
        let written = self.write_part(step, contents, rank, ranks.ranks());
        let written = together(ranks, self.folder(), written);
        let saved = match lock {
            Some(_) => {
                let written =
                    written.and_then(|()| self.check_shards(step, contents, ranks.ranks()));
                self.end_save(step, written, metric).map(drop)
            }
            None => written,
        };
        together(ranks, self.folder(), saved)?;
        Ok(self.named(step))
    }

    /// Writes what this rank has of a checkpoint.
    fn write_part(
        &self,
        step: u64,
        contents: &Contents<'_>,
        rank: usize,
        ranks: usize,
    ) -> Result<(), CheckpointError> {
        let unfinished = self.unfinished(step);
        if !unfinished.is_dir() {
            return Err(Problem::NotShared { rank }.at(self.folder()));
        }
        contents.write_shards(&unfinished, rank, ranks)?;
        match rank {
            0 => contents.write(&unfinished),
            _ => Ok(()),
        }
    }

    /// Checks that the shards of all ranks are here.
    fn check_shards(
        &self,
        step: u64,
        contents: &Contents<'_>,
        ranks: usize,
    ) -> Result<(), CheckpointError> {
        let unfinished = self.unfinished(step);
        for shard in contents.shards() {
            let is_there = |rank: &usize| unfinished.join(shard.name(*rank, ranks)).is_file();
            if let Some(rank) = (0..ranks).find(|rank| !is_there(rank)) {
                return Err(Problem::NotShared { rank }.at(self.folder()));
            }
        }
        Ok(())
    }
}

/// Marks the folder of a run, so that other ranks know that they see this one.
fn mark(run: Run, folder: &Path) -> Result<Option<(Run, String)>, CheckpointError> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let mark = format!("{} {}", process::id(), time.unwrap_or_default().as_nanos());
    if let Some(lock) = &run.lock {
        let set = lock.set_mark(&mark);
        set.map_err(|error| Problem::io("write")(error).at(folder))?;
    }
    Ok(Some((run, mark)))
}

/// The result of each rank if all have one. Else all have an error: their own, or that of the first rank that has one.
fn together<T>(
    ranks: &mut (impl Collective + ?Sized),
    place: &Path,
    result: Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    let error = result.as_ref().err().map(ToString::to_string);
    // An error has text.
    let errors = ranks.all_gather(error.unwrap_or_default().into_bytes());
    let errors = errors.map_err(|error| Problem::Ranks(error).at(place))?;
    let value = result?;
    let mut errors = errors.iter().enumerate();
    match errors.find(|(_, error)| !error.is_empty()) {
        None => Ok(value),
        Some((rank, error)) => {
            let reason = String::from_utf8_lossy(error).into_owned();
            Err(Problem::Rank { rank, reason }.at(place))
        }
    }
}
