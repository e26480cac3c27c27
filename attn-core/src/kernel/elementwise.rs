//! Updates of slices, element by element, shared between threads. Whole expressions are [`loops`](super::loops).

use super::Real;
use super::compiled::compiled;
use super::parallel::{SMALL, for_each};
use crate::simd::call::{Axpy, Scale};
use crate::simd::run;

compiled! {
    Elementwise:

    /// `y += a x`
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn add_scaled<E>(a: E, x: &[E], y: &mut [E]) {
        assert_eq!(x.len(), y.len(), "as many numbers as are added");
        let parts = x.chunks(SMALL).zip(y.chunks_mut(SMALL));
        for_each(parts, |(x, y)| run(Axpy(a, x, y)));
    }

    /// `x *= a`
    pub fn scale<E>(a: E, x: &mut [E]) {
        for_each(x.chunks_mut(SMALL), |x| run(Scale(a, x)));
    }
}

/// `x = 0`
pub fn clear<E: Real>(x: &mut [E]) {
    for_each(x.chunks_mut(SMALL), |x| x.fill(E::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    #[test]
    fn elements_are_updated_once() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([2 * SMALL + 5]) {
                let x = noise::<f32>(len, 1);
                let y = noise::<f32>(len, 2);
                let what = format!("{len} on {isa}");
                let pairs = || x.iter().zip(&y);

                let mut z = y.clone();
                add_scaled(0.5, &x, &mut z);
                assert!(
                    pairs().zip(&z).all(|((x, y), z)| *z == x * 0.5 + y),
                    "{what}"
                );
                scale(2.0, &mut z);
                assert!(
                    pairs().zip(&z).all(|((x, y), z)| *z == x + 2.0 * y),
                    "{what}"
                );
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x = noise::<f32>(5 * SMALL + 3, 1);
        same_for_all_threads(|| {
            let mut y = vec![0.1; x.len()];
            add_scaled(0.3, &x, &mut y);
            scale(0.7, &mut y);
            y
        });
    }
}
