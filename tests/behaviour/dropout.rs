//! Dropout acts on the weights, in `forward_mut` on a traced tensor and nowhere else.

use attn::attention;
use dfdx::prelude::*;
use support::{
    differences::assert_gradient_along_some,
    reference::{
        Traced,
        parameters::{State, scattered},
    },
    tensors::{fill, flat, gradients, parameters},
};

attention! {
    struct Zero<heads = 2, d_model = 32, dropout = 0.0>;
    struct Tenth<heads = 2, d_model = 32, dropout = 0.1>;
    struct Half<heads = 2, d_model = 32, dropout = 0.5>;
    struct Most<heads = 2, d_model = 32, dropout = 0.9>;
    struct Masked<heads = 2, d_model = 32, mask = causal, dropout = 0.5>;
    struct Rich<heads = 4, kv_heads = 2, d_model = 8, mask = causal & padding, position = rope, qk_norm = rms, normalizer = softmax1, dropout = 0.3>;
}

/// The number of tokens whose weights a transparent layer shows: two heads make the width.
const N: usize = 16;
const HEADS: usize = 2;
const BATCH: usize = 32;
/// All the weights: `[batch, query, head, key]`.
const COUNT: usize = BATCH * N * HEADS * N;

type Shown<E = f32, T = NoneTape> = Tensor<(usize, Const<N>, Const<32>), E, Cpu, T>;

/// Makes the output of a layer its weights. With queries of 0 every weight is 1/16, the value of token `j` is the unit vector
/// `j`, and the output projection is the identity. So the output at `[b, i, h * N + j]` is the weight of `[b, h, i, j]`.
fn make_transparent<L: TensorCollection<f32, Cpu>>(layer: &mut L) {
    fill(layer, |name, values| {
        let places = 0..values.len();
        let is_one = |place: usize| match name {
            "v_proj.weight" => place % 32 == place / 32 % N,
            "o_proj.weight" => place % 32 == place / 32,
            _ => false,
        };
        places.map(|place| f64::from(is_one(place))).collect()
    });
}

/// The tokens are the unit vectors, the same in every sequence of the batch.
fn tokens(dev: &Cpu) -> Shown {
    let places = 0..BATCH * N * 32;
    let units = places.map(|place| f32::from(place % 32 == place / 32 % N));
    dev.tensor_from_vec(units.collect(), (BATCH, Const, Const))
}

/// The weights that a transparent layer with dropout used, `[batch, query, head, key]`.
macro_rules! dropped {
    ($Layer:ident, $seed:expr) => {{
        let dev = Cpu::seed_from_u64($seed);
        let mut layer = dev.build_module::<$Layer, f32>();
        make_transparent(&mut layer);
        flat(&layer.forward_mut(tokens(&dev).leaky_trace()))
    }};
}

#[test]
fn dropout_acts_only_in_forward_mut_on_a_traced_tensor() {
    let dev = Cpu::default();
    let mut layer = dev.build_module::<Half, f32>();
    let x: Tensor<Rank3<2, 5, 32>, f32, _> = dev.sample_normal();
    let y = layer.forward(x.clone());
    let without = [
        layer.forward(x.leaky_trace()).retaped(),
        layer.forward_mut(x.clone()),
        layer
            .try_forward(x.leaky_trace())
            .expect("sizes agree")
            .retaped(),
        layer.try_forward_mut(x.clone()).expect("sizes agree"),
        Module::forward(&layer, x.leaky_trace()).retaped(),
        ModuleMut::forward_mut(&mut layer, x.clone()),
    ];
    for without in without {
        assert_eq!(without.as_vec(), y.as_vec());
    }

    let (y, weights) = layer.forward_with_weights(x.clone());
    let (traced_y, traced) = layer.forward_with_weights(x.leaky_trace());
    assert_eq!(traced.as_vec(), weights.as_vec());
    assert_eq!(traced_y.as_vec(), y.as_vec());
    let y = layer.composed().forward(x.clone());
    let without = [
        layer.composed().forward(x.leaky_trace()).retaped(),
        layer.composed().forward_mut(x.clone()),
    ];
    for without in without {
        assert_eq!(without.as_vec(), y.as_vec());
    }

    let with = [
        layer.forward_mut(x.leaky_trace()),
        layer.forward_mut(x.trace(layer.alloc_grads())),
        layer.try_forward_mut(x.leaky_trace()).expect("sizes agree"),
        ModuleMut::forward_mut(&mut layer, x.leaky_trace()),
        layer.composed().forward_mut(x.leaky_trace()),
    ];
    for with in with {
        assert_ne!(with.as_vec(), y.as_vec());
    }
}

#[test]
fn probability_0_is_the_identity() {
    let dev = Cpu::default();
    let mut layer = dev.build_module::<Zero, f32>();
    let x: Tensor<Rank3<2, 5, 32>, f32, _> = dev.sample_normal();
    let y = layer.forward_mut(x.leaky_trace());
    assert_eq!(y.as_vec(), layer.forward(x).as_vec());
}

/// Asserts that the fraction of `count` independent events of this probability is within five standard deviations. One in a
/// million correct generators would fail, and the seed is fixed.
fn assert_share(found: usize, count: usize, probability: f64, what: &str) {
    let share = found as f64 / count as f64;
    let deviation = (probability * (1.0 - probability) / count as f64).sqrt();
    assert!(
        (share - probability).abs() < 5.0 * deviation,
        "{what}: {share}"
    );
}

#[test]
fn a_share_of_p_is_dropped_and_the_rest_is_scaled() {
    for (p, weights) in [
        (0.1, dropped!(Tenth, 1)),
        (0.5, dropped!(Half, 1)),
        (0.9, dropped!(Most, 1)),
    ] {
        // 1/16 is a power of two: the product is exact.
        let kept = f64::from((1.0 / (1.0 - p)) as f32) / 16.0;
        let dropped = weights.iter().filter(|&&w| w == 0.0).count();
        assert!(weights.iter().all(|&w| w == 0.0 || w == kept), "{p}");
        assert_eq!(weights.len(), COUNT);
        assert_share(dropped, COUNT, p, "dropped");
    }
}

/// If a weight were dropped together with its neighbour along some axis, more than half of the pairs would agree.
#[test]
fn pairs_of_all_batches_and_heads_are_dropped_independently() {
    let weights = dropped!(Half, 2);
    let axes = [
        ("batch", N * HEADS * N, BATCH),
        ("query", HEADS * N, N),
        ("head", N, HEADS),
        ("key", 1, N),
    ];
    for (axis, stride, len) in axes {
        let firsts = (0..COUNT).filter(|place| place / stride % len + 1 < len);
        let pairs: Vec<_> = firsts
            .map(|place| (weights[place], weights[place + stride]))
            .collect();
        let alike = pairs.iter().filter(|(a, b)| a == b).count();
        assert_share(alike, pairs.len(), 0.5, axis);
    }
}

#[test]
fn calls_draw_anew_and_a_seed_repeats_them() {
    let run = |seed| {
        let dev = Cpu::seed_from_u64(seed);
        let mut layer = dev.build_module::<Half, f32>();
        make_transparent(&mut layer);
        let mut call = || flat(&layer.forward_mut(tokens(&dev).leaky_trace()));
        [call(), call(), call()]
    };
    let calls = run(3);
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let alike = calls[one].iter().zip(&calls[other]).filter(|(a, b)| a == b);
        assert_share(alike.count(), COUNT, 0.5, "two calls");
    }
    assert_eq!(run(3), calls);
    let other = run(4);
    let alike = calls[0].iter().zip(&other[0]).filter(|(a, b)| a == b);
    assert_share(alike.count(), COUNT, 0.5, "two seeds");
}

#[test]
fn masked_keys_stay_masked() {
    let weights = dropped!(Masked, 5);
    for (place, weight) in weights.into_iter().enumerate() {
        let query = place / (HEADS * N) % N;
        let key = place % N;
        // Half of the weight of the query's keys is dropped, so the rest counts twice.
        let kept = 2.0 / (query + 1) as f64;
        if key > query {
            assert_eq!(weight, 0.0);
        } else {
            // 1 / (query + 1), rounded.
            assert!(weight == 0.0 || (weight - kept).abs() < kept * f64::from(f32::EPSILON));
        }
    }
}

/// The loss of a layer with dropout. The device's seed is fixed, so each call drops the same weights.
fn loss(
    layer: &mut Rich<f64>,
    state: &State,
) -> (Tensor<Rank3<2, 5, 8>, f64, Cpu>, Traced<Rank0, f64>) {
    let dev = Cpu::seed_from_u64(6);
    let x = dev.tensor_from_vec(state.get("x").flat.clone(), (Const, Const, Const));
    let lengths: Tensor<Rank1<2>, usize, _> = dev.tensor([5, 3]);
    let y = layer.forward_mut((x.leaky_trace(), lengths));
    let factors = dev.tensor_from_vec(scattered("factors", 80), (Const, Const, Const));
    (x, (y * factors).sum())
}

#[test]
fn the_gradient_is_that_of_the_weights_that_were_kept() {
    let mut layer = Cpu::seed_from_u64(8).build_module::<Rich, f64>();
    let mut state = State::default();
    state.insert("x", &[2, 5, 8]);

    let without = {
        let x = Cpu::default().tensor_from_vec(state.get("x").flat.clone(), (2, 5, Const));
        let lengths = Cpu::default().tensor_from_vec(vec![5, 3], (2,));
        flat(&layer.forward((x, lengths)))
    };
    let without: f64 = without
        .iter()
        .zip(scattered("factors", 80))
        .map(|(y, f)| y * f)
        .sum();
    let (x, with) = loss(&mut layer, &state);
    assert_ne!(flat(&with)[0], without, "weights are dropped");

    let tape = with.backward();
    let found = |layer: &Rich<f64, Cpu>, state: &State| flat(&loss(&mut layer.clone(), state).1)[0];
    let mut moved = state.clone();
    let x_values = &state.get("x").flat;
    assert_gradient_along_some("x", x_values, &flat(&tape.get(&x)), |x| {
        moved.flat_mut("x").copy_from_slice(x);
        found(&layer, &moved)
    });

    let of_parameters = gradients(&layer, &tape);
    for (parameter, gradient) in std::iter::zip(parameters(&layer), of_parameters) {
        assert_eq!(parameter.name, gradient.name);
        let name = &parameter.name;
        assert_gradient_along_some(name, &parameter.values, &gradient.values, |x| {
            let mut moved = layer.clone();
            fill(
                &mut moved,
                |filled, values| {
                    if filled == name { x.to_vec() } else { values }
                },
            );
            found(&moved, &state)
        });
    }
}
