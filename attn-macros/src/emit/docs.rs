//! The documentation of the generated items, written from the spec.

use std::fmt::Write;

use super::{Layer, drawing};
use crate::graph::{CallData, Declared, Dim, Param};
use crate::markdown::Table;
use crate::messages;
use crate::score::builtin;
use crate::score::{Expr, Name, Type};
use crate::spec::{
    ABOUT_QUERIES, GainKind, Normalizer, Position, QkNorm, Real, Rotary, Score, Spec,
};

/// The page of the struct, which follows the documentation of the user.
pub(super) fn layer(cx: &Layer<'_>) -> String {
    let mut page = String::new();
    section(&mut page, "", &summary(cx));
    section(&mut page, "Equation", &equation(cx));
    section(&mut page, "Shapes", &shapes(cx));
    section(&mut page, "Data", &data(cx));
    section(&mut page, "Parameters", &parameters(cx));
    section(&mut page, "Spec", &spec_table(cx.spec));
    section(&mut page, "Mask", &mask(cx));
    page
}

fn section(page: &mut String, title: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    if !title.is_empty() {
        let _ = write!(page, "\n# {title}\n\n");
    }
    page.push_str(text);
    page.push('\n');
}

fn summary(cx: &Layer<'_>) -> String {
    let spec = cx.spec;
    let kind = if cx.graph.cross {
        "cross-attention"
    } else {
        "self-attention"
    };
    let groups = if spec.kv_heads == spec.heads {
        String::new()
    } else {
        format!(" over {} key/value heads", spec.kv_heads)
    };
    let (width, scores) = match spec.score {
        Score::OfPlaces => (
            &spec.value_head_dim,
            ", with scores of the indices alone: there are no queries and keys",
        ),
        _ => (&spec.head_dim, ""),
    };
    if spec.of_operands.is_some() {
        return format!(
            "\n\nAttention of {} heads{groups} to given keys and values. It is an `attend` of `model!`.",
            spec.heads
        );
    }
    format!(
        "\n\nMulti-head {kind}: {} heads{groups} of {width} in a model of width {}{scores}. Declared with `attention!`.",
        spec.heads, spec.d_model
    )
}

/// The computation, line by line.
fn equation(cx: &Layer<'_>) -> String {
    let spec = cx.spec;
    let (keys, _) = spec.source_of_keys();
    let (values, _) = spec.source_of_values();
    let projection = |name: &str, of: &str, has_bias| {
        format!(
            "{name} = W_{name} {of}{}",
            plus_bias(has_bias, &format!("b_{name}"))
        )
    };
    let mut lines = Vec::new();
    let is_projected = spec.of_operands.is_none();
    if is_projected && spec.score != Score::OfPlaces {
        lines.push(projection("q", "x", spec.bias.q));
        lines.push(projection("k", keys, spec.bias.k));
    }
    if is_projected {
        lines.push(projection("v", values, spec.bias.v));
    }
    match &spec.qk_norm {
        QkNorm::None => {}
        QkNorm::Rms(gain, epsilon) => {
            let [q, k] = match gain {
                GainKind::One => ["", ""],
                GainKind::Factor => [" * g_q", " * g_k"],
                GainKind::OnePlus => [" * (1 + g_q)", " * (1 + g_k)"],
            };
            lines.push(format!(
                "q = q / sqrt(mean(q²) + {epsilon}){q},  k = k / sqrt(mean(k²) + {epsilon}){k}",
                epsilon = small(epsilon),
            ));
        }
        QkNorm::L2(epsilon) => {
            let epsilon = small(epsilon);
            lines.push(format!(
                "q = q / sqrt(Σ q² + {epsilon}),  k = k / sqrt(Σ k² + {epsilon})"
            ));
        }
    }
    if let Position::Rope(rotary) = &spec.position {
        lines.push(rotation(rotary));
    }
    let score = match spec.score {
        Score::ScaledDot | Score::Dot => Some("score = q · k"),
        Score::Additive => Some("score = w_v · tanh(q + k)"),
        Score::Bilinear => Some("score = q · (W k)"),
        Score::OfPlaces => None,
    };
    lines.extend(score.map(str::to_owned));
    if let Some(modified) = modified_score(spec) {
        lines.push(format!("score = {modified}"));
    }
    if let Some(function) = &spec.body.score {
        lines.push(format!("score = {function}"));
    }
    let over = if cx.graph.mask().is_none() {
        "all keys"
    } else {
        "the keys that the mask allows"
    };
    if spec.talking_heads.scores {
        lines.push("score[g] = Σ mix_scores[g, h] * score[h]".to_owned());
    }
    lines.push(weight(&spec.normalizer, over));
    if spec.talking_heads.weights {
        lines.push("weight[g] = Σ mix_weights[g, h] * weight[h]".to_owned());
    }
    if let Some(p) = &spec.dropout {
        lines.push(format!(
            "weight = dropout(weight, {p})   in `forward_mut` on a traced input"
        ));
    }
    lines.push(match is_projected {
        true => format!(
            "output = W_o concat(Σ weight * v){}",
            plus_bias(spec.bias.o, "b_o")
        ),
        false => "output = concat(Σ weight * v)".to_owned(),
    });
    format!("```text\n{}\n```", lines.join("\n"))
}

fn weight(normalizer: &Normalizer, over: &str) -> String {
    match normalizer {
        Normalizer::Softmax => format!("weight = exp(score) / Σ exp(score)   over {over}"),
        Normalizer::Softmax1 => format!("weight = exp(score) / (1 + Σ exp(score))   over {over}"),
        Normalizer::Sink => {
            format!("weight = exp(score) / (exp(sink[h]) + Σ exp(score))   over {over}")
        }
        Normalizer::Sparsemax => {
            format!("weight = max(score - τ, 0)   over {over}, with τ such that Σ weight = 1")
        }
        Normalizer::Entmax15 => {
            format!("weight = max(score / 2 - τ, 0)²   over {over}, with τ such that Σ weight = 1")
        }
        Normalizer::Elementwise(weight) => format!("weight = {weight}   for {over}"),
    }
}

fn plus_bias(has: bool, name: &str) -> String {
    if has {
        format!(" + {name}")
    } else {
        String::new()
    }
}

fn modified_score(spec: &Spec) -> Option<String> {
    let mut expr = Expr::SCORE;
    if let Some(scale) = &spec.scale {
        expr = builtin::scale(expr, scale);
    }
    if let Some(cap) = &spec.softcap {
        expr = builtin::softcap(expr, cap);
    }
    let expr = match &spec.position {
        Position::Alibi => builtin::alibi_in_short(expr),
        Position::RelPosBias { .. } => builtin::rel_pos_bias_in_short(expr),
        Position::None | Position::Rope(_) => expr,
    };
    (!matches!(expr, Expr::Operand(_))).then(|| expr.to_string())
}

/// A small number as people write it.
fn small(number: &Real) -> String {
    match number.value.filter(|value| value.abs() < 0.01) {
        Some(value) => format!("{value:e}"),
        None => number.to_string(),
    }
}

/// The shapes of inputs and outputs, as a table.
fn shapes(cx: &Layer<'_>) -> String {
    let mut table = Table::new(["", "batched", "unbatched"]);
    for (name, batched, unbatched) in inputs(cx) {
        table.row([&format!("`{name}`"), &batched, &unbatched]);
    }
    let results = [
        ("output", &*cx.output_shape()),
        ("weights", &cx.graph.weights),
    ];
    for (name, shape) in results {
        let shape = shape_text(cx, shape);
        let without = unbatched(&shape);
        table.row([name, &format!("`{shape}`"), &format!("`{without}`")]);
    }
    format!(
        "{table}\nBatch and sequence axes are any dfdx `Dim`: `usize` or `Const<N>`. `forward` takes {}.",
        call(cx)
    )
}

/// `` `x` `` or `` `(x, context, padding)` ``
fn call(cx: &Layer<'_>) -> String {
    let names: Vec<_> = inputs(cx).into_iter().map(|(name, ..)| name).collect();
    if names.len() == 1 {
        format!("`{}`", names[0])
    } else {
        format!("`({})`", names.join(", "))
    }
}

/// The inputs with their shapes, batched and not.
fn inputs(cx: &Layer<'_>) -> Vec<(Name, String, String)> {
    let (query, key) = sequence_names(cx);
    let tensors = cx.input_values().into_iter().map(|(name, dims)| {
        let dims = shape_text(cx, &dims);
        let without = format!("`{}`", unbatched(&dims));
        (name.to_string().into(), format!("`{dims}`"), without)
    });
    let mut inputs: Vec<(Name, String, String)> = tensors.collect();
    for data in &cx.graph.data {
        inputs.push(match data {
            CallData::Padding => (
                "padding".into(),
                format!("valid lengths `[batch]` of `usize`, a key mask `[batch, {key}]` of `bool`, or `LengthsPerQuery` `[batch, {query}]`"),
                format!("a valid length `usize`, a key mask `[{key}]` of `bool`, or `LengthsPerQuery` `[{query}]`"),
            ),
            CallData::Document if cx.graph.cross => (
                "document".into(),
                format!("ids of `usize`: `([batch, {query}], [batch, {key}])`"),
                format!("ids of `usize`: `([{query}], [{key}])`"),
            ),
            CallData::Document => (
                "document".into(),
                format!("ids `[batch, {query}]` of `usize`"),
                format!("ids `[{query}]` of `usize`"),
            ),
            CallData::PositionIds if cx.graph.cross => (
                "position_ids".into(),
                format!("positions of `usize`: `([batch, {query}], [batch, {key}])`, or without `batch` for all sequences"),
                format!("positions of `usize`: `([{query}], [{key}])`"),
            ),
            CallData::PositionIds => (
                "position_ids".into(),
                format!("positions `[batch, {query}]` of `usize`, or `[{query}]` for all sequences"),
                format!("positions `[{query}]` of `usize`"),
            ),
            CallData::Declared(declared) => declared_input(cx, declared),
        });
    }
    inputs
}

/// An input that the body declares.
fn declared_input(cx: &Layer<'_>, declared: &Declared) -> (Name, String, String) {
    let Declared { name, ty, dims, .. } = declared;
    let without_batch = dims.iter().filter(|dim| !matches!(dim, Dim::Batch));
    let shapes = [dims.clone(), without_batch.cloned().collect()];
    let [batched, unbatched] = shapes.map(|dims| {
        let shape = shape_text(cx, &dims);
        match ty {
            Type::Int => format!("ids `{shape}` of `usize`"),
            Type::Bool => format!("marks `{shape}` of `bool`"),
            Type::Float => format!("`{shape}`"),
        }
    });
    (name.clone(), batched, unbatched)
}

fn sequence_names(cx: &Layer<'_>) -> (&'static str, &'static str) {
    if cx.graph.cross {
        ("query", "key")
    } else {
        ("seq", "seq")
    }
}

fn shape_text(cx: &Layer<'_>, shape: &[Dim]) -> String {
    let (query, key) = sequence_names(cx);
    let dims = shape.iter().map(|dim| match dim {
        Dim::Batch => "batch".to_owned(),
        Dim::Query => query.to_owned(),
        Dim::Key => key.to_owned(),
        Dim::Size(size) => size.to_string(),
    });
    format!("[{}]", dims.collect::<Vec<_>>().join(", "))
}

fn unbatched(shape: &str) -> String {
    shape.replace("[batch, ", "[")
}

/// The data that the body declares, with its doc comments.
fn data(cx: &Layer<'_>) -> String {
    let mut table = Table::new(["name", "elements", ""]);
    for declared in cx.graph.declared() {
        let Declared {
            name,
            ty,
            dims,
            doc,
            ..
        } = declared;
        let elements = match ty {
            Type::Int => "ids",
            Type::Bool => "marks",
            Type::Float => "floats",
        };
        let elements = format!("{elements} `{}`", shape_text(cx, dims));
        table.row([&format!("`{name}`"), &elements, doc]);
    }
    match cx.graph.declared().next() {
        None => String::new(),
        Some(_) => format!("{table}\nNo gradient flows into data."),
    }
}

/// The parameters, as a table.
fn parameters(cx: &Layer<'_>) -> String {
    let mut table = Table::new(["name", "shape", ""]);
    for param in &cx.graph.params {
        for (tensor, dims, _) in param.tensors() {
            let dims: Vec<_> = dims.iter().map(ToString::to_string).collect();
            let doc = match tensor {
                "bias" => "Its bias.",
                _ => &param.doc,
            };
            table.row([
                &format!("`{}.{tensor}`", param.field),
                &format!("`[{}]`", dims.join(", ")),
                doc,
            ]);
        }
    }
    table.to_string()
}

/// The documentation of a field.
pub(super) fn field(param: &Param) -> String {
    param.doc.clone()
}

/// Every key with its value, including defaults.
fn spec_table(spec: &Spec) -> String {
    let mut table = Table::new(["key", "value"]);
    for (key, value) in resolved(spec) {
        let mark = if spec.written.iter().any(|(written, _)| *written == key) {
            ""
        } else {
            " (default)"
        };
        table.row([&format!("`{key}`"), &format!("`{value}`{mark}")]);
    }
    table.to_string()
}

fn resolved(spec: &Spec) -> Vec<(&'static str, String)> {
    let written = |key: &str, default: &str| {
        let found = spec.written.iter().find(|(written, _)| *written == key);
        found.map_or_else(|| default.to_owned(), |(_, value)| value.clone())
    };
    let number = |number: &Option<Real>, none: &str| {
        number
            .as_ref()
            .map_or_else(|| none.to_owned(), ToString::to_string)
    };
    let normalizer = match spec.body.normalizer {
        Some(_) => "fn normalize".to_owned(),
        None => written("normalizer", "softmax"),
    };
    let mut table = vec![
        ("heads", spec.heads.to_string()),
        ("d_model", spec.d_model.to_string()),
        ("kv_heads", spec.kv_heads.to_string()),
        ("head_dim", spec.head_dim.to_string()),
        ("value_head_dim", spec.value_head_dim.to_string()),
    ];
    let widths = [("d_context", &spec.d_context), ("d_values", &spec.d_values)];
    let widths = widths.map(|(key, width)| Some((key, width.as_ref()?.to_string())));
    table.extend(widths.into_iter().flatten());
    table.push(("mask", written("mask", "none")));
    let ensured = spec.written.iter().find(|(key, _)| *key == "ensure");
    table.extend(ensured.cloned());
    table.extend([
        ("score", written("score", "scaled_dot")),
        ("scale", number(&spec.scale, "1")),
        ("softcap", number(&spec.softcap, "none")),
        ("normalizer", normalizer),
        ("position", written("position", "none")),
    ]);
    if let Position::RelPosBias { one_sided, .. } = spec.position {
        table.push(("bidirectional", (!one_sided).to_string()));
    }
    table.extend([
        ("qk_norm", written("qk_norm", "none")),
        ("bias", written("bias", "true")),
        ("dropout", number(&spec.dropout, "0")),
        ("init", written("init", "as torch.nn.MultiheadAttention")),
    ]);
    let has_queries = spec.score != Score::OfPlaces;
    table.retain(|(key, _)| has_queries || !ABOUT_QUERIES.contains(key));
    table
}

/// The predicate of the mask, and a small drawing.
fn mask(cx: &Layer<'_>) -> String {
    let Some(predicate) = cx.graph.mask() else {
        return String::new();
    };
    let mut text = format!("A query attends to a key where\n\n```text\n{predicate}\n```\n");
    let drawing = match &cx.spec.grid {
        Some(grid) => drawing::on_grid(predicate, grid),
        None => drawing::of(predicate, &cx.graph.data),
    };
    if let Some(drawing) = drawing {
        text.push_str(&drawing);
    }
    text
}

/// The texts about accepted shapes, for errors and for the page of the trait.
pub(super) struct Accepted {
    pub(super) message: String,
    pub(super) label: String,
    pub(super) note: String,
    pub(super) doc: String,
}

pub(super) fn accepted(cx: &Layer<'_>) -> Accepted {
    let name = &cx.spec.item.name;
    let tuple = |parts: Vec<String>| {
        if parts.len() == 1 {
            parts[0].clone()
        } else {
            format!("({})", parts.join(", "))
        }
    };
    let bare = |text: &str| text.replace('`', "");
    let mut batched = Vec::new();
    let mut unbatched = Vec::new();
    let mut names = Vec::new();
    let mut data = Vec::new();
    let tensors = cx.graph.block.inputs.len();
    for (index, (input, with_batch, without)) in inputs(cx).into_iter().enumerate() {
        names.push(input.to_string());
        if index < tensors {
            batched.push(bare(&with_batch));
            unbatched.push(bare(&without));
        } else {
            batched.push(input.to_string());
            unbatched.push(input.to_string());
            data.push(format!(
                "{input}: {}; without a batch: {}",
                bare(&with_batch),
                bare(&without)
            ));
        }
    }
    let batched = tuple(batched);
    let unbatched = tuple(unbatched);
    let mut note = "batch and sequence axes are `usize` or `Const<N>`, the width is a `Const`; elements and device are those of the layer: `{E}`, `{D}`".to_owned();
    for line in &data {
        let _ = write!(note, "\n{line}");
    }
    if names.len() > 1 {
        note.push('\n');
        note.push_str(&messages::one_tuple(
            "forward",
            names.iter().map(String::as_str),
        ));
    }
    note.push_str(match cx.spec.sources().count() {
        0 => "",
        1 => "\nboth inputs have the same type of batch axis, and `context` has no tape",
        _ => {
            "\nall inputs have the same type of batch axis, `context` and `values` the same type of key axis, and these two have no tape"
        }
    });
    Accepted {
        message: format!("`{name}` takes {batched} or {unbatched}, not `{{Self}}`"),
        label: format!("wrong input for `{name}`"),
        note,
        doc: format!(
            "An input of [`{name}`]: `{batched}` or, without a batch, `{unbatched}`. Implemented for dfdx tensors; the page of the layer has their shapes."
        ),
    }
}

/// The docs of `forward`, `forward_mut`, `forward_with_weights` and `forward_mut_with_weights`, each with its fallible version, and of
/// `composed`.
pub(super) fn methods(cx: &Layer<'_>) -> [String; 9] {
    let call = call(cx);
    let output = shape_text(cx, &cx.output_shape());
    let weights = shape_text(cx, &cx.graph.weights);
    let panics = "\n\n# Panics\nIf the method with the prefix `try_` would return an error.";
    let errors = "\n\n# Errors\nIf sizes that are known only at run time do not match or do not fit the memory, or if the device fails.";
    let dropout = match &cx.spec.dropout {
        Some(p) => format!(" If `x` is traced, weights are dropped with probability {p}."),
        None => " The layer has no dropout, so this is the same as `forward`.".to_owned(),
    };
    let gradients = "If `x` is traced, both results have a tape: add what is computed of both before `backward()`, and gradients flow through the weights as well.";
    let dropped = match &cx.spec.dropout {
        Some(_) => " that the values are multiplied by, after dropout",
        None => "",
    };
    [
        format!(
            "Runs the layer without dropout, so it is deterministic: takes {call}, returns `{output}` (`{}` without a batch).{panics}",
            unbatched(&output)
        ),
        format!("[`forward`](Self::forward) with a typed error.{errors}"),
        format!("Runs the layer in training.{dropout}{panics}"),
        format!("[`forward_mut`](Self::forward_mut) with a typed error.{errors}"),
        format!(
            "[`forward`](Self::forward) that also returns the attention weights, `{weights}` (`{}` without a batch). {gradients} The weights are in memory, and no scores are on the `Cpu`.{panics}",
            unbatched(&weights)
        ),
        format!("[`forward_with_weights`](Self::forward_with_weights) with a typed error.{errors}"),
        format!(
            "[`forward_mut`](Self::forward_mut) that also returns the attention weights{dropped}, as [`forward_with_weights`](Self::forward_with_weights) does.{panics}"
        ),
        format!(
            "[`forward_mut_with_weights`](Self::forward_mut_with_weights) with a typed error.{errors}"
        ),
        "The equivalent chain of dfdx's operations, as a reference and for debugging.".to_owned(),
    ]
}

/// The line about the rotation of queries and keys.
fn rotation(rotary: &Rotary) -> String {
    let Rotary { theta, dims, .. } = rotary;
    let positions = match rotary.position_ids {
        true => ["position_ids[q_idx]", "position_ids[kv_idx]"],
        false => ["q_idx", "kv_idx"],
    };
    let [q, k] = positions;
    let pairs = match rotary.interleaved {
        true => " of neighbours",
        false => "",
    };
    let scaling = rotary.scaling.as_ref();
    let scaling = scaling.map_or_else(String::new, |scaling| format!(", scaled by {scaling}"));
    format!(
        "q = rotate(q, {q}),  k = rotate(k, {k})   with angles position * {theta}^(-2i / {dims}) of pairs{pairs}{scaling}"
    )
}
