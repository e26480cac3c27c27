//! Lesson 11: a Vision Transformer (Dosovitskiy et al. 2021). A learned token stands before the patches of an image. What it has become at
//! the end is read to tell the class, and its attention shows which patches it looked at.
//!
//! The question: which digit is drawn? The example draws them itself, at any place of the image, with noise.
//!
//! ```text
//! cargo run --release --example 11_class_token
//! ```

use anyhow::{Result, ensure};
use attn::{
    dfdx::prelude::*,
    maps::AttentionMap,
    model,
    train::{AdamWConfig, Cosine},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Pixels of an image and of a patch, along each side.
const SIDE: usize = 12;
const PATCH: usize = 3;
/// Patches along each side.
const GRID: usize = SIDE / PATCH;
const BATCH: usize = 64;
const STEPS: u64 = 1200;

model! {
    /// Reads the patches of an image, and tells the digit.
    struct Vit<patches = { GRID * GRID }, pixels = { PATCH * PATCH }, tokens = { patches + 1 }, d_model = 48, layers = 3>;

    fn forward(image: [batch, patches, pixels]) -> [batch, 10] {
        param class: [1, d_model] = truncated_normal(0.02);
        param position: [tokens, d_model] = truncated_normal(0.02);
        let mut x = concat::<patches>(class, linear::<d_model>(image)) + position;
        repeat layers {
            x += attention::<heads = 4>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model }>(layer_norm(x));
        }
        linear::<10>(layer_norm(x[tokens = 0]))
    }

    fn loss(image: [batch, patches, pixels], digits: ids[batch]) -> [] {
        cross_entropy(forward(image), digits)
    }
}

type Images = Tensor<(usize, Const<{ GRID * GRID }>, Const<{ PATCH * PATCH }>), f32, Cpu>;

fn main() -> Result<()> {
    let device = Cpu::seed_from_u64(11);
    let mut rng = StdRng::seed_from_u64(11);
    println!("{}", Vit::summary());
    let rates = Cosine {
        highest: 2e-3,
        lowest: 1e-4,
        warm_up: 50,
        steps: STEPS,
    };
    let mut trainer = device
        .build_module::<Vit, f32>()
        .trainer(AdamWConfig::default())
        .schedule(rates)
        .clip(1.0);
    for step in 1..=STEPS {
        let digits = Digits::random(BATCH, &mut rng);
        let images = digits.tensor(&device);
        let classes = device.tensor_from_vec(digits.classes, (BATCH,));
        let loss = trainer.step((images, classes))?.loss;
        if step % 200 == 0 || step == 1 {
            let right = 100.0 * accuracy(trainer.model(), &device, &mut rng);
            println!("step {step:>4}  loss {loss:.3}  right about new images: {right:.1}%");
        }
    }
    let vit = trainer.into_model();
    let right = accuracy(&vit, &device, &mut rng);
    ensure!(right > 0.95, "the digits have to be learned: {right}");
    println!("\nAn image, and how much of its attention the class token gives to each patch:\n");
    let digits = Digits::random(4, &mut rng);
    let maps = vit.attention_maps(digits.tensor(&device));
    let found = classes(&vit, &device, &digits);
    for (index, class) in digits.classes.iter().enumerate() {
        let looks = class_token(&maps, index);
        for (row, pixels) in digits.images[index].chunks(SIDE).enumerate() {
            let image: String = pixels.iter().map(|pixel| shade(*pixel)).collect();
            let patches = &looks[row / PATCH * GRID..][..GRID];
            let largest = looks
                .iter()
                .fold(0.0_f32, |largest, look| largest.max(*look));
            let picture = patches
                .iter()
                .map(|look| shade(look / largest).repeat(PATCH));
            println!("    {image}   {}", picture.collect::<String>());
        }
        println!("    a {class}, and the model says {}\n", found[index]);
    }
    Ok(())
}

/// Images of digits, row by row, and which digits they are.
struct Digits {
    images: Vec<Vec<f32>>,
    classes: Vec<usize>,
}

/// Seven rows of five pixels for each digit.
const SHAPES: [[&str; 7]; 10] = [
    [
        " ### ", "#   #", "#   #", "#   #", "#   #", "#   #", " ### ",
    ],
    [
        "  #  ", " ##  ", "  #  ", "  #  ", "  #  ", "  #  ", " ### ",
    ],
    [
        " ### ", "#   #", "    #", "   # ", "  #  ", " #   ", "#####",
    ],
    [
        " ### ", "#   #", "    #", "  ## ", "    #", "#   #", " ### ",
    ],
    [
        "   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # ",
    ],
    [
        "#####", "#    ", "#### ", "    #", "    #", "#   #", " ### ",
    ],
    [
        " ### ", "#    ", "#    ", "#### ", "#   #", "#   #", " ### ",
    ],
    [
        "#####", "    #", "   # ", "   # ", "  #  ", "  #  ", "  #  ",
    ],
    [
        " ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### ",
    ],
    [
        " ### ", "#   #", "#   #", " ####", "    #", "    #", " ### ",
    ],
];

impl Digits {
    fn random(count: usize, rng: &mut StdRng) -> Self {
        let mut images = Vec::new();
        let mut classes = Vec::new();
        for _ in 0..count {
            let class = rng.gen_range(0..10);
            images.push(draw(class, rng));
            classes.push(class);
        }
        Self { images, classes }
    }

    /// The pixels of every patch, `[batch, patches, pixels]`.
    fn tensor(&self, device: &Cpu) -> Images {
        let mut numbers = Vec::new();
        for image in &self.images {
            for patch in 0..GRID * GRID {
                for pixel in 0..PATCH * PATCH {
                    let row = patch / GRID * PATCH + pixel / PATCH;
                    let column = patch % GRID * PATCH + pixel % PATCH;
                    numbers.push(image[row * SIDE + column]);
                }
            }
        }
        device.tensor_from_vec(numbers, (self.images.len(), Const, Const))
    }
}

/// A digit of any brightness at any place, with noise.
fn draw(class: usize, rng: &mut StdRng) -> Vec<f32> {
    let shape = SHAPES[class];
    let mut image: Vec<f32> = (0..SIDE * SIDE).map(|_| rng.gen_range(0.0..0.3)).collect();
    let top = rng.gen_range(0..=SIDE - shape.len());
    let left = rng.gen_range(0..=SIDE - shape[0].len());
    let ink = rng.gen_range(0.6..1.0);
    for (row, line) in shape.into_iter().enumerate() {
        for (column, pixel) in line.chars().enumerate() {
            if pixel == '#' {
                image[(top + row) * SIDE + left + column] = ink;
            }
        }
    }
    image
}

fn classes(vit: &Vit<f32, Cpu>, device: &Cpu, digits: &Digits) -> Vec<usize> {
    let logits = vit.forward(digits.tensor(device)).as_vec();
    let largest = |logits: &[f32]| {
        let numbered = logits.iter().enumerate();
        numbered
            .max_by(|a, b| a.1.total_cmp(b.1))
            .map_or(0, |(class, _)| class)
    };
    logits.chunks(10).map(largest).collect()
}

fn accuracy(vit: &Vit<f32, Cpu>, device: &Cpu, rng: &mut StdRng) -> f64 {
    let digits = Digits::random(500, rng);
    let found = classes(vit, device, &digits);
    let right = found.iter().zip(&digits.classes).filter(|(a, b)| a == b);
    right.count() as f64 / digits.classes.len() as f64
}

/// The attention of the class token to each patch, the mean of the heads and layers.
fn class_token(maps: &[AttentionMap], image: usize) -> Vec<f32> {
    let mut sums = vec![0.0; GRID * GRID];
    for map in maps {
        for head in 0..map.heads() {
            // The first key is the token itself.
            let row = &map.row(image, head, 0)[1..];
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, look)| *sum += look);
        }
    }
    sums
}

/// A character for a number from 0 to 1.
fn shade(number: f32) -> &'static str {
    const SHADES: [&str; 5] = [" ", "░", "▒", "▓", "█"];
    SHADES[((number * 5.0) as usize).min(4)]
}
