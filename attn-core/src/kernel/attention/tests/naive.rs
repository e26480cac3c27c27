//! Attention by its definition, pair by pair.

use super::case::{Case, NormalizerKind, ResultGradients, Tensors, angles};
use super::scores::Modification;
use crate::kernel::attention::{Mask, Sizes};
use crate::kernel::testing::slope;
use crate::random::Philox4x32;

/// The output and `lse`.
pub(super) fn forward(case: &Case, x: &Tensors<f64>) -> (Vec<f64>, Vec<f64>) {
    let [out, lse, _] = results(case, x);
    (out, lse)
}

/// The output, `lse` and the weights.
pub(super) fn results(case: &Case, x: &Tensors<f64>) -> [Vec<f64>; 3] {
    let Sizes {
        batch,
        heads,
        kv_heads,
        query,
        key,
        width,
        value_width,
    } = case.sizes;
    let mut out = vec![0.0; batch * query * heads * value_width];
    let mut lse = vec![0.0; batch * heads * query];
    let mut all_weights = vec![0.0; batch * heads * query * key];
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let kv = h / (heads / kv_heads);
        let keys: Vec<_> = (0..key)
            .map(|k| {
                let row = &x.k[((b * key + k) * kv_heads + kv) * width..][..width];
                transformed(case, &biased(row, &x.key_bias, kv), &x.key_gain, k)
            })
            .collect();
        for q in 0..query {
            let row = &x.q[((b * query + q) * heads + h) * width..][..width];
            let row = transformed(case, &biased(row, &x.query_bias, h), &x.query_gain, q);
            let attended: Vec<usize> = (0..key)
                .filter(|&k| case.mask.attends(b, h, q, k))
                .collect();
            let scores: Vec<f64> = attended
                .iter()
                .map(|&k| score(case, x, (b, h), (q, &row), (k, &keys[k])))
                .collect();
            let sink = x.sink.get(h).copied();
            let (weights, log) = weights(case.normalizer, sink, &scores);
            lse[(b * heads + h) * query + q] = log;
            let out = &mut out[((b * query + q) * heads + h) * value_width..][..value_width];
            for (&k, weight) in attended.iter().zip(weights) {
                let weight = weight * factor(case, [b, h, q, k]);
                all_weights[((b * heads + h) * query + q) * key + k] = weight;
                let values = &x.v[((b * key + k) * kv_heads + kv) * value_width..][..value_width];
                let values = biased(values, &x.value_bias, kv);
                out.iter_mut()
                    .zip(values)
                    .for_each(|(out, v)| *out += weight * v);
            }
        }
    }
    [out, lse, all_weights]
}

/// A row of a head with its bias, if there is one.
pub(super) fn biased(x: &[f64], bias: &[f64], head: usize) -> Vec<f64> {
    if bias.is_empty() {
        return x.to_vec();
    }
    let bias = &bias[head * x.len()..];
    x.iter().zip(bias).map(|(x, bias)| x + bias).collect()
}

/// A query or a key after its norm and rotation.
pub(super) fn transformed(case: &Case, x: &[f64], gain: &[f64], position: usize) -> Vec<f64> {
    let width = x.len();
    let squares: f64 = x.iter().map(|x| x * x).sum();
    let mut x: Vec<f64> = match (case.rms, case.l2) {
        (true, _) => {
            let length = (squares / width as f64 + 1e-6).sqrt();
            x.iter()
                .zip(gain)
                .map(|(x, gain)| x / length * gain)
                .collect()
        }
        (false, true) => x.iter().map(|x| x / (squares + 1e-6).sqrt()).collect(),
        _ => x.to_vec(),
    };
    if case.rope {
        let (_, pairs, angles) = angles(case);
        for i in 0..pairs {
            let (sin, cos) = angles[position * pairs + i].sin_cos();
            (x[i], x[i + pairs]) = (
                x[i] * cos - x[i + pairs] * sin,
                x[i + pairs] * cos + x[i] * sin,
            );
        }
    }
    x
}

fn score(
    case: &Case,
    x: &Tensors<f64>,
    (b, h): (usize, usize),
    (q, query): (usize, &[f64]),
    (k, key): (usize, &[f64]),
) -> f64 {
    let pairs = query.iter().zip(key);
    let score: f64 = match case.additive {
        true => pairs
            .zip(&x.w[h * query.len()..])
            .map(|((q, k), w)| w * (q + k).tanh())
            .sum(),
        false => pairs.map(|(q, k)| q * k).sum::<f64>() * case.scale(),
    };
    modified(case, x, [b, h, q, k], score)
}

/// The score of a pair, from its similarity.
pub(super) fn modified(case: &Case, x: &Tensors<f64>, [b, h, q, k]: [usize; 4], score: f64) -> f64 {
    match case.score {
        None => score,
        Some(Modification::SoftCap(cap)) => cap * (score / cap).tanh(),
        Some(Modification::Placed(cap)) => {
            let table = x.table[h * case.distances() + k + (case.sizes.query - 1) - q];
            let distance = q as f64 - k as f64;
            let factor = ((b + h + 2 * q + 3 * k) % 5) as f64 / 4.0;
            let shift = x.shifts[(distance + 3.0).clamp(0.0, 6.0) as usize];
            let sum = score * table + x.slopes[h] * distance / 16.0 * factor + shift;
            cap * (sum / cap).tanh()
        }
    }
}

/// The weights of attended keys, and `lse`.
pub(super) fn weights(
    normalizer: NormalizerKind,
    sink: Option<f64>,
    scores: &[f64],
) -> (Vec<f64>, f64) {
    match normalizer {
        NormalizerKind::Identity => (scores.to_vec(), 0.0),
        NormalizerKind::Softmax => softmax(None, scores),
        NormalizerKind::Softmax1 => softmax(Some(0.0), scores),
        NormalizerKind::Sink => softmax(sink, scores),
        NormalizerKind::Sparsemax => entmax(scores, |s, tau| (s - tau).max(0.0), 1.0),
        NormalizerKind::Entmax15 => entmax(scores, |s, tau| (s / 2.0 - tau).max(0.0).powi(2), 0.5),
    }
}

/// A softmax. A sink counts as one more key, whose weight is not returned.
fn softmax(sink: Option<f64>, scores: &[f64]) -> (Vec<f64>, f64) {
    let all = || scores.iter().copied().chain(sink);
    let max = all().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return (vec![0.0; scores.len()], max);
    }
    let sum: f64 = all().map(|s| (s - max).exp()).sum();
    (
        scores.iter().map(|s| (s - max).exp() / sum).collect(),
        max + sum.ln(),
    )
}

/// The threshold by bisection: it is below the largest score, by at most 1.
fn entmax(scores: &[f64], weight: impl Fn(f64, f64) -> f64, scale: f64) -> (Vec<f64>, f64) {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return (Vec::new(), max);
    }
    let mut below = max * scale - 1.0;
    let mut above = max * scale;
    for _ in 0..100 {
        let tau = (below + above) / 2.0;
        let sum: f64 = scores.iter().map(|&s| weight(s, tau)).sum();
        *(if sum > 1.0 { &mut below } else { &mut above }) = tau;
    }
    (scores.iter().map(|&s| weight(s, below)).collect(), below)
}

pub(super) fn factor(case: &Case, [b, h, q, k]: [usize; 4]) -> f64 {
    let Some(dropout) = case.dropout else {
        return 1.0;
    };
    let counter = [k / 4, q, h, dropout.first + b].map(|i| i as u32);
    let word = Philox4x32::new(dropout.seed).block(counter)[k % 4];
    match f64::from(word) < dropout.p * 2f64.powi(32) {
        true => 0.0,
        false => 1.0 / (1.0 - dropout.p),
    }
}

/// The sum of the results times their gradients, the function whose gradient is tested. An `lse` of -∞ counts as 0.
pub(super) fn loss(case: &Case, x: &Tensors<f64>, d: &ResultGradients<f64>) -> f64 {
    let [out, lse, weights] = results(case, x);
    let dot = |x: &[f64], d: &[f64]| -> f64 {
        let products = x.iter().zip(d).filter(|(x, _)| x.is_finite());
        products.map(|(x, d)| x * d).sum()
    };
    dot(&out, &d.out) + dot(&lse, &d.lse) + dot(&weights, &d.weights)
}

/// The step of a central difference. It is small where weights have kinks, which it must not cross.
fn step(case: &Case) -> f64 {
    if case.normalizer.is_sparse() {
        1e-7
    } else {
        1e-5
    }
}

/// The gradient by central differences, element by element.
pub(super) fn gradient(
    case: &Case,
    x: &Tensors<f64>,
    d_out: &ResultGradients<f64>,
) -> Tensors<f64> {
    let step = step(case);
    let mut gradient = Tensors::zeros(case);
    for (tensor, d) in gradient.each_mut().into_iter().enumerate() {
        for (i, d) in d.iter_mut().enumerate() {
            *d = slope(step, |by| {
                let mut x = x.clone();
                x.each_mut()[tensor][i] += by;
                loss(case, &x, d_out)
            });
        }
    }
    gradient
}

/// The derivative in the direction of one of the tensors, by a central difference.
pub(super) fn directional(
    case: &Case,
    x: &Tensors<f64>,
    d_out: &ResultGradients<f64>,
    tensor: usize,
    direction: &[f64],
) -> f64 {
    slope(step(case), |by| {
        let mut x = x.clone();
        for (x, direction) in x.each_mut()[tensor].iter_mut().zip(direction) {
            *x += by * direction;
        }
        loss(case, &x, d_out)
    })
}
