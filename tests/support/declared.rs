//! Declared layers beside hand-written ones.

use crate::reference::{
    Heads, Input, Mask, Parameters, Sequence, Split, attention,
    heads::scaled_dot,
    masks::{Matrix, for_each},
    normalizers::softmax,
};
use dfdx::prelude::*;

/// Compares a declared self-attention with one written by hand from its parameters and its input.
#[macro_export]
macro_rules! self_attention {
    ($Layer:ident, d_model = $m:literal, |$p:ident, $x:ident| $by_hand:expr) => {{
        $crate::self_attention!(f32, $Layer, $m, |$p, $x| $by_hand);
        $crate::self_attention!(f64, $Layer, $m, |$p, $x| $by_hand);
    }};
    ($E:ty, $Layer:ident, $m:literal, |$p:ident, $x:ident| $by_hand:expr) => {
        $crate::compare::compare_self_attention::<$m, $Layer<$E>, $E, _>(
            |state| $crate::compare::by_hand::<$E, _, _, _>(state, |$p, $x| $by_hand),
            |layer, x| layer.forward(x),
            |layer, x| layer.forward_with_weights(x),
            |layer, x| layer.forward(x),
            |layer, x| layer.forward(x),
        )
    };
}

/// Compares a declared cross-attention with one written by hand from its parameters and its two inputs.
#[macro_export]
macro_rules! cross_attention {
    (
        $Layer:ident, d_model = $m:literal, d_context = $c:literal,
        |$p:ident, $x:ident, $context:ident| $by_hand:expr
    ) => {{
        $crate::cross_attention!(f32, $Layer, $m, $c, |$p, $x, $context| $by_hand);
        $crate::cross_attention!(f64, $Layer, $m, $c, |$p, $x, $context| $by_hand);
    }};
    (
        $E:ty, $Layer:ident, $m:literal, $c:literal,
        |$p:ident, $x:ident, $context:ident| $by_hand:expr
    ) => {
        $crate::compare::compare_cross_attention::<$m, $c, $Layer<$E>, $E, _>(
            |state| {
                $crate::compare::by_hand_with_context::<$E, _, _, _>(state, |$p, $x, $context| {
                    $by_hand
                })
            },
            |layer, x, context| layer.forward((x, context)),
            |layer, x, context| layer.forward_with_weights((x, context)),
            |layer, x, context| layer.forward((x, context)),
            |layer, x, context| layer.forward((x, context)),
        )
    };
}

/// By hand: the softmax of scaled dot products under a mask, which is a function of the sequence's index and the numbers of
/// queries and keys.
pub fn masked<E: Dtype>(
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

/// The mask of a batch, from a function of the sequence.
pub fn mask_of<E: Dtype>(
    x: &Input<E>,
    context: &Input<E>,
    matrix: impl Fn(usize, usize, usize) -> Matrix,
) -> Mask
where
    Cpu: Device<E>,
{
    let (batch, queries, _) = *x.shape();
    let (_, keys, _) = *context.shape();
    for_each((0..batch).map(|b| matrix(b, queries, keys)).collect())
}
