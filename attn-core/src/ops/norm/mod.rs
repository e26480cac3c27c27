//! Normalisation of the last axis, and of groups of channels.

mod group;
mod module;

pub use group::{GroupNormalization, GroupNormalizes, group_norm, try_group_norm};
pub(crate) use group::{composed as group_composed, slices as group_slices};
pub use module::{
    GroupNorm, LayerNorm, OnePlusGroupNorm, OnePlusLayerNorm, OnePlusRmsNorm, PlainGroupNorm,
    PlainLayerNorm, PlainRmsNorm, RmsNorm, UnbiasedGroupNorm, UnbiasedLayerNorm,
    UnbiasedOnePlusGroupNorm, UnbiasedOnePlusLayerNorm, UngainedGroupNorm, UngainedLayerNorm,
};

use dfdx::{
    dtypes::Dtype,
    shapes::{HasShape, Rank1, Shape},
    tensor::{AutoDevice, Storage, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{Operation, Output},
    model::Pass,
    ops::{EndsIn, check_shape},
    unwrap,
};

pub use crate::kernel::norm::{Gain, NormKind};

use slices::Norm;

/// A normalisation of vectors `[M]`, with what is learned: `(x - mean(x)) / sqrt(var(x) + epsilon) * gain + bias`, or for
/// [`NormKind::Rms`] `x / sqrt(mean(x²) + epsilon) * gain + bias`.
///
/// `torch.nn.LayerNorm(M, bias=False)` of PyTorch has no bias, `torch.nn.LayerNorm(M, elementwise_affine=False)` neither gain nor bias.
/// The RMSNorm of Gemma has [`Gain::OnePlus`]: the factor is one more than its weight.
#[derive(Clone, Copy, Debug)]
pub struct Normalization<'a, const M: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// The part that is removed from a vector.
    pub kind: NormKind,
    /// The factor of a normalised vector.
    pub gain: Gain<&'a Tensor<Rank1<M>, E, D>>,
    /// The numbers that are added behind the gain.
    pub bias: Option<&'a Tensor<Rank1<M>, E, D>>,
    /// Added to the variance or to the mean square.
    pub epsilon: f64,
}

/// A module that normalises vectors `[M]`.
pub trait Normalizes<const M: usize, E: Dtype, D: Storage<E>> {
    /// How, with its parameters.
    fn normalization(&self) -> Normalization<'_, M, E, D>;
}

/// A [`Normalization`] of the last axis of `x [.., M]`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Gain, NormKind, Normalization, normalize}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<2>, f64, _> = dev.tensor([1.0, -7.0]); // mean(x²) = 25
/// let learned: Tensor<Rank1<2>, f64, _> = dev.tensor([4.0, 9.0]);
/// let norm = Normalization { kind: NormKind::Rms, gain: Gain::OnePlus(&learned), bias: None, epsilon: 1e-12 };
/// assert!(normalize(x, norm).array().map(f64::round) == [1.0, -14.0]);
/// ```
///
/// # Panics
/// If [`try_normalize`] returns an error, or if `epsilon` is not greater than 0.
#[track_caller]
pub fn normalize<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    norm: Normalization<'_, M, E, D>,
) -> Tensor<S, E, D, T> {
    unwrap(try_normalize(x, norm))
}

/// The fallible version of [`normalize`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `epsilon` is not greater than 0: a constant row would have no derivative.
#[track_caller]
pub fn try_normalize<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    norm: Normalization<'_, M, E, D>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    normalize_with_form(D::FUSED, x, norm)
}

/// [`try_normalize`] in the fused or the composed form.
#[track_caller]
pub(crate) fn normalize_with_form<
    S: EndsIn<M>,
    const M: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    norm: Normalization<'_, M, E, D>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    let operation = match norm.kind {
        NormKind::Layer => "layer_norm",
        NormKind::Rms => "rms_norm",
    };
    check::<E, _>(operation, x.shape(), norm.epsilon)?;
    if !fused {
        return Ok(composed::normalize(x, norm)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let norm = norm.read(&mut operation)?;
    let mut y = Output::zeros(shape.leading().num_elements(), M);
    let statistics = norm.forward(x.matrix(), y.view_mut());
    Ok(
        operation.finish_matrix(&device, y, shape, move |d_y, gradients| {
            norm.backward(x.matrix(), statistics, d_y, &mut x.target(), gradients)
        })?,
    )
}

impl<const M: usize, E: Element, D: Backend<E>> Normalization<'_, M, E, D> {
    /// The same on slices.
    fn read<T: Tape<E, D>>(&self, operation: &mut Operation<E, D, T>) -> Result<Norm<E>, D::Err> {
        let mut read = |tensor| operation.parameter(tensor);
        Ok(Norm {
            kind: self.kind,
            epsilon: self.epsilon,
            gain: self.gain.try_map(&mut read)?,
            bias: self.bias.map(read).transpose()?,
        })
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
    let norm = Normalization {
        kind: NormKind::Layer,
        gain: Gain::Factor(gain),
        bias: Some(bias),
        epsilon,
    };
    try_normalize(x, norm)
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
    let norm = Normalization {
        kind: NormKind::Rms,
        gain: Gain::Factor(gain),
        bias: None,
        epsilon,
    };
    try_normalize(x, norm)
}

impl<T> Pass<'_, T> {
    /// Normalises vectors, `[.., M]`, by [`LayerNorm`] or a variant of it: [`normalize`].
    ///
    /// # Errors
    /// The errors of [`try_normalize`].
    ///
    /// # Panics
    /// The panics of [`try_normalize`].
    #[track_caller]
    pub fn layer_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &impl Normalizes<M, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        let norm = layer.normalization();
        self.run(x, |fused, x| normalize_with_form(fused, x, norm))
    }

    /// Normalises vectors, `[.., M]`, by [`RmsNorm`] or a variant of it: [`normalize`].
    ///
    /// # Errors
    /// The errors of [`try_normalize`].
    ///
    /// # Panics
    /// The panics of [`try_normalize`].
    #[track_caller]
    pub fn rms_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        layer: &impl Normalizes<M, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.layer_norm(x, layer)
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{
            Array, Footprint, GradTarget, Gradients, Operand, VisitSlot, VisitWeights,
            WantsGradient, WeightVisitor, accumulate,
        },
        kernel::{
            Matrix, MatrixMut,
            norm::{Gain, Gradients as NormGradients, Norm as Kernel, NormKind, STATISTICS},
            rows::{Sink, Source},
        },
    };

    /// A norm of rows, with what is learned.
    pub struct Norm<E: Element> {
        /// The kind of norm.
        pub kind: NormKind,
        /// Added to the variance or the mean square.
        pub epsilon: f64,
        /// The gain.
        pub gain: Gain<Operand<E>>,
        /// The bias.
        pub bias: Option<Operand<E>>,
    }

    /// The footprint of a [`Norm`]: the statistics of each row, and in the backward pass the gradients of what is learned, `learned` vectors.
    pub const fn norm_footprint(rows: &[usize], width: usize, learned: usize) -> Footprint {
        let statistics = Footprint::array(&[Footprint::numbers(rows), STATISTICS]);
        Footprint::backward_only(&[learned, width]).with_kept(statistics)
    }

    impl<W: WantsGradient> WantsGradient for Gain<W> {
        fn slots(&self, visit: VisitSlot<'_>) {
            if let Some(learned) = self.as_ref().learned() {
                learned.slots(visit);
            }
        }
    }

    impl<E: Element, W: VisitWeights<E>> VisitWeights<E> for Gain<W> {
        fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
            if let Some(learned) = self.as_mut().learned() {
                learned.visit_weights(visit);
            }
        }
    }

    /// The learned tensors of a gain and a bias whose gradients are wanted.
    pub(in crate::ops::norm) fn wanted<'a, E: Element>(
        gain: Gain<&'a Operand<E>>,
        bias: Option<&'a Operand<E>>,
    ) -> [Option<&'a Operand<E>>; 2] {
        [gain.learned(), bias].map(|learned| learned.filter(|learned| learned.is_wanted()))
    }

    impl<E: Element> WantsGradient for Norm<E> {
        fn slots(&self, visit: VisitSlot<'_>) {
            self.gain.slots(visit);
            self.bias.slots(visit);
        }
    }

    impl<E: Element> VisitWeights<E> for Norm<E> {
        fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
            self.gain.visit_weights(visit);
            self.bias.visit_weights(visit);
        }
    }

    impl<E: Element> Norm<E> {
        fn kernel(&self) -> Kernel<'_, E> {
            Kernel {
                kind: self.kind,
                gain: self.gain.as_ref().map(Operand::values),
                bias: self.bias.as_ref().map(Operand::values),
                groups: 1,
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
            let learned = wanted(self.gain.as_ref(), self.bias.as_ref());
            if !d_x.is_wanted() && learned.iter().all(Option::is_none) {
                return;
            }
            // Only one gradient of the tape can be borrowed at a time.
            let [mut d_gain, mut d_bias] =
                learned.map(|learned| learned.map(|_| Array::zeros(1, [width])));
            let [(numbers, into)] = GradTarget::all_of([d_x], gradients);
            let to = NormGradients {
                x: MatrixMut::new(numbers, rows, width),
                into,
                gain: d_gain.as_mut().map(Array::as_mut_slice),
                bias: d_bias.as_mut().map(Array::as_mut_slice),
            };
            self.kernel().backward(x, statistics.as_slice(), d_y, to);
            for (learned, d) in learned.into_iter().zip([d_gain, d_bias]) {
                if let Some((learned, d)) = learned.zip(d) {
                    accumulate(learned.gradient(gradients), d.as_slice());
                }
            }
        }
    }
}

/// The composed form, with dfdx's operations.
pub(crate) mod composed {
    use dfdx::{
        shapes::{Axes, Axis, BroadcastShapeTo, HasShape, Rank1, Shape},
        tensor::{PutTape, SplitTape, Tape, Tensor, WithEmptyTape},
        tensor_ops::{BroadcastTo, Device, MeanTo, TryAdd, TryDiv, TryMul},
    };

    use super::{Gain, NormKind, Normalization};
    use crate::{
        Element,
        composed::{depend, is_empty, reshape, zeros_after},
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
        let norm = Normalization {
            kind: NormKind::Layer,
            gain: Gain::Factor(gain),
            bias: Some(bias),
            epsilon,
        };
        normalize(x, norm)
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
        let norm = Normalization {
            kind: NormKind::Rms,
            gain: Gain::Factor(gain),
            bias: None,
            epsilon,
        };
        normalize(x, norm)
    }

    /// [`normalize`](super::normalize)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn normalize<S: EndsIn<M>, const M: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        norm: Normalization<'_, M, E, D>,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let shape = *x.shape();
        if is_empty(&shape) {
            return after_learned(x, norm.gain.learned(), norm.bias);
        }
        let x = rows(x)?;
        let y = match norm.kind {
            NormKind::Layer => x.try_normalize::<Axis<1>>(norm.epsilon)?,
            NormKind::Rms => {
                let flat = *x.shape();
                let squares = x.with_empty_tape().try_square()?;
                let deviation = squares
                    .try_mean::<(usize,), _>()?
                    .try_add(E::of(norm.epsilon))?
                    .try_sqrt()?;
                x.try_div(deviation.try_broadcast_like(&flat)?)?
            }
        };
        reshape(
            affine::<_, Axis<0>, M, E, D, T>(y, norm.gain, norm.bias)?,
            shape,
        )
    }

    /// `y * gain + bias`, repeated along the other axes.
    pub(super) fn affine<S, Ax, const M: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
        y: Tensor<S, E, D, T>,
        gain: Gain<&Tensor<Rank1<M>, E, D>>,
        bias: Option<&Tensor<Rank1<M>, E, D>>,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape,
        Ax: Axes,
        Rank1<M>: BroadcastShapeTo<S, Ax>,
    {
        let shape = *y.shape();
        let y = match gain {
            Gain::One => y,
            Gain::Factor(gain) => y.try_mul(gain.retaped::<T>().try_broadcast_like(&shape)?)?,
            Gain::OnePlus(learned) => {
                let gain = learned.retaped::<T>().try_add(E::of(1.0))?;
                y.try_mul(gain.try_broadcast_like(&shape)?)?
            }
        };
        match bias {
            None => Ok(y),
            Some(bias) => y.try_add(bias.retaped::<T>().try_broadcast_like(&shape)?),
        }
    }

    /// Zeros for an empty `x`, on whose tape what is learned has a gradient of zeros.
    pub(super) fn after_learned<S: Shape, L: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        gain: Option<&Tensor<L, E, D>>,
        bias: Option<&Tensor<L, E, D>>,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let learned = [gain, bias].into_iter().flatten();
        let shape = *x.shape();
        let (x, tape) = zeros_after(x, shape)?.split_tape();
        let tape = learned.fold(tape, |tape, learned| {
            tape.merge(depend(learned.retaped::<T>()))
        });
        Ok(x.put_tape(tape))
    }
}
