//! A vector per token.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::{Const, Rank2},
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error, init,
    ops::{Append, try_embedding},
    unwrap,
};

/// A learned vector of `M` numbers for each of `V` tokens. One operation of the tape.
///
/// PyTorch: `torch.nn.Embedding(V, M)`, with its name and initial values. Its input are the ids of the tokens, which bring
/// the tape. For an output that shares the table (Press and Wolf, "Using the output embedding to improve language models",
/// 2016), call [`ops::linear`](crate::ops::linear) with its `weight`.
///
/// | | shape | at first |
/// | --- | --- | --- |
/// | input | `[..]` of `usize`, of up to three axes | |
/// | output | `[.., M]` | |
/// | `weight` | `[V, M]` | normal with standard deviation 1 |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Embedding};
///
/// let dev = Cpu::default();
/// let embedding = dev.build_module::<Embedding<65, 8>, f32>();
/// let ids: Tensor<(usize, usize), usize, _> = dev.tensor_from_vec(vec![1, 2, 3, 70], (2, 2));
/// let error = embedding.try_forward(ids).unwrap_err();
/// assert_eq!(error.to_string(), "embedding: the id at [1, 1] is 70, but there are 65: 0 to 64");
///
/// let ids: Tensor<Rank1<3>, usize, _> = dev.tensor([64, 0, 64]);
/// let y: Tensor<Rank2<3, 8>, f32, _> = embedding.forward(ids);
/// ```
#[doc(alias = "wte")]
#[derive(Clone, Debug)]
pub struct Embedding<const V: usize, const M: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// A vector per token.
    pub weight: Tensor<Rank2<V, M>, E, D>,
}

impl<const V: usize, const M: usize, E: Dtype, D: Storage<E>> Embedding<V, M, E, D> {
    /// How many numbers it learns.
    pub const PARAMS: usize = V * M;
}

impl<const V: usize, const M: usize, E: Element, D: Backend<E>> Embedding<V, M, E, D> {
    /// The vectors of tokens, `[..]` to `[.., M]`.
    ///
    /// # Panics
    /// Where [`try_forward`](Self::try_forward) has an error.
    #[track_caller]
    pub fn forward<S: Append, T: Tape<E, D>>(
        &self,
        ids: Tensor<S, usize, D, T>,
    ) -> Tensor<S::With<Const<M>>, E, D, T> {
        unwrap(self.try_forward(ids))
    }

    /// The vectors of tokens, `[..]` to `[.., M]`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if an id is not below `V`; [`Error::TooLarge`] if the sizes do not fit the memory;
    /// [`Error::Device`] if dfdx fails.
    pub fn try_forward<S: Append, T: Tape<E, D>>(
        &self,
        ids: Tensor<S, usize, D, T>,
    ) -> Result<Tensor<S::With<Const<M>>, E, D, T>, Error<D::Err>> {
        try_embedding(ids, &self.weight)
    }
}

/// In a tuple of layers, where the error is dfdx's: an id that is too large panics, with the message of the error.
impl<const V: usize, const M: usize, S, E, D, T> Module<Tensor<S, usize, D, T>>
    for Embedding<V, M, E, D>
where
    S: Append,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S::With<Const<M>>, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, ids: Tensor<S, usize, D, T>) -> Result<Self::Output, D::Err> {
        Self::try_forward(self, ids).map_err(Error::into_device)
    }
}

impl<const V: usize, const M: usize, E: Dtype, D: Storage<E>> NonMutableModule
    for Embedding<V, M, E, D>
{
}

impl<const V: usize, const M: usize, E: Element, D: Device<E>> TensorCollection<E, D>
    for Embedding<V, M, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = Embedding<V, M, E2, D2>;

    fn iter_tensors<W: ModuleVisitor<Self, E, D>>(
        visitor: &mut W,
    ) -> Result<Option<Self::To<W::E2, W::D2>>, W::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::matrix(t, |t| init::normal(t, 1.0))),
            ),
            |weight| Embedding { weight },
        )
    }
}

/// `E0` and `D0` are what the name stands for where it is only a name, as in a `type Model = (..)`.
impl<const V: usize, const M: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>>
    BuildOnDevice<D, E> for Embedding<V, M, E0, D0>
{
    type Built = Embedding<V, M, E, D>;
}
