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
    /// `e^x`.
    exp = try_exp;
    /// The natural logarithm of `x`.
    ln = try_ln;
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

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    // By name, because dfdx's prelude has functions of the same names.
    use super::{Scores, abs, add, add_scalar, div, exp, fresh, ln, mul, mul_scalar, sub, tanh};
    use crate::testing::*;

    type X = Scores<usize, 2, usize, usize, f64, Cpu, NoneTape>;
    type Y = Traced<(usize, Const<2>, usize, usize)>;

    const SHAPE: (usize, Const<2>, usize, usize) = (2, Const, 3, 5);

    /// Checks values against `expected`, and the gradient; `x` is between 0.5 and 2.5 where `positive`.
    fn check_unary(
        positive: bool,
        f: impl Fn(Y) -> Result<Y, CpuError>,
        expected: impl Fn(f64) -> f64,
    ) {
        let mut x: X = tensor(SHAPE, 1);
        if positive {
            x = x.abs() + 0.5;
        }
        let expected: Vec<f64> = values(&x).into_iter().map(expected).collect();
        assert_close(&values(&f(x.leaky_trace()).unwrap()), &expected, F64);
        check_gradient(&x, |x| f(x.leaky_trace()).unwrap());
    }

    #[test]
    fn functions_of_one() {
        check_unary(false, exp, f64::exp);
        check_unary(true, ln, f64::ln);
        check_unary(false, tanh, f64::tanh);
        check_unary(false, abs, f64::abs);
        check_unary(false, fresh, |x| x);
        check_unary(false, |x| add_scalar(x, 0.25), |x| x + 0.25);
        check_unary(false, |x| mul_scalar(x, -1.5), |x| x * -1.5);
    }

    fn check_binary(f: impl Fn(Y, Y) -> Result<Y, CpuError>, expected: impl Fn(f64, f64) -> f64) {
        let a: X = tensor(SHAPE, 1);
        // Away from 0, to be divided by.
        let b: X = tensor::<_, f64>(SHAPE, 2).abs() + 0.5;
        let pairs = std::iter::zip(values(&a), values(&b));
        let expected: Vec<f64> = pairs.map(|(a, b)| expected(a, b)).collect();
        assert_close(
            &values(&f(a.leaky_trace(), b.leaky_trace()).unwrap()),
            &expected,
            F64,
        );
        check_gradient(&a, |a| f(a.leaky_trace(), b.leaky_trace()).unwrap());
        check_gradient(&b, |b| f(a.leaky_trace(), b.leaky_trace()).unwrap());
    }

    #[test]
    fn functions_of_two() {
        check_binary(add, |a, b| a + b);
        check_binary(sub, |a, b| a - b);
        check_binary(mul, |a, b| a * b);
        check_binary(div, |a, b| a / b);
    }

    #[test]
    fn a_broadcast_operand_gets_the_sum_of_its_gradients() {
        let a: X = tensor(SHAPE, 1);
        let row: Tensor<(usize,), f64, Cpu> = tensor((5,), 2);
        check_gradient(&row, |row| {
            let row: Y = row
                .leaky_trace()
                .broadcast_like::<_, Axes3<0, 1, 2>>(&SHAPE);
            mul(a.leaky_trace(), row).unwrap()
        });
        check_gradient(&row, |row| {
            let row: Y = row
                .leaky_trace()
                .broadcast_like::<_, Axes3<0, 1, 2>>(&SHAPE);
            mul(exp(row).unwrap(), a.leaky_trace()).unwrap()
        });
    }

    #[test]
    fn fresh_lets_a_tensor_meet_itself() {
        let x: X = tensor(SHAPE, 1);
        check_gradient(&x, |x| {
            let x = x.leaky_trace();
            mul(fresh(x.with_empty_tape()).unwrap(), x).unwrap()
        });
    }

    #[test]
    fn fresh_keeps_the_sign_of_zero() {
        let x: Scores<_, 1, _, _, f64, Cpu, NoneTape> = filled((1, Const, 1, 2), &[0.0, -0.0]);
        let signs: Vec<bool> = values(&fresh(x).unwrap())
            .iter()
            .map(|x| x.is_sign_negative())
            .collect();
        assert_eq!(signs, [false, true]);
    }

    #[test]
    fn empty_scores_stay_empty() {
        let x: X = tensor((2, Const, 0, 5), 1);
        let y = mul(
            exp(x.leaky_trace()).unwrap(),
            fresh(x.leaky_trace()).unwrap(),
        )
        .unwrap();
        assert_eq!(*y.shape(), (2, Const, 0, 5));
        backward_of_nothing(y).get(&x);
    }
}
