//! The entry points of attention.

use super::{Attention, Gradients, Heads, KeySource, OutputGradients, Outputs};
use crate::kernel::Matrix;
use crate::kernel::compiled::compiled;

impl<E: AttentionKernels<E>> Attention<'_, E> {
    /// The output, and for [`backward`](Self::backward) a number `lse` for every query: what its weights are normalised by.
    ///
    /// - [`Softmax`]: the logarithm of the sum of `exp(score)` over the keys that the query attends to; [`Softmax1`] and [`Sink`]
    ///   add 1 and `exp(sink)` to the sum.
    /// - [`Sparsemax`] and [`Entmax15`]: the threshold `τ`.
    /// - [`Identity`]: 0, as it has none.
    ///
    /// A query that attends to no key has the output 0. Its `lse` is -∞ if the sum or the set of scores is empty. A key that a
    /// query does not attend to does not affect any bit of its output, even if it is NaN.
    ///
    /// `lse`: `[batch, heads, query]`.
    ///
    /// # Panics
    /// If the shapes are not those of the sizes.
    ///
    /// [`Softmax`]: super::Normalizer::Softmax
    /// [`Softmax1`]: super::Normalizer::Softmax1
    /// [`Sink`]: super::Normalizer::Sink
    /// [`Sparsemax`]: super::Normalizer::Sparsemax
    /// [`Entmax15`]: super::Normalizer::Entmax15
    /// [`Identity`]: super::Normalizer::Identity
    pub fn forward<'a>(
        &self,
        q: impl Into<Heads<Matrix<'a, E>>>,
        k: impl Into<KeySource<'a, E>>,
        v: impl Into<KeySource<'a, E>>,
        out: impl Into<Outputs<'a, E>>,
        lse: &mut [E],
    ) where
        E: 'a,
    {
        forward(self, q.into(), k.into(), v.into(), out.into(), lse);
    }

    /// Computes the gradients from that of the output: the derivative of [`forward`](Self::forward), which wrote `out` and `lse`.
    ///
    /// A pair of a query and a masked key has no effect, even if one of the two, or the gradient of the query's output, is NaN.
    ///
    /// # Panics
    /// If the shapes are not those of the sizes.
    #[allow(
        clippy::too_many_arguments,
        reason = "the tensors of the forward pass, and one more"
    )]
    pub fn backward<'a>(
        &self,
        q: impl Into<Heads<Matrix<'a, E>>>,
        k: impl Into<Heads<Matrix<'a, E>>>,
        v: impl Into<Heads<Matrix<'a, E>>>,
        out: impl Into<Heads<Matrix<'a, E>>>,
        lse: &[E],
        d_out: impl Into<OutputGradients<'a, E>>,
        d: Gradients<'_, E>,
    ) where
        E: 'a,
    {
        let [q, k] = [q.into(), k.into()];
        let [v, out] = [v.into(), out.into()];
        backward(self, q, k, v, out, lse, d_out.into(), d);
    }
}

compiled! {
    AttentionKernels:

    /// [`Attention::forward`]
    fn forward<E>(
        attention: &Attention<'_, E>,
        q: Heads<Matrix<'_, E>>,
        k: KeySource<'_, E>,
        v: KeySource<'_, E>,
        out: Outputs<'_, E>,
        lse: &mut [E],
    ) {
        attention.forward_impl(q, k, v, out, lse);
    }

    /// [`Attention::backward`]
    #[allow(
        clippy::too_many_arguments,
        reason = "the tensors of the forward pass, and one more"
    )]
    fn backward<E>(
        attention: &Attention<'_, E>,
        q: Heads<Matrix<'_, E>>,
        k: Heads<Matrix<'_, E>>,
        v: Heads<Matrix<'_, E>>,
        out: Heads<Matrix<'_, E>>,
        lse: &[E],
        d_out: OutputGradients<'_, E>,
        d: Gradients<'_, E>,
    ) {
        attention.backward_impl(q, k, v, out, lse, d_out, d);
    }
}
