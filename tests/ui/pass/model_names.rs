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

/// Values with names of variables of the emitted code, also of those that it names after other values.
mod values {
    attn::model! {
        pub struct Scans<e = 4>;

        fn forward(observer: [batch, seq, e]) -> [batch, seq, e] {
            let model = tanh(observer);
            let (tape, run) = scan seq {
                state step: [batch, e] = 0.5;
                state first_attention: [batch, e] = 0.5;
                state h: [batch, e] = 0;
                let yields_0 = tanh(model + step * first_attention);
                let before_h = yields_0 * h;
                let all_x = linear::<e>(before_h);
                let x = tanh(all_x) * h;
                let x_kept = layer_norm(x) * before_h;
                let d_x = sin(x_kept) + x;
                step = tanh(d_x + step * x_kept);
                first_attention = step * 0.5 + x;
                h = before_h + d_x;
                yield h * step;
                h
            };
            let device_of_steps = tape * model;
            let pass = device_of_steps + run;
            pass
        }

        /// `x0` and `whole_0` are names in composed and in fused expressions.
        pub struct Expressions<e = 4>;

        fn forward(x: [batch, e], x0: [e]) -> [batch, e] {
            let x1 = tanh(x);
            let add = x1 * x0 / (2 + x0 * x0);
            let mut whole_0 = add / (1 + x1 * x1);
            repeat 2, name = model {
                let d_add = linear::<e>(whole_0);
                let add = tanh(d_add) * whole_0;
                whole_0 += add * x0;
            }
            whole_0
        }

        /// Words of Rust.
        pub struct Words<e = 4>;

        fn forward(x: [batch, e]) -> [batch, e] {
            let r#in = tanh(x);
            let in_ = sin(x);
            r#in * in_
        }

        /// Axes with the names that the emitted code gives to others.
        pub struct Axes<width = 4>;

        fn forward(x: [e, axis0, axis_0, r#in], y: [in_, footprint, sizes, width]) -> ([e, axis0, axis_0, r#in], [in_, footprint, sizes, width]) {
            (tanh(x), tanh(y))
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
    let axes = dev.build_module::<values::Axes, f32>();
    let (y, _) = axes.forward((
        y.clone().reshape::<Rank4<2, 3, 1, 4>>(),
        y.reshape::<Rank4<1, 2, 3, 4>>(),
    ));
    assert!(y.as_vec().iter().all(|y| y.is_finite()));
}

/// Both forms have the numbers and the gradients of each other: no variable stands for another one.
#[test]
fn values_are_none_of_the_expansion() {
    let dev = Cpu::default();
    let near = |a: Vec<f64>, b: Vec<f64>| {
        assert_eq!(a.len(), b.len());
        assert!(
            a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12),
            "{a:?} {b:?}"
        );
    };
    let scans = dev.build_module::<values::Scans, f64>();
    let x: Tensor<Rank3<2, 3, 4>, f64, _> = dev.sample_normal();
    let fused = scans.forward(x.clone().leaky_traced());
    let composed = scans.composed().forward(x.clone().leaky_traced());
    near(fused.as_vec(), composed.as_vec());
    let [fused, composed] = [fused, composed].map(|y| y.square().sum().backward());
    near(fused.get(&x).as_vec(), composed.get(&x).as_vec());
    near(
        fused.get(&scans.linear.weight).as_vec(),
        composed.get(&scans.linear.weight).as_vec(),
    );

    let expressions = dev.build_module::<values::Expressions, f64>();
    let x: Tensor<Rank2<3, 4>, f64, _> = dev.sample_normal();
    let x0: Tensor<Rank1<4>, f64, _> = dev.sample_normal();
    let fused = expressions.forward((x.clone().leaky_traced(), x0.clone()));
    let composed = expressions
        .composed()
        .forward((x.clone().leaky_traced(), x0.clone()));
    near(fused.as_vec(), composed.as_vec());
    let [fused, composed] = [fused, composed].map(|y| y.square().sum().backward());
    near(fused.get(&x).as_vec(), composed.get(&x).as_vec());
    near(fused.get(&x0).as_vec(), composed.get(&x0).as_vec());

    let words = dev.build_module::<values::Words, f64>();
    let expected = x
        .as_vec()
        .into_iter()
        .map(|x| x.tanh() * x.sin())
        .collect::<Vec<_>>();
    near(words.forward(x.clone()).as_vec(), expected.clone());
    near(words.composed().forward(x).as_vec(), expected);
}
