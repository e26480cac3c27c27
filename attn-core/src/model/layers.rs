//! The modules of [`nn`](crate::nn) in a pass.

use dfdx::{
    shapes::{Const, Dim},
    tensor::{Tape, Tensor, TensorFromVec},
};

use super::{Pass, check_length};
use crate::{
    Backend, Element, Error,
    nn::{Embedding, FeedForward, GatedFeedForward, LayerNorm, LearnedPosition, RmsNorm},
    ops::{self, Activation, Affine, Append, EndsIn, LastAxis},
};

impl<T> Pass<'_, T> {
    /// The vectors of tokens, `[..]` to `[.., M]`: [`ops::embedding`].
    ///
    /// # Errors
    /// As [`ops::try_embedding`].
    pub fn embedding<S: Append, const V: usize, const M: usize, E: Element, D: Backend<E>>(
        &mut self,
        ids: &Tensor<S, usize, D>,
        layer: &Embedding<V, M, E, D>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(ids, |fused, ids| {
            ops::embedding_in(fused, ids, &layer.weight)
        })
    }

    /// `x Wᵀ + b`, `[.., I]` to `[.., O]`: [`ops::linear`] with the parameters of a [`Linear`](crate::nn::Linear) or an
    /// [`UnbiasedLinear`](crate::nn::UnbiasedLinear).
    ///
    /// # Errors
    /// As [`ops::try_linear`].
    pub fn linear<'a, S, const I: usize, const O: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: impl Into<Affine<'a, I, O, E, D>>,
    ) -> Result<Tensor<S::With<Const<O>>, E, D>, Error<D::Err>>
    where
        S: EndsIn<I>,
        T: Tape<E, D>,
    {
        let Affine { weight, bias } = layer.into();
        self.run(x, |fused, x| ops::linear_in(fused, x, weight, bias))
    }

    /// `x Wᵀ` with the table of an embedding, `[.., M]` to `[.., V]`: [`ops::linear`].
    ///
    /// Press and Wolf, "Using the output embedding to improve language models" (2016).
    ///
    /// # Errors
    /// As [`ops::try_linear`].
    pub fn tied_linear<S, const V: usize, const M: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &Embedding<V, M, E, D>,
    ) -> Result<Tensor<S::With<Const<V>>, E, D>, Error<D::Err>>
    where
        S: EndsIn<M>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| ops::linear_in(fused, x, &layer.weight, None))
    }

    /// Normalised vectors, `[.., M]`: [`ops::layer_norm`].
    ///
    /// # Errors
    /// As [`ops::try_layer_norm`].
    ///
    /// # Panics
    /// As [`ops::try_layer_norm`].
    #[track_caller]
    pub fn layer_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &LayerNorm<M, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            ops::layer_norm_in(fused, x, &layer.weight, &layer.bias, layer.epsilon)
        })
    }

    /// Normalised vectors, `[.., M]`: [`ops::rms_norm`].
    ///
    /// # Errors
    /// As [`ops::try_rms_norm`].
    ///
    /// # Panics
    /// As [`ops::try_rms_norm`].
    #[track_caller]
    pub fn rms_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &RmsNorm<M, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            ops::rms_norm_in(fused, x, &layer.weight, layer.epsilon)
        })
    }

    /// Two maps and a nonlinearity between them, `[.., M]` to `[.., M]`: [`ops::feed_forward`].
    ///
    /// # Errors
    /// As [`ops::try_feed_forward`].
    pub fn feed_forward<S, const M: usize, const H: usize, A, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &FeedForward<M, H, A, E, D>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D>, Error<D::Err>>
    where
        A: Activation,
        S: EndsIn<M>,
        T: Tape<E, D>,
    {
        let (up, down) = (layer.up_proj.affine(), layer.down_proj.affine());
        self.run(x, |fused, x| {
            ops::feed_forward_in::<A, S, M, H, M, E, D, T>(fused, x, up, down)
        })
    }

    /// A gated feed-forward layer, `[.., M]` to `[.., M]`: [`ops::gated_feed_forward`].
    ///
    /// # Errors
    /// As [`ops::try_gated_feed_forward`].
    pub fn gated_feed_forward<S, const M: usize, const H: usize, A, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &GatedFeedForward<M, H, A, E, D>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D>, Error<D::Err>>
    where
        A: Activation,
        S: EndsIn<M>,
        T: Tape<E, D>,
    {
        let (gate, up) = (layer.gate_proj.affine(), layer.up_proj.affine());
        let down = layer.down_proj.affine();
        self.run(x, |fused, x| {
            ops::gated_feed_forward_in::<A, S, M, H, M, E, D, T>(fused, x, gate, up, down)
        })
    }

    /// The learned vectors of the positions of the axes `[.., seq]`, `[.., seq, W]`: [`ops::embedding`] of `0, 1, ..`.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the sequence is longer than `MAX`; [`Error::TooLarge`] if the sizes do not fit the memory;
    /// [`Error::Device`] if dfdx fails.
    pub fn learned_position<S, const MAX: usize, const W: usize, E: Element, D: Backend<E>>(
        &mut self,
        axes: S,
        layer: &LearnedPosition<MAX, W, E, D>,
    ) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, Error<D::Err>>
    where
        S: Append + LastAxis,
        T: Tape<E, D>,
    {
        let length = axes.last().size();
        check_length(length, MAX)?;
        ops::check_shape("LearnedPosition", &axes.append(Const::<W>))?;
        let positions = (0..axes.num_elements()).map(|place| place % length);
        let device = layer.weight.device();
        let positions =
            TensorFromVec::<usize>::try_tensor_from_vec(device, positions.collect(), axes)?;
        self.run(&positions, |fused, positions| {
            ops::embedding_in(fused, positions, &layer.weight)
        })
    }
}
