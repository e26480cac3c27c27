//! Positions: rotary embedding, linear biases, relative position buckets.

use super::{Heads, number};
use dfdx::prelude::*;

/// Rotary position embedding: the two halves of a head are the real and imaginary parts of `width / 2` numbers, and number `i` at
/// position `p` is rotated by `p / theta^(2 i / width)`.
pub fn rope<E: Dtype>(x: Heads<E>, theta: f64) -> Heads<E>
where
    Cpu: Device<E>,
{
    let (batch, heads, length, width) = *x.shape();
    let half = width / 2;
    let shape = (batch, heads, length, half);
    let table = |of: fn(f64) -> f64| {
        let angle = |p: usize, i: usize| p as f64 / theta.powf(2.0 * i as f64 / width as f64);
        let angles = (0..length).flat_map(|p| (0..half).map(move |i| (p, i)));
        let values = angles.map(|(p, i)| number::<E>(of(angle(p, i)))).collect();
        Cpu::default()
            .tensor_from_vec(values, (length, half))
            .broadcast_like::<_, Axes2<0, 1>>(&shape)
    };
    let cos = table(f64::cos);
    let sin = table(f64::sin);
    // dfdx 0.13 overwrites the gradient of a sliced tensor instead of adding to it, so each part is sliced only once.
    let rest = x.with_empty_tape();
    let real = x.slice((0..batch, 0..heads, 0..length, 0..half));
    let imaginary = rest.slice((0..batch, 0..heads, 0..length, half..width));
    let turned_real =
        real.with_empty_tape() * cos.clone() - imaginary.with_empty_tape() * sin.clone();
    let turned_imaginary = real * sin + imaginary * cos;
    (turned_real, turned_imaginary).concat_along(Axis::<3>)
}

/// Attention with linear biases: the score decreases with the distance of the key, at another rate for every head.
pub fn alibi<E: Dtype>(scores: Heads<E>) -> Heads<E>
where
    Cpu: Device<E>,
{
    let shape = *scores.shape();
    let (_, heads, queries, keys) = shape;
    let mut biases = Vec::with_capacity(heads * queries * keys);
    for slope in alibi_slopes(heads) {
        for query in 0..queries {
            for key in 0..keys {
                biases.push(number::<E>(-slope * query.abs_diff(key) as f64));
            }
        }
    }
    let biases = Cpu::default().tensor_from_vec(biases, (heads, queries, keys));
    scores + biases.broadcast_like::<_, Axis<0>>(&shape)
}

/// The slopes of the paper (Press et al. 2022) and its code: a geometric sequence for a power of two; otherwise that of
/// the next lower power, then every other slope of the next higher one.
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    if heads.is_power_of_two() {
        let ratio = 0.5_f64.powf(8.0 / heads as f64);
        return (1..=heads).map(|i| ratio.powi(i as i32)).collect();
    }
    let lower = heads.next_power_of_two() / 2;
    let mut slopes = alibi_slopes(lower);
    slopes.extend(
        alibi_slopes(2 * lower)
            .iter()
            .step_by(2)
            .take(heads - lower),
    );
    slopes
}

/// T5's learned bias: a number for every bucket of relative positions and every head.
pub fn relative_bias<E: Dtype>(
    scores: Heads<E>,
    table: Tensor<(usize, usize), E, Cpu>,
    bucket: impl Fn(i64) -> usize,
) -> Heads<E>
where
    Cpu: Device<E>,
{
    let shape = *scores.shape();
    let (_, heads, queries, keys) = shape;
    let pairs = (0..queries as i64).flat_map(|q| (0..keys as i64).map(move |k| (q, k)));
    let buckets = pairs.map(|(q, k)| bucket(k - q)).collect();
    let buckets = Cpu::default().tensor_from_vec(buckets, (queries * keys,));
    let rows: super::Traced<(usize, usize), E> = table.leaky_trace().gather(buckets);
    let biases = rows
        .reshape_like(&(queries, keys, heads))
        .permute::<(usize, usize, usize), Axes3<2, 0, 1>>();
    scores + biases.broadcast_like::<_, Axis<0>>(&shape)
}

/// The bucket of a key that is `relative` positions after the query, on either side: one half of the buckets for each direction.
pub fn bucket_of_both_sides(relative: i64, buckets: usize, max_distance: usize) -> usize {
    let half = buckets / 2;
    let side = if relative > 0 { half } else { 0 };
    side + bucket_of_distance(relative.unsigned_abs() as usize, half, max_distance)
}

/// The bucket of a key that is `relative` positions after the query, if only earlier keys matter.
pub fn bucket_of_the_past(relative: i64, buckets: usize, max_distance: usize) -> usize {
    bucket_of_distance((-relative).max(0) as usize, buckets, max_distance)
}

/// The nearer half of the distances have a bucket each. The others are spaced by a constant factor up to `max_distance`, and the
/// last bucket takes all larger distances.
fn bucket_of_distance(distance: usize, buckets: usize, max_distance: usize) -> usize {
    let exact = buckets / 2;
    if distance < exact {
        return distance;
    }
    let spaced = (buckets - exact) as f64;
    let log = |from: usize, to: usize| (to as f64 / from as f64).ln();
    let steps = log(exact, distance) / log(exact, max_distance) * spaced;
    // A border that is an integer belongs to the upper bucket: 1e-9 is far above the rounding of the logarithms, and far below
    // the step from one integer to the next.
    (exact + (steps + 1e-9) as usize).min(buckets - 1)
}

#[test]
fn buckets_are_those_of_t5() {
    // From `T5Attention._relative_position_bucket` of Hugging Face's transformers.
    let past: Vec<usize> = [
        0, 1, 7, 15, 16, 17, 18, 19, 20, 21, 31, 32, 64, 127, 128, 5000,
    ]
    .map(|distance| bucket_of_the_past(-distance, 32, 128))
    .to_vec();
    assert_eq!(
        past,
        [0, 1, 7, 15, 16, 16, 16, 17, 17, 18, 21, 21, 26, 31, 31, 31]
    );
    assert_eq!(
        bucket_of_the_past(3, 32, 128),
        0,
        "the future is one bucket with the present"
    );

    let both: Vec<usize> = [0, -1, -7, -8, -15, -16, -128, 1, 7, 8, 128]
        .map(|relative| bucket_of_both_sides(relative, 32, 128))
        .to_vec();
    assert_eq!(both, [0, 1, 7, 8, 9, 10, 15, 17, 23, 24, 31]);
}

#[test]
fn slopes_are_those_of_the_paper() {
    let eight: Vec<f64> = (1..=8).map(|i| 0.5_f64.powi(i)).collect();
    // Powers of a rounded ratio: a rounding for each of up to 16 factors.
    let close = |a: &[f64], b: &[f64]| {
        a.len() == b.len()
            && a.iter()
                .zip(b)
                .all(|(a, b)| (a - b).abs() <= 16.0 * f64::EPSILON * b)
    };
    assert!(close(&alibi_slopes(8), &eight));
    let root = 0.5_f64.sqrt();
    assert!(close(
        &alibi_slopes(6),
        &[0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125]
    ));
    assert!(close(&alibi_slopes(3), &[0.0625, 0.003_906_25, 0.25]));
    assert!(close(
        &alibi_slopes(12)[8..],
        &[root, root * 0.5, root * 0.25, root * 0.125]
    ));
}
