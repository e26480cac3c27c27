//! Lesson 14: an encoder that has learned a language is taught a task. It reads passages of the King James Bible with words covered, and
//! learns to guess these (Devlin et al. 2019). Then it gets a new head, which tells of a passage what kind of book it is from, and which sees
//! only few passages with the answer. So it matters what is trained besides the head:
//!
//! - *frozen*: nothing;
//! - *LoRA*: low-rank adapters beside the matrices of the encoder, which stay (Hu et al. 2021);
//! - *full*: everything;
//! - *new*: everything, of an encoder that has learned nothing before.
//!
//! In the end the adapters are saved alone, loaded, and merged into the matrices, which then need no adapters.
//!
//! ```text
//! cargo run --release --example 14_fine_tune
//! ```

mod bible;

use anyhow::{Context, Result, ensure};
use attn::{
    batches::{BatchSampler, PaddedBatch, pad},
    checkpoint::{
        self, Archive, LoadOptions,
        layout::{LoadReport, WeightMap},
        lora,
    },
    prelude::*,
    train::{AdamWConfig, Cosine, TrainBatch, Trainable, Trainer},
};
use clap::Parser;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// Kinds of books, each with its number of books in their order.
const KINDS: [(&str, usize); 6] = [
    ("law", 5),
    ("history", 12),
    ("poetry", 5),
    ("prophets", 17),
    ("gospels", 5),
    ("letters", 22),
];

/// Words in place of which there are others: padding, covered ones, and rare ones.
const ROOM: usize = 0;
const COVERED: usize = 1;
const RARE: usize = 2;

const VOCAB: usize = 2000;
const WIDTH: usize = 64;
const LONGEST: usize = 40;
const BATCH: usize = 32;
/// Words of a passage that are covered.
const GUESSES: usize = 6;
/// Passages of each kind whose answer is known, and those that measure what was learned.
const LABELLED: usize = 25;
const MEASURED: usize = 150;

mod encoder {
    attn::model! {
        /// Reads the words of passages. All networks below have it.
        pub(super) block encoder(words: ids[batch, seq], lens: lens[batch], vocab, width, longest) -> [batch, seq, width] {
            let mut x = embedding::<vocab, width, init = normal(0.02)>(words);
            x += learned_position::<longest, width, init = normal(0.02)>(words);
            repeat 2 {
                x += attention::<heads = 4, mask = padding>(layer_norm(x), padding = lens);
                x += feed_forward::<{ 4 * width }, activation = gelu>(layer_norm(x));
            }
            layer_norm(x)
        }
    }
}

model! {
    use encoder::encoder;

    /// Guesses covered words, at given places.
    struct Guesser;

    fn forward(words: ids[batch, seq], lens: lens[batch], places: ids[batch, GUESSES]) -> [batch, GUESSES, VOCAB] {
        let x = encoder::<VOCAB, WIDTH, LONGEST>(words, lens);
        linear::<VOCAB, name = guess>(x[seq = places])
    }

    fn loss(words: ids[batch, seq], lens: lens[batch], places: ids[batch, GUESSES], covered: ids[batch, GUESSES]) -> [] {
        cross_entropy(forward(words, lens, places), covered)
    }
}

model! {
    use encoder::encoder;

    /// Tells the kind of a passage.
    struct Classifier<kinds = { KINDS.len() }>;

    fn forward(words: ids[batch, seq], lens: lens[batch]) -> [batch, kinds] {
        let x = encoder::<VOCAB, WIDTH, LONGEST>(words, lens);
        linear::<kinds, name = head>(mean_pool(x, lens))
    }

    fn loss(words: ids[batch, seq], lens: lens[batch], answers: ids[batch]) -> [] {
        cross_entropy(forward(words, lens), answers)
    }
}

model! {
    use encoder::encoder;

    /// The same with adapters. The head is trained whole, and saved beside them.
    struct Adapted<
        kinds = { KINDS.len() },
        lora(rank = 4, alpha = 8, on = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"], save = ["head"]),
    >;

    fn forward(words: ids[batch, seq], lens: lens[batch]) -> [batch, kinds] {
        let x = encoder::<VOCAB, WIDTH, LONGEST>(words, lens);
        linear::<kinds, name = head>(mean_pool(x, lens))
    }

    fn loss(words: ids[batch, seq], lens: lens[batch], answers: ids[batch]) -> [] {
        cross_entropy(forward(words, lens), answers)
    }
}

/// Teaches an encoder a language, and then a task.
#[derive(Parser)]
struct Options {
    /// Steps of each training on the task; there are twelve times as many on the language
    #[arg(long, default_value_t = STEPS)]
    steps: u64,

    /// Folder of the encoder and of the adapters
    #[arg(long, default_value = "fine_tune")]
    out: PathBuf,
}

const STEPS: u64 = 100;

fn main() -> Result<()> {
    let options = Options::parse();
    let device = Cpu::seed_from_u64(14);
    let texts = Texts::read()?;
    let task = Task {
        texts: &texts,
        steps: options.steps,
        device: &device,
    };
    fs::create_dir_all(&options.out)?;

    // The language, of all passages but those that measure.
    println!("{}", Guesser::summary());
    let guesser = learned_language(&texts, 12 * options.steps, &device)?;
    let file = options.out.join("encoder.safetensors");
    checkpoint::save(&guesser, &file)?;

    // The task, in four ways. Few numbers are trained with a higher rate than all of them.
    let (classifier, report) = with_encoder::<Classifier>(&file, &device)?;
    println!("\nthe encoder with a new head: {report}\n");
    println!(
        "{:<10}{:>11}{:>20}{:>12}{:>12}",
        "", "right", "trained parameters", "optimizer", "a step"
    );
    let adamw = AdamWConfig::default();
    let frozen = classifier.trainer(adamw).freeze("*").unfreeze("head.*");
    task.learn("frozen", 1e-2, frozen)?;
    let (adapted, _) = with_encoder::<Adapted>(&file, &device)?;
    let adapters = adapted.trainer(adamw).only_adapters();
    let (tuned, right) = task.learn("LoRA", 3e-3, adapters)?;
    let (classifier, _) = with_encoder::<Classifier>(&file, &device)?;
    task.learn("full", 1e-3, classifier.trainer(adamw))?;
    let new = device.build_module::<Classifier, f32>();
    task.learn("new", 1e-3, new.trainer(adamw))?;

    // The adapters and the head alone, as PEFT saves them: whoever has the encoder needs no more.
    let folder = options.out.join("adapter");
    lora::save(&tuned, &WeightMap::identity(), &folder)?;
    let (mut again, _) = with_encoder::<Adapted>(&file, &device)?;
    let options = LoadOptions::default();
    lora::load(&mut again, &WeightMap::identity(), &folder, options)?;
    ensure!(
        task.answers(&again)? == task.answers(&tuned)?,
        "loaded adapters answer the same"
    );
    // Merged, they cost nothing. The numbers are rounded once more.
    let mut merged = device.build_module::<Classifier, f32>();
    lora::merge(&again, &mut merged)?;
    let merged = task.right(&merged)?;
    ensure!(
        (merged - right).abs() < 0.005,
        "{merged}, and {right} before"
    );
    let kilobytes = |path: &Path| anyhow::Ok(fs::metadata(path)?.len() as f64 / 1e3);
    println!(
        "\nadapters and head are a file of {:.0} kB, beside {:.0} kB of the encoder; loaded and merged, they are right about {:.1}%",
        kilobytes(&folder.join("adapter_model.safetensors"))?,
        kilobytes(&file)?,
        100.0 * merged
    );
    Ok(())
}

/// A network with the encoder in this file. Its head is not that of the file, which guesses words: it stays as it is built, and so do adapters.
fn with_encoder<M>(file: &Path, device: &Cpu) -> Result<(M, LoadReport)>
where
    M: BuildModule<Cpu, f32> + TensorCollection<f32, Cpu>,
{
    let map = WeightMap::identity().ignore("guess.*").fresh("head.*");
    let mut model = M::build(device);
    let options = LoadOptions::default();
    let report = Archive::open(file)?.load_mapped(&mut model, &map.without_adapters(), options)?;
    Ok((model, report))
}

/// Passages as tokens.
struct Texts {
    language: Vec<Vec<usize>>,
    /// With their kinds.
    labelled: Vec<(Vec<usize>, usize)>,
    measured: Vec<(Vec<usize>, usize)>,
}

impl Texts {
    /// Every eighth chapter is for measuring.
    fn read() -> Result<Self> {
        let mut rng = StdRng::seed_from_u64(14);
        let kinds = KINDS.iter().enumerate();
        let kinds = kinds.flat_map(|(kind, (_, books))| vec![kind; *books]);
        let chapters = bible::books()?.into_iter().zip(kinds);
        let chapters =
            chapters.flat_map(|(book, kind)| book.into_iter().map(move |verses| (verses, kind)));
        let (mut learned, mut measured) = (Vec::new(), Vec::new());
        for (number, (verses, kind)) in chapters.enumerate() {
            let to = if number % 8 == 7 {
                &mut measured
            } else {
                &mut learned
            };
            let words: Vec<String> = verses.iter().flat_map(|verse| words(verse)).collect();
            let passages = words
                .chunks(LONGEST)
                .filter(|words| words.len() > LONGEST / 2);
            to.extend(passages.map(|words| (words.to_vec(), kind)));
        }
        let ids = vocabulary(&learned);
        let [learned, measured] = [learned, measured].map(|mut passages| {
            passages.shuffle(&mut rng);
            let passages = passages.into_iter().map(|(words, kind)| {
                let words = words.iter().map(|word| *ids.get(word).unwrap_or(&RARE));
                (words.collect::<Vec<_>>(), kind)
            });
            passages.collect::<Vec<_>>()
        });
        let of_each_kind = |passages: &[(Vec<usize>, usize)], count: usize| {
            let kinds = 0..KINDS.len();
            let some = kinds.flat_map(|wanted| {
                passages
                    .iter()
                    .filter(move |(_, kind)| *kind == wanted)
                    .take(count)
            });
            some.cloned().collect()
        };
        Ok(Self {
            labelled: of_each_kind(&learned, LABELLED),
            measured: of_each_kind(&measured, MEASURED),
            language: learned.into_iter().map(|(words, _)| words).collect(),
        })
    }
}

/// The words of a verse, in small letters.
fn words(verse: &str) -> Vec<String> {
    let words = verse.split(|letter: char| !letter.is_alphabetic());
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// The ids of the words that are there most often.
fn vocabulary(passages: &[(Vec<String>, usize)]) -> HashMap<String, usize> {
    let mut counts = HashMap::<&String, usize>::new();
    for word in passages.iter().flat_map(|(words, _)| words) {
        *counts.entry(word).or_default() += 1;
    }
    let mut words: Vec<_> = counts.into_iter().collect();
    words.sort_by_key(|(word, count)| (std::cmp::Reverse(*count), *word));
    let words = words.into_iter().map(|(word, _)| word.clone());
    words.zip(RARE + 1..VOCAB).collect()
}

/// An encoder that guesses covered words.
fn learned_language(texts: &Texts, steps: u64, device: &Cpu) -> Result<Guesser<f32, Cpu>> {
    let mut rng = StdRng::seed_from_u64(14);
    let mut trainer = device
        .build_module::<Guesser, f32>()
        .trainer(AdamWConfig::default())
        .schedule(rates(3e-3, steps))
        .clip(1.0);
    let batches = BatchSampler::new(texts.language.len(), BATCH)?
        .shuffled(14)
        .drop_last()
        .endless();
    let (mut loss, mut count) = (0.0, 0);
    for (step, batch) in (1..=steps).zip(batches) {
        let (mut passages, mut places, mut covered) = (Vec::new(), Vec::new(), Vec::new());
        for index in batch {
            let mut passage = texts.language[index].clone();
            for place in rand::seq::index::sample(&mut rng, passage.len(), GUESSES) {
                places.push(place);
                covered.push(std::mem::replace(&mut passage[place], COVERED));
            }
            passages.push(passage);
        }
        let PaddedBatch { ids, lens } = pad(&passages, ROOM, device)?;
        let guesses = |ids| device.tensor_from_vec(ids, (BATCH, Const::<GUESSES>));
        loss += trainer
            .step((ids, lens, guesses(places), guesses(covered)))?
            .loss;
        count += 1;
        if step % (steps / 6).max(1) == 0 {
            println!(
                "step {step:>4}  loss of guessed words {:.3}",
                loss / f64::from(count)
            );
            (loss, count) = (0.0, 0);
        }
    }
    Ok(trainer.into_model())
}

fn rates(highest: f64, steps: u64) -> Cosine {
    Cosine {
        highest,
        lowest: 0.05 * highest,
        warm_up: steps / 10,
        steps,
    }
}

type Ids = Tensor<(usize, usize), usize, Cpu>;
type Lens = Tensor<(usize,), usize, Cpu>;
type Logits = Tensor<(usize, Const<{ KINDS.len() }>), f32, Cpu>;

/// Kinds of passages, learned from the few whose kinds are known.
struct Task<'a> {
    texts: &'a Texts,
    steps: u64,
    device: &'a Cpu,
}

impl Task<'_> {
    /// Trains a network, and prints its line of the table.
    fn learn<M>(&self, name: &str, rate: f64, trainer: Trainer<M, AdamWConfig>) -> Result<(M, f64)>
    where
        M: Trainable<Element = f32, Device = Cpu> + Module<(Ids, Lens), Output = Logits>,
        (Ids, Lens, Lens): TrainBatch<M>,
    {
        let mut trainer = trainer.schedule(rates(rate, self.steps)).clip(1.0);
        let texts = &self.texts.labelled;
        let batches = BatchSampler::new(texts.len(), BATCH)?
            .shuffled(14)
            .drop_last()
            .endless();
        let mut seconds = 0.0;
        for (_, batch) in (0..self.steps).zip(batches) {
            let passages = batch.iter().map(|index| &texts[*index].0);
            let PaddedBatch { ids, lens } = pad(passages, ROOM, self.device)?;
            let answers = batch.iter().map(|index| texts[*index].1).collect();
            let answers = self.device.tensor_from_vec(answers, (BATCH,));
            let start = Instant::now();
            trainer.step((ids, lens, answers))?;
            seconds += start.elapsed().as_secs_f64();
        }
        let trained = trainer
            .parameters()
            .into_iter()
            .filter(|parameter| !parameter.frozen);
        let trained: usize = trained
            .map(|parameter| parameter.dims.iter().product::<usize>())
            .sum();
        let numbers: usize = trainer.state().lists.values().map(Vec::len).sum();
        let model = trainer.into_model();
        let right = self.right(&model)?;
        println!(
            "{name:<10}{:>10.1}%{trained:>20}{:>9.0} kB{:>9.1} ms",
            100.0 * right,
            (numbers * size_of::<f32>()) as f64 / 1e3,
            1e3 * seconds / self.steps as f64
        );
        Ok((model, right))
    }

    /// The kinds of the passages that measure.
    fn answers<M>(&self, model: &M) -> Result<Vec<usize>>
    where
        M: Module<(Ids, Lens), Output = Logits>,
    {
        let passages = self.texts.measured.iter().map(|(passage, _)| passage);
        let PaddedBatch { ids, lens } = pad(passages, ROOM, self.device)?;
        let logits = model.forward((ids, lens)).as_vec();
        let likeliest = |row: &[f32]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
        let answers = logits.chunks(KINDS.len()).map(likeliest);
        answers.collect::<Option<_>>().context("there are kinds")
    }

    /// The fraction of these that are right. A guess is right about one of six.
    fn right<M>(&self, model: &M) -> Result<f64>
    where
        M: Module<(Ids, Lens), Output = Logits>,
    {
        let answers = self.answers(model)?.into_iter().zip(&self.texts.measured);
        let right = answers.filter(|(answer, (_, kind))| answer == kind).count();
        Ok(right as f64 / self.texts.measured.len() as f64)
    }
}
