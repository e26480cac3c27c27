//! The user's macros and traits do not affect the expansion: macros with names of those of `core`, and methods of every type
//! with names of those that the expansion calls.

#![allow(unused_macros, dead_code)]

/// Every type has methods that are called as those of the expansion.
pub trait Blanket {
    fn shape(&self) {}
    fn device(&self) {}
    fn clone(&self) {}
    fn size(&self) {}
    fn random_u64(&self) {}
    fn put_tape(&self) {}
    fn split_tape(&self) {}
    fn with_empty_tape(&self) {}
    fn visit_fields(&self) {}
    fn fit(&self) {}
    fn run(&self) {}
    fn attend(&self) {}
    fn forward(&self) {}
    fn all(&self) {}
    fn numbers(&self) {}
    fn weights(&self) {}
    fn values(&self) {}
    fn matrix(&self) {}
    fn output(&self) {}
    fn dropout(&self) {}
    fn len(&self) {}
    fn min(&self) {}
    fn max(&self) {}
    fn abs(&self) {}
    fn reset(&self) {}
    fn map(&self) {}
    fn rev(&self) {}
    fn to_owned(&self) {}
    fn max_by(&self) {}
    fn attends(&self) {}
    fn coverage(&self) {}
    fn attends_all(&self) {}
    fn sqrt(&self) {}
}
impl<T> Blanket for T {}

macro_rules! of_the_user {
    ($($name:ident)*) => {
        $(macro_rules! $name {
            () => {
                compile_error!("the user's")
            };
        })*
    };
}
of_the_user! {
    matches vec assert assert_eq debug_assert unreachable panic format write todo println concat stringify unimplemented
}

::attn::attention! {
    struct Layer<
        heads = 2,
        d_model = 8,
        mask = causal & padding & document,
        softcap = 5.0,
        position = rel_pos_bias(8, 16),
        qk_norm = rms,
        dropout = 0.5,
    >;
    struct Rotated<heads = 2, d_model = 8, position = rope, mask = sliding_window(3)>;
    struct Cross<heads = 2, d_model = 8, d_context = 8, mask = !padding, score = additive(2)>;
    struct Body<heads = 2, d_model = 8> {
        param slope: [heads] = alibi_slopes;
        param table: [heads, 4] = zeros;
        data call: ids[batch, q_len];
        data weight: [kv_len];
        fn score(score, b, h, q_idx, kv_idx) {
            let d = abs(q_idx - kv_idx);
            if d < 4 { score + table[h, d] } else { score - slope[h] * d as f32 * weight[kv_idx] * tanh(score) }
        }
        fn mask(b, q_idx, kv_idx) { kv_idx <= q_idx && call[b, q_idx] % 3 == 0 }
    }
}

::attn::model! {
    pub struct Gpt<vocab = 9, d_model = 8>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<16, d_model>(tokens);
        repeat 2 {
            x = x + dropout::<0.1>(attention::<heads = 2, mask = causal, dropout = 0.1>(layer_norm(x)));
            x = x + feed_forward::<hidden = 16>(rms_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
    }

    pub struct Pooled;

    fn forward(x: [batch, seq, 8], y: [batch, k, 8], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, 8], [batch, seq, 16]) {
        let x = attention::<heads = 2, mask = padding>(x, padding = lens);
        let z = attention::<heads = 2>(x, context = y) + softmax(x) * 2.0 - 1.0;
        let z = module::<::attn::nn::Linear<8, 8>, out = [batch, seq, 8]>(z);
        (mean_pool(x, keep), concat(gelu(x), z))
    }

    pub struct Pool;

    fn forward(x: [batch, seq, 8], y: [batch, k, 8], lens: lens[batch], keep: bool[batch, seq]) -> ([batch, 8], [batch, seq, 16]) {
        let x = attention::<heads = 2, mask = padding>(x, padding = lens);
        let z = attention::<heads = 2>(x, context = y) + softmax(x) * 2.0 - 1.0;
        (mean_pool(x, keep) + mean_pool(x), concat(gelu(x), z))
    }
}
