//! Mistakes with `dot` in the body of an attention.

use attn::{attention, model};

model! {
    struct Tables<heads = 2, d = 4, rows = 5>;
    fn forward(
        q: [batch, seq, heads, d],
        k: [batch, seq, heads, d],
        v: [batch, seq, heads, d],
        other: [batch, kv, heads, d],
        lens: lens[batch],
        many: [n, d],
    ) -> [batch, seq, heads, d] {
        param table: [rows, d] = normal(0.1);
        param wide: [rows, 3] = normal(0.1);
        param of_heads: [heads, rows, d] = normal(0.1);
        param u: [heads, d] = zeros;
        let a = attend(q, k, v) { fn score(score, q_idx, kv_idx) { score + dot(q, wide[clamp(q_idx - kv_idx, 0, 4)]) } };
        let b = attend(q, k, v) { fn score(score, q_idx, kv_idx) { score + dot(other, table[clamp(q_idx - kv_idx, 0, 4)]) } };
        let c = attend(q, k, v) { fn score(score, q_idx, kv_idx) { score + dot(u, table[clamp(q_idx - kv_idx, 0, 4)]) } };
        let e = attend(q, k, v) { fn score(score, q_idx, kv_idx) { score + dot(q - k, table[clamp(q_idx - kv_idx, 0, 4)]) } };
        let f = attend(q, q, v) { fn score(score, q_idx, kv_idx) { score + dot(q, table[clamp(q_idx - kv_idx, 0, 4)]) } };
        let g = attend(q, k, v) { fn score(score, q_idx, kv_idx) { score + dot(q, tables[clamp(q_idx - kv_idx, 0, 4)]) } };
        let h = attend(q, k, v) { fn score(score, q_idx, kv_idx) { score + dot(q, table[q_idx, kv_idx]) } };
        let i = attend(q, k, v) { fn score(score) { score + dot(q, table[score]) } };
        let j = attend(q, k, v) { fn score(score) { score + dot(q, table[0.5 * 2.0]) } };
        let l = attend(q, k, v) { fn score(score, q_idx, kv_idx) { score + dot(q, of_heads[h, clamp(q_idx - kv_idx, 0, 4)]) } };
        let m = attend(q, k, v) { fn score(score, h) { score + dot(q, table[3 * h + 2]) } };
        let n = attend(q, k, v) { fn score(score) { score + dot(q, table[5]) } };
        let o = attend(q, k, v) { fn mask(q_idx, kv_idx) { dot(q, table[clamp(q_idx - kv_idx, 0, 4)]) > 0.0 } };
        let p = attend(q, k, v) { fn score(score) { score + dot(q, k) } };
        let r = attend(q, k, v) { fn score(score) { score + dot(q) } };
        let s = attend(q, k, v) { fn score(score) { score + dot(q, lens[0]) } };
        let t = attend(q, k, v) { fn score(score, q_idx, kv_idx) { let table = 1.0; score + dot(q, table[clamp(q_idx - kv_idx, 0, 4)]) * table } };
        let w = attend(q, k, v) { fn score(score, h) { let h = 1 - h; score + dot(q, of_heads[h, 0]) } };
        let x = attend(q, k, v) {
            param own: [5, 4] = zeros;
            fn score(score, q_idx, kv_idx) { score + dot(q, own[clamp(q_idx - kv_idx, 0, 4)]) }
        };
        let y = attend(q, k, v) { fn score(score, q_idx) { score + dot(q, many[q_idx]) } };
        let z = attend(q, k, v) { fn score(score, q_idx) { score + dot(q +, table[0]) } };
        let aa = attend(q, k, v, table = table) { fn score(score, q_idx, kv_idx) { score + dot(q, table[clamp(q_idx - kv_idx, 0, 4)]) } };
        let ab = attend(q, k, v) { fn score(score, h, q_idx) { score + dot(q, table[0]) + table[h, q_idx, 1] } };
        let ac = attend(q, k, v) { fn score(score) { let q = 2.0; score * q + dot(tanh(q), table[0]) } };
        aa + ab + ac + a + b + c + e + f + g + h + i + j + l + m + n + o + p + r + s + t + w + x + y + z
    }
}

model! {
    struct Projected<d = 4>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param table: [5, 4] = normal(0.1);
        attention::<heads = 2>(x) { fn score(score, q_idx, kv_idx) { score + dot(q, table[clamp(q_idx - kv_idx, 0, 4)]) } }
    }
}

attention! {
    struct Layer<heads = 2, d_model = 16> {
        param table: [5, 8] = zeros;
        fn score(score, q_idx, kv_idx) { score + dot(q, table[clamp(q_idx - kv_idx, 0, 4)]) }
    }
}

attention! {
    struct Product<heads = 2, d_model = 16> {
        fn score(score, q_idx, kv_idx) { score + matmul(q, k) }
    }
}

fn main() {}
