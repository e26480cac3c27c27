//! Results by name.

use attn::prelude::*;

model! {
    struct Results<d = 8>;

    fn forward(x: [batch, seq, d]) -> { logits: [batch, seq, d], pooled: [batch, d] } {
        let { y, mean: pooled } = read(x);
        (y, pooled)
    }

    fn other(x: [batch, seq, d]) -> { hidden: [batch, d], hidden: [batch, d] } {
        let (y, pooled) = read(x);
        { hiden: mean::<seq>(y), hidden: pooled }
    }

    block read(x: [batch, seq, d]) -> { y: [batch, seq, d], pooled: [batch, d] } {
        { pooled: mean::<seq>(x), y: relu(x) }
    }
}

model! {
    struct Order<d = 8>;

    fn forward(x: [batch, d]) -> ([batch, d], [batch, d]) {
        { y: x, z: 2 * x }
    }
}

model! {
    struct Shapes<d = 8>;

    fn forward(x: [batch, d]) -> { y, z: [batch, d] } {
        { y: x, z: 2 * x }
    }
}

fn main() {
    let dev = Cpu::default();
    let results = dev.build_module::<Results, f32>();
    let x: Tensor<Rank3<2, 3, 8>, f32, _> = dev.zeros();
    let _ = results.forward(x).hidden;
}
