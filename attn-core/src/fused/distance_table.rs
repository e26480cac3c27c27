//! Numbers per head and distance.

use super::Array;
use crate::kernel::attention::TileOrigin;
use crate::kernel::{Matrix, Pooled};

/// A function of `(h, q_idx, kv_idx)` that depends only on `h` and `q_idx - kv_idx`, computed once for every head and distance: a
/// bias term of a [`Score`](crate::kernel::attention::Score), such as a position bias.
///
/// ```
/// use attn::__private::runtime::{fused::DistanceTable, kernel::attention::TileOrigin};
///
/// let (heads, query, key) = (1, 3, 4);
/// let table = DistanceTable::<f32>::new(heads, query, key, |_, q, k| -0.5 * (q - k).abs() as f64);
/// let bias_term = table.row(TileOrigin { b: 0, h: 0, q: 2, k: 1 }, 3);
/// assert_eq!(bias_term, [-0.5, 0.0, -0.5]);
/// ```
#[derive(Debug)]
pub struct DistanceTable<E: Pooled> {
    /// `[heads, distances]`: the number of query `q` and key `k` is in column `k + (query - 1) - q`.
    numbers: Array<E>,
    query: usize,
    distances: usize,
}

impl<E: Pooled> DistanceTable<E> {
    /// The table of `f`.
    pub fn new(heads: usize, query: usize, key: usize, f: impl Fn(i64, i64, i64) -> f64) -> Self {
        let distances = (query + key).saturating_sub(1);
        let mut numbers = Array::uninit(heads, [distances]);
        for ((h, q, k), number) in places(heads, query, distances).zip(numbers.as_mut_slice()) {
            *number = E::of_f64(f(h, q, k));
        }
        Self {
            numbers,
            query,
            distances,
        }
    }

    /// The number of distances between a query and a key, which is the number of gradients of a head.
    pub fn distances(&self) -> usize {
        self.distances
    }

    /// The numbers of the query `at.q` and of `len` keys from `at.k` on.
    ///
    /// # Panics
    /// If there are fewer heads, queries or keys.
    #[inline(always)]
    pub fn row(&self, at: TileOrigin, len: usize) -> &[E] {
        let of_head = &self.numbers.as_slice()[at.h * self.distances..][..self.distances];
        &of_head[self.column(at)..][..len]
    }

    /// Adds the gradient `d` of a [`row`](Self::row) to those of the head, one per distance.
    ///
    /// # Panics
    /// If there are fewer queries or keys.
    #[inline(always)]
    pub fn add_gradient(&self, at: TileOrigin, d: &[E], of_head: &mut [E]) {
        let sums = &mut of_head[self.column(at)..][..d.len()];
        for (sum, &d) in sums.iter_mut().zip(d) {
            *sum += d;
        }
    }

    /// Adds the gradients of all heads, `[heads, distances]`, to that of a parameter: the number of `(h, q_idx, kv_idx)` reads
    /// its element `read(..).0`, with the derivative `read(..).1`.
    pub fn add_to_parameter(
        &self,
        d: Matrix<'_, E>,
        read: impl Fn(i64, i64, i64) -> (usize, f64),
        d_parameter: &mut [E],
    ) {
        for (i, (h, q, k)) in places(d.rows(), self.query, self.distances).enumerate() {
            let (index, factor) = read(h, q, k);
            let d = d.get(i / self.distances, i % self.distances);
            d_parameter[index] += d * E::of_f64(factor);
        }
    }

    #[inline(always)]
    fn column(&self, at: TileOrigin) -> usize {
        at.k + (self.query - 1) - at.q
    }
}

/// A head, a query and a key for every element of the table.
fn places(heads: usize, query: usize, distances: usize) -> impl Iterator<Item = (i64, i64, i64)> {
    (0..heads as i64).flat_map(move |h| {
        (0..distances as i64).map(move |column| {
            let ahead = column - (query as i64 - 1);
            (h, (-ahead).max(0), ahead.max(0))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_read_the_number_of_their_distance() {
        for (query, key) in [(1, 1), (3, 5), (5, 3), (4, 4)] {
            let f = |h: i64, q: i64, k: i64| (100 * h + q - k) as f64;
            let table = DistanceTable::<f64>::new(2, query, key, f);
            for (h, q) in (0..2).flat_map(|h| (0..query).map(move |q| (h, q))) {
                for k in 0..key {
                    let bias_term = table.row(TileOrigin { b: 0, h, q, k }, key - k);
                    let expected = (k..key).map(|k| f(h as i64, q as i64, k as i64));
                    assert_eq!(bias_term, expected.collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn gradients_are_added_by_distance() {
        let table = DistanceTable::<f64>::new(1, 3, 4, |_, _, _| 0.0);
        let mut of_head = vec![1.0; table.distances()];
        let at = |q, k| TileOrigin { b: 0, h: 0, q, k };
        table.add_gradient(at(0, 0), &[10.0, 20.0], &mut of_head);
        table.add_gradient(at(2, 1), &[100.0, 200.0, 300.0], &mut of_head);
        assert_eq!(of_head, [1.0, 101.0, 211.0, 321.0, 1.0, 1.0]);
    }

    #[test]
    fn gradients_are_added_where_the_numbers_were_read() {
        let table = DistanceTable::<f64>::new(2, 3, 2, |_, _, _| 0.0);
        let d: Vec<f64> = (0..8).map(f64::from).collect();
        let mut d_parameter = [0.0; 4];
        // Two buckets: keys at or before the query, keys after it.
        let read = |h: i64, q: i64, k: i64| ((2 * h + i64::from(k > q)) as usize, 2.0);
        table.add_to_parameter(Matrix::new(&d, 2, 4), read, &mut d_parameter);
        // Columns 0 to 2 are distances 2, 1 and 0; column 3 is one key ahead.
        assert_eq!(d_parameter, [2.0 * 3.0, 2.0 * 3.0, 2.0 * 15.0, 2.0 * 7.0]);
    }

    #[test]
    fn tables_without_queries_or_keys_are_small() {
        for (query, key, expected) in [(0, 0, 0), (0, 3, 2), (3, 0, 2)] {
            let table = DistanceTable::<f32>::new(2, query, key, |_, _, _| 1.0);
            assert_eq!(table.distances(), expected);
            let d = vec![1.0; 2 * expected];
            let mut d_parameter = [0.0];
            let d = Matrix::new(&d, 2, expected);
            table.add_to_parameter(d, |_, _, _| (0, 1.0), &mut d_parameter);
            assert_eq!(d_parameter, [2.0 * expected as f32]);
        }
    }
}
