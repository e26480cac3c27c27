//! Data of the call: masks and biases from the ids and the floats of a batch.

use dfdx::prelude::*;
use support::reference::masks::Matrix;

/// A tensor from a function of the index.
fn tensor<S: Shape, V: Unit>(shape: S, cell: impl Fn(&[usize]) -> V) -> Tensor<S, V, Cpu>
where
    Cpu: TensorFromVec<V>,
{
    let dims: Vec<usize> = shape.concrete().into_iter().collect();
    let cells = (0..shape.num_elements()).map(|mut place| {
        let mut index = vec![0; dims.len()];
        for (index, dim) in index.iter_mut().zip(&dims).rev() {
            *index = place % dim;
            place /= dim;
        }
        cell(&index)
    });
    Cpu::default().tensor_from_vec(cells.collect(), shape)
}

/// The pairs of a predicate.
fn pairs(queries: usize, keys: usize, attends: impl Fn(usize, usize) -> bool) -> Matrix {
    tensor((queries, keys), |at| attends(at[0], at[1]))
}

/// Compares a self-attention that takes data with a hand-written one, in both forms. The data is made for the batch and the
/// length of each call, and for a single sequence.
macro_rules! self_attention_on {
    ($Layer:ident, $batched:tt, $single:tt, $by_hand:tt) => {{
        self_attention_on!(@run f32, $Layer, [], $batched, $single, $by_hand);
        self_attention_on!(@run f64, $Layer, [], $batched, $single, $by_hand);
        self_attention_on!(@run f64, $Layer, [.composed()], $batched, $single, $by_hand);
    }};
    (
        @run $E:ty, $Layer:ident, [$($way:tt)*],
        (|$batch:ident, $len:ident| [$($data:expr),+]), (|$single_len:ident| [$($single:expr),+]),
        (|$p:ident, $x:ident| $by_hand:expr)
    ) => {
        compare_self_attention::<8, $Layer<$E>, $E, _>(
            |state| by_hand::<$E, _, _, _>(state, |$p, $x| $by_hand),
            |layer, x| {
                let ($batch, $len, _) = *x.shape();
                layer $($way)* .forward((x, $($data),+))
            },
            |layer, x| {
                let ($batch, $len, _) = *x.shape();
                layer.forward_with_weights((x, $($data),+))
            },
            |layer, x| {
                let $single_len = x.shape().0;
                layer $($way)* .forward((x, $($single),+))
            },
            |layer, x| {
                let ($batch, $len, _) = *x.shape();
                layer $($way)* .forward((x, $($data),+))
            },
        )
    };
}

/// As `self_attention_on!`, for a cross-attention.
macro_rules! cross_attention_on {
    ($Layer:ident, $batched:tt, $single:tt, $by_hand:tt) => {{
        cross_attention_on!(@run f32, $Layer, [], $batched, $single, $by_hand);
        cross_attention_on!(@run f64, $Layer, [], $batched, $single, $by_hand);
        cross_attention_on!(@run f64, $Layer, [.composed()], $batched, $single, $by_hand);
    }};
    (
        @run $E:ty, $Layer:ident, [$($way:tt)*],
        (|$batch:ident, $queries:ident, $keys:ident| [$($data:expr),+]), (|$q:ident, $k:ident| [$($single:expr),+]),
        (|$p:ident, $x:ident, $context:ident| $by_hand:expr)
    ) => {
        compare_cross_attention::<8, 6, $Layer<$E>, $E, _>(
            |state| by_hand_with_context::<$E, _, _, _>(state, |$p, $x, $context| $by_hand),
            |layer, x, context| {
                let ($batch, $queries, _) = *x.shape();
                let $keys = context.shape().1;
                layer $($way)* .forward((x, context, $($data),+))
            },
            |layer, x, context| {
                let ($batch, $queries, _) = *x.shape();
                let $keys = context.shape().1;
                layer.forward_with_weights((x, context, $($data),+))
            },
            |layer, x, context| {
                let $q = x.shape().0;
                let $k = context.shape().0;
                layer $($way)* .forward((x, context, $($single),+))
            },
            |layer, x, context| {
                let ($batch, $queries, _) = *x.shape();
                let $keys = context.shape().1;
                layer $($way)* .forward((x, context, $($data),+))
            },
        )
    };
}

// After the macros, which they use.
mod masks;
mod scores;
