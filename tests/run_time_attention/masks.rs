//! Masked keys have weights of exactly 0 and are not read.

use attn::{dfdx::prelude::*, ops::attend};
use support::compare::{assert_same, flat};

use super::{Inputs, Traced, Untraced, Vectors, tensor};

#[test]
fn the_function_is_that_without_options() {
    let Inputs { q, k, v } = Inputs::new([2, 4, 2, 5, 7, 3, 2]);
    let y = attend(q.clone(), k.clone(), v.clone());
    assert_eq!(flat(&y), flat(&Untraced::new().forward(q, k, v)));
}

#[test]
fn axes_may_be_constants() {
    let q: Tensor<(Const<2>, usize, Const<5>, Const<3>), f64, Cpu> =
        tensor("q", (Const, 4, Const, Const));
    let k: Tensor<(Const<2>, Const<2>, usize, Const<3>), f64, Cpu> =
        tensor("k", (Const, Const, 7, Const));
    let v: Tensor<(Const<2>, Const<2>, usize, Const<2>), f64, Cpu> =
        tensor("v", (Const, Const, 7, Const));
    let y: Tensor<(Const<2>, usize, Const<5>, Const<2>), f64, Cpu> = attend(q, k, v);
    let Inputs { q, k, v } = Inputs::new([2, 4, 2, 5, 7, 3, 2]);
    assert_eq!(flat(&y), flat(&attend(q, k, v)));
}

/// Options that hide the keys from the third on, in any way.
fn hiding() -> Vec<(&'static str, Traced)> {
    let dev = Cpu::default();
    let marks: Tensor<_, bool, _> =
        dev.tensor_from_vec(vec![true, true, false, false, false], (1, 5));
    let bias = vec![
        0.0,
        0.0,
        f64::NEG_INFINITY,
        f64::NEG_INFINITY,
        f64::NEG_INFINITY,
    ];
    let bias: Tensor<_, f64, _> = dev.tensor_from_vec(bias, (1, 5));
    vec![
        ("lengths", Traced::new().lengths(vec![2, 2])),
        ("marks", Traced::new().mask(&marks)),
        ("a function", Traced::new().mask_by(|at| at.kv_idx < 2)),
        (
            "a score function",
            Traced::new()
                .lengths(vec![2, 2])
                .score_by(|score, _| score * 1.0),
        ),
        ("a bias", Traced::new().bias(bias)),
    ]
}

#[test]
fn hidden_keys_have_weights_of_zero_and_no_gradient() {
    for (what, options) in hiding() {
        let Inputs { q, k, v } = Inputs::new([2, 2, 1, 4, 5, 3, 2]);
        let (y, weights) = options.forward_with_weights(q.leaky_trace(), k.clone(), v.clone());
        let of_keys = flat(&weights);
        assert!(of_keys.chunks(5).all(|w| w[2..] == [0.0; 3]), "{what}");
        let gradients =
            (y.square().sum::<Rank0, _>() + weights.square().sum::<Rank0, _>()).backward();
        for d in [flat(&gradients.get(&k)), flat(&gradients.get(&v))] {
            let width = d.len() / 10;
            assert!(
                d.chunks(width)
                    .enumerate()
                    .all(|(i, d)| (i % 5 < 2) != d.iter().all(|d| *d == 0.0)),
                "{what}"
            );
        }
    }
}

#[test]
fn not_a_number_behind_a_mask_reaches_nothing() {
    let poisoned = |x: &Vectors| {
        let width = x.shape().3;
        let mut numbers = x.as_vec();
        for (row, numbers) in numbers.chunks_mut(width).enumerate() {
            if row % 5 >= 2 {
                numbers.fill(f64::NAN);
            }
        }
        Cpu::default().tensor_from_vec(numbers, *x.shape())
    };
    for ((what, options), (_, again)) in hiding().into_iter().zip(hiding()) {
        if what == "a bias" {
            continue;
        }
        let Inputs { q, k, v } = Inputs::new([2, 2, 1, 4, 5, 3, 2]);
        let (k2, v2) = (poisoned(&k), poisoned(&v));
        let clean = options.forward(q.leaky_trace(), k, v);
        let found = again.forward(q.leaky_trace(), k2, v2);
        assert_eq!(flat(&clean), flat(&found), "{what}");
        let of =
            |y: Tensor<_, f64, Cpu, OwnedTape<f64, Cpu>>| y.square().sum::<Rank0, _>().backward();
        assert_eq!(flat(&of(clean).get(&q)), flat(&of(found).get(&q)), "{what}");
    }
}

/// Queries and keys, of which those from the third on are zeros, as padding often is: their scores are 0.
fn with_keys_of_zeros() -> Inputs {
    let Inputs { q, k, v } = Inputs::new([2, 2, 1, 4, 5, 3, 2]);
    let mut numbers = k.as_vec();
    for (row, numbers) in numbers.chunks_mut(3).enumerate() {
        if row % 5 >= 2 {
            numbers.fill(0.0);
        }
    }
    let k = Cpu::default().tensor_from_vec(numbers, *k.shape());
    Inputs { q, k, v }
}

/// Both forms agree, and all gradients are finite.
fn agree_and_are_finite(what: &str, options: impl Fn() -> Traced) {
    let inputs = with_keys_of_zeros();
    let fused = inputs.results(&options);
    let composed = inputs.results(|| options().composed());
    for (fused, composed) in fused.iter().zip(&composed) {
        assert_same(what, fused, composed, 1e-13);
        let mut all = fused.gradients().flat_map(|(_, d)| d);
        assert!(all.all(|d| d.is_finite()), "{what}");
    }
}

#[test]
fn the_slope_of_a_function_at_a_hidden_score_may_be_infinite() {
    for (what, _) in hiding() {
        let of = |(_, options): (_, Traced)| options.score_by(|score, _| (score * score).ln());
        let hidden = || hiding().into_iter().find(|(other, _)| *other == what);
        agree_and_are_finite(what, || of(hidden().unwrap()));
    }
    // The logarithm of 0 hides a key by itself.
    agree_and_are_finite("ln 0", || {
        Traced::new().score_by(|score, _| (score * score).ln())
    });
}

#[test]
fn a_function_of_a_hidden_score_may_be_no_number() {
    for (what, _) in hiding().into_iter().filter(|(what, _)| *what != "a bias") {
        let hidden = || hiding().into_iter().find(|(other, _)| *other == what);
        agree_and_are_finite(what, || {
            let (_, options) = hidden().unwrap();
            options.score_by(|score, _| score * score / score)
        });
    }
}

#[test]
fn queries_without_keys_are_zero() {
    let Inputs { q, k, v } = Inputs::new([2, 2, 1, 4, 5, 3, 2]);
    let options = Traced::new().lengths(vec![0, 5]);
    let (y, lse) = options.forward_with_lse(q.leaky_trace(), k, v);
    assert_eq!(flat(&y)[..16], [0.0; 16]);
    assert_eq!(flat(&lse)[..8], [f64::NEG_INFINITY; 8]);
    let gradients = y.square().sum::<Rank0, _>().backward();
    assert_eq!(flat(&gradients.get(&q))[..24], [0.0; 24]);
}

#[test]
fn one_tensor_may_be_queries_keys_and_values() {
    let x = tensor("x", (2, 3, 5, 4));
    let y = Traced::new()
        .causal()
        .forward(x.leaky_trace(), x.clone(), x.clone());
    let gradient = flat(&y.square().sum::<Rank0, _>().backward().get(&x));
    let [a, b, c] = [(); 3].map(|()| Cpu::default().tensor_from_vec(x.as_vec(), *x.shape()));
    let y = Traced::new()
        .causal()
        .forward(a.leaky_trace(), b.clone(), c.clone());
    let gradients = y.square().sum::<Rank0, _>().backward();
    let parts = [&a, &b, &c].map(|x| flat(&gradients.get(x)));
    for (i, found) in gradient.iter().enumerate() {
        // Three numbers in another order.
        assert!((found - parts.iter().map(|d| d[i]).sum::<f64>()).abs() < 1e-15);
    }
}

#[test]
fn dropout_needs_a_tape_and_drops_weights() {
    let Inputs { q, k, v } = Inputs::new([2, 2, 1, 40, 50, 3, 2]);
    let without = Untraced::new()
        .dropout(0.5)
        .forward(q.clone(), k.clone(), v.clone());
    assert_eq!(
        flat(&without),
        flat(&attend(q.clone(), k.clone(), v.clone()))
    );
    let (_, weights) = Untraced::new().forward_with_weights(q.clone(), k.clone(), v.clone());
    let (_, dropped) = Traced::new()
        .dropout(0.5)
        .forward_with_weights(q.leaky_trace(), k, v);
    let pairs = flat(&weights).into_iter().zip(flat(&dropped));
    let mut kept = 0;
    for (weight, dropped) in pairs {
        // A factor of 2 is exact.
        assert!(dropped == 0.0 || dropped == 2.0 * weight);
        kept += usize::from(dropped != 0.0);
    }
    // Half of 8000, within five standard errors.
    assert!(
        (kept as f64 - 4000.0).abs() < 5.0 * 2000.0_f64.sqrt(),
        "{kept}"
    );
}
