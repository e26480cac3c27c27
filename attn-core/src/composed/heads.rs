//! Splitting and merging heads, and the product of weights and values.

use dfdx::{
    shapes::{Axes4, Axis, Const, Dim, HasShape, Rank2},
    tensor::{Tape, Tensor},
    tensor_ops::{BroadcastTo, Device, PermuteTo, RealizeTo, TryMatMul},
};

use super::{
    Heads, Scores,
    tensors::{is_empty, reshape, zeros_after_both},
};
use crate::Element;

/// `[batch, len, heads * width]` to `[batch, heads, len, width]`.
///
/// PyTorch: `x.view(b, s, heads, width).transpose(1, 2)`. This is a view: nothing is copied.
pub fn split_heads<
    B: Dim,
    S: Dim,
    const HW: usize,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Tensor<(B, S, Const<HW>), E, D, T>,
) -> Result<Heads<B, H, S, W, E, D, T>, D::Err> {
    const {
        assert!(
            H * W == HW,
            "heads * width is not the size of the last axis"
        )
    };
    let (batch, len, _) = *x.shape();
    reshape(x, (batch, len, Const::<H>, Const::<W>))?.try_permute::<_, Axes4<0, 2, 1, 3>>()
}

/// `[batch, heads, len, width]` to `[batch, len, heads * width]`.
///
/// PyTorch: `x.transpose(1, 2).reshape(b, s, heads * width)`.
pub fn merge_heads<
    B: Dim,
    S: Dim,
    const HW: usize,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Heads<B, H, S, W, E, D, T>,
) -> Result<Tensor<(B, S, Const<HW>), E, D, T>, D::Err> {
    const {
        assert!(
            H * W == HW,
            "heads * width is not the size of the last axis"
        )
    };
    let (batch, _, len, _) = *x.shape();
    reshape(
        x.try_permute::<_, Axes4<0, 2, 1, 3>>()?,
        (batch, len, Const),
    )
}

/// `out[b, h, q] = sum_k weights[b, h, q, k] * v[b, h / (H / G), k]`.
///
/// PyTorch: `weights @ v`, with `v.repeat_interleave(H // G, 1)` for grouped heads. Here the values are not repeated:
/// see [`fold_groups`].
pub fn attend<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    const G: usize,
    const V: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    weights: Scores<B, H, Q, K, E, D, T>,
    v: Heads<B, G, K, V, E, D, T>,
) -> Result<Heads<B, H, Q, V, E, D, T>, D::Err> {
    let (batch, heads, q, _) = *weights.shape();
    let shape = (batch, heads, q, Const);
    if is_empty(weights.shape()) || is_empty(v.shape()) {
        return zeros_after_both(weights, v, shape);
    }
    reshape(fold_groups(weights)?.try_matmul(v)?, shape)
}

/// `out[b, g, q, k] = sum_h matrix[g, h] * x[b, h, q, k]`: scores or weights of heads that talk to each other.
///
/// Shazeer, Lan, Cheng, Ding and Hou, "Talking-heads attention" (2020). PyTorch: `torch.einsum("gh,bhqk->bgqk", matrix, x)`.
pub fn mix_heads<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Scores<B, H, Q, K, E, D, T>,
    matrix: &Tensor<Rank2<H, H>, E, D>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let shape = *x.shape();
    let (batch, heads, q, k) = shape;
    let matrix = matrix.retaped::<T>();
    if is_empty(&shape) {
        return zeros_after_both(x, matrix, shape);
    }
    let pairs = reshape(x, (batch, heads, q.size() * k.size()))?;
    let matrix = matrix.try_broadcast_like::<_, Axis<0>>(&(batch, heads, heads))?;
    reshape(matrix.try_matmul(pairs)?, shape)
}

/// `[batch, H, query, x]` to `[batch, G, H / G * query, x]`. The query heads that share a key head are adjacent in memory, so they form one
/// longer sequence of queries for this key head, and keys and values are not copied.
///
/// This is a view if `x` is row-major, or if every query head has its own key head; otherwise a copy of `x`.
pub(super) fn fold_groups<
    B: Dim,
    Q: Dim,
    X: Dim,
    const H: usize,
    const G: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Tensor<(B, Const<H>, Q, X), E, D, T>,
) -> Result<Tensor<(B, Const<G>, usize, X), E, D, T>, D::Err> {
    const { assert!(H.is_multiple_of(G), "kv_heads does not divide heads") };
    let (batch, _, q, width) = *x.shape();
    let folded = (batch, Const, H / G * q.size(), width);
    match x.try_realize() {
        Ok(same) => Ok(same),
        Err(x) => reshape(x, folded),
    }
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    #[test]
    fn split_heads_gives_each_head_its_columns() {
        let x: Tensor<(usize, Const<3>, Const<10>), f64, _> = tensor((2, Const, Const), 1);
        let heads: Heads<_, 5, _, 2, _, _, _> = split_heads(x.clone()).unwrap();
        let x = values(&x);
        let expected = naive([2, 5, 3, 2], |b, h, s, w| {
            x[at([2, 3, 10], [b, s, h * 2 + w])]
        });
        assert_eq!(values(&heads), expected);
    }

    #[test]
    fn merge_heads_undoes_split_heads() {
        fn check<E: Element>(b: usize, s: usize)
        where
            Cpu: Device<E>,
        {
            let x: Tensor<(usize, usize, Const<6>), E, _> = tensor((b, s, Const), 1);
            let heads: Heads<_, 3, _, 2, _, _, _> = split_heads(x.clone()).unwrap();
            let merged: Tensor<(usize, usize, Const<6>), _, _> = merge_heads(heads).unwrap();
            assert_eq!(values(&merged), values(&x));
        }
        for (b, s) in [(2, 3), (1, 1), (0, 3), (2, 0), (0, 0)] {
            check::<f32>(b, s);
            check::<f64>(b, s);
        }
    }

    #[test]
    fn permuted_and_broadcast_tensors_can_be_split_and_merged() {
        let permuted: Tensor<(usize, usize, Const<4>), f64, _> = tensor((3, 2, Const), 1);
        check_gradient(&permuted, |x| {
            let x: Traced<(usize, usize, Const<4>)> =
                x.leaky_trace().permute::<_, Axes3<1, 0, 2>>();
            let heads: Heads<_, 2, _, 2, _, _, _> = split_heads(x).unwrap();
            merge_heads::<_, _, 4, 2, 2, _, _, _>(heads).unwrap()
        });

        let row: Tensor<Rank1<4>, f64, _> = tensor((Const,), 1);
        check_gradient(&row, |x| {
            let x: Traced<(usize, usize, Const<4>)> =
                x.leaky_trace().broadcast_like(&(2, 3, Const));
            let heads: Heads<_, 2, _, 2, _, _, _> = split_heads(x).unwrap();
            merge_heads::<_, _, 4, 2, 2, _, _, _>(heads).unwrap()
        });
    }

    #[test]
    fn empty_permuted_tensors_can_be_split() {
        let x: Tensor<(usize, usize, Const<4>), f64, _> = tensor((0, 2, Const), 1);
        let permuted = x
            .leaky_trace()
            .permute::<(usize, usize, Const<4>), Axes3<1, 0, 2>>();
        let heads: Heads<_, 2, _, 2, _, _, _> = split_heads(permuted).unwrap();
        assert_eq!(*heads.shape(), (2, Const::<2>, 0, Const::<2>));
        backward_of_nothing(heads).get(&x);
    }

    /// Checks `H` heads of weights and `G` heads of values against a naive loop.
    fn check_attend<const H: usize, const G: usize, E: Element>(
        [b, q, k]: [usize; 3],
        tolerance: f64,
    ) where
        Cpu: Device<E>,
    {
        let weights: Scores<_, H, _, _, E, Cpu, NoneTape> = tensor((b, Const, q, k), 1);
        let v: Heads<_, G, _, 3, E, Cpu, NoneTape> = tensor((b, Const, k, Const), 2);
        let out = attend(weights.clone(), v.clone()).unwrap();
        let weights = values(&weights);
        let v = values(&v);
        let expected = naive([b, H, q, 3], |b_, h, q_, w| {
            let g = h / (H / G);
            (0..k)
                .map(|k_| {
                    weights[at([b, H, q, k], [b_, h, q_, k_])] * v[at([b, G, k, 3], [b_, g, k_, w])]
                })
                .sum()
        });
        assert_close(&values(&out), &expected, tolerance);
    }

    #[test]
    fn attend_sums_the_values_of_the_group() {
        for sizes in [
            [2, 3, 5],
            [1, 1, 1],
            [1, 1, 7],
            [0, 2, 3],
            [2, 0, 3],
            [2, 3, 0],
        ] {
            check_attend::<4, 4, f64>(sizes, F64);
            check_attend::<4, 2, f64>(sizes, F64);
            check_attend::<6, 2, f32>(sizes, F32);
            check_attend::<3, 1, f32>(sizes, F32);
            check_attend::<1, 1, f64>(sizes, F64);
        }
    }

    #[test]
    fn attend_has_gradients_of_weights_and_values() {
        fn check<const H: usize, const G: usize>() {
            let weights: Scores<_, H, _, _, f64, Cpu, NoneTape> = tensor((2, Const, 3, 4), 1);
            // The values are a permuted view, as the output of `split_heads` is.
            let v: Tensor<(usize, usize, Const<G>, Const<3>), f64, Cpu> =
                tensor((2, 4, Const, Const), 2);
            let f = |weights: &Scores<usize, H, usize, usize, f64, Cpu, NoneTape>,
                     v: &Tensor<(usize, usize, Const<G>, Const<3>), f64, Cpu>|
             -> Traced<_> {
                attend(
                    weights.leaky_trace(),
                    v.leaky_trace().permute::<_, Axes4<0, 2, 1, 3>>(),
                )
                .unwrap()
            };
            check_gradient(&weights, |weights| f(weights, &v));
            check_gradient(&v, |v| f(&weights, v));
        }
        check::<4, 4>();
        check::<4, 2>();
        check::<3, 1>();
    }

    #[test]
    fn attend_without_keys_gives_zero_and_gradients() {
        let weights: Scores<_, 2, _, _, f64, Cpu, NoneTape> = tensor((1, Const, 3, 0), 1);
        let v: Heads<_, 2, _, 4, f64, Cpu, NoneTape> = tensor((1, Const, 0, Const), 1);
        let out = attend(weights.leaky_trace(), v.leaky_trace()).unwrap();
        assert_eq!(values(&out), vec![0.0; 2 * 3 * 4]);
        let gradients = out.sum().backward();
        gradients.get(&weights);
        gradients.get(&v);
    }
}
