//! A [`Trainer`] on the disk.

use std::collections::BTreeSet;

use super::{Checkpoint, CheckpointError, Contents, LoadOptions, Problem};
use crate::train::{Algorithm, OfRank, Trainable, Trainer};

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// The contents of a checkpoint: the model and the state of the optimizer, with the [averages](Self::ema) if there are any. The program adds
    /// everything else that it needs to go on. Batches that were [accumulated](Self::accumulate) since the last step are not among them: a
    /// checkpoint belongs behind a step, and training that goes on from one between two of them takes its next step on the batches that
    /// follow alone.
    ///
    /// Training that goes on from a checkpoint has the same bits as training that was not interrupted, if the settings of the trainer, with
    /// its [seed](Self::seed), are the same.
    ///
    /// Of several [ranks](Self::across), all save, in a folder that they share: see [`Checkpoints::save`](super::Checkpoints::save). A run of any number of ranks goes on from it,
    /// each of which loads it. The rounding errors of [gradients in bf16](Self::bf16_gradients) are for as many ranks as saved it.
    ///
    /// ```
    /// # use attn::{prelude::*, train::AdamWConfig};
    /// use attn::checkpoint::{Checkpoints, LoadOptions};
    /// # model! {
    /// #     struct Net<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    /// # let dev = Cpu::default();
    /// # let folder = tempfile::tempdir()?;
    /// # let x: Tensor<Rank2<4, 2>, f32, _> = dev.sample_normal();
    ///
    /// let checkpoints = Checkpoints::new(folder.path());
    /// let mut trainer = dev.build_module::<Net, f32>().trainer(AdamWConfig::default());
    /// if let Some(checkpoint) = checkpoints.latest()? {
    ///     trainer.load(&checkpoint, LoadOptions::default())?;
    /// }
    /// let done = trainer.step(x)?;
    /// checkpoints.save(done.step, &trainer.contents(), Some(done.loss))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("state_dict", "save"))]
    pub fn contents(&mut self) -> Contents<'_> {
        self.model();
        let frozen = self.frozen();
        self.state_mut().frozen = frozen;
        let (model, state, of_rank) = self.parts();
        let contents = Contents::new().model(model);
        let Some(OfRank { ranks, own, errors }) = of_rank else {
            return contents.optimizer(state);
        };
        let contents = contents.across(ranks);
        let contents = match own {
            None => contents.optimizer(state),
            Some(own) => contents.shard(state, own),
        };
        match errors {
            None => contents,
            Some(errors) => contents.rounding_errors(errors, state.step),
        }
    }

    /// Goes on from a checkpoint, with the same parameters [frozen](Self::freeze): [`set_frozen`](Self::set_frozen) changes them before or
    /// afterwards. To train others from the start, load the model alone: `checkpoint.load_model(trainer.model_mut(), options)`.
    ///
    /// # Errors
    /// [`Problem::Frozen`] if other parameters were frozen; [`Problem::Shard`], [`Problem::OtherShard`] and [`Problem::OtherRank`] if the files of ranks
    /// are not those of one checkpoint; the errors of [`Checkpoint::load_model`] and [`Checkpoint::load_optimizer`]. The trainer has not changed then.
    #[doc(alias("load_state_dict", "resume"))]
    pub fn load(
        &mut self,
        checkpoint: &Checkpoint,
        options: LoadOptions,
    ) -> Result<(), CheckpointError> {
        let state = checkpoint.load_optimizer(self.model(), options)?;
        check_frozen(&state.frozen, &self.frozen())
            .map_err(|problem| problem.at(checkpoint.folder()))?;
        let [rank, ranks] = [self.rank(), self.ranks()];
        let errors = checkpoint.rounding_errors(rank, ranks, state.step, options)?;
        checkpoint.load_model(self.model_to_load(), options)?;
        self.read_again();
        *self.state_mut() = state;
        self.state_is_whole(errors);
        Ok(())
    }
}

/// Whether the frozen parameters of a checkpoint are those of the trainer.
fn check_frozen(found: &BTreeSet<String>, expected: &BTreeSet<String>) -> Result<(), Problem> {
    let differs = found.symmetric_difference(expected).next();
    differs.map_or(Ok(()), |name| {
        Err(Problem::Frozen {
            name: name.clone(),
            found: found.contains(name),
        })
    })
}
