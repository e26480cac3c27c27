//! The composed form, with dfdx's operations.

use dfdx::{
    shapes::{Const, HasShape, Shape},
    tensor::{Tape, Tensor, WithEmptyTape},
    tensor_ops::TryMul,
};

use crate::{
    Backend, Element,
    composed::reshape,
    ops::{
        Activation, Affine, EndsIn, dropout::composed::dropout, linear::composed::linear,
        shape::rows,
    },
};

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
    feed_forward_with_dropout::<A, S, I, H, O, E, D, T>(x, up, down, (0.0, None))
}

/// The same, with dropout of the hidden layer: its probability, and its seed in training.
pub(crate) fn feed_forward_with_dropout<
    A,
    S,
    const I: usize,
    const H: usize,
    const O: usize,
    E,
    D,
    T,
>(
    x: Tensor<S, E, D, T>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
    dropout: (f64, Option<u64>),
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, D::Err>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let shape = x.shape().with_last(Const::<O>);
    let hidden = A::compose(linear(rows(x)?, up.weight, up.bias)?)?;
    let hidden = drop_out(hidden, dropout)?;
    reshape(linear(hidden, down.weight, down.bias)?, shape)
}

fn drop_out<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    hidden: Tensor<S, E, D, T>,
    (p, seed): (f64, Option<u64>),
) -> Result<Tensor<S, E, D, T>, D::Err> {
    match seed {
        None => Ok(hidden),
        Some(seed) => dropout(hidden, p, seed),
    }
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
    gated_feed_forward_with_dropout::<A, S, I, H, O, E, D, T>(x, gate, up, down, (0.0, None))
}

/// The same, with dropout as in [`feed_forward_with_dropout`].
pub(crate) fn gated_feed_forward_with_dropout<
    A,
    S,
    const I: usize,
    const H: usize,
    const O: usize,
    E,
    D,
    T,
>(
    x: Tensor<S, E, D, T>,
    gate: Affine<'_, I, H, E, D>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
    dropout: (f64, Option<u64>),
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
    let hidden = drop_out(hidden, dropout)?;
    reshape(linear(hidden, down.weight, down.bias)?, shape)
}
