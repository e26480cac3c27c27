//! Loops with an index: layers that differ by their number, beside the same layers one by one.

use super::*;
use std::hash::{DefaultHasher, Hash, Hasher};
use support::tensors::{fill, gradients};

const LAYERS: usize = 6;

model! {
    /// A period of six layers, all of which differ from their neighbours, and two more.
    struct Alternating<vocab = 7, d = 8, layers = 8, window = 3>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers as i {
            x += attention::<2, mask = if i % 3 == 2 { causal } else { sliding_window(window) }, position = rope>(rms_norm(x));
            if i % 2 == 1 {
                x = mlp(x);
            }
        }
        linear::<vocab>(x)
    }

    block mlp(x: [.., n]) -> [.., n] { x + feed_forward::<10>(rms_norm(x)) }
}

model! {
    struct OneByOne<vocab = 7, d = 8, window = 3>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let x = layer::<true, false, .., name = blocks_0>(x);
        let x = layer::<true, true, .., name = blocks_1>(x);
        let x = layer::<false, false, .., name = blocks_2>(x);
        let x = layer::<true, true, .., name = blocks_3>(x);
        let x = layer::<true, false, .., name = blocks_4>(x);
        let x = layer::<false, true, .., name = blocks_5>(x);
        let x = layer::<true, false, .., name = blocks_6>(x);
        let x = layer::<true, true, .., name = blocks_7>(x);
        linear::<vocab>(x)
    }

    block layer(x: [batch, seq, n], is_local, has_mlp, window) -> [batch, seq, n] {
        let x = x + attention::<2, mask = if is_local { sliding_window(window) } else { causal }, position = rope>(rms_norm(x));
        if has_mlp { mlp(x) } else { x }
    }

    block mlp(x: [.., n]) -> [.., n] { x + feed_forward::<10>(rms_norm(x)) }
}

/// Five layers of six are alike.
mod runs {
    use super::*;

    model! {
        pub struct Looped<vocab = 7, d = 8, layers = 14, global = 5, period = { global + 1 }>;

        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens);
            repeat layers as i, name = layers {
                x += attention::<2, mask = if i % period == global { causal } else { sliding_window(2) }>(x);
            }
            linear::<vocab>(x)
        }

        fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] { cross_entropy(forward(tokens), targets) }
    }

    model! {
        pub struct Nested<vocab = 7, d = 8>;

        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let mut x = embedding::<vocab, d>(tokens);
            repeat 2 {
                repeat 5, name = local { x += attention::<2, mask = sliding_window(2)>(x); }
                x += attention::<2, mask = causal>(x);
            }
            repeat 2, name = rest { x += attention::<2, mask = sliding_window(2)>(x); }
            linear::<vocab>(x)
        }
    }
}

model! {
    /// A number that rustc alone knows, and a condition of remainders as a key of a block.
    struct Later<d = 4, layers = LAYERS>;

    fn forward(x: [batch, d]) -> [batch, d] {
        let mut x = x;
        repeat layers as i { x = one::<place = i % 3>(x); }
        x
    }

    block one(x: [.., n], place) -> [.., n] { if place == 1 { tanh(linear::<n>(x)) } else { linear::<n, bias = false>(x) } }
}

/// Numbers that depend on the name and the index alone.
fn numbers(name: &str, values: Vec<f64>) -> Vec<f64> {
    let number = |index: usize| {
        let mut hasher = DefaultHasher::new();
        (name, index).hash(&mut hasher);
        (hasher.finish() % 1000) as f64 / 1000.0 - 0.5
    };
    (0..values.len()).map(number).collect()
}

/// The name of the parameter in [`Alternating`].
fn name_in_loop(name: &str) -> String {
    name.replace("blocks_", "blocks.")
}

fn tokens() -> Tensor<Rank2<2, 9>, usize, Cpu> {
    let tokens = (0..18).map(|i| (i * i + 3) % 7).collect();
    Cpu::default().tensor_from_vec(tokens, (Const, Const))
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }
}

#[test]
fn a_loop_with_an_index_is_its_layers_one_by_one() {
    let dev = Cpu::default();
    let mut looped = dev.build_module::<Alternating, f64>();
    let mut alone = dev.build_module::<OneByOne, f64>();
    fill(&mut looped, numbers);
    fill(&mut alone, |name, values| {
        numbers(&name_in_loop(name), values)
    });
    let sorted = |mut all: Vec<Named>| {
        all.iter_mut()
            .for_each(|of| of.name = name_in_loop(&of.name));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    };
    assert_eq!(sorted(parameters(&looped)), sorted(parameters(&alone)));
    assert_eq!(Alternating::PARAMS, OneByOne::PARAMS);

    let expected = flat(&alone.forward(tokens()));
    assert_near(&flat(&looped.forward(tokens())), &expected);
    assert_near(&flat(&looped.composed().forward(tokens())), &expected);
    let of_looped = looped.forward_mut(tokens().traced(looped.alloc_grads()));
    let of_alone = alone.forward_mut(tokens().traced(alone.alloc_grads()));
    let of_looped = gradients(&looped, &of_looped.square().sum().backward());
    let of_alone = gradients(&alone, &of_alone.square().sum().backward());
    for (looped, alone) in sorted(of_looped).iter().zip(sorted(of_alone)) {
        assert_eq!(looped.name, alone.name);
        let largest = alone
            .values
            .iter()
            .fold(1.0, |max: f64, x| max.max(x.abs()));
        for (a, b) in looped.values.iter().zip(&alone.values) {
            assert!((a - b).abs() < 1e-12 * largest, "{}: {a} {b}", alone.name);
        }
    }

    let mut session = looped.session(9).unwrap();
    let last = session.prefill(&tokens().as_vec()[..9]).unwrap();
    assert_near(last, &expected[8 * 7..9 * 7]);
}

#[test]
fn neighbours_that_are_alike_are_a_loop_in_a_round() {
    let dev = Cpu::default();
    let mut looped = dev.build_module::<runs::Looped, f64>();
    let mut nested = dev.build_module::<runs::Nested, f64>();
    fill(&mut looped, numbers);
    // `blocks.1.local.3` is the layer 9, `blocks.1.attention` is the layer 11, and `rest.0` the layer 12.
    let number = |name: &str| {
        let parts: Vec<&str> = name.split('.').collect();
        let (layer, rest) = match parts.as_slice() {
            ["blocks", round, "local", place, rest @ ..] => (
                6 * round.parse::<usize>().unwrap() + place.parse::<usize>().unwrap(),
                rest,
            ),
            ["blocks", round, rest @ ..] => (6 * round.parse::<usize>().unwrap() + 5, rest),
            ["rest", place, rest @ ..] => (12 + place.parse::<usize>().unwrap(), rest),
            _ => return name.to_owned(),
        };
        format!("layers.{layer}.{}", rest.join("."))
    };
    fill(&mut nested, |name, values| numbers(&number(name), values));
    let mut names: Vec<String> = parameters(&nested)
        .iter()
        .map(|of| number(&of.name))
        .collect();
    let mut found: Vec<String> = parameters(&looped).into_iter().map(|of| of.name).collect();
    names.sort();
    found.sort();
    assert_eq!(found, names);
    let expected = flat(&nested.forward(tokens()));
    assert_near(&flat(&looped.forward(tokens())), &expected);
    assert_near(&flat(&looped.composed().forward(tokens())), &expected);
    // `loss` calls `forward`, whose layers it has.
    let targets = tokens();
    assert!(looped.loss((tokens(), targets)).array().is_finite());
    // A model that is built of another one, as a copy is, has its numbers.
    let copy = looped.clone();
    assert_eq!(parameters(&copy), parameters(&looped));
}

#[test]
fn a_remainder_is_a_key_of_a_block() {
    let model = Cpu::default().build_module::<Later, f64>();
    let names: Vec<String> = parameters(&model).into_iter().map(|of| of.name).collect();
    let expected = [
        "blocks.0.one.linear.weight",
        "blocks.1.one.linear.weight",
        "blocks.1.one.linear.bias",
        "blocks.2.one.linear.weight",
        "blocks.3.one.linear.weight",
        "blocks.4.one.linear.weight",
        "blocks.4.one.linear.bias",
        "blocks.5.one.linear.weight",
    ];
    assert_eq!(names, expected);
}

model! {
    struct Adapted<d = 4, layers = 5, lora(rank = 2, alpha = 4, on = ["first"], save = ["second"])>;

    fn forward(x: [batch, d]) -> [batch, d] {
        let mut x = x;
        repeat layers as i {
            x = linear::<d, name = first>(x);
            if i % 3 == 2 {
                x = linear::<d, bias = false, name = second>(tanh(x));
            }
        }
        x
    }
}

#[test]
fn adapters_in_a_loop_with_an_index_have_the_numbers_of_its_layers() {
    let folder = tempfile::tempdir().unwrap();
    let model = Cpu::default().build_module::<Adapted, f32>();
    let map = attn::checkpoint::layout::WeightMap::identity();
    attn::checkpoint::lora::save(&model, &map, folder.path()).unwrap();
    let path = folder.path().join("adapter_model.safetensors");
    let found = support::safetensors::read(&path).into_keys();
    let adapter = |layer: usize, matrix: &str| {
        format!("base_model.model.blocks.{layer}.first.{matrix}.weight")
    };
    let adapters =
        (0..5).flat_map(|layer| ["lora_A", "lora_B"].map(|matrix| adapter(layer, matrix)));
    let whole = "base_model.model.blocks.2.second.weight".to_owned();
    let mut expected: Vec<String> = adapters.chain([whole]).collect();
    expected.sort();
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
