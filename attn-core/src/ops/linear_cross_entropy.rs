//! The loss of a classifier whose logits a linear map computes, without a tensor of them.

use dfdx::{
    shapes::{Const, HasShape, Rank0, Rank1, Rank2, Shape},
    tensor::{Storage, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    composed::reshape,
    fused::{Operation, ProjectionBuilder, zeros},
    ops::{
        CrossEntropyOptions, EndsIn, check_shape,
        cross_entropy::{Reduction, checked_targets, composed},
        linear,
        shape::rows,
    },
    unwrap,
};

/// The [`cross_entropy`](fn@crate::ops::cross_entropy) of the logits `x Wᵀ + b`, for `x [.., I]`, `weight [O, I]`, `bias [O]` and
/// `targets [..]`: the output layer of a language model and its loss, in one operation.
///
/// The values are those of `cross_entropy(linear(x, weight, bias), targets, options)`. No tensor of logits, `[.., O]`, is made, which is the
/// largest tensor of a model with a large vocabulary. Logits are computed for some rows and classes at a time. With a tape, the
/// gradients are computed in the same pass, and scaled by the upstream gradient later. They take `O * I + rows * I` numbers until then, or the
/// logits are kept, where these are fewer. Hsu et al., "Liger kernel: efficient Triton kernels for LLM training" (2024).
///
/// PyTorch: `torch.nn.functional.linear_cross_entropy(x, weight, targets, linear_bias=bias)`, or
/// `torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, weight, bias), targets)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{cross_entropy, linear, linear_cross_entropy}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<3, 2>, f64, _> = dev.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]);
/// let weight: Tensor<Rank2<4, 2>, f64, _> = dev.sample_normal();
/// let bias: Tensor<Rank1<4>, f64, _> = dev.sample_normal();
/// let targets: Tensor<Rank1<3>, usize, _> = dev.tensor([3, 0, 3]);
/// let loss = linear_cross_entropy(x.leaky_trace(), &weight, Some(&bias), &targets, Default::default());
/// let logits = linear(x.leaky_trace(), &weight, Some(&bias));
/// let same = cross_entropy(logits, &targets, Default::default());
/// assert!((loss.array() - same.array()).abs() < 1e-12);
///
/// let gradients = [loss, same].map(|loss| loss.backward().get(&weight).array());
/// assert!((gradients[0][3][1] - gradients[1][3][1]).abs() < 1e-12);
/// ```
///
/// # Panics
/// If [`try_linear_cross_entropy`] returns an error or panics.
#[doc(alias = "LigerFusedLinearCrossEntropyLoss")]
#[track_caller]
pub fn linear_cross_entropy<S, const I: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Tensor<Rank0, E, D, T>
where
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    unwrap(try_linear_cross_entropy(x, weight, bias, targets, options))
}

/// The fallible version of [`linear_cross_entropy`].
///
/// # Errors
/// [`Error::OutOfRange`] if a target is neither a class nor ignored; [`Error::TooLarge`] if the sizes of `x` or of all logits are too large
/// to count; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If sizes differ at run time, or if `label_smoothing` is not between 0 and 1.
#[track_caller]
pub fn try_linear_cross_entropy<S, const I: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Tensor<Rank0, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let targets = checked::<S, I, O, D, D::Err>(x.shape(), targets, options)?;
    if !D::FUSED {
        let logits = rows(linear::composed::linear(x, weight, bias)?)?;
        return Ok(composed::cross_entropy(logits, &targets, options)?);
    }
    run(x, (weight, bias), targets, options, Reduction::Mean, ())
}

/// `-ln softmax(x Wᵀ + b)[target]` of each target: those of which [`linear_cross_entropy`] is the mean. The loss of an ignored target is 0.
///
/// The derivative computes the logits again, some rows and classes at a time, as each loss has an upstream gradient of its own. If they are
/// few, or the rows are at most `I` or the classes are, they are kept instead.
///
/// PyTorch: `torch.nn.functional.linear_cross_entropy(.., reduction="none")`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::linear_cross_entropy_per_target};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<2, 1>, f64, _> = dev.tensor([[0.0], [1.0]]);
/// let weight: Tensor<Rank2<2, 1>, f64, _> = dev.tensor([[2.0], [0.0]]);
/// let targets: Tensor<Rank1<2>, usize, _> = dev.tensor([0, 1]);
/// let losses = linear_cross_entropy_per_target(x, &weight, None, &targets, Default::default()).array();
/// assert!((losses[0] - 2f64.ln()).abs() < 1e-12 && (losses[1] - (2.0 + (-2f64).exp().ln_1p())).abs() < 1e-12);
/// ```
///
/// # Panics
/// If [`try_linear_cross_entropy_per_target`] returns an error or panics.
#[track_caller]
pub fn linear_cross_entropy_per_target<S, const I: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Tensor<S::Leading, E, D, T>
where
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    unwrap(try_linear_cross_entropy_per_target(
        x, weight, bias, targets, options,
    ))
}

/// The fallible version of [`linear_cross_entropy_per_target`].
///
/// # Errors
/// The errors of [`try_linear_cross_entropy`].
///
/// # Panics
/// The panics of [`try_linear_cross_entropy`].
#[track_caller]
pub fn try_linear_cross_entropy_per_target<S, const I: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Tensor<S::Leading, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let shape = *targets.shape();
    let targets = checked::<S, I, O, D, D::Err>(x.shape(), targets, options)?;
    if !D::FUSED {
        let logits = rows(linear::composed::linear(x, weight, bias)?)?;
        let losses = composed::cross_entropy_per_target(logits, &targets, options)?;
        return Ok(reshape(losses, shape)?);
    }
    run(x, (weight, bias), targets, options, Reduction::None, shape)
}

/// The targets of rows that fit them.
#[track_caller]
fn checked<S: EndsIn<I>, const I: usize, const O: usize, D: Storage<usize>, Err>(
    shape: &S,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Vec<usize>, Error<Err>> {
    const NAME: &str = "linear_cross_entropy";
    check_shape(NAME, shape)?;
    check_shape(NAME, &shape.with_last(Const::<O>))?;
    checked_targets(NAME, shape.leading(), O, targets, options)
}

type Layer<'a, const I: usize, const O: usize, E, D> = (
    &'a Tensor<Rank2<O, I>, E, D>,
    Option<&'a Tensor<Rank1<O>, E, D>>,
);

/// The loss on the tape, in the fused form.
fn run<S, S2: Shape, const I: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    (weight, bias): Layer<'_, I, O, E, D>,
    targets: Vec<usize>,
    options: CrossEntropyOptions,
    reduction: Reduction,
    shape: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let layer = ProjectionBuilder::new(I)
        .push(&mut operation, weight, bias)?
        .read(&mut operation);
    let mut losses = zeros(shape.num_elements());
    let loss = slices::LinearCrossEntropy { options, reduction };
    let keep = T::OWNS_TAPE;
    let kept = loss.forward(layer.only(), x.matrix(), &targets, keep, &mut losses);
    Ok(
        operation.finish(&device, losses, shape, move |d_losses, gradients| {
            let d_x = &mut x.target();
            let layer = layer.only();
            loss.backward(layer, x.matrix(), &targets, kept, d_losses, d_x, gradients)
        })?,
    )
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        data::known,
        fused::{
            AffineMap, Array, Footprint, GradTarget, Gradients, Peaks, Slot, WantsGradient, number,
        },
        kernel::{
            Buffer, Matrix, MatrixMut,
            cross_entropy::{Options, Scale},
            linear_cross_entropy::{self as kernel, Classified, Plan, rows_at_once},
        },
        ops::cross_entropy::Reduction,
        simd::WriteMode,
    };

    /// The losses of logits that a linear map computes.
    #[derive(Clone, Copy, Debug)]
    pub struct LinearCrossEntropy {
        /// Which targets count, and how much is spread over all classes.
        pub options: Options,
        /// The reduction of the losses.
        pub reduction: Reduction,
    }

    /// What the derivative reads, by the [`Plan`].
    #[derive(Debug)]
    pub enum KeptLoss<E: Element> {
        /// There is no derivative.
        Nothing,
        /// The logits in blocks, and the logarithm of the sum of each row.
        Logits {
            /// `[n, classes]`
            logits: Array<E>,
            /// `[n]`
            lse: Array<E>,
        },
        /// The gradients for the upstream gradient 1.
        Gradients {
            /// `[n, in]`
            x: Array<E>,
            /// `[classes, in]`
            weight: Option<Array<E>>,
            /// `[classes]`
            bias: Option<Array<E>>,
        },
        /// The logarithm of the sum of each row.
        Sums(Array<E>),
    }

    /// The memory of both passes for so many targets, of rows of this width.
    pub const fn linear_cross_entropy_footprint(
        targets: &[usize],
        [width, classes]: [usize; 2],
        has_bias: bool,
        is_mean: bool,
    ) -> Footprint {
        let rows = Footprint::numbers(targets);
        let kept = match Plan::of(rows, width, classes, is_mean) {
            Plan::Logits => {
                let logits = Footprint::numbers(&[rows, classes]);
                logits.saturating_add(rows)
            }
            Plan::Gradients => {
                let bias = if has_bias { classes } else { 0 };
                let x = Footprint::numbers(&[rows, width]);
                let weight = Footprint::numbers(&[classes, width]);
                x.saturating_add(weight).saturating_add(bias)
            }
            Plan::Sums => rows,
        };
        let scratch = match Plan::of(rows, width, classes, is_mean) {
            Plan::Gradients => Footprint::numbers(&[rows_at_once(classes), classes]),
            Plan::Logits | Plan::Sums => 0,
        };
        Footprint::same(Peaks {
            kept,
            forward: kept.saturating_add(scratch),
            ..Peaks::NONE
        })
    }

    impl LinearCrossEntropy {
        fn classified<'a, E: Element>(
            &self,
            layer: AffineMap<'a, E>,
            x: Matrix<'a, E>,
            targets: &'a [usize],
        ) -> Classified<'a, E> {
            Classified {
                x,
                weight: layer.weight,
                bias: layer.bias,
                targets,
                options: self.options,
                dtype: layer.dtype,
            }
        }

        /// Computes the losses, or their mean. `keep` says whether the derivative will be asked for.
        pub fn forward<E: Element>(
            &self,
            layer: AffineMap<'_, E>,
            x: Matrix<'_, E>,
            targets: &[usize],
            keep: bool,
            to: &mut [E],
        ) -> KeptLoss<E> {
            let of = self.classified(layer, x, targets);
            let is_mean = self.reduction == Reduction::Mean;
            let [rows, width, classes] = [x.rows(), x.cols(), layer.weight.rows()];
            let losses = |to| if is_mean { Default::default() } else { to };
            let (loss, kept) = match Plan::of(rows, width, classes, is_mean) {
                _ if !keep => {
                    let mut lse = Buffer::uninit(rows);
                    let loss = kernel::forward(of, &mut [], &mut lse, losses(&mut *to));
                    (loss, KeptLoss::Nothing)
                }
                Plan::Logits => {
                    let mut logits = Array::uninit(rows, [classes]);
                    let mut lse = Array::uninit(rows, [1]);
                    let [all, sums] = [&mut logits, &mut lse].map(Array::as_mut_slice);
                    let loss = kernel::forward(of, all, sums, losses(&mut *to));
                    (loss, KeptLoss::Logits { logits, lse })
                }
                Plan::Gradients => {
                    let mut d_x = Array::uninit(rows, [width]);
                    let weight = layer.d_weight.wanted();
                    let mut weight = weight.map(|_| Array::zeros(classes, [width]));
                    let bias = layer.d_bias.and_then(Slot::wanted);
                    let mut bias = bias.map(|_| Array::zeros(classes, [1]));
                    let mut scratch = Array::uninit(rows_at_once(classes), [classes]);
                    let gradients = kernel::Gradients {
                        x: d_x.view_mut(),
                        into: WriteMode::Overwrite,
                        weight: weight.as_mut().map(Array::as_mut_slice),
                        bias: bias.as_mut().map(Array::as_mut_slice),
                    };
                    let scratch = scratch.as_mut_slice();
                    let loss = kernel::forward_with_gradients(of, scratch, gradients);
                    let x = d_x;
                    (loss, KeptLoss::Gradients { x, weight, bias })
                }
                Plan::Sums => {
                    let mut lse = Array::uninit(rows, [1]);
                    let sums = lse.as_mut_slice();
                    let loss = kernel::forward(of, &mut [], sums, losses(&mut *to));
                    (loss, KeptLoss::Sums(lse))
                }
            };
            let loss = known(loss);
            if is_mean {
                to[0] = E::of(loss.mean());
            }
            kept
        }

        /// The derivative.
        #[expect(clippy::too_many_arguments, reason = "two passes over one operation")]
        pub fn backward<E: Element>(
            &self,
            layer: AffineMap<'_, E>,
            x: Matrix<'_, E>,
            targets: &[usize],
            kept: KeptLoss<E>,
            d_losses: &[E],
            d_x: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            let [d_weight, d_bias] = [Some(layer.d_weight), layer.d_bias];
            let [d_weight, d_bias] = [d_weight, d_bias].map(|slot| slot.and_then(Slot::wanted));
            let of = self.classified(layer, x, targets);
            let (mut logits, lse) = match kept {
                KeptLoss::Nothing => return,
                KeptLoss::Gradients { x, weight, bias } => {
                    // Without a counted row the mean is NaN, and so may its gradient be. Those of the parameters are 0.
                    let scale = match of.counted() {
                        0 => 0.0,
                        _ => number(d_losses[0]),
                    };
                    d_x.add(scale, x.as_slice(), gradients);
                    for (slot, d) in [(d_weight, weight), (d_bias, bias)] {
                        if let Some((slot, d)) = slot.zip(d) {
                            GradTarget::slot(slot).add(scale, d.as_slice(), gradients);
                        }
                    }
                    return;
                }
                KeptLoss::Logits { logits, lse } => (Some(logits), lse),
                KeptLoss::Sums(lse) => (None, lse),
            };
            let scale = match self.reduction {
                Reduction::None => Scale::Rows(d_losses),
                Reduction::Mean => {
                    let counted = of.counted();
                    // If no row is counted, there is no row to scale.
                    Scale::All(E::of(number(d_losses[0]) / counted as f64))
                }
            };
            if !(d_x.is_wanted() || d_weight.is_some() || d_bias.is_some()) {
                return;
            }
            let nowhere = || GradTarget::local(&mut [], WriteMode::Add);
            let [mut to_weight, mut to_bias] =
                [d_weight, d_bias].map(|slot| slot.map_or_else(nowhere, GradTarget::slot));
            let all = [d_x, &mut to_weight, &mut to_bias];
            let [(numbers, into), (weight, _), (bias, _)] = GradTarget::all_of(all, gradients);
            let to = kernel::Gradients {
                x: MatrixMut::new(numbers, of.x.rows(), of.x.cols()),
                into,
                weight: d_weight.map(|_| weight),
                bias: d_bias.map(|_| bias),
            };
            let logits = logits.as_mut().map(Array::as_mut_slice);
            let logits = logits.unwrap_or_default();
            known(kernel::backward(of, logits, lse.as_slice(), scale, to));
        }
    }
}
