//! Unusual shapes and numbers.

use super::case::{Case, Pattern, ResultGradients, Tensors, attend, attention};
use super::naive;
use crate::kernel::attention::{Gradients, Sizes};
use crate::kernel::testing::{Absolute, assert_close, noise, wide};
use crate::kernel::{Matrix, MatrixMut};

/// Queries, keys and values are columns of one matrix, the layout of one projection.
#[test]
fn packed_tensors_are_read_and_written_in_place() {
    const LEN: usize = 150;
    let sizes = Sizes {
        batch: 2,
        heads: 4,
        kv_heads: 2,
        query: LEN,
        key: LEN,
        width: 3,
        value_width: 5,
    };
    let case = Case::plain(sizes, Pattern::Causal);
    let x = Tensors::<f32>::random(&case, 1);
    let d_out = noise(2 * LEN * 4 * 5, 2);
    let expected = attend(&case, &x, &d_out);

    let widths = [12, 6, 10];
    let rows = 2 * LEN;
    let cols = widths.iter().sum::<usize>();
    let columns = [0..12, 12..18, 18..28];
    let mut packed = vec![0.0; rows * cols];
    for (columns, tensor) in columns.iter().zip([&x.q, &x.k, &x.v]) {
        for (to, from) in packed.chunks_mut(cols).zip(tensor.chunks(columns.len())) {
            to[columns.clone()].copy_from_slice(from);
        }
    }
    let whole = Matrix::new(&packed, rows, cols);
    let [q, k, v] = columns.clone().map(|columns| whole.some_cols(columns));
    let none = Matrix::new(&[], 0, 0);
    let attention = attention(&case, &x, None, [none, none]);
    let mut out = vec![0.0; d_out.len()];
    let mut lse = vec![0.0; 2 * 4 * LEN];
    attention.forward(q, k, v, MatrixMut::new(&mut out, rows, 20), &mut lse);
    assert!(out == expected.out);

    let mut d = vec![f32::NAN; rows * cols];
    let (d_q, others) = MatrixMut::new(&mut d, rows, cols).split_cols(12);
    let (d_k, d_v) = others.split_cols(6);
    let gradients = Gradients {
        q: d_q,
        k: d_k,
        v: d_v,
        score: None,
        query_gain: None,
        key_gain: None,
        w: None,
        sink: None,
        mix_scores: None,
        mix_weights: None,
    };
    let out = Matrix::new(&out, rows, 20);
    let d_out = Matrix::new(&d_out, rows, 20);
    attention.backward(q, k, v, out, &lse, d_out, gradients);
    for (columns, tensor) in columns
        .iter()
        .zip([&expected.d.q, &expected.d.k, &expected.d.v])
    {
        for (found, expected) in d.chunks(cols).zip(tensor.chunks(columns.len())) {
            assert!(found[columns.clone()] == *expected);
        }
    }
}

#[test]
fn large_scores_choose_one_key() {
    let sizes = Sizes {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        query: 50,
        key: 200,
        width: 4,
        value_width: 3,
    };
    let case = Case::plain(sizes, Pattern::Everything);
    let mut x = Tensors::<f64>::random(&case, 1);
    // Scores up to about 1e4 in size, of both signs.
    x.q.iter_mut().for_each(|q| *q *= 1e4);
    let d_out = vec![1.0; 50 * 3];
    let (out, lse) = naive::forward(&case, &x);
    let found = attend(&case, &x, &d_out);
    // Half a unit in the last place of 1e4 is 1e-12, and so is the relative error of exp.
    assert_close("out", &found.out, &out, Absolute(1e-11));
    assert_close("lse", &found.lse, &lse, Absolute(1e-11));
    assert!(
        found
            .d
            .each()
            .iter()
            .all(|(_, d)| d.iter().all(|d| d.is_finite()))
    );

    let mut narrow = Tensors::<f32>::zeros(&case);
    for (to, (_, from)) in narrow.each_mut().into_iter().zip(x.each()) {
        *to = from.iter().map(|&x| x as f32).collect();
    }
    let found = attend(&case, &narrow, &vec![1.0; 50 * 3]);
    // Half a unit of 1e4 is 5e-4 in `f32`: the error of the sum of products, and so of a weight.
    assert_close("out", &found.out, &out, Absolute(1e-2));
    assert!(
        found
            .d
            .each()
            .iter()
            .all(|(_, d)| d.iter().all(|d| d.is_finite()))
    );
}

#[test]
fn sums_of_long_rows_are_accurate() {
    let sizes = Sizes {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        query: 2,
        key: 8192,
        width: 4,
        value_width: 3,
    };
    let case = Case::plain(sizes, Pattern::Everything);
    let x = Tensors::<f32>::random(&case, 1);
    let mut exact = Tensors::<f64>::zeros(&case);
    for (to, (_, from)) in exact.each_mut().into_iter().zip(x.each()) {
        *to = wide(from);
    }
    let (out, lse) = naive::forward(&case, &exact);
    let found = attend(&case, &x, &[1.0; 6]);
    // The sum is computed in parts: tiles, and lanes of a vector.
    assert_close("out", &found.out, &out, Absolute(1e-6));
    assert_close("lse", &found.lse, &lse, Absolute(2e-6));
    // The gradient of a key is an 8,192nd of that of a query. Both are sums of the same terms: weights times numbers below 4.
    for (tensor, (name, gradient)) in found.d.each().into_iter().enumerate() {
        let direction: Vec<f64> = noise(gradient.len(), 7);
        let slope: f64 = gradient
            .iter()
            .zip(&direction)
            .map(|(d, x)| f64::from(*d) * x)
            .sum();
        let d = ResultGradients {
            out: vec![1.0; 6],
            weights: Vec::new(),
            lse: Vec::new(),
        };
        let expected = naive::directional(&case, &exact, &d, tensor, &direction);
        assert_close(name, &[slope], &[expected], Absolute(1e-5));
    }
}
