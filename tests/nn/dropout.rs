//! Dropout of elements.

use super::*;
use attn::{nn::Dropout, ops};
use support::tensors::flat;

#[test]
fn gradients_are_dropped_with_their_elements() {
    for (b, s) in SIZES {
        let ones: Tensor<(usize, usize), f64, _> = Cpu::seed_from_u64(5).ones_like(&(b, s));
        let y = ops::dropout(ones.leaky_trace(), 0.4);
        let factors = flat(&y);
        assert!(factors.iter().all(|&f| f == 0.0 || f == 1.0 / 0.6));
        let found = backpropagate(y).input("x", &ones).parameters(&());
        let weights = scattered("factors of the loss", b * s);
        let expected: Vec<f64> = std::iter::zip(weights, factors)
            .map(|(w, f)| w * f)
            .collect();
        compare::assert_close(
            "gradient",
            found.gradient("x"),
            &expected,
            tolerance::<f64>(),
        );
    }
}

#[test]
fn dropped_elements_depend_on_the_seed_of_the_device() {
    let drop = |seed| {
        let x: Tensor<Rank1<100>, f32, _> = Cpu::seed_from_u64(seed).ones();
        // The second one after the first.
        let [first, second] = [(); 2].map(|()| ops::dropout(x.leaky_trace(), 0.5).array());
        assert_ne!(first, second);
        (first, second)
    };
    assert_eq!(drop(1), drop(1));
    assert_ne!(drop(1), drop(2));
}

#[test]
fn rows_of_a_broadcast_tensor_are_dropped_independently() {
    let row: Tensor<Rank1<50>, f32, _> = Cpu::default().ones();
    let x: Traced<Rank2<2, 50>, f32> = row.leaky_trace().broadcast::<_, Axis<0>>();
    let y = ops::dropout(x, 0.5);
    let [first, second] = y.array();
    assert_ne!(first, second);
    let gradient = y.sum().backward().get(&row).array();
    assert!((0..50).all(|i| gradient[i] == first[i] + second[i]));
}

#[test]
fn dropout_is_the_identity_without_training() {
    let x: Tensor<Rank1<50>, f32, _> = tensor("x", Default::default());
    let mut layer = Dropout { p: 0.9 };
    assert_eq!(flat(&ops::dropout(x.clone(), 0.9)), flat(&x));
    assert_eq!(flat(&layer.forward(x.leaky_trace())), flat(&x));
    assert_eq!(flat(&layer.forward_mut(x.clone())), flat(&x));
    assert_ne!(flat(&layer.forward_mut(x.leaky_trace())), flat(&x));
    assert_eq!(flat(&ops::dropout(x.leaky_trace(), 0.0)), flat(&x));
}

#[test]
fn empty_tensors_and_probability_1_are_accepted() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 0));
    backward_of_nothing(ops::dropout(x.leaky_trace(), 0.5)).get(&x);
    let x: Tensor<Rank1<7>, f64, _> = tensor("x", Default::default());
    let y = ops::dropout(x.leaky_trace(), 1.0);
    assert_eq!(y.array(), [0.0; 7]);
    assert_eq!(operations(y), 1);
}

#[test]
#[should_panic(expected = "1.5 is not a probability")]
fn probabilities_above_1_panic() {
    ops::dropout(tensor::<Rank1<7>, f64>("x", Default::default()), 1.5);
}
