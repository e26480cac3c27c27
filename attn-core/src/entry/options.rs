//! The options of a forward pass.

use super::{Attended, AttentionWeights, Observer, Recorder, Wanted};
use crate::{Backend, Element, Error};

/// The options of a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct ForwardOptions<'a> {
    /// Whether dropout is active, if the input is traced.
    pub train: bool,
    /// Whether to use the composed form on every device.
    pub composed: bool,
    /// The results of an attention beside its output.
    pub wanted: Wanted,
    /// Records the weights.
    pub recorder: Option<&'a Recorder>,
    /// Observes the results of the operations of a model.
    pub observer: Option<&'a Observer>,
}

impl ForwardOptions<'_> {
    /// Without dropout.
    pub const FORWARD: Self = Self {
        train: false,
        composed: false,
        wanted: Wanted::NOTHING,
        recorder: None,
        observer: None,
    };

    /// While training.
    pub const TRAIN: Self = Self {
        train: true,
        ..Self::FORWARD
    };

    /// Without dropout, with the weights.
    pub const WITH_WEIGHTS: Self = Self {
        wanted: Wanted::WEIGHTS,
        ..Self::FORWARD
    };

    /// While training, with the weights.
    pub const TRAIN_WITH_WEIGHTS: Self = Self {
        train: true,
        ..Self::WITH_WEIGHTS
    };

    /// Without dropout, in the composed form.
    pub const COMPOSED: Self = Self {
        composed: true,
        ..Self::FORWARD
    };

    /// Whether a layer runs in its fused form.
    pub fn is_fused<E: Element, D: Backend<E>>(self) -> bool {
        D::FUSED && !self.composed
    }

    /// Whether a model runs as one operation on the tape. Operations are one each where their results are observed, or weights recorded.
    pub fn is_one_operation<E: Element, D: Backend<E>>(self) -> bool {
        self.is_fused::<E, D>() && self.observer.is_none() && self.recorder.is_none()
    }

    /// The output of an attention. The recorder gets its weights, if there is one.
    ///
    /// # Errors
    /// The error of the layer.
    pub fn output<Output, Weights: AttentionWeights, Lse, Dev>(
        self,
        attended: Result<Attended<Output, Weights, Lse>, Error<Dev>>,
    ) -> Result<Output, Error<Dev>> {
        let attended = attended?;
        self.record(&attended);
        Ok(attended.output)
    }

    /// The recorder gets the weights of an attention, if there is one.
    pub(crate) fn record<Output, Weights: AttentionWeights, Lse>(
        self,
        attended: &Attended<Output, Weights, Lse>,
    ) {
        if let (Some(recorder), Some(weights)) = (self.recorder, &attended.weights) {
            recorder.record(weights);
        }
    }
}
