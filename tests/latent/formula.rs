//! Against the equations of the paper, number by number.

use super::*;
use attn::nn::{RmsNorm, UnbiasedLinear};

const WIDTH: usize = 12;
const HEADS: usize = 3;
const ROT: usize = 4;
const NOPE: usize = 6;
const VALUE: usize = 5;
const RANK: usize = 8;

fn matvec<const I: usize, const O: usize>(
    layer: &UnbiasedLinear<I, O, f64, Cpu>,
    x: &[f64],
) -> Vec<f64> {
    let weight = layer.weight.as_vec();
    weight.chunks(I).map(|row| dot(row, x)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn rms<const M: usize>(norm: &RmsNorm<M, f64, Cpu>, x: &[f64]) -> Vec<f64> {
    let root = (dot(x, x) / x.len() as f64 + norm.epsilon).sqrt();
    let gain = norm.weight.as_vec();
    x.iter()
        .zip(gain)
        .map(|(x, gain)| x / root * gain)
        .collect()
}

fn rotated(x: &[f64], position: usize) -> Vec<f64> {
    let half = x.len() / 2;
    let angle = |i: usize| position as f64 * 10000_f64.powf(-(i as f64) / half as f64);
    let first = (0..half).map(|i| x[i] * angle(i).cos() - x[i + half] * angle(i).sin());
    let second = (0..half).map(|i| x[i + half] * angle(i).cos() + x[i] * angle(i).sin());
    first.chain(second).collect()
}

/// Equations 37 to 47 of the paper, with weights `[rank, heads, width]` of the keys and values.
fn logits(model: &Mla<f64, Cpu>, tokens: &[usize]) -> Vec<f64> {
    let table = model.embedding.weight.as_vec();
    let [up_k, up_v] = [model.up_k.weight.as_vec(), model.up_v.weight.as_vec()];
    let x: Vec<&[f64]> = tokens
        .iter()
        .map(|token| &table[token * WIDTH..][..WIDTH])
        .collect();
    let latents: Vec<Vec<f64>> = x
        .iter()
        .map(|x| rms(&model.kv_norm, &matvec(&model.kv_down, x)))
        .collect();
    let up = |latent: &[f64], up: &[f64], head: usize, width: usize| -> Vec<f64> {
        let number = |i| {
            (0..RANK)
                .map(|r| latent[r] * up[(r * HEADS + head) * width + i])
                .sum()
        };
        (0..width).map(number).collect()
    };
    let mut logits = Vec::new();
    for (s, x_s) in x.iter().enumerate() {
        let q = rms(&model.q_norm, &matvec(&model.q_down, x_s));
        let q_rotated = matvec(&model.q_rotated, &q);
        let q_content = matvec(&model.q_content, &q);
        let mut heads = Vec::new();
        for head in 0..HEADS {
            let q_rotated = rotated(&q_rotated[head * ROT..][..ROT], s);
            let q_content = &q_content[head * NOPE..][..NOPE];
            let scores = (0..=s).map(|t| {
                let key = rotated(&matvec(&model.k_rotated, x[t]), t);
                let content = up(&latents[t], &up_k, head, NOPE);
                let score = dot(&q_rotated, &key) + dot(q_content, &content);
                (score / ((ROT + NOPE) as f64).sqrt()).exp()
            });
            let scores: Vec<f64> = scores.collect();
            let sum: f64 = scores.iter().sum();
            let mut value = vec![0.0; VALUE];
            for (t, score) in scores.iter().enumerate() {
                let of_token = up(&latents[t], &up_v, head, VALUE);
                value
                    .iter_mut()
                    .zip(of_token)
                    .for_each(|(to, v)| *to += score / sum * v);
            }
            heads.extend(value);
        }
        let y = matvec(&model.output, &heads);
        let y: Vec<f64> = y.iter().zip(*x_s).map(|(y, x)| x + y).collect();
        logits.extend(table.chunks(WIDTH).map(|row| dot(row, &y)));
    }
    logits
}

#[test]
fn both_forms_are_the_equations() {
    let mut model = Cpu::default().build_module::<Mla, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 5, 0, 2, 6];
    let expected = logits(&model, &tokens);
    let tokens = Cpu::default().tensor([tokens]);
    let what = [
        "expanded",
        "absorbed",
        "expanded, composed",
        "absorbed, composed",
    ];
    let found = [
        model.forward(tokens.clone()).as_vec(),
        model.decode(tokens.clone()).as_vec(),
        model.composed().forward(tokens.clone()).as_vec(),
        model.decode_composed(tokens).as_vec(),
    ];
    for (what, found) in what.into_iter().zip(found) {
        assert_close(what, &found, &expected, 1e-12);
    }
}

#[test]
fn both_forms_have_the_same_gradients() {
    let mut model = Cpu::default().build_module::<Mla, f64>();
    scatter(&mut model);
    for (batch, seq) in [(1, 1), (2, 9), (3, 40)] {
        let tokens = ids((batch, seq), 7);
        let expanded: Outcome =
            backpropagate(model.forward(tokens.leaky_trace())).parameters(&model);
        let absorbed = backpropagate(model.decode(tokens.leaky_trace())).parameters(&model);
        let composed =
            backpropagate(model.composed().forward(tokens.leaky_trace())).parameters(&model);
        // Sums over all tokens of numbers of other roundings.
        assert_same("absorbed", &absorbed, &expanded, 1e-12);
        assert_same("composed", &composed, &expanded, 1e-12);
    }
}
