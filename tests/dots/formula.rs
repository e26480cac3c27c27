//! The numbers against loops that multiply each query with the row of each pair.

use super::*;
use support::compare::flat;

model! {
    struct Relative<heads = 2, kv_heads = 1, d = 3, rows = 5>;
    fn forward(q: [batch, seq, heads, d], k: [batch, seq, kv_heads, d], v: [batch, seq, kv_heads, d]) -> [batch, seq, heads, d] {
        param of_queries: [rows, d] = normal(1.0);
        param of_keys: [heads, rows, d] = normal(1.0);
        attend::<mask = causal, scale = 0.5>(q, k, v) {
            fn score(score, h, q_idx, kv_idx) {
                let far = clamp(q_idx - kv_idx, 0, 4);
                score + dot(q, of_queries[far]) + dot(k, of_keys[h, 4 - far])
            }
        }
    }
}

/// The same in loops over `[batch][seq][head][d]`.
fn by_hand(
    [batch, seq]: [usize; 2],
    [q, k, v]: [&[f64]; 3],
    [of_queries, of_keys]: [&[f64]; 2],
) -> Vec<f64> {
    const HEADS: usize = 2;
    const D: usize = 3;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let row = |of: &'_ [f64], index: usize| of[index * D..][..D].to_vec();
    let mut y = Vec::new();
    for b in 0..batch {
        for i in 0..seq {
            for h in 0..HEADS {
                let query = row(q, (b * seq + i) * HEADS + h);
                let scores = (0..=i).map(|j| {
                    let key = row(k, b * seq + j);
                    let far = (i - j).min(4);
                    0.5 * product(&query, &key)
                        + product(&query, &row(of_queries, far))
                        + product(&key, &row(of_keys, h * 5 + 4 - far))
                });
                let weights: Vec<f64> = scores.map(f64::exp).collect();
                let sum: f64 = weights.iter().sum();
                y.extend((0..D).map(|c| {
                    let values = weights.iter().enumerate();
                    values
                        .map(|(j, w)| w / sum * v[(b * seq + j) * D + c])
                        .sum::<f64>()
                }));
            }
        }
    }
    y
}

#[test]
fn a_score_is_that_of_the_formula() {
    for (batch, seq) in [(1, 1), (2, 9), (3, 0), (1, 70)] {
        let mut model = Cpu::default().build_module::<Relative, f64>();
        scatter(&mut model);
        let q: Tensor<(usize, usize, Const<2>, Const<3>), f64, _> =
            tensor("q", (batch, seq, Const, Const));
        let [k, v] = ["k", "v"].map(|name| tensor(name, (batch, seq, Const::<1>, Const::<3>)));
        let tables = [
            model.of_queries.weight.as_vec(),
            model.of_keys.weight.as_vec(),
        ];
        let [q_of, k_of, v_of] = [flat(&q), flat(&k), flat(&v)];
        let expected = by_hand(
            [batch, seq],
            [&q_of, &k_of, &v_of],
            [&tables[0], &tables[1]],
        );
        for y in [
            model.forward((q.clone(), k.clone(), v.clone())),
            model.composed().forward((q, k, v)),
        ] {
            // Sums of ten terms of order 1 in another order: 10 ε, and exponentials of them.
            support::close::assert_close(
                "y",
                &flat(&y),
                &expected,
                support::close::Tolerance::OfLargest(1e-14),
            );
        }
    }
}

model! {
    struct Open<d = 2, rows = 3>;
    fn forward(q: [seq, d], k: [kv, d]) -> [seq, d] {
        param table: [rows, d] = normal(1.0);
        attend(q, k, k) {
            fn score(score, q_idx, kv_idx) { score + dot(q, table[q_idx + kv_idx]) }
        }
    }
}

/// The error is of the axis of the table.
#[test]
fn a_row_that_is_not_there_is_an_error() {
    let model = Cpu::default().build_module::<Open, f64>();
    let of = |seq, kv| {
        let q: Tensor<(usize, Const<2>), f64, _> = tensor("q", (seq, Const));
        let k: Tensor<(usize, Const<2>), f64, _> = tensor("k", (kv, Const));
        model.try_forward((q, k))
    };
    assert!(of(2, 2).is_ok());
    let error = of(2, 3).unwrap_err().to_string();
    let expected = "`table` is read at index 3 of axis 0, whose size is 3";
    assert!(error.ends_with(expected), "{error}");
}

model! {
    struct Twice<d = 2, rows = 3>;
    fn forward(q: [seq, d], k: [kv, d]) -> [seq, d] {
        param table: [rows, d] = normal(1.0);
        attend(q, k, k) {
            fn score(score, q_idx, kv_idx) { score + dot(q, table[min(q_idx, 2)]) + dot(k, table[q_idx + kv_idx]) }
        }
    }
}

/// Each of several products is called as the table.
#[test]
fn an_error_of_the_second_product_names_the_table() {
    let model = Cpu::default().build_module::<Twice, f64>();
    let q: Tensor<(usize, Const<2>), f64, _> = tensor("q", (2, Const));
    let k: Tensor<(usize, Const<2>), f64, _> = tensor("k", (3, Const));
    let error = model.try_forward((q, k)).unwrap_err().to_string();
    let expected = "`table` is read at index 3 of axis 0, whose size is 3";
    assert!(error.ends_with(expected), "{error}");
}

model! {
    struct Masked<d = 2, rows = 3>;
    fn forward(q: [seq, d], k: [seq, d]) -> [seq, d] {
        param table: [rows, d] = normal(1.0);
        attend::<mask = causal>(q, k, q) {
            fn score(score, q_idx, kv_idx) { score + dot(k, table[clamp(q_idx - kv_idx, 0, 2)]) }
        }
    }
}

/// NaN in a key is NaN in its products: the queries before it do not see it.
#[test]
fn a_product_behind_a_mask_reaches_nothing() {
    let mut model = Cpu::default().build_module::<Masked, f64>();
    scatter(&mut model);
    for len in [2, 5, 70] {
        let q: Tensor<(usize, Const<2>), f64, Cpu> = tensor("q", (len, Const));
        let k: Tensor<(usize, Const<2>), f64, Cpu> = tensor("k", (len, Const));
        let last = |value: f64| {
            let mut numbers = k.as_vec();
            numbers[2 * len - 1] = value;
            let k = Cpu::default().tensor_from_vec(numbers, (len, Const::<2>));
            let y = model.forward((q.clone(), k)).as_vec();
            y[..2 * (len - 1)].to_vec()
        };
        let y = last(f64::NAN);
        assert_eq!(y, last(0.0), "{len}");
        assert!(y.iter().all(|number| number.is_finite()), "{len}");
    }
}
