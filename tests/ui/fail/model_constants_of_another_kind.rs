//! Constants that rustc rejects: one error each, at their tokens.

use attn::{dfdx::prelude::*, model};

const WIDTH: u32 = 16;
const DEPTH: i32 = 2;
const VOCAB: u32 = 9;
const SHARE: &str = "0.1";

model! {
    struct Header<d_model = WIDTH, heads = 4>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let y = x + attention::<heads, d_model>(layer_norm(x));
        y + feed_forward::<{ 4 * d_model }>(layer_norm(y)) * { d_model / 2 }
    }
}

model! {
    struct Everywhere<d_model = 16>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
        let mut x = embedding::<VOCAB, d_model>(tokens);
        repeat DEPTH {
            x = x + dropout::<SHARE>(feed_forward::<64>(layer_norm(x)));
        }
        linear::<VOCAB>(dropout::<SHARE>(x))
    }
}

model! {
    struct Undefined<d_model = 16>;
    fn forward(x: [BATCH, seq, d_model], tokens: ids[BATCH, seq]) -> [BATCH, seq, d_model] {
        let y = x + embedding::<ROWS, d_model>(tokens);
        let z = linear::<{ 2 * ROWS }>(gelu(y));
        module::<Linear<ROWS, 16>, out = [BATCH, seq, d_model]>(linear::<ROWS>(z))
    }
}

fn main() {
    let dev = AutoDevice::default();
    let model = dev.build_module::<Header, f32>();
    let x: Tensor<(usize, usize, Const<16>), f32, _> = dev.sample_normal_like(&(2, 3, Const));
    let _ = model.forward(x.clone());
    let _ = model.forward(x.traced(model.alloc_grads())).square().mean().backward();
}
