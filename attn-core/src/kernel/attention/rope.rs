//! The angles of rotary embeddings, computed once per process and shared by all layers.

use std::any::{Any, TypeId};
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Rope, Rotary};
use crate::kernel::Pooled;
use crate::simd::Matrix;

/// Cosines and sines of `position * frequency`, for every pair of coordinates, times the factor of rotated coordinates.
pub struct Angles<E> {
    /// `[positions, pairs]`
    cos: Vec<E>,
    /// `[positions, pairs]`
    sin: Vec<E>,
    positions: usize,
    pairs: usize,
    interleaved: bool,
}

impl<E: Pooled> Angles<E> {
    /// Angles are computed in `f64`: at position 100,000 an `f32` angle has an error of 0.004.
    fn new(rotary: &Rotary, positions: impl ExactSizeIterator<Item = usize>) -> Self {
        let len = positions.len();
        let (frequencies, magnitude) = rotary.frequencies();
        let of_pairs = |position| frequencies.iter().map(move |f| position as f64 * f);
        let (cos, sin) = positions
            .flat_map(of_pairs)
            .map(|angle| {
                let [cos, sin] = [angle.cos(), angle.sin()].map(|x| E::of_f64(magnitude * x));
                (cos, sin)
            })
            .unzip();
        Self {
            cos,
            sin,
            positions: len,
            pairs: rotary.pairs(),
            interleaved: rotary.interleaved,
        }
    }

    /// The angles as a part of [`HeadTransform`](super::HeadTransform).
    pub fn rope(&self) -> Rope<'_, E> {
        Rope {
            cos: Matrix::new(&self.cos, self.positions, self.pairs),
            sin: Matrix::new(&self.sin, self.positions, self.pairs),
            interleaved: self.interleaved,
            rows: None,
        }
    }
}

impl<E> Debug for Angles<E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Angles({} x {})", self.positions, self.pairs)
    }
}

/// The angles of at least this many positions, of a sequence of this length.
///
/// The tables used last are cached. A table that is too short is replaced by one with a power of two of positions. So a sequence
/// that grows by one rarely computes a table.
///
/// # Panics
/// If the number of rotated coordinates is odd.
pub fn angles<E: Pooled>(rotary: &Rotary, positions: usize) -> Arc<Angles<E>> {
    static CACHE: Mutex<Cache> = Mutex::new(Cache(Vec::new()));
    let dims = rotary.dims;
    assert!(
        dims.is_multiple_of(2),
        "rope rotates pairs of coordinates: their number must be even, not {dims}"
    );
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    // Frequencies that depend on the length have a table for each of their bases.
    cache.angles(rotary.for_len(positions), positions)
}

/// The angles of tokens at given positions.
#[derive(Clone, Debug)]
pub struct AnglesAt<E> {
    angles: Arc<Angles<E>>,
    /// The row of every token.
    rows: Vec<usize>,
}

impl<E: Pooled> AnglesAt<E> {
    /// The angles as a part of [`HeadTransform`](super::HeadTransform).
    pub fn rope(&self) -> Rope<'_, E> {
        Rope {
            rows: Some(&self.rows),
            ..self.angles.rope()
        }
    }
}

/// The angles of tokens at these positions, of a sequence that would have `longest` positions.
///
/// # Panics
/// If the number of rotated coordinates is odd.
pub fn angles_at<E: Pooled>(rotary: &Rotary, longest: usize, positions: &[usize]) -> AnglesAt<E> {
    let (angles, rows) = table(rotary, longest, positions);
    AnglesAt {
        angles,
        rows: rows.unwrap_or_else(|| positions.to_vec()),
    }
}

/// Calls a function with the angles of tokens at these positions, as [`angles_at`]. It allocates nothing if a shared table has them.
///
/// # Panics
/// If the number of rotated coordinates is odd.
pub fn with_angles_at<E: Pooled>(
    rotary: &Rotary,
    positions: &[usize],
    then: impl FnOnce(Rope<'_, E>),
) {
    let last = positions.iter().max();
    let longest = last.map_or(0, |last| last.saturating_add(1));
    let (angles, rows) = table(rotary, longest, positions);
    then(Rope {
        rows: Some(rows.as_deref().unwrap_or(positions)),
        ..angles.rope()
    });
}

/// A table with the angles of these positions, and the row of each, if that is not the position.
fn table<E: Pooled>(
    rotary: &Rotary,
    longest: usize,
    positions: &[usize],
) -> (Arc<Angles<E>>, Option<Vec<usize>>) {
    /// Tables of so many positions are shared, however few of them are used.
    const SHORT: usize = 4096;
    if longest <= SHORT.max(4 * positions.len()) {
        return (angles(rotary, longest), None);
    }
    // Memory must not grow with a position, which may be any number.
    let mut distinct = positions.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let rows = positions.iter();
    let rows = rows.map(|position| distinct.partition_point(|other| other < position));
    let rows = rows.collect();
    let angles = Angles::new(&rotary.for_len(longest), distinct.into_iter());
    (Arc::new(angles), Some(rows))
}

/// The most recently used [`Angles`], last at the end.
struct Cache(Vec<(TableKey, Arc<dyn Any + Send + Sync>)>);

/// The element type, and what is rotated by which frequencies.
type TableKey = (TypeId, Rotary);

impl Cache {
    /// The maximum number of tables: more than a model has, and few enough for a linear search.
    const MAX_TABLES: usize = 8;

    fn angles<E: Pooled>(&mut self, rotary: Rotary, positions: usize) -> Arc<Angles<E>> {
        let key = (TypeId::of::<E>(), rotary);
        let found = self.0.iter().position(|(known, _)| *known == key);
        let found = found.and_then(|at| self.0.remove(at).1.downcast::<Angles<E>>().ok());
        let angles = found
            .filter(|angles| angles.positions >= positions)
            .unwrap_or_else(|| Arc::new(Angles::new(&rotary, 0..positions.next_power_of_two())));
        if self.0.len() == Self::MAX_TABLES {
            self.0.remove(0);
        }
        self.0.push((key, angles.clone()));
        angles
    }
}

#[cfg(test)]
mod tests {
    use super::super::RopeScaling;
    use super::*;

    fn half_split(dims: usize, theta: f64) -> Rotary {
        Rotary {
            dims,
            theta,
            scaling: RopeScaling::None,
            interleaved: false,
        }
    }

    /// The angle by the definition, with the power as a root of a quotient.
    fn angle(width: usize, theta: f64, position: usize, pair: usize) -> f64 {
        position as f64 / theta.powf(2.0 * pair as f64 / width as f64)
    }

    #[test]
    fn angles_grow_with_the_position_and_shrink_with_the_pair() {
        for width in [0, 2, 6, 64] {
            for (theta, positions) in [(1e4, 1), (1e4, 33), (5e5, 100)] {
                let angles = angles::<f64>(&half_split(width, theta), positions);
                let single = super::angles::<f32>(&half_split(width, theta), positions);
                let rope = angles.rope();
                let single = single.rope();
                assert!(rope.cos.rows() >= positions && rope.sin.rows() >= positions);
                assert_eq!((rope.cos.cols(), rope.sin.cols()), (width / 2, width / 2));
                for (p, i) in (0..positions).flat_map(|p| (0..width / 2).map(move |i| (p, i))) {
                    let (sin, cos) = angle(width, theta, p, i).sin_cos();
                    // A few roundings of an angle of at most 100.
                    assert!((rope.cos.get(p, i) - cos).abs() < 1e-13, "{width} {p} {i}");
                    assert!((rope.sin.get(p, i) - sin).abs() < 1e-13, "{width} {p} {i}");
                    assert_eq!(single.cos.get(p, i), rope.cos.get(p, i) as f32);
                    assert_eq!(single.sin.get(p, i), rope.sin.get(p, i) as f32);
                }
            }
        }
    }

    #[test]
    fn angles_of_far_positions_are_accurate() {
        // An angle of 4642, which an `f32` knows up to 2e-4.
        let angles = angles::<f32>(&half_split(6, 1e4), 100_001);
        let exact = angle(6, 1e4, 100_000, 1).cos();
        assert!((f64::from(angles.rope().cos.get(100_000, 1)) - exact).abs() < 1e-7);
    }

    #[test]
    fn a_longer_table_continues_a_shorter_one() {
        let mut cache = Cache(Vec::new());
        let short = cache.angles::<f32>(half_split(6, 1e4), 5);
        let same = cache.angles::<f32>(half_split(6, 1e4), 8);
        assert!(Arc::ptr_eq(&short, &same), "5 positions are 8 already");
        let long = cache.angles::<f32>(half_split(6, 1e4), 9);
        assert_eq!((short.positions, long.positions), (8, 16));
        assert_eq!(short.cos, long.cos[..short.cos.len()]);
        assert_eq!(short.sin, long.sin[..short.sin.len()]);
        let shorter = cache.angles::<f32>(half_split(6, 1e4), 1);
        assert!(Arc::ptr_eq(&long, &shorter), "the longer one is kept");
        assert_eq!(cache.0.len(), 1);
    }

    #[test]
    fn tables_of_different_keys_are_separate_and_the_last_ones_are_cached() {
        let mut cache = Cache(Vec::new());
        let first = cache.angles::<f32>(half_split(4, 1e4), 4);
        assert_eq!(cache.angles::<f32>(half_split(6, 1e4), 4).pairs, 3);
        assert_ne!(cache.angles::<f32>(half_split(4, 1e5), 4).cos, first.cos);
        assert_eq!(
            cache
                .angles::<f64>(half_split(4, 1e4), 4)
                .rope()
                .cos
                .get(1, 0),
            1_f64.cos()
        );
        for theta in 1..100 {
            cache.angles::<f64>(half_split(4, f64::from(theta)), 4);
            let again = cache.angles::<f32>(half_split(4, 1e4), 4);
            assert!(Arc::ptr_eq(&first, &again), "used all the time");
        }
        assert_eq!(cache.0.len(), Cache::MAX_TABLES);
    }

    #[test]
    #[should_panic(expected = "must be even, not 3")]
    fn an_odd_width_has_no_pairs() {
        angles::<f32>(&half_split(3, 1e4), 1);
    }
}
