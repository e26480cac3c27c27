//! Dropout in a declared network: where it acts, its random numbers, and its gradient.
//!
//! With tables of ones and identity matrices, a network outputs the factors of its dropout.

use super::*;
use attn::{Backend, Element, model};
use support::gradients::assert_gradients_of_parameters;
use support::tensors::{fill, flat};

const BATCH: usize = 24;
const LEN: usize = 16;
const WIDTH: usize = 32;
/// The number of elements of a result.
const COUNT: usize = BATCH * LEN * WIDTH;

model! {
    /// Dropout at every possible place.
    struct Net<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let mut x = dropout::<0.5>(embedding::<vocab, d>(tokens));
        repeat 2 { x = x + dropout::<0.5>(attention::<2, dropout = 0.5>(layer_norm(x))); }
        x
    }
}

model! {
    /// The same without dropout.
    struct Plain<vocab = 7, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 { x = x + attention::<2>(layer_norm(x)); }
        x
    }
}

model! {
    struct Embedded<d = 32>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] { dropout::<0.75>(embedding::<5, d>(tokens)) }
}

model! {
    struct Rounds<d = 32>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let mut x = x;
        repeat 3 { x = dropout::<0.5>(linear::<d, bias = false>(x)); }
        x
    }
}

model! {
    struct Shared<d = 32>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let mut x = x;
        repeat 3, share = true { x = dropout::<0.5>(linear::<d, bias = false>(x)); }
        x
    }
}

model! {
    struct Layers<d = 32>;
    fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) { (dropout::<0.5>(x), dropout::<0.5>(x)) }
}

model! {
    struct Attending<d = 32>;
    fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) {
        (attention::<2, dropout = 0.5>(x), attention::<2, dropout = 0.5>(x))
    }
}

/// Tables of ones and identities. Attention outputs its weights: queries and keys of 0 make them all `1 / LEN`, the value of
/// token `j` is the unit vector `j`, and the number at `[b, i, h * LEN + j]` is the weight of `[b, h, i, j]`.
fn make_transparent<M: TensorCollection<f32, Cpu>>(model: &mut M) {
    fill(model, |name, values| {
        let number = |place: usize| match name.rsplit('.').nth(1) {
            Some("embedding") => true,
            Some("linear" | "o_proj") => place % WIDTH == place / WIDTH,
            Some("v_proj" | "v_proj_2") => place % WIDTH == place / WIDTH % LEN,
            _ => false,
        };
        let is_weight = name.ends_with("weight");
        let numbers = (0..values.len()).map(|place| f64::from(is_weight && number(place)));
        numbers.collect()
    });
}

fn transparent<M: BuildOnDevice<Cpu, f32>>() -> M::Built
where
    M::Built: TensorCollection<f32, Cpu>,
{
    let mut model = Cpu::default().build_module::<M, f32>();
    make_transparent(&mut model);
    model
}

type Shown = Tensor<(usize, usize, Const<WIDTH>), f32, Cpu>;

/// The output on a device with this seed.
fn ones(seed: u64) -> Shown {
    Cpu::seed_from_u64(seed).ones_like(&(BATCH, LEN, Const))
}

/// Token `i` is the unit vector `i`.
fn units(seed: u64) -> Shown {
    let places = 0..COUNT;
    let units = places.map(|place| f32::from(place % WIDTH == place / WIDTH % LEN));
    Cpu::seed_from_u64(seed).tensor_from_vec(units.collect(), (BATCH, LEN, Const))
}

/// Asserts that the fraction of independent events of this probability is within five standard deviations. One in a million
/// correct generators would fail, and the seeds are fixed.
#[track_caller]
fn assert_share(found: usize, probability: f64) {
    let share = found as f64 / COUNT as f64;
    let deviation = (probability * (1.0 - probability) / COUNT as f64).sqrt();
    assert!((share - probability).abs() < 5.0 * deviation, "{share}");
}

/// Asserts that all are 0 or `kept`, and a fraction `1 - probability` is 0.
#[track_caller]
fn assert_kept(values: &[f64], kept: f64, probability: f64) {
    assert_eq!(values.len(), COUNT);
    assert!(values.iter().all(|&value| value == 0.0 || value == kept));
    assert_share(
        values.iter().filter(|&&value| value == kept).count(),
        probability,
    );
}

/// Asserts that half of them are equal: each is kept or not, independently of the other.
#[track_caller]
fn assert_independent(one: &[f64], other: &[f64]) {
    let alike = one.iter().zip(other).filter(|(one, other)| one == other);
    assert_share(alike.count(), 0.5);
}

#[test]
fn dropout_acts_only_in_forward_mut_on_a_traced_input() {
    let dev = Cpu::default();
    let mut model = dev.build_module::<Net, f32>();
    let mut plain = dev.build_module::<Plain, f32>();
    scatter(&mut model);
    scatter(&mut plain);
    let tokens = ids((2, 5), 7);
    let traced = || tokens.clone().leaky_traced();
    let expected = flat(&plain.forward(tokens.clone()));
    for without in [
        model.forward(tokens.clone()),
        model.forward(tokens.clone()),
        model.forward(traced()).retaped(),
        model.try_forward(traced()).unwrap().retaped(),
        model.forward_mut(tokens.clone()),
        model.try_forward_mut(tokens.clone()).unwrap(),
        Module::forward(&model, traced()).retaped(),
        ModuleMut::forward_mut(&mut model, tokens.clone()),
    ] {
        assert_eq!(flat(&without), expected);
    }
    for with in [
        model.forward_mut(traced()),
        model.try_forward_mut(traced()).unwrap(),
        model.forward_mut(tokens.clone().traced(model.alloc_grads())),
        ModuleMut::forward_mut(&mut model, traced()),
        model.composed().forward_mut(traced()),
    ] {
        assert_ne!(flat(&with), expected);
    }
}

#[test]
fn embeddings_are_dropped_with_probability_p_and_scaled_otherwise() {
    let mut model = transparent::<Embedded>();
    let tokens = ids((BATCH, LEN), 5);
    assert_eq!(flat(&model.forward(tokens.clone())), [1.0; COUNT]);
    let y = model.forward_mut(tokens.clone().leaky_traced());
    assert_kept(&flat(&y), 4.0, 0.25);
    let y = model.composed().forward_mut(tokens.leaky_traced());
    assert_kept(&flat(&y), 4.0, 0.25);
}

/// If the rounds drew alike, half would be left after three of them.
#[test]
fn rounds_of_a_repeat_draw_independently() {
    let y = transparent::<Rounds>().forward_mut(ones(3).leaky_traced());
    assert_kept(&flat(&y), 8.0, 0.125);
    let y = transparent::<Shared>().forward_mut(ones(3).leaky_traced());
    assert_kept(&flat(&y), 8.0, 0.125);
}

#[test]
fn layers_draw_independently() {
    let (one, other) = transparent::<Layers>().forward_mut(ones(4).leaky_traced());
    let [one, other] = [flat(&one), flat(&other)];
    assert_kept(&one, 2.0, 0.5);
    assert_kept(&other, 2.0, 0.5);
    assert_independent(&one, &other);
}

#[test]
fn attention_weights_are_dropped_in_every_layer() {
    let mut model = transparent::<Attending>();
    let (one, other) = model.forward(units(5));
    assert_eq!(flat(&one), [1.0 / 16.0; COUNT]);
    assert_eq!(flat(&other), flat(&one));
    let (one, other) = model.forward_mut(units(5).leaky_traced());
    let [one, other] = [flat(&one), flat(&other)];
    assert_kept(&one, 2.0 / 16.0, 0.5);
    assert_kept(&other, 2.0 / 16.0, 0.5);
    assert_independent(&one, &other);
}

#[test]
fn calls_draw_anew_and_the_seed_of_the_device_repeats_them() {
    let run = |seed| {
        let x = ones(seed);
        let mut model = transparent::<Layers>();
        [(); 2].map(|()| flat(&model.forward_mut(x.clone().leaky_traced()).0))
    };
    let [first, second] = run(6);
    assert_independent(&first, &second);
    assert_eq!(run(6), [first.clone(), second]);
    assert_independent(&run(7)[0], &first);
    // At every place; the output of a table is on the device of the table.
    let run = |seed| {
        let y = net::<f32>(seed).forward_mut(ids((2, 5), 7).leaky_traced());
        flat(&y)
    };
    assert_eq!(run(6), run(6));
    assert_ne!(run(6), run(7));
}

/// The network on a device with this seed, whose next draws are always the same. The parameters do not depend on it.
fn net<E: Element>(seed: u64) -> Net<E, Cpu>
where
    Cpu: Backend<E>,
{
    let mut model = Cpu::seed_from_u64(seed).build_module::<Net, E>();
    scatter(&mut model);
    model
}

/// The factors of a loss: nonzero integers, so that all sums are exact.
fn factors() -> Vec<f32> {
    (0..COUNT).map(|place| (1 + place % 7) as f32).collect()
}

/// `y = f x` with the factors `f` of dropout, and `x = 1`: the gradient of `Σ c y` is `c f = c y`, 0 where `y` is.
#[test]
fn gradients_of_dropped_elements_are_0() {
    macro_rules! check {
        ($($Model:ident)*) => {$(
            let x = ones(8);
            let y = transparent::<$Model>().forward_mut(x.clone().leaky_traced());
            let expected = flat(&y).into_iter().zip(factors()).map(|(y, c)| y * f64::from(c));
            let expected: Vec<f64> = expected.collect();
            let c = x.device().tensor_from_vec(factors(), *x.shape());
            let found = flat(&(y * c).sum().backward().get(&x));
            assert!(found == expected, stringify!($Model));
        )*};
    }
    check!(Rounds Shared);
}

/// A vector of the table has the sum of the gradients at all positions of its token.
#[test]
fn a_table_learns_from_kept_elements_only() {
    let mut model = transparent::<Embedded>();
    let tokens = ids((BATCH, LEN), 5);
    let y = model.forward_mut(tokens.clone().leaky_traced());
    let mut expected = [[0.0; WIDTH]; 5];
    for (place, kept) in flat(&y).into_iter().enumerate() {
        expected[tokens.as_vec()[place / WIDTH]][place % WIDTH] += kept as f32;
    }
    let found = y.sum().backward().get(&model.embedding.weight);
    assert_eq!(found.array(), expected);
}

#[test]
fn the_gradient_is_that_of_the_kept_elements() {
    let run = |model: &mut Net<f64, Cpu>| {
        backpropagate(model.forward_mut(ids((2, 5), 7).leaky_traced())).parameters(model)
    };
    // All of them drop the same elements.
    let make = || net(10);
    let outcome = run(&mut make());
    assert_gradients_of_parameters(&make, &outcome, &|mut moved| run(&mut moved).loss());
}
