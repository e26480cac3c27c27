//! Functions of the elements of slices, shared between threads.
//!
//! Functions of one's own are types that implement [`Map`] or [`Zip`]; see [`slice`](crate::simd::slice).

use super::Real;
use super::compiled::compiled;
use super::dropout::WithDropout;
use super::lanes::for_lanes;
use super::parallel::{SMALL, for_each};
use crate::simd::call::{Axpy, Scale};
use crate::simd::slice::{Map, Zip, load_any, store_any};
use crate::simd::{Kernel, Vector, run};

/// Elements that the nearest cache holds.
const NEAR: usize = 1024;

/// `y = f(x)`, of which numbers may fall as they are written.
///
/// # Panics
/// If the lengths differ.
#[track_caller]
pub fn map<'a, E: Real>(x: &[E], y: impl Into<WithDropout<&'a mut [E]>>, f: impl Map<E> + Sync) {
    let WithDropout {
        numbers: y,
        written,
        ..
    } = y.into();
    assert_eq!(x.len(), y.len(), "as many results as arguments");
    let near = if written.is_none() { SMALL } else { NEAR };
    let parts = x.chunks(SMALL).zip(y.chunks_mut(SMALL)).enumerate();
    for_each(parts, |(index, (x, y))| {
        let pieces = x.chunks(near).zip(y.chunks_mut(near));
        for (first, (x, y)) in (index * SMALL..).step_by(near).zip(pieces) {
            run(MapTo {
                x,
                y: &mut *y,
                f: &f,
            });
            written.drop_from(first, y);
        }
    });
}

/// `z = f(x, y)`
///
/// # Panics
/// If the lengths differ.
#[track_caller]
pub fn zip<E: Real>(x: &[E], y: &[E], z: &mut [E], f: impl Zip<E> + Sync) {
    assert!(
        x.len() == z.len() && y.len() == z.len(),
        "as many results as arguments"
    );
    let arguments = x.chunks(SMALL).zip(y.chunks(SMALL));
    let parts = arguments.zip(z.chunks_mut(SMALL));
    for_each(parts, |((x, y), z)| run(ZipTo { x, y, z, f: &f }));
}

compiled! {
    Elementwise:

    /// `z = x + y`
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn add<E>(x: &[E], y: &[E], z: &mut [E]) {
        zip(x, y, z, Sum);
    }

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

    /// `y = a x + b`. A `b` of [`NOTHING`] leaves every product as it is.
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn affine<E>(a: E, b: E, x: &[E], y: &mut [E]) {
        map(x, y, Line { a, b });
    }

    /// `x *= a`
    pub fn scale<E>(a: E, x: &mut [E]) {
        for_each(x.chunks_mut(SMALL), |x| run(Scale(a, x)));
    }
}

/// -0: added to a number it changes nothing, not even the sign of a zero.
pub const NOTHING: f64 = -0.0;

struct Line<E> {
    a: E,
    b: E,
}

impl<E: Real> Map<E> for Line<E> {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        x.mul_add(V::splat(self.a), V::splat(self.b))
    }
}

struct MapTo<'a, E, F> {
    x: &'a [E],
    y: &'a mut [E],
    f: &'a F,
}

impl<E: Real, F: Map<E>> Kernel for MapTo<'_, E, F> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { x, y, f } = self;
        for_lanes!(
            V,
            x.len(),
            [x],
            [y],
            store_any(f.apply::<V>(load_any(x)), y)
        );
    }
}

struct ZipTo<'a, E, F> {
    x: &'a [E],
    y: &'a [E],
    z: &'a mut [E],
    f: &'a F,
}

impl<E: Real, F: Zip<E>> Kernel for ZipTo<'_, E, F> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { x, y, z, f } = self;
        for_lanes!(V, x.len(), [x, y], [z], {
            store_any(f.apply::<V>(load_any(x), load_any(y)), z);
        });
    }
}

struct Sum;

impl<E: Real> Zip<E> for Sum {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V, y: V) -> V {
        x + y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::dropout::{self as drops, Dropout};
    use crate::kernel::testing::*;
    use crate::simd::call::Exp;

    #[test]
    fn every_element_once() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([2 * SMALL + 5]) {
                let x = noise::<f32>(len, 1);
                let y = noise::<f32>(len, 2);
                let what = format!("{len} on {isa}");
                let pairs = || x.iter().zip(&y);

                let mut z = vec![f32::NAN; len];
                add(&x, &y, &mut z);
                assert!(pairs().zip(&z).all(|((x, y), z)| *z == x + y), "{what}");
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

                map(&x, &mut z[..], Exp);
                let want: Vec<f64> = x.iter().map(|&x| f64::from(x).exp()).collect();
                // An ulp of e.
                assert_close(&what, &z, &want, Absolute(2.4e-7));
            }
        });
    }

    #[test]
    fn what_is_written_falls_by_its_place_in_the_whole() {
        let dropout = Dropout::new(0.3, Some(42));
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([NEAR + 1, 2 * SMALL + NEAR + 5]) {
                let x = noise::<f32>(len, 1);
                let mut all = vec![f32::NAN; len];
                map(&x, &mut all[..], Exp);
                let [mut want, mut got] = [(); 2].map(|()| vec![f32::NAN; len]);
                drops::dropout(dropout, &all, &mut want);
                map(&x, dropout.to(&mut got[..]), Exp);
                assert_eq!(got, want, "{len} on {isa}");
            }
        });
    }

    #[test]
    fn threads_change_no_bit() {
        let x = noise::<f32>(5 * SMALL + 3, 1);
        same_for_all_threads(|| {
            let mut y = vec![0.1; x.len()];
            add_scaled(0.3, &x, &mut y);
            scale(0.7, &mut y);
            let mut z = vec![0.0; x.len()];
            add(&x, &y, &mut z);
            map(&z, Dropout::new(0.3, Some(42)).to(&mut y[..]), Exp);
            (y, z)
        });
    }
}
