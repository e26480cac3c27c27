//! A batch that says how much its loss counts.

use dfdx::{
    shapes::Rank0,
    tensor::{Tape, Tensor},
};

use super::{TrainBatch, Trainable, model::ErrOf};
use crate::{Error, fused::Operation, values::NonFinite};

/// A batch whose loss is the mean over so many targets. It is for losses that ignore some, as padding, where the losses of several batches are
/// one mean: [`evaluate_all`](super::Trainer::evaluate_all), and the parts of a batch on several [ranks](super::Trainer::across). Without it,
/// each number of the last tensor counts.
///
/// ```
/// use attn::{prelude::*, train::{Counted, SgdConfig}};
///
/// model! {
///     struct Classifier<d = 2, classes = 3>;
///     fn forward(x: [batch, d]) -> [batch, classes] { linear::<classes>(x) }
///     fn loss(x: [batch, d], targets: ids[batch]) -> [] { cross_entropy::<ignore_index = 0>(forward(x), targets) }
/// }
///
/// let dev = Cpu::default();
/// let mut trainer = dev.build_module::<Classifier, f32>().trainer(SgdConfig::default());
/// let x: Tensor<Rank2<4, 2>, f32, _> = dev.sample_normal();
/// let batch = (x, dev.tensor([1_usize, 0, 2, 0]));
/// trainer.step(Counted { batch, count: 2 })?;
/// # Ok::<(), attn::train::TrainError<CpuError>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Counted<B> {
    /// The batch.
    pub batch: B,
    /// How many targets its loss is the mean of.
    pub count: usize,
}

impl<M: Trainable, B: TrainBatch<M>> TrainBatch<M> for Counted<B> {
    fn loss<T: Tape<M::Element, M::Device>>(
        self,
        model: &M,
        operation: Operation<M::Element, M::Device, T>,
    ) -> Result<Tensor<Rank0, M::Element, M::Device, T>, Error<ErrOf<M>>> {
        self.batch.loss(model, operation)
    }

    fn targets(&self) -> usize {
        self.batch.targets()
    }

    fn weight(&self) -> usize {
        self.count
    }

    fn first_non_finite(self, model: &M) -> Result<Option<NonFinite>, Error<ErrOf<M>>> {
        self.batch.first_non_finite(model)
    }
}
