//! Scores of pairs of a query and a key.

use dfdx::{
    shapes::{Axes2, Axes4, Axis, Const, Dim, HasShape, Rank2, Rank3},
    tensor::{Tape, Tensor},
    tensor_ops::{BroadcastTo, Device, PermuteTo, TryAdd, TryMatMul},
};

use super::{
    Heads, Scores,
    heads::fold_groups,
    tensors::{is_empty, reshape, zeros_after, zeros_after_both},
};
use crate::Element;

/// `score[b, h, q, k] = q[b, h, q] . k[b, h / (H / G), k]`.
///
/// The unscaled scores of Vaswani et al., "Attention is all you need" (2017), equation 1; with fewer key heads than
/// query heads, those of Ainslie et al., "GQA" (2023). PyTorch: `q @ k.transpose(-2, -1)`, with
/// `k.repeat_interleave(H // G, 1)` for grouped heads. Here the keys are not repeated.
pub fn dot_scores<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    const G: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    q: Heads<B, H, Q, W, E, D, T>,
    k: Heads<B, G, K, W, E, D, T>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let (batch, heads, q_len, _) = *q.shape();
    let shape = (batch, heads, q_len, k.shape().2);
    if is_empty(q.shape()) || is_empty(k.shape()) {
        return zeros_after_both(q, k, shape);
    }
    let k = k.try_permute::<_, Axes4<0, 1, 3, 2>>()?;
    reshape(fold_groups(q)?.try_matmul(k)?, shape)
}

/// `score[b, h, q, k] = sum_n w[h, n] tanh(q[b, h, q, n] + k[b, h / (H / G), k, n])`.
///
/// Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and translate" (2014), section
/// A.1.2, with one `w` per head. The composed form stores the hidden layer for every pair of query and key:
/// `[batch, heads, query, key, n]`.
pub fn additive_scores<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    const G: usize,
    const N: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    q: Heads<B, H, Q, N, E, D, T>,
    k: Heads<B, G, K, N, E, D, T>,
    w: &Tensor<Rank2<H, N>, E, D>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    const { assert!(H.is_multiple_of(G), "kv_heads does not divide heads") };
    let (batch, heads, q_len, _) = *q.shape();
    let k_len = k.shape().2;
    let shape = (batch, heads, q_len, k_len);
    let w = w.retaped::<T>();
    if is_empty(q.shape()) || is_empty(k.shape()) {
        return zeros_after_both(zeros_after_both(q, k, shape)?, w, shape);
    }
    // Query head g * (H / G) + r is member r of group g.
    let groups = (batch, Const::<G>, H / G, q_len, Const::<N>);
    let pairs = (batch, Const::<G>, H / G, q_len, k_len, Const::<N>);
    let q = reshape(q, groups)?.try_broadcast_like::<_, Axis<4>>(&pairs)?;
    let k = k.try_broadcast_like::<_, Axes2<2, 3>>(&pairs)?;
    let hidden = q.try_add(k)?.try_tanh()?;
    // The weighted sum over n is a matrix product with one column.
    let hidden = reshape(
        hidden,
        (batch, heads, q_len.size() * k_len.size(), Const::<N>),
    )?;
    let w = reshape(w, (heads, Const::<N>, Const::<1>))?
        .try_broadcast_like::<_, Axis<0>>(&(batch, heads, Const::<N>, Const::<1>))?;
    reshape(hidden.try_matmul(w)?, shape)
}

/// `out[b, h, q] = q[b, h, q] w[h]`, the first product of the bilinear score `q^T w k`.
///
/// The "general" score of Luong, Pham and Manning, "Effective approaches to attention-based neural machine
/// translation" (2015), equation 8, with one matrix per head. PyTorch: `torch.einsum("bhqw,hwv->bhqv", q, w)`.
pub fn bilinear<
    B: Dim,
    Q: Dim,
    const H: usize,
    const W: usize,
    const V: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    q: Heads<B, H, Q, W, E, D, T>,
    w: &Tensor<Rank3<H, W, V>, E, D>,
) -> Result<Heads<B, H, Q, V, E, D, T>, D::Err> {
    let (batch, heads, q_len, width) = *q.shape();
    let w = w.retaped::<T>();
    if is_empty(q.shape()) {
        return zeros_after_both(q, w, (batch, heads, q_len, Const));
    }
    q.try_matmul(w.try_broadcast_like::<_, Axis<0>>(&(batch, heads, width, Const))?)
}

/// `score[b, h, q, k] = 0` for every query and key: for scores that are a function of the indices alone. `x` determines the number of
/// queries.
///
/// The gradient of `x` is 0.
pub fn zero_scores<
    B: Dim,
    Q: Dim,
    K: Dim,
    const M: usize,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Tensor<(B, Q, Const<M>), E, D, T>,
    keys: K,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let (batch, queries, _) = *x.shape();
    zeros_after(x, (batch, Const, queries, keys))
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    const SIZES: [[usize; 3]; 7] = [
        [2, 3, 5],
        [1, 1, 1],
        [1, 7, 1],
        [0, 2, 3],
        [2, 0, 3],
        [2, 3, 0],
        [0, 0, 0],
    ];

    type Queries<const H: usize, E> = Heads<usize, H, usize, 3, E, Cpu, NoneTape>;

    fn heads<const H: usize, E: Element>(b: usize, s: usize, seed: u64) -> Queries<H, E>
    where
        Cpu: Device<E>,
    {
        tensor((b, Const, s, Const), seed)
    }

    fn check_dot<const H: usize, const G: usize, E: Element>([b, q, k]: [usize; 3], tolerance: f64)
    where
        Cpu: Device<E>,
    {
        let queries = heads::<H, E>(b, q, 1);
        let keys = heads::<G, E>(b, k, 2);
        let scores = dot_scores(queries.clone(), keys.clone()).unwrap();
        let queries = values(&queries);
        let keys = values(&keys);
        let expected = naive([b, H, q, k], |b_, h, q_, k_| {
            let query = at([b, H, q, 3], [b_, h, q_, 0]);
            let key = at([b, G, k, 3], [b_, h / (H / G), k_, 0]);
            (0..3).map(|w| queries[query + w] * keys[key + w]).sum()
        });
        assert_close(&values(&scores), &expected, tolerance);
    }

    #[test]
    fn dot_scores_are_dot_products_with_the_key_of_the_group() {
        for sizes in SIZES {
            check_dot::<4, 4, f64>(sizes, F64);
            check_dot::<4, 2, f64>(sizes, F64);
            check_dot::<6, 2, f32>(sizes, F32);
            check_dot::<3, 1, f32>(sizes, F32);
            check_dot::<1, 1, f64>(sizes, F64);
        }
    }

    #[test]
    fn dot_scores_support_constant_sizes() {
        let q: Tensor<Rank4<2, 4, 3, 8>, f64, _> = tensor(Default::default(), 1);
        let k: Tensor<Rank4<2, 2, 5, 8>, f64, _> = tensor(Default::default(), 2);
        let typed: Tensor<Rank4<2, 4, 3, 5>, f64, _> = dot_scores(q.clone(), k.clone()).unwrap();
        let q: Heads<usize, 4, usize, 8, _, _, _> = q.realize();
        let k: Heads<usize, 2, usize, 8, _, _, _> = k.realize();
        assert_eq!(values(&typed), values(&dot_scores(q, k).unwrap()));
    }

    /// Queries and keys are permuted views, as the outputs of `split_heads` are.
    type Columns<const H: usize> = Tensor<(usize, usize, Const<H>, Const<3>), f64, Cpu>;

    fn view<const H: usize>(x: &Columns<H>) -> Traced<(usize, Const<H>, usize, Const<3>)> {
        x.leaky_trace().permute::<_, Axes4<0, 2, 1, 3>>()
    }

    #[test]
    fn zero_scores_are_zeros_for_any_input() {
        let x: Tensor<(usize, usize, Const<2>), f64, Cpu> =
            Cpu::default().tensor_from_vec(vec![f64::NAN; 2 * 3 * 2], (2, 3, Const));
        let scores: Scores<_, 4, _, _, _, _, _> = zero_scores(x.leaky_trace(), 5_usize).unwrap();
        assert_eq!(scores.shape().concrete(), [2, 4, 3, 5]);
        assert_eq!(scores.as_vec(), [0.0; 2 * 4 * 3 * 5]);
        let gradients = scores.sum().backward();
        assert_eq!(gradients.get(&x).as_vec(), [0.0; 2 * 3 * 2]);
    }

    #[test]
    fn dot_scores_have_gradients_of_queries_and_keys() {
        fn check<const H: usize, const G: usize>() {
            let q: Columns<H> = tensor((2, 3, Const, Const), 1);
            let k: Columns<G> = tensor((2, 4, Const, Const), 2);
            check_gradient(&q, |q| dot_scores(view(q), view(&k)).unwrap());
            check_gradient(&k, |k| dot_scores(view(&q), view(k)).unwrap());
        }
        check::<4, 4>();
        check::<4, 2>();
        check::<3, 1>();
    }

    fn check_additive<const H: usize, const G: usize, E: Element>(
        [b, q, k]: [usize; 3],
        tolerance: f64,
    ) where
        Cpu: Device<E>,
    {
        let queries = heads::<H, E>(b, q, 1);
        let keys = heads::<G, E>(b, k, 2);
        let w: Tensor<Rank2<H, 3>, E, Cpu> = tensor(Default::default(), 3);
        let scores = additive_scores(queries.clone(), keys.clone(), &w).unwrap();
        let queries = values(&queries);
        let keys = values(&keys);
        let w = values(&w);
        let expected = naive([b, H, q, k], |b_, h, q_, k_| {
            let query = at([b, H, q, 3], [b_, h, q_, 0]);
            let key = at([b, G, k, 3], [b_, h / (H / G), k_, 0]);
            (0..3)
                .map(|n| w[h * 3 + n] * (queries[query + n] + keys[key + n]).tanh())
                .sum()
        });
        assert_close(&values(&scores), &expected, tolerance);
    }

    #[test]
    fn additive_scores_agree_with_a_naive_loop() {
        for sizes in SIZES {
            check_additive::<4, 4, f64>(sizes, F64);
            check_additive::<4, 2, f32>(sizes, F32);
            check_additive::<3, 1, f64>(sizes, F64);
            check_additive::<1, 1, f32>(sizes, F32);
        }
    }

    #[test]
    fn additive_scores_have_gradients_of_all_operands() {
        fn check<const H: usize, const G: usize>() {
            let q: Columns<H> = tensor((2, 2, Const, Const), 1);
            let k: Columns<G> = tensor((2, 3, Const, Const), 2);
            let w: Tensor<Rank2<H, 3>, f64, Cpu> = tensor(Default::default(), 3);
            check_gradient(&q, |q| additive_scores(view(q), view(&k), &w).unwrap());
            check_gradient(&k, |k| additive_scores(view(&q), view(k), &w).unwrap());
            check_gradient(&w, |w| additive_scores(view(&q), view(&k), w).unwrap());
        }
        check::<2, 2>();
        check::<4, 2>();
        check::<3, 1>();
    }

    #[test]
    fn bilinear_multiplies_each_head_by_its_matrix() {
        fn check<E: Element>(b: usize, q: usize, tolerance: f64)
        where
            Cpu: Device<E>,
        {
            let x = heads::<2, E>(b, q, 1);
            let w: Tensor<Rank3<2, 3, 4>, E, Cpu> = tensor(Default::default(), 2);
            let out: Heads<_, 2, _, 4, _, _, _> = bilinear(x.clone(), &w).unwrap();
            let x = values(&x);
            let w = values(&w);
            let expected = naive([b, 2, q, 4], |b_, h, q_, v| {
                (0..3)
                    .map(|i| x[at([b, 2, q, 3], [b_, h, q_, i])] * w[at([2, 3, 4], [h, i, v])])
                    .sum()
            });
            assert_close(&values(&out), &expected, tolerance);
        }
        for (b, q) in [(2, 3), (1, 1), (0, 3), (2, 0)] {
            check::<f64>(b, q, F64);
            check::<f32>(b, q, F32);
        }
    }

    #[test]
    fn bilinear_has_gradients_of_queries_and_matrices() {
        let q: Columns<2> = tensor((2, 3, Const, Const), 1);
        let w: Tensor<Rank3<2, 3, 4>, f64, Cpu> = tensor(Default::default(), 2);
        check_gradient(&q, |q| bilinear(view(q), &w).unwrap());
        check_gradient(&w, |w| bilinear(view(&q), w).unwrap());
    }

    #[test]
    fn empty_scores_give_every_input_a_gradient() {
        let q = heads::<2, f64>(1, 3, 1);
        let k = heads::<2, f64>(1, 0, 2);
        let w: Tensor<Rank2<2, 3>, f64, Cpu> = tensor(Default::default(), 3);
        let gradients =
            backward_of_nothing(additive_scores(q.leaky_trace(), k.leaky_trace(), &w).unwrap());
        assert_eq!(values(&gradients.get(&q)), vec![0.0; 18]);
        assert_eq!(values(&gradients.get(&w)), vec![0.0; 6]);
        gradients.get(&k);

        let gradients = backward_of_nothing(dot_scores(q.leaky_trace(), k.leaky_trace()).unwrap());
        assert_eq!(values(&gradients.get(&q)), vec![0.0; 18]);

        let w: Tensor<Rank3<2, 3, 3>, f64, Cpu> = tensor(Default::default(), 3);
        let gradients = backward_of_nothing(bilinear(k.leaky_trace(), &w).unwrap());
        assert_eq!(values(&gradients.get(&w)), vec![0.0; 18]);
    }
}
