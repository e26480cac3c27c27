//! Expansions of some specs for readers: a plain layer and a body in full, and the relevant parts of others.

use super::support::{expand, parse_file, parts};

/// The whole expansion, or these parts of it.
fn expansion(spec: &str, names: &[&str]) -> String {
    let file = parse_file(expand(spec));
    prettyplease::unparse(&if names.is_empty() {
        file
    } else {
        parts(file, names)
    })
}

macro_rules! expansions {
    ($($(#[$about:meta])* $name:ident $([$($part:literal),+])?: $spec:literal;)*) => {$(
        $(#[$about])*
        #[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), expansion($spec, &[$($($part),+)?]), $spec);
        }
    )*};
}

expansions! {
    /// The whole expansion of a plain layer.
    causal_self_attention: "
        /// Looks back.
        pub struct SelfAttention<heads = 8, d_model = 512, mask = causal>;
    ";
    /// Masks of data and of positions: in the composed form, for pairs and for rectangles.
    padded_cross_attention ["run", "Attends", "Mask"]: "
        pub(crate) struct CrossAttention<heads = 2, d_model = 8, d_context = 6, mask = padding & causal(lower_right)>;
    ";
    /// The kernel of additive scores with a normalizer of single scores: both forms.
    additive ["run", "forward", "backward", "attention"]: "
        struct Additive<heads = 2, d_model = 8, score = additive(hidden = 5), bias = false, normalizer = sigmoid>;
    ";
    /// The order of all operations.
    everything_at_once ["Everything", "run"]: "
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
    /// The transforms of queries and keys before their product, and their derivatives.
    rotated_bilinear_pair ["forward", "backward", "attention"]: "
        struct Rotated<heads = 2, d_model = 8, position = rope, qk_norm = l2>;
        struct Bilinear<heads = 3, d_model = 6, score = bilinear, position = alibi>;
    ";
    /// Constants of the user, each evaluated once in a constant of the layer.
    constants_of_the_user ["__Sized_heads", "__Sized_d_model", "__Sized_kv_heads", "__Sized_mask", "__Sized_dropout", "Call", "make_call"]: "
        pub struct Sized<heads = HEADS, d_model = { HEADS * WIDTH }, kv_heads = config::KV_HEADS, mask = sliding_window(WINDOW), dropout = P, position = alibi>;
    ";
    /// The whole expansion of a layer with a body.
    data_of_a_body: "
        struct Graph<heads = 2, d_model = 8, d_context = 6> {
            param bias: [heads, 4] = zeros;
            data distance: ids[batch, q_len, kv_len];
            data weight: [kv_len];
            fn score(score, b, h, q_idx, kv_idx) { score + bias[h, min(distance[b, q_idx, kv_idx], 3)] }
            fn mask(b, q_idx, kv_idx) { distance[b, q_idx, kv_idx] < 9 && weight[kv_idx] > 0.5 }
        }
    ";
    /// The errors, and the layer that is emitted in spite of them.
    mistakes ["compile_error", "Mistaken"]: "
        pub struct Mistaken<heads = 7, d_model = 512, mask = caussal, dropout = 1.0>;
    ";
}
