//! Lesson 3: cross-attention between two sequences. The second one is a small dictionary, which is new and in a new order every
//! time, so that the model can only learn to look things up.
//!
//! ```text
//! cargo run --release --example 03_cross_attention
//! ```

use anyhow::Result;
use attn::attention;
use attn::dfdx::{optim::Adam, prelude::*};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

/// Letters are keys of the dictionary, digits are values.
const LETTERS: usize = 12;
const DIGITS: usize = 10;
/// The entries of a dictionary, the questions to it, and the dictionaries of a batch.
const ENTRIES: usize = 8;
const QUESTIONS: usize = 5;
const BATCH: usize = 16;
const STEPS: usize = 60;

// `d_context` is the width of the second sequence. With it the layer is a cross-attention: its input is a pair, whose two
// sequences may have different lengths.
attention! {
    /// Questions of width 16 attend to the entries of a dictionary, of width 32.
    struct LookUp<heads = 1, d_model = 16, d_context = 32>;
}

/// Embeddings of questions, and of letters and digits of an entry; the attention; and the logits of the answer.
type Model = (
    Embedding<LETTERS, 16>,
    Embedding<LETTERS, 32>,
    Embedding<DIGITS, 32>,
    LookUp,
    Linear<16, DIGITS>,
);
type Built = <Model as BuildOnDevice<Cpu, f32>>::Built;
type Ids<T = NoneTape> = Tensor<(usize, usize), usize, Cpu, T>;
type Scores<T> = Tensor<(usize, usize, Const<DIGITS>), f32, Cpu, T>;
/// Attention weights, [batch, heads, question, entry].
type Weights = Tensor<(usize, Const<1>, usize, usize), f32, Cpu>;

fn main() -> Result<()> {
    let device = Cpu::seed_from_u64(3);
    let mut rng = StdRng::seed_from_u64(3);
    let mut model = device.build_module::<Model, f32>();
    let mut optimizer = Adam::new(
        &model,
        AdamConfig {
            lr: 1e-2,
            ..Default::default()
        },
    );
    let mut gradients = model.alloc_grads();
    let shown = Task::random(1, &mut rng, &device);

    println!("Before training every entry gets about the same attention:\n");
    draw(&shown, &forward(&model, &shown, shown.letters.clone()).1);

    for step in 1..=STEPS {
        let task = Task::random(BATCH, &mut rng, &device);
        let (scores, _) = forward(&model, &task, task.letters.clone().traced(gradients));
        let right = task.count_right(&scores.as_vec());
        let loss = scores
            .log_softmax::<Axis<2>>()
            .select(task.answers)
            .mean()
            .negate();
        if step % 10 == 0 {
            let all = BATCH * QUESTIONS;
            println!(
                "step {step:>3}  loss {:.3}  right answers {right} of {all}",
                loss.array()
            );
        }
        gradients = loss.backward();
        optimizer.update(&mut model, &gradients)?;
        model.zero_grads(&mut gradients);
        if step == STEPS / 2 {
            println!("\nHalf way:\n");
            draw(&shown, &forward(&model, &shown, shown.letters.clone()).1);
        }
    }

    println!(
        "\nAfter training each question finds its letter, in a dictionary it was not trained on:\n"
    );
    draw(&shown, &forward(&model, &shown, shown.letters.clone()).1);
    Ok(())
}

/// The logits of the answers, and the attention weights. `letters` are those of the task, with a tape or without.
///
/// dfdx records operations on the tape, which is passed on: from the letters to the digits, and then to the first input of the
/// attention. The second input has no tape, but the operations before it are on the tape by then, so its embeddings learn as
/// well.
fn forward<T: Tape<f32, Cpu>>(
    (question, key, value, look_up, answer): &Built,
    task: &Task,
    letters: Ids<T>,
) -> (Scores<T>, Weights) {
    let (keys, tape) = key.forward(letters).split_tape();
    let values = value.forward(task.digits.clone().put_tape(tape));
    let (entries, tape) = (values + keys).split_tape();
    let questions = question.forward(task.questions.clone().put_tape(tape));
    let (found, weights) = look_up.forward_with_weights((questions, entries));
    (answer.forward(found), weights.split_tape().0)
}

/// Dictionaries, [batch, entries], and questions to them, [batch, questions].
struct Task {
    letters: Ids,
    digits: Ids,
    questions: Ids,
    answers: Ids,
}

impl Task {
    fn random(count: usize, rng: &mut StdRng, device: &Cpu) -> Self {
        let [mut letters, mut digits, mut questions, mut answers] = [const { vec![] }; 4];
        for _ in 0..count {
            let mut alphabet: Vec<usize> = (0..LETTERS).collect();
            alphabet.shuffle(rng);
            let page: Vec<_> = alphabet
                .into_iter()
                .take(ENTRIES)
                .map(|l| (l, rng.gen_range(0..DIGITS)))
                .collect();
            letters.extend(page.iter().map(|entry| entry.0));
            digits.extend(page.iter().map(|entry| entry.1));
            for entry in page.choose_multiple(rng, QUESTIONS) {
                questions.push(entry.0);
                answers.push(entry.1);
            }
        }
        let ids = |ids: Vec<usize>| {
            let len = ids.len() / count;
            device.tensor_from_vec(ids, (count, len))
        };
        Self {
            letters: ids(letters),
            digits: ids(digits),
            questions: ids(questions),
            answers: ids(answers),
        }
    }
    /// The number of questions whose right answer has the highest logit.
    fn count_right(&self, scores: &[f32]) -> usize {
        let best = scores.chunks(DIGITS).map(|row| {
            (0..DIGITS)
                .max_by(|&a, &b| row[a].total_cmp(&row[b]))
                .unwrap_or(0)
        });
        best.zip(self.answers.as_vec())
            .filter(|(found, answer)| found == answer)
            .count()
    }
}

/// Draws a row for each question and a column for each entry of the first dictionary.
fn draw(task: &Task, weights: &Weights) {
    let letter = |id: usize| char::from(b'a' + id as u8);
    let entries = task.letters.as_vec().into_iter().zip(task.digits.as_vec());
    let names: Vec<String> = entries.map(|(l, d)| format!("{}={d}", letter(l))).collect();
    println!("       {}", names.join("  "));
    let weights = weights.as_vec();
    for (question, row) in task
        .questions
        .as_vec()
        .into_iter()
        .zip(weights.chunks(ENTRIES))
    {
        let cells: Vec<&str> = row.iter().map(|&w| shade(w)).collect();
        println!("  {}?   {}", letter(question), cells.join("  "));
    }
    println!();
}

/// A weight between 0 and 1 as a darker or lighter cell.
fn shade(weight: f32) -> &'static str {
    ["  ·", "░░░", "▒▒▒", "▓▓▓", "███"][((weight * 5.0) as usize).min(4)]
}
