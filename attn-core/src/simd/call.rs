//! The passes of [`mod@slice`] as functions that choose the instruction set at each call.
//!
//! Code that makes several passes over the same data is better written as one [`Kernel`].

use super::slice::Map;
use super::{Kernel, Real, Vector, math, run, slice};

/// The sum of `x`, or 0 if it is empty.
pub fn sum<E: Real>(x: &[E]) -> E {
    run(Sum(x))
}

/// The sum of the products of `x` and `y`. Panics if their lengths differ.
pub fn dot<E: Real>(x: &[E], y: &[E]) -> E {
    run(Dot(x, y))
}

/// The largest element of `x` other than NaN, or -∞ if there is none.
pub fn max<E: Real>(x: &[E]) -> E {
    run(Max(x))
}

/// `y += a x`. Panics if their lengths differ.
pub fn axpy<E: Real>(a: E, x: &[E], y: &mut [E]) {
    run(Axpy(a, x, y));
}

/// `x *= a`
pub fn scale<E: Real>(a: E, x: &mut [E]) {
    run(Scale(a, x));
}

/// `x = f(x)`
pub fn map_in_place<E: Real>(x: &mut [E], f: impl Map<E>) {
    run(MapInPlace(x, f));
}

macro_rules! kernel {
    (
        $(#[$doc:meta])*
        $name:ident<$($generic:tt),*>($($field:ty),*) -> $output:ty, |$this:ident, $vector:ident| $body:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<$($generic,)* E>($(pub $field),*);

        impl<$($generic,)* E: Real> Kernel for $name<$($generic,)* E> {
            type Element = E;
            type Output = $output;

            #[inline(always)]
            fn run<$vector: Vector<Element = E>>(self) -> $output {
                let $this = self;
                $body
            }
        }
    };
}

kernel!(
    /// [`sum`] as a kernel.
    Sum<'a>(&'a [E]) -> E, |this, V| slice::sum::<V>(this.0)
);
kernel!(
    /// [`dot`] as a kernel.
    Dot<'a>(&'a [E], &'a [E]) -> E, |this, V| slice::dot::<V>(this.0, this.1)
);
kernel!(
    /// [`max`] as a kernel.
    Max<'a>(&'a [E]) -> E, |this, V| slice::max::<V>(this.0)
);
kernel!(
    /// [`axpy`] as a kernel.
    Axpy<'a>(E, &'a [E], &'a mut [E]) -> (), |this, V| slice::axpy::<V>(this.0, this.1, this.2)
);
kernel!(
    /// [`scale`] as a kernel.
    Scale<'a>(E, &'a mut [E]) -> (), |this, V| slice::scale::<V>(this.0, this.1)
);

/// [`map_in_place`] as a kernel.
#[derive(Debug)]
pub struct MapInPlace<'a, E, F>(pub &'a mut [E], pub F);

impl<E: Real, F: Map<E>> Kernel for MapInPlace<'_, E, F> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        slice::map_in_place::<V>(self.0, self.1);
    }
}

macro_rules! maps {
    ($($(#[$doc:meta])* $name:ident: $function:path;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl<E: Real> Map<E> for $name {
                #[inline(always)]
                fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
                    $function(x)
                }
            }
        )*
    };
}

maps! {
    /// [`math::exp`] as a [`Map`].
    Exp: math::exp;
    /// [`math::exp_of_nonpositive`] as a [`Map`].
    ExpOfNonpositive: math::exp_of_nonpositive;
    /// [`math::exp_of_weight`] as a [`Map`].
    ExpOfWeight: math::exp_of_weight;
    /// [`math::ln`] as a [`Map`].
    Ln: math::ln;
    /// [`math::tanh`] as a [`Map`].
    Tanh: math::tanh;
    /// [`math::erf`] as a [`Map`].
    Erf: math::erf;
    /// [`math::sigmoid`] as a [`Map`].
    Sigmoid: math::sigmoid;
}
