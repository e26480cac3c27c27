//! The weights of a layer beside its output: those of training, their gradients, and both forms.

use attn::__private::{Attends, ForwardOptions};
use attn::{Element, attention, dfdx::prelude::*};
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::{
    cases::tensor,
    compare::{Backpropagated, Outcome, assert_same, flat, weighted_sum},
    gradients::assert_gradients_of_state,
    parameters::{add_gradients, make, state},
    reference::State,
};

type Batched<const W: usize> = Tensor<(usize, usize, Const<W>), f64, Cpu>;

/// The same results, computed by the chain of operations.
fn in_composed_form<X, L: Attends<X>>(layer: &L, x: X) -> (L::Output, L::Weights)
where
    L::Err: std::fmt::Debug,
{
    let options = ForwardOptions {
        composed: true,
        ..ForwardOptions::TRAIN_WITH_WEIGHTS
    };
    let attended = layer.attend(x, options).expect("it runs");
    (attended.output, attended.weights.expect("it is wanted"))
}

/// The gradients of a loss of both results, against central differences, and both forms.
macro_rules! slopes {
    ($($name:ident [$($spec:tt)*] $({$($body:tt)*})?;)+) => {$(
        #[test]
        fn $name() {
            slopes!(@declare [$($spec)*] $({$($body)*})?);

            fn run(state: &State, composed: bool) -> Outcome {
                let (mut layer, parameters) = make::<Layer<f64>, f64>(state);
                let x: Batched<{ Layer::D_MODEL }> = state.tensor("x", (2, 5, Const));
                let (y, weights) = match composed {
                    false => layer.forward_mut_with_weights(x.leaky_trace()),
                    true => in_composed_form(&layer, x.leaky_trace()),
                };
                let outputs = [("output", flat(&y)), ("weights", flat(&weights))];
                let loss = weighted_sum(y) + weighted_sum(weights.square());
                add_gradients(Backpropagated::of(outputs, loss).input("x", &x), &parameters)
            }
            let mut state = state::<Layer<f64>, f64>();
            state.insert("x", &[2, 5, Layer::D_MODEL]);
            let outcome = run(&state, false);
            assert_gradients_of_state(stringify!($name), &state, &outcome, &|state| run(state, false).loss());
            // Sums of at most 8 terms of order 1, on a few levels.
            assert_same(stringify!($name), &outcome, &run(&state, true), 1e-13);
        }
    )+};
    (@declare [$($spec:tt)*] { $($body:tt)* }) => { attention! { struct Layer<$($spec)*> { $($body)* } } };
    (@declare [$($spec:tt)*]) => { attention! { struct Layer<$($spec)*>; } };
}

slopes! {
    plain [heads = 2, d_model = 8];
    dropped [heads = 2, d_model = 8, mask = causal, dropout = 0.4];
    shared_keys_with_sinks [heads = 4, kv_heads = 2, d_model = 8, normalizer = sink, dropout = 0.4];
    each_key_by_itself [heads = 2, d_model = 8, normalizer = sigmoid];
    sparse [heads = 2, d_model = 8, normalizer = entmax15];
    learned_scores [heads = 2, d_model = 8, mask = causal] {
        param slope: [heads] = ones;
        fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }
    };
}

attention! {
    struct Dropped<heads = 2, d_model = 8, mask = causal, dropout = 0.5>;
    struct Cross<heads = 2, d_model = 8, d_context = 6, mask = padding>;
}

/// The weights are those that the values were multiplied by.
#[test]
fn the_output_is_made_of_the_weights_that_are_returned() {
    let mut layer = Cpu::default().build_module::<Dropped, f64>();
    let x: Batched<8> = tensor("x", (2, 40, Const));
    let (y, weights) = layer.forward_mut_with_weights(x.leaky_trace());
    let values = layer.v_proj.forward(x.clone());
    let values = values
        .try_reshape_like(&(2, 40, Const::<2>, Const::<4>))
        .expect("the same numbers");
    let values: Tensor<(usize, Const<2>, usize, Const<4>), f64, _> =
        values.permute::<_, Axes4<0, 2, 1, 3>>();
    let (weights, _) = weights.split_tape();
    let attended: Tensor<(usize, usize, Const<2>, Const<4>), f64, _> = weights
        .clone()
        .matmul(values)
        .permute::<_, Axes4<0, 2, 1, 3>>();
    let attended = attended
        .try_reshape_like(&(2, 40, Const::<8>))
        .expect("the same numbers");
    let expected = flat(&layer.o_proj.forward(attended));
    for (found, expected) in flat(&y).iter().zip(expected) {
        // Sums of 40 and of 8 terms.
        assert!(
            (found - expected).abs() < 1e-13,
            "{found} instead of {expected}"
        );
    }
    // Half of the 2 * 2 * 820 weights that the mask leaves: √(3280) / 2 = 29 is the standard deviation.
    let kept = flat(&weights)
        .iter()
        .filter(|weight| **weight != 0.0)
        .count();
    assert!(kept.abs_diff(1640) < 150, "{kept} of 3280");
}

#[test]
fn weights_of_training_are_those_of_inference_times_a_mask() {
    let mut layer = Cpu::default().build_module::<Dropped, f32>();
    let x: Tensor<(usize, Const<8>), f32, Cpu> = tensor("x", (30, Const));
    let (_, whole) = layer.forward_with_weights(x.clone());
    let (_, dropped) = layer.forward_mut_with_weights(x.leaky_trace());
    assert_eq!(dropped.shape().concrete(), [2, 30, 30]);
    for (whole, dropped) in whole.as_vec().into_iter().zip(dropped.as_vec()) {
        assert!(
            dropped == 0.0 || dropped == 2.0 * whole,
            "{dropped} of {whole}"
        );
    }
    // Without a tape nothing falls, as in `forward_mut`.
    let (_, weights) = layer.forward_mut_with_weights(x);
    assert_eq!(weights.as_vec(), whole.as_vec());
}

/// A student learns the weights of a teacher, through the weights alone.
#[test]
fn weights_are_distilled() {
    use attn::train::AdamW;

    let dev = Cpu::default();
    let teacher = dev.build_module::<Cross, f32>();
    let mut student = dev.build_module::<Cross, f32>();
    let x: Tensor<Rank3<2, 6, 8>, f32, _> = tensor("x", Default::default());
    let context: Tensor<Rank3<2, 9, 6>, f32, _> = tensor("context", Default::default());
    let lens: Tensor<Rank1<2>, usize, _> = dev.tensor([9, 4]);
    let (_, target) = teacher.forward_with_weights((x.clone(), context.clone(), lens.clone()));
    let mut optimizer = AdamW::new(Default::default());
    let mut losses = Vec::new();
    for _ in 0..200 {
        let input = (
            x.clone().traced(student.alloc_grads()),
            context.clone(),
            lens.clone(),
        );
        let (y, weights) = student.forward_mut_with_weights(input);
        let distance = (weights - target.clone()).square().sum();
        losses.push(distance.array());
        let mut gradients = (distance + y.sum() * 0.0).backward();
        assert!(
            gradients
                .get(&student.v_proj.weight)
                .as_vec()
                .iter()
                .all(|g| *g == 0.0)
        );
        optimizer
            .update(&mut student, &mut gradients)
            .expect("every parameter has a gradient");
    }
    assert!(losses[199] < 0.5 * losses[0], "{losses:?}");
}

/// A loss of the weights alone has not the history that both share.
#[test]
fn weights_without_the_output_have_no_history() {
    let layer = Cpu::default().build_module::<Dropped, f32>();
    let x: Tensor<(usize, Const<8>), f32, Cpu> = tensor("x", (3, Const));
    let (_, weights) = layer.forward_with_weights(x.leaky_trace());
    let panic = catch_unwind(AssertUnwindSafe(|| weights.sum().backward())).err();
    let panic = panic.expect("it is refused");
    let message = panic.downcast_ref::<String>().expect("with a message");
    assert!(
        message.contains("`Dropped`: a backward pass through result 2 without the first one"),
        "{message}"
    );
}

/// The element type and the device may be any: generic code names the traits alone.
#[test]
fn generic_code_runs_with_weights() {
    fn sum<E: Element>() -> f64
    where
        Cpu: attn::Backend<E>,
    {
        let mut layer = Cpu::default().build_module::<Dropped, E>();
        let x: Tensor<(usize, Const<8>), E, Cpu> = tensor("x", (3, Const));
        let (_, weights) = layer.forward_mut_with_weights(x);
        flat(&weights).iter().sum()
    }
    // Two heads of three queries, whose weights have the sum 1.
    assert!((sum::<f32>() - 6.0).abs() < 1e-5 && (sum::<f64>() - 6.0).abs() < 1e-13);
}
