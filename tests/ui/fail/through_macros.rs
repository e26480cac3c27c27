//! In the user's own macros, an error is at the tokens that the user passed.

use attn::{attention, dfdx::prelude::*};

const HEADS: usize = 7;

macro_rules! layer {
    ($name:ident, $heads:expr, $d_model:literal, $mask:tt, $($rest:tt)*) => {
        attention! {
            struct $name<heads = $heads, d_model = $d_model, mask = $mask, $($rest)*>;
        }
    };
}

layer!(Heads, 7, 16, causal,);
layer!(Expression, 3 * 2, 16, causal,);
layer!(Const, HEADS, 16, causal,);
layer!(Literal, 2, "16", causal,);
layer!(Mask, 2, 16, caussal,);
layer!(Group, 2, 16, (padding | sliding_window(0)),);
layer!(Rest, 2, 16, none, scale = 0, droput = 0.1);

macro_rules! keys {
    ($name:ident, $($key:ident = $value:expr),*) => {
        attention! {
            struct $name<$($key = $value),*>;
        }
    };
}

keys!(
    Keys,
    heads = 2,
    d_model = 16,
    kv_heads = 3,
    score = additive(hidden = 0),
    bias = [q, w],
    mask = causal && padding
);

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Heads Expression Const Literal Mask Group Rest Keys);
}
