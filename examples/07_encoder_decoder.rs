//! Lesson 7: the original Transformer of "Attention is all you need" (Vaswani et al. 2017): norms after the sums, sinusoidal
//! positions, one table for both languages and for the output, label smoothing, and a learning rate that rises and falls. It
//! translates written dates, "3 March 1987", to ISO 8601, "1987-03-03".
//!
//! It translates by sessions, which read the text once and go on character by character.
//!
//! In the end it shows which characters the model attends to as it writes: one attention in the terminal, and all of them on a
//! page, `encoder_decoder/report.html`, beside the losses.
//!
//! ```text
//! cargo run --release --example 07_encoder_decoder
//! ```

#[path = "dates.rs"]
mod dates;

use anyhow::{Result, ensure};
use attn::{
    batches::PaddedPairs,
    dfdx::prelude::*,
    maps::AttentionMap,
    model,
    train::{AdamWConfig, FitConfig, FitState, Noam},
    viz::{self, Head, Labels, TrainingLog, Viewer, terminal},
};
use clap::Parser;
use dates::{ANSWER, BEGIN, CHARACTERS, Date, END, Ids, Lens, ROOM, encode, letter, likeliest};
use rand::{SeedableRng, rngs::StdRng};
use std::{convert::Infallible, path::PathBuf};

const D_MODEL: usize = 64;
const BATCH: usize = 64;
model! {
    /// Reads `source`, and predicts the next character after each of `target`.
    struct Transformer<vocab = { CHARACTERS.len() }, d_model = D_MODEL, heads = 4, layers = 2, hidden = { 4 * D_MODEL }>;

    fn forward(source: ids[batch, s], target: ids[batch, t], lens: lens[batch]) -> [batch, t, vocab] {
        // In the paper, too, the tied table is small for the output, and is scaled up before the positions are added.
        let mut memory = embedding::<vocab, d_model, name = characters, init = normal(0.125)>(source) * 8 + sinusoidal_position::<d_model>(source);
        repeat layers, name = encoder {
            memory = layer_norm(memory + attention::<heads, mask = padding>(memory, padding = lens));
            memory = layer_norm(memory + feed_forward::<hidden, activation = relu>(memory));
        }
        let mut y = embedding::<tied = characters>(target) * 8 + sinusoidal_position::<d_model>(target);
        repeat layers, name = decoder {
            y = layer_norm(y + attention::<heads, mask = causal, name = self_attention>(y));
            y = layer_norm(y + attention::<heads, mask = padding, name = cross>(y, context = memory, padding = lens));
            y = layer_norm(y + feed_forward::<hidden, activation = relu>(y));
        }
        linear::<tied = characters>(y)
    }

    fn loss(source: ids[batch, s], target: ids[batch, t], lens: lens[batch], next: ids[batch, t]) -> [] {
        cross_entropy::<ignore_index = ROOM, label_smoothing = 0.1>(forward(source, target, lens), next)
    }
}

type Model = Transformer<f32, Cpu>;

/// The number of training steps.
const STEPS: u64 = 2400;

/// Translates dates.
#[derive(Parser)]
struct Options {
    /// Training steps
    #[arg(long, default_value_t = STEPS)]
    steps: u64,

    /// Folder of the report
    #[arg(long, default_value = "encoder_decoder")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let device = Cpu::seed_from_u64(7);
    println!("{}\n", Transformer::summary());
    let adam = AdamWConfig {
        betas: [0.9, 0.98],
        epsilon: 1e-9,
        weight_decay: 0.0,
        ..Default::default()
    };
    let schedule = Noam {
        d_model: D_MODEL,
        warm_up: 300,
        factor: 0.3,
    };
    let mut trainer = device
        .build_module::<Transformer, f32>()
        .trainer(adam)
        .schedule(schedule);

    let mut rng = StdRng::seed_from_u64(7);
    let batches = std::iter::repeat_with(|| Ok::<_, Infallible>(batch(&mut rng, true, &device)));
    let new = batch(&mut StdRng::seed_from_u64(8), false, &device);
    let mut state = FitState::default();
    let mut log = TrainingLog::replacing(&options.out, &state)?
        .work(BATCH, "dates")
        .title("Loss, in nats per character")
        .baseline("any character", (CHARACTERS.len() as f64).ln());
    let config = FitConfig {
        steps: options.steps,
        evaluate_every: 300,
        ..FitConfig::default()
    };
    trainer
        .fit(config)
        .evaluate(|trainer| trainer.evaluate(new.clone()))
        .measure("right", |trainer| accuracy(trainer.model(), &device, 200))
        .observe(|state, event| log.observe(state, event))
        .run(batches, &mut state)?;

    let model = trainer.into_model();
    let right = 100.0 * accuracy(&model, &device, 2000)?;
    println!("\nof 2000 dates that it never saw, {right:.2}% are right\n");
    report(&model, &device, &mut log, &options)?;
    if options.steps >= STEPS {
        ensure!(right > 99.0, "the dates have to be learned: {right:.2}%");
    }
    Ok(())
}

/// The arguments of the loss: texts, answers, the lengths of the texts, and the next characters of the answers.
fn batch(rng: &mut StdRng, to_learn: bool, device: &Cpu) -> (Ids, Ids, Lens, Ids) {
    let dates: Vec<Date> = (0..BATCH).map(|_| Date::random(rng, to_learn)).collect();
    let texts: Vec<String> = dates.iter().map(|date| date.text(rng)).collect();
    let PaddedPairs { source, target } = dates::batch(&dates, &texts, device);
    (source.ids, target.ids, source.lens, target.targets)
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

/// The share of held-out dates that are translated without a mistake.
fn accuracy(model: &Model, device: &Cpu, count: usize) -> Result<f64> {
    let rng = &mut StdRng::seed_from_u64(count as u64);
    let dates: Vec<Date> = (0..count).map(|_| Date::random(rng, false)).collect();
    let texts: Vec<String> = dates.iter().map(|date| date.text(rng)).collect();
    let answers = translate(model, &texts, device)?;
    let right = dates
        .iter()
        .zip(answers)
        .filter(|(date, answer)| date.iso() == *answer);
    Ok(right.count() as f64 / count as f64)
}

/// Draws one date's attention in the terminal, and writes a page for the run.
fn report(model: &Model, device: &Cpu, log: &mut TrainingLog, options: &Options) -> Result<()> {
    let rng = &mut StdRng::seed_from_u64(9);
    let date = Date::random(rng, false);
    let text = date.text(rng);
    let maps = attention_maps(model, device, date, &text);
    let mut viewer = Viewer::new(format!(
        "Attention while translating \u{201c}{text}\u{201d}"
    ));
    for map in &maps {
        viewer.add(map, &labels(map, date, &text))?;
    }
    if let Some(cross) = maps.last() {
        println!(
            "{}",
            terminal(cross, 0, Head::Mean, &labels(cross, date, &text))?
        );
    }

    viz::write(options.out.join("loss.svg"), &log.chart()?.svg()?)?;
    let texts: Vec<String> = (0..8).map(|_| Date::random(rng, false).text(rng)).collect();
    let answers = translate(model, &texts, device)?;
    log.report("Dates")?
        .table("Dates that it never saw", texts.iter().zip(answers))
        .maps(&viewer)
        .text("Parameters", &Transformer::summary())
        .picture(
            "Model",
            "The encoder and the decoder.",
            Transformer::graph_svg(),
        )
        .write(options.out.join("report.html"))?;
    println!(
        "metrics.jsonl, loss.svg and report.html are in {}",
        options.out.display()
    );
    Ok(())
}

/// The attention maps of the model for a date and its answer.
fn attention_maps(model: &Model, device: &Cpu, date: Date, text: &str) -> Vec<AttentionMap> {
    let (source, lens) = encode(&[text.to_owned()], device);
    let written = format!("<{}", date.iso()).chars().map(dates::id).collect();
    let target = device.tensor_from_vec(written, (1, ANSWER));
    model.attention_maps((source, target, lens))
}

/// The encoder reads the text. The decoder reads the answer so far. A query of its cross-attention is labelled with the character
/// that it predicts.
fn labels(map: &AttentionMap, date: Date, text: &str) -> Labels {
    let characters = |text: &str| [text.chars().map(String::from).collect::<Vec<_>>()];
    let source = characters(text);
    let answer = date.iso();
    match map.name() {
        name if name.starts_with("encoder") => Labels::same(source),
        name if name.ends_with("cross") => Labels::cross(characters(&format!("{answer}>")), source),
        _ => Labels::same(characters(&format!("<{answer}"))),
    }
}
