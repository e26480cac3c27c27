//! Conditions on numbers, element by element, and choices between numbers by a condition.
//!
//! A condition is on the tape of the numbers that it was computed from. No gradient passes through it, but these numbers get a gradient
//! of 0.

use dfdx::{
    shapes::{Const, HasShape, Shape},
    tensor::{NoneTape, PutTape, SplitTape, Tape, Tensor, WithEmptyTape, ZerosTensor},
    tensor_ops::{ChooseFrom, Device, TryEq, TryLe, TryLt},
};

use super::tensors::{depend, is_empty, zeros_after_both};
use crate::Element;

/// One boolean per batch, head, query and key: `[batch, heads, query, key]`.
pub type Condition<B, const H: usize, Q, K, D, T> = Tensor<(B, Const<H>, Q, K), bool, D, T>;

macro_rules! comparison {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
            a: Tensor<S, E, D, T>,
            b: Tensor<S, E, D, T>,
        ) -> Result<Tensor<S, bool, D, T>, D::Err> {
            let truth = if is_empty(a.shape()) {
                a.device().try_zeros_like(a.shape())?
            } else {
                a.$method(&b)?
            };
            Ok(truth.put_tape(depend(a).merge(depend(b))))
        }
    )*};
}

comparison! {
    /// `a == b`; false if either is NaN.
    equal = try_eq;
    /// `a < b`; false if either is NaN.
    less = try_lt;
    /// `a <= b`; false if either is NaN.
    at_most = try_le;
}

/// `!a`
pub fn not<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    a: Tensor<S, bool, D, T>,
) -> Result<Tensor<S, bool, D, T>, D::Err> {
    let (a, tape) = a.split_tape();
    Ok(a.device().not(&a)?.put_tape(tape))
}

macro_rules! connective {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
            a: Tensor<S, bool, D, T>,
            b: Tensor<S, bool, D, T>,
        ) -> Result<Tensor<S, bool, D, T>, D::Err> {
            let ((a, tape), (b, other)) = (a.split_tape(), b.split_tape());
            let truth = if is_empty(a.shape()) {
                a
            } else {
                a.device().$name(&a, &b)?
            };
            Ok(truth.put_tape(tape.merge(other)))
        }
    )*};
}

connective! {
    /// `a && b`
    and;
    /// `a || b`
    or;
}

/// `if condition { a } else { b }`. The branch that is not taken gets gradient 0.
///
/// PyTorch: `torch.where(condition, a, b)`. As there, the gradient 0 is passed to the operations of the branch, and 0 times an infinite
/// derivative is NaN: use [`guard`] for their operands. (There is no guard for `minimum` and `maximum`.)
pub fn select<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    condition: Tensor<S, bool, D, T>,
    a: Tensor<S, E, D, T>,
    b: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let (condition, tape) = condition.split_tape();
    let shape = *condition.shape();
    let chosen = if is_empty(&shape) {
        zeros_after_both(a, b, shape)?
    } else {
        condition.try_choose(a, b)?
    };
    let (chosen, other) = chosen.split_tape();
    Ok(chosen.put_tape(tape.merge(other)))
}

/// `if condition { a } else { b }`, for conditions.
pub fn select_condition<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    condition: Tensor<S, bool, D, T>,
    a: Tensor<S, bool, D, T>,
    b: Tensor<S, bool, D, T>,
) -> Result<Tensor<S, bool, D, T>, D::Err> {
    let other = not::<S, E, D, T>(condition.with_empty_tape())?;
    or(and(condition, a)?, and(other, b)?)
}

/// The operand of a branch: `x` where `condition` is `taken`, 0 elsewhere.
///
/// Where it is not taken, the gradient is 0, whatever the derivative: `if x > 0 { ln(x) } else { 0 }` has gradient 0 at 0 if the
/// logarithm reads the guarded `x`, and 0 times infinity otherwise.
pub fn guard<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    condition: &Tensor<S, bool, D, T>,
    taken: bool,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let zeros: Tensor<S, E, D, T> =
        ZerosTensor::<E>::try_zeros_like(x.device(), x.shape())?.retaped();
    let condition = condition.retaped::<NoneTape>().put_tape(T::default());
    if taken {
        select(condition, x, zeros)
    } else {
        select(condition, zeros, x)
    }
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    // Imported by name, because dfdx's prelude has functions with the same names.
    use super::{Condition, and, at_most, equal, guard, less, not, or, select};
    use crate::{
        composed::{Scores, select_condition},
        testing::*,
    };

    type Tape64 = OwnedTape<f64, Cpu>;
    type X = Scores<usize, 2, usize, usize, f64, Cpu, NoneTape>;
    type Y = Scores<usize, 2, usize, usize, f64, Cpu, Tape64>;
    type C = Condition<usize, 2, usize, usize, Cpu, Tape64>;

    const SHAPE: (usize, Const<2>, usize, usize) = (2, Const, 3, 5);
    const EMPTY: (usize, Const<2>, usize, usize) = (2, Const, 0, 5);

    fn numbers(numbers: &[f64]) -> X {
        filled((1, Const, 1, numbers.len() / 2), numbers)
    }

    /// `x > 0`
    fn positive(x: &X) -> C {
        let zeros: X = Cpu::default().zeros_like(x.shape());
        less(zeros.leaky_trace(), x.leaky_trace()).unwrap()
    }

    #[test]
    fn comparisons_agree_with_those_of_numbers() {
        let a = [-1.0, 0.0, 1.0, f64::NAN, f64::INFINITY, 0.0];
        let b = [0.0, -0.0, 0.5, f64::NAN, f64::INFINITY, f64::NAN];
        let compare = |f: fn(Y, Y) -> Result<C, CpuError>| {
            let a = numbers(&a).leaky_trace();
            let b = numbers(&b).leaky_trace();
            f(a, b).unwrap().as_vec()
        };
        let pairs = || std::iter::zip(a, b);
        let expected = |f: fn((f64, f64)) -> bool| pairs().map(f).collect::<Vec<_>>();
        assert_eq!(compare(equal), expected(|(a, b)| a == b));
        assert_eq!(compare(less), expected(|(a, b)| a < b));
        assert_eq!(compare(at_most), expected(|(a, b)| a <= b));
    }

    #[test]
    fn connectives_agree_with_those_of_booleans() {
        let a = || positive(&numbers(&[0.0, 0.0, 1.0, 1.0]));
        let b = || positive(&numbers(&[0.0, 1.0, 0.0, 1.0]));
        let values = |condition: Result<C, CpuError>| condition.unwrap().as_vec();
        assert_eq!(values(and(a(), b())), [false, false, false, true]);
        assert_eq!(values(or(a(), b())), [false, true, true, true]);
        assert_eq!(values(not(a())), [true, true, false, false]);
        let chosen = select_condition(a(), b(), not(b()).unwrap());
        assert_eq!(values(chosen), [true, false, false, true]);
    }

    #[test]
    fn a_choice_takes_one_of_two_scores() {
        let [x, a, b]: [X; 3] = [1, 2, 3].map(|seed| tensor(SHAPE, seed));
        let choose =
            |a: &X, b: &X| -> Y { select(positive(&x), a.leaky_trace(), b.leaky_trace()).unwrap() };
        let [xs, of_a, of_b] = [&x, &a, &b].map(values);
        let pairs = std::iter::zip(of_a, of_b);
        let expected: Vec<f64> = std::iter::zip(xs, pairs)
            .map(|(x, (a, b))| if x > 0.0 { a } else { b })
            .collect();
        assert_eq!(values(&choose(&a, &b)), expected);
        check_gradient(&a, |a| choose(a, &b));
        check_gradient(&b, |b| choose(&a, b));
    }

    #[test]
    fn choices_between_broadcast_scores_give_them_their_whole_gradient() {
        let x: X = tensor(SHAPE, 1);
        let row: Tensor<(usize,), f64, Cpu> = tensor((5,), 2);
        check_gradient(&row, |row| {
            let row: Y = row
                .leaky_trace()
                .broadcast_like::<_, Axes3<0, 1, 2>>(&SHAPE);
            select(positive(&x), row, x.leaky_trace()).unwrap()
        });
    }

    #[test]
    fn operands_of_a_condition_get_gradient_0() {
        let [x, a, b]: [X; 3] = [1, 2, 3].map(|seed| tensor(SHAPE, seed));
        let [c, d] = [&x, &a].map(positive);
        let condition = select_condition(not(c).unwrap(), d, positive(&b)).unwrap();
        let [then, otherwise]: [X; 2] = [4, 5].map(|seed| tensor(SHAPE, seed));
        let y = select(condition, then.leaky_trace(), otherwise.leaky_trace()).unwrap();
        let gradients = y.sum().backward();
        for read in [&x, &a, &b] {
            assert_eq!(values(&gradients.get(read)), [0.0; 2 * 2 * 3 * 5]);
        }
    }

    /// `if x > 0 { ln(x) } else { 1 / (x - 1) }`, and its gradient.
    fn branches(x: &X, guarded: bool) -> (Vec<f64>, Vec<f64>) {
        let condition = positive(x);
        let read = |taken: bool| -> Y {
            if guarded {
                guard(x.leaky_trace(), &condition, taken).unwrap()
            } else {
                x.leaky_trace()
            }
        };
        let then = read(true).ln();
        let otherwise = (read(false) - 1.0).recip();
        let y = select(condition, then, otherwise).unwrap();
        let found = values(&y);
        (found, values(&y.sum().backward().get(x)))
    }

    #[test]
    fn guards_keep_out_nan_of_the_branch_not_taken() {
        let x = numbers(&[-1.0, 0.0, 1.0, 2.0]);
        let (found, gradient) = branches(&x, true);
        assert_close(&found, &[-0.5, -1.0, 0.0, 2_f64.ln()], F64);
        assert_close(&gradient, &[-0.25, -1.0, 1.0, 0.5], F64);
        // PyTorch has the same without a guard: 0 times infinity, at the zeros of `x` and of `x - 1`.
        let (found, gradient) = branches(&x, false);
        assert_close(&found, &[-0.5, -1.0, 0.0, 2_f64.ln()], F64);
        let is_nan: Vec<bool> = gradient.iter().map(|x| x.is_nan()).collect();
        assert_eq!(is_nan, [false, true, true, false]);
    }

    #[test]
    fn a_guard_is_the_identity_where_the_branch_is_taken_and_0_elsewhere() {
        let x: X = tensor(SHAPE, 1);
        for taken in [true, false] {
            let read = |x: &X| guard(x.leaky_trace(), &positive(x), taken).unwrap();
            let keep = |x| if (x > 0.0) == taken { x } else { 0.0 };
            let expected: Vec<f64> = values(&x).into_iter().map(keep).collect();
            assert_eq!(values(&read(&x)), expected);
            check_gradient(&x, read);
        }
    }

    #[test]
    fn empty_conditions_are_supported() {
        let [x, a, b]: [X; 3] = [1, 2, 3].map(|seed| tensor(EMPTY, seed));
        let condition = and(positive(&x), not(positive(&x)).unwrap()).unwrap();
        let condition = or(condition, positive(&x)).unwrap();
        let a_read = guard(a.leaky_trace(), &condition, true).unwrap();
        let y = select(condition, a_read, b.leaky_trace()).unwrap();
        assert_eq!(*y.shape(), EMPTY);
        let gradients = backward_of_nothing(y);
        for read in [&x, &a, &b] {
            gradients.get(read);
        }
    }
}
