//! The operations of [`ops`](super) out of dfdx's, to be read and compared with.
//!
//! They stand in on devices that are not [`FUSED`](crate::Backend::FUSED), and the tests hold the others against them. The
//! indices they are given are checked already.

use dfdx::{
    shapes::{Axis, Const, ConstDim, Dim, HasShape, Rank0, Rank1, Rank2, Shape},
    tensor::{PutTape, SplitTape, Tape, Tensor, TensorFromVec, WithEmptyTape, ZerosTensor},
    tensor_ops::{
        BroadcastTo, ChooseFrom, Device, GatherTo, MeanTo, SelectTo, SumTo, TryAdd, TryConcatAlong,
        TryDiv, TryGt, TryMul, TrySub,
    },
};

use super::{Activation, Affine, Append, CrossEntropyOptions, EndsIn, LastAxis, mean_pool::Pooled};
use crate::{
    Backend, Element,
    composed::{self, depend, is_empty, reshape, zeros_after, zeros_after_both},
    kernel::sinusoid::frequency,
    random::Philox4x32,
};

/// A tensor as rows of its last axis.
type Rows<L, E, D, T> = Tensor<(usize, L), E, D, T>;

fn rows<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Rows<S::Last, E, D, T>, D::Err> {
    let shape = *x.shape();
    reshape(x, (shape.leading().num_elements(), shape.last()))
}

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
    reshape(
        composed::linear(x, weight, bias)?,
        shape.with_last(Const::<O>),
    )
}

/// [`feed_forward`](super::feed_forward)
///
/// # Errors
/// If dfdx fails.
pub fn feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, D::Err>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let shape = x.shape().with_last(Const::<O>);
    let hidden = linear(rows(x)?, up.weight, up.bias)?;
    reshape(linear(A::compose(hidden)?, down.weight, down.bias)?, shape)
}

/// [`gated_feed_forward`](super::gated_feed_forward)
///
/// # Errors
/// If dfdx fails.
pub fn gated_feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    gate: Affine<'_, I, H, E, D>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, D::Err>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let shape = x.shape().with_last(Const::<O>);
    let x = rows(x)?;
    let gate = linear(x.with_empty_tape(), gate.weight, gate.bias)?;
    let hidden = A::compose(gate)?.try_mul(linear(x, up.weight, up.bias)?)?;
    reshape(linear(hidden, down.weight, down.bias)?, shape)
}

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
    let (gain, bias) = (gain.retaped::<T>(), bias.retaped::<T>());
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

/// [`gate`](super::gate)
///
/// # Errors
/// If dfdx fails.
pub fn gate<A: Activation, const H: usize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S::With<Const<H>>, E, D, T>, D::Err>
where
    S: LastAxis<Last: ConstDim>,
{
    let shape = x.shape().with_last(Const::<H>);
    if is_empty(x.shape()) {
        return zeros_after(x, shape);
    }
    let x = rows(x)?;
    let left = x.with_empty_tape().try_slice((.., ..H))?;
    let right = x.try_slice((.., H..))?;
    // Of the same types.
    let sizes = (left.shape().0, H);
    let (left, right) = (reshape(left, sizes)?, reshape(right, sizes)?);
    reshape(A::compose(left)?.try_mul(right)?, shape)
}

/// [`add`](super::add)
///
/// # Errors
/// If dfdx fails.
pub fn add<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    // Another tensor of the same numbers: dfdx's sum of a tensor and itself has no derivative.
    x.try_add(-E::zero())?.try_add(y)
}

/// [`sub`](super::sub)
///
/// # Errors
/// If dfdx fails.
pub fn sub<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    // As in a sum.
    x.try_add(-E::zero())?.try_sub(y)
}

/// [`mul`](super::mul)
///
/// # Errors
/// If dfdx fails.
pub fn mul<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    // As in a sum.
    x.try_add(-E::zero())?.try_mul(y)
}

/// [`scale`](super::scale)
///
/// # Errors
/// If dfdx fails.
pub fn scale<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    a: f64,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    x.try_mul(E::of(a))
}

/// [`shift`](super::shift)
///
/// # Errors
/// If dfdx fails.
pub fn shift<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    b: f64,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    x.try_add(E::of(b))
}

/// [`softmax`](super::softmax)
///
/// # Errors
/// If dfdx fails.
pub fn softmax<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let shape = *x.shape();
    if is_empty(&shape) {
        return zeros_after(x, shape);
    }
    reshape(rows(x)?.try_softmax::<Axis<1>>()?, shape)
}

/// [`expand`](super::expand)
///
/// # Errors
/// If dfdx fails.
pub fn expand<S, S2, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, D::Err>
where
    S: Shape,
    S2: Shape<Concrete = S::Concrete>,
{
    if is_empty(&to) {
        return zeros_after(x, to);
    }
    let sizes: Vec<_> = std::iter::zip(x.shape().concrete(), to.concrete()).collect();
    // Where the number of each place comes from: along an axis of size 1, from its only place.
    let source = |mut place: usize| {
        let (mut source, mut stride) = (0, 1);
        for &(from, to) in sizes.iter().rev() {
            source += place % to % from * stride;
            stride *= from;
            place /= to;
        }
        source
    };
    let sources = (0..to.num_elements()).map(source).collect();
    let count = (to.num_elements(),);
    let sources = TensorFromVec::<usize>::try_tensor_from_vec(x.device(), sources, count)?;
    let numbers = (x.shape().num_elements(),);
    reshape(reshape(x, numbers)?.try_gather(sources)?, to)
}

/// [`concat`](fn@super::concat)
///
/// # Errors
/// If dfdx fails.
pub fn concat<S, L: Dim, const C: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S::With<L>, E, D, T>,
) -> Result<Tensor<S::With<Const<C>>, E, D, T>, D::Err>
where
    S: LastAxis,
{
    let (shape, rows) = (
        x.shape().with_last(Const::<C>),
        x.shape().leading().num_elements(),
    );
    let (a, b) = (x.shape().last().size(), y.shape().last().size());
    if rows * a * b == 0 {
        // One of them is the result, if that has elements.
        return if a == 0 {
            after(x, y, shape)
        } else {
            after(y, x, shape)
        };
    }
    // Another tensor of the same numbers: dfdx's of a tensor and itself has no derivative.
    let x = reshape(x, (rows, a))?.try_add(-E::zero())?;
    let both = (x, reshape(y, (rows, b))?).try_concat_along(Axis::<1>)?;
    reshape(both, shape)
}

/// The numbers of `x` in another shape, on the tapes of both.
fn after<A: Shape, S: Shape, Dst: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    nothing: Tensor<A, E, D, T>,
    x: Tensor<S, E, D, T>,
    shape: Dst,
) -> Result<Tensor<Dst, E, D, T>, D::Err> {
    let (x, tape) = reshape(x, shape)?.split_tape();
    Ok(x.put_tape(tape.merge(depend(nothing))))
}

/// [`mean_pool`](super::mean_pool) of the vectors whose mark is `true`; `marks` are `[.., seq]`.
///
/// # Errors
/// If dfdx fails.
pub fn mean_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    marks: &[bool],
) -> Result<Tensor<Pooled<S>, E, D, T>, D::Err> {
    let (sequence, device) = (x.shape().leading(), x.device().clone());
    let shape = sequence.with_last(x.shape().last());
    if is_empty(x.shape()) {
        return zeros_after(x, shape);
    }
    let (outer, len) = (sequence.leading().num_elements(), sequence.last().size());
    let sizes = (outer, len, x.shape().last().size());
    let counts = marks
        .chunks(len)
        .map(|marks| marks.iter().filter(|mark| **mark).count());
    let shares = counts.map(|count| E::of(1.0 / count.max(1) as f64));
    let shares: Tensor<_, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(&device, shares.collect(), (sizes.0,))?;
    let counted = (0..outer * len * sizes.2).map(|place| marks[place / sizes.2]);
    let counted = conditions::<_, E, D>(&device, counted, sizes)?;
    let zeros: Tensor<_, E, D> = ZerosTensor::<E>::try_zeros_like(&device, &sizes)?;
    let x = counted.try_choose(reshape(x, sizes)?, zeros)?;
    let sums = x.try_sum::<(usize, usize), Axis<1>>()?;
    let flat = *sums.shape();
    reshape(
        sums.try_mul(shares.try_broadcast_like::<_, Axis<1>>(&flat)?)?,
        shape,
    )
}

/// What is true where: dfdx's devices make no tensors of `bool` but by comparing numbers.
fn conditions<S: Shape, E: Element, D: Device<E>>(
    device: &D,
    conditions: impl Iterator<Item = bool>,
    shape: S,
) -> Result<Tensor<S, bool, D>, D::Err> {
    let numbers = conditions.map(|yes| if yes { E::one() } else { E::zero() });
    let numbers: Tensor<S, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(device, numbers.collect(), shape)?;
    numbers.try_gt(E::zero())
}

/// [`sinusoidal_position`](super::sinusoidal_position)
///
/// # Errors
/// If dfdx fails.
pub fn sinusoidal_position<S: Append + LastAxis, const W: usize, E: Element, D: Device<E>>(
    axes: S,
    device: &D,
) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, D::Err> {
    let shape = axes.append(Const::<W>);
    if is_empty(&shape) {
        return ZerosTensor::<E>::try_zeros_like(device, &shape);
    }
    let sizes = (axes.leading().num_elements(), axes.last().size(), W);
    let positions = (0..sizes.1).map(|s| E::of(s as f64)).collect();
    let positions: Tensor<_, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(device, positions, (sizes.1,))?;
    let frequencies = (0..W).map(|column| E::of(frequency(column, W))).collect();
    let frequencies: Tensor<_, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(device, frequencies, (W,))?;
    let even = (0..sizes.1 * W).map(|place| (place % W).is_multiple_of(2));
    let even = conditions::<_, E, D>(device, even, (sizes.1, W))?;
    let positions: Tensor<(usize, usize), E, D> =
        positions.try_broadcast_like::<_, Axis<1>>(&(sizes.1, W))?;
    let angles = positions.try_mul(frequencies.try_broadcast_like::<_, Axis<0>>(&(sizes.1, W))?)?;
    let waves = even.try_choose(angles.clone().try_sin()?, angles.try_cos()?)?;
    reshape(waves.try_broadcast_like::<_, Axis<0>>(&sizes)?, shape)
}

/// [`dropout`](super::dropout), with its random number.
///
/// # Errors
/// If dfdx fails.
pub fn dropout<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    p: f64,
    key: u64,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let shape = *x.shape();
    let factors = dropout_factors(shape.num_elements(), p, key);
    let factors: Tensor<S, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(x.device(), factors, shape)?;
    x.try_mul(factors)
}

/// 0 or `1 / (1 - p)` for each element: a word of a random block for each, four of them after another in a block.
fn dropout_factors<E: Element>(count: usize, p: f64, key: u64) -> Vec<E> {
    let random = Philox4x32::new(key);
    // Of 2^32 words, p * 2^32 are below.
    let threshold = p * 2f64.powi(32);
    let factor = |i: usize| {
        let block = i as u64 / 4;
        let words = random.block([block as u32, (block >> 32) as u32, 0, 0]);
        let falls = f64::from(words[i % 4]) < threshold;
        if falls { 0.0 } else { 1.0 / (1.0 - p) }
    };
    (0..count).map(|i| E::of(factor(i))).collect()
}

/// [`embedding`](super::embedding)
///
/// # Errors
/// If dfdx fails.
pub fn embedding<S: Append, const V: usize, const M: usize, E, D, T>(
    ids: Tensor<S, usize, D, T>,
    weight: &Tensor<Rank2<V, M>, E, D>,
) -> Result<Tensor<S::With<Const<M>>, E, D, T>, D::Err>
where
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
{
    let shape = ids.shape().append(Const::<M>);
    let (ids, tape) = ids.split_tape();
    let weight = weight.clone().put_tape(tape);
    if is_empty(&shape) {
        return zeros_after(weight, shape);
    }
    let count = (ids.shape().num_elements(),);
    let ids = TensorFromVec::<usize>::try_tensor_from_vec(weight.device(), ids.as_vec(), count)?;
    reshape(weight.try_gather(ids)?, shape)
}

/// [`cross_entropy`](super::cross_entropy) of rows and their targets.
///
/// # Errors
/// If dfdx fails.
pub fn mean_nats<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
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
    // Any class, for what is ignored.
    let classes = targets
        .iter()
        .map(|target| if counts(target) { *target } else { 0 });
    let (device, count) = (logits.device().clone(), (targets.len(),));
    let shares: Tensor<(usize,), E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(&device, shares.collect(), count)?;
    let classes = TensorFromVec::<usize>::try_tensor_from_vec(&device, classes.collect(), count)?;
    let smoothing = options.label_smoothing;
    let nats = rows(logits)?.try_log_softmax::<Axis<1>>()?.try_negate()?;
    let all = nats.with_empty_tape().try_mean::<(usize,), _>()?;
    let of_targets = nats.try_select(classes)?.try_mul(E::of(1.0 - smoothing))?;
    of_targets
        .try_add(all.try_mul(E::of(smoothing))?)?
        .try_mul(shares)?
        .try_sum()
}
