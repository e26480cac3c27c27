//! Functions and quotients, element by element: of values, of a value and a number, repeated along axes of size 1, and of themselves.

use super::agree::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::{compare::assert_same, tensors};

support::elementwise!(agree);

model! {
    /// One function for each result.
    struct Each<d = 3>;
    fn forward(x: [batch, d]) -> (
        [batch, d], [batch, d], [batch, d], [batch, d], [batch, d], [batch, d], [batch, d], [batch, d], [batch, d], [batch, d], [batch, d]
    ) {
        (exp(x), ln(x), sqrt(x), sin(x), cos(x), abs(x), floor(x), pow(x, 2), min(x, 0.5), max(x, 0.5), clamp(x, -1, 1))
    }
}

/// The functions on elements, as Rust has them.
const FUNCTIONS: [fn(f64) -> f64; 11] = [
    f64::exp,
    f64::ln,
    f64::sqrt,
    f64::sin,
    f64::cos,
    f64::abs,
    f64::floor,
    |x| x * x,
    |x| x.min(0.5),
    |x| x.max(0.5),
    |x| x.clamp(-1.0, 1.0),
];

/// Also of numbers that a function has no value for, and where it is infinite.
#[test]
fn functions_have_the_values_of_rust() {
    let dev = Cpu::default();
    let model = dev.build_module::<Each, f64>();
    let numbers = [-2.5, -0.0, 0.0, 0.5, 1.0, 7.25];
    let x: Tensor<(usize, Const<3>), f64, _> = dev.tensor_from_vec(numbers.to_vec(), (2, Const));
    let check = |results: [Vec<f64>; 11]| {
        for (result, function) in results.into_iter().zip(FUNCTIONS) {
            for (found, x) in result.into_iter().zip(numbers) {
                let expected = function(x);
                let same = (found - expected).abs() <= 4.0 * f64::EPSILON * expected.abs();
                let is_right = same || found == expected || (found.is_nan() && expected.is_nan());
                assert!(is_right, "{found} for {expected} of {x}");
            }
        }
    };
    let (a, b, c, d, e, f, g, h, i, j, k) = model.forward(x.clone());
    check([a, b, c, d, e, f, g, h, i, j, k].map(|y| tensors::flat(&y)));
    let (a, b, c, d, e, f, g, h, i, j, k) = model.composed().forward(x);
    check([a, b, c, d, e, f, g, h, i, j, k].map(|y| tensors::flat(&y)));
}

/// The gradient of a bound that is met is shared, and that of `floor` is 0: also where the operand is an input that nothing else reads.
#[test]
fn gradients_at_edges_are_those_of_dfdx() {
    model! {
        struct Edges<d = 4>;
        fn forward(x: [batch, d]) -> ([batch, d], [batch, d]) {
            (min(x, 0) + 3 * max(x, 1), floor(x))
        }
    }
    let dev = Cpu::default();
    let model = dev.build_module::<Edges, f64>();
    let x: Tensor<(usize, Const<4>), f64, _> =
        dev.tensor_from_vec(vec![-1.0, 0.0, 1.0, 2.0], (1, Const));
    let gradient = |(a, b): (Traced<4>, Traced<4>)| {
        let loss = a.sum::<Rank0, _>() + b.sum::<Rank0, _>();
        tensors::flat(&loss.backward().get(&x))
    };
    let expected = [1.0, 0.5, 1.5, 3.0];
    assert_eq!(gradient(model.forward(x.clone().leaky_traced())), expected);
    assert_eq!(
        gradient(model.composed().forward(x.clone().leaky_traced())),
        expected
    );
}

type Traced<const D: usize> = Tensor<(usize, Const<D>), f64, Cpu, OwnedTape<f64, Cpu>>;

/// A branch that is not taken adds nothing to a gradient, though its derivative is infinite there.
#[test]
fn branches_that_are_not_taken_have_no_gradient() {
    model! {
        struct Guarded<d = 3>;
        fn forward(x: [batch, d]) -> [batch, d] {
            if x > 0 { sqrt(2 * x) / 2 } else { 0 }
        }
    }
    let dev = Cpu::default();
    let model = dev.build_module::<Guarded, f64>();
    let x: Tensor<(usize, Const<3>), f64, _> =
        dev.tensor_from_vec(vec![-1.0, 0.0, 2.0], (1, Const));
    let check = |y: Traced<3>| {
        assert_eq!(tensors::flat(&y), [0.0, 0.0, 1.0]);
        let gradients = y.sum::<Rank0, _>().backward();
        assert_eq!(tensors::flat(&gradients.get(&x)), [0.0, 0.0, 0.25]);
    };
    check(model.forward(x.clone().leaky_traced()));
    check(model.composed().forward(x.clone().leaky_traced()));
}

/// A choice between constants of the program is made while it is compiled.
#[test]
fn constants_are_chosen_by_rust() {
    const LARGE: bool = 2 > 1;
    model! {
        struct Chosen<d = 3>;
        fn forward(x: [batch, d]) -> [batch, d] { x * { if LARGE { 2.0 } else { 0.5 } } }
    }
    let dev = Cpu::default();
    let model = dev.build_module::<Chosen, f32>();
    let x: Tensor<(usize, Const<3>), f32, _> =
        dev.tensor_from_vec(vec![-1.0, 0.0, 4.0], (1, Const));
    assert_eq!(tensors::flat(&model.forward(x)), [-2.0, 0.0, 8.0]);
}

/// A function of constants that only rustc knows.
#[test]
fn functions_of_numbers_are_numbers() {
    const D: usize = 4;
    const SCALE: f64 = 0.25;
    model! {
        struct Scaled<d = D>;
        fn forward(x: [batch, d]) -> [batch, d] {
            x * sqrt(d) + max({ SCALE }, 0.125) - clamp({ SCALE * 8.0 }, 0, 1) * pow({ SCALE }, 2)
        }
    }
    let dev = Cpu::default();
    let model = dev.build_module::<Scaled, f64>();
    let x: Tensor<(usize, Const<4>), f64, _> =
        dev.tensor_from_vec(vec![-1.0, 0.0, 2.0, 0.5], (1, Const));
    let expected = [-1.8125, 0.1875, 4.1875, 1.1875];
    assert_eq!(tensors::flat(&model.forward(x.clone())), expected);
    assert_eq!(tensors::flat(&model.composed().forward(x)), expected);
}

/// Nothing is stored beside values: two arrays and their gradients.
#[test]
fn functions_keep_what_their_derivatives_read() {
    model! {
        struct Kept<d = 4>;
        fn forward(x: [batch, d]) -> [batch, d] { exp(linear::<d>(x)) }
    }
    let expected = 4 * 4 * 3 * size_of::<f32>();
    assert_eq!(Kept::activation_bytes(3), expected);
    assert_eq!(Kept::flops(3), 2 * 3 * 4 * 4);
}
