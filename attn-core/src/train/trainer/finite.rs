//! The operation at which a step stopped being finite.

use super::{NonFinite, TrainBatch, TrainError, Trainable, Trainer, model::ErrOf};
use crate::{Error, fused::StepSeeds, random::drawing, train::Algorithm, values};

/// The operation, if there is one, or why it could not be looked for.
pub(super) type Search<M> = Result<Option<values::NonFinite>, Error<ErrOf<M>>>;

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// The error, with the operation in it. Where the loss is not finite, this was looked for before. Of several batches none is run again:
    /// any of them may have the gradient that is not finite. Nor is the part of a rank without targets, whose mean is NaN and counts nothing.
    pub(super) fn with_operation<B: TrainBatch<M>>(
        &mut self,
        mut error: TrainError<ErrOf<M>>,
        batch: B,
        number: u32,
    ) -> TrainError<ErrOf<M>> {
        if let TrainError::NotFinite {
            loss,
            first,
            search,
            ..
        } = &mut error
            && loss.is_finite()
            && number == 0
            && (self.across.is_none() || batch.targets() > 0)
        {
            (*first, *search) = parts(self.first_non_finite(batch, number));
        }
        error
    }

    /// Runs the batch of this number once more, as a chain of operations with the dropouts that it had in the step. The memory for its results
    /// and their gradients is asked for beforehand, and if there is too little, this is an error.
    pub(super) fn first_non_finite<B: TrainBatch<M>>(
        &mut self,
        batch: B,
        number: u32,
    ) -> Search<M> {
        debug_assert!(
            self.non_finite == NonFinite::Stop,
            "a step that is skipped is no error"
        );
        let seeds = StepSeeds::new(self.seed, self.next_step(), number);
        let model = self.model();
        drawing(move || seeds.draw(), || batch.first_non_finite(model))
    }
}

/// What an error says of a search.
pub(super) fn parts<Dev>(
    search: Result<Option<values::NonFinite>, Error<Dev>>,
) -> (Option<values::NonFinite>, Option<Box<Error<Dev>>>) {
    match search {
        Ok(first) => (first, None),
        Err(error) => (None, Some(Box::new(error))),
    }
}
