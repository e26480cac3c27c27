//! Passes over slices, as parts of a [`Kernel`](super::Kernel): generic over the vector, inlined into the caller.
//!
//! [`call`](super::call) has the same as separate functions.
//!
//! Functions are passed as types that implement [`Map`] or [`Zip`], not as closures. The compiler need not inline a closure into
//! the code with the instructions, and without inlining each instruction is a call. If a struct is too much, write the loop:
//! `chunks_mut(V::LANES)` with [`load_any`] and [`store_any`].
//!
//! Reductions have four vectors of partial results, so that additions need not wait for each other. The vectors are combined as
//! `(0 + 1) + (2 + 3)` and then halved. The order depends on the length only.

use super::{Mask, Real, Vector, math};

/// The number of partial results of a reduction.
const CHAINS: usize = 4;

/// A function of one number, for any vector type.
pub trait Map<E> {
    /// The function. Mark it `#[inline(always)]`.
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V;
}

/// A function of two numbers, for any vector type.
pub trait Zip<E> {
    /// The function. Mark it `#[inline(always)]`.
    fn apply<V: Vector<Element = E>>(&self, x: V, y: V) -> V;
}

/// An associative operation, which makes one number of several.
pub trait Join<E: Real> {
    /// The neutral element, which is the result for no numbers.
    fn start() -> E;

    /// `x` and `y`, as one. Mark it `#[inline(always)]`.
    fn join<V: Vector<Element = E>>(x: V, y: V) -> V;

    /// The lanes of `x`, as one. Mark it `#[inline(always)]`.
    fn across<V: Vector<Element = E>>(x: V) -> E;
}

/// The term of a fold, computed from a number and its origin.
pub trait Term<E> {
    /// The term. Mark it `#[inline(always)]`.
    fn of<V: Vector<Element = E>>(x: V, origin: V) -> V;
}

macro_rules! joins {
    ($($(#[$doc:meta])* $name:ident: $start:expr, |$x:ident, $y:ident| $join:expr, |$lanes:ident| $across:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl<E: Real> Join<E> for $name {
                #[inline(always)]
                fn start() -> E {
                    $start
                }

                #[inline(always)]
                fn join<V: Vector<Element = E>>($x: V, $y: V) -> V {
                    $join
                }

                #[inline(always)]
                fn across<V: Vector<Element = E>>($lanes: V) -> E {
                    $across
                }
            }
        )*
    };
}

joins! {
    /// The sum.
    Sum: E::ZERO, |x, y| x + y, |x| x.reduce_sum();
    /// The maximum; NaN is larger than any number.
    Max: -E::INFINITY, |x, y| V::select(y.ne(y), y, y.max(x)), |x| nan_or(x, x.reduce_max());
    /// The minimum; NaN is smaller than any number.
    Min: E::INFINITY, |x, y| V::select(y.ne(y), y, y.min(x)), |x| nan_or(x, x.reduce_min());
    /// The maximum of the numbers other than NaN.
    MaxPastNan: -E::INFINITY, |x, y| y.max(x), |x| x.reduce_max();
}

/// NaN if a lane of `x` is NaN, otherwise `number`.
#[inline(always)]
fn nan_or<V: Vector>(x: V, number: V::Element) -> V::Element {
    if x.ne(x).any() {
        V::Element::NAN
    } else {
        number
    }
}

macro_rules! terms {
    ($($(#[$doc:meta])* $name:ident: |$x:ident, $origin:pat_param| $term:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl<E: Real> Term<E> for $name {
                #[inline(always)]
                fn of<V: Vector<Element = E>>($x: V, $origin: V) -> V {
                    $term
                }
            }
        )*
    };
}

terms! {
    /// `x`
    Itself: |x, _| x;
    /// `x - origin`
    Deviation: |x, origin| x - origin;
    /// `(x - origin)²`
    SquaredDeviation: |x, origin| (x - origin) * (x - origin);
    /// `exp(x - origin)`
    Power: |x, origin| math::exp(x - origin);
}

/// The sum of `x`, or 0 if it is empty.
#[inline(always)]
pub fn sum<V: Vector>(x: &[V::Element]) -> V::Element {
    fold::<V, Sum, Itself>(x, V::zero())
}

/// The sum of the products of `x` and `y`. Panics if their lengths differ.
#[inline(always)]
pub fn dot<V: Vector>(x: &[V::Element], y: &[V::Element]) -> V::Element {
    assert_eq!(x.len(), y.len(), "dot: lengths differ");
    let mut sums = [V::zero(); CHAINS];
    let block = CHAINS * V::LANES;
    let mut xs = x.chunks_exact(block);
    let mut ys = y.chunks_exact(block);
    for (x, y) in (&mut xs).zip(&mut ys) {
        for (chain, sum) in sums.iter_mut().enumerate() {
            let at = chain * V::LANES;
            *sum = V::load(&x[at..]).mul_add(V::load(&y[at..]), *sum);
        }
    }
    let xs = xs.remainder().chunks(V::LANES);
    let ys = ys.remainder().chunks(V::LANES);
    for (sum, (x, y)) in sums.iter_mut().zip(xs.zip(ys)) {
        *sum = load_any::<V>(x).mul_add(load_any(y), *sum);
    }
    ((sums[0] + sums[1]) + (sums[2] + sums[3])).reduce_sum()
}

/// The largest element of `x` other than NaN, or -∞ if there is none.
#[inline(always)]
pub fn max<V: Vector>(x: &[V::Element]) -> V::Element {
    fold::<V, MaxPastNan, Itself>(x, V::zero())
}

/// `y += a x`. Panics if their lengths differ.
#[inline(always)]
pub fn axpy<V: Vector>(a: V::Element, x: &[V::Element], y: &mut [V::Element]) {
    assert_eq!(x.len(), y.len(), "axpy: lengths differ");
    let a = V::splat(a);
    for (x, y) in x.chunks(V::LANES).zip(y.chunks_mut(V::LANES)) {
        store_any(a.mul_add(load_any(x), load_any(y)), y);
    }
}

/// `x *= a`
#[inline(always)]
pub fn scale<V: Vector>(a: V::Element, x: &mut [V::Element]) {
    let a = V::splat(a);
    for x in x.chunks_mut(V::LANES) {
        store_any(a * load_any(x), x);
    }
}

/// `x = f(x)`
#[inline(always)]
pub fn map_in_place<V: Vector>(x: &mut [V::Element], f: impl Map<V::Element>) {
    for x in x.chunks_mut(V::LANES) {
        store_any(f.apply::<V>(load_any(x)), x);
    }
}

/// `to = f(from)`. Panics if their lengths differ.
#[inline(always)]
pub fn map<V: Vector>(to: &mut [V::Element], from: &[V::Element], f: impl Map<V::Element>) {
    assert_eq!(to.len(), from.len(), "map: lengths differ");
    for (to, from) in to.chunks_mut(V::LANES).zip(from.chunks(V::LANES)) {
        store_any(f.apply::<V>(load_any(from)), to);
    }
}

/// `x = f(x, y)`. Panics if their lengths differ.
#[inline(always)]
pub fn zip_in_place<V: Vector>(x: &mut [V::Element], y: &[V::Element], f: impl Zip<V::Element>) {
    assert_eq!(x.len(), y.len(), "zip_in_place: lengths differ");
    for (x, y) in x.chunks_mut(V::LANES).zip(y.chunks(V::LANES)) {
        store_any(f.apply::<V>(load_any(x), load_any(y)), x);
    }
}

/// Loads one chunk of a slice: a whole vector, or the tail, padded with zeros.
#[inline(always)]
pub fn load_any<V: Vector>(from: &[V::Element]) -> V {
    load_filled(from, V::Element::ZERO)
}

/// Loads one chunk of a slice: a whole vector, or the tail, padded with `fill`.
#[inline(always)]
pub fn load_filled<V: Vector>(from: &[V::Element], fill: V::Element) -> V {
    if from.len() >= V::LANES {
        V::load(from)
    } else {
        V::load_partial(from, fill)
    }
}

/// Stores one chunk of a slice: a whole vector, or the first lanes into the tail.
#[inline(always)]
pub fn store_any<V: Vector>(vector: V, to: &mut [V::Element]) {
    if to.len() >= V::LANES {
        vector.store(to);
    } else {
        vector.store_partial(to);
    }
}

/// The terms of `x`, as one number, or `J::start()` if there are none.
#[inline(always)]
pub fn fold<V: Vector, J: Join<V::Element>, T: Term<V::Element>>(
    x: &[V::Element],
    origin: V,
) -> V::Element {
    let start = V::splat(J::start());
    let mut folded = [start; CHAINS];
    let mut blocks = x.chunks_exact(CHAINS * V::LANES);
    for block in &mut blocks {
        for (chain, folded) in folded.iter_mut().enumerate() {
            let x = V::load(&block[chain * V::LANES..]);
            *folded = J::join(*folded, T::of(x, origin));
        }
    }
    for (folded, x) in folded.iter_mut().zip(blocks.remainder().chunks(V::LANES)) {
        let term = T::of(load_any(x), origin);
        *folded = J::join(*folded, V::select(V::first_lanes(x.len()), term, start));
    }
    J::across(J::join(
        J::join(folded[0], folded[1]),
        J::join(folded[2], folded[3]),
    ))
}
