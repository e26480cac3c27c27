//! Layers declared with `attention!` compute what layers written by hand in plain dfdx compute: the same output, the
//! same gradient of every input and of every parameter, in `f32` and in `f64`, batched and unbatched, with lengths known
//! at run time and at compile time.
//!
//! In `self_attention!` and `cross_attention!` a declared layer meets its hand-written counterpart; what both compute is
//! compared by `compare`. In `by_loops` the hand-written layers are held against loops over plain numbers, and in
//! `differences` the declared layers' gradients against central differences.

pub(crate) mod compare;

/// Compares a declared self-attention with one that is written by hand from its parameters and its input.
macro_rules! self_attention {
    ($Layer:ident, d_model = $m:literal, |$p:ident, $x:ident| $by_hand:expr) => {{
        self_attention!(f32, $Layer, $m, |$p, $x| $by_hand);
        self_attention!(f64, $Layer, $m, |$p, $x| $by_hand);
    }};
    ($E:ty, $Layer:ident, $m:literal, |$p:ident, $x:ident| $by_hand:expr) => {
        $crate::layers::compare::compare_self_attention::<$m, $Layer<$E>, $E, _>(
            |state| $crate::layers::compare::by_hand::<$E, _, _, _>(state, |$p, $x| $by_hand),
            |layer, x| layer.forward(x),
            |layer, x| layer.forward_with_weights(x),
            |layer, x| layer.forward(x),
            |layer, x| layer.forward(x),
        )
    };
}

/// Compares a declared cross-attention with one that is written by hand from its parameters and its two inputs.
macro_rules! cross_attention {
    (
        $Layer:ident, d_model = $m:literal, d_context = $c:literal,
        |$p:ident, $x:ident, $context:ident| $by_hand:expr
    ) => {{
        cross_attention!(f32, $Layer, $m, $c, |$p, $x, $context| $by_hand);
        cross_attention!(f64, $Layer, $m, $c, |$p, $x, $context| $by_hand);
    }};
    (
        $E:ty, $Layer:ident, $m:literal, $c:literal,
        |$p:ident, $x:ident, $context:ident| $by_hand:expr
    ) => {
        $crate::layers::compare::compare_cross_attention::<$m, $c, $Layer<$E>, $E, _>(
            |state| {
                $crate::layers::compare::by_hand_with_context::<$E, _, _, _>(
                    state,
                    |$p, $x, $context| $by_hand,
                )
            },
            |layer, x, context| layer.forward((x, context)),
            |layer, x, context| layer.forward_with_weights((x, context)),
            |layer, x, context| layer.forward((x, context)),
            |layer, x, context| layer.forward((x, context)),
        )
    };
}

mod by_loops;
mod data;
mod declared_buckets;
mod differences;
mod edges;
mod heads;
mod inputs;
mod masks;
mod normalizers;
mod positions;
mod scores;
mod zoo;

use crate::reference::{
    Heads, Input, Mask, Parameters, Sequence, Split, attention,
    heads::scaled_dot,
    masks::{Matrix, for_each},
    normalizers::softmax,
};
use dfdx::prelude::*;

/// Written by hand: the softmax of scaled dot products under a mask that is drawn for every sequence of the batch from
/// its index and the numbers of queries and keys.
fn masked<E: Dtype>(
    parameters: &Parameters<'_, E>,
    split: Split,
    x: &Input<E>,
    context: &Input<E>,
    matrix: impl Fn(usize, usize, usize) -> Matrix,
) -> (Sequence<E>, Heads<E>)
where
    Cpu: Device<E>,
{
    let mask = mask_of(x, context, matrix);
    attention(parameters, split, x, context, scaled_dot, |scores| {
        softmax(scores, &mask)
    })
}

/// The mask of a batch, drawn for every sequence.
fn mask_of<E: Dtype>(
    x: &Input<E>,
    context: &Input<E>,
    matrix: impl Fn(usize, usize, usize) -> Matrix,
) -> Mask
where
    Cpu: Device<E>,
{
    let ((batch, queries, _), (_, keys, _)) = (*x.shape(), *context.shape());
    for_each((0..batch).map(|b| matrix(b, queries, keys)).collect())
}
