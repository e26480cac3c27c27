//! The initial distributions of layers are PyTorch's.

use attn::attention;
use dfdx::prelude::*;
use support::{
    initial::{ONE, Start, ZERO, assert_starts, kaiming, linear, normal, xavier},
    tensors::{Named, parameters},
};

attention! {
    struct Plain<heads = 4, d_model = 64>;
    struct Grouped<heads = 4, kv_heads = 2, d_model = 64, value_head_dim = 24>;
    struct Cross<heads = 4, d_model = 64, d_context = 32>;
    struct CrossOfOneWidth<heads = 4, d_model = 64, d_context = 64>;
    struct Additive<heads = 4, d_model = 64, score = additive(hidden = 512)>;
    struct Bilinear<heads = 4, d_model = 64, head_dim = 32, score = bilinear>;
    struct Biased<heads = 64, d_model = 64, position = rel_pos_bias(32, 128), qk_norm = rms>;
    struct Xavier<heads = 4, kv_heads = 2, d_model = 64, d_context = 32, init = xavier_uniform, qk_norm = rms>;
    struct XavierAdditive<heads = 4, d_model = 64, score = additive(hidden = 512), init = xavier_uniform>;
    struct Kaiming<heads = 4, kv_heads = 2, d_model = 64, d_context = 32, init = kaiming_uniform, qk_norm = rms>;
    struct KaimingBilinear<heads = 4, d_model = 64, head_dim = 32, score = bilinear, init = kaiming_uniform>;
    struct Normal<heads = 64, d_model = 64, init = normal(0.02), qk_norm = rms, position = rel_pos_bias(32, 128)>;
    struct NormalAdditive<heads = 4, d_model = 64, score = additive(hidden = 512), init = normal(0.02)>;
}

/// Checks all parameters of a layer, by name.
macro_rules! assert_layer_starts {
    ($Layer:ident, $expected:expr) => {{
        let expected = $expected;
        let layer = Cpu::seed_from_u64(1).build_module::<$Layer, f64>();
        let found = parameters(&layer);
        let names: Vec<_> = found.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, expected.map(|(name, _)| name));
        for (Named { name, values, .. }, (_, start)) in found.iter().zip(expected) {
            assert_starts(&format!("{} {name}", stringify!($Layer)), values, start);
        }
    }};
}

/// The four projections, with biases that start at 0.
fn projections(q: Start, k: Start, v: Start, o: Start) -> [(&'static str, Start); 8] {
    [
        ("q_proj.weight", q),
        ("q_proj.bias", ZERO),
        ("k_proj.weight", k),
        ("k_proj.bias", ZERO),
        ("v_proj.weight", v),
        ("v_proj.bias", ZERO),
        ("o_proj.weight", o),
        ("o_proj.bias", ZERO),
    ]
}

#[test]
fn projections_of_one_width_start_as_the_packed_matrix_of_multihead_attention() {
    // in_proj_weight is [3 * 64, 64]
    let packed = xavier(64, 3 * 64);
    assert_layer_starts!(Plain, projections(packed, packed, packed, linear(64)));
    assert_layer_starts!(
        CrossOfOneWidth,
        projections(packed, packed, packed, linear(64))
    );
    // With fewer and narrower heads for keys and values the packed matrix is lower.
    let packed = xavier(64, 64 + 32 + 48);
    assert_layer_starts!(Grouped, projections(packed, packed, packed, linear(4 * 24)));
}

#[test]
fn projections_of_two_widths_start_as_the_separate_matrices_of_multihead_attention() {
    // q_proj_weight is [64, 64], k_proj_weight [64, kdim], v_proj_weight [64, vdim]
    let q = xavier(64, 64);
    let k = xavier(32, 64);
    let v = xavier(32, 64);
    assert_layer_starts!(Cross, projections(q, k, v, linear(64)));
}

#[test]
fn the_weights_of_scores_start_as_those_of_linear_and_bilinear() {
    let packed = xavier(64, 2 * 4 * 512 + 64);
    let [q, qb, k, kb, v, vb, o, ob] = projections(packed, packed, packed, linear(64));
    assert_layer_starts!(
        Additive,
        [
            q,
            qb,
            k,
            kb,
            v,
            vb,
            ("score_proj.weight", linear(512)),
            o,
            ob
        ]
    );

    let packed = xavier(64, 3 * 128);
    let [q, qb, k, kb, v, vb, o, ob] = projections(packed, packed, packed, linear(128));
    assert_layer_starts!(
        Bilinear,
        [
            q,
            qb,
            ("score_proj.weight", linear(32)),
            k,
            kb,
            v,
            vb,
            o,
            ob
        ]
    );
}

#[test]
fn gains_start_at_one_and_the_table_of_biases_as_t5s() {
    let packed = xavier(64, 3 * 64);
    let [q, qb, k, kb, v, vb, o, ob] = projections(packed, packed, packed, linear(64));
    let q_norm = ("q_norm.weight", ONE);
    let k_norm = ("k_norm.weight", ONE);
    // T5 draws the table with the standard deviation d_model^-0.5.
    let table = ("rel_pos_bias.weight", normal(1.0 / 8.0));
    assert_layer_starts!(Biased, [q, qb, q_norm, k, kb, k_norm, v, vb, table, o, ob]);
}

#[test]
fn xavier_uniform_reads_both_fans() {
    let q = xavier(64, 64);
    let o = xavier(64, 64);
    let k = xavier(32, 32);
    let v = xavier(32, 32);
    let [q, qb, k, kb, v, vb, o, ob] = projections(q, k, v, o);
    let q_norm = ("q_norm.weight", ONE);
    let k_norm = ("k_norm.weight", ONE);
    assert_layer_starts!(Xavier, [q, qb, q_norm, k, kb, k_norm, v, vb, o, ob]);

    let [q, qb, k, kb, v, vb, o, ob] = projections(
        xavier(64, 2048),
        xavier(64, 2048),
        xavier(64, 64),
        xavier(64, 64),
    );
    let score = ("score_proj.weight", xavier(512, 1));
    assert_layer_starts!(XavierAdditive, [q, qb, k, kb, v, vb, score, o, ob]);
}

#[test]
fn kaiming_uniform_reads_the_fan_in() {
    let [q, qb, k, kb, v, vb, o, ob] =
        projections(kaiming(64), kaiming(32), kaiming(32), kaiming(64));
    let q_norm = ("q_norm.weight", ONE);
    let k_norm = ("k_norm.weight", ONE);
    assert_layer_starts!(Kaiming, [q, qb, q_norm, k, kb, k_norm, v, vb, o, ob]);

    let [q, qb, k, kb, v, vb, o, ob] =
        projections(kaiming(64), kaiming(64), kaiming(64), kaiming(128));
    let score = ("score_proj.weight", kaiming(32));
    assert_layer_starts!(KaimingBilinear, [q, qb, score, k, kb, v, vb, o, ob]);
}

#[test]
fn normal_has_its_standard_deviation_for_all_but_gains_and_biases() {
    let all = normal(0.02);
    let [q, qb, k, kb, v, vb, o, ob] = projections(all, all, all, all);
    let q_norm = ("q_norm.weight", ONE);
    let k_norm = ("k_norm.weight", ONE);
    let table = ("rel_pos_bias.weight", all);
    assert_layer_starts!(Normal, [q, qb, q_norm, k, kb, k_norm, v, vb, table, o, ob]);
    let score = ("score_proj.weight", all);
    assert_layer_starts!(NormalAdditive, [q, qb, k, kb, v, vb, score, o, ob]);
}

#[test]
fn initial_values_depend_on_the_seed_of_the_device() {
    let built = |seed| parameters(&Cpu::seed_from_u64(seed).build_module::<Biased, f32>());
    assert_eq!(built(1), built(1));
    for (one, other) in built(1).iter().zip(built(2)) {
        let constant = one.name.ends_with("bias") || one.name.contains("norm");
        assert_eq!(one.values == other.values, constant, "{}", one.name);
    }
}

#[test]
fn single_precision_stays_within_the_bound() {
    let layer = Cpu::default().build_module::<Plain, f32>();
    let bound = (6.0_f64 / 256.0).sqrt();
    let largest = layer
        .q_proj
        .weight
        .as_vec()
        .into_iter()
        .map(f32::abs)
        .fold(0.0, f32::max);
    assert!(largest <= bound as f32 && f64::from(largest) > 0.99 * bound);
}
