//! `init` of layers in a model: its words, its standard deviation, and the owner of the table.

use attn::model;

const NONE: f64 = 0.0;

model! {
    struct Words<d = 4>;
    fn forward(x: [batch, d]) -> [batch, d] {
        let a = linear::<d, init = uniform>(x) + linear::<d, init = 0.02>(x);
        let b = linear::<d, init = normal>(x) + linear::<d, init = xavier_uniform(1)>(x);
        let c = linear::<d, init>(x) + linear::<d, initial = normal(0.02)>(x);
        a + b + c + layer_norm::<init = normal(0.02)>(x)
    }
}

model! {
    struct Literals<d = 4>;
    fn forward(ids: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<9, d, init = normal(0)>(ids) + learned_position::<9, d, init = normal(std = -0.02)>(ids);
        feed_forward::<8, init = normal(1e-60)>(x)
    }
}

model! {
    struct Tied<d = 4>;
    fn forward(ids: ids[batch, seq], more: ids[batch, seq]) -> [batch, seq, 9] {
        let x = embedding::<9, d>(ids) + embedding::<tied = embedding, init = normal(0.02)>(more);
        linear::<tied = embedding, init = normal(0.02)>(x)
    }
}

model! {
    struct Constants<d = 4>;
    fn forward(x: [batch, d]) -> [batch, d] {
        linear::<d, init = normal(NONE)>(x) + feed_forward::<8, init = normal(std = { 0.02 * NONE })>(x)
    }
}

fn main() {}
