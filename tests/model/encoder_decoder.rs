//! The declared Transformer of "Attention is all you need" against one of dfdx's modules.

use super::*;
use attn::{
    dfdx::nn::modules::{Embedding, Repeated},
    model,
    ops::{CrossEntropyOptions, cross_entropy},
};
use out_of_modules::{Input, Map, Norm, Projections, Sequences, attend, names, train};
use support::reference::{Mask, Traced, masks, normalizers};
use support::waves::waves;

pub(super) const VOCAB: usize = 11;
pub(super) const D_MODEL: usize = 10;
pub(super) const HEADS: usize = 2;
pub(super) const LAYERS: usize = 2;
pub(super) const HIDDEN: usize = 7;
pub(super) const BATCH: usize = 3;
/// `√D_MODEL`
pub(super) const SCALE: f64 = 3.162_277_660_168_379_5;
pub(super) const SMOOTHING: f64 = 0.1;
/// The target after the end of a short sequence.
pub(super) const IGNORED: usize = 0;

model! {
    pub(super) struct Transformer<vocab = VOCAB, d_model = D_MODEL, heads = HEADS, layers = LAYERS, hidden = HIDDEN>;

    fn forward(source: ids[batch, s], target: ids[batch, t], lens: lens[batch]) -> [batch, t, vocab] {
        let mut memory = embedding::<vocab, d_model>(source) * { SCALE } + sinusoidal_position::<d_model>(source);
        repeat layers, name = encoder {
            memory = layer_norm(memory + attention::<heads, mask = padding>(memory, padding = lens));
            memory = layer_norm(memory + feed_forward::<hidden, activation = relu>(memory));
        }
        let mut y = embedding::<tied = embedding>(target) * { SCALE } + sinusoidal_position::<d_model>(target);
        repeat layers, name = decoder {
            y = layer_norm(y + attention::<heads, mask = causal>(y));
            y = layer_norm(y + attention::<heads, mask = padding, name = cross>(y, context = memory, padding = lens));
            y = layer_norm(y + feed_forward::<hidden, activation = relu>(y));
        }
        linear::<tied = embedding>(y)
    }
}

pub(super) type Declared = <Transformer as BuildOnDevice<Cpu, f64>>::Built;

pub(super) fn declared() -> Declared {
    let mut declared = Cpu::default().build_module::<Transformer, f64>();
    scatter(&mut declared);
    declared
}

/// The data of a step. In every other step the sources are longer than the targets, in the others shorter. One of them is empty.
pub(super) struct Batch {
    pub(super) source: Vec<usize>,
    pub(super) lens: [usize; BATCH],
    pub(super) target: Vec<usize>,
    pub(super) next: Vec<usize>,
}

impl Batch {
    pub(super) fn of_step(step: usize) -> Self {
        let (source, target, lens) = if step.is_multiple_of(2) {
            (7, 5, [4, 7, 1])
        } else {
            (5, 7, [5, 0, 2])
        };
        let ids = |length: usize, factor: usize| {
            let ids = (0..BATCH * length).map(|i| (i * i + factor * i + step) % VOCAB);
            ids.collect::<Vec<_>>()
        };
        Self {
            source: ids(source, 3),
            lens,
            target: ids(target, 1),
            next: ids(target, 4),
        }
    }
}

/// The loss of the declared network on the data of a step.
pub(super) fn loss(declared: &Declared, step: usize) -> Traced<Rank0, f64> {
    let batch = Batch::of_step(step);
    let input = (
        sequences(batch.source).leaky_traced(),
        sequences(batch.target),
        lens(batch.lens),
    );
    let options = CrossEntropyOptions {
        label_smoothing: SMOOTHING,
        ignore_index: Some(IGNORED),
    };
    cross_entropy(declared.forward(input), &sequences(batch.next), options)
}

fn sequences(ids: Vec<usize>) -> Tensor<(usize, usize), usize, Cpu> {
    let length = ids.len() / BATCH;
    Cpu::default().tensor_from_vec(ids, (BATCH, length))
}

type FeedForward = (Map<D_MODEL, HIDDEN>, Map<HIDDEN, D_MODEL>);

type EncoderLayer = (
    Projections<D_MODEL>,
    Norm<D_MODEL>,
    FeedForward,
    Norm<D_MODEL>,
);

type DecoderLayer = (
    Projections<D_MODEL>,
    Norm<D_MODEL>,
    Projections<D_MODEL>,
    Norm<D_MODEL>,
    FeedForward,
    Norm<D_MODEL>,
);

type Table = Embedding<VOCAB, D_MODEL, f64, Cpu>;

type Modules = (
    Table,
    Repeated<EncoderLayer, LAYERS>,
    Repeated<DecoderLayer, LAYERS>,
);

/// The loss of dfdx's modules on the data of a step.
fn with_dfdx(modules: &Modules, step: usize) -> Traced<Rank0, f64> {
    let batch = Batch::of_step(step);
    let logits = decode(modules, &batch, encode(modules, &batch));
    mean_loss(logits, &batch.next)
}

fn encode((table, layers, _): &Modules, batch: &Batch) -> Sequences<D_MODEL> {
    let length = batch.source.len() / BATCH;
    let mask = padding(length, length, batch.lens);
    let mut x = embed(table, &batch.source, Default::default());
    for (attention, norm, feed_forward, norm_2) in &layers.modules {
        x = norm.forward(add_attention(attention, x, None, &mask));
        x = norm_2.forward(add_feed_forward(feed_forward, x));
    }
    x
}

/// The tape of the memory is moved to the targets, so that there is one in the end.
fn decode(
    (table, _, layers): &Modules,
    batch: &Batch,
    memory: Sequences<D_MODEL>,
) -> Sequences<VOCAB> {
    let (memory, tape) = memory.split_tape();
    let source = batch.source.len() / BATCH;
    let target = batch.target.len() / BATCH;
    let causal = masks::for_all(BATCH, &masks::causal(target, target));
    let padding = padding(target, source, batch.lens);
    let mut y = embed(table, &batch.target, tape);
    for (attention, norm, cross, norm_2, feed_forward, norm_3) in &layers.modules {
        y = norm.forward(add_attention(attention, y, None, &causal));
        y = norm_2.forward(add_attention(cross, y, Some(&memory), &padding));
        y = norm_3.forward(add_feed_forward(feed_forward, y));
    }
    let words: Traced<Rank2<VOCAB, D_MODEL>, f64> = table.weight.leaky_trace();
    y.matmul(words.permute::<_, Axes2<1, 0>>())
}

fn padding(queries: usize, keys: usize, lens: [usize; BATCH]) -> Mask {
    masks::for_each(lens.map(|len| masks::padding(queries, keys, len)).to_vec())
}

fn embed(table: &Table, ids: &[usize], tape: OwnedTape<f64, Cpu>) -> Sequences<D_MODEL> {
    let rows = table.forward(sequences(ids.to_vec()).put_tape(tape));
    let shape = *rows.shape();
    let waves = waves(shape.1, D_MODEL).repeat(BATCH);
    rows * SCALE + Cpu::default().tensor_from_vec(waves, shape)
}

/// `x + attention(x, context)`, where the context is `x` if there is no other.
fn add_attention(
    projections: &Projections<D_MODEL>,
    x: Sequences<D_MODEL>,
    context: Option<&Input<D_MODEL>>,
    mask: &Mask,
) -> Sequences<D_MODEL> {
    let (x, tape) = x.split_tape();
    let sides = [&x, context.unwrap_or(&x)];
    let attended = attend(projections, HEADS, sides, |scores| {
        normalizers::softmax(scores, mask)
    });
    x.put_tape(tape) + attended
}

/// `x + W₂ relu(W₁ x + b₁) + b₂`
fn add_feed_forward((up, down): &FeedForward, x: Sequences<D_MODEL>) -> Sequences<D_MODEL> {
    let hidden = up.forward(x.with_empty_tape()).relu();
    x + down.forward(hidden)
}

/// The mean over the targets that are not ignored.
fn mean_loss(logits: Sequences<VOCAB>, next: &[usize]) -> Traced<Rank0, f64> {
    let wanted = |&target: &usize| {
        let mut row = [SMOOTHING / VOCAB as f64; VOCAB];
        row[target] += 1.0 - SMOOTHING;
        if target == IGNORED { [0.0; VOCAB] } else { row }
    };
    let counted = next.iter().filter(|target| **target != IGNORED).count();
    let wanted: Vec<f64> = next.iter().flat_map(wanted).collect();
    let wanted = Cpu::default().tensor_from_vec(wanted, *logits.shape());
    -(logits.log_softmax::<Axis<2>>() * wanted).sum::<Rank0, _>() / counted as f64
}

#[test]
fn training_for_twenty_steps_is_the_same_with_dfdx_modules() {
    let declared = declared();
    let names = names(&declared);
    steps::are_the_same(declared, loss, |parameters, step| {
        train::<Modules>(&names, parameters, |modules| with_dfdx(modules, step))
    });
}
