//! The options of a forward pass, and its result.

use std::fmt::{Debug, Display};

use super::{AttentionWeights, Observer, Recorder};
use crate::{Backend, Element, Error};

/// The options of a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct ForwardOptions<'a> {
    /// Whether dropout is active, if the input is traced.
    pub train: bool,
    /// Whether to use the composed form on every device. It returns the weights.
    pub composed: bool,
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
        recorder: None,
        observer: None,
    };

    /// While training.
    pub const TRAIN: Self = Self {
        train: true,
        composed: false,
        recorder: None,
        observer: None,
    };

    /// Without dropout, with the weights. The composed form has them.
    pub const WITH_WEIGHTS: Self = Self::COMPOSED;

    /// While training, with the weights. The composed form has them.
    pub const TRAIN_WITH_WEIGHTS: Self = Self {
        train: true,
        ..Self::COMPOSED
    };

    /// Without dropout, in the composed form.
    pub const COMPOSED: Self = Self {
        train: false,
        composed: true,
        recorder: None,
        observer: None,
    };

    /// Whether a layer runs in its fused form.
    pub fn is_fused<E: Element, D: Backend<E>>(self) -> bool {
        D::FUSED && !self.composed
    }

    /// Whether a model runs as one operation on the tape. Operations that are observed are one each.
    pub fn is_one_operation<E: Element, D: Backend<E>>(self) -> bool {
        self.is_fused::<E, D>() && self.observer.is_none()
    }

    /// The output of an attention. The recorder gets its weights, if there is one.
    ///
    /// # Errors
    /// The error of the layer.
    pub fn output<Output, Weights: AttentionWeights, Dev>(
        self,
        attended: Result<OutputAndWeights<Output, Weights>, Error<Dev>>,
    ) -> Result<Output, Error<Dev>> {
        let (output, weights) = attended?;
        if let (Some(recorder), Some(weights)) = (self.recorder, &weights) {
            recorder.record(weights);
        }
        Ok(output)
    }
}

/// The result of a layer: the output, and the weights in the composed form.
pub type OutputAndWeights<Output, Weights> = (Output, Option<Weights>);

/// The output alone.
///
/// # Errors
/// The error of the layer.
pub fn output<Output, Weights, Dev>(
    attended: Result<OutputAndWeights<Output, Weights>, Error<Dev>>,
) -> Result<Output, Error<Dev>> {
    attended.map(|(output, _)| output)
}

/// The output alone, or the error of the device, for dfdx's traits.
///
/// # Errors
/// The error of the device.
///
/// # Panics
/// On every other error of the layer.
#[track_caller]
pub fn into_device<Output, Weights, Dev: Debug + Display>(
    attended: Result<OutputAndWeights<Output, Weights>, Error<Dev>>,
) -> Result<Output, Dev> {
    output(attended).map_err(Error::into_device)
}

/// The output and the weights of [`ForwardOptions::WITH_WEIGHTS`] and [`ForwardOptions::TRAIN_WITH_WEIGHTS`].
///
/// # Errors
/// The error of the layer.
///
/// # Panics
/// If the layer ran with other options.
pub fn with_weights<Output, Weights, Dev>(
    attended: Result<OutputAndWeights<Output, Weights>, Error<Dev>>,
) -> Result<(Output, Weights), Error<Dev>> {
    let (output, weights) = attended?;
    Ok((output, weights.expect("the options ask for weights")))
}
