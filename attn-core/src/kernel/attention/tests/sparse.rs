//! Sparse normalizers and sinks for known weights.

use super::case::{Case, NormalizerKind, Pattern, Tensors, attend};
use crate::kernel::attention::Sizes;
use crate::kernel::testing::{Absolute, assert_close, noise, on_every_isa};

/// The scores of four keys for every query are products with the columns of twice the identity matrix. The values are the
/// identity matrix, so that the output is the weights.
fn weights(normalizer: NormalizerKind, scores: &[[f64; 4]]) -> (Vec<f64>, Vec<f64>) {
    let sizes = Sizes {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        query: scores.len(),
        key: 4,
        width: 4,
        value_width: 4,
    };
    let case = Case {
        normalizer,
        ..Case::plain(sizes, Pattern::Everything)
    };
    let diagonal = |value| {
        (0..16)
            .map(|i| if i % 5 == 0 { value } else { 0.0 })
            .collect()
    };
    let x = Tensors {
        q: scores.concat(),
        k: diagonal(1.0 / case.scale()),
        v: diagonal(1.0),
        ..Tensors::zeros(&case)
    };
    let found = attend(&case, &x, &vec![1.0; scores.len() * 4]);
    assert!(
        found
            .d
            .each()
            .iter()
            .all(|(_, d)| d.iter().all(|d| d.is_finite()))
    );
    (found.out, found.lse)
}

#[test]
fn sparsemax_of_known_rows() {
    on_every_isa(|isa| {
        let rows = [
            [1.1, 0.1, 0.2, -9.0],
            [3.0, 1.0, 2.0, 1.5],
            [0.0, 0.0, 0.0, 0.0],
            [0.25, -0.25, -3.0, -4.0],
            [1e4, -1e4, 1e4, -1e4],
        ];
        let (found, tau) = weights(NormalizerKind::Sparsemax, &rows);
        let expected = [
            [0.95, 0.0, 0.05, 0.0],
            [1.0, 0.0, 0.0, 0.0],
            [0.25; 4],
            [0.75, 0.25, 0.0, 0.0],
            [0.5, 0.0, 0.5, 0.0],
        ];
        // Thresholds are sums of numbers up to 1e4.
        assert_close(isa, &found, expected.as_flattened(), Absolute(1e-15));
        assert_close(
            isa,
            &tau,
            &[0.15, 2.0, -0.25, -0.5, 9999.5],
            Absolute(1e-15),
        );
    });
}

#[test]
fn entmax15_of_known_rows() {
    on_every_isa(|isa| {
        // Of two keys, one is above the threshold by x and the other by y: x² + y² = 1, and x - y is half the difference of their
        // scores.
        let x = |t: f64| (t / 2.0 + (2.0 - t * t / 4.0).sqrt()) / 2.0;
        let rows = [
            [0.5, 0.0, -9.0, -9.0],
            [1.5, -9.0, 0.0, -9.0],
            [2.5, 0.0, 0.0, 0.0],
            [7.0, 7.0, 7.0, 7.0],
            [1e4, -1e4, 1e4, -1e4],
        ];
        let (found, _) = weights(NormalizerKind::Entmax15, &rows);
        let [near, far] = [x(0.5).powi(2), x(1.5).powi(2)];
        let expected = [
            [near, 1.0 - near, 0.0, 0.0],
            [far, 0.0, 1.0 - far, 0.0],
            [1.0, 0.0, 0.0, 0.0],
            [0.25; 4],
            [0.5, 0.0, 0.5, 0.0],
        ];
        // A few roundings of numbers around 1.
        assert_close(isa, &found, expected.as_flattened(), Absolute(1e-15));
    });
}

fn wide_case(normalizer: NormalizerKind) -> Case {
    let sizes = Sizes {
        batch: 1,
        heads: 2,
        kv_heads: 1,
        query: 3,
        key: 1300,
        width: 4,
        value_width: 1,
    };
    Case {
        normalizer,
        ..Case::plain(sizes, Pattern::Islands)
    }
}

#[test]
fn the_weights_of_a_long_row_sum_to_one() {
    for normalizer in [NormalizerKind::Sparsemax, NormalizerKind::Entmax15] {
        let case = wide_case(normalizer);
        let mut x = Tensors::<f32>::random(&case, 1);
        x.v.fill(1.0);
        let found = attend(&case, &x, &[1.0; 6]);
        let sums: Vec<f64> = found.out.iter().map(|&sum| f64::from(sum)).collect();
        // Some hundreds of weights, each rounded to 6e-8 of itself.
        assert_close("sums", &sums, &[1.0; 6], Absolute(1e-6));
        // All values are one, so the weights do not matter.
        assert!(found.d.q.iter().all(|d| d.abs() < 1e-5));
    }
}

#[test]
fn sinks_of_zero_are_softmax1() {
    let sink = wide_case(NormalizerKind::Sink);
    let x = Tensors {
        sink: vec![0.0; 2],
        ..Tensors::<f32>::random(&sink, 1)
    };
    let d_out = noise(6, 2);
    // The order of summation depends on the instruction set, so both results must come from the same one.
    on_every_isa(|_| {
        let found = attend(&sink, &x, &d_out);
        let softmax1 = attend(&wide_case(NormalizerKind::Softmax1), &x, &d_out);
        assert!(found.out == softmax1.out && found.lse == softmax1.lse);
        assert!(found.d.q == softmax1.d.q && found.d.k == softmax1.d.k);
        assert!(found.d.v == softmax1.d.v);
    });
}

#[test]
fn a_sink_of_minus_infinity_equals_softmax() {
    let sink = wide_case(NormalizerKind::Sink);
    let x = Tensors {
        sink: vec![f64::NEG_INFINITY; 2],
        ..Tensors::random(&sink, 1)
    };
    let d_out = noise(6, 2);
    on_every_isa(|_| {
        let found = attend(&sink, &x, &d_out);
        let softmax = attend(&wide_case(NormalizerKind::Softmax), &x, &d_out);
        assert!(found.out == softmax.out && found.d.k == softmax.d.k);
        assert_eq!(found.d.sink, [0.0; 2]);
    });
}
