//! Lesson 13: the network in which attention began (Bahdanau et al. 2015), before there were Transformers. It is recurrent: a `scan` goes
//! over the characters of a date, "thursday, 5th of march 1998", from both ends, and another one writes "1998-03-05". Before it writes
//! a character, its state asks which of the characters that were read matter now: an `attend` at every step, with an additive score.
//!
//! In training it reads the right answer up to each character (teacher forcing). Afterwards it writes by itself, in sessions, which read
//! the dates once and remember the state of the decoder.
//!
//! In the end it shows its alignment for one date, as the paper does: in the terminal, and in `recurrent/alignment.svg` and
//! `recurrent/alignment.html`.
//!
//! ```text
//! cargo run --release --example 13_recurrent
//! ```

#[path = "dates.rs"]
mod dates;

use anyhow::{Result, ensure};
use attn::{
    batches::PaddedPairs,
    dfdx::prelude::*,
    model,
    train::{AdamWConfig, Cosine},
    viz::{self, Head, Labels, SvgOptions, Viewer, terminal},
};
use clap::Parser;
use dates::{ANSWER, BEGIN, CHARACTERS, Date, END, encode, id, letter, likeliest};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{fs, path::PathBuf};

const BATCH: usize = 64;

model! {
    /// Reads `source`, and predicts the next character after each of `target`.
    struct Translator<vocab = { CHARACTERS.len() }, d_model = 32, hidden = 64>;

    /// The gated recurrent unit of Cho et al. (2014).
    block gru(x: [.., n], h: [.., hidden]) -> [.., hidden] {
        let (xr, xz, xn) = split(linear::<{ 3 * hidden }, name = of_input>(x));
        let (hr, hz, hn) = split(linear::<{ 3 * hidden }, name = of_state>(h));
        let z = sigmoid(xz + hz);
        (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h
    }

    fn encode(source: ids[batch, s]) -> [batch, s, { 2 * hidden }] {
        let x = embedding::<vocab, d_model, name = source>(source);
        // Padding is the first of the characters.
        let is_text = if source != 0 { 1 } else { 0 };
        let forwards = scan s {
            state h: [batch, hidden] = 0;
            h = gru::<name = forwards>(x, h);
            yield h;
        };
        // It comes to the padding first, and leaves it with the state that it begins with.
        let backwards = scan s, reverse = true {
            state h: [batch, hidden] = 0;
            h = is_text * gru::<name = backwards>(x, h);
            yield h;
        };
        concat(forwards, backwards)
    }

    fn decode(target: ids[batch, t], memory: [batch, s, { 2 * hidden }], lens: lens[batch]) -> [batch, t, vocab] {
        let x = embedding::<vocab, d_model, name = target>(target);
        let keys = linear::<hidden, bias = false, name = keys>(memory);
        let y = scan t {
            state h: [batch, hidden] = tanh(linear::<hidden, name = start>(mean_pool(memory, lens)));
            let query = linear::<hidden, name = query>(h);
            let context = attend::<score = additive(hidden = hidden), mask = padding, name = alignment>(query, keys, memory, padding = lens);
            h = gru::<name = decoder>(concat(x, context), h);
            yield concat(h, context);
        };
        linear::<vocab>(y)
    }

    fn forward(source: ids[batch, s], target: ids[batch, t], lens: lens[batch]) -> [batch, t, vocab] {
        decode(target, encode(source), lens)
    }

    fn loss(source: ids[batch, s], target: ids[batch, t], lens: lens[batch], next: ids[batch, t]) -> [] {
        cross_entropy(forward(source, target, lens), next)
    }
}

type Model = Translator<f32, Cpu>;

/// The number of training steps.
const STEPS: u64 = 1500;

/// So many show that it learns, although it does not know the dates yet.
const FEW: u64 = 60;

/// Translates dates.
#[derive(Parser)]
struct Options {
    /// Training steps
    #[arg(long, default_value_t = STEPS)]
    steps: u64,

    /// Seed of the parameters and of the dates
    #[arg(long, default_value_t = 13)]
    seed: u64,

    /// Folder of the drawings
    #[arg(long, default_value = "recurrent")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let device = Cpu::seed_from_u64(options.seed);
    let mut rng = StdRng::seed_from_u64(options.seed);
    println!("{}\n", Translator::summary());
    let rates = Cosine {
        highest: 4e-3,
        lowest: 1e-4,
        warm_up: 50,
        steps: options.steps,
    };
    let mut trainer = device
        .build_module::<Translator, f32>()
        .trainer(AdamWConfig::default())
        .schedule(rates)
        .clip(1.0);
    let mut losses = Vec::new();
    for step in 1..=options.steps {
        let (dates, texts) = random(&mut rng, true, BATCH);
        let PaddedPairs { source, target } = dates::batch(&dates, &texts, &device);
        let batch = (source.ids, target.ids, source.lens, target.targets);
        let loss = trainer.step(batch)?.loss;
        losses.push(loss);
        if step % 250 == 0 || step == 1 {
            let right = 100.0 * accuracy(trainer.model(), &device, &mut rng, 200)?;
            println!("step {step:>4}  loss {loss:.3}  new dates without a mistake: {right:>5.1}%");
        }
    }
    let model = trainer.into_model();
    let right = 100.0 * accuracy(&model, &device, &mut rng, 2000)?;
    println!("\nof 2000 dates that it never saw, {right:.2}% are right\n");
    let (_, texts) = random(&mut rng, false, 8);
    for (text, answer) in texts.iter().zip(translate(&model, &texts, &device)?) {
        println!("{text:>34}   {answer}");
    }
    draw(&model, &device, &options)?;
    if options.steps >= STEPS {
        ensure!(right > 97.0, "the dates have to be learned: {right:.2}%");
    } else if let [first, .., last] = *losses
        && options.steps >= FEW
    {
        ensure!(
            last < 0.5 * first,
            "the loss has to fall: {first} to {last}"
        );
    }
    Ok(())
}

/// Dates of the training split, or of the one that is held out, and how they are written: some with the day of the week.
fn random(rng: &mut StdRng, to_learn: bool, count: usize) -> (Vec<Date>, Vec<String>) {
    let dates: Vec<Date> = (0..count).map(|_| Date::random(rng, to_learn)).collect();
    let texts = dates.iter().map(|date| match rng.gen_bool(0.3) {
        true => format!("{}, {}", date.weekday(), date.text(rng)),
        false => date.text(rng),
    });
    let texts = texts.collect();
    (dates, texts)
}

/// Greedy decoding of answers, character by character. The sessions read the texts once.
fn translate(model: &Model, texts: &[String], device: &Cpu) -> Result<Vec<String>> {
    let (source, lens) = encode(texts, device);
    let mut sessions = model.sessions(source, lens, ANSWER)?;
    let mut answers = vec![vec![BEGIN]; texts.len()];
    for place in 0..ANSWER {
        let last: Vec<usize> = answers.iter().map(|answer| answer[place]).collect();
        let logits = sessions.step(&last)?;
        for (text, answer) in answers.iter_mut().enumerate() {
            answer.push(likeliest(logits.row(text)));
        }
    }
    let words = answers.iter().map(|answer| {
        let characters = answer[1..].iter().take_while(|id| **id != END);
        characters.map(|id| letter(*id)).collect()
    });
    Ok(words.collect())
}

/// The fraction of held-out dates that are translated without a mistake.
fn accuracy(model: &Model, device: &Cpu, rng: &mut StdRng, count: usize) -> Result<f64> {
    let (dates, texts) = random(rng, false, count);
    let answers = translate(model, &texts, device)?;
    let right = dates
        .iter()
        .zip(answers)
        .filter(|(date, answer)| date.iso() == *answer);
    Ok(right.count() as f64 / count as f64)
}

/// What each character of an answer attended to, in the terminal, as a picture and as a page.
fn draw(model: &Model, device: &Cpu, options: &Options) -> Result<()> {
    let text = "thursday, 5th of march 1998".to_owned();
    let answer = translate(model, std::slice::from_ref(&text), device)?.remove(0);
    let (source, lens) = encode(std::slice::from_ref(&text), device);
    let read: Vec<usize> = format!("<{answer}").chars().map(id).collect();
    let written = read.len();
    let target = device.tensor_from_vec(read, (1, written));
    let maps = model.attention_maps((source, target, lens));
    let map = &maps[0];

    let characters = |text: &str| [text.chars().map(String::from).collect::<Vec<_>>()];
    let labels = Labels::cross(characters(&format!("{answer}>")), characters(&text));
    println!("\n{}", terminal(map, 0, Head::Mean, &labels)?);
    fs::create_dir_all(&options.out)?;
    let picture = viz::svg(map, 0, Head::Mean, &labels, SvgOptions::default())?;
    viz::write(options.out.join("alignment.svg"), &picture)?;
    let mut viewer = Viewer::new(format!("Translating \u{201c}{text}\u{201d}"));
    viewer.add(map, &labels)?;
    viewer.write(options.out.join("alignment.html"))?;
    println!(
        "alignment.svg and alignment.html are in {}",
        options.out.display()
    );
    Ok(())
}
