//! What a few specs expand to, for the eyes of a reader.

use super::support::{expand, parse_file};

fn expansion(spec: &str) -> String {
    prettyplease::unparse(&parse_file(expand(spec)))
}

macro_rules! expansions {
    ($($name:ident: $spec:literal;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), expansion($spec), $spec);
        }
    )*};
}

expansions! {
    causal_self_attention: "
        /// Looks back.
        pub struct SelfAttention<heads = 8, d_model = 512, mask = causal>;
    ";
    padded_cross_attention: "
        pub(crate) struct CrossAttention<heads = 2, d_model = 8, d_context = 6, mask = padding & causal(lower_right)>;
    ";
    additive: "
        struct Additive<heads = 2, d_model = 8, score = additive(hidden = 5), bias = false, normalizer = sigmoid>;
    ";
    everything_at_once: "
        #[derive(PartialEq)]
        #[cfg(feature = \"attention\")]
        pub struct Everything<
            heads = 6,
            kv_heads = 2,
            d_model = 10,
            head_dim = 4,
            value_head_dim = 5,
            mask = (sliding_window(3) | document) & padding,
            scale = 0.3,
            softcap = 30,
            normalizer = softmax1,
            position = rel_pos_bias(num_buckets = 8, max_distance = 20),
            qk_norm = rms,
            bias = [q, o],
            dropout = 0.1,
            init = normal(0.02),
        >;
    ";
    rotated_bilinear_pair: "
        struct Rotated<heads = 2, d_model = 8, position = rope, qk_norm = l2>;
        struct Bilinear<heads = 3, d_model = 6, score = bilinear, position = alibi>;
    ";
    constants_of_the_user: "
        pub struct Sized<heads = HEADS, d_model = { HEADS * WIDTH }, kv_heads = config::KV_HEADS, mask = sliding_window(WINDOW), dropout = P, position = alibi>;
    ";
    data_of_a_body: "
        struct Graph<heads = 2, d_model = 8, d_context = 6> {
            param bias: [heads, 4] = zeros;
            data distance: ids[batch, q_len, kv_len];
            data weight: [kv_len];
            fn score(score, b, h, q_idx, kv_idx) { score + bias[h, min(distance[b, q_idx, kv_idx], 3)] }
            fn mask(b, q_idx, kv_idx) { distance[b, q_idx, kv_idx] < 9 && weight[kv_idx] > 0.5 }
        }
    ";
    mistakes: "
        pub struct Mistaken<heads = 7, d_model = 512, mask = caussal, dropout = 1.0>;
    ";
}
