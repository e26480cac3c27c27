//! A batch that says how much its loss counts.

use dfdx::{
    shapes::Rank0,
    tensor::{Tape, Tensor},
};

use super::{TrainBatch, Trainable, model::ErrOf};
use crate::{Error, fused::Operation, values::NonFinite};

/// A batch whose loss is the mean over so many targets.
///
/// The losses of several batches are one mean where batches are [accumulated](super::Trainer::accumulate), are
/// [parts](super::Trainer::across) of one on several ranks, or are [evaluated](super::Trainer::evaluate_all) together. There a batch counts by the
/// targets of its `cross_entropy`, without those that `ignore_index` leaves out, and without a `cross_entropy` by the numbers of its last
/// tensor. A loss with a mask of its own says here how many numbers it is the mean of.
///
/// ```
/// use attn::{prelude::*, train::{Counted, SgdConfig}};
///
/// model! {
///     struct Line<d = 2>;
///     fn forward(x: [batch, d]) -> [batch] { sum::<1>(linear::<1>(x)) }
///     fn loss(x: [batch, d], y: [batch], known: [batch]) -> [] {
///         sum::<batch>(known * pow(forward(x) - y, 2)) / sum::<batch>(known)
///     }
/// }
///
/// let dev = Cpu::default();
/// let mut trainer = dev.build_module::<Line, f32>().trainer(SgdConfig::default());
/// let x: Tensor<Rank2<4, 2>, f32, _> = dev.sample_normal();
/// let batch = (x, dev.tensor([1.0, 0.0, 2.0, 0.0]), dev.tensor([1.0, 0.0, 1.0, 0.0]));
/// trainer.accumulate(Counted { batch, count: 2 })?;
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
        self.count
    }

    fn rows(&self) -> usize {
        self.batch.rows()
    }

    fn first_non_finite(self, model: &M) -> Result<Option<NonFinite>, Error<ErrOf<M>>> {
        self.batch.first_non_finite(model)
    }
}
