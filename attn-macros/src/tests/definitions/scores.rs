//! Score modifications against the functions published with their papers.

use super::{float_at, modification, point};
use crate::score::eval::Point;
use crate::tests::random::formula::Pair;

fn at(q: i64, k: i64) -> Point<'static> {
    let longest = q.max(k) + 1;
    point(Pair {
        b: 0,
        q,
        k,
        q_len: longest,
        kv_len: longest,
    })
}

#[test]
fn scale_comes_before_soft_cap_and_position() {
    let expr = modification(
        "struct L<heads = 1, d_model = 4, scale = 3.0, softcap = 5.0, position = alibi>;",
    );
    for score in [-40.0, -1.0, 0.0, 0.3, 2.0, 1e4] {
        let point = Point { score, ..at(1, 5) };
        // One head has the slope 2^-8.
        let expected = 5.0 * (score * 3.0 / 5.0_f64).tanh() - 4.0 / 256.0;
        // Two ways of rounding the same formula.
        assert!((float_at(&expr, &point) - expected).abs() < 1e-12);
    }
}

#[test]
fn scores_have_their_default_scales() {
    for (score, scale) in [
        ("scaled_dot", 0.25),
        ("dot", 1.0),
        ("additive(hidden = 3)", 1.0),
        ("bilinear", 1.0),
    ] {
        let expr = modification(&format!(
            "struct L<heads = 2, d_model = 32, score = {score}>;"
        ));
        let point = Point {
            score: 7.0,
            ..at(0, 0)
        };
        assert_eq!(float_at(&expr, &point), 7.0 * scale, "{score}");
    }
    let given = modification("struct L<heads = 2, d_model = 32, scale = 2>;");
    let point = Point {
        score: 7.0,
        ..at(0, 0)
    };
    assert_eq!(float_at(&given, &point), 14.0);
    let root = modification("struct L<heads = 2, d_model = 32, scale = 1 / sqrt(4 * 4)>;");
    assert_eq!(float_at(&root, &point), 1.75);
}

/// `get_slopes` as published with the paper (Press et al. 2022).
fn published_slopes(heads: u32) -> Vec<f64> {
    fn of_a_power_of_two(n: u32) -> Vec<f64> {
        let start = 2f64.powf(-(2f64.powf(-(f64::from(n).log2() - 3.0))));
        (0..n).map(|i| start * start.powf(f64::from(i))).collect()
    }
    if heads.is_power_of_two() {
        return of_a_power_of_two(heads);
    }
    let closest = 1 << heads.ilog2();
    let rest = published_slopes(2 * closest).into_iter().step_by(2);
    let mut slopes = of_a_power_of_two(closest);
    slopes.extend(rest.take((heads - closest) as usize));
    slopes
}

#[test]
fn the_slopes_of_alibi_are_those_of_the_paper() {
    assert_eq!(published_slopes(8)[..3], [0.5, 0.25, 0.125]);
    for heads in 1..=20 {
        let expr = modification(&format!(
            "struct L<heads = {heads}, d_model = {heads}, score = dot, position = alibi>;"
        ));
        let slopes = published_slopes(heads);
        assert_eq!(slopes.len(), heads as usize);
        for (h, slope) in slopes.into_iter().enumerate() {
            for (q, k) in [(0, 0), (1, 0), (0, 1), (9, 2), (2, 9), (300, 1)] {
                let point = Point {
                    h: h as i64,
                    score: 0.5,
                    ..at(q, k)
                };
                let expected = 0.5 - slope * (q - k).abs() as f64;
                // An exponential on either side, times at most 300.
                assert!(
                    (float_at(&expr, &point) - expected).abs() < 1e-11,
                    "head {h} of {heads}"
                );
            }
        }
    }
}

/// `_relative_position_bucket` of the T5 implementations (Raffel et al. 2020), where `relative` is key minus query.
fn published_bucket(relative: i64, bidirectional: bool, buckets: i64, max_distance: i64) -> i64 {
    let mut bucket = 0;
    let mut buckets = buckets;
    let distance = if bidirectional {
        buckets /= 2;
        if relative > 0 {
            bucket += buckets;
        }
        relative.abs()
    } else {
        -relative.min(0)
    };
    let max_exact = buckets / 2;
    if distance < max_exact {
        return bucket + distance;
    }
    let log = (distance as f64 / max_exact as f64).ln();
    let log = log / (max_distance as f64 / max_exact as f64).ln();
    // A power that is an integer may be rounded in either direction by the logarithms.
    let large = max_exact + (log * (buckets - max_exact) as f64 + 1e-9) as i64;
    bucket + large.min(buckets - 1)
}

#[test]
fn published_buckets_have_their_known_values() {
    let buckets = [0, 1, 7, 8, 11, 12, 16, 64, 127, 128, 5000];
    let back = buckets.map(|distance| published_bucket(-distance, true, 32, 128));
    assert_eq!(back, [0, 1, 7, 8, 8, 9, 10, 14, 15, 15, 15]);
    let ahead = buckets.map(|distance| published_bucket(distance, true, 32, 128));
    assert_eq!(ahead, [0, 17, 23, 24, 24, 25, 26, 30, 31, 31, 31]);
    let causal = buckets.map(|distance| published_bucket(-distance, false, 32, 128));
    assert_eq!(causal, [0, 1, 7, 8, 11, 12, 16, 26, 31, 31, 31]);
}

#[test]
fn the_buckets_of_rel_pos_bias_are_those_of_t5() {
    for (buckets, max_distance) in [(32, 128), (8, 20), (4, 300), (64, 65), (32, 64), (12, 100)] {
        for causal in [false, true] {
            let mask = if causal { "causal" } else { "none" };
            let expr = modification(&format!(
                "struct L<heads = 2, d_model = 4, score = dot, mask = {mask}, \
                 position = rel_pos_bias({buckets}, {max_distance})>;"
            ));
            for relative in -300_i64..=300 {
                // Under the causal mask later keys are hidden, whatever their bucket.
                if causal && relative > 0 {
                    continue;
                }
                let q = (-relative).max(0);
                let k = relative.max(0);
                let expected = published_bucket(relative, !causal, buckets, max_distance);
                let case = format!("{buckets}, {max_distance}, {mask}, key - query = {relative}");
                assert_eq!(float_at(&expr, &at(q, k)), expected as f64, "{case}");
                // Only the distance counts.
                assert_eq!(
                    float_at(&expr, &at(q + 5, k + 5)),
                    expected as f64,
                    "{case}"
                );
            }
        }
    }
}
