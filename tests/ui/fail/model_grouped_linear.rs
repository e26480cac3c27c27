//! Mistakes with maps by group, and with `..` among the axes of an operation.

use attn::model;

model! {
    struct Experts<d = 8, experts = 4>;
    fn forward(x: [batch, seq, d], group: ids[batch, seq], other: ids[seq, batch], score: [batch, seq, 9]) -> [batch, seq, d] {
        let a = grouped_linear::<d>(x, group);
        let b = grouped_linear::<d, experts>(x);
        let c = grouped_linear::<d, experts>(group, x);
        let e = grouped_linear::<d, experts>(x, other);
        let f = grouped_linear::<d, experts>(x, argmax::<9>(score));
        let g = grouped_linear::<d, experts, capacity_factor = -1.0>(x, group);
        let h = grouped_linear::<d, experts, capacity = 64>(x, group);
        let i = moe::<experts>(x);
        a + b + c + e + f + g + h + i
    }
}

model! {
    struct Leading<d = 8>;
    block spread(x: [.., d]) -> [.., d] { x - mean::<..>(x) * variance::<..>(x) }
    block total(x: [.., d]) -> [] { mean::<..>(mean::<..>(sum::<d>(x))) }
    fn forward(x: [batch, seq, d], v: [d]) -> [batch, seq, d] {
        x * mean::<..>(x) + total(x) * spread(v)
    }
}

const FACTOR: f64 = 0.0;
const FEW: usize = 3;

model! {
    struct Constants<d = 8>;
    fn forward(x: [batch, seq, d], y: [batch, seq, 5]) -> [batch, seq, d] {
        let a = grouped_linear::<d, FEW>(x, argmax::<5>(y));
        a + grouped_linear::<d, 5, capacity_factor = FACTOR>(x, argmax::<5>(y))
    }
}

model! {
    struct Session<vocab = 5, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        linear::<vocab>(grouped_linear::<d, vocab, capacity_factor = 1.25>(x, tokens))
    }
}

fn main() {
    let model = attn::dfdx::prelude::DeviceBuildExt::build_module::<Session, f32>(&attn::AutoDevice::default());
    let _session = model.session(5);
}
