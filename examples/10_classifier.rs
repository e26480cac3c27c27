//! Lesson 10: an encoder of whole texts with mean pooling. Texts have different lengths: valid lengths exclude padding from the
//! attention and from the mean. A batch has texts of similar lengths, so that little of it is padding.
//!
//! The question: are all brackets closed in the right order?
//!
//! ```text
//! cargo run --release --example 10_classifier
//! ```

use anyhow::{Result, ensure};
use attn::{
    batches::{BatchSampler, PaddedBatch, pad},
    dfdx::prelude::*,
    model,
    train::{AdamWConfig, Cosine},
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

/// Two kinds of brackets, and padding.
const BRACKETS: [char; 5] = ['(', ')', '[', ']', ' '];
const ROOM: usize = 4;
const LONGEST: usize = 16;
const BATCH: usize = 64;
const STEPS: u64 = 1500;
/// Texts to learn from.
const TEXTS: usize = 20_000;

model! {
    /// Reads brackets, and answers yes or no.
    struct Reader<vocab = { BRACKETS.len() }, d_model = 48, layers = 2>;

    fn forward(tokens: ids[batch, seq], lens: lens[batch]) -> [batch, 2] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<LONGEST, d_model>(tokens);
        repeat layers {
            x += attention::<heads = 4, mask = padding>(layer_norm(x), padding = lens);
            x += feed_forward::<{ 4 * d_model }>(layer_norm(x));
        }
        linear::<2>(mean_pool(layer_norm(x), lens))
    }

    fn loss(tokens: ids[batch, seq], lens: lens[batch], answers: ids[batch]) -> [] {
        cross_entropy(forward(tokens, lens), answers)
    }
}

/// Texts as tokens, and the answers.
struct Texts {
    texts: Vec<Vec<usize>>,
    answers: Vec<usize>,
}

fn main() -> Result<()> {
    let device = Cpu::seed_from_u64(10);
    let mut rng = StdRng::seed_from_u64(10);
    println!("{}", Reader::summary());
    let rates = Cosine {
        highest: 2e-3,
        lowest: 1e-4,
        warm_up: 30,
        steps: STEPS,
    };
    let mut trainer = device
        .build_module::<Reader, f32>()
        .trainer(AdamWConfig::default())
        .schedule(rates)
        .clip(1.0);
    let texts = Texts::random(TEXTS, &mut rng);
    let lengths = texts.texts.iter().map(Vec::len).collect();
    let batches = BatchSampler::by_length(lengths, BATCH)?
        .shuffled(10)
        .drop_last()
        .endless();
    for (step, batch) in (1..=STEPS).zip(batches) {
        let batch = texts.some(&batch);
        let PaddedBatch { ids, lens } = batch.padded(&device)?;
        let answers = device.tensor_from_vec(batch.answers, (BATCH,));
        let loss = trainer.step((ids, lens, answers))?.loss;
        if step % 250 == 0 || step == 1 {
            let right = 100.0 * accuracy(trainer.model(), &device, &mut rng)?;
            println!("step {step:>4}  loss {loss:.3}  right about new texts: {right:.1}%");
        }
    }
    let reader = trainer.into_model();
    let right = accuracy(&reader, &device, &mut rng)?;
    // Half of the texts are closed, so a guess is right about half of the time. This run ends at 92%.
    ensure!(right > 0.8, "the brackets have to be learned: {right}");
    println!();
    let new = Texts::random(8, &mut rng);
    let found = answers(&reader, &device, &new)?;
    for (text, (answer, found)) in new.texts.iter().zip(new.answers.iter().zip(found)) {
        let text: String = text.iter().map(|token| BRACKETS[*token]).collect();
        let words = ["not closed", "closed"];
        println!(
            "{text:<16}  {:<10}  the model says {}",
            words[*answer], words[found]
        );
    }
    Ok(())
}

impl Texts {
    /// Half of the texts are closed. In the others, two brackets have swapped places or changed kinds.
    fn random(count: usize, rng: &mut StdRng) -> Self {
        let mut texts = Vec::new();
        let mut answers = Vec::new();
        for _ in 0..count {
            let mut text = closed(rng.gen_range(1..=LONGEST / 2), rng);
            if rng.r#gen() {
                let a = rng.gen_range(0..text.len());
                let b = rng.gen_range(0..text.len());
                text.swap(a, b);
                if rng.r#gen() {
                    text[a] = rng.gen_range(0..ROOM);
                }
            }
            answers.push(usize::from(is_closed(&text)));
            texts.push(text);
        }
        Self { texts, answers }
    }

    /// Those with these indices.
    fn some(&self, indices: &[usize]) -> Self {
        Self {
            texts: indices.iter().map(|&at| self.texts[at].clone()).collect(),
            answers: indices.iter().map(|&at| self.answers[at]).collect(),
        }
    }

    fn padded(&self, device: &Cpu) -> Result<PaddedBatch<Cpu>> {
        Ok(pad(&self.texts, ROOM, device)?)
    }
}

/// Pairs of brackets, nested or side by side.
fn closed(pairs: usize, rng: &mut StdRng) -> Vec<usize> {
    if pairs == 0 {
        return Vec::new();
    }
    let kind = *[0, 2].choose(rng).expect("one of two");
    let inside = rng.gen_range(0..pairs);
    let mut text = vec![kind];
    text.extend(closed(inside, rng));
    text.push(kind + 1);
    text.extend(closed(pairs - 1 - inside, rng));
    text
}

fn is_closed(text: &[usize]) -> bool {
    let mut open = Vec::new();
    for token in text {
        if token % 2 == 0 {
            open.push(*token);
        } else if open.pop() != Some(token - 1) {
            return false;
        }
    }
    open.is_empty()
}

fn answers(reader: &Reader<f32, Cpu>, device: &Cpu, texts: &Texts) -> Result<Vec<usize>> {
    let PaddedBatch { ids, lens } = texts.padded(device)?;
    let logits = reader.forward((ids, lens)).as_vec();
    let pairs = logits.chunks(2);
    Ok(pairs.map(|pair| usize::from(pair[1] > pair[0])).collect())
}

fn accuracy(reader: &Reader<f32, Cpu>, device: &Cpu, rng: &mut StdRng) -> Result<f64> {
    let new = Texts::random(500, rng);
    let found = answers(reader, device, &new)?;
    let right = found.iter().zip(&new.answers).filter(|(a, b)| a == b);
    Ok(right.count() as f64 / new.answers.len() as f64)
}
