//! Declarations that the user's own macros put together.

use attn::{attention, dfdx::prelude::*};

macro_rules! layer {
    ($(#[$meta:meta])* $vis:vis $name:ident, $heads:literal x $head_dim:expr) => {
        attention! {
            $(#[$meta])*
            $vis struct $name<heads = $heads, d_model = $heads * $head_dim, mask = causal>;
        }
    };
}

layer!(
    /// Documented.
    #[derive(Clone)]
    #[allow(dead_code)]
    pub(crate) Plain, 2 x 4
);
layer!(Computed, 2 x 2 + 2);
layer!(pub Constant, 4 x WIDTH);

const WIDTH: usize = 2;

/// A list of values for a key, and tokens for the rest.
macro_rules! family {
    ($($name:ident: $kv_heads:expr, $p:expr, $mask:tt $position:ident ($($rest:tt)*);)*) => {
        attention! {$(
            pub struct $name<
                heads = 4,
                d_model = 16,
                kv_heads = $kv_heads,
                dropout = $p,
                mask = $mask & chunked($kv_heads),
                position = $position,
                $($rest)*
            >;
        )*}
    };
}

family! {
    MultiQuery: 1, 0.0, causal alibi ();
    Grouped: 1 + 1, { 1.0 / 4.0 }, (causal | !causal) rope (bias = false, normalizer = softmax1);
    Full: 4, RATE, none none (scale = 0.5, init = normal(std = 0.02),);
}

const RATE: f32 = 0.1;

/// The names of keys and words, and the sizes, through fragments that hide their tokens.
macro_rules! spec {
    ($name:ident [$($key:ident = $value:expr),*]) => {
        attention! {
            struct $name<$($key = $value),*>;
        }
    };
    ($name:ident, $size:ty, $path:path, $block:block) => {
        attention! {
            struct $name<heads = $path, d_model = $block, head_dim = { <$size>::D_MODEL }>;
        }
    };
}

spec!(Expressions [heads = 2, d_model = 8, score = additive(hidden = 3), bias = [q, k], dropout = 0.5]);
spec!(Fragments, Constant, consts::HEADS, { 2 + WIDTH });

mod consts {
    pub const HEADS: usize = 1;
}

macro_rules! nested {
    ($($tokens:tt)*) => {
        attention! { $($tokens)* }
    };
}

macro_rules! twice {
    ($a:ident, $b:ident) => {
        nested! {
            struct $a<heads = 1, d_model = 8>;
            struct $b<heads = $a::HEADS, d_model = { $a::D_MODEL }, d_context = WIDTH>;
        }
    };
}

twice!(First, Second);

#[test]
fn macros_put_declarations_together() {
    assert_eq!(
        [Plain::D_MODEL, Computed::D_MODEL, Constant::D_MODEL],
        [8; 3]
    );
    assert_eq!(
        [MultiQuery::KV_HEADS, Grouped::KV_HEADS, Full::KV_HEADS],
        [1, 2, 4]
    );
    assert_eq!((Fragments::HEAD_DIM, Fragments::D_MODEL), (8, 4));
    assert_eq!((Second::D_MODEL, Second::D_CONTEXT), (8, 2));
    assert_eq!(Expressions::HEAD_DIM, 3);

    let dev = AutoDevice::default();
    let x: Tensor<Rank3<2, 3, 8>, f32, _> = dev.sample_normal();
    type Stack = (Plain, Computed, Constant, Expressions, First);
    let y = dev.build_module::<Stack, f32>().forward(x);
    let context: Tensor<Rank3<2, 5, 2>, f32, _> = dev.sample_normal();
    let y = dev.build_module::<Second, f32>().forward((y, context));
    assert_eq!(y.shape().concrete(), [2, 3, 8]);

    let x: Tensor<Rank3<2, 3, 16>, f32, _> = dev.sample_normal();
    let y = dev
        .build_module::<(MultiQuery, Grouped, Full), f32>()
        .forward(x);
    assert_eq!(y.shape().concrete(), [2, 3, 16]);
}
