//! The operations of expressions, element by element: of score modifications, and of elementwise operations of a model.
//!
//! The two operands of a function must be different tensors: dfdx identifies gradients by tensor, and its backward pass panics if both
//! operands of an operation are the same. See [`fresh`].

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{NoneTape, OnesTensor, PutTape, SplitTape, Tape, Tensor, TensorFromVec},
    tensor_ops::{Device, TryAdd, TryDiv, TryMul, TrySub},
};

use super::{
    normalize::off_tape,
    tensors::{depend, is_empty, zeros_after, zeros_after_both},
};
use crate::Element;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
            x: Tensor<S, E, D, T>,
        ) -> Result<Tensor<S, E, D, T>, D::Err> {
            x.$method()
        }
    )*};
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
            a: Tensor<S, E, D, T>,
            b: Tensor<S, E, D, T>,
        ) -> Result<Tensor<S, E, D, T>, D::Err> {
            a.$method(b)
        }
    )*};
}

macro_rules! scalar {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
            x: Tensor<S, E, D, T>,
            scalar: f64,
        ) -> Result<Tensor<S, E, D, T>, D::Err> {
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
    /// `|x|`. Its gradient at 0 is 0, as in PyTorch.
    abs = try_abs;
    /// The square root of `x`.
    sqrt = try_sqrt;
    /// The sine of `x`.
    sin = try_sin;
    /// The cosine of `x`.
    cos = try_cos;
    /// The logistic function, `1 / (1 + e^-x)`.
    logistic = try_sigmoid;
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
    /// The minimum. If both are equal, each gets half of the gradient; if one is NaN, the result is the other.
    minimum = try_minimum;
    /// The maximum. If both are equal, each gets half of the gradient; if one is NaN, the result is the other.
    maximum = try_maximum;
}

scalar! {
    /// `x + scalar`.
    add_scalar = try_add;
    /// `x * scalar`.
    mul_scalar = try_mul;
}

/// `x^exponent`. For exponent 0 its gradient is 0, also at `x = 0`.
pub fn pow<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    exponent: f64,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let integer = exponent as i32;
    if exponent == 0.0 {
        // dfdx's gradient would be `0 * x^-1`, which is NaN at 0.
        let ones: Tensor<_, E, D> = OnesTensor::<E>::try_ones_like(x.device(), x.shape())?;
        Ok(ones.put_tape(depend(x)))
    } else if f64::from(integer) == exponent {
        x.try_powi(integer)
    } else {
        x.try_powf(exponent)
    }
}

/// The largest integer that is at most `x`. Its gradient is 0.
///
/// dfdx has no rounding operation, so this runs on the host.
pub fn floor<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let shape = *x.shape();
    if is_empty(&shape) {
        return zeros_after(x, shape);
    }
    let floors = x.as_vec().into_iter().map(E::floor).collect();
    let floors: Tensor<_, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(x.device(), floors, shape)?;
    Ok(floors.put_tape(depend(x)))
}

/// The remainder of `a / b`, with the sign of `a`. The gradient of `a` is 1, that of `b` is `-trunc(a / b)`.
///
/// PyTorch: `torch.fmod(a, b)`. It runs on the host, as [`floor`] does.
pub fn rem<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    a: Tensor<S, E, D, T>,
    b: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let shape = *a.shape();
    if is_empty(&shape) {
        return zeros_after_both(a, b, shape);
    }
    let divisors = b.as_vec();
    let (remainder, quotients) = off_tape(a, |a| {
        let pairs = || std::iter::zip(a.as_vec(), divisors.iter().copied());
        let tensor = |values| TensorFromVec::<E>::try_tensor_from_vec(a.device(), values, shape);
        let values = tensor(pairs().map(|(a, b)| a % b).collect())?;
        let quotients = pairs().map(|(a, b)| E::of((a.into() / b.into()).trunc()));
        Ok((values, tensor(quotients.collect())?))
    })?;
    // Its value is subtracted again: only the gradient remains.
    let multiple = b.try_mul(quotients)?;
    let itself = fresh(multiple.retaped::<NoneTape>())?;
    let nothing = multiple.try_sub(itself)?;
    remainder.try_sub(nothing)
}

/// The values `y` on the tape of `x`, whose gradient is 0.
pub fn replace<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let (y, tape) = y.split_tape();
    Ok(y.put_tape(tape.merge(depend(x))))
}

/// A copy of a tensor with another id, to be used as a second operand beside it: `mul(x, fresh(x))`.
pub fn fresh<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    // Adding -0.0 does not change any number, nor the sign of zero.
    x.try_add(-E::zero())
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    // Imported by name, because dfdx's prelude has functions with the same names.
    use super::{
        abs, add, add_scalar, cos, div, exp, floor, fresh, ln, logistic, maximum, minimum, mul,
        mul_scalar, pow, rem, replace, sin, sqrt, sub, tanh,
    };
    use crate::{composed::Scores, testing::*};

    type X = Scores<usize, 2, usize, usize, f64, Cpu, NoneTape>;
    type Y = Traced<(usize, Const<2>, usize, usize)>;

    const SHAPE: (usize, Const<2>, usize, usize) = (2, Const, 3, 5);

    /// Checks the values against `expected`, and the gradient. If `positive`, `x` is between 0.5 and 2.5.
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
    fn functions_of_one_operand_have_values_and_gradients() {
        check_unary(false, exp, f64::exp);
        check_unary(true, ln, f64::ln);
        check_unary(false, tanh, f64::tanh);
        check_unary(false, abs, f64::abs);
        check_unary(true, sqrt, f64::sqrt);
        check_unary(false, sin, f64::sin);
        check_unary(false, cos, f64::cos);
        check_unary(false, logistic, |x| 1.0 / (1.0 + (-x).exp()));
        check_unary(false, |x| pow(x, 3.0), |x| x * x * x);
        check_unary(false, |x| pow(x, 1.0), |x| x);
        check_unary(false, |x| pow(x, 0.0), |_| 1.0);
        check_unary(true, |x| pow(x, -2.0), |x| 1.0 / (x * x));
        check_unary(true, |x| pow(x, 1.5), |x| x * x.sqrt());
        // No number of the test is within a difference step of an integer.
        check_unary(false, floor, f64::floor);
        check_unary(false, fresh, |x| x);
        check_unary(false, |x| add_scalar(x, 0.25), |x| x + 0.25);
        check_unary(false, |x| mul_scalar(x, -1.5), |x| x * -1.5);
    }

    fn check_binary(f: impl Fn(Y, Y) -> Result<Y, CpuError>, expected: impl Fn(f64, f64) -> f64) {
        let a: X = tensor(SHAPE, 1);
        // The divisor is not near 0.
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
    fn functions_of_two_operands_have_values_and_gradients() {
        check_binary(add, |a, b| a + b);
        check_binary(sub, |a, b| a - b);
        check_binary(mul, |a, b| a * b);
        check_binary(div, |a, b| a / b);
        check_binary(minimum, |a, b| if b < a { b } else { a });
        check_binary(maximum, |a, b| if b > a { b } else { a });
    }

    /// The values of a function of one number, and its gradients for an output gradient of 1.
    fn at(xs: &[f64], f: impl Fn(Y) -> Result<Y, CpuError>) -> (Vec<f64>, Vec<f64>) {
        let x: X = filled((1, Const, 1, xs.len() / 2), xs);
        let y = f(x.leaky_trace()).unwrap();
        let found = values(&y);
        (found, values(&y.sum().backward().get(&x)))
    }

    /// The same for a function of two numbers.
    fn at_both([a, b]: [[f64; 2]; 2], f: impl Fn(Y, Y) -> Result<Y, CpuError>) -> [Vec<f64>; 3] {
        let [a, b]: [X; 2] = [a, b].map(|numbers| filled((1, Const, 1, 1), &numbers));
        let y = f(a.leaky_trace(), b.leaky_trace()).unwrap();
        let found = values(&y);
        let gradients = y.sum().backward();
        [
            found,
            values(&gradients.get(&a)),
            values(&gradients.get(&b)),
        ]
    }

    #[test]
    fn special_cases_agree_with_pytorch() {
        let zeros = [0.0, -0.0];
        assert_eq!(at(&zeros, abs).1, [0.0, 0.0]);
        assert_eq!(at(&zeros, sqrt).1[0], f64::INFINITY);
        assert_eq!(at(&zeros, |x| pow(x, 0.0)), (vec![1.0; 2], vec![0.0; 2]));
        assert_eq!(at(&zeros, |x| pow(x, 1.0)), (vec![0.0; 2], vec![1.0; 2]));
        assert_eq!(at(&zeros, |x| pow(x, 2.0)), (vec![0.0; 2], vec![0.0; 2]));
        let same = [[1.5, 0.0], [1.5, -0.0]];
        for f in [minimum, maximum] {
            let [_, to_a, to_b] = at_both(same, f);
            assert_eq!([to_a, to_b].concat(), [0.5; 4]);
        }
    }

    #[test]
    fn the_logistic_function_saturates_at_0_and_1() {
        let infinite = [f64::NEG_INFINITY, f64::INFINITY];
        for ends in [[-1e4, 1e4], infinite] {
            assert_eq!(at(&ends, logistic), (vec![0.0, 1.0], vec![0.0, 0.0]));
        }
    }

    #[test]
    fn negative_numbers_have_powers_with_integer_exponents() {
        assert_eq!(
            at(&[-2.0, -0.5], |x| pow(x, 3.0)),
            (vec![-8.0, -0.125], vec![12.0, 0.75])
        );
        let (found, gradient) = at(&[-2.0, -0.5], |x| pow(x, 0.5));
        assert!(found.iter().chain(&gradient).all(|x| x.is_nan()));
        // The exponent exceeds the integers of dfdx's `powi`.
        let (found, _) = at(&[1.0, 2.0], |x| pow(x, 1e10));
        assert_eq!(found, [1.0, f64::INFINITY]);
    }

    #[test]
    fn floors_have_gradient_0() {
        let xs = [-1.5, -1.0, -0.25, 0.0, 0.75, 2.0, 1e300, f64::INFINITY];
        let floors = [-2.0, -1.0, -1.0, 0.0, 0.0, 2.0, 1e300, f64::INFINITY];
        assert_eq!(at(&xs, floor), (floors.to_vec(), vec![0.0; 8]));
        assert!(at(&[f64::NAN, 0.5], floor).0[0].is_nan());
    }

    #[test]
    fn remainders_have_the_sign_of_the_dividend() {
        for (a, b, remainder) in [
            (5.5, 2.0, 1.5),
            (-5.5, 2.0, -1.5),
            (5.5, -2.0, 1.5),
            (-5.5, -2.0, -1.5),
            (1.0, 3.0, 1.0),
            // The quotient, 1e17, is rounded, but the remainder is exact.
            (1e17 + 16.0, 3.0, 2.0),
        ] {
            let [found, to_a, to_b] = at_both([[a; 2], [b; 2]], rem);
            assert_eq!(found, [remainder; 2], "{a} % {b}");
            assert_eq!([to_a, to_b], [[1.0; 2], [-(a / b).trunc(); 2]]);
        }
        let [found, ..] = at_both([[1.0, f64::INFINITY], [0.0, 2.0]], rem);
        assert!(found.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn remainders_have_gradients_of_both_operands() {
        let b: X = filled(SHAPE, &[0.75; 2 * 2 * 3 * 5]);
        let x: X = tensor(SHAPE, 1);
        check_gradient(&x, |x| {
            let squared = pow(x.leaky_trace(), 2.0).unwrap();
            rem(exp(squared).unwrap(), b.retaped()).unwrap()
        });
    }

    #[test]
    fn minimum_and_maximum_ignore_nan() {
        let [found, ..] = at_both([[f64::NAN, 1.0], [1.0, f64::NAN]], maximum);
        assert_eq!(found, [1.0; 2]);
    }

    #[test]
    fn replaced_tensors_get_gradient_0() {
        let [found, to_a, to_b] = at_both([[1.0, 2.0], [3.0, 4.0]], replace);
        assert_eq!(found, [3.0, 4.0]);
        assert_eq!([to_a, to_b], [[0.0; 2], [1.0; 2]]);
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
    fn a_tensor_can_be_combined_with_its_fresh_copy() {
        let x: X = tensor(SHAPE, 1);
        check_gradient(&x, |x| {
            let x = x.leaky_trace();
            mul(fresh(x.with_empty_tape()).unwrap(), x).unwrap()
        });
    }

    #[test]
    fn a_fresh_copy_keeps_the_sign_of_zero() {
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
        for f in [floor, sqrt, logistic, |x| pow(x, 0.0), |x| pow(x, 2.0)] {
            backward_of_nothing(f(x.leaky_trace()).unwrap()).get(&x);
        }
        let other: X = tensor((2, Const, 0, 5), 2);
        for f in [minimum, maximum, rem] {
            let y = f(x.leaky_trace(), other.leaky_trace()).unwrap();
            let gradients = backward_of_nothing(y);
            gradients.get(&x);
            gradients.get(&other);
        }
    }
}
