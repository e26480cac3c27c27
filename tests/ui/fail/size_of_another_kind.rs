//! A size is a positive whole number.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Fraction<heads = 2.0, d_model = 16>;
    struct Text<heads = 2, d_model = "16">;
    struct Truth<heads = true, d_model = 16>;
    struct Negative<heads = -2, d_model = 16>;
    struct List<heads = 2, d_model = [16]>;
    struct Tuple<heads = 2, d_model = (8, 8)>;
    struct TwoNumbers<heads = 2 2, d_model = 16>;
    struct Range<heads = 0..2, d_model = 16>;
    struct Keyword<heads = fn, d_model = 16>;
    struct Control<heads = return, d_model = loop {}>;
    struct Item<heads = { const N: usize = 2; }, d_model = 16>;
    struct Closure<heads = || 2, d_model = 16>;
    struct Quotient<heads = 2, d_model = 16 / 0>;
    struct EachKey<heads = 2, d_model = 16, kv_heads = 0.5, head_dim = "8", value_head_dim = -8, d_context = false>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Fraction Text Truth Negative List Tuple TwoNumbers Range Keyword Control Item Closure Quotient EachKey);
}
