//! Lesson 12: a mixture of experts (Jacobs et al. 1991, Shazeer et al. 2017, Fedus et al. 2022). A router sends every token to one of several
//! small layers, and only that one is computed. A loss keeps it from sending all tokens to the same.
//!
//! The question: which letter stood here before it was enciphered? There are four ciphers and four experts. Nobody says which of these is to
//! read what: at the end a table shows what each has become.
//!
//! ```text
//! cargo run --release --example 12_mixture
//! ```

use anyhow::{Result, ensure};
use attn::{
    dfdx::prelude::*,
    model,
    train::{AdamWConfig, Cosine},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

const LETTERS: usize = 26;
/// Each is a map of the alphabet: letter `i` becomes letter `a * i + b`.
const CIPHERS: [(&str, usize, usize); 4] = [
    ("Caesar", 1, 3),
    ("ROT13", 1, 13),
    ("Atbash", 25, 25),
    ("affine", 5, 8),
];
const EXPERTS: usize = 4;
const BATCH: usize = 256;
const STEPS: u64 = 1000;
const TEXT: &str = "a mixture of experts learns to divide its work";

model! {
    /// Reads a letter and the name of its cipher, and tells the letter that is meant.
    struct Reader<letters = LETTERS, ciphers = { CIPHERS.len() }, experts = EXPERTS, d_model = 32>;

    /// The layer of a Switch Transformer: the result of the best expert, times the chance that the router gave it. Here an expert is one
    /// linear map, so it can learn one cipher, but not two.
    block switch(x: [.., n]) -> { y: [.., n], chosen: [.., experts], balance: [] } {
        let chances = softmax(linear::<experts, bias = false, name = router>(x));
        let (chance, ids) = top_k::<experts, k = 1>(chances);
        let y = sum::<1>(chance * grouped_linear::<n, groups = experts, name = expert>(x, ids));
        let chosen = sum::<1>(one_hot::<experts>(ids));
        // The share of the tokens of each expert, times its mean chance. The sum is the least, 1, if all are equal.
        let balance = experts * sum::<experts>(mean::<..>(chosen) * mean::<..>(chances));
        { y, chosen, balance }
    }

    fn forward(letter: ids[batch], cipher: ids[batch]) -> { logits: [batch, letters], chosen: [batch, experts], balance: [] } {
        let x = embedding::<letters, d_model, init = normal(0.1)>(letter) + embedding::<ciphers, d_model, name = cipher>(cipher);
        let { y, chosen, balance } = switch(x);
        { logits: linear::<letters>(y), chosen, balance }
    }

    fn loss(letter: ids[batch], cipher: ids[batch], plain: ids[batch]) -> [] {
        let { logits, balance, .. } = forward(letter, cipher);
        cross_entropy(logits, plain) + 0.02 * balance
    }
}

type Ids = Tensor<(usize,), usize, Cpu>;

fn main() -> Result<()> {
    // With another seed it may be that two experts divide a cipher by its letters.
    let device = Cpu::seed_from_u64(4);
    let mut rng = StdRng::seed_from_u64(4);
    println!("{}", Reader::summary());
    let rates = Cosine {
        highest: 5e-3,
        lowest: 1e-4,
        warm_up: 50,
        steps: STEPS,
    };
    let mut trainer = device
        .build_module::<Reader, f32>()
        .trainer(AdamWConfig::default())
        .schedule(rates)
        .clip(1.0);
    for step in 1..=STEPS {
        let tokens: Vec<Token> = (0..BATCH).map(|_| Token::random(&mut rng)).collect();
        let (letters, ciphers) = inputs(&tokens, &device);
        let plain = tokens.iter().map(|token| token.plain).collect();
        let plain = device.tensor_from_vec(plain, (BATCH,));
        let loss = trainer
            .step((letters.clone(), ciphers.clone(), plain))?
            .loss;
        if step % 200 == 0 || step == 1 {
            let balance = trainer.model().forward((letters, ciphers)).balance.array();
            println!("step {step:>4}  loss {loss:.3}  balance {balance:.3}");
        }
    }
    let reader = trainer.into_model();

    println!();
    for (cipher, (name, ..)) in CIPHERS.iter().enumerate() {
        let plain = TEXT.bytes().filter(u8::is_ascii_lowercase);
        let plain = plain.map(|letter| usize::from(letter - b'a'));
        let tokens: Vec<Token> = plain.map(|plain| Token { plain, cipher }).collect();
        let (read, _) = read(&reader, &device, &tokens);
        let [letters, read] = [tokens.iter().map(Token::letter).collect(), read].map(text);
        println!("{name:>6}   {letters}\n         {read}");
    }

    println!(
        "\nWhich expert reads what:\n\n          expert 1   expert 2   expert 3   expert 4   right"
    );
    let mut main_experts = Vec::new();
    for (cipher, (name, ..)) in CIPHERS.iter().enumerate() {
        let tokens: Vec<Token> = (0..LETTERS).map(|plain| Token { plain, cipher }).collect();
        let (read, experts) = read(&reader, &device, &tokens);
        let share = |count: usize| format!("{:.0}%", 100.0 * count as f64 / LETTERS as f64);
        let counts: Vec<usize> = (0..EXPERTS)
            .map(|expert| experts.iter().filter(|of| **of == expert).count())
            .collect();
        let cells: String = counts
            .iter()
            .map(|count| format!("{:>8}   ", share(*count)))
            .collect();
        let right = read
            .iter()
            .zip(&tokens)
            .filter(|(read, token)| **read == token.plain);
        let right = right.count();
        println!("{name:>6}    {cells}{:>5}", share(right));
        ensure!(
            right >= 24,
            "the {name} cipher has to be learned: {right} letters of 26"
        );
        let most = counts.iter().copied().max().unwrap_or(0);
        ensure!(
            most >= 21,
            "an expert has to read most of the {name} cipher: {most} letters of 26"
        );
        main_experts.extend(counts.iter().position(|count| *count == most));
    }
    main_experts.sort_unstable();
    ensure!(
        main_experts == [0, 1, 2, 3],
        "every cipher has to have an expert of its own: {main_experts:?}"
    );
    Ok(())
}

/// A letter that was enciphered.
struct Token {
    plain: usize,
    cipher: usize,
}

impl Token {
    fn random(rng: &mut StdRng) -> Self {
        Self {
            plain: rng.gen_range(0..LETTERS),
            cipher: rng.gen_range(0..CIPHERS.len()),
        }
    }

    /// The letter that the model reads.
    fn letter(&self) -> usize {
        let (_, a, b) = CIPHERS[self.cipher];
        (a * self.plain + b) % LETTERS
    }
}

fn inputs(tokens: &[Token], device: &Cpu) -> (Ids, Ids) {
    let ids = |id: fn(&Token) -> usize| {
        device.tensor_from_vec(tokens.iter().map(id).collect(), (tokens.len(),))
    };
    (ids(Token::letter), ids(|token| token.cipher))
}

/// The letters that the model reads, and the expert of each.
fn read(reader: &Reader<f32, Cpu>, device: &Cpu, tokens: &[Token]) -> (Vec<usize>, Vec<usize>) {
    let output = reader.forward(inputs(tokens, device));
    let largest = |numbers: Vec<f32>, width: usize| numbers.chunks(width).map(largest).collect();
    (
        largest(output.logits.as_vec(), LETTERS),
        largest(output.chosen.as_vec(), EXPERTS),
    )
}

/// The index of the largest number.
fn largest(numbers: &[f32]) -> usize {
    let numbered = numbers.iter().enumerate();
    numbered
        .max_by(|a, b| a.1.total_cmp(b.1))
        .map_or(0, |(index, _)| index)
}

/// The letters, with the spaces of the text.
fn text(letters: Vec<usize>) -> String {
    let mut letters = letters.into_iter();
    let next = |letter: char| match letter {
        ' ' => ' ',
        _ => letters
            .next()
            .map_or(' ', |letter| char::from(b'a' + letter as u8)),
    };
    TEXT.chars().map(next).collect()
}
