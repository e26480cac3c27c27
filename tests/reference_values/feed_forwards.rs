//! Feed-forward layers of Gemma and PyTorch.

use super::*;
use attn::model;

model! {
    struct Gemma;

    fn forward(x: [batch, seq, 8]) -> [batch, seq, 8] {
        feed_forward::<12, activation = geglu_tanh>(x)
    }
}

model! {
    struct Unbiased;

    fn forward(x: [batch, seq, 8]) -> [batch, seq, 8] {
        feed_forward::<12, activation = relu, bias = false>(x)
    }
}

macro_rules! check {
    ($Model:ident, $case:literal, [$($map:ident)*]) => {{
        let values = Values::read();
        let name = |tensor: &str| format!("{}.{tensor}", $case);
        let mut model = Cpu::default().build_module::<$Model, f32>();
        $(model.feed_forward.$map.weight = values.tensor(&name(stringify!($map)));)*
        assert_eq!(model.num_trainable_params(), $Model::PARAMS);
        let x: Tensor<Rank3<2, 5, 8>, f32, Cpu> = values.tensor(&name("x"));
        let d_y: Tensor<Rank3<2, 5, 8>, f32, Cpu> = values.tensor(&name("d_y"));
        let all = [model.forward_mut(x.leaky_trace()), model.composed().forward(x.leaky_trace())];
        for y in all {
            let (y, tape) = y.split_tape();
            values.assert_close(&name("y"), &y);
            let gradients = (y.put_tape(tape) * d_y.clone()).sum().backward();
            values.assert_close(&name("d_x"), &gradients.get(&x));
            $(values.assert_close(
                &name(concat!("d_", stringify!($map))),
                &gradients.get(&model.feed_forward.$map.weight),
            );)*
        }
    }};
}

#[test]
fn the_mlp_of_gemma_is_gated_by_the_gelu_with_tanh() {
    check!(Gemma, "feed_forward.geglu_tanh", [gate_proj up_proj down_proj]);
    assert_eq!(Gemma::PARAMS, 3 * 8 * 12);
}

#[test]
fn a_layer_without_biases_is_two_matrices() {
    check!(Unbiased, "feed_forward.unbiased", [up_proj down_proj]);
    assert_eq!(Unbiased::PARAMS, 2 * 8 * 12);
}
