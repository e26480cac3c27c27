//! Every word of the language in the spelling of version 0.1.

#![allow(dead_code, reason = "to compile is all that is asked of them")]

use attn::{attention, dfdx::nn::builders::ReLU, model};

attention! {
    struct Sizes<heads = 4, d_model = 16, kv_heads = 2, head_dim = 6, value_head_dim = 3, d_context = 5>;
    struct None<heads = 2, d_model = 8, mask = none, position = none, qk_norm = none>;
    struct Windows<heads = 2, d_model = 8, mask = sliding_window(3) | dilated_sliding_window(2, 2)>;
    struct Named<heads = 2, d_model = 8, mask = sliding_window(n = 3, symmetric) | dilated_sliding_window(n = 2, dilation = 2, symmetric)>;
    struct Prefix<heads = 2, d_model = 8, mask = prefix_lm(2) & !chunked(3)>;
    struct Aligned<heads = 2, d_model = 8, d_context = 8, mask = causal(lower_right) & (padding | sliding_window(2, upper_left))>;
    struct Data<heads = 2, d_model = 8, mask = causal & padding & document>;
    struct Ensured<heads = 2, d_model = 8, mask = sliding_window(3) & padding & document, ensure = causal & sliding_window(3) & padding & document>;
    struct Attends<heads = 2, d_model = 8, mask = causal, ensure = { every_query_attends }>;
    struct Dot<heads = 2, d_model = 8, score = dot, softcap = 20.0>;
    struct ScaledDot<heads = 2, d_model = 8, score = scaled_dot, scale = 0.5, normalizer = softmax>;
    struct Additive<heads = 2, d_model = 8, score = additive(hidden = 3), normalizer = softmax1>;
    struct Bilinear<heads = 2, d_model = 8, score = bilinear, normalizer = sink>;
    struct Sigmoid<heads = 2, d_model = 8, normalizer = sigmoid, position = alibi>;
    struct Relu<heads = 2, d_model = 8, normalizer = relu(power = 2), position = rope>;
    struct Buckets<heads = 2, d_model = 8, mask = causal, position = rel_pos_bias(num_buckets = 8, max_distance = 20)>;
    struct BothSides<heads = 2, d_model = 8, position = rel_pos_bias(8, 20), bidirectional = true>;
    struct Sparsemax<heads = 2, d_model = 8, normalizer = sparsemax, position = rope(10_000)>;
    struct Entmax<heads = 2, d_model = 8, normalizer = entmax15, position = rope(theta = 500.0)>;
    struct Rms<heads = 2, d_model = 8, qk_norm = rms, bias = [q, k, v, o], dropout = 0.1>;
    struct L2<heads = 2, d_model = 8, qk_norm = l2, bias = false, init = xavier_uniform>;
    struct Kaiming<heads = 2, d_model = 8, bias = true, init = kaiming_uniform>;
    struct Normal<heads = 2, d_model = 8, init = normal(std = 0.02)>;
    struct Body<heads = 2, d_model = 8, mask = causal> {
        param slope: [heads] = alibi_slopes;
        param table: [heads, 4] = normal(0.1);
        param gain: [1] = ones;
        param shift: [heads] = zeros;
        param spread: [heads] = uniform(0.5);
        param start: [heads] = 0.25;
        data doc: ids[batch, q_len];
        data bias: [batch, q_len, kv_len];
        data keep: bool[batch, kv_len];
        fn score(score, b, h, q_idx, kv_idx, q_len, kv_len) {
            let distance = (q_idx - kv_idx) as f32;
            let near = table[h, clamp(q_idx - kv_idx, 0, 3)] + gain[0] * shift[h] + spread[h] * start[h];
            let capped = 10.0 * tanh((score - slope[h] * distance) / 10.0) + bias[b, q_idx, kv_idx];
            if kv_idx < kv_len && q_idx < q_len { capped + near } else { score }
        }
        fn mask(b, q_idx, kv_idx) {
            doc[b, q_idx] == doc[b, kv_idx] && keep[b, kv_idx] && (q_idx - kv_idx) % 2 == 0 || q_idx == kv_idx
        }
    }
    struct Weighed<heads = 2, d_model = 8> {
        fn score(score) { max(min(abs(score), pow(score, 2)), exp(-sqrt(abs(score)))) + ln(1.0 + score * score) + sigmoid(score) }
        fn normalize(score) { max(score, 0.0) }
    }
}

model! {
    struct Operations<vocab = 7, d = 8>;

    fn forward(ids: ids[batch, seq], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, 3], [batch, seq, vocab]) {
        let mut x = embedding::<vocab, d, init = normal(0.02)>(ids) + learned_position::<9, d>(ids) - sinusoidal_position::<d>(ids);
        repeat 2, share = true, name = blocks {
            x += attention::<2, d, mask = causal & padding>(layer_norm::<epsilon = 1e-6>(x), padding = keep);
            x = x + feed_forward::<12, activation = gelu_tanh, init = normal(0.02)>(rms_norm(x));
        }
        let y = concat(gelu(x), gelu_tanh(x), relu(x), relu_squared(x), silu(x), sigmoid(x), tanh(x), softmax(x));
        let x = x * linear::<d, bias = false, name = gate>(y) + dropout::<0.1>(2.0 * x);
        let x = x + module::<ReLU, out = [batch, seq, d]>(x);
        (linear::<3>(mean_pool(x, lens)), linear::<tied = embedding>(x))
    }
}

model! {
    struct FeedForwards<d = 8>;

    fn forward(x: [batch, seq, d], context: [batch, len, 6]) -> [batch, d] {
        let x = x + attention::<heads = 2>(x, context = context);
        let x = x + feed_forward::<hidden = 4, activation = gelu>(x) + feed_forward::<4, activation = relu>(x);
        let x = x + feed_forward::<4, activation = relu_squared>(x) + feed_forward::<4, activation = silu>(x);
        let x = x + feed_forward::<4, activation = sigmoid>(x) + feed_forward::<4, activation = tanh>(x);
        let x = x + feed_forward::<4, activation = swiglu>(x) + feed_forward::<4, activation = geglu>(x) + feed_forward::<4, activation = reglu>(x);
        mean_pool(x)
    }
}
