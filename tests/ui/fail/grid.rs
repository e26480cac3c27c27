//! Tokens on a grid: the sizes, the masks that need one, and the coordinates of a body.

use attn::{attention, dfdx::prelude::*};

const NONE: usize = 0;

attention! {
    struct Missing<heads = 2, d_model = 16, mask = neighborhood(7)>;
    struct OfSequence<heads = 2, d_model = 16, mask = window(7)>;
    struct OneAxis<heads = 2, d_model = 16, grid = [14], mask = same_row>;
    struct NoBrackets<heads = 2, d_model = 16, grid = 14, mask = same_row>;
    struct Zero<heads = 2, d_model = 16, grid = [0, 14], mask = same_row>;
    struct ZeroConst<heads = 2, d_model = 16, grid = [14, NONE], mask = same_row>;
    struct Unread<heads = 2, d_model = 16, grid = [14, 14], mask = causal>;
    struct KeysAlone<heads = 2, d_model = 16, kv_grid = [14, 14]>;
    struct OneSequence<heads = 2, d_model = 16, grid = [14, 14], kv_grid = [7, 7], mask = same_row>;
    struct OtherAxes<heads = 2, d_model = 16, d_context = 16, grid = [14, 14], kv_grid = [2, 7, 7], mask = same_row>;
    struct Frames<heads = 2, d_model = 16, grid = [14, 14], mask = same_frame>;
    struct FramesOfWindow<heads = 2, d_model = 16, grid = [14, 14], mask = neighborhood(7, frames = 3)>;
    struct Shift<heads = 2, d_model = 16, grid = [14, 14], mask = window(7, shift = 7)>;
    struct Prefix<heads = 2, d_model = 16, prefix_tokens = 1>;
    struct ByHand<heads = 2, d_model = 16> {
        fn mask(q_row, kv_row) { q_row == kv_row }
    }
    struct NotTaken<heads = 2, d_model = 16, grid = [14, 14]> {
        fn mask(q_row) { q_row == kv_row }
    }
    struct FramesOfBody<heads = 2, d_model = 16, grid = [14, 14]> {
        fn mask(q_frame, kv_frame) { q_frame == kv_frame }
    }
    struct Misspelt<heads = 2, d_model = 16, grid = [14, 14], mask = natten(7)>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Missing, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let _: Tensor<Rank3<2, 4, 16>, f32, _> = layer.forward(x);
}
