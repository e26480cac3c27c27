//! Affine maps.

use dfdx::{
    dtypes::Dtype,
    nn::{
        BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions,
        tensor_collection::ModuleFields,
    },
    shapes::{Const, HasShape, Rank1, Rank2, Shape},
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error,
    fused::{Operation, Output, Projection, ProjectionBuilder, ProjectionLayer},
    init,
    model::{Pass, weighted},
    ops::{EndsIn, check_shape, embedding::Embedding},
    unwrap,
};

/// `y = x Wᵀ + b`, for `x [.., I]`, `weight [O, I]`, `bias [O]` and `y [.., O]`.
///
/// PyTorch: `torch.nn.functional.linear(x, weight, bias)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::linear};
///
/// let dev = Cpu::default();
/// let x: Tensor<(usize, Const<2>), f32, _> = dev.tensor_from_vec(vec![1.0, 2.0, 3.0, 4.0], (2, Const));
/// let weight = dev.tensor([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]]);
/// let bias = dev.tensor([0.0, 0.0, 1.0]);
/// let y = linear(x, &weight, Some(&bias));
/// assert_eq!(y.as_vec(), [3.0, -1.0, 5.0, 7.0, -1.0, 9.0]);
/// ```
///
/// # Panics
/// If [`try_linear`] returns an error.
#[track_caller]
pub fn linear<S, const I: usize, const O: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
) -> Tensor<S::With<Const<O>>, E, D, T>
where
    S: EndsIn<I>,
{
    unwrap(try_linear(x, weight, bias))
}

/// The fallible version of [`linear`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_linear<S, const I: usize, const O: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
{
    linear_with_form(D::FUSED, x, weight, bias)
}

/// [`try_linear`] in the fused or the composed form.
pub(crate) fn linear_with_form<
    S,
    const I: usize,
    const O: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
{
    let shape = x.shape().with_last(Const::<O>);
    check_shape("linear", x.shape())?;
    check_shape("linear", &shape)?;
    if !fused {
        return Ok(composed::linear(x, weight, bias)?);
    }
    let device = x.device().clone();
    let rows = x.shape().leading().num_elements();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let map = ProjectionBuilder::new(I)
        .push(&mut operation, weight, bias)?
        .read(&mut operation);
    let mut y = Output::zeros(rows, O);
    map.forward(x.matrix(), y.view_mut());
    Ok(
        operation.finish_matrix(&device, y, shape, move |d_y, gradients| {
            map.backward(x.matrix(), d_y, &mut x.target(), gradients)
        })?,
    )
}

/// `y = x Wᵀ + b`, from vectors of `I` numbers to vectors of `O` numbers. One operation on the tape.
///
/// PyTorch: `torch.nn.Linear(I, O)`, with its names and initial values.
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | input | `[.., I]`, of one to four axes | |
/// | output | `[.., O]` | |
/// | `weight` | `[O, I]` | uniform in `±1 / sqrt(I)` |
/// | `bias` | `[O]` | uniform in `±1 / sqrt(I)` |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::{Gelu, Linear}};
///
/// type Model = (Linear<8, 32>, Gelu, Linear<32, 8>);
///
/// let dev = Cpu::default();
/// let model = dev.build_module::<Model, f32>();
/// let x: Tensor<(usize, usize, Const<8>), f32, _> = dev.sample_normal_like(&(2, 5, Const));
/// let y: Tensor<(usize, usize, Const<8>), f32, _> = model.forward(x);
/// ```
#[doc(alias = "Dense")]
#[derive(Clone, Debug)]
pub struct Linear<const I: usize, const O: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// The matrix.
    pub weight: Tensor<Rank2<O, I>, E, D>,
    /// The bias.
    pub bias: Tensor<Rank1<O>, E, D>,
}

/// `y = x Wᵀ`: [`Linear`] without a bias.
///
/// PyTorch: `torch.nn.Linear(I, O, bias=False)`, with its name and initial values.
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | input | `[.., I]`, of one to four axes | |
/// | output | `[.., O]` | |
/// | `weight` | `[O, I]` | uniform in `±1 / sqrt(I)` |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::UnbiasedLinear};
///
/// let dev = Cpu::default();
/// let head = dev.build_module::<UnbiasedLinear<8, 65>, f32>();
/// let logits: Tensor<Rank1<65>, f32, _> = head.forward(dev.zeros::<Rank1<8>>());
/// assert_eq!(logits.array(), [0.0; 65]);
/// ```
#[derive(Clone, Debug)]
pub struct UnbiasedLinear<
    const I: usize,
    const O: usize,
    E: Dtype = f32,
    D: Storage<E> = AutoDevice,
> {
    /// The matrix.
    pub weight: Tensor<Rank2<O, I>, E, D>,
}

/// The parameters of an affine map from `I` to `O` numbers.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a, const I: usize, const O: usize, E: Dtype, D: Storage<E>> {
    /// `[O, I]`
    pub weight: &'a Tensor<Rank2<O, I>, E, D>,
    /// `[O]`
    pub bias: Option<&'a Tensor<Rank1<O>, E, D>>,
}

/// `Module: |module| bias, number of parameters;`
macro_rules! affine {
    ($($Module:ident: |$module:ident| $bias:expr, $params:expr;)*) => {$(
        impl<const I: usize, const O: usize, E: Dtype, D: Storage<E>> $Module<I, O, E, D> {
            /// The number of parameters.
            pub const PARAMS: usize = $params;

            /// The parameters, for operations such as [`feed_forward`](crate::ops::feed_forward).
            pub fn affine(&self) -> Affine<'_, I, O, E, D> {
                let $module = self;
                Affine {
                    weight: &self.weight,
                    bias: $bias,
                }
            }
        }

        impl<'a, const I: usize, const O: usize, E: Dtype, D: Storage<E>>
            From<&'a $Module<I, O, E, D>> for Affine<'a, I, O, E, D>
        {
            fn from(module: &'a $Module<I, O, E, D>) -> Self {
                module.affine()
            }
        }

        impl<const I: usize, const O: usize, E: Element, D: Backend<E>, T: Tape<E, D>>
            ProjectionLayer<E, D, T> for $Module<I, O, E, D>
        {
            fn input(&self) -> usize {
                I
            }

            fn push_to(
                &self,
                stack: ProjectionBuilder<E, D>,
                operation: &mut Operation<E, D, T>,
            ) -> Result<ProjectionBuilder<E, D>, D::Err> {
                let Affine { weight, bias } = self.affine();
                stack.push(operation, weight, bias)
            }
        }

        impl<const I: usize, const O: usize, S, E, D, T> Module<Tensor<S, E, D, T>>
            for $Module<I, O, E, D>
        where
            S: EndsIn<I>,
            E: Element,
            D: Backend<E>,
            T: Tape<E, D>,
        {
            type Output = Tensor<S::With<Const<O>>, E, D, T>;
            type Error = D::Err;

            fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
                let Affine { weight, bias } = self.affine();
                try_linear(x, weight, bias).map_err(Error::into_device)
            }
        }

        impl<const I: usize, const O: usize, E: Dtype, D: Storage<E>> NonMutableModule
            for $Module<I, O, E, D>
        {
        }

        /// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
        impl<const I: usize, const O: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>>
            BuildOnDevice<D, E> for $Module<I, O, E0, D0>
        {
            type Built = $Module<I, O, E, D>;
        }

        weighted! {
            [const I: usize, const O: usize] $Module<I, O, E, D>:
                Projection<E>, |layer, operation| operation.projection(&[layer])?;
        }
    )*};
}

affine! {
    Linear: |linear| Some(&linear.bias), O * I + O;
    UnbiasedLinear: |_linear| None, O * I;
}

/// The bound of the initial values: that of PyTorch's `kaiming_uniform_(a=sqrt(5))`.
pub(super) fn bound(inputs: usize) -> f64 {
    1.0 / (inputs.max(1) as f64).sqrt()
}

impl<const I: usize, const O: usize, E: Element, D: Device<E>> TensorCollection<E, D>
    for Linear<I, O, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = Linear<I, O, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visit_linear(
            visitor,
            ["weight", "bias"],
            |s| s,
            |s| s,
            |t| init::weight(t, |t| init::uniform(t, bound(I))),
            |t| init::uniform(t, bound(I)),
        )
    }
}

/// Visits the weight and the bias of a [`Linear`] under these names. It is the module `M` itself or a field of it.
pub(crate) fn visit_linear<M, V, const I: usize, const O: usize, E: Element, D: Device<E>>(
    visitor: &mut V,
    names: [&str; 2],
    get: impl Fn(&M) -> &Linear<I, O, E, D>,
    get_mut: impl Fn(&mut M) -> &mut Linear<I, O, E, D>,
    reset_weight: fn(&mut Tensor<Rank2<O, I>, E, D>) -> Result<(), D::Err>,
    reset_bias: fn(&mut Tensor<Rank1<O>, E, D>) -> Result<(), D::Err>,
) -> Result<Option<Linear<I, O, V::E2, V::D2>>, V::Err>
where
    M: TensorCollection<E, D>,
    V: ModuleVisitor<M, E, D>,
{
    let fields = (
        M::tensor(
            names[0],
            |m| &get(m).weight,
            |m| &mut get_mut(m).weight,
            TensorOptions::reset_with(reset_weight),
        ),
        M::tensor(
            names[1],
            |m| &get(m).bias,
            |m| &mut get_mut(m).bias,
            TensorOptions::reset_with(reset_bias),
        ),
    );
    match fields.visit_fields(visitor)? {
        (Some(weight), Some(bias)) => Ok(Some(Linear { weight, bias })),
        _ => Ok(None),
    }
}

impl<const I: usize, const O: usize, E: Element, D: Device<E>> TensorCollection<E, D>
    for UnbiasedLinear<I, O, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = UnbiasedLinear<I, O, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::weight(t, |t| init::uniform(t, bound(I)))),
            ),
            |weight| UnbiasedLinear { weight },
        )
    }
}

impl<T> Pass<'_, T> {
    /// `x Wᵀ + b`, `[.., I]` to `[.., O]`: [`linear`] with the parameters of a [`Linear`](crate::nn::Linear) or an
    /// [`UnbiasedLinear`](crate::nn::UnbiasedLinear).
    ///
    /// # Errors
    /// The errors of [`try_linear`].
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
        self.run(x, |fused, x| linear_with_form(fused, x, weight, bias))
    }

    /// `x Wᵀ` with the table of an embedding, `[.., M]` to `[.., V]`: [`linear`].
    ///
    /// Press and Wolf, "Using the output embedding to improve language models" (2016).
    ///
    /// # Errors
    /// The errors of [`try_linear`].
    pub fn tied_linear<S, const V: usize, const M: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &Embedding<V, M, E, D>,
    ) -> Result<Tensor<S::With<Const<V>>, E, D>, Error<D::Err>>
    where
        S: EndsIn<M>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            linear_with_form(fused, x, &layer.weight, None)
        })
    }
}

/// The composed form, with dfdx's operations.
pub(crate) mod composed {
    use dfdx::{
        shapes::{Axes2, Const, Dim, HasShape, Rank1, Rank2, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::{BroadcastTo, Device, PermuteTo, TryAdd, TryMatMul},
    };

    use super::Affine;
    use crate::{
        Element,
        composed::{contiguous, is_empty, reshape, zeros_after_both},
        ops::EndsIn,
    };

    /// [`linear`](super::linear)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn linear<S, const I: usize, const O: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        weight: &Tensor<Rank2<O, I>, E, D>,
        bias: Option<&Tensor<Rank1<O>, E, D>>,
    ) -> Result<Tensor<S::With<Const<O>>, E, D, T>, D::Err>
    where
        S: EndsIn<I>,
    {
        let shape = *x.shape();
        let x = reshape(x, (Const::<1>, shape.leading().num_elements(), Const))?;
        let by = Affine { weight, bias };
        reshape(project(x, by)?, shape.with_last(Const::<O>))
    }

    /// [`linear`] for a projection of an attention layer: `[batch, len, input]` to `[batch, len, output]`.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn project<
        'a,
        B: Dim,
        S: Dim,
        const I: usize,
        const O: usize,
        E: Element,
        D: Device<E>,
        T: Tape<E, D>,
    >(
        x: Tensor<(B, S, Const<I>), E, D, T>,
        by: impl Into<Affine<'a, I, O, E, D>>,
    ) -> Result<Tensor<(B, S, Const<O>), E, D, T>, D::Err> {
        let Affine { weight, bias } = by.into();
        let (batch, len, _) = *x.shape();
        let shape = (batch, len, Const);
        let weight = weight.retaped::<T>();
        let y = if is_empty(x.shape()) {
            zeros_after_both(x, weight, shape)?
        } else {
            contiguous(x)?.try_matmul(weight.try_permute()?)?
        };
        match bias {
            Some(bias) => y.try_add(
                bias.retaped::<T>()
                    .try_broadcast_like::<_, Axes2<0, 1>>(&shape)?,
            ),
            None => Ok(y),
        }
    }
}

#[cfg(test)]
mod tests;
