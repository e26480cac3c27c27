//! Normalisation of the last axis.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::{HasShape, Rank1, Shape},
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error,
    fused::{Operation, Output},
    init,
    kernel::norm::NormKind,
    model::{Pass, weighted},
    ops::{EndsIn, check_shape},
    unwrap,
};

use slices::Norm;

/// `y = (x - mean(x)) / sqrt(var(x) + epsilon) * gain + bias` over the last axis, for `x [.., M]`, `gain [M]` and
/// `bias [M]`. The variance is the population variance, without Bessel's correction.
///
/// Ba, Kiros and Hinton, "Layer normalization" (2016). PyTorch:
/// `torch.nn.functional.layer_norm(x, (M,), gain, bias, epsilon)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::layer_norm};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<1, 4>, f64, _> = dev.tensor([[1.0, 1.0, 3.0, 3.0]]);
/// let y = layer_norm(x, &dev.ones(), &dev.zeros(), 1e-12);
/// assert!(y.array()[0].map(f64::round) == [-1.0, -1.0, 1.0, 1.0]);
/// ```
///
/// # Panics
/// If [`try_layer_norm`] returns an error, or if `epsilon` is not greater than 0.
#[track_caller]
pub fn layer_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    bias: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Tensor<S, E, D, T> {
    unwrap(try_layer_norm(x, gain, bias, epsilon))
}

/// The fallible version of [`layer_norm`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `epsilon` is not greater than 0: a constant row would have no derivative.
#[track_caller]
pub fn try_layer_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    bias: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    layer_norm_with_form(D::FUSED, x, gain, bias, epsilon)
}

/// [`try_layer_norm`] in the fused or the composed form.
#[track_caller]
pub(crate) fn layer_norm_with_form<
    S: EndsIn<M>,
    const M: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    bias: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check::<E, _>("layer_norm", x.shape(), epsilon)?;
    if fused {
        Ok(norm(NormKind::Layer, x, gain, Some(bias), epsilon)?)
    } else {
        Ok(composed::layer_norm(x, gain, bias, epsilon)?)
    }
}

/// `y = x / sqrt(mean(x²) + epsilon) * gain` over the last axis, for `x [.., M]` and `gain [M]`.
///
/// Zhang and Sennrich, "Root mean square layer normalization" (2019). PyTorch:
/// `torch.nn.functional.rms_norm(x, (M,), gain, epsilon)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::rms_norm};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<2>, f64, _> = dev.tensor([1.0, -7.0]); // mean(x²) = 25
/// let y = rms_norm(x, &dev.tensor([5.0, 10.0]), 1e-12);
/// assert!(y.array().map(f64::round) == [1.0, -14.0]);
/// ```
///
/// # Panics
/// If [`try_rms_norm`] returns an error, or if `epsilon` is not greater than 0.
#[track_caller]
pub fn rms_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Tensor<S, E, D, T> {
    unwrap(try_rms_norm(x, gain, epsilon))
}

/// The fallible version of [`rms_norm`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `epsilon` is not greater than 0: a row of zeros would have no derivative.
#[track_caller]
pub fn try_rms_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    rms_norm_with_form(D::FUSED, x, gain, epsilon)
}

/// [`try_rms_norm`] in the fused or the composed form.
#[track_caller]
pub(crate) fn rms_norm_with_form<
    S: EndsIn<M>,
    const M: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check::<E, _>("rms_norm", x.shape(), epsilon)?;
    if fused {
        Ok(norm(NormKind::Rms, x, gain, None, epsilon)?)
    } else {
        Ok(composed::rms_norm(x, gain, epsilon)?)
    }
}

#[track_caller]
fn check<E: Element, Dev>(
    operation: &'static str,
    shape: &impl Shape,
    epsilon: f64,
) -> Result<(), Error<Dev>> {
    let positive = E::of(epsilon) > E::zero();
    assert!(positive, "{operation}: epsilon is {epsilon}");
    check_shape(operation, shape)
}

fn norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    kind: NormKind,
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    bias: Option<&Tensor<Rank1<M>, E, D>>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let device = x.device().clone();
    let shape = *x.shape();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let norm = Norm {
        kind,
        epsilon,
        gain: operation.parameter(gain)?,
        bias: bias.map(|bias| operation.parameter(bias)).transpose()?,
    };
    let mut y = Output::zeros(shape.leading().num_elements(), M);
    let statistics = norm.forward(x.matrix(), y.view_mut());
    operation.finish_matrix(&device, y, shape, move |d_y, gradients| {
        norm.backward(x.matrix(), statistics, d_y, &mut x.target(), gradients)
    })
}

/// `(x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias` over the last axis: [`ops::layer_norm`](crate::ops::layer_norm)
/// with its parameters. One operation on the tape.
///
/// Ba, Kiros and Hinton, "Layer normalization" (2016). PyTorch: `torch.nn.LayerNorm(M)`, with its names and initial
/// values. (In dfdx's `LayerNorm1D` the names are `gamma` and `beta`.)
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[.., M]`, of one to four axes | |
/// | `weight` | `[M]` | 1 |
/// | `bias` | `[M]` | 0 |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::LayerNorm};
///
/// let dev = Cpu::default();
/// let norm = dev.build_module::<LayerNorm<4>, f32>();
/// let y = norm.forward(dev.tensor([[1.0, 1.0, 3.0, 3.0]]));
/// assert!(y.array()[0].iter().all(|y| (y.abs() - 1.0).abs() < 1e-4));
/// ```
#[doc(alias = "LayerNorm1D")]
#[derive(Clone, Debug)]
pub struct LayerNorm<const M: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// The gain.
    pub weight: Tensor<Rank1<M>, E, D>,
    /// The bias.
    pub bias: Tensor<Rank1<M>, E, D>,
    /// Added to the variance; initially [`EPSILON`](Self::EPSILON), or the value in a declaration of `model!`. It is not saved, and a copy
    /// on another device or of another type has the initial value.
    pub epsilon: f64,
}

/// `x / sqrt(mean(x²) + epsilon) * weight` over the last axis: [`ops::rms_norm`](crate::ops::rms_norm) with its
/// parameter. One operation on the tape.
///
/// Zhang and Sennrich, "Root mean square layer normalization" (2019). PyTorch: `torch.nn.RMSNorm(M, eps=1e-6)`, with its
/// name and initial values.
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[.., M]`, of one to four axes | |
/// | `weight` | `[M]` | 1 |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::RmsNorm};
///
/// let dev = Cpu::default();
/// let norm = dev.build_module::<RmsNorm<2>, f64>();
/// let y: Tensor<Rank1<2>, f64, _> = norm.forward(dev.tensor([5.0, -5.0]));
/// assert!(y.array().iter().all(|y| (y.abs() - 1.0).abs() < 1e-6));
/// ```
#[derive(Clone, Debug)]
pub struct RmsNorm<const M: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// The gain.
    pub weight: Tensor<Rank1<M>, E, D>,
    /// Added to the mean square; initially [`EPSILON`](Self::EPSILON), or the value in a declaration of `model!`. It is not saved, and a
    /// copy on another device or of another type has the initial value.
    pub epsilon: f64,
}

impl<const M: usize, E: Dtype, D: Storage<E>> LayerNorm<M, E, D> {
    /// The number of parameters.
    pub const PARAMS: usize = 2 * M;
    /// The default epsilon, as in PyTorch.
    pub const EPSILON: f64 = 1e-5;

    /// Sets the epsilon, which must be greater than 0.
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }
}

impl<const M: usize, E: Dtype, D: Storage<E>> RmsNorm<M, E, D> {
    /// The number of parameters.
    pub const PARAMS: usize = M;
    /// The default epsilon, as in LLaMA and most other models.
    pub const EPSILON: f64 = 1e-6;

    /// Sets the epsilon, which must be greater than 0.
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }
}

impl<const M: usize, S, E, D, T> Module<Tensor<S, E, D, T>> for LayerNorm<M, E, D>
where
    S: EndsIn<M>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        try_layer_norm(x, &self.weight, &self.bias, self.epsilon).map_err(Error::into_device)
    }
}

impl<const M: usize, S, E, D, T> Module<Tensor<S, E, D, T>> for RmsNorm<M, E, D>
where
    S: EndsIn<M>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        try_rms_norm(x, &self.weight, self.epsilon).map_err(Error::into_device)
    }
}

impl<const M: usize, E: Dtype, D: Storage<E>> NonMutableModule for LayerNorm<M, E, D> {}

impl<const M: usize, E: Dtype, D: Storage<E>> NonMutableModule for RmsNorm<M, E, D> {}

impl<const M: usize, E: Element, D: Device<E>> TensorCollection<E, D> for LayerNorm<M, E, D> {
    type To<E2: Dtype, D2: Device<E2>> = LayerNorm<M, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            (
                Self::tensor(
                    "weight",
                    |s| &s.weight,
                    |s| &mut s.weight,
                    TensorOptions::reset_with(|t| init::ones(t)),
                ),
                Self::tensor(
                    "bias",
                    |s| &s.bias,
                    |s| &mut s.bias,
                    TensorOptions::reset_with(|t| init::zeros(t)),
                ),
            ),
            |(weight, bias)| LayerNorm {
                weight,
                bias,
                epsilon: Self::EPSILON,
            },
        )
    }
}

impl<const M: usize, E: Element, D: Device<E>> TensorCollection<E, D> for RmsNorm<M, E, D> {
    type To<E2: Dtype, D2: Device<E2>> = RmsNorm<M, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::ones(t)),
            ),
            |weight| RmsNorm {
                weight,
                epsilon: Self::EPSILON,
            },
        )
    }
}

/// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
impl<const M: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>> BuildOnDevice<D, E>
    for LayerNorm<M, E0, D0>
{
    type Built = LayerNorm<M, E, D>;
}

/// See [`LayerNorm`].
impl<const M: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>> BuildOnDevice<D, E>
    for RmsNorm<M, E0, D0>
{
    type Built = RmsNorm<M, E, D>;
}

weighted! {
    [const M: usize] LayerNorm<M, E, D>:
        Norm<E>, |layer, operation| Norm {
            kind: NormKind::Layer,
            epsilon: layer.epsilon,
            gain: operation.parameter(&layer.weight)?,
            bias: Some(operation.parameter(&layer.bias)?),
        };

    [const M: usize] RmsNorm<M, E, D>:
        Norm<E>, |layer, operation| Norm {
            kind: NormKind::Rms,
            epsilon: layer.epsilon,
            gain: operation.parameter(&layer.weight)?,
            bias: None,
        };
}

impl<T> Pass<'_, T> {
    /// Normalises vectors, `[.., M]`: [`layer_norm`].
    ///
    /// # Errors
    /// The errors of [`try_layer_norm`].
    ///
    /// # Panics
    /// The panics of [`try_layer_norm`].
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
            layer_norm_with_form(fused, x, &layer.weight, &layer.bias, layer.epsilon)
        })
    }

    /// Normalises vectors, `[.., M]`: [`rms_norm`].
    ///
    /// # Errors
    /// The errors of [`try_rms_norm`].
    ///
    /// # Panics
    /// The panics of [`try_rms_norm`].
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
            rms_norm_with_form(fused, x, &layer.weight, layer.epsilon)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{Array, Footprint, GradTarget, Gradients, Operand, accumulate},
        kernel::{
            Matrix, MatrixMut,
            norm::{Gradients as NormGradients, Norm as Kernel, NormKind, STATISTICS},
            rows::{Sink, Source},
        },
    };

    /// A layer norm or RMS norm, with its gain and an optional bias.
    pub struct Norm<E: Element> {
        /// The kind of norm.
        pub kind: NormKind,
        /// Added to the variance or the mean square.
        pub epsilon: f64,
        /// The gain.
        pub gain: Operand<E>,
        /// The bias.
        pub bias: Option<Operand<E>>,
    }

    /// The footprint of a [`Norm`]: the statistics of each row, and the gradients of gain and bias in the backward pass.
    pub const fn norm_footprint(rows: &[usize], width: usize) -> Footprint {
        let statistics = Footprint::array(&[Footprint::array(rows).kept, STATISTICS]);
        Footprint {
            backward: Footprint::backward_only(&[2, width]).backward,
            ..statistics
        }
    }

    impl<E: Element> Norm<E> {
        fn kernel(&self) -> Kernel<'_, E> {
            Kernel {
                kind: self.kind,
                gain: Some(self.gain.values()),
                bias: self.bias.as_ref().map(Operand::values),
                epsilon: E::of(self.epsilon),
            }
        }

        /// Computes the result. Returns the statistics of the rows for the backward pass.
        pub fn forward<'a>(
            &self,
            x: impl Into<Source<'a, E>>,
            y: impl Into<Sink<'a, E>>,
        ) -> Array<E> {
            let y = y.into();
            let mut statistics = Array::uninit(y.rows(), [STATISTICS]);
            self.kernel().forward(x, y, statistics.as_mut_slice());
            statistics
        }

        /// The derivative.
        pub fn backward(
            &self,
            x: Matrix<'_, E>,
            statistics: Array<E>,
            d_y: Matrix<'_, E>,
            d_x: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            let rows = x.rows();
            let width = x.cols();
            // Only one gradient of the tape can be borrowed at a time.
            let [mut d_gain, mut d_bias] = [(); 2].map(|()| Array::zeros(1, [width]));
            let (numbers, into) = d_x.numbers_mut(gradients);
            let to = NormGradients {
                x: MatrixMut::new(numbers, rows, width),
                into,
                gain: Some(d_gain.as_mut_slice()),
                bias: self.bias.is_some().then_some(d_bias.as_mut_slice()),
            };
            self.kernel().backward(x, statistics.as_slice(), d_y, to);
            accumulate(self.gain.gradient(gradients), d_gain.as_slice());
            if let Some(bias) = &self.bias {
                accumulate(bias.gradient(gradients), d_bias.as_slice());
            }
        }
    }
}

/// The composed form, with dfdx's operations.
pub(crate) mod composed {
    use dfdx::{
        shapes::{Axis, HasShape, Rank1},
        tensor::{PutTape, SplitTape, Tape, Tensor, WithEmptyTape},
        tensor_ops::{BroadcastTo, Device, MeanTo, TryAdd, TryDiv, TryMul},
    };

    use crate::{
        Element,
        composed::{depend, is_empty, reshape, zeros_after_both},
        ops::{EndsIn, shape::rows},
    };

    /// [`layer_norm`](super::layer_norm)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn layer_norm<S: EndsIn<M>, const M: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        gain: &Tensor<Rank1<M>, E, D>,
        bias: &Tensor<Rank1<M>, E, D>,
        epsilon: f64,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let shape = *x.shape();
        let gain = gain.retaped::<T>();
        let bias = bias.retaped::<T>();
        if is_empty(&shape) {
            let (x, tape) = zeros_after_both(x, gain, shape)?.split_tape();
            return Ok(x.put_tape(tape.merge(depend(bias))));
        }
        let x = rows(x)?;
        let flat = *x.shape();
        let y = x
            .try_normalize::<Axis<1>>(epsilon)?
            .try_mul(gain.try_broadcast_like(&flat)?)?
            .try_add(bias.try_broadcast_like(&flat)?)?;
        reshape(y, shape)
    }

    /// [`rms_norm`](super::rms_norm)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn rms_norm<S: EndsIn<M>, const M: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        gain: &Tensor<Rank1<M>, E, D>,
        epsilon: f64,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let shape = *x.shape();
        let gain = gain.retaped::<T>();
        if is_empty(&shape) {
            return zeros_after_both(x, gain, shape);
        }
        let x = rows(x)?;
        let flat = *x.shape();
        let squares = x.with_empty_tape().try_square()?;
        let deviation = squares
            .try_mean::<(usize,), _>()?
            .try_add(E::of(epsilon))?
            .try_sqrt()?;
        let y = x
            .try_div(deviation.try_broadcast_like(&flat)?)?
            .try_mul(gain.try_broadcast_like(&flat)?)?;
        reshape(y, shape)
    }
}
