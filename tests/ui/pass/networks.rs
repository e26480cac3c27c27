//! Models wherever items are possible, with the user's constants, attributes and names, and through other macros.

#![deny(warnings)]
#![allow(dead_code)]

use attn::{dfdx::prelude::*, model};

mod sizes {
    pub const WIDTH: usize = 8;
}

model! {
    #[derive(Clone)]
    #[must_use]
    /// Documented.
    pub(crate) struct Documented<d_model = sizes::WIDTH, hidden = { 2 * sizes::WIDTH }>;

    fn forward(x: [batch, d_model]) -> [batch, d_model] { feed_forward::<hidden>(x) }
}

model! {
    #[cfg(any())]
    struct Absent;
    fn forward(x: [n, missing::SIZE]) -> [n, missing::SIZE] { attention::<2>(x) }
}

/// Declares a model of the sizes that are matched.
macro_rules! declare {
    ($name:ident, $width:expr, $heads:literal, $input:ident) => {
        model! {
            struct $name<d_model = { $width }>;
            fn forward($input: [batch, seq, d_model]) -> [batch, seq, d_model] {
                let mut x = $input;
                repeat 2 { x += attention::<$heads, mask = causal>(x); }
                x
            }
        }
    };
}

declare!(FromMacro, 2 * 4, 2, input);

/// Declares a model with the attributes, the visibility and the type that are matched.
macro_rules! declare_around {
    ($(#[$meta:meta])* $vis:vis $name:ident, $module:ty) => {
        model! {
            $(#[$meta])*
            $vis struct $name<d_model = 4>;
            fn forward(x: [batch, d_model]) -> [batch, d_model] {
                module::<$module, out = [batch, d_model]>(x)
            }
        }
    };
}

declare_around!(
    /// Documented.
    #[derive(Clone)]
    pub(crate) AroundLinear, attn::dfdx::prelude::Linear<4, 4>
);
declare_around!(AroundActivation, attn::dfdx::prelude::Tanh);

/// Names with a meaning in the emitted code.
mod taken {
    attn::model! {
        pub struct Result<d = 4>;
        fn forward(x: [n, d]) -> [n, d] { attention::<2>(layer_norm(x)) }
    }
    attn::model! {
        pub struct Axes;
        fn forward(run: [result, seq, 4], tape: [result, Seq, 4], lens: lens[result]) -> [result, seq, 4] {
            let pass = attention::<2, mask = padding>(tape, padding = lens);
            attention::<2>(run, context = pass)
        }
    }
    attn::model! {
        pub struct T;
        fn forward(x: [t, e, 4]) -> [t, e, 4] { linear::<4>(x) }
    }
}

/// Models by the names of type variables, and axes by the names of those, of constants, and of each other.
mod letters {
    pub const B: usize = 2;
    pub const T: usize = 3;
    attn::model! {
        pub struct E<vocab = 7, C = 4>;
        fn forward(idx: ids[B, T], x: [B, T, C], d: [b, D, E, d]) -> ([B, T, vocab], [b, D, E, d]) {
            let mut x = x + embedding::<vocab, C>(idx);
            repeat 2 { x += attention::<2, mask = causal>(layer_norm(x)); }
            (linear::<tied = embedding, bias = false, name = head>(x), gelu::<name = act>(d))
        }

        pub struct D<d = 4>;
        fn forward(x: [N, X, d]) -> [N, X, d] {
            let mut x = x;
            repeat 2 { x = x + module::<attn::dfdx::prelude::Linear<d, d>, out = [N, X, d]>(x); }
            linear::<d>(x)
        }
    }
    const _: () =
        assert!(E::flops(B, T, 1, 1, 1, 1) > 0 && E::activation_bytes(B, T, 1, 1, 1, 1) > 0);
}

/// Names of the emitted code's imports, with other meanings.
mod hidden {
    pub struct Result;
    pub struct Option;
    pub struct Some;
    pub struct Vec;
    attn::model! {
        pub struct Model<d = 4>;
        fn forward(model: [pass, d], pass: [pass, d]) -> ([pass, d], [pass, d]) {
            let x = gelu(model) + pass;
            (x, linear::<d>(x))
        }
    }
}

/// Values and layers with names of the emitted code.
mod emitted {
    attn::model! {
        pub struct Values<vocab = 7, d = 4>;
        fn forward(
            types: ids[batch, seq], new: ids[batch, seq], call: ids[batch, seq], device: ids[batch, seq], weights: lens[batch], saved: [batch, seq, d]
        ) -> [batch, seq, d] {
            let rounds = embedding::<vocab, d>(types) + embedding::<vocab, d>(new) + saved;
            let inputs = embedding::<vocab, d>(call) + embedding::<vocab, d>(device);
            let mut past = rounds + inputs;
            repeat 2 {
                let kept = layer_norm(past);
                let round = attention::<2, mask = padding>(kept, padding = weights);
                past = past + round;
            }
            let random = dropout::<0.5>(past);
            let gradients = linear::<d>(random);
            let sizes = gelu(gradients);
            let p = sizes + 1;
            let axes = p * 2;
            let results = axes + p;
            results
        }

        pub struct Layers<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut y = x;
            repeat 2, name = types { y = linear::<d, name = weights>(y); }
            repeat 2, name = inner { y = linear::<d, name = types>(y) + linear::<d, name = none>(y); }
            y
        }
    }
}

/// The user's types with names of the emitted code, and layers with names of traits.
mod types {
    pub struct LooksSession;
    pub struct LooksMlp;
    attn::model! {
        pub struct Looks<d = 4>;
        fn forward(x: [n, d]) -> [n, d] {
            x + module::<attn::dfdx::prelude::Linear<d, d>, out = [n, d], name = mlp>(x)
        }

        pub struct Names<d = 4>;
        fn forward(x: [n, d]) -> [n, d] {
            let mut y = attention::<2, name = look>(x);
            repeat 2, name = input { y = linear::<d>(y); }
            repeat 2, name = session { y = layer_norm(y); }
            repeat 2, name = look_input { y = layer_norm(y); }
            y
        }
    }
}

#[test]
fn models_stand_wherever_items_do() {
    model! {
        struct Local;
        fn forward(x: [n, 8]) -> [n, 8] { layer_norm(x) }
    }
    let dev = AutoDevice::default();
    let x: Tensor<Rank2<3, 8>, f32, _> = dev.sample_normal();
    let y: Tensor<Rank2<2, 4>, f32, _> = dev
        .build_module::<taken::Result, f32>()
        .forward(dev.zeros());
    let _: Tensor<Rank3<1, 2, 4>, f32, _> =
        dev.build_module::<taken::T, f32>().forward(dev.zeros());
    let _: Tensor<Rank3<2, 3, 4>, f32, _> =
        dev.build_module::<letters::D, f32>().forward(dev.zeros());
    let inputs = (
        dev.zeros::<Rank2<2, 3>>(),
        dev.zeros(),
        dev.zeros::<Rank4<1, 2, 3, 4>>(),
    );
    let (logits, same) = dev.build_module::<letters::E, f32>().forward(inputs);
    let _: (
        Tensor<Rank3<2, 3, 7>, f32, _>,
        Tensor<Rank4<1, 2, 3, 4>, f32, _>,
    ) = (logits, same);
    assert!(
        letters::E::graph_dot().contains("act: Gelu")
            && letters::E::graph_dot().contains("head: linear, tied to embedding")
    );
    assert_eq!(y.shape().concrete(), [2, 4]);
    type Model = (Documented, Local);
    let model = dev.build_module::<Model, f32>();
    let y: Tensor<Rank2<3, 8>, f32, _> = model.forward(x.clone());
    assert_ne!(y.array(), x.array());

    let x: Tensor<Rank3<2, 3, 8>, f32, _> = dev.sample_normal();
    let _: Tensor<Rank3<2, 3, 8>, f32, _> = dev.build_module::<FromMacro, f32>().forward(x);

    let x: Tensor<Rank2<3, 4>, f64, _> = dev.sample_normal();
    let pair = dev
        .build_module::<hidden::Model, f64>()
        .forward((x.leaky_trace(), x.clone()));
    let gradients = (pair.0.sum() + pair.1.sum()).backward();
    assert_eq!(gradients.get(&x).shape().concrete(), [3, 4]);
}
