use attn::model;

const NEGATIVE: f64 = -1e-6;
const NONE: f64 = 0.0;

model! {
    struct Literals<d = 4>;
    fn forward(x: [batch, d]) -> [batch, d] {
        let y = layer_norm::<epsilon = 0>(x) + rms_norm::<epsilon = -1e-6>(x);
        // It is 0 in f32.
        let z = layer_norm::<epsilon = 1e-60>(y) + layer_norm::<epsilon = true>(y);
        rms_norm::<eps = 1e-5>(z) + rms_norm::<1e-5>(z)
    }
}

model! {
    struct Constants<d = 4>;
    fn forward(x: [batch, d]) -> [batch, d] {
        layer_norm::<epsilon = NEGATIVE>(x) + rms_norm::<epsilon = { NONE / 2.0 }>(x)
    }
}

fn main() {}
