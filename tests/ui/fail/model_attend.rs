//! Mistakes with `attend`: its operands, their axes, and the keys of projections.

use attn::model;

model! {
    struct Heads<heads = 4, few = 2, odd = 3, d = 8, e = 5>;
    fn forward(
        q: [batch, seq, heads, d],
        k: [batch, seq, few, d],
        v: [batch, seq, few, e],
        other: [batch, kv, odd, d],
        wide: [batch, seq, heads, e],
        plain: [batch, seq, 2, 8],
        any: [batch, kv, seq, d],
        tokens: ids[batch, seq],
        lens: lens[batch],
        vector: [d],
    ) -> [batch, seq, heads, e] {
        let a = attend(q, k);
        let b = attend(q, k, v, lens);
        let c = attend::<kv_heads = few>(tokens, k, v);
        let f = attend(plain, plain, plain);
        let g = attend::<kv_heads = groups>(q, k, v);
        let h = attend::<kv_heads = odd>(q, other, other);
        let i = attend::<kv_heads = few>(wide, k, v);
        let j = attend::<kv_heads = few>(q, k, other);
        let l = attend::<heads = kv>(any, q, q);
        let m = attend::<heads = d>(q, q, q);
        let n = attend(vector, vector, vector);
        let o = attend::<kv_heads = few, bias = false>(q, k, v);
        let p = attend::<kv_heads = few, d_model = 32>(q, k, v);
        let r = attend::<kv_heads = few, score = additive(7)>(q, k, v);
        let s = attend::<kv_heads = few, mask = padding>(q, k, v);
        let t = attend::<kv_heads = few>(q, k, v, padding = lens);
        let y = attend::<kv_heads = few>(q, k, v, lens = lens);
        let z = attend::<heads = 2, kv_heads = 2>(plain, plain, plain);
        let u = attend::<kv_heads = few, mask = padding>(q, k, v, padding = tokens);
        let w = attend::<kv_heads = few, is_causal = true>(q, k, v);
        let w = w + attend::<kv_heads = few, window_size = 3>(q, k, v);
        let x = scaled_dot_product_attention(q, k, v);
        a + b + c + f + g + h + i + j + l + m + n + o + p + r + s + t + u + w + x + y + z
    }
}

const FEW: usize = 3;

model! {
    struct Constants<heads = 4, d = 8>;
    fn forward(q: [batch, seq, heads, d], k: [batch, seq, FEW, d]) -> [batch, seq, heads, d] {
        attend::<kv_heads = FEW>(q, k, k)
    }
}

fn main() {}
