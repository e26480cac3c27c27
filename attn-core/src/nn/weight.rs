//! A named parameter.

use dfdx::{
    dtypes::Dtype,
    shapes::Shape,
    tensor::{AutoDevice, Storage, Tensor},
};

/// A learned tensor beside the [`Linear`](super::Linear) layers of an attention layer: the gain of a norm, the vector of an additive
/// score, a table of position biases. It is saved as `<field>.weight`.
///
/// Its initial values depend on its purpose, so the layer sets them.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Weight};
///
/// let dev = Cpu::default();
/// let gain: Weight<Rank1<64>> = Weight { weight: dev.ones() };
/// assert_eq!(gain.weight.array(), [1.0; 64]);
/// ```
#[derive(Clone, Debug)]
pub struct Weight<S: Shape, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// The tensor.
    pub weight: Tensor<S, E, D>,
}
