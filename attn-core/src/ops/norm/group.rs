//! Normalisation of groups of channels.

use dfdx::{
    dtypes::Dtype,
    shapes::{Axis, HasAxes, HasShape, Rank1, Shape},
    tensor::{AutoDevice, Storage, Tape, Tensor},
};

use super::Gain;
use crate::{
    Backend, Element, Error,
    composed::reshape,
    fused::{Array, Operation},
    model::Pass,
    ops::{EndsIn, shape::axis_of},
    unwrap,
};

use slices::GroupNorm;

/// A normalisation of groups of `C` channels, with what is learned of every channel.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormalization<'a, const C: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// The number of groups. It divides `C`.
    pub groups: usize,
    /// The factor of a normalised channel.
    pub gain: Gain<&'a Tensor<Rank1<C>, E, D>>,
    /// The numbers that are added behind the gain.
    pub bias: Option<&'a Tensor<Rank1<C>, E, D>>,
    /// Added to the variance.
    pub epsilon: f64,
}

/// A module that normalises groups of `C` channels.
pub trait GroupNormalizes<const C: usize, E: Dtype, D: Storage<E>> {
    /// How, with its parameters.
    fn group_normalization(&self) -> GroupNormalization<'_, C, E, D>;
}

/// `(x - mean) / sqrt(var + epsilon) * gain + bias`, with the mean and the variance of each group of channels, over the axes behind the
/// channels as well. Every index of the axes before them is on its own.
///
/// Wu and He, "Group normalization" (2018). With the channels at axis 1 this is PyTorch's
/// `torch.nn.functional.group_norm(x, groups, gain, bias, epsilon)`. Channels at the last axis are grouped vector by vector, as
/// `group_norm(x.flatten(0, -2), groups, gain, bias, epsilon).view_as(x)` does in PyTorch.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Gain, GroupNormalization, group_norm}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<1, 4>, f64, _> = dev.tensor([[1.0, 3.0, 10.0, 30.0]]);
/// let norm = GroupNormalization::<4, f64, Cpu> { groups: 2, gain: Gain::One, bias: None, epsilon: 1e-12 };
/// assert!(group_norm(x, Axis::<1>, norm).array()[0].map(f64::round) == [-1.0, 1.0, -1.0, 1.0]);
/// ```
///
/// # Panics
/// If [`try_group_norm`] returns an error or panics.
#[track_caller]
pub fn group_norm<const I: isize, S, const C: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
    norm: GroupNormalization<'_, C, E, D>,
) -> Tensor<S, E, D, T>
where
    S: Shape + HasAxes<Axis<I>>,
{
    unwrap(try_group_norm(x, axis, norm))
}

/// The fallible version of [`group_norm`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the axis has not `C` channels, if `groups` does not divide them, or if `epsilon` is not greater than 0.
#[track_caller]
pub fn try_group_norm<const I: isize, S, const C: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
    norm: GroupNormalization<'_, C, E, D>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<Axis<I>>,
{
    group_norm_with_form(D::FUSED, x, axis, norm)
}

/// [`try_group_norm`] in the fused or the composed form.
#[track_caller]
pub(crate) fn group_norm_with_form<
    const I: isize,
    S,
    const C: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
    norm: GroupNormalization<'_, C, E, D>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<Axis<I>>,
{
    super::check::<E, _>("group_norm", x.shape(), norm.epsilon)?;
    let channels = axis_of::<I>(x.shape());
    let groups = norm.groups;
    assert_eq!(channels.len, C, "group_norm: the channels of axis {I}");
    assert!(
        groups > 0 && C.is_multiple_of(groups),
        "group_norm: {groups} groups of {C} channels"
    );
    if !fused {
        return Ok(composed::group_norm(x, axis, norm)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let norm = norm.read(&mut operation)?;
    let mut y = Array::uninit(channels.outer, [channels.len * channels.inner]);
    let statistics = norm.forward(x.values(), channels, y.as_mut_slice());
    let values = y.as_slice().to_vec();
    Ok(
        operation.finish(&device, values, shape, move |d_y, gradients| {
            let d_x = &mut x.target();
            norm.backward(x.values(), channels, statistics, d_y, d_x, gradients)
        })?,
    )
}

/// [`try_group_norm`] of the last axis.
#[track_caller]
pub(super) fn group_norm_of_last<S, const C: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    norm: GroupNormalization<'_, C, E, D>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: EndsIn<C>,
{
    let shape = *x.shape();
    let rows = reshape(x, (shape.leading().num_elements(), shape.last()))?;
    Ok(reshape(try_group_norm(rows, Axis::<1>, norm)?, shape)?)
}

impl<const C: usize, E: Element, D: Backend<E>> GroupNormalization<'_, C, E, D> {
    /// The same on slices.
    pub(super) fn read<T: Tape<E, D>>(
        &self,
        operation: &mut Operation<E, D, T>,
    ) -> Result<GroupNorm<E>, D::Err> {
        let mut read = |tensor| operation.parameter(tensor);
        Ok(GroupNorm {
            groups: self.groups,
            epsilon: self.epsilon,
            gain: self.gain.try_map(&mut read)?,
            bias: self.bias.map(read).transpose()?,
        })
    }
}

impl<T> Pass<'_, T> {
    /// Normalises groups of the channels of an axis: [`group_norm`].
    ///
    /// # Errors
    /// The errors of [`try_group_norm`].
    ///
    /// # Panics
    /// The panics of [`try_group_norm`].
    #[track_caller]
    pub fn group_norm<const I: isize, S, const C: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: Axis<I>,
        layer: &impl GroupNormalizes<C, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<Axis<I>>,
        T: Tape<E, D>,
    {
        let norm = layer.group_normalization();
        self.run(x, |fused, x| group_norm_with_form(fused, x, axis, norm))
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
            Buffer, Matrix, MatrixMut,
            axis::Axis,
            norm::{Gain, Gradients as NormGradients, Norm as Kernel, NormKind, STATISTICS},
        },
        ops::norm::slices::wanted,
    };

    /// A norm of groups of channels, with what is learned.
    pub struct GroupNorm<E: Element> {
        /// The number of groups.
        pub groups: usize,
        /// Added to the variance.
        pub epsilon: f64,
        /// The gain.
        pub gain: Gain<Operand<E>>,
        /// The bias.
        pub bias: Option<Operand<E>>,
    }

    /// The footprint of a [`GroupNorm`] of `outer` tensors: the statistics of each group, and in the backward pass the gradient of the
    /// gain or the bias, if `learned` is not 0: one at a time.
    pub const fn group_norm_footprint(
        outer: &[usize],
        groups: usize,
        channels: usize,
        learned: usize,
    ) -> Footprint {
        let statistics = Footprint::array(&[Footprint::numbers(outer), groups, STATISTICS]);
        let gradients = if learned == 0 { 0 } else { 1 };
        Footprint::backward_only(&[gradients, channels]).with_kept(statistics)
    }

    /// Numbers of channels as numbers of all elements of a tensor `[channels, inner]`. One of a vector has no copy.
    enum Repeated<'a, E: Element> {
        AsGiven(&'a [E]),
        Copied(Buffer<E>),
    }

    impl<'a, E: Element> Repeated<'a, E> {
        fn of(numbers: &'a [E], inner: usize) -> Self {
            if inner == 1 {
                return Self::AsGiven(numbers);
            }
            let mut copy = Buffer::uninit(numbers.len() * inner);
            for (to, &number) in copy.chunks_mut(inner.max(1)).zip(numbers) {
                to.fill(number);
            }
            Self::Copied(copy)
        }

        fn as_slice(&self) -> &[E] {
            match self {
                Self::AsGiven(numbers) => numbers,
                Self::Copied(numbers) => numbers,
            }
        }
    }

    impl<E: Element> WantsGradient for GroupNorm<E> {
        fn slots(&self, visit: VisitSlot<'_>) {
            self.gain.slots(visit);
            self.bias.slots(visit);
        }
    }

    impl<E: Element> VisitWeights<E> for GroupNorm<E> {
        fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
            self.gain.visit_weights(visit);
            self.bias.visit_weights(visit);
        }
    }

    impl<E: Element> GroupNorm<E> {
        /// `body(norm, rows, width)` with the norm of the rows, each of a group.
        fn with_rows<R>(
            &self,
            axis: Axis,
            body: impl FnOnce(&Kernel<'_, E>, usize, usize) -> R,
        ) -> R {
            let gain = self
                .gain
                .as_ref()
                .map(|gain| Repeated::of(gain.values(), axis.inner));
            let bias = self
                .bias
                .as_ref()
                .map(|bias| Repeated::of(bias.values(), axis.inner));
            let kernel = Kernel {
                kind: NormKind::Layer,
                gain: gain.as_ref().map(Repeated::as_slice),
                bias: bias.as_ref().map(Repeated::as_slice),
                groups: self.groups,
                epsilon: E::of(self.epsilon),
            };
            let width = axis.len / self.groups * axis.inner;
            body(&kernel, axis.outer * self.groups, width)
        }

        /// Computes the result. Returns the statistics of the groups for the backward pass.
        pub fn forward(&self, x: &[E], axis: Axis, y: &mut [E]) -> Array<E> {
            self.with_rows(axis, |kernel, rows, width| {
                let mut statistics = Array::uninit(rows, [STATISTICS]);
                let x = Matrix::new(x, rows, width);
                let y = MatrixMut::new(y, rows, width);
                kernel.forward(x, y, statistics.as_mut_slice());
                statistics
            })
        }

        /// The derivative.
        pub fn backward(
            &self,
            x: &[E],
            axis: Axis,
            statistics: Array<E>,
            d_y: &[E],
            d_x: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            let learned = wanted(self.gain.as_ref(), self.bias.as_ref());
            if !d_x.is_wanted() && learned.iter().all(Option::is_none) {
                return;
            }
            // Only one gradient of the tape can be borrowed at a time.
            let mut sums =
                learned.map(|learned| learned.map(|_| Buffer::zeros(axis.len * axis.inner)));
            let [(numbers, into)] = GradTarget::all_of([d_x], gradients);
            self.with_rows(axis, |kernel, rows, width| {
                let [d_gain, d_bias] = &mut sums;
                let to = NormGradients {
                    x: MatrixMut::new(numbers, rows, width),
                    into,
                    gain: d_gain.as_deref_mut(),
                    bias: d_bias.as_deref_mut(),
                };
                let [x, d_y] = [x, d_y].map(|x| Matrix::new(x, rows, width));
                kernel.backward(x, statistics.as_slice(), d_y, to);
            });
            for (learned, sums) in learned.into_iter().zip(sums) {
                if let Some((learned, sums)) = learned.zip(sums) {
                    let mut d = Array::zeros(1, [axis.len]);
                    let channels = d.as_mut_slice().iter_mut();
                    for (d, sums) in channels.zip(sums.chunks(axis.inner.max(1))) {
                        *d = crate::simd::call::sum(sums);
                    }
                    accumulate(learned.gradient(gradients), d.as_slice());
                }
            }
        }
    }
}

/// The composed form, with dfdx's operations.
pub(crate) mod composed {
    use dfdx::{
        shapes::{Axes2, Axis, Const, HasAxes, HasShape, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use super::GroupNormalization;
    use crate::{
        Element,
        composed::{is_empty, reshape},
        ops::{
            norm::composed::{affine, after_learned},
            shape::axis_of,
        },
    };

    /// [`group_norm`](super::group_norm)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn group_norm<const I: isize, S, const C: usize, E, D, T>(
        x: Tensor<S, E, D, T>,
        _: Axis<I>,
        norm: GroupNormalization<'_, C, E, D>,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<Axis<I>>,
        E: Element,
        D: Device<E>,
        T: Tape<E, D>,
    {
        let shape = *x.shape();
        if is_empty(&shape) {
            return after_learned(x, norm.gain.learned(), norm.bias);
        }
        let axis = axis_of::<I>(&shape);
        let width = axis.len / norm.groups * axis.inner;
        let rows = reshape(x, (axis.outer * norm.groups, width))?;
        let y = rows.try_normalize::<Axis<1>>(norm.epsilon)?;
        let y = reshape(y, (axis.outer, Const::<C>, axis.inner))?;
        let y = affine::<_, Axes2<0, 2>, C, E, D, T>(y, norm.gain, norm.bias)?;
        reshape(y, shape)
    }
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::{Gain, GroupNormalization, group_norm};

    /// The numbers are added in at least four partial sums. Their rounding errors are 6e-4 of the sum, and 2e-3 in one sum.
    #[test]
    fn gradients_of_a_bias_are_sums_of_partial_sums() {
        const PLACES: usize = 1 << 18;
        let dev = Cpu::default();
        let x: Tensor<Rank3<1, 1, PLACES>, f32, _> = dev.zeros();
        let bias: Tensor<Rank1<1>, f32, _> = dev.zeros();
        let norm = GroupNormalization {
            groups: 1,
            gain: Gain::One,
            bias: Some(&bias),
            epsilon: 1e-5,
        };
        let y = group_norm(x.leaky_trace(), Axis::<1>, norm);
        let gradients = (y * 0.1).sum::<Rank0, _>().backward();
        let found = f64::from(gradients.get(&bias).array()[0]);
        let expected = f64::from(0.1_f32) * PLACES as f64;
        let error = (found - expected).abs() / expected;
        assert!(error < 1e-3, "{error}");
    }
}
