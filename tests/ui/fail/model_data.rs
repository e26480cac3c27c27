//! Data of an attention are inputs of the model without a tape: no gradient flows into them.

use attn::model;

model! {
    struct Computed<d_model = 8>;

    fn forward(x: [batch, seq, d_model], e: [batch, seq, seq, 3]) -> [batch, seq, d_model] {
        let pair = linear::<2>(e);
        attention::<heads = 2, bias = false>(x, pair = pair) {
            data pair: [batch, q_len, kv_len, heads];
            fn score(score, b, h, q_idx, kv_idx) { score + pair[b, q_idx, kv_idx, h] }
        }
    }
}

model! {
    struct Traced<d_model = 8>;

    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        attention::<heads = 2>(layer_norm(x), gate = x) {
            data gate: [batch, kv_len, d_model];
            fn score(score, b, kv_idx) { score + gate[b, kv_idx, 0] }
        }
    }
}

fn main() {}
