//! The one query of a step has no place.

use attn::model;

model! {
    struct Mask<d = 4>;
    fn forward(x: [batch, seq, d], memory: [batch, kv, d]) -> [batch, seq, d] {
        scan seq {
            state h: [batch, d] = 0.0;
            h = attend(x + h, memory, memory) { fn mask(q_idx, kv_idx) { kv_idx <= q_idx } };
            h
        }
    }
}

model! {
    struct Scores<d = 4>;
    fn forward(x: [batch, seq, d], memory: [batch, kv, d]) -> [batch, seq, d] {
        scan seq {
            state h: [batch, d] = 0.0;
            h = attend(x + h, memory, memory) { fn score(score, q_idx, kv_idx) { score - (kv_idx - q_idx) as f32 } };
            h
        }
    }
}

fn main() {}
