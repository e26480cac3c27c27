//! Inferred shapes, and the names of saved parameters.

use super::{GPT, lower};
use crate::model::graph::{Model, ModuleId, Region, Step, Submodule};

/// The results of all operations, in order: `name: shape`.
pub(super) fn shapes(model: &Model) -> Vec<String> {
    fn push(model: &Model, region: &Region, lines: &mut Vec<String>) {
        for step in &region.steps {
            match step {
                Step::Node(node) => {
                    let value = model.value(node.result);
                    lines.push(format!("{}: {}", value.name, value.ty));
                }
                Step::Repeat(repeat) => push(model, &repeat.body, lines),
                Step::Scan(scan) => {
                    push(model, &scan.body, lines);
                    for id in scan.defined() {
                        let value = model.value(id);
                        lines.push(format!("{}: {}", value.name, value.ty));
                    }
                }
            }
        }
    }
    let mut lines = Vec::new();
    push(model, &model.body, &mut lines);
    lines
}

/// The layers, with the names of their parameters.
pub(super) fn layers(model: &Model) -> Vec<String> {
    fn push(model: &Model, module: ModuleId, path: &str, names: &mut Vec<String>) {
        for field in &model.module(module).fields {
            match &field.layer {
                Submodule::Repeat { module, .. } => {
                    push(model, *module, &format!("{path}{}.0.", field.name), names)
                }
                Submodule::Block { module, .. } => {
                    push(model, *module, &format!("{path}{}.", field.name), names)
                }
                _ => names.push(format!("{path}{}", field.name)),
            }
        }
    }
    let mut names = Vec::new();
    push(model, ModuleId(0), "", &mut names);
    names
}

#[test]
fn a_gpt_has_its_shapes() {
    let gpt = lower(GPT);
    assert_eq!(
        shapes(&gpt),
        [
            "embedding: [batch, seq, 384]",
            "learned_position: [batch, seq, 384]",
            "x: [batch, seq, 384]",
            "layer_norm: [batch, seq, 384]",
            "attention: [batch, seq, 384]",
            "x_3: [batch, seq, 384]",
            "layer_norm_2: [batch, seq, 384]",
            "feed_forward: [batch, seq, 384]",
            "x_4: [batch, seq, 384]",
            "layer_norm_3: [batch, seq, 384]",
            "linear: [batch, seq, 65]",
        ]
    );
    assert_eq!(
        layers(&gpt),
        [
            "embedding",
            "learned_position",
            "blocks.0.layer_norm",
            "blocks.0.attention",
            "blocks.0.layer_norm_2",
            "blocks.0.feed_forward",
            "layer_norm",
            "linear",
        ]
    );
}

/// Checks the result of one operation for the declared inputs.
fn result(inputs: &str, result: &str, value: &str) {
    lower(&format!(
        "struct M<d = 6>; fn forward({inputs}) -> {result} {{ let _unused = linear::<d>(extra); {value} }}"
    ));
}

#[test]
fn operations_have_their_shapes() {
    let x = "x: [batch, seq, d], extra: [d]";
    for (shape, value) in [
        ("[batch, seq, 7]", "linear::<7>(x)"),
        (
            "[batch, seq, 7]",
            "linear::<out = 7, bias = false, name = head>(x)",
        ),
        (
            "[batch, seq, d]",
            "feed_forward::<hidden = { 4 * d }, activation = swiglu>(x)",
        ),
        ("[batch, seq, d]", "rms_norm::<name = norm>(x)"),
        ("[batch, seq, d]", "dropout::<0.1>(x)"),
        ("[batch, seq, d]", "gelu_tanh(softmax(x))"),
        ("[batch, seq, 12]", "concat(x, x)"),
        ("[batch, seq, 20]", "concat(x, linear::<8>(x), x)"),
        ("[batch, d]", "mean_pool(x)"),
        ("[batch, seq, d]", "attention::<heads = 2>(x)"),
        (
            "[batch, seq, d]",
            "attention::<2, d, mask = causal, name = attn>(x)",
        ),
        (
            "[batch, seq, d]",
            "attention::<2>(x) { fn mask(q_idx, kv_idx) { kv_idx <= q_idx } }",
        ),
        (
            "[batch, seq, d]",
            "sinusoidal_position::<d>(x) + x * 2 - 1 / 4.0",
        ),
        ("[batch, seq, d]", "-x * { 1.0 / SQRT } + (3 - x)"),
        ("[batch, seq, d]", "x * x - x"),
        (
            "[batch, 4]",
            "module::<Linear<d, 4>, out = [batch, 4]>(x, x)",
        ),
    ] {
        result(x, shape, value);
    }
    let x = "x: [B, T, d], extra: [d]";
    result(x, "[B, T, 9]", "concat(x, linear::<3>(x))");
    let x = "x: [batch, q, d], y: [batch, k, 4], lens: lens[batch], extra: [d]";
    let cross = "attention::<2, mask = padding>(x, context = y, padding = lens)";
    result(x, "[batch, q, d]", cross);
    let pooled = "mean_pool(linear::<d>(y), lens) + mean_pool(x)";
    result(x, "[batch, d]", pooled);
    let x = "x: [1, seq, d], y: [batch, 1, d], extra: [d]";
    result(x, "[batch, seq, d]", "x + y");
    let x = "x: [1, seq, d], y: [N_HEADS, seq, 1], extra: [d]";
    result(x, "[N_HEADS, seq, d]", "y + x");
    let x = "tokens: ids[batch, seq], documents: ids[batch, seq], extra: [d]";
    let document =
        "attention::<2, mask = document>(embedding::<9, d>(tokens), document = documents)";
    result(x, "[batch, seq, d]", document);
}

#[test]
fn a_table_is_read_twice() {
    let model = lower(
        "struct Tied<vocab = 11>; fn forward(tokens: ids[seq]) -> [seq, vocab] {
            let x = embedding::<vocab, 8, name = tokens>(tokens);
            linear::<tied = tokens>(x + embedding::<tied = tokens>(tokens))
        }",
    );
    assert_eq!(layers(&model), ["tokens"]);
    let model = lower(
        "struct Tied<d = 8>; fn forward(ids: ids[seq]) -> [seq, d] {
            let mut x = embedding::<11, d>(ids);
            repeat 2 {
                let y = linear::<tied = embedding>(x + embedding::<9, d, name = inner>(ids));
                x = linear::<tied = inner, bias = false>(x) + linear::<9>(y);
                x = linear::<d>(x);
            }
            x
        }",
    );
    assert_eq!(
        layers(&model),
        [
            "embedding",
            "blocks.0.inner",
            "blocks.0.linear",
            "blocks.0.linear_2"
        ]
    );
}

#[test]
fn nested_loops_have_their_shapes() {
    let model = lower(
        "struct Deep<n = 3>; fn forward(x: [seq, 8]) -> ([seq, 8], [seq, 8]) {
            let mut x = x;
            let mut y = gelu(x);
            repeat n, name = outer {
                repeat 2, share = true, name = inner {
                    x += linear::<8>(y);
                }
                y = layer_norm(x) * y;
            }
            (x, y)
        }",
    );
    assert_eq!(
        layers(&model),
        ["outer.0.inner.0.linear", "outer.0.layer_norm"]
    );
    assert_eq!(model.results.len(), 2);
}

#[test]
fn constants_of_the_user_are_left_to_rustc() {
    let model = lower(
        "struct Sized<d_model = WIDTH, hidden = { 2 * d_model }>; fn forward(x: [seq, WIDTH]) -> [seq, d_model] {
            let wide = linear::<hidden>(x);
            linear::<d_model>(wide * linear::<{ WIDTH + WIDTH }>(x))
        }",
    );
    let constants: Vec<_> = model.constants.iter().map(ToString::to_string).collect();
    assert_eq!(
        constants,
        [
            "const __Sized_d_model : usize = WIDTH ;",
            "const __Sized_hidden : usize = 2 * __Sized_d_model ;",
            "const __Sized_3 : usize = __Sized_d_model + __Sized_d_model ;",
        ]
    );
    let rules: Vec<_> = model
        .assertions
        .iter()
        .map(|rule| rule.condition.to_string())
        .collect();
    assert_eq!(rules.len(), 4, "{rules:?}");
    for size in ["__Sized_hidden", "__Sized_d_model", "__Sized_3"] {
        assert!(rules.contains(&format!("{size} >= 1")), "{rules:?}");
    }
}
