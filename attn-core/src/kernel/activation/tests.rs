//! Activations against their references in `f64`, and derivatives against central differences.

use super::*;
use crate::kernel::Kernels;
use crate::kernel::loops::activation::{backward, forward};
use crate::kernel::testing::{self, *};
use crate::simd::WriteMode;

/// Applies a test to every activation, with its reference in `f64`.
macro_rules! for_every_activation {
    ($test:path) => {
        $test(Gelu, gelu);
        $test(GeluTanh, gelu_tanh);
        $test(Relu, |x| x.max(0.0));
        $test(ReluSquared, |x| x.max(0.0).powi(2));
        $test(Silu, |x| x * logistic(x));
        $test(Sigmoid, logistic);
        $test(Tanh, f64::tanh);
    };
}

fn gelu(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn values<E: Kernels>(activation: impl Activation, x: &[E]) -> Vec<E> {
    let mut y = vec![E::NAN; x.len()];
    forward(activation, x, &mut y);
    y
}

fn slopes<E: Kernels>(activation: impl Activation, x: &[E]) -> Vec<E> {
    let mut d_x = vec![E::NAN; x.len()];
    let d_y = vec![E::ONE; x.len()];
    backward(activation, x, &d_y, &mut d_x, WriteMode::Overwrite);
    d_x
}

#[test]
fn values_are_within_an_epsilon_of_the_argument() {
    fn test<A: Activation>(activation: A, f: fn(f64) -> f64) {
        let what = std::any::type_name::<A>();
        on_every_isa(|isa| {
            // From -20 to 20, without 0.
            let x: Vec<f64> = (0..4000).map(|i| (f64::from(i) - 1999.5) * 0.01).collect();
            let near = |got: f64, x: f64, epsilon: f64| {
                // The tolerance is relative to the value where it is large, and to the argument where the value is a difference.
                let scale = f(x).abs().max(x.abs()).max(1.0);
                let error = (got - f(x)).abs();
                assert!(
                    error <= 2.0 * epsilon * scale,
                    "{what}({x}) on {isa}: {got}"
                );
            };
            for (&x, y) in x.iter().zip(values(activation, &x)) {
                near(y, x, f64::EPSILON);
            }
            let x: Vec<f32> = x.iter().map(|&x| x as f32).collect();
            for (&x, y) in x.iter().zip(values(activation, &x)) {
                near(f64::from(y), f64::from(x), f64::from(f32::EPSILON));
            }
        });
    }
    for_every_activation!(test);
}

#[test]
fn logistic_tails_are_relatively_exact() {
    let x: Vec<f64> = (1..60).map(|i| -0.5 * f64::from(i)).collect();
    for (&x, y) in x.iter().zip(values(Silu, &x)) {
        let want = x * x.exp() / (1.0 + x.exp());
        assert!((y / want - 1.0).abs() < 1e-14, "{x}: {y}");
    }
    let x = &x[..8];
    for (&x, y) in x.iter().zip(values(GeluTanh, x)) {
        let e = (2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).exp();
        // The rounding error of the exponent, about 20, is multiplied with it.
        assert!((y / (x * e / (1.0 + e)) - 1.0).abs() < 1e-13, "{x}: {y}");
    }
}

#[test]
fn slopes_agree_with_central_differences() {
    fn test<A: Activation>(activation: A, f: fn(f64) -> f64) {
        let what = std::any::type_name::<A>();
        let x: Vec<f64> = (0..400).map(|i| (f64::from(i) - 199.5) * 0.05).collect();
        let want: Vec<f64> = x
            .iter()
            .map(|&x| testing::slope(STEP, |by| f(x + by)))
            .collect();
        on_every_isa(|isa| {
            // A rounding error of 1e-15 times 10, over a step of 1e-5, and the third derivative.
            assert_close(
                format!("{what} on {isa}"),
                &slopes(activation, &x),
                &want,
                Absolute(2e-9),
            );
        });
    }
    for_every_activation!(test);
}

#[test]
fn slopes_at_zero_and_limits_follow_conventions() {
    fn limits<A: Activation>(activation: A, _: fn(f64) -> f64) {
        fn of<E: Kernels + std::fmt::Display>(activation: impl Activation, what: &str) {
            let x = [E::NAN, E::ZERO, E::of_f64(1e30), E::of_f64(-1e30)];
            let y = values(activation, &x);
            let d = slopes(activation, &x);
            assert!(y[0] != y[0], "{what}");
            assert!(
                y[1..].iter().chain(&d[1..]).all(|y| y == y),
                "{what}: {y:?} {d:?}"
            );
            let x = [E::INFINITY, -E::INFINITY];
            let y = values(activation, &x);
            let d = slopes(activation, &x);
            assert!(y.iter().chain(&d).all(|y| y == y), "{what}: {y:?} {d:?}");
            assert!(y[1] == E::ZERO || y[1] == -E::ONE, "{what}: {y:?}");
            assert!(y[0] == E::ONE || y[0] == E::INFINITY, "{what}: {y:?}");
            assert_eq!(d[1], E::ZERO, "{what}");
        }
        on_every_isa(|isa| {
            let what = format!("{} on {isa}", std::any::type_name::<A>());
            of::<f32>(activation, &what);
            of::<f64>(activation, &what);
        });
    }
    for_every_activation!(limits);
    assert_eq!(
        slopes(Relu, &[0.0_f32, -0.0, 1e-30, -1e-30]),
        [0.0, 0.0, 1.0, 0.0]
    );
    assert_eq!(
        slopes(ReluSquared, &[0.0_f32, 3.0, f32::INFINITY]),
        [0.0, 6.0, f32::INFINITY]
    );
    assert_eq!(slopes(Gelu, &[0.0, f64::INFINITY]), [0.5, 1.0]);
    assert_eq!(slopes(Silu, &[0.0, f64::INFINITY]), [0.5, 1.0]);
    assert_eq!(slopes(GeluTanh, &[0.0, f64::INFINITY]), [0.5, 1.0]);
}

fn gated<E: Real>(activation: impl Activation, x: &[E], half: usize) -> Vec<E> {
    let rows = x.len() / (2 * half);
    let mut y = vec![E::NAN; rows * half];
    let to = MatrixMut::new(&mut y, rows, half);
    let none = vec![E::ZERO; 2 * half];
    gated_forward(activation, Matrix::new(x, rows, 2 * half), &none, to);
    y
}

#[test]
fn a_gate_is_the_activated_left_half_times_the_right_one() {
    const ROWS: usize = 100;
    on_every_isa(|isa| {
        for half in LENGTHS[1..].iter().copied() {
            let x = noise::<f64>(ROWS * 2 * half, 1);
            let d_y = noise::<f64>(ROWS * half, 2);
            let what = format!("{half} on {isa}");
            let mut want_y = Vec::new();
            let mut want_d_x = Vec::new();
            for (row, d_y) in x.chunks(2 * half).zip(d_y.chunks(half)) {
                let (left, right) = row.split_at(half);
                let values = values(Silu, left);
                let slopes = slopes(Silu, left);
                want_y.extend((0..half).map(|j| values[j] * right[j]));
                want_d_x.extend((0..half).map(|j| d_y[j] * right[j] * slopes[j]));
                want_d_x.extend((0..half).map(|j| d_y[j] * values[j]));
            }
            assert_eq!(gated(Silu, &x, half), want_y, "{what}");
            let mut d_x = vec![f64::NAN; x.len()];
            gated_backward(
                Silu,
                Matrix::new(&x, ROWS, 2 * half),
                Matrix::new(&d_y, ROWS, half),
                MatrixMut::new(&mut d_x, ROWS, 2 * half),
            );
            assert_eq!(d_x, want_d_x, "{what}");

            // With a bias, and with sums of biases.
            let bias: Vec<f64> = (0..2 * half).map(|j| j as f64).collect();
            let biases = bias.iter().cycle();
            let sums: Vec<f64> = x.iter().zip(biases).map(|(x, b)| x + b).collect();
            let mut y = vec![f64::NAN; ROWS * half];
            let to = MatrixMut::new(&mut y, ROWS, half);
            gated_forward(Silu, Matrix::new(&x, ROWS, 2 * half), &bias, to);
            assert_eq!(y, gated(Silu, &sums, half), "{what}");

            let mut want_d_x = vec![f64::NAN; x.len()];
            gated_backward(
                Silu,
                Matrix::new(&sums, ROWS, 2 * half),
                Matrix::new(&d_y, ROWS, half),
                MatrixMut::new(&mut want_d_x, ROWS, 2 * half),
            );
            let mut d_x = x;
            let mut y = d_y;
            let x = MatrixMut::new(&mut d_x, ROWS, 2 * half);
            gated_backward_in_place(Silu, x, &bias, MatrixMut::new(&mut y, ROWS, half));
            assert_eq!((y, d_x), (gated(Silu, &sums, half), want_d_x), "{what}");
        }
    });
}

#[test]
fn in_place_functions_compute_value_and_derivative() {
    fn test<A: Activation>(activation: A, _: fn(f64) -> f64) {
        on_every_isa(|isa| {
            for (rows, cols) in LENGTHS.into_iter().map(|len| (3, len)).chain([(90, 401)]) {
                let [x, d_y] = [1, 2].map(|seed| noise::<f32>(rows * cols, seed));
                let bias = noise(cols, 3);
                let biases = bias.iter().cycle();
                let sums: Vec<f32> = x.iter().zip(biases).map(|(x, b)| x + b).collect();
                let mut want = vec![f32::NAN; x.len()];
                let mut y = vec![f32::NAN; x.len()];
                backward(activation, &sums, &d_y, &mut want, WriteMode::Overwrite);
                let to = MatrixMut::new(&mut y, rows, cols);
                biased_forward(activation, Matrix::new(&x, rows, cols), &bias, to);
                let what = format!("{rows} x {cols} on {isa}");
                assert_eq!(y, values(activation, &sums), "{what}");
                let mut d_x = x;
                let mut y = d_y;
                biased_backward_in_place(
                    activation,
                    MatrixMut::new(&mut d_x, rows, cols),
                    &bias,
                    MatrixMut::new(&mut y, rows, cols),
                );
                assert_eq!((y, d_x), (values(activation, &sums), want), "{what}");
            }
        });
    }
    for_every_activation!(test);
}

#[test]
#[should_panic(expected = "a bias of 2 for 3 columns")]
fn the_number_of_biases_is_checked() {
    let x = Matrix::new(&[0.0; 3], 1, 3);
    biased_forward(Relu, x, &[0.0; 2], MatrixMut::new(&mut [0.0; 3], 1, 3));
}

#[test]
fn gated_gradients_agree_with_central_differences() {
    let x = noise::<f64>(2 * 6, 1);
    let d_y = noise::<f64>(2 * 3, 2);
    let loss = |x: &[f64]| -> f64 {
        let y = gated(Gelu, x, 3);
        y.iter().zip(&d_y).map(|(y, d)| y * d).sum()
    };
    let mut d_x = vec![f64::NAN; x.len()];
    gated_backward(
        Gelu,
        Matrix::new(&x, 2, 6),
        Matrix::new(&d_y, 2, 3),
        MatrixMut::new(&mut d_x, 2, 6),
    );
    assert_close(
        "gated",
        &d_x,
        &support::differences::slopes(&x, loss),
        Absolute(1e-9),
    );
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let rows = 300;
    let half = 65;
    let x = noise::<f32>(rows * 2 * half, 1);
    let d_y = noise::<f32>(rows * half, 2);
    same_for_all_threads(|| {
        let mut d_x = vec![0.0; x.len()];
        gated_backward(
            Gelu,
            Matrix::new(&x, rows, 2 * half),
            Matrix::new(&d_y, rows, half),
            MatrixMut::new(&mut d_x, rows, 2 * half),
        );
        let mut sums = x.clone();
        let mut active = d_y.repeat(2);
        biased_backward_in_place(
            Gelu,
            MatrixMut::new(&mut sums, rows, 2 * half),
            &x[..2 * half],
            MatrixMut::new(&mut active, rows, 2 * half),
        );
        (
            (values(Tanh, &x), slopes(Gelu, &x)),
            (gated(Gelu, &x, half), d_x),
            (sums, active),
        )
    });
}
