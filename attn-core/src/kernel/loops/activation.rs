//! The loops of an activation of any type. Those of [`activation`] are [known](super::known) loops, too.

use super::{Loop, Write, compute, read};
use crate::kernel::activation::{self, Activation};
use crate::kernel::{Kernels, Real};
use crate::simd::{Vector, WriteMode};

/// `y = act(x)`
///
/// # Panics
/// If the lengths differ.
#[track_caller]
pub fn forward<E: Kernels>(activation: impl Activation, x: &[E], y: &mut [E]) {
    compute(&Value(activation), [read(x)], [y.into()]);
}

/// `dx = dy * act'(x)`, which is written or added.
///
/// # Panics
/// If the lengths differ.
#[track_caller]
pub fn backward<E: Kernels>(
    activation: impl Activation,
    x: &[E],
    d_y: &[E],
    d_x: &mut [E],
    mode: WriteMode,
) {
    let to = [Write::with_mode(d_x, mode)];
    compute(&Derivative(activation), [read(x), read(d_y)], to);
}

struct Value<A>(A);

impl<A: Activation> Loop<1, 1> for Value<A> {
    #[inline(always)]
    fn values<E: Real, V: Vector<Element = E>>(&self, [x]: [V; 1]) -> [V; 1] {
        [activation::value(self.0, x)]
    }
}

struct Derivative<A>(A);

impl<A: Activation> Loop<2, 1> for Derivative<A> {
    #[inline(always)]
    fn values<E: Real, V: Vector<Element = E>>(&self, [x, d_y]: [V; 2]) -> [V; 1] {
        [d_y * activation::slope(self.0, x)]
    }
}
