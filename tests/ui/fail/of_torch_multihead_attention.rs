//! The arguments of `torch.nn.MultiheadAttention`, and of its call: the message says what to write.

use attn::{attention, model};

attention! {
    struct Layer<num_heads = 2, embed_dim = 16, kdim = 8, vdim = 4, add_zero_attn = true, add_bias_kv = true>;
    struct Call<
        heads = 2, d_model = 16, batch_first = true, key_padding_mask = true, attn_mask = true, need_weights = true,
        average_attn_weights = true, is_causal = true, pre_talking_heads = true
    >;
}

model! {
    struct Operands<d = 8>;

    fn forward(q: [batch, seq, d], k: [batch, keys, d], v: [batch, keys, d], keep: bool[batch, keys]) -> [batch, seq, d] {
        let x = attention::<2, name = a>(q, key = k, value = v);
        attention::<2, name = b>(x, context = k, key_padding_mask = keep) + attention::<2, name = c>(x, attn_mask = keep)
    }
}

fn main() {}
