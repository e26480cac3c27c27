//! What score modifications are made of, on `[batch, heads, query, key]`.
//!
//! The operands of a function of two must be different tensors: dfdx identifies gradients by tensor, and its backward
//! pass panics on an operation whose operands are one. See [`fresh`].

use dfdx::{
    shapes::Dim,
    tensor::Tape,
    tensor_ops::{Device, TryAdd, TryDiv, TryMul, TrySub},
};

use super::Scores;
use crate::Element;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<
            B: Dim,
            Q: Dim,
            K: Dim,
            const H: usize,
            E: Element,
            D: Device<E>,
            T: Tape<E, D>,
        >(
            x: Scores<B, H, Q, K, E, D, T>,
        ) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
            x.$method()
        }
    )*};
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<
            B: Dim,
            Q: Dim,
            K: Dim,
            const H: usize,
            E: Element,
            D: Device<E>,
            T: Tape<E, D>,
        >(
            a: Scores<B, H, Q, K, E, D, T>,
            b: Scores<B, H, Q, K, E, D, T>,
        ) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
            a.$method(b)
        }
    )*};
}

macro_rules! scalar {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<
            B: Dim,
            Q: Dim,
            K: Dim,
            const H: usize,
            E: Element,
            D: Device<E>,
            T: Tape<E, D>,
        >(
            x: Scores<B, H, Q, K, E, D, T>,
            scalar: f64,
        ) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
            x.$method(E::of(scalar))
        }
    )*};
}

unary! {
    /// `-x`.
    neg = try_negate;
    /// `e^x`.
    exp = try_exp;
    /// The natural logarithm of `x`.
    ln = try_ln;
    /// The square root of `x`. Its gradient at 0 is infinite.
    sqrt = try_sqrt;
    /// The hyperbolic tangent of `x`.
    tanh = try_tanh;
    /// `|x|`. Its gradient at 0 is 1, as dfdx has it.
    abs = try_abs;
}

binary! {
    /// `a + b`.
    add = try_add;
    /// `a - b`.
    sub = try_sub;
    /// `a * b`.
    mul = try_mul;
    /// `a / b`.
    div = try_div;
}

scalar! {
    /// `x + scalar`.
    add_scalar = try_add;
    /// `x * scalar`.
    mul_scalar = try_mul;
}

/// The same values as another tensor, to be the second operand beside the first: `mul(x, fresh(x))`.
pub fn fresh<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Scores<B, H, Q, K, E, D, T>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    // -0.0 is what leaves every number, and the sign of zero, as it is.
    x.try_add(-E::zero())
}
