//! Attention with an array for `lse`, the number of every query that the backward pass reads again.

use super::Array;
use crate::kernel::attention::{Attention, Gradients, Heads, OutputGradients, Outputs};
use crate::kernel::{Kernels, Matrix};

impl<E: Kernels> Attention<'_, E> {
    /// [`forward`](Self::forward). Returns the `lse` of all queries, `[batch heads, query]`, for the derivative.
    ///
    /// # Panics
    /// If the shapes are not those of the sizes.
    pub fn forward_with_lse<'a>(
        &self,
        q: impl Into<Heads<Matrix<'a, E>>>,
        k: impl Into<Heads<Matrix<'a, E>>>,
        v: impl Into<Heads<Matrix<'a, E>>>,
        out: impl Into<Outputs<'a, E>>,
    ) -> Array<E>
    where
        E: 'a,
    {
        let sizes = self.sizes;
        let mut lse = Array::uninit(sizes.batch * sizes.heads, [sizes.query]);
        self.forward(q, k, v, out, lse.as_mut_slice());
        lse
    }

    /// [`backward`](Self::backward). It frees `lse`, which nothing reads after it.
    ///
    /// # Panics
    /// If the shapes are not those of the sizes.
    #[allow(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "the tensors of the forward pass, and one more; the memory of `lse` goes back here"
    )]
    pub fn backward_with_lse<'a>(
        &self,
        q: impl Into<Heads<Matrix<'a, E>>>,
        k: impl Into<Heads<Matrix<'a, E>>>,
        v: impl Into<Heads<Matrix<'a, E>>>,
        out: impl Into<Heads<Matrix<'a, E>>>,
        lse: Array<E>,
        d_out: impl Into<OutputGradients<'a, E>>,
        d: Gradients<'_, E>,
    ) where
        E: 'a,
    {
        self.backward(q, k, v, out, lse.as_slice(), d_out, d);
    }
}
