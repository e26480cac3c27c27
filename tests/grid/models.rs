//! Models of images.

use attn::{dfdx::prelude::*, model};
use support::cases::{scatter, tensor};
use support::compare::{assert_same, backpropagate};

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
