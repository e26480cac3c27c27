//! What heads that talk cannot do.

use attn::{attention, model};

attention! {
    struct Truth<heads = 2, d_model = 16, talking_heads = true>;
    struct Number<heads = 2, d_model = 16, talking_heads = 1>;
    struct Unknown<heads = 2, d_model = 16, talking_heads = befor>;
    struct OfAnotherLibrary<heads = 2, d_model = 16, post_talking_heads = true>;
    struct MaskOfHeads<heads = 2, d_model = 16, talking_heads = after> {
        fn mask(h, q_idx, kv_idx) { q_idx - kv_idx < 4 * (h + 1) }
    }
    struct WeightsOfPlaces<heads = 2, d_model = 16, talking_heads = both> {
        fn normalize(score, kv_len) { sigmoid(score) / kv_len as f32 }
    }
    struct Taken<heads = 2, d_model = 16, talking_heads = both> {
        param mix_scores: [heads] = zeros;
        fn score(score, h) { score + mix_scores[h] }
    }
    // Each of these is allowed.
    struct WeightsOfPlacesAfter<heads = 2, d_model = 16, talking_heads = after> {
        fn normalize(score, kv_len) { sigmoid(score) / kv_len as f32 }
    }
    struct WeightsOfScores<heads = 2, d_model = 16, talking_heads = before> {
        fn normalize(score) { sigmoid(score) }
    }
}

model! {
    struct Sparse<d = 8, heads = 2>;

    fn forward(x: [batch, seq, d], q: [batch, seq, heads, 4]) -> [batch, seq, d] {
        let (_y, _weights, lse) = attend::<talking_heads = both, normalizer = sparsemax>(q, q, q);
        attend::<talking_heads = twice>(x, x, x)
    }
}

fn main() {}
