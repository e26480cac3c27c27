//! Inputs that share their memory: with each other, or within themselves.

use super::{
    compare::{
        Outcome, assert_close, assert_same, backpropagate, by_hand, by_hand_with_context,
        layer_with, state_for, tolerance,
    },
    masked,
};
use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Split, State,
    masks::{causal, full, marked_keys, padding},
};

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal, position = rope>;
    struct Cross<heads = 2, d_model = 8, d_context = 8>;
    struct Padded<heads = 2, d_model = 8, mask = padding>;
}

/// `[batch, length, width]` of the inputs here.
const DIMS: [usize; 3] = [3, 5, 8];
const SHAPE: (usize, usize, Const<8>) = (3, 5, Const);

/// The causal layer by hand, on a contiguous input.
fn causal_by_hand(state: &State) -> Outcome {
    by_hand::<f64, _, _, _>(state, |p, x| {
        let rotated = |q, k| {
            let turn = |x| support::reference::positions::rope(x, 10_000.0);
            support::reference::heads::scaled_dot(turn(q), turn(k))
        };
        let mask = super::mask_of(x, x, |_, q, k| causal(q, k));
        support::reference::attention(p, Split::into_heads(2), x, x, rotated, |s| {
            support::reference::normalizers::softmax(s, &mask)
        })
    })
}

/// Compares all results that do not depend on the memory layout of the input.
#[track_caller]
fn assert_same_but_for_x(declared: &Outcome, expected: &Outcome) {
    let tolerance = tolerance::<f64>();
    assert_close(
        "output",
        declared.get("output"),
        expected.get("output"),
        tolerance,
    );
    for (name, gradient) in expected.gradients().filter(|(name, _)| *name != "x") {
        assert_close(name, declared.gradient(name), gradient, tolerance);
    }
}

#[test]
fn the_context_may_be_the_input_itself() {
    let state = state_for::<Cross<f64>, _>(&[("x", &DIMS)]);
    let layer = layer_with::<Cross<f64>, _>(&state);
    let x = state.tensor("x", SHAPE);
    let output = layer.forward((x.leaky_trace(), x.clone()));
    let declared = backpropagate(output).input("x", &x).parameters(&layer);

    let expected = by_hand::<f64, _, _, _>(&state, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| full(q, k))
    });
    assert_same("x as context", &declared, &expected, tolerance::<f64>());
}

#[test]
fn the_gradient_of_a_shared_input_is_the_sum_of_the_gradients_of_both() {
    let mut state = state_for::<Cross<f64>, _>(&[("x", &DIMS), ("context", &DIMS)]);
    *state.flat_mut("context") = state.get("x").flat.clone();
    let apart = by_hand_with_context::<f64, _, _, _>(&state, |p, x, context| {
        masked(p, Split::into_heads(2), x, context, |_, q, k| full(q, k))
    });
    let of_both = apart.gradient("x").iter().zip(apart.gradient("context"));
    let sum: Vec<f64> = of_both.map(|(x, context)| x + context).collect();

    let layer = layer_with::<Cross<f64>, _>(&state);
    let x = state.tensor("x", SHAPE);
    let output = layer.forward((x.leaky_trace(), x.clone()));
    let declared = backpropagate(output).input("x", &x).parameters(&layer);
    assert_close("x", declared.gradient("x"), &sum, tolerance::<f64>());
}

#[test]
fn the_output_of_one_layer_may_be_both_inputs_of_the_next() {
    let state = state_for::<Cross<f64>, _>(&[("x", &DIMS)]);
    let layer = layer_with::<Cross<f64>, _>(&state);
    let x = state.tensor("x", SHAPE);
    let first = layer.forward((x.leaky_trace(), x.clone()));
    let context = first.retaped::<NoneTape>();
    let declared = backpropagate(layer.forward((first, context)))
        .input("x", &x)
        .parameters(&layer);

    let expected = by_hand::<f64, _, _, _>(&state, |p, x| {
        let split = Split::into_heads(2);
        let (first, _) = masked(p, split, x, x, |_, q, k| full(q, k));
        let (first, tape) = first.split_tape();
        let (second, weights) = masked(p, split, &first, &first, |_, q, k| full(q, k));
        let (second, second_tape) = second.split_tape();
        (second.put_tape(tape.merge(second_tape)), weights)
    });
    assert_same("twice", &declared, &expected, tolerance::<f64>());
}

#[test]
fn the_input_may_be_permuted() {
    let mut state = state_for::<Causal<f64>, _>(&[("x", &DIMS)]);
    let layer = layer_with::<Causal<f64>, _>(&state);

    // [length, batch, width] in memory
    let base = state.tensor("x", (5, 3, Const::<8>));
    let x = base
        .leaky_trace()
        .permute::<(usize, usize, Const<8>), Axes3<1, 0, 2>>();
    let in_order: Vec<f64> = x.as_vec();
    let declared = backpropagate(layer.forward(x))
        .input("x", &base)
        .parameters(&layer);
    *state.flat_mut("x") = in_order;
    let expected = causal_by_hand(&state);
    assert_same_but_for_x(&declared, &expected);
    let gradient = Cpu::default().tensor_from_vec(expected.gradient("x").to_vec(), SHAPE);
    let gradient = gradient.permute::<(usize, usize, Const<8>), Axes3<1, 0, 2>>();
    assert_close(
        "x",
        declared.gradient("x"),
        &gradient.as_vec(),
        tolerance::<f64>(),
    );

    // [batch, width, length] in memory
    let base = state.tensor("x", (3, Const::<8>, 5));
    let x = base
        .leaky_trace()
        .permute::<(usize, usize, Const<8>), Axes3<0, 2, 1>>();
    let in_order: Vec<f64> = x.as_vec();
    let declared = backpropagate(layer.forward(x))
        .input("x", &base)
        .parameters(&layer);
    *state.flat_mut("x") = in_order;
    let expected = causal_by_hand(&state);
    assert_same_but_for_x(&declared, &expected);
    let gradient = Cpu::default().tensor_from_vec(expected.gradient("x").to_vec(), SHAPE);
    let gradient = gradient.permute::<(usize, Const<8>, usize), Axes3<0, 2, 1>>();
    assert_close(
        "x",
        declared.gradient("x"),
        &gradient.as_vec(),
        tolerance::<f64>(),
    );
}

/// The gradient of a broadcast input is the sum over the copies.
#[test]
fn the_input_may_be_broadcast() {
    // The same sequence for the whole batch.
    let mut state = state_for::<Causal<f64>, _>(&[("x", &DIMS), ("base", &[5, 8])]);
    let layer = layer_with::<Causal<f64>, _>(&state);
    let base = state.tensor("base", (5, Const::<8>));
    let x = base.leaky_trace().broadcast_like::<_, Axis<0>>(&SHAPE);
    *state.flat_mut("x") = x.as_vec();
    let declared = backpropagate(layer.forward(x))
        .input("x", &base)
        .parameters(&layer);
    let expected = causal_by_hand(&state);
    assert_same_but_for_x(&declared, &expected);
    let mut sum = vec![0.0; 5 * 8];
    for (i, gradient) in expected.gradient("x").iter().enumerate() {
        sum[i % (5 * 8)] += gradient;
    }
    assert_close("x", declared.gradient("x"), &sum, tolerance::<f64>());

    // The same token along the whole sequence.
    let mut state = state_for::<Causal<f64>, _>(&[("x", &DIMS), ("base", &[3, 8])]);
    let layer = layer_with::<Causal<f64>, _>(&state);
    let base = state.tensor("base", (3, Const::<8>));
    let x = base.leaky_trace().broadcast_like::<_, Axis<1>>(&SHAPE);
    *state.flat_mut("x") = x.as_vec();
    let declared = backpropagate(layer.forward(x))
        .input("x", &base)
        .parameters(&layer);
    let expected = causal_by_hand(&state);
    assert_same_but_for_x(&declared, &expected);
    let mut sum = vec![0.0; 3 * 8];
    for (i, gradient) in expected.gradient("x").iter().enumerate() {
        sum[i / (5 * 8) * 8 + i % 8] += gradient;
    }
    assert_close("x", declared.gradient("x"), &sum, tolerance::<f64>());
}

#[test]
fn the_context_may_be_permuted_or_broadcast() {
    let mut state = state_for::<Cross<f64>, _>(&[("x", &[3, 5, 8]), ("context", &[3, 4, 8])]);
    let layer = layer_with::<Cross<f64>, _>(&state);
    let by_hand = |state: &State| {
        by_hand_with_context::<f64, _, _, _>(state, |p, x, context| {
            masked(p, Split::into_heads(2), x, context, |_, q, k| full(q, k))
        })
    };
    let x = state.tensor("x", SHAPE);

    // [length, batch, width] in memory
    let base = state.tensor("context", (4, 3, Const::<8>));
    let context = base
        .clone()
        .permute::<(usize, usize, Const<8>), Axes3<1, 0, 2>>();
    *state.flat_mut("context") = context.as_vec();
    let output = layer.forward((x.leaky_trace(), context));
    let declared = backpropagate(output).input("x", &x).input("context", &base);
    let declared = declared.parameters(&layer);
    let expected = by_hand(&state);
    let gradient = expected.gradient("context").to_vec();
    let gradient = Cpu::default().tensor_from_vec(gradient, (3, 4, Const::<8>));
    let gradient = gradient.permute::<(usize, usize, Const<8>), Axes3<1, 0, 2>>();
    let tolerance = tolerance::<f64>();
    assert_close(
        "permuted",
        declared.get("output"),
        expected.get("output"),
        tolerance,
    );
    assert_close(
        "context",
        declared.gradient("context"),
        &gradient.as_vec(),
        tolerance,
    );

    // The same context for all sequences.
    state.insert("base", &[4, 8]);
    let base = state.tensor("base", (4, Const::<8>));
    let context = base
        .clone()
        .broadcast_like::<_, Axis<0>>(&(3, 4, Const::<8>));
    *state.flat_mut("context") = context.as_vec();
    let output = layer.forward((x.leaky_trace(), context));
    let declared = backpropagate(output).input("x", &x).input("context", &base);
    let declared = declared.parameters(&layer);
    let expected = by_hand(&state);
    let mut sum = vec![0.0; 4 * 8];
    for (i, gradient) in expected.gradient("context").iter().enumerate() {
        sum[i % (4 * 8)] += gradient;
    }
    assert_close(
        "broadcast",
        declared.get("output"),
        expected.get("output"),
        tolerance,
    );
    assert_close("context", declared.gradient("context"), &sum, tolerance);
}

#[test]
fn the_data_of_a_mask_may_be_permuted_or_broadcast() {
    let state = state_for::<Padded<f64>, _>(&[("x", &DIMS)]);
    let layer = layer_with::<Padded<f64>, _>(&state);
    let x = state.tensor("x", SHAPE);
    let dev = Cpu::default();

    let length: Tensor<Rank0, usize, _> = dev.tensor(2);
    let output = layer.forward((x.clone(), length.broadcast_like::<_, Axis<0>>(&(3,))));
    let expected = by_hand::<f64, _, _, _>(&state, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| padding(q, k, 2))
    });
    assert_close(
        "one length",
        &output.as_vec(),
        expected.get("output"),
        tolerance::<f64>(),
    );

    let marks = |key: usize, sequence: usize| (2 * key + sequence).is_multiple_of(3);
    let pairs = (0..5).flat_map(|key| (0..3).map(move |sequence| (key, sequence)));
    let marked = pairs.map(|(key, sequence)| marks(key, sequence)).collect();
    let marked = dev.tensor_from_vec(marked, (5, 3));
    let output = layer.forward((x, marked.permute::<(usize, usize), Axes2<1, 0>>()));
    let expected = by_hand::<f64, _, _, _>(&state, |p, x| {
        masked(p, Split::into_heads(2), x, x, |b, q, k| {
            let marks: Vec<bool> = (0..k).map(|key| marks(key, b)).collect();
            marked_keys(q, &marks)
        })
    });
    assert_close(
        "turned marks",
        &output.as_vec(),
        expected.get("output"),
        tolerance::<f64>(),
    );
}

/// Batch and lengths may each be known at run time or at compile time, separately for the two sequences.
#[test]
fn some_dimensions_may_be_known_at_compile_time() {
    let state = state_for::<Cross<f64>, _>(&[("x", &[3, 5, 8]), ("context", &[3, 4, 8])]);
    let layer = layer_with::<Cross<f64>, _>(&state);
    let expected = by_hand_with_context::<f64, _, _, _>(&state, |p, x, context| {
        masked(p, Split::into_heads(2), x, context, |_, q, k| full(q, k))
    });
    let assert_expected = |output: Vec<f64>| {
        assert_close(
            "output",
            &output,
            expected.get("output"),
            tolerance::<f64>(),
        );
    };

    let x: Tensor<Rank3<3, 5, 8>, f64, _> = state.tensor("x", (Const, Const, Const));
    let context = state.tensor("context", (Const, 4, Const));
    let output: Tensor<Rank3<3, 5, 8>, f64, _> = layer.forward((x, context));
    assert_expected(output.as_vec());

    let x = state.tensor("x", (3, Const, Const));
    let context: Tensor<(usize, Const<4>, Const<8>), f64, _> =
        state.tensor("context", (3, Const, Const));
    let output: Tensor<(usize, Const<5>, Const<8>), f64, _> = layer.forward((x, context));
    assert_expected(output.as_vec());

    let x = state.tensor("x", (Const, 5, Const));
    let context: Tensor<Rank3<3, 4, 8>, f64, _> = state.tensor("context", (Const, Const, Const));
    let output: Tensor<(Const<3>, usize, Const<8>), f64, _> = layer.forward((x, context));
    assert_expected(output.as_vec());
}

/// The gradients of `alloc_grads` equal those of a leaky trace, and a second backward pass adds to them.
#[test]
fn gradients_accumulate_in_allocated_ones() {
    let state = state_for::<Causal<f64>, _>(&[("x", &DIMS)]);
    let layer = layer_with::<Causal<f64>, _>(&state);
    let expected = causal_by_hand(&state);

    let x = state.tensor("x", SHAPE);
    let factors = support::reference::parameters::scattered("factors of the loss", 3 * 5 * 8);
    let factors = Cpu::default().tensor_from_vec(factors, SHAPE);
    let mut gradients = layer.alloc_grads();
    for times in [1.0, 2.0] {
        let output = layer.forward(x.trace(gradients));
        gradients = (output * factors.clone()).sum().backward();
        let gradient = gradients.get(&layer.q_proj.weight).as_vec();
        let scaled: Vec<f64> = expected
            .gradient("q_proj.weight")
            .iter()
            .map(|g| g * times)
            .collect();
        assert_close("q_proj.weight", &gradient, &scaled, tolerance::<f64>());
        let gradient = gradients.get(&layer.o_proj.bias).as_vec();
        let scaled: Vec<f64> = expected
            .gradient("o_proj.bias")
            .iter()
            .map(|g| g * times)
            .collect();
        assert_close("o_proj.bias", &gradient, &scaled, tolerance::<f64>());
    }
}
