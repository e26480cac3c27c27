//! Dropout.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleMut, ModuleVisitor, TensorCollection},
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    kernel::{
        dropout as kernel,
        loops::{self, known::Copy},
    },
    model::Pass,
    ops::{check_shape, elementwise::elementwise_backward},
    random::RandomU64,
    unwrap,
};

/// If `x` has a tape, sets each element to 0 with probability `p`, and multiplies the others by `1 / (1 - p)`. Without a tape, returns
/// `x` unchanged.
///
/// Srivastava et al., "Dropout" (2014). PyTorch: `torch.nn.functional.dropout(x, p)`. The selection is a function of the index of an
/// element and of a random number from the device. So the seed of the device determines it, and no mask is saved. Elements of a
/// broadcast tensor are selected independently.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::dropout};
///
/// let x: Tensor<Rank1<1000>, f32, _> = Cpu::default().ones();
/// let y = dropout(x.leaky_trace(), 0.5).array();
/// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
/// assert_eq!(dropout(x, 0.5).array(), [1.0; 1000]);
/// ```
///
/// # Panics
/// If [`try_dropout`] returns an error, or if `p` is not between 0 and 1.
#[track_caller]
pub fn dropout<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    p: f64,
) -> Tensor<S, E, D, T> {
    unwrap(try_dropout(x, p))
}

/// The fallible version of [`dropout`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `p` is not between 0 and 1.
#[track_caller]
pub fn try_dropout<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    p: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    dropout_with_form(D::FUSED, x, p)
}

/// [`try_dropout`] in the fused or the composed form.
#[track_caller]
pub(crate) fn dropout_with_form<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    p: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert!((0.0..=1.0).contains(&p), "{p} is not a probability");
    check_shape("dropout", x.shape())?;
    if !T::OWNS_TAPE || p == 0.0 {
        return Ok(x);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let seed = RandomU64::random_u64(&device);
    if !fused {
        return Ok(composed::dropout(x, p, seed)?);
    }
    let mut operation = Operation::default();
    let dropout = kernel::Dropout::new(p, Some(seed));
    let x = operation.read(x)?;
    let mut y = zeros(x.values().len());
    loops::compute(&Copy, [dropout.of(x.values())], [y.as_mut_slice().into()]);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        elementwise_backward(
            &Copy,
            [dropout.of(d_y)],
            [&mut GradTarget::slot(d_x)],
            gradients,
        )
    })?)
}

/// In training, sets each element to 0 with probability `p`, and multiplies the others by `1 / (1 - p)`. Training is `forward_mut` with
/// a traced input; otherwise the input is returned unchanged. See [`ops::dropout`](crate::ops::dropout).
///
/// Srivastava et al., "Dropout" (2014). PyTorch: `torch.nn.Dropout(p)` in training mode. Unlike dfdx's dropout, it can be called with
/// and without a tape, so the same model can train, be evaluated with gradients, and predict.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Dropout};
///
/// let x: Tensor<Rank1<4>, f32, _> = Cpu::default().ones();
/// let mut dropout = Dropout { p: 1.0 };
/// assert_eq!(dropout.forward(x.clone()).array(), [1.0; 4]);
/// assert_eq!(dropout.forward_mut(x.clone()).array(), [1.0; 4]);
/// assert_eq!(dropout.forward_mut(x.leaky_traced()).array(), [0.0; 4]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability, from 0 to 1. It is initially 0.1, as in Vaswani et al., "Attention is all you need" (2017). It is not saved, and a
    /// copy on another device or of another type starts with 0.1 again.
    pub p: f32,
}

impl Default for Dropout {
    fn default() -> Self {
        Self { p: 0.1 }
    }
}

impl<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>> Module<Tensor<S, E, D, T>> for Dropout {
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        Ok(x)
    }
}

impl<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>> ModuleMut<Tensor<S, E, D, T>> for Dropout {
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward_mut(&mut self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        try_dropout(x, self.p.into()).map_err(Error::into_device)
    }
}

impl<E: Dtype, D: Device<E>> TensorCollection<E, D> for Dropout {
    type To<E2: Dtype, D2: Device<E2>> = Self;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(visitor: &mut V) -> Result<Option<Self>, V::Err> {
        visitor.visit_fields((), |()| Self::default())
    }
}

impl<E: Dtype, D: Device<E>> BuildOnDevice<D, E> for Dropout {
    type Built = Self;
}

impl<T> Pass<'_, T> {
    /// Dropout with probability `p` in training: [`dropout`].
    ///
    /// # Errors
    /// The errors of [`try_dropout`].
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    pub fn dropout<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        p: f64,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        let p = if self.train() { p } else { 0.0 };
        self.run(x, |fused, x| dropout_with_form(fused, x, p))
    }
}

/// The composed form, with dfdx's operations.
pub(crate) mod composed {
    use dfdx::{
        shapes::{HasShape, Shape},
        tensor::{Tape, Tensor, TensorFromVec},
        tensor_ops::{Device, TryMul},
    };

    use crate::{Element, random::Philox4x32};

    /// [`dropout`](super::dropout) with this seed.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn dropout<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        p: f64,
        seed: u64,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let shape = *x.shape();
        let factors = dropout_factors(shape.num_elements(), p, seed);
        let factors: Tensor<S, E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(x.device(), factors, shape)?;
        x.try_mul(factors)
    }

    /// 0 or `1 / (1 - p)` for each element, which uses one word of a random block of four.
    fn dropout_factors<E: Element>(count: usize, p: f64, seed: u64) -> Vec<E> {
        let random = Philox4x32::new(seed);
        // p * 2^32 of the 2^32 words are below the threshold.
        let threshold = p * 2f64.powi(32);
        let factor = |i: usize| {
            let block = i as u64 / 4;
            let words = random.block([block as u32, (block >> 32) as u32, 0, 0]);
            let falls = f64::from(words[i % 4]) < threshold;
            if falls { 0.0 } else { 1.0 / (1.0 - p) }
        };
        (0..count).map(|i| E::of(factor(i))).collect()
    }
}
