//! `module::<Type, ..>`: any module of dfdx in a declared network, against the same network of dfdx's modules.

use super::*;
use attn::{
    Backend, Element, attention, model,
    train::{AdamW, AdamWConfig},
};
use support::compare::assert_close;
use support::tensors::flat;
use support::tensors::{gradients, parameters};

const VOCAB: usize = 11;

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal>;
    struct Padded<heads = 2, d_model = 8, mask = padding>;
    struct Cross<heads = 2, d_model = 8, d_context = 6>;
    struct OfTwo<heads = 2, d_model = 8, d_context = 8>;
    struct WithDropout<heads = 2, d_model = 8, dropout = 0.5>;
}

type Mlp = (Linear<8, 12>, ReLU, Linear<12, 8>);

model! {
    struct Mixed<vocab = VOCAB, d_model = 8, hidden = { 10 + 2 }>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat 3 {
            x = x + module::<Causal, out = [batch, seq, d_model], name = causal>(layer_norm(x));
            x = x + module::<(Linear<d_model, hidden>, ReLU, Linear<hidden, 8>), out = [batch, seq, d_model]>(layer_norm(x));
        }
        repeat 2, share = true, name = again {
            x = module::<Linear<8, d_model>, out = [batch, seq, d_model]>(x);
        }
        module::<Linear<8, vocab>, out = [batch, seq, vocab], name = head>(module::<Tanh, out = [batch, seq, 8]>(x))
    }
}

/// The same modules in the same order.
type MixedByHand = (
    Embedding<VOCAB, 8>,
    Repeated<
        (
            Residual<(LayerNorm1D<8>, Causal)>,
            Residual<(LayerNorm1D<8>, Mlp)>,
        ),
        3,
    >,
    Linear<8, 8>,
    Linear<8, VOCAB>,
);

type Built<T, E> = <T as BuildOnDevice<Cpu, E>>::Built;

/// Both with the same parameters.
fn both<A, B, E: Element>() -> (Built<A, E>, Built<B, E>)
where
    Cpu: Backend<E>,
    A: BuildOnDevice<Cpu, E>,
    B: BuildOnDevice<Cpu, E>,
{
    let dev = Cpu::default();
    let mut declared = dev.build_module::<A, E>();
    let mut by_hand = dev.build_module::<B, E>();
    scatter(&mut declared);
    let numbers = parameters(&declared);
    let mut numbers = numbers.into_iter().map(|parameter| parameter.values);
    tensors::fill(&mut by_hand, |_, _| {
        numbers.next().expect("as many parameters")
    });
    assert!(numbers.next().is_none());
    (declared, by_hand)
}

/// The output of a traced pass, and the gradients of all parameters, in their order.
fn pass<M: TensorCollection<E, Cpu>, S: Shape, E: Element>(
    model: &M,
    y: Tensor<S, E, Cpu, OwnedTape<E, Cpu>>,
) -> Vec<Vec<f64>>
where
    Cpu: Backend<E>,
{
    let output = flat(&y);
    let shape = *y.shape();
    let tape = (y * tensor("factors", shape)).sum().backward();
    let gradients = gradients(model, &tape).into_iter();
    let gradients = gradients.map(|gradient| gradient.values);
    [output].into_iter().chain(gradients).collect()
}

fn assert_all_close(found: &[Vec<f64>], expected: &[Vec<f64>], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert_close(format!("number {index}"), a, b, tolerance);
    }
}

/// Sums of up to a hundred terms of order 1 in a chain of some twenty: √(20 · 100) ε / 2 = 23 ε, and ten times that.
const TERMS: f64 = 230.0;

macro_rules! with_both_elements {
    ($($name:ident: $check:ident;)*) => {$(
        #[test]
        fn $name() {
            $check!(f32);
            $check!(f64);
        }
    )*};
}

macro_rules! mixed {
    ($E:ty) => {
        let (mut declared, by_hand) = both::<Mixed, MixedByHand, $E>();
        let tokens = || ids((2, 5), VOCAB);
        let (embedding, blocks, again, head) = &by_hand;
        let x = blocks.forward(embedding.forward(tokens().leaky_traced()));
        let y = head.forward(again.forward(again.forward(x)).tanh());
        let expected = pass(&by_hand, y);
        let tolerance = TERMS * f64::from(<$E>::EPSILON);
        let y = declared.forward_mut(tokens().leaky_traced());
        assert_all_close(&pass(&declared, y), &expected, tolerance);
        let y = declared.forward(tokens().leaky_traced());
        assert_all_close(&pass(&declared, y), &expected, tolerance);
    };
}

with_both_elements! {
    models_equal_chains_of_dfdx_modules: mixed;
}

#[test]
fn parameters_are_saved_by_their_place() {
    let names = parameters(&Cpu::default().build_module::<Mixed, f32>());
    let names: Vec<_> = names.iter().map(|p| p.name.as_str()).collect();
    for name in [
        "blocks.0.layer_norm.weight",
        "blocks.0.causal.q_proj.weight",
        "blocks.2.module.0.weight",
        "blocks.2.module.2.bias",
        "again.module.weight",
        "head.weight",
    ] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    // Tanh has no parameters.
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with("module"))
            .count(),
        0
    );
}

model! {
    struct Operands<d_model = 8>;

    fn forward(x: [batch, q, d_model], memory: [batch, k, 6], lens: lens[batch]) -> [batch, q, d_model] {
        let x = module::<Padded, out = [batch, q, d_model]>(x, lens);
        let x = module::<Cross, out = [batch, q, d_model]>(x, memory);
        module::<OfTwo, out = [batch, q, d_model]>(x, x)
    }
}

macro_rules! operands {
    ($E:ty) => {
        let (mut declared, by_hand) = both::<Operands, (Padded, Cross, OfTwo), $E>();
        let x = || tensor::<_, $E>("x", (2, 5, Const::<8>));
        let memory: Tensor<_, $E, _> = tensor("memory", (2, 7, Const::<6>));
        let y = declared.forward_mut((x().leaky_traced(), memory.clone(), lens([5, 2])));
        let found = pass(&declared, y);
        let (padded, cross, of_two) = &by_hand;
        let y = cross.forward((padded.forward((x().leaky_traced(), lens([5, 2]))), memory));
        let (y, tape) = y.split_tape();
        let y = of_two.forward((y.clone().put_tape(tape), y));
        // The same kernels in the same order.
        assert_all_close(&found, &pass(&by_hand, y), 0.0);
    };
}

with_both_elements! {
    operands_are_a_tuple_whose_first_has_the_tape: operands;
}

#[test]
fn operands_have_their_gradients() {
    let mut model = Cpu::default().build_module::<Operands, f64>();
    scatter(&mut model);
    let x: Tensor<_, f64, _> = tensor("x", (2, 5, Const::<8>));
    let memory: Tensor<_, f64, _> = tensor("memory", (2, 7, Const::<6>));
    let y = model.forward_mut((x.leaky_trace(), memory.clone(), lens([5, 2])));
    let gradients = y.square().sum().backward();
    for gradient in [gradients.get(&x).as_vec(), gradients.get(&memory).as_vec()] {
        assert!(gradient.iter().any(|number| number.abs() > 1e-6));
    }
}

model! {
    struct Inner<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] { x + linear::<d_model>(layer_norm(x)) }
}

model! {
    struct Opened<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, 3] {
        module::<Linear<d_model, 3>, out = [batch, seq, 3]>(gelu(x))
    }
}

model! {
    struct Outer;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, 3] {
        let mut x = module::<Embedding<VOCAB, 8>, out = [batch, seq, 8]>(tokens);
        repeat 2 { x = module::<Inner, out = [batch, seq, 8], name = inner>(x); }
        module::<Opened, out = [batch, seq, 3], name = opened>(x)
    }
}

#[test]
fn models_are_modules_too() {
    type ByHand = (Embedding<VOCAB, 8>, Repeated<Inner, 2>, Opened);
    let (mut declared, mut by_hand) = both::<Outer, ByHand, f64>();
    let tokens = || ids((2, 5), VOCAB).leaky_traced();
    let expected = by_hand.forward_mut(tokens());
    let expected = pass(&by_hand, expected);
    let found = declared.forward_mut(tokens());
    // The same operations in the same order.
    assert_all_close(&pass(&declared, found), &expected, 0.0);
    let names: Vec<_> = parameters(&declared).into_iter().map(|p| p.name).collect();
    assert_eq!(names[0], "module.weight");
    assert!(names.contains(&"blocks.1.inner.linear.weight".to_owned()));
    assert_eq!(names.last().unwrap(), "opened.module.bias");
}

model! {
    struct Random<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let mut x = x;
        repeat 2 { x = module::<DropoutOneIn<2>, out = [batch, seq, d_model]>(x); }
        x
    }
}

#[test]
fn dropout_acts_while_training() {
    let mut model = Cpu::default().build_module::<Random, f32>();
    let x: Tensor<_, f32, _> = Cpu::default().ones_like(&(7, 6, Const::<8>));
    assert_eq!(model.forward(x.clone()).as_vec(), x.as_vec());
    let y = model.forward_mut(x.leaky_trace()).as_vec();
    assert!(y.iter().all(|&factor| factor == 0.0 || factor == 4.0));
    let kept = y.iter().filter(|&&factor| factor != 0.0).count();
    // A quarter of 336: 84, give or take five times √(336 · 3 / 16) = 8.
    assert!((44..124).contains(&kept), "{kept} are kept");
}

model! {
    struct Attending<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        module::<WithDropout, out = [batch, seq, d_model]>(dropout::<0.5>(x))
    }
}

#[test]
fn dropout_of_both_kinds_asks_for_training_and_a_tape() {
    let mut model = Cpu::default().build_module::<Attending, f32>();
    let x: Tensor<_, f32, _> = tensor("x", (3, 5, Const::<8>));
    let expected = model.forward(x.clone()).as_vec();
    assert_eq!(model.forward(x.leaky_trace()).as_vec(), expected);
    assert_eq!(model.forward_mut(x.clone()).as_vec(), expected);
    assert_ne!(model.forward_mut(x.leaky_trace()).as_vec(), expected);
}

model! {
    struct Normalized<d_model = 8>;
    fn forward(x: [batch, d_model]) -> [batch, d_model] {
        let mut x = x;
        repeat 2, share = true { x = module::<BatchNorm1D<d_model>, out = [batch, d_model]>(x); }
        repeat 2, name = own { x = module::<BatchNorm1D<d_model>, out = [batch, d_model]>(x); }
        x
    }
}

#[test]
fn a_module_that_changes_while_it_trains_is_changed_in_its_place() {
    let dev = Cpu::default();
    let mut model = dev.build_module::<Normalized, f64>();
    let mut shared = dev.build_module::<BatchNorm1D<8>, f64>();
    let mut own = dev.build_module::<Repeated<BatchNorm1D<8>, 2>, f64>();
    let x: Tensor<_, f64, _> = tensor("x", (5, Const::<8>));
    let y = shared.forward_mut(x.leaky_trace());
    let y = shared.forward_mut(y);
    let expected = own.forward_mut(y);
    let y = model.forward_mut(x.leaky_trace());
    assert_eq!(y.as_vec(), expected.as_vec());
    let mean = |norm: &BatchNorm1DOf<f64>| norm.running_mean.as_vec();
    assert_eq!(mean(&model.blocks.module), mean(&shared));
    assert_ne!(mean(&shared), [0.0; 8]);
    for (found, expected) in model.own.modules.iter().zip(&own.modules) {
        assert_eq!(mean(&found.module), mean(expected));
    }
    let expected = own.forward(shared.forward(shared.forward(x.clone())));
    assert_eq!(model.forward(x).as_vec(), expected.as_vec());
}

type BatchNorm1DOf<E> = Built<BatchNorm1D<8>, E>;

#[test]
fn models_with_a_module_are_modules_of_dfdx() {
    let dev = Cpu::seed_from_u64(3);
    let mut model = dev.build_module::<Mixed, f32>();
    let tokens = || ids((2, 5), VOCAB);
    let expected = model.forward(tokens()).as_vec();
    assert_eq!(Module::forward(&model, tokens()).as_vec(), expected);
    assert_eq!(
        ModuleMut::forward_mut(&mut model, tokens()).as_vec(),
        expected
    );
    assert_eq!(model.clone().forward(tokens()).as_vec(), expected);

    let double: Mixed<f64> = model.to_dtype::<f64>();
    assert_eq!(parameters(&double), parameters(&model));
    let moved: Mixed<f32, Cpu> = model.to_device(&Cpu::seed_from_u64(9));
    assert_eq!(moved.forward(tokens()).as_vec(), expected);

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.safetensors");
    model.save_safetensors(&file).unwrap();
    let mut loaded = dev.build_module::<Mixed, f32>();
    assert_ne!(loaded.forward(tokens()).as_vec(), expected);
    loaded.load_safetensors(&file).unwrap();
    assert_eq!(loaded.forward(tokens()).as_vec(), expected);

    model.reset_params();
    assert_ne!(model.forward(tokens()).as_vec(), expected);
    let in_a_tuple = dev.build_module::<(Mixed, Linear<VOCAB, 2>), f32>();
    assert_eq!(in_a_tuple.forward(tokens()).shape().concrete(), [2, 5, 2]);
}

#[test]
fn parameters_of_modules_are_trained() {
    let mut model = Cpu::default().build_module::<Mixed, f32>();
    scatter(&mut model);
    let before = parameters(&model);
    let tokens = ids((3, 5), VOCAB);
    let mut gradients = model
        .forward_mut(tokens.traced(model.alloc_grads()))
        .square()
        .mean()
        .backward();
    let config = AdamWConfig {
        lr: 0.1,
        ..Default::default()
    };
    AdamW::new(config)
        .update(&mut model, &mut gradients)
        .unwrap();
    for (before, after) in before.iter().zip(parameters(&model)) {
        assert_ne!(before.values, after.values, "{}", before.name);
    }
}

#[test]
fn the_summary_counts_parameters_of_modules() {
    let model = Cpu::default().build_module::<Mixed, f32>();
    let summary = Mixed::summary();
    let total = summary.lines().last().unwrap();
    let expected = model.num_trainable_params().to_string();
    assert_eq!(total.split_whitespace().last(), Some(expected.as_str()));
    let row = |start: &str| {
        summary
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap()
    };
    let head = row("head ");
    assert!(
        head.contains("module Linear<8, VOCAB>") && head.ends_with(" 99"),
        "{head}"
    );
    assert!(row("again ").ends_with(" 72"));
    assert!(Mixed::graph_dot().contains("module Linear<8, 8>"));
}

model! {
    struct Transformer<d_model = 8>;
    fn forward(x: [batch, seq, d_model], memory: [batch, k, d_model]) -> [batch, seq, d_model] {
        let x = module::<TransformerEncoder<d_model, 2, 16, 2>, out = [batch, seq, d_model]>(x);
        let x = module::<MultiHeadAttention<d_model, 2>, out = [batch, seq, d_model]>(x, memory, memory);
        module::<TransformerDecoder<d_model, 2, 16, 2>, out = [batch, seq, d_model]>(x, memory)
    }
}

#[test]
fn dfdxs_transformers_take_their_operands() {
    type Parts = (
        TransformerEncoder<8, 2, 16, 2>,
        MultiHeadAttention<8, 2>,
        TransformerDecoder<8, 2, 16, 2>,
    );
    let (mut declared, by_hand) = both::<Transformer, Parts, f64>();
    let x: Tensor<_, f64, _> = tensor("x", (2, 5, Const::<8>));
    let memory: Tensor<_, f64, _> = tensor("memory", (2, 3, Const::<8>));
    let y = declared.forward_mut((x.leaky_trace(), memory.clone()));
    let (encoder, attention, decoder) = &by_hand;
    let expected = attention.forward((
        encoder.forward(x.leaky_trace()),
        memory.clone(),
        memory.clone(),
    ));
    let expected = decoder.forward((expected, memory));
    // The same operations in the same order.
    assert_all_close(&pass(&declared, y), &pass(&by_hand, expected), 0.0);
}

/// Names with a meaning in the expansion.
mod names {
    use attn::{dfdx::prelude::*, model};

    type E = (Linear<8, 8>, ReLU);

    model! {
        pub(super) struct Result;
        fn forward(x: [b, e, 8]) -> [b, e, 8] { module::<E, out = [b, e, 8], name = none>(x) }
    }
}

#[test]
fn names_of_the_user_are_the_users() {
    let model = Cpu::default().build_module::<names::Result, f32>();
    let x: Tensor<_, f32, _> = tensor("x", (2, 5, Const::<8>));
    let expected = model.none.forward(x.clone()).as_vec();
    assert_eq!(model.forward(x).as_vec(), expected);
}

fn runs_on<E: Element, D: Backend<E>>(dev: &D, x: Tensor<(usize, usize, Const<8>), E, D>) -> usize {
    let model = <Opened as BuildOnDevice<D, E>>::build_on_device(dev);
    model.forward(x).shape().num_elements()
}

#[test]
fn generic_code_may_call_models_with_a_module() {
    let x: Tensor<_, f64, _> = tensor("x", (2, 5, Const::<8>));
    assert_eq!(runs_on(&Cpu::default(), x), 30);
}
