//! Models of images.

use attn::{dfdx::prelude::*, model};
use support::cases::{scatter, tensor};
use support::compare::{Backpropagated, assert_same, backpropagate, flat, weighted_sum};

model! {
    /// A transformer of images with a class token, whose patches attend in neighborhoods and in shifted windows.
    struct Net<rows = 4, cols = 5, patches = { rows * cols }, tokens = { patches + 1 }, d_model = 8, classes = 3>;

    fn forward(x: [batch, patches, d_model]) -> [batch, classes] {
        param class: [1, d_model] = normal(0.02);
        let mut x = concat::<tokens>(class, x);
        x += attention::<heads = 2, grid = [rows, cols], prefix_tokens = 1, mask = neighborhood(3)>(x);
        x += attention::<heads = 2, grid = [rows, cols], prefix_tokens = 1, mask = same_row>(x) {
            param bias: [heads, 9] = zeros;
            fn score(score, h, q_col, kv_col) { score + bias[h, q_col - kv_col + 4] }
        };
        linear::<classes>(mean_pool(x))
    }
}

#[test]
fn both_forms_of_a_model_agree() {
    let mut net = Cpu::default().build_module::<Net<f64>, f64>();
    scatter(&mut net);
    let x: Tensor<(usize, Const<20>, Const<8>), f64, _> = tensor("x", (2, Const, Const));
    let fused = backpropagate(net.forward(x.leaky_trace()));
    let composed = backpropagate(net.composed().forward(x.leaky_trace()));
    let [fused, composed] = [fused, composed].map(|ran| ran.input("x", &x).parameters(&net));
    // As the forms of other models in `f64`.
    assert_same("net", &fused, &composed, 3e-13);
}

model! {
    /// Attention of given vectors on a grid, with a token before it.
    struct Given<heads = 2, d = 3>;

    fn forward(
        q: [batch, heads, seq, d],
        k: [batch, heads, seq, d],
        v: [batch, heads, seq, d],
    ) -> ([batch, heads, seq, d], [batch, heads, seq, seq]) {
        let (y, weights) = attend::<grid = [3, 4], prefix_tokens = 1, mask = neighborhood(3)>(q, k, v) {
            param bias: [heads, 7] = zeros;
            fn score(score, h, q_col, kv_col) { score + bias[h, q_col - kv_col + 3] }
        };
        (y, weights)
    }
}

type Vectors = Tensor<(usize, Const<2>, usize, Const<3>), f64, Cpu>;

#[test]
fn both_forms_of_given_vectors_agree() {
    let mut model = Cpu::default().build_module::<Given<f64>, f64>();
    scatter(&mut model);
    let [q, k, v]: [Vectors; 3] = ["q", "k", "v"].map(|name| tensor(name, (2, Const, 13, Const)));
    let run = |composed: bool| {
        let input = (q.leaky_trace(), k.clone(), v.clone());
        let (y, weights) = match composed {
            true => model.composed().forward(input),
            false => model.forward(input),
        };
        let values = [("output", flat(&y)), ("weights", flat(&weights))];
        let loss = weighted_sum(y) + weighted_sum(weights);
        let ran = Backpropagated::of(values, loss);
        let ran = ran.input("q", &q).input("k", &k).input("v", &v);
        ran.parameters(&model)
    };
    let fused = run(false);
    assert_same("given", &fused, &run(true), 3e-13);
    // The token before the grid and nine around each place.
    let rows = fused.get("weights").chunks(13);
    let counts: Vec<usize> = rows
        .map(|row| row.iter().filter(|w| **w != 0.0).count())
        .collect();
    assert_eq!(counts[0], 13);
    assert!(counts[1..13].iter().all(|count| *count == 10), "{counts:?}");
}

#[test]
fn given_vectors_that_do_not_fill_the_grid_are_an_error() {
    let model = Cpu::default().build_module::<Given<f64>, f64>();
    let [q, k, v]: [Vectors; 3] = ["q", "k", "v"].map(|name| tensor(name, (1, Const, 12, Const)));
    let error = model.try_forward((q, k, v)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "GivenAttend: the query axis has length 12, but the grid has 3 * 4 = 12 places behind 1 token"
    );
}
