//! Norms of PyTorch, and of Gemma.

use super::*;
use attn::model;

/// A model of one operation: its value and its gradients, of both forms.
macro_rules! cases {
    ($(
        $test:ident, $Model:ident($case:literal) [$($shape:tt)*] as $Shape:ty,
        $field:ident: [$($learned:ident)*]: { $($call:tt)* }
    );* $(;)?) => {$(
        #[test]
        fn $test() {
            model! {
                struct $Model;

                fn forward(x: [$($shape)*]) -> [$($shape)*] { $($call)* }
            }

            let values = Values::read();
            let name = |tensor: &str| format!("{}.{tensor}", $case);
            let mut model = Cpu::default().build_module::<$Model, f32>();
            $(model.$field.$learned = values.tensor(&name(stringify!($learned)));)*
            assert_eq!($Model::PARAMS, 8 * [$(stringify!($learned),)* ""].len() - 8);
            assert_eq!(model.num_trainable_params(), $Model::PARAMS);
            let x: Tensor<$Shape, f32, Cpu> = values.tensor(&name("x"));
            let d_y: Tensor<$Shape, f32, Cpu> = values.tensor(&name("d_y"));
            let all = [model.forward_mut(x.leaky_trace()), model.composed().forward(x.leaky_trace())];
            for y in all {
                let (y, tape) = y.split_tape();
                values.assert_close(&name("y"), &y);
                let gradients = (y.put_tape(tape) * d_y.clone()).sum().backward();
                values.assert_close(&name("d_x"), &gradients.get(&x));
                $(values.assert_close(
                    &name(concat!("d_", stringify!($learned))),
                    &gradients.get(&model.$field.$learned),
                );)*
            }
        }
    )*};
}

cases! {
    layer_norm_without_parameters, PlainLayer("layer_norm.plain") [batch, seq, 8] as Rank3<2, 5, 8>,
        layer_norm: []: { layer_norm::<gain = false, bias = false>(x) };
    layer_norm_without_bias, UnbiasedLayer("layer_norm.unbiased") [batch, seq, 8] as Rank3<2, 5, 8>,
        layer_norm: [weight]: { layer_norm::<bias = false>(x) };
    rms_norm_without_gain, PlainRms("rms_norm.plain") [batch, seq, 8] as Rank3<2, 5, 8>,
        rms_norm: []: { rms_norm::<gain = false>(x) };
    rms_norm_of_gemma, OnePlusRms("rms_norm.one_plus") [batch, seq, 8] as Rank3<2, 5, 8>,
        rms_norm: [weight]: { rms_norm::<gain = one_plus>(x) };
    group_norm_of_tokens, Tokens("group_norm.tokens") [batch, seq, 8] as Rank3<2, 5, 8>,
        group_norm: [weight bias]: { group_norm::<groups = 2>(x) };
    group_norm_of_images, Images("group_norm.images") [batch, 8, 3, 5] as Rank4<2, 8, 3, 5>,
        group_norm: [weight bias]: { group_norm::<2, axis = 8>(x) };
    group_norm_of_channels_before_tokens, Channels("group_norm.plain") [batch, 8, seq] as Rank3<2, 8, 7>,
        group_norm: []: { group_norm::<4, axis = 8, gain = false, bias = false>(x) };
}
