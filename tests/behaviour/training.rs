//! Models with declared layers learn tasks that require attention.

use attn::{attention, nn::LearnedPosition};
use dfdx::{
    optim::{Adam, AdamConfig, Optimizer},
    prelude::*,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// The number of tokens, or values, which have equal probability: the loss of a guess is `ln 8 = 2.08`.
const VOCABULARY: usize = 8;
const BATCH: usize = 16;
const LEN: usize = 10;

attention! {
    struct LookBack<heads = 2, d_model = 16, mask = causal>;
    struct Rotating<heads = 1, d_model = 16, mask = causal, position = rope>;
    /// Its only knowledge of the order of tokens is learned.
    struct Near<heads = 1, d_model = 16, mask = causal> {
        param near: [4] = zeros;
        fn score(score, q_idx, kv_idx) { score + 10.0 * near[clamp(q_idx - kv_idx, 0, 3)] }
    }
    struct Lookup<heads = 1, d_model = 16, d_context = 24, mask = padding>;
}

fn uninformed() -> f32 {
    (VOCABULARY as f32).ln()
}

fn one_hot<S: Shape>(classes: &[usize], shape: S) -> Tensor<S, f32, Cpu> {
    let rows = classes.iter();
    let flat = rows.flat_map(|&class| (0..VOCABULARY).map(move |v| f32::from(v == class)));
    Cpu::default().tensor_from_vec(flat.collect(), shape)
}

/// Trains with Adam. `batch` computes the loss of one batch. Returns the mean loss of the last ten steps.
fn train<M: TensorCollection<f32, Cpu>>(
    model: &mut M,
    steps: usize,
    mut loss: impl FnMut(
        &mut M,
        &mut StdRng,
        Gradients<f32, Cpu>,
    ) -> Tensor<Rank0, f32, Cpu, OwnedTape<f32, Cpu>>,
) -> f32 {
    let config = AdamConfig {
        lr: 1e-2,
        ..Default::default()
    };
    let mut optimizer = Adam::new(model, config);
    let mut rng = StdRng::seed_from_u64(1);
    let mut gradients = model.alloc_grads();
    let mut last = Vec::new();
    for step in 0..steps {
        let loss = loss(model, &mut rng, gradients);
        if step + 10 >= steps {
            last.push(loss.array());
        }
        gradients = loss.backward();
        optimizer
            .update(model, &gradients)
            .expect("every parameter has a gradient");
        model.zero_grads(&mut gradients);
    }
    last.iter().sum::<f32>() / last.len() as f32
}

/// The loss of predicting the previous token, at every position but the first.
fn loss_of_previous_token<M>(
    model: &mut M,
    rng: &mut StdRng,
    gradients: Gradients<f32, Cpu>,
) -> Tensor<Rank0, f32, Cpu, OwnedTape<f32, Cpu>>
where
    M: ModuleMut<
            Tensor<Rank2<BATCH, LEN>, usize, Cpu, OwnedTape<f32, Cpu>>,
            Output = Tensor<Rank3<BATCH, LEN, VOCABULARY>, f32, Cpu, OwnedTape<f32, Cpu>>,
        >,
{
    let tokens: Vec<usize> = (0..BATCH * LEN)
        .map(|_| rng.gen_range(0..VOCABULARY))
        .collect();
    // The first token of a sequence has no previous one. Its target is itself, with a loss of 0.
    let previous = (0..tokens.len()).map(|place| if place % LEN == 0 { place } else { place - 1 });
    let targets: Vec<usize> = previous.map(|place| tokens[place]).collect();
    let tokens: Tensor<Rank2<BATCH, LEN>, usize, _> = Cpu::default().tensor(tokens);
    let logits = model.forward_mut(tokens.traced(gradients));
    cross_entropy_with_logits_loss(logits, one_hot(&targets, Default::default()))
}

/// The loss of the best model without attention: 0 for the first token, `ln 8` for each of the others.
fn previous_token_without_attention() -> f32 {
    uninformed() * (LEN - 1) as f32 / LEN as f32
}

#[test]
fn learned_positions_find_the_previous_token() {
    type Model = (
        Embedding<VOCABULARY, 16>,
        LearnedPosition<LEN, 16>,
        Residual<(LayerNorm1D<16>, LookBack)>,
        LayerNorm1D<16>,
        Linear<16, VOCABULARY>,
    );
    let mut model = Cpu::default().build_module::<Model, f32>();
    let loss = train(&mut model, 120, loss_of_previous_token);
    // A twentieth of the loss without attention: the right token has a probability of 0.9 and more.
    assert!(loss < previous_token_without_attention() / 20.0, "{loss}");
}

#[test]
fn rotary_positions_find_the_previous_token() {
    type Model = (
        Embedding<VOCABULARY, 16>,
        Residual<(LayerNorm1D<16>, Rotating)>,
        LayerNorm1D<16>,
        Linear<16, VOCABULARY>,
    );
    let mut model = Cpu::default().build_module::<Model, f32>();
    let loss = train(&mut model, 120, loss_of_previous_token);
    assert!(loss < previous_token_without_attention() / 20.0, "{loss}");
}

#[test]
fn a_learned_bias_of_distances_finds_the_previous_token() {
    type Model = (
        Embedding<VOCABULARY, 16>,
        Residual<(LayerNorm1D<16>, Near)>,
        LayerNorm1D<16>,
        Linear<16, VOCABULARY>,
    );
    let mut model = Cpu::default().build_module::<Model, f32>();
    let loss = train(&mut model, 120, loss_of_previous_token);
    assert!(loss < previous_token_without_attention() / 20.0, "{loss}");
    let near = model.1.0.1.near.weight.array();
    assert!([0, 2, 3].iter().all(|&far| near[far] < near[1]), "{near:?}");
}

/// The same model with attention disabled: the loss above requires attention.
#[test]
fn models_without_attention_guess_the_previous_token() {
    type Model = (
        Embedding<VOCABULARY, 16>,
        LearnedPosition<LEN, 16>,
        Residual<(LayerNorm1D<16>, Linear<16, 64>, FastGeLU, Linear<64, 16>)>,
        LayerNorm1D<16>,
        Linear<16, VOCABULARY>,
    );
    let mut model = Cpu::default().build_module::<Model, f32>();
    let loss = train(&mut model, 120, loss_of_previous_token);
    assert!(loss > 0.9 * previous_token_without_attention(), "{loss}");
}

/// A context is a shuffled list of keys, each with a random value, and padding that repeats the keys with wrong values. The model
/// predicts the value of a key.
#[test]
fn cross_attention_looks_up_a_value_by_its_key_and_ignores_padding() {
    const PAIRS: usize = 4;
    const KEYS: usize = 2 * PAIRS;
    type Query = Linear<KEYS, 16>;
    let dev = Cpu::default();
    let mut model = dev.build_module::<(Query, Lookup, Linear<16, VOCABULARY>), f32>();
    let loss = train(&mut model, 150, |model, rng, gradients| {
        let mut questions = vec![0.0; BATCH * KEYS];
        let mut context = vec![0.0; BATCH * 2 * PAIRS * 24];
        let mut targets = Vec::new();
        for b in 0..BATCH {
            // The keys of a sequence are any four of the eight, in any order.
            let keys = rand::seq::index::sample(rng, KEYS, PAIRS).into_vec();
            let values: Vec<usize> = (0..2 * PAIRS)
                .map(|_| rng.gen_range(0..VOCABULARY))
                .collect();
            for (place, value) in values.iter().enumerate() {
                let row = &mut context[(b * 2 * PAIRS + place) * 24..][..24];
                row[keys[place % PAIRS]] = 1.0;
                row[KEYS + value] = 1.0;
            }
            let asked = rng.gen_range(0..PAIRS);
            questions[b * KEYS + keys[asked]] = 1.0;
            targets.push(values[asked]);
        }
        let questions: Tensor<Rank3<BATCH, 1, KEYS>, f32, _> = dev.tensor(questions);
        let context: Tensor<Rank3<BATCH, { 2 * PAIRS }, 24>, f32, _> = dev.tensor(context);
        let lengths: Tensor<Rank1<BATCH>, usize, _> = dev.tensor([PAIRS; BATCH]);
        let (query, lookup, classify) = model;
        let question = query.forward_mut(questions.traced(gradients));
        let found = lookup.forward_mut((question, context, lengths));
        let logits = classify.forward_mut(found);
        cross_entropy_with_logits_loss(logits, one_hot(&targets, Default::default()))
    });
    // A model that ignores the context, or averages it, has a loss of about ln 8. One that reads the padding is wrong half of the
    // time.
    assert!(loss < uninformed() / 20.0, "{loss}");
}
