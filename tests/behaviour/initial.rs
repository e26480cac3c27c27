//! The initial distributions of layers are PyTorch's.

use attn::attention;
use dfdx::prelude::*;
use support::{
    initial::{
        ONE, Start, ZERO, assert_orthogonal, assert_starts, kaiming, linear, normal, truncated,
        uniform, xavier,
    },
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
    struct Uniform<heads = 64, d_model = 64, init = uniform(0.02), qk_norm = rms, position = rel_pos_bias(32, 128)>;
    struct Truncated<heads = 64, d_model = 64, init = truncated_normal(0.02), qk_norm = rms, position = rel_pos_bias(32, 128)>;
    struct Ones<heads = 4, d_model = 16, init = ones>;
    struct Zeros<heads = 4, d_model = 16, init = zeros>;
    struct XavierNormal<heads = 4, kv_heads = 2, d_model = 64, d_context = 32, init = xavier_normal, qk_norm = rms>;
    struct KaimingNormal<heads = 4, kv_heads = 2, d_model = 64, d_context = 32, init = kaiming_normal, qk_norm = rms>;
    struct Orthogonal<heads = 4, kv_heads = 2, d_model = 64, d_context = 32, init = orthogonal>;
    struct Body<heads = 64, d_model = 64> {
        param truncated: [heads, 48] = truncated_normal(std = 0.5);
        param xavier: [heads, 48] = xavier_uniform;
        param xavier_n: [heads, 48] = xavier_normal;
        param kaiming: [heads, 48] = kaiming_uniform;
        param kaiming_n: [heads, 48] = kaiming_normal;
        param square: [heads, 48] = orthogonal;
        fn score(score, h) {
            score + truncated[h, 0] + xavier[h, 0] + xavier_n[h, 0] + kaiming[h, 0] + kaiming_n[h, 0] + square[h, 0]
        }
    }
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

/// The standard deviation of `torch.nn.init.xavier_normal_`.
fn xavier_normal(fan_in: usize, fan_out: usize) -> Start {
    normal((2.0 / (fan_in + fan_out) as f64).sqrt())
}

/// The standard deviation of `torch.nn.init.kaiming_normal_`.
fn kaiming_normal(fan_in: usize) -> Start {
    normal((2.0 / fan_in as f64).sqrt())
}

#[test]
fn distributions_with_a_number_are_those_of_all_weights() {
    macro_rules! check {
        ($Layer:ident, $all:expr) => {{
            let all = $all;
            let [q, qb, k, kb, v, vb, o, ob] = projections(all, all, all, all);
            let q_norm = ("q_norm.weight", ONE);
            let k_norm = ("k_norm.weight", ONE);
            let table = ("rel_pos_bias.weight", all);
            assert_layer_starts!($Layer, [q, qb, q_norm, k, kb, k_norm, v, vb, table, o, ob]);
        }};
    }
    check!(Uniform, uniform(0.02));
    check!(Truncated, truncated(0.02));
}

#[test]
fn zeros_and_ones_are_the_numbers_of_all_weights() {
    assert_layer_starts!(Zeros, projections(ZERO, ZERO, ZERO, ZERO));
    assert_layer_starts!(Ones, projections(ONE, ONE, ONE, ONE));
}

#[test]
fn normal_distributions_of_fans_read_them_as_the_uniform_ones() {
    let q_norm = ("q_norm.weight", ONE);
    let k_norm = ("k_norm.weight", ONE);
    let square = xavier_normal(64, 64);
    let context = xavier_normal(32, 32);
    let [q, qb, k, kb, v, vb, o, ob] = projections(square, context, context, square);
    assert_layer_starts!(XavierNormal, [q, qb, q_norm, k, kb, k_norm, v, vb, o, ob]);
    let of = kaiming_normal;
    let [q, qb, k, kb, v, vb, o, ob] = projections(of(64), of(32), of(32), of(64));
    assert_layer_starts!(KaimingNormal, [q, qb, q_norm, k, kb, k_norm, v, vb, o, ob]);
}

#[test]
fn orthogonal_weights_have_perpendicular_rows_or_columns() {
    let layer = Cpu::seed_from_u64(1).build_module::<Orthogonal, f64>();
    for Named { name, dims, values } in parameters(&layer) {
        match name.ends_with("bias") {
            true => assert_starts(&name, &values, ZERO),
            false => assert_orthogonal(&name, &dims, &values),
        }
    }
}

#[test]
fn learned_tensors_of_a_body_start_as_those_of_a_model() {
    let layer = Cpu::seed_from_u64(1).build_module::<Body, f64>();
    let found = parameters(&layer);
    for (name, start) in [
        ("truncated", truncated(0.5)),
        ("xavier", xavier(48, 64)),
        ("xavier_n", xavier_normal(48, 64)),
        ("kaiming", kaiming(48)),
        ("kaiming_n", kaiming_normal(48)),
    ] {
        let name = format!("{name}.weight");
        let parameter = found
            .iter()
            .find(|parameter| parameter.name == name)
            .expect("it is there");
        assert_starts(&name, &parameter.values, start);
    }
    let square = found
        .iter()
        .find(|parameter| parameter.name == "square.weight")
        .expect("it is there");
    assert_orthogonal("square", &square.dims, &square.values);
}
