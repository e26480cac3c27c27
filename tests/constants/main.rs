//! Constants of the header that are no sizes, and the code that they choose.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

use attn::{attention, dfdx::prelude::*, model};
use support::tensors::{Named, flat, parameters};

mod loops;

const RATIO: f64 = 0.75;

model! {
    struct Numbers<d = 4, scale = 0.125, minus = -2.5, twice = { 2.0 * scale }, later = { 1.0 * RATIO }>;

    fn forward(x: [batch, d]) -> [batch, d] {
        param gain: [d] = normal(twice);
        scale * x + minus * gain + later / twice
    }
}

#[test]
fn numbers_of_the_header_are_operands_and_keys() {
    let dev = Cpu::seed_from_u64(3);
    let mut model = dev.build_module::<Numbers, f64>();
    let x: Tensor<Rank2<2, 4>, f64, Cpu> = dev.sample_normal();
    let gain = model.gain.weight.array();
    for y in [
        flat(&model.forward(x.clone())),
        flat(&model.composed().forward(x.clone())),
    ] {
        for (index, (x, y)) in flat(&x).iter().zip(y).enumerate() {
            let expected = 0.125 * x - 2.5 * gain[index % 4] + 0.75 / 0.25;
            assert!((y - expected).abs() < 1e-12, "{y} {expected}");
        }
    }
    let gradients = model.forward_mut(x.leaky_traced()).sum().backward();
    assert_eq!(gradients.get(&model.gain.weight).array(), [-5.0; 4]);
}

const WIDTH: usize = 8;

/// The macro knows these roots as tokens alone: rustc evaluates them, and the rules about them.
mod roots {
    use super::*;

    attention! {
        pub struct Layer<heads = 2, d_model = WIDTH, scale = 1.0 / sqrt(WIDTH / 2), qk_norm = l2(epsilon = 0.5 * sqrt(RATIO))>;
    }

    model! {
        pub struct Net<width = WIDTH, rate = 1.0 / sqrt(width)>;

        fn forward(x: [batch, seq, width]) -> [batch, seq, width] {
            let y = attention::<2, scale = 1.0 / sqrt(width / 2), qk_norm = l2(epsilon = 0.5 * sqrt(RATIO))>(x);
            rate * rms_norm::<epsilon = sqrt(RATIO)>(y)
        }
    }
}

mod numbers {
    use super::*;

    attention! {
        pub struct Layer<heads = 2, d_model = 8, scale = 0.5, qk_norm = l2(epsilon = 0.4330127018922193)>;
    }

    model! {
        pub struct Net;

        fn forward(x: [batch, seq, 8]) -> [batch, seq, 8] {
            let y = attention::<2, scale = 0.5, qk_norm = l2(epsilon = 0.4330127018922193)>(x);
            0.35355339059327373 * rms_norm::<epsilon = 0.8660254037844386>(y)
        }
    }
}

#[test]
fn square_roots_of_constants_are_numbers() {
    let built = |seed| Cpu::seed_from_u64(seed);
    let x: Tensor<Rank3<2, 3, 8>, f64, Cpu> = built(5).sample_normal();
    let of_roots = built(6).build_module::<roots::Layer, f64>();
    let of_numbers = built(6).build_module::<numbers::Layer, f64>();
    let [found, expected] = [
        flat(&of_roots.forward(x.clone())),
        flat(&of_numbers.forward(x.clone())),
    ];
    assert_eq!(found, expected);
    let of_roots = built(7).build_module::<roots::Net, f64>();
    let of_numbers = built(7).build_module::<numbers::Net, f64>();
    assert_eq!(
        flat(&of_roots.forward(x.clone())),
        flat(&of_numbers.forward(x))
    );
}

model! {
    struct Keys<d = 8, eps = 0.5, drop = 0.25, window = 2>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let y = attention::<heads = 2, mask = sliding_window(window), dropout = drop>(layer_norm::<epsilon = eps>(x));
        dropout::<drop>(y)
    }
}
model! {
    struct KeysByHand;

    fn forward(x: [batch, seq, 8]) -> [batch, seq, 8] {
        let y = attention::<heads = 2, mask = sliding_window(2), dropout = 0.25>(layer_norm::<epsilon = 0.5>(x));
        dropout::<0.25>(y)
    }
}

#[test]
fn a_number_in_a_key_is_that_number() {
    let named = |seed| {
        let dev = Cpu::seed_from_u64(seed);
        let mut model = dev.build_module::<Keys, f64>();
        let x: Tensor<Rank3<2, 5, 8>, f64, Cpu> = dev.sample_normal();
        flat(&model.forward_mut(x.leaky_traced()))
    };
    let by_hand = |seed| {
        let dev = Cpu::seed_from_u64(seed);
        let mut model = dev.build_module::<KeysByHand, f64>();
        let x: Tensor<Rank3<2, 5, 8>, f64, Cpu> = dev.sample_normal();
        flat(&model.forward_mut(x.leaky_traced()))
    };
    assert_eq!(named(1), by_hand(1));
}

/// One declaration, and the choices of a program.
macro_rules! declare {
    ($name:ident, $pre_norm:literal, $bias:literal, $layers:literal) => {
        model! {
            struct $name<d = 8, pre_norm = $pre_norm, bias = $bias, layers = $layers>;

            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                let mut y = x;
                if layers > 1 && pre_norm {
                    param offset: [d] = 0.5;
                    y += offset;
                } else if layers == 1 {
                    y = y / 2;
                }
                repeat layers {
                    let input = if pre_norm { rms_norm(y) } else { y };
                    y += linear::<d, bias = bias>(input);
                    if !pre_norm {
                        y = rms_norm(y);
                    }
                }
                if pre_norm {
                    let y = rms_norm::<name = last_norm>(y);
                    y
                } else {
                    y
                }
            }
        }
    };
}
declare!(PreNorm, true, false, 3);
declare!(PostNorm, false, true, 2);
declare!(OneLayer, true, true, 1);

#[test]
fn layers_are_those_of_the_branches_that_are_taken() {
    let names = |parameters: Vec<Named>| -> Vec<String> {
        parameters
            .into_iter()
            .map(|parameter| parameter.name)
            .collect()
    };
    let dev = Cpu::default();
    let mut expected = vec!["offset.weight".to_owned()];
    for round in 0..3 {
        expected.push(format!("blocks.{round}.rms_norm.weight"));
        expected.push(format!("blocks.{round}.linear.weight"));
    }
    expected.push("last_norm.weight".to_owned());
    assert_eq!(
        names(parameters(&dev.build_module::<PreNorm, f32>())),
        expected
    );
    let round = |round: usize| {
        let names = ["linear.weight", "linear.bias", "rms_norm.weight"];
        names.map(|name| format!("blocks.{round}.{name}"))
    };
    assert_eq!(
        names(parameters(&dev.build_module::<PostNorm, f32>())),
        [round(0), round(1)].concat()
    );
    assert_eq!(PostNorm::PARAMS, 2 * (64 + 8 + 8));
    assert_eq!(OneLayer::PARAMS, 8 + 64 + 8 + 8);
}

#[test]
fn the_branches_that_are_taken_are_computed() {
    let dev = Cpu::seed_from_u64(5);
    let model = dev.build_module::<OneLayer, f64>();
    let x: Tensor<Rank3<1, 2, 8>, f64, Cpu> = dev.sample_normal();
    let norm = |rows: Vec<f64>| -> Vec<f64> {
        let rows = rows.chunks(8).flat_map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / 8.0;
            let scale = 1.0 / (mean + 1e-6).sqrt();
            row.iter().map(move |x| x * scale).collect::<Vec<_>>()
        });
        rows.collect()
    };
    let half: Vec<f64> = flat(&x).iter().map(|x| x / 2.0).collect();
    let linear = &model.blocks[0].linear;
    let (weight, bias) = (linear.weight.array(), linear.bias.array());
    let normed = norm(half.clone());
    let rows = normed.chunks(8).flat_map(|row| {
        let product = |out: usize| -> f64 {
            bias[out] + weight[out].iter().zip(row).map(|(w, x)| w * x).sum::<f64>()
        };
        (0..8).map(product).collect::<Vec<_>>()
    });
    let sum: Vec<f64> = half.iter().zip(rows).map(|(x, y)| x + y).collect();
    let expected = norm(sum);
    for y in [
        flat(&model.forward(x.clone())),
        flat(&model.composed().forward(x)),
    ] {
        let largest = y
            .iter()
            .zip(&expected)
            .map(|(y, e)| (y - e).abs())
            .fold(0.0, f64::max);
        assert!(largest < 1e-12, "{largest}");
    }
}

model! {
    /// Numbers and switches as the keys of a block, and blocks in branches.
    struct Blocks<d = 8, gated = true, half = 0.5>;

    block gate(x: [.., d], learned, scale, offset = 0.25) -> [.., d] {
        if learned {
            param gain: [d] = scale;
            gain * x + offset
        } else {
            scale * x
        }
    }
    block plain(x: [.., d]) -> [.., d] {
        linear::<d>(x)
    }

    fn forward(x: [batch, d]) -> ([batch, d], [batch, d]) {
        if !gated {
            let y = plain(x);
            (y, x)
        } else {
            (gate::<gated, scale = half>(x), gate::<false, { 2.0 * half }>(x))
        }
    }
}

#[test]
fn blocks_take_numbers_and_switches() {
    let model = Cpu::default().build_module::<Blocks, f64>();
    let x: Tensor<Rank2<1, 8>, f64, Cpu> = Cpu::default().ones();
    let (learned, scaled) = model.forward(x);
    assert_eq!(flat(&learned), [0.75; 8]);
    assert_eq!(flat(&scaled), [1.0; 8]);
    assert_eq!(parameters(&model).len(), 1);
    assert_eq!(parameters(&model)[0].name, "gate.gain.weight");
}

model! {
    /// Switches among comparisons of values.
    struct Mixed<d = 4, leaky = true, hard = false>;

    fn forward(x: [batch, d]) -> [batch, d] {
        if x < 0 && leaky { 0.5 * x } else if hard || x > 1 { 1 - 0 * x } else { x }
    }
}

#[test]
fn a_switch_stands_among_comparisons() {
    let dev = Cpu::default();
    let model = dev.build_module::<Mixed, f64>();
    let x: Tensor<Rank2<1, 4>, f64, Cpu> = dev.tensor([[-2.0, 0.5, 1.0, 3.0]]);
    assert_eq!(flat(&model.forward(x.clone())), [-1.0, 0.5, 1.0, 1.0]);
    assert_eq!(flat(&model.composed().forward(x)), [-1.0, 0.5, 1.0, 1.0]);
}
