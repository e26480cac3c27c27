//! The documentation of what is emitted, and the picture of the graph.

use std::fmt::Write;

use super::Emitter;
use crate::model::graph::{Field, ModuleId, Op, Place, Region, Step, Submodule, ValueId};
use crate::spec::Size;

/// `ids[batch, seq]`, or several in parentheses.
pub(super) fn accepted(cx: &Emitter<'_>) -> String {
    listed(cx, &cx.model.inputs)
}

fn listed(cx: &Emitter<'_>, values: &[ValueId]) -> String {
    let types = values.iter().map(|id| cx.model.value(*id).ty.to_string());
    let types: Vec<_> = types.collect();
    match types.as_slice() {
        [one] => one.clone(),
        _ => format!("({})", types.join(", ")),
    }
}

/// The note under a wrong input.
pub(super) fn axes_note(cx: &Emitter<'_>) -> String {
    let symbols = cx.model.symbols.iter().map(|name| format!("`{name}`"));
    let symbols = symbols.collect::<Vec<_>>().join(", ");
    let mut note = String::new();
    if !symbols.is_empty() {
        let _ = write!(
            note,
            "{symbols}: `usize` or `Const<N>`, the same wherever the name stands; "
        );
    }
    note.push_str("other axes are a `Const`; ids and lengths are tensors of `usize`; elements and device are those of the model: `{E}`, `{D}`");
    if cx.model.inputs.len() > 1 {
        note.push_str("\nonly the first input has a tape");
    }
    note
}

/// Of the struct.
pub(super) fn model(cx: &Emitter<'_>) -> String {
    let mut doc = String::from("\n\nDeclared with `model!`.\n\n# Shapes\n\n| | |\n| --- | --- |\n");
    for id in &cx.model.inputs {
        let value = cx.model.value(*id);
        let _ = writeln!(doc, "| `{}` | `{}` |", value.name, value.ty);
    }
    let _ = writeln!(doc, "| output | `{}` |", listed(cx, &cx.model.results));
    if !cx.model.symbols.is_empty() {
        let symbols = cx.model.symbols.iter().map(|name| format!("`{name}`"));
        let symbols = symbols.collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            doc,
            "\n{symbols}: any dfdx `Dim`, `usize` or `Const<N>`. Ids and lengths are tensors of `usize`."
        );
    }
    doc.push_str("\n# Layers\n\n");
    doc.push_str(&table(cx, ModuleId(0)));
    doc
}

/// Of the body of a `repeat`.
pub(super) fn module(cx: &Emitter<'_>, id: ModuleId) -> String {
    format!(
        "A round of `repeat` in [`{}`].\n\n# Layers\n\n{}",
        cx.label(),
        table(cx, id)
    )
}

/// The layers of a module, those of a loop behind it.
fn table(cx: &Emitter<'_>, id: ModuleId) -> String {
    let mut table = String::from("| name | layer | output |\n| --- | --- | --- |\n");
    push_rows(cx, id, "", &mut table);
    table
}

fn push_rows(cx: &Emitter<'_>, id: ModuleId, path: &str, table: &mut String) {
    for field in &cx.model.module(id).fields {
        let name = format!("{path}{}", field.name);
        let _ = writeln!(
            table,
            "| `{name}` | {} | `{}` |",
            layer_name(&field.layer),
            field.output
        );
        if let Submodule::Repeat { module, share, .. } = &field.layer {
            let inner = if *share { "." } else { ".*." };
            push_rows(cx, *module, &format!("{name}{inner}"), table);
        }
    }
}

/// Of a field of the struct.
pub(super) fn field(cx: &Emitter<'_>, field: &Field) -> String {
    match &field.layer {
        Submodule::Attention(index) => {
            let name = &cx.model.attentions[*index].0.item.name;
            format!("[`{name}`]: `{}`", field.output)
        }
        layer => format!("{}: `{}`", layer_name(layer), field.output),
    }
}

/// A layer in a word or two, with its sizes.
pub(super) fn layer_name(layer: &Submodule) -> String {
    let of = |name: &str, sizes: &[&Size]| {
        let sizes: Vec<_> = sizes.iter().map(|size| size.to_string()).collect();
        format!("{name} {}", sizes.join(" -> "))
    };
    match layer {
        Submodule::Embedding { vocab, width } => of("embedding", &[vocab, width]),
        Submodule::LearnedPosition { max_len, width } => of("learned_position", &[max_len, width]),
        Submodule::Linear {
            input,
            output,
            bias,
        } => {
            let name = of("linear", &[input, output]);
            if *bias {
                name
            } else {
                format!("{name}, without bias")
            }
        }
        Submodule::FeedForward {
            width,
            hidden,
            activation,
        } => {
            let gate = if activation.gated { "gate of " } else { "" };
            let name = of("feed_forward", &[width, hidden, width]);
            format!("{name}, {gate}{}", activation.ty)
        }
        Submodule::LayerNorm { width } => of("layer_norm", &[width]),
        Submodule::RmsNorm { width } => of("rms_norm", &[width]),
        Submodule::Attention(_) => "attention".to_owned(),
        Submodule::Repeat { count, share, .. } => {
            let share = if *share {
                ", one set of parameters"
            } else {
                ""
            };
            format!("repeat {count}{share}")
        }
    }
}

/// Of `forward`, `try_forward`, their `_mut` twins, and `composed`.
pub(super) fn methods(cx: &Emitter<'_>) -> [String; 5] {
    let (input, output) = (accepted(cx), listed(cx, &cx.model.results));
    let panics = "# Panics\nOn what the twin with `try_` returns as an error.";
    let errors = "# Errors\nWhen sizes that only the running program knows do not fit each other or the memory, when an id is out of range, or when the device fails.";
    [
        format!("Runs the model: takes `{input}`, returns `{output}`. Deterministic: without dropout.\n\n{panics}"),
        format!("As [`forward`](Self::forward), with a typed error.\n\n{errors}"),
        format!("Runs the model while training: dropout acts if the input is traced.\n\n{panics}"),
        format!("As [`forward_mut`](Self::forward_mut), with a typed error.\n\n{errors}"),
        "The model as a chain of dfdx's operations, which means the same: to compare, to read, to debug."
            .to_owned(),
    ]
}

/// The graph in the language of Graphviz.
pub(super) fn dot(cx: &Emitter<'_>) -> String {
    let mut dot = format!(
        "digraph {} {{\n    node [shape=box, fontname=\"sans-serif\"];\n",
        cx.label()
    );
    for id in &cx.model.inputs {
        let value = cx.model.value(*id);
        let _ = writeln!(
            dot,
            "    v{} [label=\"{}\\n{}\", shape=ellipse];",
            id.0, value.name, value.ty
        );
    }
    push_region(cx, &cx.model.body, 1, &mut dot);
    for (index, id) in cx.model.results.iter().enumerate() {
        let _ = writeln!(dot, "    result{index} [label=\"output\", shape=ellipse];");
        let _ = writeln!(dot, "    v{} -> result{index};", id.0);
    }
    dot.push_str("}\n");
    dot
}

fn push_region(cx: &Emitter<'_>, region: &Region, depth: usize, dot: &mut String) {
    let indent = "    ".repeat(depth);
    for step in &region.steps {
        match step {
            Step::Node(node) => {
                let (id, ty) = (node.result.0, &cx.model.value(node.result).ty);
                let label = node_label(cx, &node.op);
                let _ = writeln!(dot, "{indent}v{id} [label=\"{label}\\n{ty}\"];");
                for operand in &node.operands {
                    let _ = writeln!(dot, "{indent}v{} -> v{id};", operand.0);
                }
            }
            Step::Repeat(repeat) => {
                let _ = writeln!(dot, "{indent}subgraph cluster_{} {{", repeat.module.0);
                let _ = writeln!(dot, "{indent}    label=\"repeat {}\";", repeat.count);
                for carried in &repeat.carried {
                    let value = cx.model.value(carried.value);
                    let id = carried.value.0;
                    let _ = writeln!(
                        dot,
                        "{indent}    v{id} [label=\"{}\\n{}\", shape=ellipse];",
                        value.name, value.ty
                    );
                    let _ = writeln!(dot, "{indent}    v{} -> v{id};", carried.before.0);
                }
                push_region(cx, &repeat.body, depth + 1, dot);
                for carried in &repeat.carried {
                    let (after, id) = (carried.after.0, carried.value.0);
                    let _ = writeln!(
                        dot,
                        "{indent}    v{after} -> v{id} [style=dashed, constraint=false];"
                    );
                }
                let _ = writeln!(dot, "{indent}}}");
            }
        }
    }
}

fn node_label(cx: &Emitter<'_>, op: &Op) -> String {
    let named = |place: &Place| {
        let layer = cx.model.layer(place).map_or_else(String::new, layer_name);
        match layer.starts_with(&place.field) {
            true => layer,
            false => format!("{}: {layer}", place.field),
        }
    };
    match op {
        Op::Embedding(place)
        | Op::LearnedPosition(place)
        | Op::Linear(place)
        | Op::FeedForward(place)
        | Op::LayerNorm(place)
        | Op::RmsNorm(place)
        | Op::Attention { place, .. } => named(place),
        Op::TiedLinear(place) => format!("linear, tied to {}", place.field),
        Op::SinusoidalPosition => "sinusoidal_position".to_owned(),
        Op::Dropout(p) => format!("dropout {p}"),
        Op::Activation(ty) => (*ty).to_owned(),
        Op::Add => "+".to_owned(),
        Op::Sub => "-".to_owned(),
        Op::Mul => "*".to_owned(),
        Op::Scale(by) => format!("* {by}"),
        Op::Shift(by) => format!("+ {by}"),
        Op::Softmax => "softmax".to_owned(),
        Op::Expand => "expand".to_owned(),
        Op::Concat => "concat".to_owned(),
        Op::MeanPool | Op::PaddedMeanPool => "mean_pool".to_owned(),
    }
}
