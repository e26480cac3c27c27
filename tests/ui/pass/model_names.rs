//! The user's names do not affect the expansion: layers, repeats, axes, constants and models with names of emitted items.

use attn::dfdx::prelude::*;

mod layers {
    attn::model! {
        pub struct Net<e = 4>;

        fn forward(result_0: [batch, seq, e]) -> [batch, seq, e] {
            let x = attention::<heads = 2, mask = causal, name = weights>(result_0);
            let x = attention::<heads = 2, mask = causal, name = saved>(x);
            let mut x = attention::<heads = 2, mask = causal, name = past>(x);
            repeat 2, name = rounds {
                x = x + attention::<heads = 1, mask = causal, name = past>(x);
                repeat 2, name = weights {
                    x = x + attention::<heads = 1, mask = causal, name = saved>(x);
                }
            }
            linear::<e, name = new>(x)
        }

        pub struct Opaque<e = 4>;

        fn forward(tape: [batch, seq, e]) -> [batch, seq, e] {
            let y = module::<attn::nn::Linear<4, 4>, out = [batch, seq, e], name = input>(tape);
            y + attention::<heads = 2, name = input_built>(tape)
        }
    }
}

/// Learned tensors with names of emitted items, of layers and of keywords.
mod params {
    attn::model! {
        pub struct Tensors<e = 4>;

        fn forward(x: [batch, seq, e]) -> [batch, seq, e] {
            param linear: [e] = ones;
            param model: [e] = 0.5;
            param pass: [] = 2;
            param tape: [e] = zeros;
            param p: [3, e] = orthogonal;
            param r#type: [e] = uniform(0.1);
            let param = linear::<e>(x) * linear + model - tape;
            let mut x = param * pass + r#type;
            repeat 2, name = rounds {
                param x_2: [e] = ones;
                param model: [] = 0.1;
                x = x * x_2 + model * p[3 = 0];
            }
            x
        }
    }
}

mod models {
    attn::model! {
        pub struct Weights<e = 4>;
        fn forward(x: [batch, e]) -> [batch, e] { linear::<e>(x) }

        pub struct Sizes<e = 4>;
        fn forward(x: [batch, e]) -> [batch, e] { linear::<e>(x) }

        #[allow(non_camel_case_types)]
        pub struct __Net<e = 4>;
        fn forward(x: [batch, e]) -> [batch, e] { linear::<e>(x) }

        pub struct E<e = 4>;
        fn forward(x: [batch, e]) -> [batch, e] { linear::<e>(x) }
    }
}

/// The names of layers in one model are free in the next one.
mod beside {
    attn::model! {
        pub struct Net<e = 4>;

        fn forward(x: [batch, seq, e]) -> [batch, seq, e] {
            let mut x = attention::<heads = 2, name = input>(x);
            repeat 2, name = a_b {
                x = x + attention::<heads = 2, name = head>(x);
            }
            x
        }

        pub struct NetAB<e = 4>;

        fn forward(x: [batch, seq, e]) -> [batch, seq, e] {
            attention::<heads = 2>(x)
        }
    }
}

/// Axes and constants, too.
mod sizes {
    #[allow(dead_code)]
    pub const E: usize = 4;
    pub const WIDTH: usize = 4;
    pub const T: f32 = 2.0;

    attn::model! {
        pub struct Net;

        fn forward(x: [netInput, netHead, WIDTH], y: [netWeights, net, { E }]) -> ([netInput, netHead, WIDTH], [netWeights, net, WIDTH]) {
            let x = attention::<heads = 2, name = head>(x) * { T };
            (linear::<{ E }>(x), linear::<WIDTH, name = weights>(attention::<heads = 2, name = other>(y)))
        }
    }
}

#[test]
fn names_of_models_are_the_users() {
    let dev = AutoDevice::default();
    let x: Tensor<Rank3<2, 3, 4>, f32, _> = dev.sample_normal();
    let y = dev.build_module::<layers::Net, f32>().forward(x.clone());
    let y = dev.build_module::<layers::Opaque, f32>().forward(y);
    let (y, _) = dev.build_module::<sizes::Net, f32>().forward((y, x));
    let y = dev.build_module::<beside::NetAB, f32>().forward(y);
    let y = dev.build_module::<params::Tensors, f32>().forward(y);
    assert!(y.as_vec().iter().all(|y| y.is_finite()));
}
