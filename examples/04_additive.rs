//! Lesson 4: additive attention, the oldest kind (Bahdanau, Cho and Bengio, 2014), over sequences of different lengths. The score
//! is not a product of query and key, but a small network with one hidden layer: w · tanh(W_q q + W_k k).
//!
//! The task: find the largest number of each list. The lists are padded to one length with numbers that are larger still, so any
//! attention to the padding gives wrong answers.
//!
//! ```text
//! cargo run --release --example 04_additive
//! ```

use anyhow::Result;
use attn::attention;
use attn::dfdx::{optim::Adam, prelude::*};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// The number of lists in a batch, and of places in each list, of which some are padding.
const BATCH: usize = 32;
const PLACES: usize = 8;
/// The padding is larger than any number of a list, all of which are below 1.
const PADDING: f32 = 9.0;
const STEPS: usize = 600;

// `padding` in the mask makes the lengths a third input. `hidden` is the width of the hidden layer.
attention! {
    /// One question, of width 8, to a list of plain numbers.
    struct Largest<heads = 1, d_model = 8, d_context = 1, score = additive(hidden = 16), mask = padding>;
}

/// The attention, and a linear layer that outputs a number.
type Model = (Largest, Linear<8, 1>);
type Built = <Model as BuildOnDevice<Cpu, f32>>::Built;
/// One number for each question to each list: [batch, 1, 1].
type Numbers<T = NoneTape> = Tensor<(usize, usize, Const<1>), f32, Cpu, T>;
/// Attention weights, [batch, heads, query, key]. There is one head and one question.
type Weights = Tensor<(usize, Const<1>, usize, usize), f32, Cpu>;

fn main() -> Result<()> {
    let device = Cpu::seed_from_u64(4);
    let mut rng = StdRng::seed_from_u64(4);
    let mut model = device.build_module::<Model, f32>();
    let mut optimizer = Adam::new(
        &model,
        AdamConfig {
            lr: 1e-2,
            ..Default::default()
        },
    );
    let mut gradients = model.alloc_grads();

    for step in 1..=STEPS {
        let lists = Lists::random(BATCH, &mut rng, &device);
        let (found, _) = forward(&model, &lists, lists.question.clone().traced(gradients));
        let loss = mse_loss(found, lists.largest);
        if step == 1 || step % 100 == 0 {
            println!("step {step:>4}  off by about {:.3}", loss.array().sqrt());
        }
        gradients = loss.backward();
        optimizer.update(&mut model, &gradients)?;
        model.zero_grads(&mut gradients);
    }

    let lists = Lists::random(3, &mut rng, &device);
    let (found, weights) = forward(&model, &lists, lists.question.clone());
    println!("\nnumber, and the attention it gets");
    lists.draw(&found.as_vec(), &weights.as_vec());
    Ok(())
}

/// The model's answers for each list, and the attention weights.
fn forward<T: Tape<f32, Cpu>>(
    (attention, number): &Built,
    lists: &Lists,
    question: Tensor<(usize, usize, Const<8>), f32, Cpu, T>,
) -> (Numbers<T>, Weights) {
    let input = (question, lists.numbers.clone(), lists.lengths.clone());
    let (found, weights) = attention.forward_with_weights(input);
    (number.forward(found), weights.split_tape().0)
}

struct Lists {
    /// The same question to every list: [batch, 1, 8].
    question: Tensor<(usize, usize, Const<8>), f32, Cpu>,
    /// [batch, places, 1]
    numbers: Tensor<(usize, usize, Const<1>), f32, Cpu>,
    /// The length of each list: [batch].
    lengths: Tensor<(usize,), usize, Cpu>,
    largest: Numbers,
}

impl Lists {
    fn random(count: usize, rng: &mut StdRng, device: &Cpu) -> Self {
        let lengths: Vec<usize> = (0..count).map(|_| rng.gen_range(1..=PLACES)).collect();
        let mut numbers = vec![PADDING; count * PLACES];
        let mut largest = vec![];
        for (list, &length) in numbers.chunks_mut(PLACES).zip(&lengths) {
            list[..length].fill_with(|| rng.gen_range(0.0..1.0));
            largest.push(list[..length].iter().fold(0.0, |a: f32, &b| a.max(b)));
        }
        Self {
            question: device.ones_like(&(count, 1, Const::<8>)),
            numbers: device.tensor_from_vec(numbers, (count, PLACES, Const::<1>)),
            lengths: device.tensor_from_vec(lengths, (count,)),
            largest: device.tensor_from_vec(largest, (count, 1, Const::<1>)),
        }
    }

    /// Draws each list with a bar for the weight of each of its places.
    fn draw(&self, found: &[f32], weights: &[f32]) {
        let numbers = self.numbers.as_vec();
        let largest = self.largest.as_vec();
        for (i, length) in self.lengths.as_vec().into_iter().enumerate() {
            println!(
                "\n  the largest of {length} is {:.2}, found {:.2}",
                largest[i], found[i]
            );
            for at in 0..PLACES {
                let number = numbers[i * PLACES + at];
                let weight = weights[i * PLACES + at];
                let bar = "█".repeat((weight * 40.0).round() as usize);
                let note = if at < length { "" } else { "  padding" };
                println!("    {number:.2}  {weight:.3} {bar}{note}");
            }
        }
    }
}
