//! A whole layer is one operation on the tape, and behaves like any other operation of dfdx.

use super::{
    compare::{Outcome, assert_close, assert_same, backpropagate, flat, layer_with, state_for},
    subject::Way,
};
use attn::attention;
use dfdx::prelude::*;
use support::{
    reference::{State, Traced, parameters::scattered},
    tensors::gradients,
};

attention! {
    struct Causal<heads = 4, kv_heads = 2, d_model = 8, mask = causal, position = rope, qk_norm = rms>;
    struct Cross<heads = 2, d_model = 8, d_context = 8, position = rel_pos_bias(8, 20), bias = [q, v, o]>;
    struct Padded<heads = 2, d_model = 8, mask = padding, score = bilinear>;
    struct PaddedCross<heads = 2, d_model = 8, d_context = 6, mask = padding & document, score = additive(hidden = 3)>;
    struct WithDropout<heads = 2, d_model = 8, dropout = 0.5>;
}

/// Batch, length and width of the inputs.
const DIMS: [usize; 3] = [3, 5, 8];

type Batched<E = f64> = Tensor<(usize, usize, Const<8>), E, Cpu>;
type Shape3 = (usize, usize, Const<8>);
const SHAPE: Shape3 = (3, 5, Const);

/// Sums over at most 15 tokens, 8 numbers wide, on a few levels: 100 roundings of ε/2 of terms up to 4 add up to 4 √100 ε/2 =
/// 4e-15. Ten times that.
const TOLERANCE: f64 = 5e-14;

/// Runs one of the forms.
macro_rules! forward {
    ($way:expr, $layer:expr, $input:expr) => {
        match $way {
            Way::Fused => $layer.forward($input),
            Way::Composed => $layer.composed().forward($input),
        }
    };
}

/// Asserts that both forms have the same results.
#[track_caller]
fn assert_agree(run: impl Fn(Way) -> Outcome) {
    assert_same("fused", &run(Way::Fused), &run(Way::Composed), TOLERANCE);
}

/// The number of operations on a tape.
fn operations<S: Shape>(y: Traced<S, f64>) -> usize {
    let (_, tape) = y.split_tape();
    let tape = format!("{tape:?}");
    let count = tape.split("num_operations: ").nth(1);
    let count = count.and_then(|rest| rest.split(',').next());
    let count = count.expect("dfdx says how many");
    count.parse().expect("a number")
}

fn zeros<S: Shape>(shape: S) -> Tensor<S, f64, Cpu> {
    Cpu::default().zeros_like(&shape)
}

fn lengths<S: Shape>(shape: S) -> Tensor<S, usize, Cpu> {
    Cpu::default().zeros_like(&shape)
}

#[test]
fn a_layer_is_one_operation() {
    let dev = Cpu::default();
    let causal = dev.build_module::<Causal, f64>();
    assert_eq!(operations(causal.forward(zeros(SHAPE).leaky_trace())), 1);
    let fixed: Tensor<Rank3<3, 5, 8>, f64, _> = dev.zeros();
    assert_eq!(operations(causal.forward(fixed.leaky_trace())), 1);

    let mut dropped = dev.build_module::<WithDropout, f64>();
    let y = dropped.forward_mut(zeros(SHAPE).leaky_trace());
    assert_eq!(operations(y), 1);

    let cross = dev.build_module::<Cross, f64>();
    let y = cross.forward((zeros(SHAPE).leaky_trace(), zeros((3, 4, Const))));
    assert_eq!(operations(y), 1);

    let padded = dev.build_module::<Padded, f64>();
    let y = padded.forward((zeros(SHAPE).leaky_trace(), lengths((3,))));
    assert_eq!(operations(y), 1);

    let padded = dev.build_module::<PaddedCross, f64>();
    let ids = (lengths((3, 5)), lengths((3, 4)));
    let context = zeros((3, 4, Const));
    let y = padded.forward((zeros(SHAPE).leaky_trace(), context, lengths((3,)), ids));
    assert_eq!(operations(y), 1);
}

#[test]
fn an_unbatched_layer_is_one_operation() {
    let dev = Cpu::default();
    let causal = dev.build_module::<Causal, f64>();
    let x = || zeros((5, Const::<8>)).leaky_trace();
    assert_eq!(operations(causal.forward(x())), 1);

    let padded = dev.build_module::<Padded, f64>();
    assert_eq!(operations(padded.forward((x(), 3))), 1);

    let padded = dev.build_module::<PaddedCross, f64>();
    let ids = (lengths((5,)), lengths((4,)));
    let y = padded.forward((x(), zeros((4, Const)), 3, ids));
    assert_eq!(operations(y), 1);
}

#[test]
fn the_composed_layer_is_a_chain() {
    let causal = Cpu::default().build_module::<Causal, f64>();
    let y = causal.composed().forward(zeros(SHAPE).leaky_trace());
    assert!(operations(y) > 20);
}

#[test]
fn outputs_without_a_tape_are_the_same() {
    let state = state_for::<Causal<f32>, _>(&[("x", &DIMS)]);
    let mut layer = layer_with::<Causal<f32>, _>(&state);
    let x: Batched<f32> = state.tensor("x", SHAPE);
    let traced = layer.forward(x.leaky_trace()).as_vec();
    let untraced: Batched<f32> = layer.forward(x.clone());
    assert_eq!(untraced.as_vec(), traced);
    assert_eq!(layer.forward_mut(x.clone()).as_vec(), traced);
    assert_eq!(Module::forward(&layer, x).as_vec(), traced);
}

#[test]
fn unbatched_and_fixed_sizes_compute_the_same() {
    let state = state_for::<Causal<f32>, _>(&[("x", &[1, 5, 8])]);
    let layer = layer_with::<Causal<f32>, _>(&state);
    let run = |x: Tensor<(usize, usize, Const<8>), f32, Cpu>| {
        let ran = backpropagate(layer.forward(x.leaky_trace())).input("x", &x);
        ran.parameters(&layer)
    };
    let batched = run(state.tensor("x", (1, 5, Const)));

    let x: Tensor<(usize, Const<8>), f32, _> = state.tensor("x", (5, Const));
    let ran = backpropagate(layer.forward(x.leaky_trace())).input("x", &x);
    assert_same("unbatched", &ran.parameters(&layer), &batched, 0.0);

    let x: Tensor<Rank3<1, 5, 8>, f32, _> = state.tensor("x", (Const, Const, Const));
    let ran = backpropagate(layer.forward(x.leaky_trace())).input("x", &x);
    assert_same("fixed", &ran.parameters(&layer), &batched, 0.0);
}

#[test]
fn an_input_may_be_used_again() {
    let state = state_for::<Causal<f64>, _>(&[("x", &DIMS)]);
    let layer = layer_with::<Causal<f64>, _>(&state);
    // A residual, twice.
    assert_agree(|way| {
        let x: Batched = state.tensor("x", SHAPE);
        let once = forward!(way, layer, x.leaky_trace()) + x.clone();
        let again = forward!(way, layer, x.leaky_trace());
        let ran = backpropagate(once * again).input("x", &x);
        ran.parameters(&layer)
    });
}

#[test]
fn the_context_may_be_the_input() {
    let state = state_for::<Cross<f64>, _>(&[("x", &DIMS)]);
    let layer = layer_with::<Cross<f64>, _>(&state);
    assert_agree(|way| {
        let x: Batched = state.tensor("x", SHAPE);
        let y = forward!(way, layer, (x.leaky_trace(), x.clone()));
        backpropagate(y).input("x", &x).parameters(&layer)
    });
}

#[test]
fn a_layer_may_follow_itself() {
    let state = state_for::<Causal<f64>, _>(&[("x", &DIMS)]);
    let layer = layer_with::<Causal<f64>, _>(&state);
    assert_agree(|way| {
        let x: Batched = state.tensor("x", SHAPE);
        let y = forward!(way, layer, forward!(way, layer, x.leaky_trace()));
        backpropagate(y).input("x", &x).parameters(&layer)
    });
}

#[test]
fn gradients_flow_to_the_operations_before() {
    let state = state_for::<Cross<f64>, _>(&[("source", &DIMS), ("x", &[3, 4, 8])]);
    let layer = layer_with::<Cross<f64>, _>(&state);
    let encoder = Cpu::seed_from_u64(1).build_module::<Linear<8, 8>, f64>();
    let head = Cpu::seed_from_u64(2).build_module::<Linear<8, 8>, f64>();
    assert_agree(|way| {
        let source: Batched = state.tensor("source", SHAPE);
        let x: Batched = state.tensor("x", (3, 4, Const));
        let (context, tape) = encoder.forward(source.leaky_trace()).split_tape();
        let queries = x.clone().put_tape(tape).tanh();
        let y = head.forward(forward!(way, layer, (queries, context)));
        backpropagate(y)
            .input("x", &x)
            .input("source", &source)
            .input("encoder.weight", &encoder.weight)
            .input("head.weight", &head.weight)
            .parameters(&layer)
    });
}

#[test]
fn the_gradient_of_the_output_can_be_read() {
    let layer = Cpu::default().build_module::<Causal, f64>();
    let x: Batched = Cpu::default().sample_normal_like(&SHAPE);
    let y = layer.forward(x.leaky_trace());
    let output = y.retaped::<NoneTape>();
    let gradients = (y * 3.0).sum().backward();
    assert_eq!(gradients.get(&output).as_vec(), [3.0; 3 * 5 * 8]);
}

#[test]
fn inputs_may_be_views() {
    let dims: [(&str, &[usize]); 2] = [("base", &[5, 3, 8]), ("row", &[4, 8])];
    let state = state_for::<Cross<f64>, _>(&dims);
    let layer = layer_with::<Cross<f64>, _>(&state);
    assert_agree(|way| {
        let base: Batched = state.tensor("base", (5, 3, Const));
        let row: Tensor<(usize, Const<8>), f64, _> = state.tensor("row", (4, Const));
        let x = base.leaky_trace().permute::<Shape3, Axes3<1, 0, 2>>();
        let context = row.clone().broadcast_like::<_, Axis<0>>(&(3, 4, Const));
        let ran = backpropagate(forward!(way, layer, (x, context)));
        let ran = ran.input("base", &base).input("row", &row);
        ran.parameters(&layer)
    });
    // The operands swapped, and other axes.
    assert_agree(|way| {
        let base: Batched = state.tensor("base", (5, 3, Const));
        let row: Tensor<(usize, Const<8>), f64, _> = state.tensor("row", (4, Const));
        let context = base.clone().permute::<Shape3, Axes3<1, 0, 2>>();
        let x = row.leaky_trace().slice((..3, ..));
        let x = x.broadcast_like::<_, Axis<1>>(&SHAPE);
        let ran = backpropagate(forward!(way, layer, (x, context)));
        let ran = ran.input("base", &base).input("row", &row);
        ran.parameters(&layer)
    });
}

/// A permuted view of stored numbers, with the same values.
fn turned<const N: usize, const M: usize>(
    x: Tensor<Rank2<N, M>, f64, Cpu>,
) -> Tensor<Rank2<N, M>, f64, Cpu> {
    let stored: Tensor<Rank2<M, N>, f64, Cpu> = x.permute();
    let stored = Cpu::default().tensor_from_vec(stored.as_vec(), (Const::<M>, Const::<N>));
    stored.permute()
}

#[test]
fn parameters_may_be_views() {
    let dims: [(&str, &[usize]); 2] = [("x", &DIMS), ("context", &DIMS)];
    let state = state_for::<Cross<f64>, _>(&dims);
    let mut layer = layer_with::<Cross<f64>, _>(&state);
    let expected = run_cross(Way::Fused, &layer, &state);
    let turn = |x: &mut Tensor<Rank2<8, 8>, f64, Cpu>| *x = turned(x.clone());
    turn(&mut layer.q_proj.weight);
    turn(&mut layer.v_proj.weight);
    turn(&mut layer.o_proj.weight);
    layer.rel_pos_bias.weight = turned(layer.rel_pos_bias.weight.clone());
    let mut stored = vec![0.0; 64];
    layer.q_proj.weight.copy_into(&mut stored);
    assert_ne!(stored, layer.q_proj.weight.as_vec());
    let found = run_cross(Way::Fused, &layer, &state);
    assert_same("permuted", &found, &expected, 0.0);

    // One number, broadcast: its gradient is a sum.
    let one: Tensor<Rank0, f64, _> = Cpu::default().tensor(0.3);
    layer.q_proj.bias = one.clone().broadcast();
    let row: Tensor<Rank1<8>, f64, _> = Cpu::default().sample_normal();
    layer.v_proj.weight = row.broadcast::<_, Axis<0>>();
    layer.rel_pos_bias.weight = one.broadcast();
    assert_agree(|way| run_cross(way, &layer, &state));
}

fn run_cross(way: Way, layer: &Cross<f64>, state: &State) -> Outcome {
    let x: Batched = state.tensor("x", SHAPE);
    let context: Batched = state.tensor("context", SHAPE);
    let ran = backpropagate(forward!(way, layer, (x.leaky_trace(), context.clone())));
    let ran = ran.input("x", &x).input("context", &context);
    ran.parameters(layer)
}

#[test]
fn gains_may_be_views() {
    let state = state_for::<Causal<f64>, _>(&[("x", &DIMS)]);
    let mut layer = layer_with::<Causal<f64>, _>(&state);
    let one: Tensor<Rank0, f64, _> = Cpu::default().tensor(0.8);
    layer.q_norm.weight = one.clone().broadcast();
    layer.k_norm.weight = one.broadcast();
    assert_agree(|way| {
        let x: Batched = state.tensor("x", SHAPE);
        let y = forward!(way, layer, x.leaky_trace());
        backpropagate(y).input("x", &x).parameters(&layer)
    });
}

/// The gradients of `alloc_grads` equal those of a leaky trace, and a second backward pass adds to them.
#[test]
fn gradients_accumulate_over_backward_passes() {
    let state = state_for::<Causal<f64>, _>(&[("x", &DIMS)]);
    let mut layer = layer_with::<Causal<f64>, _>(&state);
    let x: Batched = state.tensor("x", SHAPE);
    let factors = scattered("factors of the loss", 3 * 5 * 8);
    let factors = Cpu::default().tensor_from_vec(factors, SHAPE);
    let y = layer.forward(x.leaky_trace());
    let once = gradients(&layer, &(y * factors.clone()).sum().backward());

    let mut gathered = layer.alloc_grads();
    for times in [1.0, 2.0, 3.0] {
        let y = layer.forward_mut(x.trace(gathered));
        gathered = (y * factors.clone()).sum().backward();
        for (found, once) in gradients(&layer, &gathered).iter().zip(&once) {
            let expected: Vec<f64> = once.values.iter().map(|g| g * times).collect();
            assert_close(&found.name, &found.values, &expected, TOLERANCE);
        }
    }
    layer.zero_grads(&mut gathered);
    let y = layer.forward_mut(x.trace(gathered));
    let again = gradients(&layer, &(y * factors).sum().backward());
    assert_eq!(again, once);
}

/// A traced tensor keeps its tape through a layer whose output does not reach the loss.
#[test]
fn values_that_do_not_reach_the_loss_have_zero_gradients() {
    let layer = Cpu::default().build_module::<Causal, f64>();
    let x: Batched = Cpu::default().sample_normal_like(&SHAPE);
    let (_, tape) = layer.forward(x.leaky_trace()).split_tape();
    let gradients = x.clone().put_tape(tape).sum().backward();
    assert_eq!(flat(&gradients.get(&x)), [1.0; 3 * 5 * 8]);
    let of_weight = flat(&gradients.get(&layer.q_proj.weight));
    assert!(of_weight.iter().all(|&g| g == 0.0));
}
