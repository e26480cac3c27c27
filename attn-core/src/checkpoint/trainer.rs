//! A [`Trainer`] on the disk.

use super::{Checkpoint, CheckpointError, Contents, LoadOptions};
use crate::train::{Algorithm, Trainable, Trainer};

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// The contents of a checkpoint: the model and the state of the optimizer. The program adds everything else that it needs to go on.
    ///
    /// Training that goes on from a checkpoint has the same bits as training that was not interrupted, if the settings of the trainer, with
    /// its [seed](Self::seed), are the same.
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
        let (model, state) = self.parts();
        Contents::new().model(model).optimizer(state)
    }

    /// Goes on from a checkpoint.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::load_model`] and [`Checkpoint::load_optimizer`]. The trainer has not changed then.
    #[doc(alias("load_state_dict", "resume"))]
    pub fn load(
        &mut self,
        checkpoint: &Checkpoint,
        options: LoadOptions,
    ) -> Result<(), CheckpointError> {
        let state = checkpoint.load_optimizer(self.model(), options)?;
        checkpoint.load_model(self.model_to_load(), options)?;
        self.read_again();
        *self.state_mut() = state;
        Ok(())
    }
}
