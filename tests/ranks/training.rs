//! Training on several ranks against one process that has the whole batch.

use std::ops::Range;

use attn::{
    Element,
    dfdx::prelude::*,
    model,
    train::{Algorithm, Collective, TrainBatch, TrainError, TrainStep, Trainable, Trainer},
};

model! {
    /// Attention, tied tables, and dropout at every place that has one.
    pub struct Gpt<vocab = 11, d_model = 8, p = 0.0>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat 2 {
            let h = attention::<2, mask = causal, position = rope, bias = [q, k, v], dropout = p>(layer_norm(x));
            x = x + dropout::<p>(h);
            x = x + feed_forward::<hidden = 12, dropout = p>(layer_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

model! {
    /// The same with dropout.
    pub struct Dropping<vocab = 11, d_model = 8, p = 0.25>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat 2 {
            let h = attention::<2, mask = causal, position = rope, dropout = p>(layer_norm(x));
            x = x + dropout::<p>(h);
            x = x + feed_forward::<hidden = 12, dropout = p>(layer_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

model! {
    /// With adapters that have dropout, and norms that are trained whole.
    pub struct Adapting<vocab = 11, d_model = 8, lora(
        rank = 2, alpha = 8, dropout = 0.25, on = ["q_proj", "v_proj", "up_proj", "linear"], save = ["layer_norm"],
    )>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat 2 {
            x = x + attention::<2, mask = causal, position = rope>(layer_norm(x));
            x = x + feed_forward::<hidden = 12>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

type Tokens = Tensor<(usize, usize), usize, Cpu>;
pub(crate) type Batch = (Tokens, Tokens);

/// The rows of a batch.
pub(crate) const ROWS: usize = 6;
const SEQ: usize = 5;
const VOCAB: usize = 11;

/// Some rows of the batch with this number.
pub(crate) fn batch(number: usize, rows: Range<usize>) -> Batch {
    let tokens = |shift: usize| -> Tokens {
        let len = rows.len();
        let places = rows.start * SEQ..rows.end * SEQ;
        let ids = places.map(|i| (i * i + (3 + number) * i + shift) % VOCAB);
        Cpu::default().tensor_from_vec(ids.collect(), (len, SEQ))
    };
    (tokens(number), tokens(number + 5))
}

/// The rows of each rank: of different numbers, and the last of three has none.
pub(crate) fn rows(rank: usize, ranks: usize) -> Range<usize> {
    match (ranks, rank) {
        (1, _) => 0..ROWS,
        (_, 0) => 0..2,
        (_, 1) => 2..ROWS,
        _ => ROWS..ROWS,
    }
}

pub(crate) trait Model<E: Element>: Trainable<Element = E, Device = Cpu> {
    /// Each rank begins with other parameters, of which those of rank 0 are taken.
    fn with_seed(seed: u64) -> Self;
}

macro_rules! models {
    ($($Model:ident of $E:ty),*) => {$(
        impl Model<$E> for $Model<$E, Cpu> {
            fn with_seed(seed: u64) -> Self {
                Cpu::seed_from_u64(seed).build_module::<$Model, $E>()
            }
        }
    )*};
}

models!(Gpt of f64, Gpt of f32, Dropping of f64, Adapting of f64);

/// The losses and norms of some steps on a rank.
pub(crate) fn steps<E: Element, M: Model<E>, A: Algorithm>(
    ranks: impl Collective + 'static,
    make: impl Fn(M) -> Trainer<M, A>,
    count: usize,
) -> Result<Vec<[f64; 2]>, TrainError<CpuError>>
where
    Batch: TrainBatch<M>,
{
    let mut trainer = make(M::with_seed(ranks.rank() as u64)).across(ranks);
    let rows = rows(trainer.rank(), trainer.ranks());
    let mut losses = Vec::new();
    for number in 0..count {
        let step = trainer.step(batch(number % 7, rows.clone()))?;
        losses.push([step.loss, step.grad_norm]);
    }
    Ok(losses)
}

/// How the gradients of a step come together.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum How {
    /// The gradients of the last batch are exchanged while others are computed.
    Early,
    /// All of them are exchanged behind all backward passes.
    Late,
}

pub(crate) type Steps = Vec<(TrainStep, Vec<f64>)>;

/// Some steps of so many batches on a rank, with the parameters behind each.
pub(crate) fn steps_in_a_way<M: Model<f64>, A: Algorithm>(
    trainer: &mut Trainer<M, A>,
    batches: usize,
    how: How,
    parameters: impl Fn(&M) -> Vec<f64>,
) -> Result<Steps, TrainError<CpuError>>
where
    Batch: TrainBatch<M>,
{
    let rows = rows(trainer.rank(), trainer.ranks());
    let mut steps = Vec::new();
    for number in 0..6 {
        for index in 1..batches {
            trainer.accumulate(batch(number + 2 * index, rows.clone()))?;
        }
        let last = batch(number, rows.clone());
        let step = match how {
            How::Early => trainer.step(last)?,
            How::Late => {
                trainer.accumulate(last)?;
                trainer.apply()?
            }
        };
        steps.push((step, parameters(trainer.model())));
    }
    Ok(steps)
}

/// The table, which is tied, and a part of each block.
pub(crate) fn of_gpt(model: &Gpt<f64, Cpu>) -> Vec<f64> {
    let blocks = model.blocks.modules.iter();
    let blocks = blocks.flat_map(|block| block.layer_norm_2.weight.as_vec());
    model
        .embedding
        .weight
        .as_vec()
        .into_iter()
        .chain(blocks)
        .collect()
}

/// That two runs have the same losses and norms, up to a difference.
pub(crate) fn assert_same(found: &[[f64; 2]], expected: &[[f64; 2]], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (found - expected).abs() <= tolerance,
                "step {step}: {found} and {expected}"
            );
        }
    }
}
