//! The loss of a classifier.

use dfdx::{
    shapes::{Dim, HasShape, Rank0, Shape},
    tensor::{Storage, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    composed::reshape,
    data::Ids,
    fused::{Operation, zeros},
    model::Pass,
    ops::{CrossEntropyOptions, LastAxis, check_shape},
    unwrap,
};

/// The mean of `-ln softmax(logits)[target]` over all targets, for `logits [.., C]` and `targets [..]`.
///
/// With `label_smoothing = s`, a fraction `s` of every target is spread over all classes. Rows with the target `ignore_index` are
/// ignored. If all rows are ignored, or if there are none, the loss is NaN and the gradient 0. PyTorch:
/// `torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=.., label_smoothing=..)`.
///
/// The sum is accumulated in `f64`. A logit of -∞ is a class that is never predicted. A probability below 2^-80 in `f32`, or 2^-900 in
/// `f64`, is 0 in the gradient.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{CrossEntropyOptions, cross_entropy}};
///
/// let dev = Cpu::default();
/// let logits: Tensor<Rank2<3, 2>, f64, _> = dev.tensor([[0.0, 0.0], [9.0, 9.0], [5.0, 1.0]]);
/// let targets: Tensor<Rank1<3>, usize, _> = dev.tensor([0, 1, 99]);
/// let options = CrossEntropyOptions { ignore_index: Some(99), ..Default::default() };
/// let loss = cross_entropy(logits.leaky_trace(), &targets, options);
/// assert!((loss.array() - 2f64.ln()).abs() < 1e-12);
/// assert_eq!(loss.backward().get(&logits).array()[2], [0.0, 0.0]);
/// ```
///
/// # Panics
/// If [`try_cross_entropy`] returns an error or panics.
#[doc(alias("CrossEntropyLoss", "cross_entropy_with_logits_loss"))]
#[track_caller]
pub fn cross_entropy<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    logits: Tensor<S, E, D, T>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Tensor<Rank0, E, D, T> {
    unwrap(try_cross_entropy(logits, targets, options))
}

/// The fallible version of [`cross_entropy`].
///
/// # Errors
/// [`Error::OutOfRange`] if a target is neither a class nor ignored; [`Error::TooLarge`] if the sizes of the logits do not fit the
/// memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If sizes differ at run time, or if `label_smoothing` is not between 0 and 1.
#[track_caller]
pub fn try_cross_entropy<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    logits: Tensor<S, E, D, T>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Tensor<Rank0, E, D, T>, Error<D::Err>> {
    cross_entropy_with_form(D::FUSED, logits, targets, options)
}

/// [`try_cross_entropy`] in the fused or the composed form.
#[track_caller]
pub(crate) fn cross_entropy_with_form<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    logits: Tensor<S, E, D, T>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Tensor<Rank0, E, D, T>, Error<D::Err>> {
    let targets = checked(&logits, targets, options)?;
    if !fused {
        return Ok(composed::cross_entropy(logits, &targets, options)?);
    }
    run(logits, targets, options, Reduction::Mean, ())
}

/// `-ln softmax(logits)[target]` of each target, for `logits [.., C]` and `targets [..]`: those of which [`cross_entropy`] is the mean.
/// The loss of an ignored target is 0.
///
/// PyTorch: `torch.nn.functional.cross_entropy(.., reduction="none")`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::cross_entropy_per_target};
///
/// let dev = Cpu::default();
/// let logits: Tensor<Rank2<2, 2>, f64, _> = dev.tensor([[0.0, 0.0], [2.0, 0.0]]);
/// let targets: Tensor<Rank1<2>, usize, _> = dev.tensor([0, 1]);
/// let losses = cross_entropy_per_target(logits, &targets, Default::default()).array();
/// assert!((losses[0] - 2f64.ln()).abs() < 1e-12 && (losses[1] - (2.0 + (-2f64).exp().ln_1p())).abs() < 1e-12);
/// ```
///
/// # Panics
/// If [`try_cross_entropy_per_target`] returns an error or panics.
#[track_caller]
pub fn cross_entropy_per_target<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    logits: Tensor<S, E, D, T>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Tensor<S::Leading, E, D, T> {
    unwrap(try_cross_entropy_per_target(logits, targets, options))
}

/// The fallible version of [`cross_entropy_per_target`].
///
/// # Errors
/// The errors of [`try_cross_entropy`].
///
/// # Panics
/// The panics of [`try_cross_entropy`].
#[track_caller]
pub fn try_cross_entropy_per_target<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    logits: Tensor<S, E, D, T>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Tensor<S::Leading, E, D, T>, Error<D::Err>> {
    cross_entropy_per_target_with_form(D::FUSED, logits, targets, options)
}

/// [`try_cross_entropy_per_target`] in the fused or the composed form.
#[track_caller]
pub(crate) fn cross_entropy_per_target_with_form<S: LastAxis, E, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    logits: Tensor<S, E, D, T>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Tensor<S::Leading, E, D, T>, Error<D::Err>>
where
    E: Element,
{
    let shape = *targets.shape();
    let targets = checked(&logits, targets, options)?;
    if !fused {
        let losses = composed::cross_entropy_per_target(logits, &targets, options)?;
        return Ok(reshape(losses, shape)?);
    }
    run(logits, targets, options, Reduction::None, shape)
}

/// The targets of logits that fit them.
#[track_caller]
fn checked<S: LastAxis, E: Element, D: Backend<E>, T>(
    logits: &Tensor<S, E, D, T>,
    targets: &Tensor<S::Leading, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Vec<usize>, Error<D::Err>> {
    const NAME: &str = "cross_entropy";
    check_shape(NAME, logits.shape())?;
    let rows = logits.shape().leading();
    checked_targets(NAME, rows, logits.shape().last().size(), targets, options)
}

/// The targets of rows of so many classes, with options that are in range.
#[track_caller]
pub(super) fn checked_targets<S: Shape, D: Storage<usize>, Err>(
    operation: &'static str,
    rows: S,
    classes: usize,
    targets: &Tensor<S, usize, D>,
    options: CrossEntropyOptions,
) -> Result<Vec<usize>, Error<Err>> {
    assert_eq!(rows, *targets.shape(), "one target per row of the logits");
    let smoothing = options.label_smoothing;
    assert!(
        (0.0..=1.0).contains(&smoothing),
        "the label smoothing is {smoothing}"
    );
    let targets = Ids::read(targets);
    targets.check(operation, "target", classes, options.ignore_index)?;
    Ok(targets.values)
}

/// The loss on the tape, in the fused form.
fn run<S: LastAxis, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    logits: Tensor<S, E, D, T>,
    targets: Vec<usize>,
    options: CrossEntropyOptions,
    reduction: Reduction,
    shape: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
    let device = logits.device().clone();
    let mut operation = Operation::default();
    let logits = operation.read(logits)?;
    let mut losses = zeros(shape.num_elements());
    let loss = slices::CrossEntropy { options, reduction };
    let lse = loss.forward(logits.matrix(), &targets, &mut losses);
    Ok(
        operation.finish(&device, losses, shape, move |d_losses, gradients| {
            let d_logits = &mut logits.target();
            loss.backward(
                logits.matrix(),
                &targets,
                lse,
                d_losses,
                d_logits,
                gradients,
            )
        })?,
    )
}

/// The reduction of the losses of the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their mean. Ignored targets do not count.
    Mean,
    /// All of them are the result.
    None,
}

impl<T> Pass<'_, T> {
    /// The mean loss of the targets: [`cross_entropy`].
    ///
    /// # Errors
    /// The errors of [`try_cross_entropy`].
    ///
    /// # Panics
    /// The panics of [`try_cross_entropy`].
    #[track_caller]
    pub fn cross_entropy<S: LastAxis, E: Element, D: Backend<E>>(
        &mut self,
        logits: &Tensor<S, E, D>,
        targets: &Tensor<S::Leading, usize, D>,
        options: CrossEntropyOptions,
    ) -> Result<Tensor<Rank0, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(logits, |fused, logits| {
            cross_entropy_with_form(fused, logits, targets, options)
        })
    }

    /// The loss of each target: [`cross_entropy_per_target`].
    ///
    /// # Errors
    /// The errors of [`try_cross_entropy`].
    ///
    /// # Panics
    /// The panics of [`try_cross_entropy`].
    #[track_caller]
    pub fn cross_entropy_per_target<S: LastAxis, E: Element, D: Backend<E>>(
        &mut self,
        logits: &Tensor<S, E, D>,
        targets: &Tensor<S::Leading, usize, D>,
        options: CrossEntropyOptions,
    ) -> Result<Tensor<S::Leading, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(logits, |fused, logits| {
            cross_entropy_per_target_with_form(fused, logits, targets, options)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use super::Reduction;
    use crate::{
        Element,
        data::known,
        fused::{Array, Footprint, GradTarget, Gradients, number},
        kernel::{
            Matrix, MatrixMut,
            cross_entropy::{self as kernel, Options, Scale},
        },
    };

    /// The losses of logits.
    #[derive(Clone, Copy, Debug)]
    pub struct CrossEntropy {
        /// Which targets count, and how much is spread over all classes.
        pub options: Options,
        /// The reduction of the losses.
        pub reduction: Reduction,
    }

    /// The memory of both passes for so many targets: the logarithm of the sum of each row.
    pub const fn cross_entropy_footprint(targets: &[usize]) -> Footprint {
        Footprint::array(targets)
    }

    impl CrossEntropy {
        /// Computes the losses, or their mean. Returns the logarithms of the sums of the rows for the derivative.
        pub fn forward<E: Element>(
            &self,
            logits: Matrix<'_, E>,
            targets: &[usize],
            to: &mut [E],
        ) -> Array<E> {
            let mut lse = Array::uninit(targets.len(), [1]);
            let losses = match self.reduction {
                Reduction::Mean => &mut [],
                Reduction::None => &mut *to,
            };
            let sums = lse.as_mut_slice();
            let loss = known(kernel::forward(logits, targets, self.options, sums, losses));
            if self.reduction == Reduction::Mean {
                to[0] = E::of(loss.mean());
            }
            lse
        }

        /// The derivative.
        pub fn backward<E: Element>(
            &self,
            logits: Matrix<'_, E>,
            targets: &[usize],
            lse: Array<E>,
            d_losses: &[E],
            d_logits: &mut GradTarget<'_, E>,
            gradients: &mut Gradients<E>,
        ) {
            let scale = match self.reduction {
                Reduction::None => Scale::Rows(d_losses),
                Reduction::Mean => {
                    let counts = |target: &&usize| Some(**target) != self.options.ignore_index;
                    let counted = targets.iter().filter(counts).count();
                    // If no row is counted, there is no row to scale.
                    Scale::All(E::of(number(d_losses[0]) / counted as f64))
                }
            };
            let Some((numbers, into)) = d_logits.numbers_mut(gradients) else {
                return;
            };
            let to = MatrixMut::new(numbers, logits.rows(), logits.cols());
            let sums = lse.as_slice();
            known(kernel::backward(
                logits,
                targets,
                self.options,
                sums,
                scale,
                into,
                to,
            ));
        }
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, Dim, HasShape, Rank0},
        tensor::{Tape, Tensor, TensorFromVec, WithEmptyTape},
        tensor_ops::{Device, MeanTo, SelectTo, SumTo, TryAdd, TryMul},
    };

    use crate::{
        Element,
        composed::zeros_after,
        ops::{CrossEntropyOptions, LastAxis, shape::rows},
    };

    /// [`cross_entropy`](super::cross_entropy) of rows and their targets.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn cross_entropy<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
        logits: Tensor<S, E, D, T>,
        targets: &[usize],
        options: CrossEntropyOptions,
    ) -> Result<Tensor<Rank0, E, D, T>, D::Err> {
        let counts = |target: &&usize| Some(**target) != options.ignore_index;
        let counted = targets.iter().filter(counts).count();
        if counted == 0 || logits.shape().last().size() == 0 {
            return zeros_after(logits, ())?.try_add(E::nan());
        }
        let share = 1.0 / counted as f64;
        losses(logits, targets, options, share)?.try_sum()
    }

    /// [`cross_entropy_per_target`](super::cross_entropy_per_target) of rows and their targets.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn cross_entropy_per_target<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
        logits: Tensor<S, E, D, T>,
        targets: &[usize],
        options: CrossEntropyOptions,
    ) -> Result<Tensor<(usize,), E, D, T>, D::Err> {
        if logits.shape().num_elements() == 0 {
            return zeros_after(logits, (targets.len(),));
        }
        losses(logits, targets, options, 1.0)
    }

    /// The losses of the targets times a share, and 0 for those that are ignored.
    fn losses<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
        logits: Tensor<S, E, D, T>,
        targets: &[usize],
        options: CrossEntropyOptions,
        share: f64,
    ) -> Result<Tensor<(usize,), E, D, T>, D::Err> {
        let counts = |&target: &usize| Some(target) != options.ignore_index;
        let of = |target| if counts(target) { share } else { 0.0 };
        let shares = targets.iter().map(|target| E::of(of(target)));
        // Ignored rows get an arbitrary class.
        let classes = targets
            .iter()
            .map(|target| if counts(target) { *target } else { 0 });
        let device = logits.device().clone();
        let count = (targets.len(),);
        let shares: Tensor<(usize,), E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(&device, shares.collect(), count)?;
        let classes =
            TensorFromVec::<usize>::try_tensor_from_vec(&device, classes.collect(), count)?;
        let smoothing = options.label_smoothing;
        let nats = rows(logits)?.try_log_softmax::<Axis<1>>()?.try_negate()?;
        let all = nats.with_empty_tape().try_mean::<(usize,), _>()?;
        let of_targets = nats.try_select(classes)?.try_mul(E::of(1.0 - smoothing))?;
        of_targets
            .try_add(all.try_mul(E::of(smoothing))?)?
            .try_mul(shares)
    }
}
