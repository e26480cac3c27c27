//! Both forms and the derivative, of masks and bodies on a grid.

use attn::{attention, dfdx::prelude::*};
use support::cases::{scatter, tensor};
use support::close::assert_close;
use support::compare::{Outcome, assert_same, backpropagate, weighted_sum};
use support::gradients::assert_gradients_of_parameters;
use support::tensors::flat;

attention! {
    struct Neighborhood<heads = 2, d_model = 8, grid = [5, 7], mask = neighborhood(3)>;
    struct Dilated<heads = 2, d_model = 8, grid = [5, 7], mask = neighborhood(3, dilation = 2)>;
    struct Registers<heads = 2, d_model = 8, grid = [11, 3], prefix_tokens = 2, mask = neighborhood(5)>;
    struct Video<heads = 2, d_model = 8, grid = [5, 1, 7], mask = window(2, frames = 3, shift = 1) & causal>;
    /// Swin's block: windows with a learned bias for each head and each distance of rows and columns.
    struct Swin<heads = 2, d_model = 8, grid = [5, 7], mask = window(WINDOW, shift = 2)> {
        param table: [heads, SIDE * SIDE] = truncated_normal(0.02);
        fn score(score, h, q_row, q_col, kv_row, kv_col) {
            let row = clamp(q_row - kv_row, 1 - WINDOW, WINDOW - 1) + WINDOW - 1;
            let col = clamp(q_col - kv_col, 1 - WINDOW, WINDOW - 1) + WINDOW - 1;
            score + table[h, row * SIDE + col]
        }
    }
}

const WINDOW: usize = 4;
const SIDE: usize = 2 * WINDOW - 1;

/// As the forms of other layers in `f64`: sums of a few hundred terms in another order.
const TOLERANCE: f64 = 3e-13;

macro_rules! forms_agree {
    ($($name:ident $Layer:ident;)*) => {$(
        #[test]
        fn $name() {
            let dev = Cpu::default();
            let mut layer = dev.build_module::<$Layer<f64>, f64>();
            scatter(&mut layer);
            let x: Tensor<(usize, usize, Const<8>), f64, _> = tensor("x", (2, 35, Const));
            let fused = backpropagate(layer.forward(x.leaky_trace()));
            let composed = backpropagate(layer.composed().forward(x.leaky_trace()));
            let outcomes: [Outcome; 2] =
                [fused, composed].map(|ran| ran.input("x", &x).parameters(&layer));
            assert_same(stringify!($Layer), &outcomes[0], &outcomes[1], TOLERANCE);
        }
    )*};
}

forms_agree! {
    neighborhood Neighborhood;
    dilated Dilated;
    registers Registers;
    video Video;
    swin Swin;
}

/// The derivative of the table, which reads coordinates, is that of the loss.
#[test]
fn the_gradient_of_a_learned_table_is_that_of_differences() {
    let make = || {
        let mut layer = Cpu::default().build_module::<Swin<f64>, f64>();
        scatter(&mut layer);
        layer
    };
    let x: Tensor<(usize, usize, Const<8>), f64, _> = tensor("x", (1, 35, Const));
    let layer = make();
    let outcome = backpropagate(layer.forward(x.leaky_trace())).parameters(&layer);
    assert_gradients_of_parameters(&make, &outcome, &|layer| {
        weighted_sum(layer.forward(x.clone())).array()
    });
}

/// The weights of the first head and sequence, `[query, key]`.
fn weights(layer: &Swin<f64>, x: &Tensor<(usize, usize, Const<8>), f64, Cpu>) -> Vec<f64> {
    let (_, weights) = layer.forward_with_weights(x.clone());
    flat(&weights)[..35 * 35].to_vec()
}

/// `relative_position_index` of Swin, on its windows: the difference of the logarithms of two weights of a query changes by the
/// difference of the two elements of the table.
#[test]
fn the_bias_of_swin_is_that_of_its_relative_position_index() {
    let dev = Cpu::default();
    let mut layer = dev.build_module::<Swin<f64>, f64>();
    scatter(&mut layer);
    let x: Tensor<(usize, usize, Const<8>), f64, _> = tensor("x", (1, 35, Const));
    let biased = weights(&layer, &x);
    let table = flat(&layer.table.weight);
    layer.table.weight = dev.zeros();
    let plain = weights(&layer, &x);
    // The first window that is whole has the rows 2 to 4 and the columns 2 to 5.
    let window: Vec<[usize; 2]> = (2..5)
        .flat_map(|row| (2..6).map(move |col| [row, col]))
        .collect();
    let at = |[row, col]: [usize; 2]| row * 7 + col;
    for q in &window {
        let bias = |k: &[usize; 2]| {
            let [row, col] = [0, 1].map(|axis| q[axis] + WINDOW - 1 - k[axis]);
            table[row * SIDE + col]
        };
        let first = window[0];
        for k in &window {
            let ratio = |weights: &[f64]| {
                let of = |k: [usize; 2]| weights[at(*q) * 35 + at(k)];
                (of(*k) / of(first)).ln()
            };
            let expected = bias(k) - bias(&first);
            assert_close(
                "bias",
                &[ratio(&biased) - ratio(&plain)],
                &[expected],
                1e-10,
            );
        }
        let inside: f64 = window.iter().map(|k| biased[at(*q) * 35 + at(*k)]).sum();
        assert_close("a window", &[inside], &[1.0], 1e-12);
    }
}
