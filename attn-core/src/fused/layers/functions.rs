//! What has no parameters.

use crate::{
    Element,
    fused::{Footprint, Gradients, Target},
    kernel::{
        Buffer, Matrix, MatrixMut, activation, arithmetic,
        axis::{self, Axis, Counted},
        concat as side_by_side,
        dropout::{self as drops, Dropout, Dropped},
        elementwise::{self, NOTHING},
        sinusoid, softmax as shares, sum,
    },
    simd,
};

/// `y = act(x)` for every element.
pub fn activate<'a, E: Element>(
    activation: impl activation::Activation,
    x: &[E],
    y: impl Into<Dropped<&'a mut [E]>>,
) {
    activation::forward(activation, x, y);
}

/// The derivative of [`activate`].
pub fn activate_backward<E: Element>(
    activation: impl activation::Activation,
    x: &[E],
    d_y: &[E],
    d_x: &mut Target<'_, E>,
    gradients: &mut Gradients<E>,
) {
    d_x.overwrite(gradients, |d_x| {
        activation::backward(activation, x, d_y, d_x);
    })
}

/// The derivative of a product by one of the factors, given the other one.
pub fn mul_backward<E: Element>(
    other: &[E],
    d_y: &[E],
    d_x: &mut Target<'_, E>,
    gradients: &mut Gradients<E>,
) {
    d_x.accumulate(gradients, |d_x| arithmetic::add_product(d_y, other, d_x))
}

/// `y = x + y`, where `y` is.
pub fn add_to<'a, E: Element>(y: impl Into<Dropped<&'a mut [E]>>, x: impl Into<Dropped<&'a [E]>>) {
    sum::add_to(y.into(), x.into());
}

/// `z = x + y`
pub fn add<'a, E: Element>(
    x: impl Into<Dropped<&'a [E]>>,
    y: impl Into<Dropped<&'a [E]>>,
    z: impl Into<Dropped<&'a mut [E]>>,
) {
    sum::add(x.into(), y.into(), z.into());
}

/// `z = x - y`
pub fn sub<E: Element>(x: &[E], y: &[E], z: &mut [E]) {
    arithmetic::sub(x, y, z);
}

/// `z = x y`
pub fn mul<E: Element>(x: &[E], y: &[E], z: &mut [E]) {
    arithmetic::mul(x, y, z);
}

/// `y = a x`
pub fn scale<E: Element>(a: f64, x: &[E], y: &mut [E]) {
    elementwise::affine(E::of(a), E::of(NOTHING), x, y);
}

/// `y = x + b`
pub fn shift<E: Element>(b: f64, x: &[E], y: &mut [E]) {
    elementwise::affine(E::one(), E::of(b), x, y);
}

/// `y = dropout(x)`
pub fn dropout<E: Element>(dropout: Dropout, x: &[E], y: &mut [E]) {
    drops::dropout(dropout, x, y);
}

/// `x = dropout(x)`
pub fn dropout_in_place<E: Element>(dropout: Dropout, x: &mut [E]) {
    drops::dropout_in_place(dropout, x);
}

/// The derivative of [`dropout`], wherever it was computed: of the gradient the same elements fall.
pub fn dropout_backward<E: Element>(
    dropout: Dropout,
    d_y: &[E],
    d_x: &mut Target<'_, E>,
    gradients: &mut Gradients<E>,
) {
    let (d_x, into) = d_x.numbers_mut(gradients);
    match into {
        simd::Into::Overwrite => drops::dropout(dropout, d_y, d_x),
        simd::Into::Add => sum::add_to(d_x.into(), dropout.of(d_y)),
    }
}

/// The softmax of every row.
pub fn softmax<E: Element>(x: Matrix<'_, E>, y: MatrixMut<'_, E>) {
    shares::forward(x, y);
}

/// The derivative of [`softmax`], given its result `y`.
pub fn softmax_backward<E: Element>(
    y: Matrix<'_, E>,
    d_y: Matrix<'_, E>,
    d_x: &mut Target<'_, E>,
    gradients: &mut Gradients<E>,
) {
    let (rows, width) = (y.rows(), y.cols());
    d_x.accumulate(gradients, |d_x| {
        shares::backward(y, d_y, MatrixMut::new(d_x, rows, width));
    })
}

/// `x` repeated along axes of size 1: those of [`growing`].
pub fn expand<E: Element>(x: &[E], steps: &[Axis], y: &mut [E]) {
    let Some((&last, steps)) = steps.split_last() else {
        return y.copy_from_slice(x);
    };
    let mut smaller: Option<Buffer<E>> = None;
    for &step in steps {
        let mut larger = Buffer::counted(step.elements());
        axis::repeat(smaller.as_deref().unwrap_or(x), step, &mut larger);
        smaller = Some(larger);
    }
    axis::repeat(smaller.as_deref().unwrap_or(x), last, y);
}

/// The derivative of [`expand`]: sums.
pub fn expand_backward<E: Element>(
    steps: &[Axis],
    d_y: &[E],
    d_x: &mut Target<'_, E>,
    gradients: &mut Gradients<E>,
) {
    let mut sums: Option<Buffer<E>> = None;
    for &step in steps.iter().rev() {
        let mut fewer = Buffer::counted(step.outer * step.inner);
        axis::sum(sums.as_deref().unwrap_or(d_y), step, &mut fewer);
        sums = Some(fewer);
    }
    d_x.add(1.0, sums.as_deref().unwrap_or(d_y), gradients)
}

/// What [`expand`] and its derivative take: of the steps on the way, each result while the next one is computed.
pub const fn expand_footprint(from: &[usize], to: &[usize]) -> Footprint {
    let mut whole = Footprint::NONE;
    // The numbers before a step, and before the one before it; `x` itself takes nothing in the forward pass.
    let (mut now, mut before) = (Footprint::array(from).kept, 0);
    let (mut now_forward, mut before_forward) = (0, 0);
    let mut axis = from.len();
    while axis > 0 {
        axis -= 1;
        if from[axis] != to[axis] {
            whole.forward = larger(whole.forward, now_forward, before_forward);
            whole.backward = larger(whole.backward, now, before);
            (before, before_forward) = (now, now_forward);
            let (outer, inner) = (from.split_at(axis).0, to.split_at(axis).1);
            now = Footprint::array(outer)
                .kept
                .saturating_mul(Footprint::array(inner).kept);
            now_forward = now;
        }
    }
    whole
}

const fn larger(most: usize, a: usize, b: usize) -> usize {
    let sum = a.saturating_add(b);
    if sum > most { sum } else { most }
}

/// The axes that become larger from one shape to another, the last one first.
///
/// # Panics
/// If an axis changes whose size is not 1.
#[track_caller]
pub fn growing(from: &[usize], to: &[usize]) -> Vec<Axis> {
    let grows = |&axis: &usize| from[axis] != to[axis];
    let axes = (0..from.len()).rev().filter(grows);
    axes.map(|axis| {
        assert_eq!(from[axis], 1, "axis {axis} of {from:?} in {to:?}");
        Axis {
            outer: from[..axis].iter().product(),
            len: to[axis],
            inner: to[axis + 1..].iter().product(),
        }
    })
    .collect()
}

/// The rows of `x` and `y` side by side.
pub fn concat<E: Element>(x: Matrix<'_, E>, y: Matrix<'_, E>, to: MatrixMut<'_, E>) {
    side_by_side::forward(x, y, to);
}

/// The derivative of [`concat`](fn@concat), for the `width` columns from `start` on.
pub fn concat_backward<E: Element>(
    start: usize,
    width: usize,
    d_y: Matrix<'_, E>,
    d_x: &mut Target<'_, E>,
    gradients: &mut Gradients<E>,
) {
    d_x.accumulate(gradients, |d_x| {
        let to = MatrixMut::new(d_x, d_y.rows(), width);
        side_by_side::add_rows(d_y.some_cols(start..start + width), to);
    })
}

/// The means of the sequences in `x [sequences, len, width]`, over the vectors that are `counted`.
pub fn mean_pool<E: Element>(x: &[E], axis: Axis, counted: Counted<'_>, y: &mut [E]) {
    axis::mean(x, axis, counted, y);
}

/// The derivative of [`mean_pool`].
pub fn mean_pool_backward<E: Element>(
    axis: Axis,
    counted: Counted<'_>,
    d_y: &[E],
    d_x: &mut Target<'_, E>,
    gradients: &mut Gradients<E>,
) {
    d_x.accumulate(gradients, |d_x| {
        axis::mean_backward(d_y, axis, counted, d_x);
    })
}

/// The waves of the positions of sequences of `len` tokens, one sequence after the other.
pub fn sinusoidal_position<E: Element>(len: usize, width: usize, to: &mut [E]) {
    let mut rows = Buffer::counted(len * width);
    sinusoid::forward(MatrixMut::new(&mut rows, len, width));
    let sequences = Axis {
        outer: 1,
        len: to.len().checked_div(rows.len()).unwrap_or(0),
        inner: len * width,
    };
    axis::repeat(&rows, sequences, to);
}

/// The waves of these positions, a row each.
///
/// # Panics
/// If there are fewer positions than rows.
pub fn sinusoids<E: Element>(positions: &[usize], to: MatrixMut<'_, E>) {
    sinusoid::forward_at(positions, to);
}
