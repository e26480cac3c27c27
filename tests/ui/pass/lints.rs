//! The emitted code is silent under lints that a user may deny.

#![deny(
    warnings,
    unused,
    missing_docs,
    missing_debug_implementations,
    nonstandard_style,
    future_incompatible,
    keyword_idents,
    let_underscore,
    refining_impl_trait,
    rust_2018_idioms,
    rust_2021_compatibility,
    rust_2024_compatibility,
    absolute_paths_not_starting_with_crate,
    elided_lifetimes_in_paths,
    explicit_outlives_requirements,
    meta_variable_misuse,
    non_ascii_idents,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unit_bindings,
    unnameable_types,
    unreachable_pub,
    unsafe_code,
    unused_extern_crates,
    unused_import_braces,
    unused_lifetimes,
    unused_macro_rules,
    unused_qualifications,
    unused_results,
    variant_size_differences
)]
#![deny(clippy::all, clippy::pedantic)]

use attn::{attention, dfdx::prelude::*};

const HEADS: usize = 2;
const RATE: f32 = 0.1;

attention! {
    /// All keys together.
    pub(crate) struct Full<
        heads = HEADS,
        d_model = 8,
        kv_heads = 1,
        head_dim = { HEADS * 2 },
        value_head_dim = 3,
        mask = causal & !chunked(HEADS) | sliding_window(2, symmetric),
        scale = 0.5,
        softcap = 30.0,
        normalizer = softmax1,
        position = rope,
        qk_norm = rms,
        bias = [q, o],
        dropout = RATE,
        init = normal(0.02),
    >;

    /// Data of both kinds.
    pub(crate) struct Cross<heads = 2, d_model = 8, d_context = 4, mask = padding & document, score = additive(3), normalizer = sigmoid>;

    struct Bilinear<heads = 2, d_model = 8, score = bilinear, position = rel_pos_bias, bias = false>;

    struct Alibi<heads = 3, d_model = { 4 * HEADS + 1 }, score = dot, position = alibi, qk_norm = l2, init = xavier_uniform>;

    /// Declared, and not used.
    #[allow(dead_code)]
    struct Unused<heads = 1, d_model = 1>;
}

#[test]
fn denied_lints_are_silent() {
    let dev = AutoDevice::default();
    let x: Tensor<Rank2<3, 8>, f32, _> = dev.sample_normal();
    let context: Tensor<Rank2<2, 4>, f32, _> = dev.sample_normal();
    let ids: Tensor<Rank1<3>, usize, _> = dev.zeros();
    let ids_of_context: Tensor<Rank1<2>, usize, _> = dev.zeros();

    let y = dev.build_module::<Full, f32>().forward(x);
    let y = dev.build_module::<Bilinear, f32>().forward(y);
    let data = (y, context, 1, (ids, ids_of_context));
    let y = dev.build_module::<Cross, f32>().forward(data);
    assert_eq!(y.shape().concrete(), [3, 8]);
    assert_eq!(Alibi::HEAD_DIM, 3);
}
