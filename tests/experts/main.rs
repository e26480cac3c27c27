//! Mixtures of experts, and other maps by group: both forms, differences, the layers of papers by hand, mistakes and sessions.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod limits;
mod papers;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{ids, scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

support::experts!(agree);

/// A label, an axis of any length, constants of the user: whatever a size is, the layer is the same.
#[test]
fn sizes_are_literals_constants_and_expressions() {
    const EXPERTS: usize = 4;
    const BEST: usize = 2;
    model! {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let (best, ids) = top_k::<EXPERTS, k = BEST>(linear::<EXPERTS>(x));
            let h = relu(grouped_linear::<{ 2 * d }, EXPERTS>(x, ids));
            sum::<BEST>(softmax(best) * grouped_linear::<d, EXPERTS>(h, ids))
        }
    }
    assert_eq!(M::PARAMS, (3 * 4 + 4) + 4 * (3 * 6 + 6) + 4 * (6 * 3 + 3));
    // Of four experts two are computed.
    assert_eq!(M::flops(2, 5), 2 * 10 * (3 * 4 + 2 * (3 * 6 + 6 * 3)));
    let model = Cpu::default().build_module::<M, f64>();
    assert_eq!(model.grouped_linear.weight.shape().concrete(), [4, 6, 3]);
    assert_eq!(model.grouped_linear.bias.shape().concrete(), [4, 6]);
    let any: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor("x", (2, 5, Const));
    let known: Tensor<Rank3<2, 5, 3>, f64, Cpu> = tensor("x", Default::default());
    assert_eq!(model.forward(any).as_vec(), model.forward(known).as_vec());
    assert_eq!(
        M::summary()
            .lines()
            .find(|line| line.contains("grouped_linear_2"))
            .unwrap(),
        "grouped_linear_2  grouped_linear 6 -> 3, EXPERTS groups  [batch, seq, BEST, 3]          84"
    );
}

/// Each map begins as one layer alone does.
#[test]
fn each_expert_begins_as_a_layer_alone() {
    model! {
        struct M<d = 8>;
        fn forward(x: [seq, d], group: ids[seq]) -> [seq, d] {
            let own = grouped_linear::<d, groups = 50>(x, group);
            own + grouped_linear::<d, groups = 3, init = orthogonal, bias = false>(x, group)
        }
    }
    let model = Cpu::seed_from_u64(1).build_module::<M, f64>();
    let bound = 1.0 / 8.0_f64.sqrt();
    let numbers = [
        model.grouped_linear.weight.as_vec(),
        model.grouped_linear.bias.as_vec(),
    ];
    for numbers in &numbers {
        assert!(numbers.iter().all(|number| number.abs() <= bound));
        let largest = numbers
            .iter()
            .fold(0.0_f64, |largest, number| largest.max(number.abs()));
        assert!(largest > 0.95 * bound, "{largest}");
    }
    let matrices = model.grouped_linear_2.weight.as_vec();
    assert_ne!(matrices[..64], matrices[64..128]);
    for matrix in matrices.chunks(64) {
        let length: f64 = matrix[..8].iter().map(|number| number * number).sum();
        let product: f64 = (0..8).map(|i| matrix[i] * matrix[8 + i]).sum();
        assert!((length - 1.0).abs() < 1e-12 && product.abs() < 1e-12);
    }
}

/// Weights of experts decay, biases do not.
#[test]
fn matrices_decay_and_biases_do_not() {
    let decays = |name, dims: &[usize]| {
        let info = attn::train::ParameterInfo {
            name,
            dims,
            module: std::any::type_name::<attn::nn::GroupedLinear<4, 8, 8, f32, Cpu>>(),
        };
        info.decays_by_default()
    };
    assert!(decays("grouped_linear.weight", &[4, 8, 8]));
    assert!(!decays("grouped_linear.bias", &[4, 8]));
}

/// A session computes for a token what the model computes for the whole sequence.
#[test]
fn a_session_goes_on_token_by_token() {
    model! {
        struct M<vocab = 7, d = 6, experts = 4>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens);
            repeat 2 {
                x += attention::<heads = 2, mask = causal>(x);
                let (best, ids) = top_k::<k = 2>(linear::<experts>(x));
                let h = gelu(grouped_linear::<8, experts>(x, ids));
                x += sum::<2>(softmax(best) * grouped_linear::<d, experts>(h, ids));
            }
            linear::<vocab>(x)
        }
    }
    let mut model = Cpu::default().build_module::<M, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 6, 1, 2];
    let whole = model.forward(Cpu::default().tensor([tokens])).as_vec();
    let close = |found: &[f64], place: usize| {
        let expected = &whole[place * 7..][..7];
        assert_eq!(found.len(), 7);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < tolerance::<f64>(), "{place}");
        }
    };
    let mut alone = model.session(5).unwrap();
    for (place, token) in tokens.into_iter().enumerate() {
        close(alone.step(token).unwrap(), place);
    }
    let mut at_once = model.session(5).unwrap();
    close(at_once.prefill(&tokens[..4]).unwrap(), 3);
    close(at_once.step(tokens[4]).unwrap(), 4);
}
