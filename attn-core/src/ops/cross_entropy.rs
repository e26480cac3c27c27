//! The loss of a classifier.

use dfdx::{
    shapes::{Dim, HasShape, Rank0, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    data::{Ids, known},
    fused::{Operation, number},
    kernel::{Buffer, Matrix, MatrixMut, cross_entropy as kernel, elementwise},
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
    let rows = logits.shape().leading();
    assert_eq!(rows, *targets.shape(), "one target per row of the logits");
    let smoothing = options.label_smoothing;
    assert!(
        (0.0..=1.0).contains(&smoothing),
        "the label smoothing is {smoothing}"
    );
    check_shape("cross_entropy", logits.shape())?;
    let rows = rows.num_elements();
    let classes = logits.shape().last().size();
    let targets = Ids::read(targets);
    targets.check("cross_entropy", "target", classes, options.ignore_index)?;
    let targets = targets.values;
    if !D::FUSED {
        return Ok(composed::cross_entropy(logits, &targets, options)?);
    }
    let device = logits.device().clone();
    let mut operation = Operation::default();
    let logits = operation.read(logits)?;
    let mut lse = Buffer::counted(rows);
    let matrix = Matrix::new(logits.values(), rows, classes);
    let loss = known(kernel::forward(matrix, &targets, options, &mut lse));
    let mean = vec![E::of(loss.mean())];
    Ok(
        operation.finish(&device, mean, (), move |d_mean, gradients| {
            // If no row is counted, there is no row to scale.
            let scale = E::of(number(d_mean[0]) / loss.counted as f64);
            let mut d_logits = Buffer::counted(rows * classes);
            known(kernel::backward(
                Matrix::new(logits.values(), rows, classes),
                &targets,
                options,
                &lse,
                scale,
                MatrixMut::new(&mut d_logits, rows, classes),
            ));
            elementwise::add_scaled(E::one(), &d_logits, logits.gradient(gradients));
        })?,
    )
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
        let counts = |&target: &usize| Some(target) != options.ignore_index;
        let counted = targets.iter().filter(|target| counts(target)).count();
        if counted == 0 || logits.shape().last().size() == 0 {
            return zeros_after(logits, ())?.try_add(E::nan());
        }
        let share = |counts: bool| if counts { 1.0 / counted as f64 } else { 0.0 };
        let shares = targets.iter().map(|target| E::of(share(counts(target))));
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
            .try_mul(shares)?
            .try_sum()
    }
}
