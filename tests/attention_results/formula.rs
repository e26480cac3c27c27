//! The results against their formulas, number by number.

use super::*;

type Heads<const H: usize, const W: usize> = Tensor<(usize, Const<H>, usize, Const<W>), f64, Cpu>;

/// The kinds of sums, each with what stands in it beside the exponentials of scores.
macro_rules! grouped {
    ($($Name:ident $normalizer:ident;)*) => {$(
        model! {
            struct $Name<heads = 4, kv_heads = 2, width = 3, value = 5>;
            fn forward(
                q: [batch, heads, seq, width],
                k: [batch, kv_heads, kv, width],
                v: [batch, kv_heads, kv, value],
                lens: lens[batch],
            ) -> ([batch, heads, seq, value], [batch, heads, seq, kv], [batch, heads, seq]) {
                let (y, weights, lse) = attend::<mask = padding, normalizer = $normalizer>(q, k, v, padding = lens);
                (y, weights, lse)
            }
        }
    )*};
}

grouped! {
    Softmax softmax;
    Softmax1 softmax1;
    Sink sink;
}

/// `weights` and `lse`, where `others` stands in the sum of each head beside the exponentials.
fn formula(
    [batch, seq, kv]: [usize; 3],
    q: &[f64],
    k: &[f64],
    lens: &[usize],
    others: [f64; 4],
) -> [Vec<f64>; 2] {
    let (heads, kv_heads, width) = (4, 2, 3);
    let (mut weights, mut sums) = (Vec::new(), Vec::new());
    for row in 0..batch * heads * seq {
        let (b, h) = (row / seq / heads, row / seq % heads);
        let group = b * kv_heads + h / (heads / kv_heads);
        let exp = |j: usize| {
            let k = &k[(group * kv + j) * width..][..width];
            let dot: f64 = q[row * width..][..width]
                .iter()
                .zip(k)
                .map(|(q, k)| q * k)
                .sum();
            if j < lens[b] {
                (dot / 3f64.sqrt()).exp()
            } else {
                0.0
            }
        };
        let sum = others[h] + (0..kv).map(exp).sum::<f64>();
        weights.extend((0..kv).map(|j| if sum == 0.0 { 0.0 } else { exp(j) / sum }));
        sums.push(sum.ln());
    }
    [weights, sums]
}

macro_rules! is_its_formula {
    ($($name:ident $Model:ident $others:expr;)*) => {$(
        #[test]
        fn $name() {
            let mut model = Cpu::default().build_module::<$Model, f64>();
            scatter(&mut model);
            // The second one has queries that attend to nothing.
            for (sizes, lens) in [([1, 1, 1], vec![1]), ([2, 5, 7], vec![4, 0]), ([1, 3, 70], vec![70]), ([2, 2, 0], vec![0, 0])] {
                let [batch, seq, kv] = sizes;
                let q: Heads<4, 3> = tensor("q", (batch, Const, seq, Const));
                let k: Heads<2, 3> = tensor("k", (batch, Const, kv, Const));
                let v: Heads<2, 5> = tensor("v", (batch, Const, kv, Const));
                let of_call: Tensor<(usize,), usize, _> = Cpu::default().tensor_from_vec(lens.clone(), (batch,));
                let others: fn(&$Model<f64, Cpu>) -> [f64; 4] = $others;
                let numbers = |k: &Heads<2, 3>| if kv == 0 { Vec::new() } else { k.as_vec() };
                let expected = formula(sizes, &q.as_vec(), &numbers(&k), &lens, others(&model));
                let input = (q, k, v, of_call);
                let fused = model.forward(input.clone());
                let composed = model.composed().forward(input);
                for (form, (_, weights, lse)) in [("fused", fused), ("composed", composed)] {
                    let weights = if kv == 0 { Vec::new() } else { weights.as_vec() };
                    assert_close(form, &weights, &expected[0], 1e-14);
                    assert_close(form, &finite(&lse.as_vec()), &finite(&expected[1]), 1e-13);
                }
            }
        }
    )*};
}

/// -∞ as a number, which can be compared.
fn finite(numbers: &[f64]) -> Vec<f64> {
    let numbers = numbers.iter();
    numbers
        .map(|x| if *x == f64::NEG_INFINITY { -1e9 } else { *x })
        .collect()
}

is_its_formula! {
    sums_of_exponentials Softmax |_| [0.0; 4];
    sums_with_one_more Softmax1 |_| [1.0; 4];
    sums_with_sinks Sink |model| model.attend.sink.weight.as_vec().iter().map(|sink| sink.exp()).collect::<Vec<_>>().try_into().unwrap();
}

/// Where a query attends to nothing, its results have no gradient: none is NaN.
#[test]
fn gradients_are_finite_where_nothing_is_attended_to() {
    let model = Cpu::default().build_module::<Softmax, f64>();
    let q: Heads<4, 3> = tensor("q", (2, Const, 3, Const));
    let k: Heads<2, 3> = tensor("k", (2, Const, 5, Const));
    let v: Heads<2, 5> = tensor("v", (2, Const, 5, Const));
    let lens: Tensor<(usize,), usize, _> = Cpu::default().tensor_from_vec(vec![2, 0], (2,));
    let input = || (q.leaky_trace(), k.clone(), v.clone(), lens.clone());
    for (y, weights, lse) in [model.forward(input()), model.composed().forward(input())] {
        // -∞ times 0 would be NaN in the loss, and not in a gradient.
        let gradients = (y.sum() + weights.square().sum() + lse.sum()).backward();
        let of = [
            gradients.get(&q).as_vec(),
            gradients.get(&k).as_vec(),
            gradients.get(&v).as_vec(),
        ];
        assert!(of.iter().flatten().all(|d| d.is_finite()), "{of:?}");
        assert!(of[0][..36].iter().all(|d| *d != 0.0) && of[0][36..].iter().all(|d| *d == 0.0));
    }
}

#[test]
fn values_are_multiplied_by_the_weights_that_are_read() {
    model! {
        struct Dropped;
        fn forward(q: [batch, seq, 4], v: [batch, seq, 3]) -> ([batch, seq, 3], [batch, seq, seq]) {
            let (y, weights) = attend::<mask = causal, dropout = 0.5>(q, q, v);
            (y, weights)
        }
    }
    let mut model = Cpu::default().build_module::<Dropped, f64>();
    let q: Tensor<(usize, usize, Const<4>), f64, _> = tensor("q", (2, 40, Const));
    let v: Tensor<(usize, usize, Const<3>), f64, _> = tensor("v", (2, 40, Const));
    let (y, weights) = model.forward_mut((q.leaky_trace(), v.clone()));
    let (weights, _) = weights.split_tape();
    let kept = weights
        .as_vec()
        .iter()
        .filter(|weight| **weight != 0.0)
        .count();
    // Half of the 1640 that the mask leaves.
    assert!(kept.abs_diff(820) < 120, "{kept}");
    let expected: Tensor<(usize, usize, Const<3>), f64, _> = weights.matmul(v);
    assert_close("y", &y.as_vec(), &expected.as_vec(), 1e-13);
}
