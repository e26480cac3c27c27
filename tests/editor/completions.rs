//! Completions: all names that are possible at a place, and no others.

use crate::{ask, body, layer, model};

const MASKS: [&str; 14] = [
    "causal",
    "chunked",
    "dilated_sliding_window",
    "document",
    "local",
    "neighborhood",
    "none",
    "padding",
    "prefix_lm",
    "same_col",
    "same_frame",
    "same_row",
    "sliding_window",
    "window",
];
const POSITIONS: [&str; 4] = ["alibi", "none", "rel_pos_bias", "rope"];
const KEYS_OF_LAYERS: [&str; 23] = [
    "bias",
    "bidirectional",
    "d_context",
    "d_model",
    "d_values",
    "dropout",
    "ensure",
    "grid",
    "head_dim",
    "heads",
    "init",
    "kv_grid",
    "kv_heads",
    "mask",
    "normalizer",
    "position",
    "prefix_tokens",
    "qk_norm",
    "scale",
    "score",
    "softcap",
    "talking_heads",
    "value_head_dim",
];
const OPERATIONS: [&str; 68] = [
    "abs",
    "arange",
    "argmax",
    "attend",
    "attention",
    "block",
    "buffer",
    "clamp",
    "concat",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cos",
    "cross_entropy",
    "cumsum",
    "detach",
    "dropout",
    "einsum",
    "embedding",
    "exp",
    "expand",
    "feed_forward",
    "float",
    "floor",
    "gelu",
    "gelu_tanh",
    "group_norm",
    "grouped_linear",
    "l2_norm",
    "layer_norm",
    "learned_position",
    "linear",
    "ln",
    "logsumexp",
    "max",
    "max_pool",
    "mean",
    "mean_pool",
    "min",
    "module",
    "one_hot",
    "pad",
    "param",
    "permute",
    "pow",
    "rearrange",
    "relu",
    "relu_squared",
    "repeat",
    "rms_norm",
    "rope",
    "scan",
    "scatter_add",
    "shift",
    "sigmoid",
    "silu",
    "sin",
    "sinusoidal_position",
    "softmax",
    "split",
    "sqrt",
    "stack",
    "sum",
    "tanh",
    "top_k",
    "variance",
    "windows",
];
const COORDINATES: [&str; 6] = ["kv_col", "kv_frame", "kv_row", "q_col", "q_frame", "q_row"];
const KEYS_OF_ATTEND: [&str; 17] = [
    "bidirectional",
    "dropout",
    "ensure",
    "grid",
    "heads",
    "kv_grid",
    "kv_heads",
    "mask",
    "name",
    "normalizer",
    "position",
    "prefix_tokens",
    "qk_norm",
    "scale",
    "score",
    "softcap",
    "talking_heads",
];
const FUNCTIONS: [&str; 13] = [
    "abs", "clamp", "cos", "exp", "floor", "ln", "max", "min", "pow", "sigmoid", "sin", "sqrt",
    "tanh",
];
const SIZES_OF_LAYERS: [&str; 8] = [
    "d_context",
    "d_model",
    "d_values",
    "head_dim",
    "heads",
    "kv_heads",
    "prefix_tokens",
    "value_head_dim",
];

const DISTRIBUTIONS: [&str; 10] = [
    "zeros",
    "ones",
    "normal",
    "truncated_normal",
    "uniform",
    "xavier_uniform",
    "xavier_normal",
    "kaiming_uniform",
    "kaiming_normal",
    "orthogonal",
];

/// Checks that exactly these names are completed at the cursor.
fn check(source: &str, expected: &[&[&str]]) {
    let mut expected: Vec<_> = expected.concat().iter().map(ToString::to_string).collect();
    expected.sort();
    if let Some(mut offered) = ask(|server| server.completions(source)) {
        offered.sort();
        assert_eq!(offered, expected, "in {source}");
    }
}

#[test]
fn a_layer_offers_the_words_of_a_key() {
    for (typed, words) in [
        ("mask = ca$0", &MASKS[..]),
        ("mask = $0", &MASKS),
        ("mask = causal & $0", &MASKS),
        ("mask = causal & !(pad$0 | document)", &MASKS),
        ("mask = $0, position = rope", &MASKS),
        ("mask = $0 position = rope", &MASKS),
        ("position = r$0", &POSITIONS),
        ("position = $0", &POSITIONS),
        ("bias = [q, $0]", &["q", "k", "v", "o"]),
        (
            "mask = sliding_window(3, $0)",
            &["n", "upper_left", "lower_right", "symmetric"],
        ),
    ] {
        check(&layer(typed, ";"), &[words]);
    }
}

#[test]
fn a_layer_offers_its_keys() {
    for typed in [
        "mas$0",
        "$0",
        "mask = causal, $0",
        "$0, mask = causal",
        "mas$0 = causal",
    ] {
        check(&layer(typed, ";"), &[&KEYS_OF_LAYERS]);
    }
}

#[test]
fn incomplete_layers_offer_keys_too() {
    check(
        "attn::attention! { struct Layer<heads = 2, mas$0 }",
        &[&KEYS_OF_LAYERS],
    );
    check(
        "attn::attention! { struct Layer<heads = 2, mask = ca$0 }",
        &[&MASKS],
    );
}

#[test]
fn an_operation_offers_the_words_of_its_keys() {
    for (typed, words) in [
        ("attention::<heads = 2, mask = $0>(x)", &MASKS[..]),
        ("attention::<heads = 2, mask = ca$0>(x)", &MASKS),
        (
            "attention::<heads = 2, mask = $0, position = rope>(x)",
            &MASKS,
        ),
        (
            "attention::<heads = 2, mask = causal, position = r$0>(x)",
            &POSITIONS,
        ),
        ("let h = attention::<2, position = $0>(x); h", &POSITIONS),
    ] {
        check(&model(typed), &[words]);
    }
}

#[test]
fn an_operation_offers_its_keys_and_the_sizes_of_the_model() {
    let sizes: &[&str] = &["d_model", "hidden"];
    let keys = ["bias", "init", "name", "out", "tied"];
    for typed in [
        "linear::<$0>(x)",
        "linear::<8, bi$0>(x)",
        "linear::<8, $0>(x)",
    ] {
        check(&model(typed), &[&keys, sizes]);
    }
    check(&model("linear::<out = $0>(x)"), &[sizes]);
    check(&model("repeat $0 { x = x; } x"), &[sizes]);
    check(&model("linear::<out = hid$0>(x)"), &[sizes]);
    let others = KEYS_OF_LAYERS.iter().filter(|key| **key != "d_model");
    let others: Vec<&str> = others.copied().collect();
    check(
        &model("attention::<2, mas$0>(x)"),
        &[&others, &["name"], sizes],
    );
    check(
        &model("attention::<2, mas$0\nx"),
        &[&others, &["name"], sizes],
    );
}

#[test]
fn a_statement_offers_operations_and_the_variables_before_it() {
    for typed in [
        "$0",
        "fe$0",
        "fe$0 layer_norm(x)",
        "x + fe$0",
        "x + $0",
        "layer_norm(fe$0)",
        "layer_norm($0)",
        "let h = $0; x",
        "let h = la$0\nlet y = x; y",
        "repeat 2 { $0 } x",
        "max(la$0, 0)",
        "if x < la$0 { x } else { x }",
        "if x == la$0 { x } else { x }",
        "if x < 0 { la$0 } else { x }",
    ] {
        check(&model(typed), &[&OPERATIONS, &["x", "lens"]]);
    }
    for typed in [
        "h += fe$0",
        "h += $0; h",
        "h = layer_norm(h) + $0; h",
        "repeat 2 { h += fe$0 } h",
    ] {
        let typed = format!("let mut h = linear::<8>(x); {typed}");
        check(&model(&typed), &[&OPERATIONS, &["x", "lens", "h"]]);
    }
    check(
        &model("repeat 2 { let inner = x; } la$0"),
        &[&OPERATIONS, &["x", "lens"]],
    );
}

#[test]
fn named_operands_are_offered() {
    check(
        &model("attention::<2, mask = padding>(x, padd$0 = lens)"),
        &[&["context", "document", "padding", "position_ids", "values"]],
    );
    check(
        &model("attend::<mask = padding>(x, x, x, padd$0 = lens)"),
        &[&["document", "padding", "position_ids"]],
    );
}

#[test]
fn axes_of_the_inputs_and_sizes_are_offered_as_axes() {
    check(
        "attn::model! { struct Model<width = 8>; fn forward(x: [batch, width]) -> [ba$0] { x } }",
        &[&["batch", "width"]],
    );
}

#[test]
fn axes_and_sizes_are_offered_in_the_parts_of_a_value() {
    let sizes: &[&str] = &["d_model", "hidden"];
    for typed in [
        "x[$0]",
        "x[se$0 = 0]",
        "let y = x[seq = 0, $0]; y",
        "layer_norm(x)[se$0]",
    ] {
        check(&model(typed), &[&["batch", "seq"], sizes]);
    }
    check(&model("x[d_model = hid$0]"), &[sizes]);
}

#[test]
fn an_operation_along_an_axis_offers_axes_and_its_keys() {
    let all: &[&str] = &["batch", "seq", "d_model", "hidden"];
    for typed in [
        "sum::<$0>(x)",
        "sum::<se$0>(x)",
        "let (a, b) = split::<se$0>(x); a + b",
    ] {
        check(&model(typed), &[all, &["axis", "name"]]);
    }
    for typed in [
        "sum::<[seq, $0]>(x)",
        "sum::<axis = se$0>(x)",
        "einsum::<[seq, $0]>(x, x)",
        "x as [batch, $0]",
    ] {
        check(&model(typed), &[all]);
    }
    for typed in [
        "x as [batch, kv = $0]; x",
        "let y = x as [batch, kv = seq, d_model]; sum::<[$0]>(y)",
    ] {
        check(&model(typed), &[all, &["kv"]]);
    }
}

#[test]
fn a_learned_tensor_offers_sizes_and_its_distributions() {
    check(
        &model("param p: [d$0] = ones; x + p"),
        &[&["d_model", "hidden"]],
    );
    for typed in [
        "param p: [d_model] = $0; x + p",
        "param p: [d_model] = o$0; x + p",
    ] {
        check(&model(typed), &[&DISTRIBUTIONS]);
    }
    check(
        &model("param p: [d_model] = normal($0); x + p"),
        &[&["std"]],
    );
    for typed in [
        "param p: [d_model] = ones; x + $0",
        "let (p, _q) = split(x); x + $0",
    ] {
        let names: &[&str] = if typed.contains("_q") {
            &["p", "_q"]
        } else {
            &["p"]
        };
        check(&model(typed), &[&OPERATIONS, &["x", "lens"], names]);
    }
}

#[test]
fn the_header_of_a_model_offers_adapters_and_their_keys() {
    let header = |typed: &str| {
        format!(
            "attn::model! {{
                pub struct Model<d = 8, {typed}>;
                fn forward(x: [batch, d]) -> [batch, d] {{ linear::<d>(x) }}
            }}"
        )
    };
    check(&header("lo$0"), &[&["lora", "memory"]]);
    let keys = ["alpha", "dropout", "on", "rank", "rslora", "save"];
    for typed in [
        "lora($0)",
        "lora(ra$0)",
        "lora(rank = 2, on = [\"linear\"], s$0)",
    ] {
        check(&header(typed), &[&keys]);
    }
}

#[test]
fn attend_offers_its_keys_words_and_axes() {
    for typed in [
        "attend::<$0>(x, x, x)",
        "attend::<mask = causal, ro$0>(x, x, x)",
    ] {
        check(&model(typed), &[&KEYS_OF_ATTEND]);
    }
    check(&model("attend::<mask = ca$0>(x, x, x)"), &[&MASKS]);
    check(
        &model("attend::<heads = se$0>(x, x, x)"),
        &[&["batch", "seq", "d_model", "hidden"]],
    );
    check(
        &model("attend(x, x, x) { fn score(score, q_len) { sc$0 } }"),
        &[&FUNCTIONS, &SIZES_OF_LAYERS, &["dot", "score", "q_len"]],
    );
    check(
        &model("attend(x, x, x) { fn mask(q_idx) { q_idx > $0 } }"),
        &[&FUNCTIONS, &SIZES_OF_LAYERS, &["q_idx"]],
    );
}

#[test]
fn a_convolution_offers_its_axes_sizes_and_words() {
    let sizes: &[&str] = &["d_model", "hidden"];
    for axis in ["conv1d::<se$0>(x)", "conv1d::<seq, hid$0>(x)"] {
        let keys = [
            "axis", "bias", "channels", "dilation", "groups", "init", "kernel", "name", "out",
            "padding", "stride", "to",
        ];
        check(&model(axis), &[&keys, &["batch", "seq"], sizes]);
    }
    for typed in [
        "conv1d::<seq, 8, 3, stride = hid$0>(x)",
        "conv2d::<[seq, d_model], 8, 3, stride = [2, $0]>(x)",
        "grouped_linear::<groups = 2, out = $0>(x)",
    ] {
        check(&model(typed), &[sizes]);
    }
    for (typed, words) in [
        (
            "conv1d::<seq, 8, 3, padding = ca$0>(x)",
            &["same", "causal"][..],
        ),
        ("conv2d::<[batch, seq], 8, 3, padding = $0>(x)", &["same"]),
    ] {
        check(&model(typed), &[words, sizes]);
    }
}

#[test]
fn a_scan_offers_axes_and_its_options() {
    for typed in [
        "scan se$0 { state h: [batch, d_model] = 0; yield x; }",
        "scan $0 { state h: [batch, d_model] = 0; yield x; }",
        "let y = scan se$0 { yield x; }; y",
        "let y = scan $0 { yield x; }; y",
        "scan seq { state h: [ba$0] = 0; yield x; }",
    ] {
        check(&model(typed), &[&["batch", "seq", "d_model", "hidden"]]);
    }
    for typed in [
        "scan seq, $0 { yield x; }",
        "let y = scan seq, re$0 { yield x; }; y",
    ] {
        check(&model(typed), &[&["reverse", "keep"]]);
    }
}

#[test]
fn a_scan_offers_states_operations_and_the_variables_before_it() {
    for typed in [
        "scan seq { $0 }",
        "scan seq { st$0 }",
        "let mut y = x; y = scan seq { la$0 }; y",
        "let y = scan seq, reverse = true { yield la$0; }; y",
        "scan seq { yield $0 }",
    ] {
        let names: &[&str] = if typed.contains("mut y") { &["y"] } else { &[] };
        check(
            &model(typed),
            &[&OPERATIONS, &["state", "x", "lens"], names],
        );
    }
    for typed in [
        "ha$0",
        "yield ha$0; h",
        "yield (x, $0);",
        "yield x + $0; h",
        "h = tanh(ha$0); yield h;",
        "h = $0\nyield h;",
        "h = la$0\nyield h;",
        "h += x; yield h; ha$0",
        "repeat 2 { h += $0; } yield h;",
    ] {
        let scan = format!("scan seq {{ state h: [batch, d_model] = 0.0; {typed} }}");
        check(&model(&scan), &[&OPERATIONS, &["state", "x", "lens", "h"]]);
    }
    // An initial value is one of outside, and no state is there behind the scan.
    for typed in [
        "scan seq { state h: [batch, d_model] = me$0; yield h; }",
        "let _y = scan seq { state h: [batch, d_model] = 0; yield h; }; la$0",
    ] {
        let names: &[&str] = if typed.contains("_y") { &["_y"] } else { &[] };
        check(&model(typed), &[&OPERATIONS, &["x", "lens"], names]);
    }
}

#[test]
fn a_buffer_offers_sizes_indices_and_functions_of_numbers() {
    let sizes: &[&str] = &["d_model", "hidden"];
    check(&model("buffer b: [d$0] = |i| i; x + b"), &[sizes]);
    check(
        &model("buffer b: [d_model] = |i| 2 * $0; x + b"),
        &[sizes, &FUNCTIONS, &["i"]],
    );
    check(
        &model("buffer b: [d_model] = |i| i; x + $0"),
        &[&OPERATIONS, &["x", "lens", "b"]],
    );
}

#[test]
fn named_layers_are_offered_for_ties() {
    check(
        &model("let y = embedding::<8, 8, name = table>(x); linear::<tied = ta$0>(y)"),
        &[&["table"]],
    );
}

#[test]
fn a_body_offers_its_items() {
    check(&body("$0"), &[&["param", "data"]]);
    check(&body("pa$0"), &[&["param", "data"]]);
    check(
        &body("$0 fn mask(q_idx) { q_idx > 1 }"),
        &[&["param", "data"]],
    );
    check(&body("fn $0"), &[&["mask", "normalize", "score"]]);
    check(
        &body("fn sc$0(score) { score }"),
        &[&["mask", "normalize", "score"]],
    );
    check(
        &body("param other: [heads] = o$0;"),
        &[&DISTRIBUTIONS, &["alibi_slopes"]],
    );
    check(&body("param other: [h$0] = ones;"), &[&SIZES_OF_LAYERS]);
}

#[test]
fn a_function_of_a_body_offers_its_arguments_tensors_and_functions() {
    let tensors: &[&str] = &["slope", "far"];
    for typed in [
        "score * $0",
        "score * sl$0",
        "score + exp($0)",
        "score - slope[$0]",
    ] {
        let function = format!("fn score(score, h) {{ {typed} }}");
        check(
            &body(&function),
            &[&FUNCTIONS, &SIZES_OF_LAYERS, tensors, &["score", "h"]],
        );
    }
    check(
        &body("fn score(score) { let half = score / 2.0; ha$0 }"),
        &[&FUNCTIONS, &SIZES_OF_LAYERS, tensors, &["score", "half"]],
    );
    check(
        &body("fn mask(q$0) { true }"),
        &[
            &["b", "h", "q_idx", "kv_idx", "q_len", "kv_len"],
            &COORDINATES,
        ],
    );
    check(
        &model("attention::<2>(x) { param slope: [heads] = ones; fn score(score) { sl$0 } }"),
        &[&FUNCTIONS, &SIZES_OF_LAYERS, &["slope", "score"]],
    );
}

#[test]
fn constants_of_the_program_are_offered_as_sizes() {
    for typed in ["kv_heads = WID$0", "kv_heads = $0"] {
        let source = format!("const WIDTH: usize = 8; {}", layer(typed, ";"));
        if let Some(offered) = ask(|server| server.completions(&source)) {
            assert!(offered.iter().any(|name| name == "WIDTH"), "{offered:?}");
            for internal in ["names", "mentioned", "nothing", "keys", "p", "D"] {
                assert!(offered.iter().all(|name| name != internal), "{internal}");
            }
        }
    }
}
