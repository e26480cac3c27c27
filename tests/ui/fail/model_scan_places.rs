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

model! {
    struct Positions<d = 4>;
    fn forward(x: [batch, seq, d], memory: [batch, kv, d]) -> [batch, seq, d] {
        scan seq {
            state h: [batch, d] = 0.0;
            let a = attend::<position = alibi>(x + h, memory, memory);
            let b = attend::<position = rope>(x + h, memory, memory);
            h = a + b;
            h
        }
    }
}

model! {
    struct Tables<d = 4, rows = 16>;
    fn forward(x: [batch, seq, d], memory: [batch, kv, d]) -> [batch, seq, d] {
        param table: [rows, d] = normal(1.0);
        scan seq {
            state h: [batch, d] = 0.0;
            let a = attend(x + h, memory, memory) { fn score(score, q_idx) { score + dot(q, table[q_idx]) } };
            let b = attend(x + h, memory, memory) {
                param p: [16, 16] = normal(1.0);
                fn score(score, q_idx, kv_idx) { score + p[q_idx, kv_idx] }
            };
            h = a + b;
            h
        }
    }
}

fn main() {}
