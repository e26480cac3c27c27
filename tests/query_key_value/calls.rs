//! How a layer with three inputs is called, and what is known of it.

use super::*;
use attn::attention;
use support::cases::tensor;

attention! {
    struct Three<heads = 2, d_model = 8, d_context = 6, d_values = 6>;
    struct Two<heads = 2, d_model = 8, d_context = 6>;
    struct OfAllWidths<heads = 2, d_model = 8, d_context = 6, d_values = 5, value_head_dim = 3>;
}

#[test]
fn sizes_are_known() {
    assert_eq!([OfAllWidths::D_CONTEXT, OfAllWidths::D_VALUES], [6, 5]);
    assert_eq!([Two::D_CONTEXT, Two::D_VALUES], [6, 6]);
    let [q, k, v, o] = [8 * 8 + 8, 6 * 8 + 8, 5 * 6 + 6, 6 * 8 + 8];
    assert_eq!(OfAllWidths::PARAMS, q + k + v + o);
    // Projections of 3 queries, of 4 keys, of 4 values, of 3 outputs; scores and attended values of two heads.
    let products = 3 * 8 * 8 + 4 * 6 * 8 + 4 * 5 * 6 + 3 * 6 * 8 + 2 * 3 * 4 * (4 + 3);
    assert_eq!(OfAllWidths::flops(1, 3, 4), 2 * products as u64);
}

/// PyTorch: `mha(query, key, key)` of a module with `kdim == vdim`.
#[test]
fn one_tensor_as_keys_and_values_is_a_context() {
    let dev = Cpu::default();
    let two = dev.build_module::<Two, f64>();
    let three = Three {
        q_proj: two.q_proj.clone(),
        k_proj: two.k_proj.clone(),
        v_proj: two.v_proj.clone(),
        o_proj: two.o_proj.clone(),
    };
    let x: Tensor<(usize, usize, Const<8>), f64, _> = tensor("x", (2, 3, Const));
    let context: Tensor<(usize, usize, Const<6>), f64, _> = tensor("context", (2, 4, Const));
    let expected = two.forward((x.leaky_trace(), context.clone()));
    let input = || (x.leaky_trace(), context.clone(), context.clone());
    for found in [three.forward(input()), three.composed().forward(input())] {
        assert_same(&expected.as_vec(), &found.as_vec());
        let found = found.square().sum().backward();
        let expected = two.forward((x.leaky_trace(), context.clone()));
        let expected = expected.square().sum().backward();
        // The gradients of both uses are added.
        assert_same(
            &expected.get(&context).as_vec(),
            &found.get(&context).as_vec(),
        );
        assert_same(&expected.get(&x).as_vec(), &found.get(&x).as_vec());
    }
}

/// Sums of at most 60 terms in another order.
fn assert_same(expected: &[f64], found: &[f64]) {
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(found) {
        assert!(
            (expected - found).abs() <= 1e-13,
            "{found} instead of {expected}"
        );
    }
}

#[test]
fn a_single_sequence_is_a_batch_of_one() {
    let layer = Cpu::default().build_module::<OfAllWidths, f64>();
    let x: Tensor<(usize, Const<8>), f64, _> = tensor("x", (3, Const));
    let context: Tensor<(usize, Const<6>), f64, _> = tensor("context", (4, Const));
    let values: Tensor<(usize, Const<5>), f64, _> = tensor("values", (4, Const));
    let (alone, weights) = layer.forward_with_weights((x.clone(), context.clone(), values.clone()));
    assert_eq!(weights.shape().concrete(), [2, 3, 4]);
    let batched = layer.forward((
        x.reshape_like(&(1, 3, Const::<8>)),
        context.reshape_like(&(1, 4, Const::<6>)),
        values.reshape_like(&(1, 4, Const::<5>)),
    ));
    assert_same(&batched.as_vec(), &alone.as_vec());
}

#[test]
fn axes_may_be_constants_and_sequences_empty() {
    let layer = Cpu::default().build_module::<OfAllWidths, f64>();
    let x: Tensor<Rank3<2, 3, 8>, f64, _> = tensor("x", Default::default());
    let context: Tensor<Rank3<2, 4, 6>, f64, _> = tensor("context", Default::default());
    let values: Tensor<Rank3<2, 4, 5>, f64, _> = tensor("values", Default::default());
    let y: Tensor<Rank3<2, 3, 8>, f64, _> = layer.forward((x, context, values));
    assert!(y.as_vec().iter().all(|y| y.is_finite()));

    let x: Tensor<(usize, usize, Const<8>), f64, _> = tensor("x", (2, 3, Const));
    let context: Tensor<(usize, usize, Const<6>), f64, _> = tensor("context", (2, 0, Const));
    let values: Tensor<(usize, usize, Const<5>), f64, _> = tensor("values", (2, 0, Const));
    let y = layer.forward((x, context, values));
    let bias = layer.o_proj.bias.as_vec();
    assert_eq!(y.as_vec(), bias.repeat(6));
}
