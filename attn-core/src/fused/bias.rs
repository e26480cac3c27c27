//! Position biases: a number per head and distance.

use super::Array;
use crate::kernel::{Matrix, Pooled};

/// The bias of every head and distance, of a function of `(h, q_idx, kv_idx)` that depends on `q_idx - kv_idx` alone:
/// that of query `q` and key `k` stands in column `k + (query - 1) - q`. `[heads, query + key - 1]`.
pub fn bias_table<E: Pooled>(
    heads: usize,
    query: usize,
    key: usize,
    f: impl Fn(i64, i64, i64) -> f64,
) -> Array<E> {
    let mut table = Array::stale(heads, [distances(query, key)]);
    for ((h, q, k), bias) in places(heads, query, key).zip(table.numbers_mut()) {
        *bias = E::of_f64(f(h, q, k));
    }
    table
}

/// Adds the gradient of the biases to that of a parameter, of which the bias of `(h, q_idx, kv_idx)` reads the element
/// `index(h, q_idx, kv_idx)`, times `factor(h, q_idx, kv_idx)`.
pub fn add_bias_gradient<E: Pooled>(
    d_bias: Matrix<'_, E>,
    (query, key): (usize, usize),
    read: impl Fn(i64, i64, i64) -> (usize, f64),
    d_parameter: &mut [E],
) {
    for (h, q, k) in places(d_bias.rows(), query, key) {
        let (index, factor) = read(h, q, k);
        let column = (k - q) + (query as i64 - 1);
        d_parameter[index] += d_bias.get(h as usize, column as usize) * E::of_f64(factor);
    }
}

/// The number of distances between a query and a key.
fn distances(query: usize, key: usize) -> usize {
    (query + key).saturating_sub(1)
}

/// A head, a query and a key for every element of the table.
fn places(heads: usize, query: usize, key: usize) -> impl Iterator<Item = (i64, i64, i64)> {
    (0..heads as i64).flat_map(move |h| {
        (0..distances(query, key) as i64).map(move |column| {
            let ahead = column - (query as i64 - 1);
            (h, (-ahead).max(0), ahead.max(0))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_finds_the_bias_of_its_distance() {
        for (query, key) in [(1, 1), (3, 5), (5, 3), (4, 4)] {
            let f = |h: i64, q: i64, k: i64| (100 * h + q - k) as f64;
            let table: Array<f64> = bias_table(2, query, key, f);
            let table = table.numbers();
            for h in 0..2 {
                for q in 0..query {
                    for k in 0..key {
                        let at = h * (query + key - 1) + k + (query - 1) - q;
                        assert_eq!(table[at], f(h as i64, q as i64, k as i64));
                    }
                }
            }
        }
    }

    #[test]
    fn a_gradient_goes_where_the_bias_was_read() {
        let (query, key) = (3, 2);
        let d_bias: Vec<f64> = (0..8).map(f64::from).collect();
        let mut d_parameter = [0.0; 4];
        // Two buckets: keys at or before the query, keys after it.
        let read = |h: i64, q: i64, k: i64| ((2 * h + i64::from(k > q)) as usize, 2.0);
        add_bias_gradient(
            Matrix::new(&d_bias, 2, 4),
            (query, key),
            read,
            &mut d_parameter,
        );
        // Columns 0 to 2 are distances 2, 1 and 0; column 3 is one key ahead.
        assert_eq!(d_parameter, [2.0 * 3.0, 2.0 * 3.0, 2.0 * 15.0, 2.0 * 7.0]);
    }

    #[test]
    fn no_query_or_no_key_has_few_biases() {
        assert_eq!(bias_table::<f32>(2, 0, 0, |_, _, _| 1.0).numbers().len(), 0);
        assert_eq!(bias_table::<f32>(2, 0, 3, |_, _, _| 1.0).numbers().len(), 4);
    }
}
