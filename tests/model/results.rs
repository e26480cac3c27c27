//! Several results, of which the first carries the tape.

use std::panic::{AssertUnwindSafe, catch_unwind};

use attn::{dfdx::prelude::*, model};

model! {
    struct Two;

    fn forward(x: [batch, 4]) -> ([batch, 3], [batch, 2]) {
        let x = linear::<4, name = body>(x);
        (linear::<3, name = first>(x), linear::<2, name = second>(x))
    }
}

type X = Tensor<Rank2<5, 4>, f32, Cpu>;

fn model() -> (Two<f32, Cpu>, X) {
    let dev = Cpu::seed_from_u64(3);
    (dev.build_module::<Two, f32>(), dev.sample_normal())
}

/// The message of a panic.
fn message(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a panic");
    *panic.downcast::<String>().expect("a message")
}

/// The gradient of the body of `w0 * sum(first) + w1 * sum(second)`, in either order of the sum.
fn gradients_of_both(composed: bool, [w0, w1]: [f32; 2], swapped: bool) -> Vec<f32> {
    let (model, x) = model();
    let x = x.leaky_trace();
    let (first, second) = match composed {
        true => model.composed().forward(x),
        false => model.forward(x),
    };
    let first = first.sum() * w0;
    let second = second.sum() * w1;
    let loss = if swapped {
        second + first
    } else {
        first + second
    };
    loss.backward().get(&model.body.weight).as_vec()
}

/// By hand: the gradient of the body's weight is `w' 1 x`, for each of the results.
fn by_hand([w0, w1]: [f32; 2]) -> Vec<f32> {
    let (model, x) = model();
    let first = model.first.weight.array();
    let second = model.second.weight.array();
    let columns: [f32; 4] =
        std::array::from_fn(|input| x.array().iter().map(|row| row[input]).sum());
    let rows = (0..4).flat_map(|hidden| {
        let of_first: f32 = first.iter().map(|row| row[hidden]).sum();
        let of_second: f32 = second.iter().map(|row| row[hidden]).sum();
        columns.map(|column| column * (w0 * of_first + w1 * of_second))
    });
    rows.collect()
}

#[test]
fn gradients_of_several_results_are_those_of_their_sum_in_any_order() {
    for weights in [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [2.0, -0.5]] {
        let expected = by_hand(weights);
        for (composed, swapped) in [(false, false), (false, true), (true, false), (true, true)] {
            let found = gradients_of_both(composed, weights, swapped);
            for (found, expected) in found.iter().zip(&expected) {
                // Sums of at most 25 products of numbers near 1, in another order.
                assert!((found - expected).abs() < 1e-4, "{found} and {expected}");
            }
        }
    }
}

#[test]
fn a_backward_pass_through_a_later_result_alone_says_that_the_first_one_is_missing() {
    for composed in [false, true] {
        let (model, x) = model();
        let forward = |x: X| match composed {
            true => model.composed().forward(x.leaky_trace()),
            false => model.forward(x.leaky_trace()),
        };
        let (_, second) = forward(x.clone());
        let said = message(|| drop(second.sum().backward()));
        assert!(
            said.starts_with("`Two`: a backward pass through result 2 without the first one"),
            "{said}"
        );

        // The pass of the first result does not count for another pass.
        let (first, second) = forward(x);
        let gradients = first.sum().backward();
        assert!(gradients.get(&model.first.bias).array() == [5.0; 3]);
        let said = message(|| drop(second.sum().backward()));
        assert!(said.contains("result 2"), "{said}");
    }
}

#[test]
fn results_of_a_pass_without_a_tape_have_none() {
    let (model, x) = model();
    let (first, second): (Tensor<Rank2<5, 3>, f32, Cpu>, Tensor<Rank2<5, 2>, f32, Cpu>) =
        model.forward(x);
    assert_eq!((first.as_vec().len(), second.as_vec().len()), (15, 10));
}
