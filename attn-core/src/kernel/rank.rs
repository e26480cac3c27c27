//! The places of the largest numbers along an axis.
//!
//! The first one of equal numbers is the larger one, and NaN is larger than any number. PyTorch: `x.topk(k, 1).indices`, `x.argmax(1)`.

use std::cmp::Ordering;

use super::axis::Axis;
use super::compiled::compiled;
use super::parallel::{for_each, rows_per_task};

compiled! {
    Ranks:

    /// `ids[o, .., i]` are the `k` indices of the largest numbers `x[o, .., i]`, the largest one first.
    ///
    /// # Panics
    /// If the lengths do not fit, or the axis is shorter than `k`.
    #[track_caller]
    pub fn top_k<E>(x: &[E], axis: Axis, k: usize, ids: &mut [usize]) {
        axis.assert_equal_lengths(&[x.len()]);
        assert_eq!(ids.len(), axis.outer * k * axis.inner, "{k} indices of {axis:?}");
        if ids.is_empty() {
            return;
        }
        assert!(k <= axis.len, "{k} numbers of {axis:?}");
        let width = k * axis.inner;
        let blocks = rows_per_task(axis.len * axis.inner);
        let parts = ids.chunks_mut(blocks * width).enumerate();
        for_each(parts, |(index, ids)| {
            let mut order = Vec::new();
            for (block, ids) in ids.chunks_mut(width).enumerate() {
                let x = &x[axis.block(index * blocks + block)];
                match k {
                    1 => first(x, axis, ids),
                    _ => several(x, axis, ids, &mut order),
                }
            }
        });
    }
}

/// Whether `b` is larger than `a`, which stands before it.
fn is_larger<E: PartialOrd>(b: E, a: E) -> bool {
    let is_nan = |x: &E| x.partial_cmp(x).is_none();
    b > a || (is_nan(&b) && !is_nan(&a))
}

/// The place of the largest number of every column.
fn first<E: PartialOrd + Copy>(x: &[E], axis: Axis, ids: &mut [usize]) {
    ids.fill(0);
    for (l, row) in x.chunks_exact(axis.inner).enumerate().skip(1) {
        for (i, (id, number)) in ids.iter_mut().zip(row).enumerate() {
            if is_larger(*number, x[*id * axis.inner + i]) {
                *id = l;
            }
        }
    }
}

/// The places of the largest numbers of every column, of which there are as many as rows of `ids`.
fn several<E: PartialOrd + Copy>(x: &[E], axis: Axis, ids: &mut [usize], order: &mut Vec<usize>) {
    let k = ids.len() / axis.inner;
    for i in 0..axis.inner {
        order.clear();
        order.extend(0..axis.len);
        let compare = |a: &usize, b: &usize| {
            let [x, y] = [a, b].map(|l| x[l * axis.inner + i]);
            match (is_larger(x, y), is_larger(y, x)) {
                (true, _) => Ordering::Less,
                (_, true) => Ordering::Greater,
                _ => a.cmp(b),
            }
        };
        if k < axis.len {
            order.select_nth_unstable_by(k, compare);
        }
        order[..k].sort_unstable_by(compare);
        for (rank, l) in order[..k].iter().enumerate() {
            ids[rank * axis.inner + i] = *l;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const SIZES: [[usize; 3]; 8] = [
        [1, 1, 1],
        [3, 5, 7],
        [1, 700, 1],
        [2, 130, 65],
        [900, 3, 33],
        [0, 3, 2],
        [3, 2, 0],
        [5, 4, 1],
    ];

    fn axis([outer, len, inner]: [usize; 3]) -> Axis {
        Axis { outer, len, inner }
    }

    /// By sorting a column, stably.
    fn naive(x: &[f32], axis: Axis, k: usize) -> Vec<usize> {
        let mut ids = vec![0; axis.outer * k * axis.inner];
        for o in 0..axis.outer {
            for i in 0..axis.inner {
                let at = |l: usize| x[(o * axis.len + l) * axis.inner + i];
                let mut order: Vec<usize> = (0..axis.len).collect();
                order.sort_by(|a, b| at(*b).total_cmp(&at(*a)));
                for rank in 0..k {
                    ids[(o * k + rank) * axis.inner + i] = order[rank];
                }
            }
        }
        ids
    }

    #[test]
    fn the_first_of_equal_numbers_is_larger() {
        for axis in SIZES.map(axis) {
            // Few distinct numbers, so that many are equal.
            let x = noise::<f32>(axis.elements(), 1);
            let x: Vec<f32> = x.iter().map(|x| (4.0 * x).round() + 0.0).collect();
            for k in [0, 1, 2, axis.len] {
                let k = k.min(axis.len);
                let mut ids = vec![usize::MAX; axis.outer * k * axis.inner];
                top_k(&x, axis, k, &mut ids);
                assert_eq!(ids, naive(&x, axis, k), "{k} of {axis:?}");
            }
        }
    }

    #[test]
    fn nan_is_larger_than_any_number() {
        let x = [1.0, f64::NAN, f64::INFINITY, f64::NAN];
        let mut ids = [9; 4];
        top_k(&x, axis([1, 4, 1]), 4, &mut ids);
        assert_eq!(ids, [1, 3, 2, 0]);
        top_k(&x, axis([1, 4, 1]), 1, &mut ids[..1]);
        assert_eq!(ids[0], 1);
        let low = [f64::NEG_INFINITY; 3];
        top_k(&low, axis([1, 3, 1]), 1, &mut ids[..1]);
        assert_eq!(ids[0], 0);
    }
}
