//! A tensor without its gradient.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{PutTape, Tape, Tensor, TensorFromVec},
};

use crate::{
    Backend, Element, Error, composed::depend, data::values, model::Pass, ops::twins::twins,
};

twins! {
    /// The same numbers, through which no gradient flows. The result has the tape of `x`.
    ///
    /// PyTorch: `x.detach()`, as a copy.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::{detach, mul}};
    ///
    /// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([2.0, 3.0]);
    /// let y = detach(x.leaky_trace());
    /// assert_eq!(y.array(), [2.0, 3.0]);
    ///
    /// // The derivative of `x * c`, where `c` happens to be `x`.
    /// let gradients = mul(x.leaky_trace(), detach(x.leaky_trace())).sum().backward();
    /// assert_eq!(gradients.get(&x).array(), [2.0, 3.0]);
    /// ```
    #[doc(alias("stop_gradient", "no_grad"))]
    fn detach, try_detach, detach_with_form<S: Shape>(x);
}

/// [`try_detach`], which is one in both forms.
fn detach_with_form<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    _: bool,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    let numbers = values(&x.retaped::<dfdx::tensor::NoneTape>());
    let y: Tensor<S, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(x.device(), numbers, *x.shape())?;
    Ok(y.put_tape(depend(x)))
}

impl<T> Pass<'_, T> {
    /// The same numbers, through which no gradient flows: [`detach`].
    ///
    /// # Errors
    /// The errors of [`try_detach`].
    pub fn detach<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, detach_with_form)
    }
}
