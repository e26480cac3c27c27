//! `attend` against its formula, in both forms.

use super::*;
use support::close::assert_close;
use support::compare::weighted_sum;
use support::gradients::assert_gradient_of_input;

type Heads<const H: usize, const W: usize> = Tensor<(usize, Const<H>, usize, Const<W>), f64, Cpu>;

model! {
    struct Grouped<heads = 4, kv_heads = 2, width = 3, value = 5>;
    fn forward(
        q: [batch, heads, seq, width],
        k: [batch, kv_heads, kv, width],
        v: [batch, kv_heads, kv, value],
    ) -> [batch, heads, seq, value] {
        attend(q, k, v)
    }
}

fn operands([batch, seq, kv]: [usize; 3]) -> (Heads<4, 3>, Heads<2, 3>, Heads<2, 5>) {
    (
        tensor("q", (batch, Const, seq, Const)),
        tensor("k", (batch, Const, kv, Const)),
        tensor("v", (batch, Const, kv, Const)),
    )
}

/// `softmax(q kᵀ / sqrt(width)) v` of each query, number by number.
fn formula([batch, seq, kv]: [usize; 3], q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
    let (heads, kv_heads, width, value) = (4, 2, 3, 5);
    let mut y = Vec::new();
    for b in 0..batch {
        for h in 0..heads {
            let group = b * kv_heads + h / (heads / kv_heads);
            for i in 0..seq {
                let q = &q[((b * heads + h) * seq + i) * width..][..width];
                let key = |j: usize| &k[(group * kv + j) * width..][..width];
                let dot = |j: usize| q.iter().zip(key(j)).map(|(q, k)| q * k).sum::<f64>();
                let weights = (0..kv).map(|j| (dot(j) / 3f64.sqrt()).exp());
                let weights: Vec<f64> = weights.collect();
                let total: f64 = weights.iter().sum();
                y.extend((0..value).map(|e| {
                    let of = |j: usize| weights[j] * v[(group * kv + j) * value + e];
                    (0..kv).map(of).sum::<f64>() / total
                }));
            }
        }
    }
    y
}

#[test]
fn attend_is_its_formula() {
    let model = Cpu::default().build_module::<Grouped, f64>();
    for sizes in [[1, 1, 1], [2, 5, 7], [3, 17, 4]] {
        let (q, k, v) = operands(sizes);
        let expected = formula(sizes, &q.as_vec(), &k.as_vec(), &v.as_vec());
        let y = model.forward((q.clone(), k.clone(), v.clone()));
        assert_close("fused", &y.as_vec(), &expected, 1e-14);
        let y = model.composed().forward((q, k, v));
        assert_close("composed", &y.as_vec(), &expected, 1e-14);
    }
}

#[test]
fn gradients_of_queries_keys_and_values_are_those_of_the_composed_form() {
    let model = Cpu::default().build_module::<Grouped, f64>();
    let (q, k, v) = operands([2, 5, 7]);
    let outcome = |y| -> Outcome {
        backpropagate(y)
            .input("q", &q)
            .input("k", &k)
            .input("v", &v)
            .outcome()
    };
    let inputs = || (q.leaky_trace(), k.clone(), v.clone());
    let fused = outcome(model.forward(inputs()));
    let composed = outcome(model.composed().forward(inputs()));
    assert_same("attend", &fused, &composed, 1e-13);
}

#[test]
fn the_gradient_of_one_value_as_queries_keys_and_values_is_a_sum() {
    model! {
        struct Itself<heads = 2, width = 3>;
        fn forward(x: [batch, seq, heads, width]) -> [batch, seq, heads, width] {
            let y = x * x;
            y + attend::<mask = causal>(y, y, y)
        }
    }
    let model = Cpu::default().build_module::<Itself, f64>();
    let x: Tensor<(usize, usize, Const<2>, Const<3>), f64, _> = tensor("x", (2, 5, Const, Const));
    let outcome: Outcome = backpropagate(model.forward(x.leaky_trace()))
        .input("x", &x)
        .outcome();
    assert_gradient_of_input("x", &x, &outcome, &|x: Tensor<_, f64, _>| {
        weighted_sum(model.forward(x)).array()
    });
}
