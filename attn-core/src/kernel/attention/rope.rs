//! The angles of rotary embeddings, computed once per process and shared by all layers.

use std::any::{Any, TypeId};
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

use super::Rope;
use crate::kernel::Pooled;
use crate::simd::Matrix;

/// Cosines and sines of `position * theta^(-2 i / width)`, for the pair `i` of a vector's coordinates.
pub struct Angles<E> {
    /// `[positions, pairs]`
    cos: Vec<E>,
    /// `[positions, pairs]`
    sin: Vec<E>,
    positions: usize,
    pairs: usize,
}

impl<E: Pooled> Angles<E> {
    /// Angles are computed in `f64`: at position 100,000 an `f32` angle has an error of 0.004.
    fn new(width: usize, theta: f64, positions: usize) -> Self {
        let pairs = width / 2;
        let frequencies: Vec<f64> = (0..pairs)
            .map(|i| theta.powf(-2.0 * i as f64 / width as f64))
            .collect();
        let (cos, sin) = (0..positions * pairs)
            .map(|at| (at / pairs) as f64 * frequencies[at % pairs])
            .map(|angle| (E::of_f64(angle.cos()), E::of_f64(angle.sin())))
            .unzip();
        Self {
            cos,
            sin,
            positions,
            pairs,
        }
    }

    /// The angles as a part of [`HeadTransform`](super::HeadTransform).
    pub fn rope(&self) -> Rope<'_, E> {
        Rope {
            cos: Matrix::new(&self.cos, self.positions, self.pairs),
            sin: Matrix::new(&self.sin, self.positions, self.pairs),
        }
    }
}

impl<E> Debug for Angles<E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Angles({} x {})", self.positions, self.pairs)
    }
}

/// The angles of at least this many positions, for vectors of this width. They do not depend on the number of positions.
///
/// The tables used last are cached. A table that is too short is replaced by one with a power of two of positions. So a sequence
/// that grows by one rarely computes a table.
///
/// # Panics
/// If `width` is odd.
pub fn angles<E: Pooled>(width: usize, theta: f64, positions: usize) -> Arc<Angles<E>> {
    static CACHE: Mutex<Cache> = Mutex::new(Cache(Vec::new()));
    assert!(
        width.is_multiple_of(2),
        "rope pairs the two halves of a head: its width must be even, not {width}"
    );
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    cache.angles(width, theta, positions)
}

/// The most recently used [`Angles`], last at the end.
struct Cache(Vec<(TableKey, Arc<dyn Any + Send + Sync>)>);

/// Element type, width, and the bits of theta.
type TableKey = (TypeId, usize, u64);

impl Cache {
    /// The maximum number of tables: more than a model has, and few enough for a linear search.
    const MAX_TABLES: usize = 8;

    fn angles<E: Pooled>(&mut self, width: usize, theta: f64, positions: usize) -> Arc<Angles<E>> {
        let key = (TypeId::of::<E>(), width, theta.to_bits());
        let found = self.0.iter().position(|(known, _)| *known == key);
        let found = found.and_then(|at| self.0.remove(at).1.downcast::<Angles<E>>().ok());
        let angles = found
            .filter(|angles| angles.positions >= positions)
            .unwrap_or_else(|| Arc::new(Angles::new(width, theta, positions.next_power_of_two())));
        if self.0.len() == Self::MAX_TABLES {
            self.0.remove(0);
        }
        self.0.push((key, angles.clone()));
        angles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The angle by the definition, with the power as a root of a quotient.
    fn angle(width: usize, theta: f64, position: usize, pair: usize) -> f64 {
        position as f64 / theta.powf(2.0 * pair as f64 / width as f64)
    }

    #[test]
    fn angles_grow_with_the_position_and_shrink_with_the_pair() {
        for width in [0, 2, 6, 64] {
            for (theta, positions) in [(1e4, 1), (1e4, 33), (5e5, 100)] {
                let angles = angles::<f64>(width, theta, positions);
                let single = super::angles::<f32>(width, theta, positions);
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
        let angles = angles::<f32>(6, 1e4, 100_001);
        let exact = angle(6, 1e4, 100_000, 1).cos();
        assert!((f64::from(angles.rope().cos.get(100_000, 1)) - exact).abs() < 1e-7);
    }

    #[test]
    fn a_longer_table_continues_a_shorter_one() {
        let mut cache = Cache(Vec::new());
        let short = cache.angles::<f32>(6, 1e4, 5);
        let same = cache.angles::<f32>(6, 1e4, 8);
        assert!(Arc::ptr_eq(&short, &same), "5 positions are 8 already");
        let long = cache.angles::<f32>(6, 1e4, 9);
        assert_eq!((short.positions, long.positions), (8, 16));
        assert_eq!(short.cos, long.cos[..short.cos.len()]);
        assert_eq!(short.sin, long.sin[..short.sin.len()]);
        let shorter = cache.angles::<f32>(6, 1e4, 1);
        assert!(Arc::ptr_eq(&long, &shorter), "the longer one is kept");
        assert_eq!(cache.0.len(), 1);
    }

    #[test]
    fn tables_of_different_keys_are_separate_and_the_last_ones_are_cached() {
        let mut cache = Cache(Vec::new());
        let first = cache.angles::<f32>(4, 1e4, 4);
        assert_eq!(cache.angles::<f32>(6, 1e4, 4).pairs, 3);
        assert_ne!(cache.angles::<f32>(4, 1e5, 4).cos, first.cos);
        assert_eq!(
            cache.angles::<f64>(4, 1e4, 4).rope().cos.get(1, 0),
            1_f64.cos()
        );
        for theta in 1..100 {
            cache.angles::<f64>(4, f64::from(theta), 4);
            let again = cache.angles::<f32>(4, 1e4, 4);
            assert!(Arc::ptr_eq(&first, &again), "used all the time");
        }
        assert_eq!(cache.0.len(), Cache::MAX_TABLES);
    }

    #[test]
    #[should_panic(expected = "must be even, not 3")]
    fn an_odd_width_has_no_pairs() {
        angles::<f32>(3, 1e4, 1);
    }
}
