//! A declared GPT against one of dfdx's modules: the loss, every gradient, and twenty steps of training.

use super::*;
use attn::{
    dfdx::nn::modules::{Embedding, Repeated, UnbiasedLinear},
    model,
    ops::{CrossEntropyOptions, cross_entropy},
};
use out_of_modules::{Map, Norm, Projections, Sequences, attend, names, train};
use support::reference::Traced;

pub(super) const VOCAB: usize = 11;
pub(super) const D_MODEL: usize = 6;
pub(super) const HEADS: usize = 2;
pub(super) const LAYERS: usize = 2;
pub(super) const HIDDEN: usize = 4 * D_MODEL;
const MAX_LEN: usize = 16;
pub(super) const BATCH: usize = 3;

model! {
    pub(super) struct Gpt<vocab = VOCAB, d_model = D_MODEL, heads = HEADS, layers = LAYERS, max_len = MAX_LEN>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, d_model, mask = causal>(layer_norm(x));
            x = x + feed_forward::<hidden = { 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<vocab, bias = false>(layer_norm(x))
    }
}

pub(super) type Declared = <Gpt as BuildOnDevice<Cpu, f64>>::Built;

pub(super) fn declared() -> Declared {
    let mut declared = Cpu::default().build_module::<Gpt, f64>();
    scatter(&mut declared);
    declared
}

/// The tokens of a batch, and the next ones: seven tokens in even steps, five in odd ones.
pub(super) fn data(step: usize) -> (Vec<usize>, Vec<usize>) {
    let count = BATCH * if step.is_multiple_of(2) { 7 } else { 5 };
    let tokens = (0..count).map(|i| (i * i + 3 * i + step) % VOCAB).collect();
    let next = (0..count).map(|i| (5 * i + step) % VOCAB).collect();
    (tokens, next)
}

/// The loss of the declared network on the data of a step.
pub(super) fn loss(declared: &Declared, step: usize) -> Traced<Rank0, f64> {
    let (tokens, next) = data(step);
    let logits = declared.forward(sequences(tokens).leaky_traced());
    cross_entropy(logits, &sequences(next), CrossEntropyOptions::default())
}

fn sequences(ids: Vec<usize>) -> Tensor<(usize, usize), usize, Cpu> {
    let length = ids.len() / BATCH;
    Cpu::default().tensor_from_vec(ids, (BATCH, length))
}

type Block = (
    Norm<D_MODEL>,
    Projections<D_MODEL>,
    Norm<D_MODEL>,
    (Map<D_MODEL, HIDDEN>, Map<HIDDEN, D_MODEL>),
);

type Modules = (
    Embedding<VOCAB, D_MODEL, f64, Cpu>,
    Embedding<MAX_LEN, D_MODEL, f64, Cpu>,
    Repeated<Block, LAYERS>,
    Norm<D_MODEL>,
    UnbiasedLinear<D_MODEL, VOCAB, f64, Cpu>,
);

/// The loss of dfdx's modules on the data of a step.
fn with_dfdx(
    (embedding, positions, blocks, norm, head): &Modules,
    step: usize,
) -> Traced<Rank0, f64> {
    let (tokens, next) = data(step);
    let length = tokens.len() / BATCH;
    let places = (0..tokens.len()).map(|row| row % length).collect();
    let mut x = embedding.forward(sequences(tokens).leaky_traced())
        + positions.forward(sequences(places).leaky_traced());
    for block in &blocks.modules {
        x = through(block, x);
    }
    let logits = head.forward(norm.forward(x));
    let nats = logits.log_softmax::<Axis<2>>().select(sequences(next));
    -nats.mean::<Rank0, _>()
}

fn through(
    (norm, attention, norm_2, (up, down)): &Block,
    x: Sequences<D_MODEL>,
) -> Sequences<D_MODEL> {
    let length = x.shape().1;
    let (x, tape) = x.split_tape();
    let (normed, tape) = norm.forward(x.clone().put_tape(tape)).split_tape();
    let attended = attend(attention, HEADS, [&normed; 2], |scores| {
        let mask = ahead(length)
            .leaky_traced()
            .broadcast_like::<_, Axes2<0, 1>>(scores.shape());
        (scores + mask).softmax::<Axis<3>>()
    });
    let x = x.put_tape(tape) + attended;
    let hidden = up.forward(norm_2.forward(x.with_empty_tape()));
    x + down.forward(hidden.fast_gelu())
}

/// Minus infinity where the key is after the query, and 0 elsewhere, for sequences of this length.
fn ahead(length: usize) -> Tensor<(usize, usize), f64, Cpu> {
    let is_ahead = |place| place % length > place / length;
    let mask = (0..length * length).map(|place| {
        if is_ahead(place) {
            f64::NEG_INFINITY
        } else {
            0.0
        }
    });
    Cpu::default().tensor_from_vec(mask.collect(), (length, length))
}

#[test]
fn training_for_twenty_steps_is_the_same_with_dfdx_modules() {
    let declared = declared();
    let names = names(&declared);
    steps::are_the_same(declared, loss, |parameters, step| {
        train::<Modules>(&names, parameters, |modules| with_dfdx(modules, step))
    });
}

#[test]
fn parameters_are_saved_by_their_place() {
    let names = tensors::parameters(&Cpu::default().build_module::<Gpt, f32>());
    let names: Vec<_> = names.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        names[..8],
        [
            "embedding.weight",
            "learned_position.weight",
            "blocks.0.layer_norm.weight",
            "blocks.0.layer_norm.bias",
            "blocks.0.attention.q_proj.weight",
            "blocks.0.attention.q_proj.bias",
            "blocks.0.attention.k_proj.weight",
            "blocks.0.attention.k_proj.bias",
        ]
    );
    assert!(names.contains(&"blocks.1.feed_forward.down_proj.bias"));
    assert_eq!(names.last(), Some(&"linear.weight"));
}

#[test]
fn tokens_do_not_affect_earlier_outputs() {
    let declared = declared();
    let tokens = ids((1, 10), VOCAB).as_vec();
    let mut other = tokens.clone();
    other[6] = (other[6] + 1) % VOCAB;
    let logits = [tokens, other].map(|tokens| {
        let tokens = Cpu::default().tensor_from_vec(tokens, (1, 10));
        declared.forward(tokens).as_vec()
    });
    assert_eq!(logits[0][..6 * VOCAB], logits[1][..6 * VOCAB]);
    assert_ne!(logits[0][6 * VOCAB..], logits[1][6 * VOCAB..]);
}

#[test]
fn models_are_saved_and_loaded() {
    let dir = tempfile::tempdir().expect("a place for files");
    let file = dir.path().join("m.safetensors");
    let saved = Cpu::seed_from_u64(1).build_module::<Gpt, f32>();
    saved.save_safetensors(&file).expect("a file is written");
    let mut loaded = Cpu::seed_from_u64(2).build_module::<Gpt, f32>();
    loaded.load_safetensors(&file).expect("the file is read");
    let tokens = ids((2, 5), VOCAB);
    let a = loaded.forward(tokens.clone());
    let b = saved.forward(tokens);
    assert_eq!(a.as_vec(), b.as_vec());
}
