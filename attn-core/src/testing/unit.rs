//! Helpers of the unit tests of this crate: data, naive loops, central differences.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Cpu, OwnedTape, PutTape, SplitTape, Tensor, TensorFromVec},
    tensor_ops::{Backward, Device, SumTo, TryMul},
};

use support::{
    close::{self, Tolerance},
    differences::assert_gradient,
};

use crate::{Element, random::Philox4x32};

/// A tensor that records operations in `f64`.
pub(crate) type Traced<S> = Tensor<S, f64, Cpu, OwnedTape<f64, Cpu>>;

/// Sums of some ten products of numbers around 1, in another order: ten roundings of 1.1e-16 each, times 100.
pub(crate) const F64: f64 = 1e-13;
/// The same in `f32`, where a rounding is 6e-8.
pub(crate) const F32: f64 = 6e-5;

/// `count` numbers between -2 and 2, another sequence for each seed.
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let random = Philox4x32::new(seed);
    let word = |i| random.block([i as u32, 0, 0, 0])[0];
    (0..count)
        .map(|i| f64::from(word(i)) / f64::from(u32::MAX) * 4.0 - 2.0)
        .collect()
}

/// A tensor of [`numbers`].
pub(crate) fn tensor<S: Shape, E: Element>(shape: S, seed: u64) -> Tensor<S, E, Cpu>
where
    Cpu: Device<E>,
{
    filled(shape, &numbers(shape.num_elements(), seed))
}

/// A tensor of these numbers, row-major.
pub(crate) fn filled<S: Shape, E: Element>(shape: S, values: &[f64]) -> Tensor<S, E, Cpu>
where
    Cpu: Device<E>,
{
    let values = values.iter().map(|&value| E::of(value)).collect();
    Cpu::default().tensor_from_vec(values, shape)
}

/// The numbers of a tensor, row-major.
pub(crate) fn values<S: Shape, E: Element, T>(t: &Tensor<S, E, Cpu, T>) -> Vec<f64>
where
    Cpu: Device<E>,
{
    if t.shape().num_elements() == 0 {
        return Vec::new();
    }
    let as_f64 = |value: E| num_traits::ToPrimitive::to_f64(&value).expect("floats are f64s");
    t.as_vec().into_iter().map(as_f64).collect()
}

/// `f` at every index of a shape of four axes, row-major.
pub(crate) fn naive<V>(
    [a, b, c, d]: [usize; 4],
    f: impl Fn(usize, usize, usize, usize) -> V,
) -> Vec<V> {
    let mut out = Vec::new();
    for i in 0..a * b * c * d {
        out.push(f(i / (b * c * d), i / (c * d) % b, i / d % c, i % d));
    }
    out
}

/// The offset of an index in a row-major buffer.
pub(crate) fn at<const N: usize>(sizes: [usize; N], place: [usize; N]) -> usize {
    std::iter::zip(sizes, place).fold(0, |offset, (size, index)| {
        assert!(index < size);
        offset * size + index
    })
}

/// Panics unless both are equal up to `tolerance`, relative to numbers greater than 1.
#[track_caller]
pub(crate) fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    close::assert_close("the numbers", found, expected, Tolerance::OfEach(tolerance));
}

/// The gradient of `sum(weights * f(x))` with respect to `x`, by dfdx's tape. `weights` are some [`numbers`].
pub(crate) fn gradient<S: Shape, Y: Shape>(
    x: &Tensor<S, f64, Cpu>,
    f: impl Fn(&Tensor<S, f64, Cpu>) -> Traced<Y>,
) -> Vec<f64> {
    let y = f(x);
    let shape = *y.shape();
    let weighted = y.try_mul(tensor::<Y, f64>(shape, LOSS)).expect("Cpu");
    let loss: Traced<()> = weighted.try_sum().expect("Cpu");
    values(&loss.backward().get(x))
}

/// Checks the gradient of a function with respect to one of its inputs against central differences.
#[track_caller]
pub(crate) fn check_gradient<S: Shape, Y: Shape>(
    x: &Tensor<S, f64, Cpu>,
    f: impl Fn(&Tensor<S, f64, Cpu>) -> Traced<Y>,
) {
    let weights = numbers(f(x).shape().num_elements(), LOSS);
    let loss = |moved: &[f64]| {
        let y = values(&f(&filled(*x.shape(), moved)));
        std::iter::zip(y, &weights).map(|(y, w)| y * w).sum::<f64>()
    };
    assert_gradient("the gradient", &values(x), &gradient(x, &f), loss);
}

/// Runs the backward pass of the operations that `y` has recorded, whatever its shape, with gradient 0 for `y` itself. Gradients
/// exist afterwards only if `y` kept the tape.
pub(crate) fn backward_of_nothing<S: Shape>(y: Traced<S>) -> dfdx::tensor::Gradients<f64, Cpu> {
    let (_, tape) = y.split_tape();
    let loss: Tensor<(), f64, Cpu> = filled((), &[0.0]);
    loss.put_tape(tape).backward()
}

const LOSS: u64 = 0x1055;
