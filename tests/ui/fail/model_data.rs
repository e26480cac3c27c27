//! Data of an attention: computed floats have a gradient, and others are inputs of the model.

use attn::model;

model! {
    struct WrongAxes<d_model = 8>;

    fn forward(x: [batch, seq, d_model], e: [batch, seq, seq, 3]) -> [batch, seq, d_model] {
        let pair = linear::<3>(e);
        attention::<heads = 2, bias = false>(x, pair = pair, gate = x) {
            data pair: [batch, q_len, kv_len, heads];
            data gate: [batch, heads, kv_len];
            fn score(score, b, h, q_idx, kv_idx) { score + pair[b, q_idx, kv_idx, h] + gate[b, h, kv_idx] }
        }
    }
}

model! {
    struct ComputedIds<d_model = 8>;

    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        attention::<heads = 2>(x, kind = argmax::<d_model>(x)) {
            data kind: ids[batch, kv_len];
            fn mask(b, q_idx, kv_idx) { kind[b, kv_idx] == 3 }
        }
    }
}

model! {
    struct InMask<d_model = 8>;

    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        attention::<heads = 2>(layer_norm(x), gate = x) {
            data gate: [batch, kv_len, d_model];
            fn mask(b, kv_idx) { gate[b, kv_idx, 0] > 0.0 }
        }
    }
}

model! {
    struct WithoutGradient<d_model = 8>;

    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let gate = tanh(x);
        attention::<heads = 2>(x, gate = gate, q_proj = gate) {
            data gate: [batch, kv_len, d_model];
            data q_proj: [batch, kv_len, d_model];
            fn score(score, b, kv_idx) { score + q_proj[b, kv_idx, 0] + floor(gate[b, kv_idx, 0]) }
        }
    }
}

model! {
    struct InSession<d_model = 8, vocab = 5>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(tokens);
        let by = x[d_model = 0];
        let x = attention::<heads = 2, mask = causal>(x, by = by) {
            data by: [batch, kv_len];
            fn score(score, b, kv_idx) { score + by[b, max(kv_idx - 1, 0)] }
        };
        linear::<vocab>(x)
    }
}

fn main() {
    use attn::dfdx::prelude::*;

    let model = Cpu::default().build_module::<InSession, f32>();
    let _ = model.session(5);
}
