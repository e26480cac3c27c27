//! The Transformer of "Attention is all you need", declared, against the same out of dfdx's operations.

use super::*;
use crate::nn::positions;
use crate::reference::{
    Input, Mask, Parameters, Sequence, Split, State, Traced, attention, heads, masks, normalizers,
    parameters::Values,
};
use attn::{
    model,
    ops::{CrossEntropyOptions, cross_entropy},
};
use std::collections::BTreeMap;
use steps::ByName;

pub(super) const VOCAB: usize = 11;
pub(super) const D_MODEL: usize = 10;
pub(super) const HEADS: usize = 2;
pub(super) const LAYERS: usize = 2;
pub(super) const HIDDEN: usize = 7;
pub(super) const BATCH: usize = 3;
/// `√D_MODEL`
pub(super) const SCALE: f64 = 3.162_277_660_168_379_5;
pub(super) const SMOOTHING: f64 = 0.1;
/// The target behind a short sequence.
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

/// What a step learns from. In every other step the sources are longer than the targets, in the others shorter, and one of
/// them is empty.
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

/// Its loss on the data of a step.
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

/// The loss out of dfdx's operations, and its gradients.
fn with_dfdx(numbers: &ByName, dims: &BTreeMap<String, Vec<usize>>, step: usize) -> (f64, ByName) {
    let values = |(name, flat): (&String, &Vec<f64>)| {
        let (dims, flat) = (dims[name].clone(), flat.clone());
        (name.clone(), Values { dims, flat })
    };
    let state = State {
        values: numbers.iter().map(values).collect(),
    };
    let parameters = Parameters::new(&state);
    let batch = Batch::of_step(step);
    let logits = decode(&parameters, &batch, encode(&parameters, &batch));
    let loss = mean_loss(logits, &batch.next);
    let value = loss.array();
    (value, parameters.gradients(&loss.backward()))
}

fn encode(parameters: &Parameters<'_, f64>, batch: &Batch) -> Sequence<f64> {
    let length = batch.source.len() / BATCH;
    let mask = padding(length, length, batch.lens);
    let mut x = embed(parameters, &batch.source, Default::default());
    for index in 0..LAYERS {
        let layer = parameters.within(&format!("encoder.{index}"));
        x = attend(&layer, ["attention", "layer_norm"], x, None, &mask);
        x = feed_forward(&layer, "layer_norm_2", x);
    }
    x
}

/// The tape of the memory goes on with the targets, so that there is one in the end.
fn decode(parameters: &Parameters<'_, f64>, batch: &Batch, memory: Sequence<f64>) -> Sequence<f64> {
    let (memory, tape) = memory.split_tape();
    let (source, target) = (batch.source.len() / BATCH, batch.target.len() / BATCH);
    let causal = masks::for_all(BATCH, &masks::causal(target, target));
    let padding = padding(target, source, batch.lens);
    let mut y = embed(parameters, &batch.target, tape);
    for index in 0..LAYERS {
        let layer = parameters.within(&format!("decoder.{index}"));
        y = attend(&layer, ["attention", "layer_norm"], y, None, &causal);
        y = attend(
            &layer,
            ["cross", "layer_norm_2"],
            y,
            Some(&memory),
            &padding,
        );
        y = feed_forward(&layer, "layer_norm_3", y);
    }
    parameters.project("embedding", y)
}

fn padding(queries: usize, keys: usize, lens: [usize; BATCH]) -> Mask {
    masks::for_each(lens.map(|len| masks::padding(queries, keys, len)).to_vec())
}

fn embed(
    parameters: &Parameters<'_, f64>,
    ids: &[usize],
    tape: OwnedTape<f64, Cpu>,
) -> Sequence<f64> {
    let dev = Cpu::default();
    let table = parameters.tensor("embedding.weight", (VOCAB, D_MODEL));
    let ids_of_rows = dev.tensor_from_vec(ids.to_vec(), (ids.len(),));
    let rows: Traced<(usize, usize), f64> = table.put_tape(tape).gather(ids_of_rows);
    let length = ids.len() / BATCH;
    let waves = positions::naive(length, D_MODEL).repeat(BATCH);
    let shape = (BATCH, length, D_MODEL);
    rows.reshape_like(&shape) * SCALE + dev.tensor_from_vec(waves, shape)
}

/// `norm(x + attention(x, context))`, where the context is `x` if there is no other.
fn attend(
    parameters: &Parameters<'_, f64>,
    [layer, norm]: [&str; 2],
    x: Sequence<f64>,
    context: Option<&Input<f64>>,
    mask: &Mask,
) -> Sequence<f64> {
    let (x, tape) = x.split_tape();
    let (attended, _) = attention(
        &parameters.within(layer),
        Split::into_heads(HEADS),
        &x,
        context.unwrap_or(&x),
        heads::scaled_dot,
        |scores| normalizers::softmax(scores, mask),
    );
    layer_norm(&parameters.within(norm), x.put_tape(tape) + attended)
}

/// `norm(x + W₂ relu(W₁ x + b₁) + b₂)`
fn feed_forward(parameters: &Parameters<'_, f64>, norm: &str, x: Sequence<f64>) -> Sequence<f64> {
    let layer = parameters.within("feed_forward");
    let hidden = layer.project("up_proj", x.with_empty_tape()).relu();
    let fed = layer.project("down_proj", hidden);
    layer_norm(&parameters.within(norm), x + fed)
}

fn layer_norm(parameters: &Parameters<'_, f64>, x: Sequence<f64>) -> Sequence<f64> {
    let shape = *x.shape();
    let spread = |name| -> Sequence<f64> {
        let numbers = parameters.tensor(name, (D_MODEL,)).leaky_trace();
        numbers.broadcast_like::<_, Axes2<0, 1>>(&shape)
    };
    x.normalize::<Axis<2>>(1e-5) * spread("weight") + spread("bias")
}

/// The mean over the targets that are not ignored.
fn mean_loss(logits: Sequence<f64>, next: &[usize]) -> Traced<Rank0, f64> {
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
fn twenty_steps_of_training_are_the_same_out_of_dfdx_operations() {
    let declared = declared();
    let dims = tensors::parameters(&declared).into_iter();
    let dims = dims.map(|p| (p.name, p.dims)).collect();
    steps::are_the_same(declared, loss, |numbers, step| {
        with_dfdx(numbers, &dims, step)
    });
}
