//! Names of other libraries: the message has the name of this language, and there is no second error.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Torch<num_heads = 2, embed_dim = 16, is_causal = true>;
    struct Llama<num_attention_heads = 2, hidden_size = 16, num_key_value_heads = 1, position = rotary>;
    struct Misspelled<head = 2, d_modell = 16>;
    struct Values<heads = 2, d_model = 16, alibi = true, window = 4>;
    struct Words<heads = 2, d_model = 16, score = bahdanau(8), qk_norm = rmsnorm, mask = local(3)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Torch Llama Misspelled Values Words);
}
