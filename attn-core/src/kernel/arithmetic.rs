//! Differences and products of slices, element by element, shared between threads.
//!
//! Sums and multiples are in [`elementwise`](super::elementwise).

use super::Real;
use super::compiled::compiled;
use super::elementwise::zip;
use super::lanes::for_lanes;
use super::parallel::{SMALL, for_each};
use crate::simd::slice::{Zip, load_any, store_any};
use crate::simd::{Kernel, Vector, run};

compiled! {
    Arithmetic:

    /// `z = x - y`
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn sub<E>(x: &[E], y: &[E], z: &mut [E]) {
        zip(x, y, z, Difference);
    }

    /// `z = x y`
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn mul<E>(x: &[E], y: &[E], z: &mut [E]) {
        zip(x, y, z, Product);
    }

    /// `z += x y`
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn add_product<E>(x: &[E], y: &[E], z: &mut [E]) {
        assert!(x.len() == z.len() && y.len() == z.len(), "as many sums as products");
        let factors = x.chunks(SMALL).zip(y.chunks(SMALL));
        let parts = factors.zip(z.chunks_mut(SMALL));
        for_each(parts, |((x, y), z)| run(AddProduct { x, y, z }));
    }
}

struct Difference;

impl<E: Real> Zip<E> for Difference {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V, y: V) -> V {
        x - y
    }
}

struct Product;

impl<E: Real> Zip<E> for Product {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V, y: V) -> V {
        x * y
    }
}

struct AddProduct<'a, E> {
    x: &'a [E],
    y: &'a [E],
    z: &'a mut [E],
}

impl<E: Real> Kernel for AddProduct<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { x, y, z } = self;
        for_lanes!(V, x.len(), [x, y], [z], {
            store_any(load_any::<V>(x).mul_add(load_any(y), load_any(z)), z);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    #[test]
    fn every_element_once() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([2 * SMALL + 5]) {
                let x = noise::<f64>(len, 1);
                let y = noise::<f64>(len, 2);
                let what = format!("{len} on {isa}");
                let mut z = vec![f64::NAN; len];
                sub(&x, &y, &mut z);
                assert!((0..len).all(|i| z[i] == x[i] - y[i]), "{what}");
                mul(&x, &y, &mut z);
                assert!((0..len).all(|i| z[i] == x[i] * y[i]), "{what}");
                z.fill(0.5);
                add_product(&x, &y, &mut z);
                let want: Vec<f64> = (0..len).map(|i| 0.5 + x[i] * y[i]).collect();
                // One rounding of the product that a fused operation does not make.
                assert_close(&what, &z, &want, Absolute(1e-15));
            }
        });
    }
}
